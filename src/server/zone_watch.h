/* SPDX-License-Identifier: MIT
 * server/zone_watch.h - what time zones are at a root, for the windows of exact
 * quotas; and when to look again. One thread. */

#ifndef WEIR_ZONE_WATCH_H
#define WEIR_ZONE_WATCH_H

#include "server/log.h"

/* All zero but 'log': to be looked at. */
struct weir_zone_watch {
    struct weir_log *log;  /* borrowed */
    weir_instant again_at; /* zones are to be looked at again */
};

/* For weir_root_options.zones, with the watch as context: seconds to be added
 * to UTC now. A zone that isn't known is UTC, and the log hears of it. */
int32_t weir_zone_watch_offset(void *context, struct weir_text zone);
/* Whether an hour has passed, or one of the zones has changed: the root asks
 * anew then. */
bool weir_zone_watch_is_due(struct weir_zone_watch *watch, weir_instant now);

#endif /* WEIR_ZONE_WATCH_H */
