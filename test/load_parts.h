/* SPDX-License-Identifier: MIT
 * load_parts.h - shared by programs that put a fleet under load.
 *
 * They use libweir as a service does, by its installed header. They print
 * events as JSON on standard output, one line each, whole also when several
 * threads print. */

#ifndef WEIR_LOAD_PARTS_H
#define WEIR_LOAD_PARTS_H

#include <weir/weir.h>

/* CLOCK_MONOTONIC. */
weir_instant live_now(void);
/* Returns at that instant or later, in spite of signals. */
void live_sleep_until(weir_instant at);

/* Of this process, as the kernel counts it; 0 if it isn't known. */
uint64_t live_resident_bytes(void);

/* Sets the files of tls_… to those of WEIR_TLS_CA, WEIR_TLS_CERT and
 * WEIR_TLS_KEY, as weir(1) does. */
void live_use_tls(struct weir_options *options);

/* Between these two calls only this thread prints a line. The first also prints
 * its beginning: {"pid", "at", and a comma. */
void live_tell_begin(weir_instant at);
void live_tell_end(void);
/* {"pid", "at", "event": TYPE, "count", "text"}; for weir_options.on_event. */
void live_tell_event(void *context, const struct weir_event *event);

#endif /* WEIR_LOAD_PARTS_H */
