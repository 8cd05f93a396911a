/* SPDX-License-Identifier: MIT
 * server/zone_watch.c - offsets of time zones, read from the system's files. */

#include "server/zone_watch.h"

#include "io/clock.h"
#include "io/zone.h"

#define EVERY_S 3600 /* and when one changes */

static void log_unknown_zone(struct weir_zone_watch *watch,
                             struct weir_text zone, const char *why)
{
    weir_log_limited(watch->log, WEIR_LOG_ZONE, WEIR_LOG_WARNING,
                     "time zone %.*s: %s; UTC is used", (int)zone.len, zone.p,
                     why);
}

int32_t weir_zone_watch_offset(void *context, struct weir_text zone)
{
    struct weir_zone_watch *watch = context;
    weir_instant now = weir_clock_now();
    int64_t at = (int64_t)((now + weir_clock_wall_offset()) / WEIR_SECOND);
    int64_t until = INT64_MAX;
    int32_t offset_s = 0;
    struct weir_diag diag = { .text = "" };
    if (weir_zone_at(zone, at, &offset_s, &until, &diag) < 0)
        log_unknown_zone(watch, zone, diag.text);
    if (until > at && until - at < EVERY_S &&
        now + (weir_duration)(until - at) * WEIR_SECOND < watch->again_at)
        watch->again_at = now + (weir_duration)(until - at) * WEIR_SECOND;
    return offset_s;
}

bool weir_zone_watch_is_due(struct weir_zone_watch *watch, weir_instant now)
{
    if (now < watch->again_at)
        return false;
    watch->again_at = now + EVERY_S * WEIR_SECOND;
    return true;
}
