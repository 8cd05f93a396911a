/* SPDX-License-Identifier: MIT
 * counted/tally_answer.c - what a limiter takes from the answers of roots:
 * which counts they have, and the fill and slack of each slot; and units that a
 * limiter of a region hands to its carrier.
 *
 * If roots have an upstream, one of them is the carrier. 'handed' is the part
 * of a slot's count that was ever put into a report to a carrier: a new report
 * to the present carrier hands over the rest. If a link ends with a report
 * unanswered, that report is in doubt. At the start of the next session the
 * root says whether it took it; if not, 'handed' goes back by the units in it.
 * A root that died can't say. 'handed' then stays: no unit is counted twice,
 * and the units of that report may be lost. An announcement hands over nothing:
 * the root may not know the quota yet, and if its answer is lost, the report
 * number could not resolve the doubt.
 *
 * Units in flight are not handed over by differences: the count last sent to
 * the carrier is in flight there, as a whole, and each report says whether it
 * is to the carrier. So no unit is lost, or counted twice for good. A new
 * carrier is sent all of it; when it has answered, the former one is sent that
 * it isn't the carrier any more. If the former carrier can't be reached, its
 * units go as those of a limiter that is gone (merge.c). Until then they are
 * above by two ways, and too much is refused for a moment, never too much
 * passed.
 *
 * A region's root is a limiter here. Its count is the count of its own limiters
 * plus the units that it presumes of them ('ahead'). Only the former is
 * reported as passed; the latter is a field of its own. If both were mixed and
 * the root died, its successor would be handed the same counts again. */

#include "core/counted/bits.h"
#include "core/counted/tally_internal.h"

/* ---- Units handed to carriers ---- */

/* The root didn't take the units that the unanswered report handed over. */
static void hand_back(struct weir_tally *tally, uint32_t slot,
                      const struct weir_tally_cell *cell)
{
    weir_assert(slot < tally->slots);
    struct weir_tally_handed *handed = &tally->handed[slot];
    if (handed->generation != cell->generation || handed->inflight ||
        cell->carry == 0)
        return;
    handed->total -= (uint64_t)cell->carry;
    if (tally->carrier != WEIR_CARRIER_NONE)
        weir_bit_set(tally->link[tally->carrier].dirty, slot);
}

/* The root knows the slot: the units not handed over with the announcement are
 * to follow soon. */
static void hand_rest(struct weir_tally *tally, struct weir_tally_link *link,
                      uint32_t slot)
{
    weir_assert(slot < tally->slots);
    if (!link->carried || tally->handed[slot].inflight ||
        tally->handed[slot].total == link->cells[slot].sent)
        return;
    weir_bit_set(link->dirty, slot);
    link->hurry = true;
}

/* A report of the slot was answered. If its units in flight are at the carrier
 * now, former carriers are to be sent that they aren't carriers. */
static void take_over_in_flight(struct weir_tally *tally,
                                struct weir_tally_link *link, uint32_t slot)
{
    weir_assert(slot < tally->slots);
    struct weir_tally_cell *cell = &link->cells[slot];
    uint32_t carrier = tally->carrier;
    cell->handed = cell->inflight && link->carried;
    if (!cell->handed || carrier == WEIR_CARRIER_NONE ||
        !tally->link[carrier].cells[slot].handed)
        return;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *other = &tally->link[i];
        if (i == carrier || !other->up || !other->cells[slot].handed)
            continue;
        weir_bit_set(other->dirty, slot);
        other->hurry = true;
    }
}

/* Whether carriers have, and have answered, the count up to 'total'. */
static bool is_handed_over(const struct weir_tally *tally, uint32_t slot,
                           uint64_t total)
{
    weir_assert(slot < tally->slots);
    for (uint32_t i = 0; i < tally->link_count; i++) {
        if (tally->link[i].cells[slot].carry != 0)
            return false;
    }
    return tally->handed[slot].inflight ||
           (int64_t)(tally->handed[slot].total - total) >= 0;
}

void weir_tally_resolve(struct weir_tally *tally, uint32_t index, bool taken)
{
    weir_assert(index < tally->link_count);
    struct weir_tally_link *link = &tally->link[index];
    for (uint32_t i = 0; i < link->outstanding_count; i++) {
        uint32_t slot = link->outstanding[i];
        struct weir_tally_cell *cell = &link->cells[slot];
        if (!taken)
            hand_back(tally, slot, cell);
        cell->carry = 0;
    }
}

/* Has the slot reported to the new carrier, and to the former if needed. */
static void carry_slot(struct weir_tally *tally, uint32_t slot, uint32_t from,
                       uint32_t to)
{
    weir_assert(to < tally->link_count && to != from);
    uint64_t count =
        weir_table_count(tally->table, slot) - weir_tally_ahead_of(tally, slot);
    bool is_paced = weir_bit_is_set(tally->paced, slot);
    const struct weir_tally_handed *handed = &tally->handed[slot];
    if (handed->generation != 0 && handed->inflight && count != 0)
        weir_bit_set(tally->link[to].dirty, slot);
    if (handed->generation == 0 || handed->inflight ||
        (!is_paced && handed->total == count))
        return;
    weir_bit_set(tally->link[to].dirty, slot);
    if (is_paced && from != WEIR_CARRIER_NONE)
        weir_bit_set(tally->link[from].dirty, slot);
}

void weir_tally_carry(struct weir_tally *tally, uint32_t carrier)
{
    weir_assert(carrier == WEIR_CARRIER_NONE || carrier < tally->link_count);
    uint32_t before = tally->carrier;
    tally->carrier = carrier;
    if (carrier == WEIR_CARRIER_NONE || carrier == before)
        return;
    tally->carries = true;
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = 0; slot < end; slot++)
        carry_slot(tally, slot, before, carrier);
}

void weir_tally_presume(struct weir_tally *tally, struct weir_ref ref,
                        uint64_t ahead, uint64_t pace)
{
    weir_assert(tally->carried && ref.slot < tally->slots);
    weir_tally_handed_of(tally, ref.slot, ref.generation,
                         tally->handed[ref.slot].inflight);
    tally->carried[ref.slot].ahead = ahead;
    tally->carried[ref.slot].pace = pace;
}

void weir_tally_region(struct weir_tally *tally, struct weir_ref ref,
                       int64_t units)
{
    weir_assert(tally->carried && ref.slot < tally->slots);
    if (tally->handed[ref.slot].generation == ref.generation)
        tally->carried[ref.slot].whole += (uint64_t)units;
}

void weir_tally_late(struct weir_tally *tally, weir_instant since)
{
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *link = &tally->link[i];
        if (link->late_since == 0 || since < link->late_since)
            link->late_since = since > 0 ? since : 1;
    }
}

/* ---- Answers ---- */

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
    if (tally->carries && !is_handed_over(tally, slot, total))
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
            hand_back(tally, slot, cell);
            cell->carry = 0;
            if (cell->unruled_at == 0)
                cell->unruled_at = link->acked_at + 1; /* never 0 */
            weir_bit_set(link->dirty, slot);
            continue;
        }
        ruled = true;
        cell->session = (uint32_t)link->session;
        hand_rest(tally, link, slot);
        take_over_in_flight(tally, link, slot);
        cell->adopt = cell->sank = false;
        cell->acked = cell->sent;
        if (!weir_tally_is_late(tally, link, cell, now))
            cell->prompt = cell->sent;
        cell->unruled_at = 0;
        cell->carry = 0;
        cell->ahead = cell->ahead_sent;
        cell->pace = cell->pace_sent;
        cell->pace_at = link->sent_at;
        cell->pace_held =
            link->echo > 0
                ? weir_later(link->sent_at, weir_before(now, WEIR_LEAD_MAX))
                : now;
        cell->refused_acked = cell->refused_sent;
        settle_slot(tally, slot, cell->sent);
    }
    weir_assert(link->outstanding_count <= WEIR_REPORT_COUNTS_MAX);
    link->outstanding_count = 0;
    link->unanswered = false;
    link->answered_at = now;
    if (!link->answering) {
        /* Fills beside this answer are to be used at once. */
        link->answering = link->up;
        weir_tally_update_all_slack(tally, now);
    }
    if (!ruled)
        return; /* it has no quotas yet: all is reported again, and is older */
    link->acked_at = link->made_at;
    link->missed = false;
    link->late_since = 0;
}

/* The answer to a report says how old its counts were at most when the root
 * took them. */
static void note_round_trip(struct weir_tally_link *link, weir_duration age)
{
    weir_assert(link->unanswered);
    weir_duration trip = 0;
    if (link->echo > 0 && age > link->echo)
        trip = weir_shorter(age - link->echo, WEIR_LEAD_MAX);
    link->round_trip[1] = link->round_trip[0];
    link->round_trip[0] = trip;
}

/* Learns the rate of others: the bucket's change beyond our own counts. */
static void learn_rates(struct weir_tally *tally, uint32_t slot,
                        struct weir_tally_cell *cell,
                        const struct weir_slot_view *view, int64_t fill,
                        weir_instant now)
{
    weir_assert(slot < tally->slots);
    weir_duration span = weir_since(cell->fill_at, now);
    if (!cell->has_fill || span < WEIR_MILLISECOND || view->unlimited ||
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
static bool is_blind(const struct weir_fill *received,
                     const struct weir_slot_view *view)
{
    int64_t full =
        weir_rescale(view->bucket.high, view->bucket.leak.frac, WEIR_FILL_FRAC);
    return received->slack == 0 && received->pace != 0 &&
           received->fill >= full && view->bucket.low < view->bucket.high;
}

/* Whether the last fill of some root is no root fill of the bucket. */
static bool blinds(const struct weir_tally *tally, uint32_t slot)
{
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (cell->has_fill && cell->blind)
            return true;
    }
    return false;
}

static void take_fill(struct weir_tally *tally, struct weir_tally_link *link,
                      const struct weir_fill *received, weir_instant now)
{
    weir_assert(received->slot < tally->slots);
    struct weir_tally_cell *cell = &link->cells[received->slot];
    struct weir_slot_view view;
    weir_table_view(tally->table, received->slot, &view, now);
    /* Until the announcement of this life is answered, the fill may be of a
     * former owner of the slot. */
    if (!cell->begun || !weir_tally_announced(link, cell) ||
        cell->generation != view.generation ||
        cell->inflight != view.inflight || view.sharing != WEIR_COUNTED)
        return;
    if (weir_table_leasing(tally->table, received->slot) ==
        WEIR_LEASING_PARTING) {
        if (!weir_table_end_lease(tally->table, received->slot, now))
            return; /* the next fill ends it */
        weir_table_view(tally->table, received->slot, &view, now);
    }
    bool blind = is_blind(received, &view);
    if (!blind && !cell->blind)
        learn_rates(tally, received->slot, cell, &view, received->fill, now);
    cell->fill = received->fill;
    cell->others_pace = view.inflight ? 0 : received->pace;
    if (cell->others_pace != 0)
        weir_bit_set(tally->paced, received->slot);
    cell->fill_total = cell->acked;
    if (tally->carried)
        cell->fill_ours = tally->carried[received->slot].whole;
    cell->fill_at = now;
    weir_tally_set_band(link, cell, &view.bucket);
    cell->slack = received->slack;
    cell->has_fill = true;
    cell->blind = blind;
    if (!blind)
        weir_table_set_heard(tally->table, received->slot, true);
    weir_bit_set(tally->filled, received->slot);
    weir_assert(cell->has_fill && cell->begun);
    if (!view.unlimited)
        weir_tally_update_fill(tally, received->slot, &view, now);
    if (view.on_stale == WEIR_STALE_HOLD && !view.unlimited)
        weir_tally_learn_hold(tally, received->slot,
                              blinds(tally, received->slot), now);
    weir_tally_update_slack(tally, received->slot, now);
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
        note_round_trip(link, fills->age);
        acknowledge(tally, link, fills, now);
    } else if (fills->stamp <= link->stamp ||
               fills->number + link->unanswered < link->number) {
        return WEIR_OK; /* doubled, or older than those taken */
    }
    if (fills->stamp > link->stamp && fills->age > 0) {
        link->root_age = fills->age;
        link->root_age_at = now;
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
