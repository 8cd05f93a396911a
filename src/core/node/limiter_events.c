/* SPDX-License-Identifier: MIT
 * core/node/limiter_events.c - a limiter's queue of events, those that are
 * noticed at an interval's end, and names that a root denies to this limiter's
 * credential.
 *
 * A credential that may take from a quota may also name the quotas above it,
 * but a root knows that they are above only after it received a name below
 * (core/node/root_names.c). If the limiter's table has such a name, the next
 * report carries it; the root then accepts the names it denied before, since
 * the limiter repeats them. So a denial is an event at once if the table has
 * nothing below the name, and otherwise only if it is repeated after
 * DENIED_GRACE.
 *
 * The table also has names below that the credential may not take from: all
 * stored quotas, and names that a caller made up. So each denial sends another
 * name: first those in use, then the rest, and none that was denied lately. One
 * search looks at WALK_MAX slots for either sort, and the next search goes on
 * from there. Searches are rate-limited, and names without children need
 * none. */

#include "core/node/limiter_internal.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/quota/quota_text.h"

#define DENIED_GRACE WEIR_SECOND
#define SEARCH_EVERY (50 * WEIR_MILLISECOND)
#define SEARCH_BURST (16 * SEARCH_EVERY)
#define WALK_MAX 65536 /* slots: 1 to 2 ms */

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
    if (stays && !limiter->elsewhere_reported)
        weir_limiter_note(limiter, WEIR_EVENT_ELSEWHERE, master, now);
    limiter->elsewhere = hash;
    limiter->elsewhere_reported = stays;
}

/* Looks whether there are more roots than this limiter is connected to: one
 * address that balances the load over several roots, say. Then no root has all
 * counts. Roots start and stop, and a killed one is counted for a while: only
 * what lasts is reported. */
static void few_roots_event(struct weir_limiter *limiter, weir_instant now)
{
    uint32_t up = 0;
    uint32_t most = 0;
    bool sent = false;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        const struct limiter_link *link = &limiter->link[i];
        if (link->state != LINK_UP)
            continue;
        up++;
        sent |= link->roots_sent;
        most = link->roots > most ? link->roots : most;
    }
    /* Just connected: nothing is known of now, and that which was goes on. */
    if (up > 0 && !sent)
        return;
    limiter->roots = most;
    limiter->roots_up = up + limiter->others;
    bool few = up > 0 && limiter->roots_up < most;
    if (few && !limiter->few)
        limiter->few_since = now;
    limiter->few = few;
    if (!few) {
        limiter->few_reported = false;
        return;
    }
    if (limiter->few_reported ||
        now - limiter->few_since < WEIR_FEW_ROOTS_AFTER)
        return;
    limiter->few_reported = true;
    char have[WEIR_NUMBER_MAX], want[WEIR_NUMBER_MAX];
    struct weir_diag text;
    weir_diag_set(&text, 0, "connected to ",
                  weir_number_show(limiter->roots_up, have), " of ",
                  weir_number_show(most, want),
                  " roots: some limits count only a part of the fleet. Name "
                  "all roots, or a name that has all their addresses, not a "
                  "load balancer's",
                  NULL);
    weir_limiter_note(limiter, WEIR_EVENT_FEW_ROOTS, weir_text_of(text.text),
                      now);
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
    few_roots_event(limiter, now);
}

/* ---- Denied names ---- */

static uint64_t denied_hash(struct weir_text name)
{
    return weir_hash(name, 0) | 1; /* never 0 */
}

static struct limiter_denied *find_denied(struct weir_limiter *limiter,
                                          struct weir_text name)
{
    uint64_t hash = denied_hash(name);
    for (uint32_t i = 0; i < LIMITER_DENIED_MAX; i++)
        if (limiter->denied[i].hash == hash)
            return &limiter->denied[i];
    return NULL;
}

static struct limiter_denied *remember_denied(struct weir_limiter *limiter,
                                              struct weir_text name,
                                              weir_instant now)
{
    struct limiter_denied *denied =
        &limiter->denied[limiter->denied_next++ % LIMITER_DENIED_MAX];
    *denied =
        (struct limiter_denied){ .hash = denied_hash(name), .first = now };
    weir_assert(denied->hash != 0 && !denied->reported);
    return denied;
}

/* Whether callers use the name, as far as the table shows. */
static bool is_slot_used(struct weir_limiter *limiter, uint32_t slot,
                         weir_instant now)
{
    struct weir_slot_view view;
    weir_table_view(limiter->table, slot, &view, now);
    return view.state == WEIR_SLOT_INSTANCE || view.refs > 0 ||
           view.count > 0 || view.refused > 0;
}

/* Writes the next name below 'above' that wasn't denied; 'used': one in use.
 * Returns its length, 0 if the search found none. */
static size_t search_below(struct weir_limiter *limiter, uint32_t above,
                           bool used, char buf[WEIR_NAME_MAX + 1],
                           weir_instant now)
{
    weir_assert(above < weir_table_used(limiter->table));
    uint32_t end = weir_table_used(limiter->table);
    uint32_t *hand = &limiter->below_hand[used];
    for (uint32_t i = 0; i < end && i < WALK_MAX; i++) {
        uint32_t slot = *hand < end ? *hand : 0;
        *hand = slot + 1;
        if (!weir_table_is_below(limiter->table, slot, above) ||
            (used && !is_slot_used(limiter, slot, now)))
            continue;
        size_t len = weir_table_name(limiter->table, slot, buf);
        if (len > 0 && !find_denied(limiter, (struct weir_text){ buf, len }))
            return len;
    }
    return 0;
}

/* Whether the root can still learn that the name may be taken from. */
static bool is_denial_open(struct weir_limiter *limiter, uint32_t index,
                           struct weir_text name, weir_instant now)
{
    weir_assert(index < limiter->link_count);
    struct limiter_link *link = &limiter->link[index];
    struct weir_slot_view view;
    struct weir_ref ref;
    if (!weir_table_find(limiter->table, name, &ref))
        return false;
    weir_table_view(limiter->table, ref.slot, &view, now);
    if (view.refs == 0)
        return false; /* neither children nor handles */
    if (link->below_len > 0 || limiter->below_at > now + SEARCH_BURST)
        return true;
    limiter->below_at = weir_later(limiter->below_at, now) + SEARCH_EVERY;
    link->below_len = search_below(limiter, ref.slot, true, link->below, now);
    if (link->below_len == 0)
        link->below_len =
            search_below(limiter, ref.slot, false, link->below, now);
    link->urgent |= link->below_len > 0;
    return link->below_len > 0 || weir_table_used(limiter->table) > WALK_MAX;
}

void weir_limiter_note_denied(struct weir_limiter *limiter, uint32_t link,
                              struct weir_text name, weir_instant now)
{
    weir_assert(link < limiter->link_count);
    struct limiter_denied *denied = find_denied(limiter, name);
    bool open = is_denial_open(limiter, link, name, now);
    if (!denied)
        denied = remember_denied(limiter, name, now);
    if (denied->reported || (open && now - denied->first < DENIED_GRACE))
        return;
    denied->reported =
        weir_limiter_note(limiter, WEIR_EVENT_DENIED, name, now) != NULL;
}

struct weir_text weir_limiter_below(struct weir_limiter *limiter, uint32_t link)
{
    weir_assert(link < limiter->link_count);
    struct weir_text below = { limiter->link[link].below,
                               limiter->link[link].below_len };
    limiter->link[link].below_len = 0;
    return below;
}
