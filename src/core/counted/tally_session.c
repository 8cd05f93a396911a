/* SPDX-License-Identifier: MIT
 * counted/tally_session.c - how a session with a root begins and ends.
 *
 * A session's start. The same root, back again, remembers its merged totals:
 * counts go on from 'acked'. A cold root knows nothing: we send each bucket as
 * we know it at that moment, without the counts that no root has answered
 * ('settled' in the table); those follow as counts. The fills of other limiters
 * hold both the units we reported and those that roots presume of us, so a cold
 * root is sent the difference from both. A limiter that meets it later than
 * others reports whether another root was its witness: if so, the units that
 * others counted since are in its fill. A slot used later is announced with an
 * empty bucket: by then the root gets its counts from all limiters, and a fill
 * would hold counts that another limiter is about to report, and they would
 * count twice. */

#include <string.h>

#include "core/counted/bits.h"
#include "core/counted/tally_internal.h"

/* The bucket without the counts above 'base', in 1/1024 units. */
static int64_t fill_without(const struct weir_slot_view *view, uint64_t base)
{
    if (view->unlimited)
        return 0;
    unsigned frac = view->bucket.leak.frac;
    int64_t unseen = (int64_t)(view->count - base);
    int64_t fill = view->fill - (int64_t)((uint64_t)unseen << frac);
    if (fill <= 0)
        return 0;
    return weir_rescale(fill, frac, WEIR_FILL_FRAC);
}

/* Whether some root has sent a fill of the slot since. */
static bool has_fill_since(const struct weir_tally *tally, uint32_t slot,
                           weir_instant since)
{
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (cell->told && cell->fill_at >= since)
            return true;
    }
    return false;
}

/* The part of our total that other limiters' fills hold: the least total that a
 * root which sends us fills has and presumes of it. 'settled' if there is
 * none. */
static uint64_t in_flight_of_us(const struct weir_tally *tally, uint32_t slot,
                                uint64_t settled, weir_instant now)
{
    weir_assert(slot < tally->slots);
    bool some = false;
    uint64_t least = settled;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (!tally->link[i].up || !cell->told)
            continue;
        uint64_t held = cell->acked +
                        weir_tally_presumed(tally, cell, cell->pace_held, now) /
                            WEIR_FILL_ONE;
        if (!some || (int64_t)(held - least) < 0)
            least = held;
        some = true;
    }
    return least;
}

/* Announces every slot with a non-empty bucket, and its fill, to a cold
 * root. */
static void announce_all(struct weir_tally *tally, struct weir_tally_link *link,
                         weir_instant root_born, weir_instant now)
{
    uint32_t end = weir_table_used(tally->table);
    weir_assert(end <= tally->slots);
    for (uint32_t slot = 0; slot < end; slot++) {
        struct weir_tally_cell *cell = &link->cells[slot];
        /* Unwritten memory stays unwritten: of a million cells most are of
         * unused quotas, and cost no memory yet. */
        if (cell->begun) {
            cell->begun = false;
            weir_tally_forget_fill(cell);
        }
        struct weir_slot_view view;
        weir_table_view(tally->table, slot, &view, now);
        if (view.state <= WEIR_SLOT_PLACEHOLDER || view.fill <= 0)
            continue;
        weir_tally_cell_of(tally, link, slot, &view);
        /* Other limiters' fills hold the units presumed of us, like those
         * answered: report the difference. */
        cell->acked = in_flight_of_us(tally, slot, cell->acked, now);
        cell->sent = cell->prompt = cell->acked;
        cell->unruled_at = 0;
        weir_bit_set(link->dirty, slot);
        if (view.inflight)
            continue;
        /* All counts that it lacks are from before it connected. */
        link->missed = true;
        cell->adopt = true;
        cell->witnessed = has_fill_since(tally, slot, root_born);
        cell->fill = fill_without(&view, cell->acked);
        cell->fill_at = now;
    }
}

/* Until a slot is announced in the new session the root can't send its fill,
 * and the old fill ages: the next unit causes a report. */
static void forget_session_fills(struct weir_tally *tally,
                                 struct weir_tally_link *link)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = weir_bit_next(tally->told, 0, end); slot < end;
         slot = weir_bit_next(tally->told, slot + 1, end))
        weir_tally_forget_fill(&link->cells[slot]);
}

void weir_tally_meet(struct weir_tally *tally, uint32_t index)
{
    weir_assert(index < tally->link_count);
    tally->link[index].meeting = true;
    tally->link[index].report_backoff = 0;
}

void weir_tally_begin(struct weir_tally *tally, uint32_t index,
                      uint64_t session, bool same_root, weir_instant root_born,
                      weir_instant now)
{
    weir_assert(index < tally->link_count && session != 0);
    struct weir_tally_link *link = &tally->link[index];
    /* The unanswered report may have been taken or not. Announcing the absolute
     * 'acked' is right in both cases. */
    for (uint32_t i = 0; i < link->outstanding_count; i++) {
        struct weir_tally_cell *cell = &link->cells[link->outstanding[i]];
        weir_bit_set(link->dirty, link->outstanding[i]);
        cell->sank |= (int64_t)(cell->sent - cell->acked) < 0;
    }
    link->outstanding_count = 0;
    link->unanswered = false;
    link->number = 0;
    link->stamp = 0;
    link->hand = link->announce_hand = 0;
    link->made_at = link->acked_at;
    link->session = session;
    link->meeting = false;
    link->up = true;
    link->answering = true;
    if (same_root)
        forget_session_fills(tally, link);
    else
        announce_all(tally, link, root_born, now);
    if (same_root)
        weir_tally_report_in_flight(tally, link);
    if (link->answered_at == 0)
        link->answered_at = now;
    weir_tally_update_all_slack(tally, now);
    weir_assert(link->up && !link->unanswered && link->outstanding_count == 0);
}

void weir_tally_end(struct weir_tally *tally, uint32_t index, weir_instant now)
{
    weir_assert(index < tally->link_count);
    struct weir_tally_link *link = &tally->link[index];
    link->meeting = false;
    if (!link->up)
        return;
    link->up = false;
    link->answering = false;
    weir_tally_update_all_slack(tally, now);
    weir_assert(!link->up && !link->answering);
}

void weir_tally_disown(struct weir_tally *tally, weir_instant now)
{
    uint32_t end = weir_table_used(tally->table);
    weir_assert(end <= tally->slots);
    for (uint32_t slot = 0; slot < end; slot++)
        weir_table_set_settled(tally->table, slot,
                               weir_table_count(tally->table, slot));
    memset(tally->handed, 0, tally->slots * sizeof(*tally->handed));
    tally->carrier = WEIR_CARRIER_NONE;
    tally->carries = false;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *link = &tally->link[i];
        for (uint32_t slot = 0; slot < end; slot++) {
            if (link->cells[slot].begun || link->cells[slot].told)
                link->cells[slot] = (struct weir_tally_cell){ 0 };
        }
        link->outstanding_count = 0;
        link->unanswered = false;
        link->meeting = false;
        link->up = false;
        link->answering = false;
        link->answered_at = 0;
        link->acked_at = now;
        link->missed = false;
        link->carried = false;
        link->late_since = 0;
    }
    weir_assert(tally->carrier == WEIR_CARRIER_NONE);
}
