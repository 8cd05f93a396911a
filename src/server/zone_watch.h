/* SPDX-License-Identifier: MIT
 * server/zone_watch.h - the offsets of time zones at a root, for the windows of
 * exact quotas; and when to read them again. One thread. */

#ifndef WEIR_ZONE_WATCH_H
#define WEIR_ZONE_WATCH_H

#include "front/log.h"

/* All zero but 'log': the zones are due. */
struct weir_zone_watch {
    struct weir_log *log;  /* borrowed */
    weir_instant again_at; /* when to read the zones again */
};

/* For weir_root_options.zones, with the watch as context: seconds to be added
 * to UTC now. An unknown zone is UTC, and is logged. */
int32_t weir_zone_watch_offset(void *context, struct weir_text zone);
/* Whether an hour has passed, or one of the zones has changed: the root then
 * asks again. */
bool weir_zone_watch_is_due(struct weir_zone_watch *watch, weir_instant now);

#endif /* WEIR_ZONE_WATCH_H */
