/* SPDX-License-Identifier: MIT
 * core/counted/tally.c - a limiter's reports to each root, and the use of the
 * answers.
 *
 * The state of one slot on one link:
 *
 *     0 ........ acked ........ sent ........ count
 *       the root has  |  in the      | not reported
 *       answered      |  unanswered  | yet
 *                     |  report      |
 *
 * 'acked' moves to 'sent' when the answer comes. The root's fill F holds our
 * total A (= acked), so the bucket here is F - A + count, leaking since F came:
 * units counted meanwhile are neither lost nor added twice. With several roots
 * the largest such fill is used; a fill of a link that is down only while no
 * link that is up has sent one.
 *
 * Units in flight. The count of an in-flight counter is the number of units
 * that its permits hold: it sinks as often as it grows. All of the above holds
 * for it, without a pace. A released permit causes a report when the count has
 * sunk by the slack (link_inflight.c), or others would wait for units that are
 * free. Each session reports the count anew, since the root may have given it
 * back meanwhile. */

#include "core/counted/tally.h"

#include <string.h>

#include "core/counted/bits.h"
#include "core/counted/tally_internal.h"

/* ---- Memory ---- */

static size_t at_most(size_t value, size_t most)
{
    return value < most ? value : most;
}

static size_t lay_out_tally(struct weir_tally *tally, char *block,
                            uint32_t slots, uint32_t links, bool region)
{
    size_t at = 0;
    size_t words = weir_bit_words(slots);
    /* A report has a slot once. */
    size_t announces = at_most(slots, WEIR_REPORT_ANNOUNCES_MAX);
    size_t counts = at_most(slots, WEIR_REPORT_COUNTS_MAX);
    tally->fresh = weir_carve(block, &at, words * sizeof(uint64_t));
    tally->recent = weir_carve(block, &at, words * sizeof(uint64_t));
    tally->told = weir_carve(block, &at, words * sizeof(uint64_t));
    tally->share_mark = weir_carve(block, &at, slots * sizeof(uint64_t));
    tally->pace = weir_carve(block, &at, slots * sizeof(*tally->pace));
    tally->paced = weir_carve(block, &at, words * sizeof(uint64_t));
    tally->hold = weir_carve(block, &at, slots * sizeof(*tally->hold));
    tally->handed = weir_carve(block, &at, slots * sizeof(*tally->handed));
    if (region) {
        tally->carried =
            weir_carve(block, &at, slots * sizeof(*tally->carried));
        tally->share_whole = weir_carve(block, &at, slots * sizeof(uint64_t));
    }
    tally->announces =
        weir_carve(block, &at, announces * sizeof(struct weir_announce));
    tally->names = weir_carve(block, &at, announces * (WEIR_NAME_MAX + 1));
    tally->counts = weir_carve(block, &at, counts * sizeof(struct weir_count));
    for (uint32_t i = 0; i < links; i++) {
        struct weir_tally_link *link = &tally->link[i];
        link->dirty = weir_carve(block, &at, words * sizeof(uint64_t));
        link->outstanding = weir_carve(block, &at, counts * sizeof(uint32_t));
        link->cells =
            weir_carve(block, &at, slots * sizeof(struct weir_tally_cell));
    }
    return at;
}

size_t weir_tally_size(uint32_t slots, uint32_t links, bool region)
{
    struct weir_tally shape;
    return lay_out_tally(&shape, NULL, slots, links, region);
}

void weir_tally_init(struct weir_tally *tally, void *block,
                     struct weir_table *table, uint32_t slots, uint32_t links,
                     bool region, weir_instant now)
{
    weir_assert(links <= WEIR_ROOTS_MAX);
    *tally = (struct weir_tally){ .table = table,
                                  .slots = slots,
                                  .link_count = links,
                                  .carrier = WEIR_CARRIER_NONE,
                                  .limiters = 1,
                                  .interval = WEIR_SECOND,
                                  .extrapolated_at = now };
    lay_out_tally(tally, block, slots, links, region);
    for (uint32_t i = 0; i < links; i++)
        tally->link[i].acked_at = now;
}

/* ---- Collecting ---- */

struct weir_tally_cell *weir_tally_cell_of(struct weir_tally *tally,
                                           struct weir_tally_link *link,
                                           uint32_t slot,
                                           const struct weir_slot_view *view)
{
    weir_assert(slot < tally->slots);
    struct weir_tally_cell *cell = &link->cells[slot];
    /* A recreated quota drops the previous one's units in flight. */
    bool anew = view->inflight && cell->created != (uint32_t)view->created;
    if (cell->begun && cell->generation == view->generation &&
        cell->inflight == view->inflight && !anew)
        return cell;
    uint64_t settled = weir_table_settled(tally->table, slot);
    *cell = (struct weir_tally_cell){
        .acked = settled,
        .sent = settled,
        .prompt = settled,
        .refused_acked = view->refused,
        .refused_sent = view->refused,
        .created = (uint32_t)view->created,
        .generation = view->generation,
        .inflight = view->inflight,
        .sank = tally->inherited,
        .begun = true,
    };
    return cell;
}

/* Cells begin when their slot is first used, on every link, connected or not: a
 * root that was away gets the counts from there on. */
static void collect_slot(struct weir_tally *tally, uint32_t slot,
                         weir_instant now)
{
    weir_assert(slot < tally->slots);
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    if (view.state <= WEIR_SLOT_MAKING)
        return;
    if (view.sharing != WEIR_COUNTED &&
        weir_bit_next(tally->told, slot, slot + 1) == slot)
        weir_tally_unshare(tally, slot, now);
    weir_tally_handed_of(tally, slot, view.generation, view.inflight);
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *link = &tally->link[i];
        weir_tally_cell_of(tally, link, slot, &view);
        weir_bit_set(link->dirty, slot);
        link->missed |= !link->up;
    }
    /* Without links every count is settled at once. */
    if (tally->link_count == 0)
        weir_table_set_settled(tally->table, slot, view.count);
}

void weir_tally_collect(struct weir_tally *tally, bool all, weir_instant now)
{
    uint32_t end = weir_table_used(tally->table);
    memset(tally->fresh, 0, weir_bit_words(end) * sizeof(uint64_t));
    weir_table_collect(tally->table, tally->fresh);
    end = weir_table_used(tally->table);
    weir_assert(end <= tally->slots);
    size_t words = weir_bit_words(end);
    for (size_t i = 0; i < words; i++) {
        tally->recent[i] |= tally->fresh[i];
        if (!all)
            continue;
        tally->fresh[i] = tally->recent[i] | tally->paced[i];
        tally->recent[i] = 0;
    }
    for (uint32_t slot = weir_bit_next(tally->fresh, 0, end); slot < end;
         slot = weir_bit_next(tally->fresh, slot + 1, end))
        collect_slot(tally, slot, now);
}
