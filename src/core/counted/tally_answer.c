/* SPDX-License-Identifier: MIT
 * counted/tally_answer.c - what a limiter takes from the answers of roots:
 * which counts they have, and the fill and slack of each slot. */

#include "core/counted/bits.h"
#include "core/counted/tally_internal.h"

/* Marks the slot settled when every link that is up, or about to be, has
 * answered for it. */
static void settle_slot(struct weir_tally *tally, uint32_t slot, uint64_t total)
{
    weir_assert(slot < tally->slots);
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_link *link = &tally->link[i];
        const struct weir_tally_cell *cell = &link->cells[slot];
        if (!link->up && !link->meeting)
            continue;
        if (!cell->begun || (int64_t)(cell->acked - total) < 0)
            return;
    }
    if (tally->carries && !weir_tally_is_handed(tally, slot, total))
        return;
    weir_table_set_settled(tally->table, slot, total);
}

/* Both lists ascend: '*at' is where the last search stopped. */
static bool listed(const struct weir_fills *fills, size_t *at, uint32_t slot)
{
    while (*at < fills->unknown_count && fills->unknown[*at] < slot)
        ++*at;
    return *at < fills->unknown_count && fills->unknown[*at] == slot;
}

static void acknowledge(struct weir_tally *tally, struct weir_tally_link *link,
                        const struct weir_fills *fills, weir_instant now)
{
    weir_assert(link->unanswered);
    size_t at = 0;
    bool ruled = fills->unknown_count == 0;
    for (uint32_t i = 0; i < link->outstanding_count; i++) {
        uint32_t slot = link->outstanding[i];
        weir_assert(slot < tally->slots);
        struct weir_tally_cell *cell = &link->cells[slot];
        if (!cell->reported)
            continue; /* since then another name has the slot, unannounced */
        cell->reported = false;
        if (listed(fills, &at, slot)) {
            /* The root doesn't know the name (yet): report it again. */
            cell->session = (uint32_t)link->session - 1;
            cell->pace = cell->ahead = 0;
            weir_tally_hand_back(tally, slot, cell);
            cell->carry = 0;
            if (cell->unruled_at == 0)
                cell->unruled_at = link->acked_at + 1; /* never 0 */
            weir_bit_set(link->dirty, slot);
            continue;
        }
        ruled = true;
        cell->session = (uint32_t)link->session;
        weir_tally_hand_rest(tally, link, slot);
        weir_tally_take_over(tally, link, slot);
        cell->adopt = cell->sank = false;
        cell->acked = cell->sent;
        if (!weir_tally_is_late(tally, link, cell, now))
            cell->prompt = cell->sent;
        cell->unruled_at = 0;
        cell->carry = 0;
        cell->ahead = cell->ahead_sent;
        cell->pace = cell->pace_sent;
        cell->pace_at = link->sent_at;
        cell->pace_held = now;
        cell->refused_acked = cell->refused_sent;
        settle_slot(tally, slot, cell->sent);
    }
    weir_assert(link->outstanding_count <= WEIR_REPORT_COUNTS_MAX);
    link->outstanding_count = 0;
    link->unanswered = false;
    link->answered_at = now;
    if (!ruled)
        return; /* it has no quotas yet: all is reported again, and is older */
    link->acked_at = link->made_at;
    link->missed = false;
    link->late_since = 0;
}

/* Learns the rate of others: the bucket's change beyond our own counts. */
static void learn_rates(struct weir_tally *tally, uint32_t slot,
                        struct weir_tally_cell *cell,
                        const struct weir_slot_view *view, int64_t fill,
                        weir_instant now)
{
    weir_assert(slot < tally->slots);
    weir_duration span = weir_since(cell->fill_at, now);
    if (!cell->told || span < WEIR_MILLISECOND || view->unlimited ||
        weir_table_hold_is_paused(tally->table) || view->inflight)
        return;
    unsigned frac = view->bucket.leak.frac;
    float unit = (float)((uint64_t)1 << frac);
    float leaked = (float)weir_leaked(view->bucket.leak, span) / unit;
    float own = (float)(int64_t)(cell->acked - cell->fill_total);
    float moved = (float)(fill - cell->fill) / WEIR_FILL_ONE;
    float others = moved + leaked - own;
    struct weir_tally_added added = { own, others, fill };
    weir_tally_learn_part(tally, slot, cell, view, &added, now);
    /* An empty bucket hides the units that leaked from it. */
    if (fill <= 0 || others < 0)
        others = 0;
    float seconds = (float)span / (float)WEIR_SECOND;
    tally->predicted = tally->predicted * 0.99f + cell->others_per_s * seconds;
    tally->observed = tally->observed * 0.99f + others;
    cell->others_per_s =
        weir_smoothed(cell->others_per_s, others / seconds, span);
}

/* Whether the fill is a region's root's "full, no slack", sent when its
 * allowance is used up, until those above answer. That is no root fill of the
 * bucket, and no sign of others' counts. Without a band, a fill is mostly
 * "full" anyway. */
static bool is_blind(const struct weir_fill *told,
                     const struct weir_slot_view *view)
{
    int64_t full =
        weir_rescale(view->bucket.high, view->bucket.leak.frac, WEIR_FILL_FRAC);
    return told->slack == 0 && told->pace != 0 && told->fill >= full &&
           view->bucket.low < view->bucket.high;
}

/* Whether the last fill of some root is no root fill of the bucket. */
static bool blinds(const struct weir_tally *tally, uint32_t slot)
{
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (cell->told && cell->blind)
            return true;
    }
    return false;
}

static void take_fill(struct weir_tally *tally, struct weir_tally_link *link,
                      const struct weir_fill *told, weir_instant now)
{
    weir_assert(told->slot < tally->slots);
    struct weir_tally_cell *cell = &link->cells[told->slot];
    struct weir_slot_view view;
    weir_table_view(tally->table, told->slot, &view, now);
    /* Until the announcement of this life is answered, the fill may be of a
     * former owner of the slot. */
    if (!cell->begun || !weir_tally_announced(link, cell) ||
        cell->generation != view.generation ||
        cell->inflight != view.inflight || view.sharing != WEIR_COUNTED)
        return;
    if (weir_table_leasing(tally->table, told->slot) == WEIR_LEASING_PARTING) {
        weir_table_end_lease(tally->table, told->slot, now);
        weir_table_view(tally->table, told->slot, &view, now);
    }
    bool blind = is_blind(told, &view);
    if (!blind && !cell->blind)
        learn_rates(tally, told->slot, cell, &view, told->fill, now);
    cell->fill = told->fill;
    cell->others_pace = view.inflight ? 0 : told->pace;
    if (cell->others_pace != 0)
        weir_bit_set(tally->paced, told->slot);
    cell->fill_total = cell->acked;
    if (tally->carried)
        cell->fill_ours = tally->carried[told->slot].whole;
    cell->fill_at = now;
    cell->slack = told->slack;
    cell->told = true;
    cell->blind = blind;
    weir_bit_set(tally->told, told->slot);
    weir_assert(cell->told && cell->begun);
    if (!view.unlimited)
        weir_tally_update_fill(tally, told->slot, &view, now);
    if (view.on_stale == WEIR_STALE_HOLD && !view.unlimited)
        weir_tally_learn_hold(tally, told->slot, blinds(tally, told->slot),
                              now);
    weir_tally_update_slack(tally, told->slot, now);
}

static void note_fleet(struct weir_tally *tally, uint32_t limiters,
                       weir_instant now)
{
    bool fewer = limiters < tally->limiters &&
                 now < tally->limiters_at + WEIR_FLEET_HOLD;
    if (limiters == 0 || fewer)
        return;
    tally->limiters = limiters;
    tally->limiters_at = now;
    weir_assert(tally->limiters > 0);
}

int weir_tally_fills(struct weir_tally *tally, uint32_t index,
                     const struct weir_fills *fills, weir_instant now)
{
    weir_assert(index < tally->link_count);
    struct weir_tally_link *link = &tally->link[index];
    if (fills->number > link->number)
        return WEIR_EPROTOCOL;
    if (link->unanswered && fills->number == link->number) {
        if (!fills->answer)
            return WEIR_OK; /* it overtook the answer; others will come */
        acknowledge(tally, link, fills, now);
    } else if (fills->stamp <= link->stamp ||
               fills->number + link->unanswered < link->number) {
        return WEIR_OK; /* doubled, or older than those taken */
    }
    if (fills->stamp > link->stamp)
        link->stamp = fills->stamp;
    note_fleet(tally, fills->limiters, now);
    for (size_t i = 0; i < fills->count; i++) {
        if (fills->fills[i].slot >= weir_table_used(tally->table))
            return WEIR_EPROTOCOL;
        take_fill(tally, link, &fills->fills[i], now);
    }
    return WEIR_OK;
}
