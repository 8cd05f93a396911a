/* SPDX-License-Identifier: MIT
 * core/node/limiter_events.c - a limiter's queue of events, and those that are
 * noticed at an interval's end. */

#include "core/node/limiter_internal.h"

#include <string.h>

#include "core/base/hash.h"

struct weir_event *weir_limiter_note(struct weir_limiter *limiter,
                                     enum weir_event_type type,
                                     struct weir_text text, weir_instant now)
{
    if (limiter->event_count == LIMITER_EVENTS_MAX) {
        limiter->events_lost++;
        return NULL;
    }
    weir_assert(limiter->event_count < LIMITER_EVENTS_MAX);
    uint32_t at =
        (limiter->event_first + limiter->event_count++) % LIMITER_EVENTS_MAX;
    struct weir_event *event = &limiter->event[at];
    *event = (struct weir_event){ .type = type, .at = now, .count = 1 };
    size_t len =
        text.len < sizeof(event->text) - 1 ? text.len : sizeof(event->text) - 1;
    if (len > 0)
        memcpy(event->text, text.p, len);
    return event;
}

bool weir_limiter_event(struct weir_limiter *limiter, struct weir_event *out)
{
    weir_assert(limiter->event_first < LIMITER_EVENTS_MAX);
    if (limiter->event_count > 0) {
        *out = limiter->event[limiter->event_first];
        limiter->event_first = (limiter->event_first + 1) % LIMITER_EVENTS_MAX;
        limiter->event_count--;
        return true;
    }
    if (limiter->events_lost == 0)
        return false;
    *out = (struct weir_event){ .type = WEIR_EVENT_LOST,
                                .count = limiter->events_lost };
    limiter->events_lost = 0;
    return true;
}

/* ---- At an interval's end ---- */

/* Notes that the master of leased quotas has no link here, so no lease can be
 * had. An event is made if this holds at two intervals' ends, because links and
 * masters come up one after the other. */
static void elsewhere_event(struct weir_limiter *limiter, weir_instant now)
{
    const struct weir_lease_client *client = limiter->leases.client;
    struct weir_text master = weir_lease_client_elsewhere(client);
    uint32_t cursor = 0, place;
    bool leases = weir_lease_client_each(client, &cursor, &place);
    uint64_t hash = leases && master.len > 0 ? weir_hash(master, 0) | 1 : 0;
    bool stays = hash != 0 && hash == limiter->elsewhere;
    if (stays && !limiter->elsewhere_told)
        weir_limiter_note(limiter, WEIR_EVENT_ELSEWHERE, master, now);
    limiter->elsewhere = hash;
    limiter->elsewhere_told = stays;
}

static void overflow_events(struct weir_limiter *limiter, weir_instant now)
{
    uint64_t seen = weir_table_overflowed(limiter->table);
    if (seen == limiter->full_seen)
        return;
    struct weir_event *event =
        weir_limiter_note(limiter, WEIR_EVENT_TABLE_FULL, WEIR_TEXT(""), now);
    if (event)
        event->count = seen - limiter->full_seen;
    limiter->full_seen = seen;
}

void weir_limiter_note_interval(struct weir_limiter *limiter, weir_instant now)
{
    overflow_events(limiter, now);
    elsewhere_event(limiter, now);
}
