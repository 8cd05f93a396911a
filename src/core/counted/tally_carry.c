/* SPDX-License-Identifier: MIT
 * counted/tally_carry.c - units that a limiter of a region hands to its
 * carrier.
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

#include <string.h>

#include "core/counted/bits.h"
#include "core/counted/tally_internal.h"

uint64_t *weir_tally_handed_of(struct weir_tally *tally, uint32_t slot,
                               uint32_t generation, bool inflight)
{
    weir_assert(slot < tally->slots);
    struct weir_tally_handed *handed = &tally->handed[slot];
    if (handed->generation != generation || handed->inflight != inflight) {
        handed->total = weir_table_settled(tally->table, slot);
        handed->generation = generation;
        handed->inflight = inflight;
        if (tally->carried)
            tally->carried[slot].ahead = tally->carried[slot].pace = 0;
    }
    return &handed->total;
}

void weir_tally_hand_back(struct weir_tally *tally, uint32_t slot,
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

void weir_tally_hand_rest(struct weir_tally *tally,
                          struct weir_tally_link *link, uint32_t slot)
{
    weir_assert(slot < tally->slots);
    if (!link->carried || tally->handed[slot].inflight ||
        tally->handed[slot].total == link->cells[slot].sent)
        return;
    weir_bit_set(link->dirty, slot);
    link->hurry = true;
}

void weir_tally_take_over(struct weir_tally *tally,
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

void weir_tally_report_in_flight(struct weir_tally *tally,
                                 struct weir_tally_link *link)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = 0; slot < end; slot++) {
        if (link->cells[slot].begun && link->cells[slot].inflight)
            weir_bit_set(link->dirty, slot);
    }
}

bool weir_tally_is_handed(const struct weir_tally *tally, uint32_t slot,
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
            weir_tally_hand_back(tally, slot, cell);
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
    uint64_t bit = (uint64_t)1 << (slot % 64);
    bool is_paced = (tally->paced[slot / 64] & bit) != 0;
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
