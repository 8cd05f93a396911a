/* SPDX-License-Identifier: MIT
 * libweir/libweir_zones.c - the wall clock and time zones that windows begin
 * by.
 *
 * The table counts nanoseconds and knows no files. The thread gives it the
 * distance of its clock from UTC, each time it runs, and the distance of each
 * zone that a quota names from UTC: when quotas have come, and once an hour or
 * when the zone next changes. Thousands of quotas name a few zones, each of
 * which is a file: the zones of one round are remembered till its end. */

#include "libweir/libweir_internal.h"

#include <string.h>

#include "io/clock.h"
#include "io/zone.h"

#define LOOK_AGAIN (3600 * WEIR_SECOND)

#define ZONES_KEPT 16 /* of one round; any others are looked up each time */

struct kept_zone {
    char name[WEIR_TZ_MAX];
    size_t len;
    int32_t offset_s;
};

struct looking {
    struct weir *weir;
    int64_t at;    /* seconds since 1970 */
    int64_t until; /* when the first zone changes */
    bool anew;
    unsigned kept;
    struct kept_zone zone[ZONES_KEPT];
};

static int32_t look_up_zone(struct looking *looking, struct weir_text zone)
{
    struct weir_diag diag = { .text = "" };
    int64_t until = INT64_MAX;
    int32_t offset_s = 0;
    if (weir_zone_at(zone, looking->at, &offset_s, &until, &diag) < 0 &&
        looking->anew)
        weir_event_report(looking->weir, WEIR_EVENT_ZONE, "%.*s: %.100s",
                          (int)zone.len, zone.p, diag.text);
    if (until < looking->until)
        looking->until = until;
    return offset_s;
}

static int32_t zone_offset(void *context, struct weir_text zone)
{
    struct looking *looking = context;
    for (unsigned i = 0; i < looking->kept; i++) {
        const struct kept_zone *known = &looking->zone[i];
        struct weir_text name = { known->name, known->len };
        if (weir_text_equal(name, zone))
            return known->offset_s;
    }
    int32_t offset_s = look_up_zone(looking, zone);
    if (looking->kept == ZONES_KEPT || zone.len > WEIR_TZ_MAX)
        return offset_s;
    struct kept_zone *place = &looking->zone[looking->kept++];
    memcpy(place->name, zone.p, zone.len);
    place->len = zone.len;
    place->offset_s = offset_s;
    return offset_s;
}

void weir_zones_follow(struct weir *weir, bool anew, weir_instant now)
{
    uint64_t offset = weir_clock_wall_offset();
    weir_table_set_wall(weir->table, offset);
    if (!anew && now < weir->zones_at)
        return;
    struct looking looking = {
        .weir = weir,
        .at = (int64_t)((now + offset) / WEIR_SECOND),
        .until = INT64_MAX,
        .anew = anew,
    };
    weir_table_set_zones(weir->table, zone_offset, &looking);
    weir->zones_at = now + LOOK_AGAIN;
    if (looking.until <= looking.at ||
        looking.until - looking.at >= (int64_t)(LOOK_AGAIN / WEIR_SECOND))
        return;
    weir->zones_at =
        now + (weir_duration)(looking.until - looking.at) * WEIR_SECOND;
}
