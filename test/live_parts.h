/* SPDX-License-Identifier: MIT
 * live_parts.h - what programs that put a fleet under load have in common.
 *
 * They know libweir as a service does, by its installed header. What happens
 * they tell as JSON on standard output, a line each, whole also when several
 * threads tell. */

#ifndef WEIR_LIVE_PARTS_H
#define WEIR_LIVE_PARTS_H

#include <weir/weir.h>

/* CLOCK_MONOTONIC. */
weir_instant live_now(void);
/* Returns at that instant or later, whatever signals come. */
void live_sleep_until(weir_instant at);

/* Of this process, as the kernel counts it; 0 if it doesn't say. */
uint64_t live_resident_bytes(void);

/* Between these two, one line is printed by this thread only. The first also
 * writes its beginning: {"pid", "at", and a comma. */
void live_tell_begin(weir_instant at);
void live_tell_end(void);
/* {"pid", "at", "event": TYPE, "count", "text"}; for weir_options.on_event. */
void live_tell_event(void *context, const struct weir_event *event);

#endif /* WEIR_LIVE_PARTS_H */
