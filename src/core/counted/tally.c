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
 * back meanwhile.
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

#include "core/counted/tally.h"

#include <string.h>

#include "core/counted/bits.h"
#include "core/counted/tally_internal.h"

/* ---- Memory ---- */

static size_t at_most(size_t value, size_t most)
{
    return value < most ? value : most;
}

/* Where a tally's arrays are; 'arrays' NULL: they aren't listed. */
struct layout {
    char *block;
    size_t at;
    uint32_t slots;
    struct weir_slot_array *arrays;
    uint32_t count;
};

static void *carve_slots(struct layout *layout, size_t bytes)
{
    if (layout->arrays) {
        weir_assert(layout->count < WEIR_TALLY_ARRAYS_MAX);
        layout->arrays[layout->count++] =
            (struct weir_slot_array){ layout->at, bytes };
    }
    return weir_carve(layout->block, &layout->at, layout->slots * bytes);
}

static void *carve_bits(struct layout *layout)
{
    return weir_carve(layout->block, &layout->at,
                      weir_bit_words(layout->slots) * sizeof(uint64_t));
}

static void lay_out_tally(struct weir_tally *tally, struct layout *layout,
                          uint32_t links, bool region)
{
    char *block = layout->block;
    size_t *at = &layout->at;
    /* A report has a slot once. */
    size_t announces = at_most(layout->slots, WEIR_REPORT_ANNOUNCES_MAX);
    size_t counts = at_most(layout->slots, WEIR_REPORT_COUNTS_MAX);
    tally->fresh = carve_bits(layout);
    tally->recent = carve_bits(layout);
    tally->filled = carve_bits(layout);
    tally->share_mark = carve_slots(layout, sizeof(uint64_t));
    tally->pace = carve_slots(layout, sizeof(*tally->pace));
    tally->paced = carve_bits(layout);
    tally->hold = carve_slots(layout, sizeof(*tally->hold));
    tally->handed = carve_slots(layout, sizeof(*tally->handed));
    if (region) {
        tally->carried = carve_slots(layout, sizeof(*tally->carried));
        tally->share_whole = carve_slots(layout, sizeof(uint64_t));
    }
    tally->announces =
        weir_carve(block, at, announces * sizeof(struct weir_announce));
    tally->names = weir_carve(block, at, announces * (WEIR_NAME_MAX + 1));
    tally->counts = weir_carve(block, at, counts * sizeof(struct weir_count));
    for (uint32_t i = 0; i < links; i++) {
        struct weir_tally_link *link = &tally->link[i];
        link->dirty = carve_bits(layout);
        link->outstanding = weir_carve(block, at, counts * sizeof(uint32_t));
        link->cells = carve_slots(layout, sizeof(struct weir_tally_cell));
    }
}

size_t weir_tally_size(uint32_t slots, uint32_t links, bool region)
{
    struct weir_tally shape;
    struct layout layout = { .slots = slots };
    lay_out_tally(&shape, &layout, links, region);
    return layout.at;
}

uint32_t weir_tally_arrays(uint32_t slots, uint32_t links, bool region,
                           struct weir_slot_array out[WEIR_TALLY_ARRAYS_MAX])
{
    struct weir_tally shape;
    struct layout layout = { .slots = slots, .arrays = out };
    weir_assert(links <= WEIR_ROOTS_MAX);
    lay_out_tally(&shape, &layout, links, region);
    return layout.count;
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
                                  .report_interval = WEIR_SECOND,
                                  .extrapolated_at = now };
    struct layout layout = { .block = block, .slots = slots };
    lay_out_tally(tally, &layout, links, region);
    for (uint32_t i = 0; i < links; i++)
        tally->link[i].acked_at = now;
    weir_table_set_reported(table, links > 0);
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
    if (view.sharing != WEIR_COUNTED && weir_bit_is_set(tally->filled, slot))
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

/* ---- Sessions ---- */

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
        if (cell->has_fill && cell->fill_at >= since)
            return true;
    }
    return false;
}

/* The part of our total that other limiters' fills hold: the least total that a
 * root which sends us fills has and presumes of it. 'settled' if there is
 * none. */
static uint64_t known_of_us(const struct weir_tally *tally, uint32_t slot,
                            uint64_t settled, weir_instant now)
{
    weir_assert(slot < tally->slots);
    bool some = false;
    uint64_t least = settled;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (!tally->link[i].up || !cell->has_fill)
            continue;
        uint64_t presumed = weir_tally_presumed(tally, &tally->link[i], cell,
                                                cell->pace_held, now);
        uint64_t held = cell->acked + presumed / WEIR_FILL_ONE;
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
    link->adopt_hand = 0;
    for (uint32_t slot = 0; slot < end; slot++) {
        struct weir_tally_cell *cell = &link->cells[slot];
        /* Unwritten memory stays unwritten: of a million cells most are of
         * unused quotas, and cost no memory yet. */
        if (cell->begun) {
            cell->begun = false;
            weir_tally_forget_fill(cell);
        }
        weir_tally_update_heard(tally, slot);
        struct weir_slot_view view;
        weir_table_view(tally->table, slot, &view, now);
        if (view.state <= WEIR_SLOT_PLACEHOLDER || view.fill <= 0)
            continue;
        weir_tally_cell_of(tally, link, slot, &view);
        /* Other limiters' fills hold the units presumed of us, like those
         * answered: report the difference. */
        cell->acked = known_of_us(tally, slot, cell->acked, now);
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

/* The link's root may be another one, with another age. */
static void forget_ages(struct weir_tally_link *link)
{
    link->root_age = link->echo = 0;
    link->round_trip[0] = link->round_trip[1] = 0;
}

/* Until a slot is announced in the new session the root can't send its fill,
 * and the old fill ages: the next unit causes a report. */
static void forget_session_fills(struct weir_tally *tally,
                                 struct weir_tally_link *link)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = weir_bit_next(tally->filled, 0, end); slot < end;
         slot = weir_bit_next(tally->filled, slot + 1, end)) {
        weir_tally_forget_fill(&link->cells[slot]);
        weir_tally_update_heard(tally, slot);
    }
}

/* A root gives back the units in flight of a limiter that is silent for long:
 * all of them are reported again. */
static void report_in_flight(struct weir_tally *tally,
                             struct weir_tally_link *link)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = 0; slot < end; slot++) {
        if (link->cells[slot].begun && link->cells[slot].inflight)
            weir_bit_set(link->dirty, slot);
    }
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
    forget_ages(link);
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
        report_in_flight(tally, link);
    if (link->answered_at == 0)
        link->answered_at = now;
    weir_tally_update_all_slack(tally, now);
    weir_assert(link->up && !link->unanswered && link->outstanding_count == 0);
}

/* Not if the slot ended its life since, nor if the root has no such quota. */
static bool is_to_be_adopted(const struct weir_tally *tally, uint32_t slot,
                             const struct weir_tally_cell *cell)
{
    struct weir_ref ref = { slot, cell->generation };
    return cell->begun && cell->adopt && cell->unruled_at == 0 &&
           weir_table_ref_lives(tally->table, ref);
}

bool weir_tally_is_adopted(struct weir_tally *tally, uint32_t index)
{
    struct weir_tally_link *link = &tally->link[index];
    uint32_t end = weir_table_used(tally->table);
    weir_assert(index < tally->link_count);
    while (link->adopt_hand < end &&
           !is_to_be_adopted(tally, link->adopt_hand,
                             &link->cells[link->adopt_hand]))
        link->adopt_hand++;
    return link->up && link->adopt_hand >= end;
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
    memset(tally->handed, 0, end * sizeof(*tally->handed));
    tally->carrier = WEIR_CARRIER_NONE;
    tally->carries = false;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *link = &tally->link[i];
        for (uint32_t slot = 0; slot < end; slot++) {
            if (link->cells[slot].begun || link->cells[slot].has_fill)
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
        forget_ages(link);
        link->carried = false;
        link->late_since = 0;
    }
    weir_assert(tally->carrier == WEIR_CARRIER_NONE);
}

/* ---- Audits ----
 *
 * All of it is the limiter's own memory: no message and no process that shares
 * the table can make an audit fail. */

static void audit_tally_link(const struct weir_tally *tally,
                             const struct weir_tally_link *link)
{
    weir_assert(!link->answering || link->up);
    weir_assert(link->unanswered || link->outstanding_count == 0);
    weir_assert(link->outstanding_count <= WEIR_REPORT_COUNTS_MAX);
    weir_assert(link->outstanding_count <= tally->slots);
    weir_assert(link->hand <= tally->slots);
    weir_assert(link->announce_hand <= tally->slots);
}

static void audit_tally_cell(const struct weir_tally *tally,
                             const struct weir_tally_link *link, uint32_t slot)
{
    const struct weir_tally_cell *cell = &link->cells[slot];
    if (!cell->begun) {
        weir_assert(!cell->has_fill);
        return;
    }
    weir_assert(!cell->has_fill || weir_bit_is_set(tally->filled, slot));
    weir_assert(cell->pace_sent <= WEIR_PACE_MAX);
    weir_assert(cell->ahead_sent <= WEIR_AHEAD_MAX);
    weir_assert(cell->carry == 0 || link->unanswered);
    weir_assert(cell->inflight || !cell->handed);
    if (!cell->inflight)
        return;
    weir_assert(cell->carry == 0 && cell->others_pace == 0);
    weir_assert(cell->pace == 0 && cell->pace_sent == 0);
}

void weir_tally_audit(struct weir_tally *tally, uint32_t n)
{
    uint32_t end = weir_table_used(tally->table);
    weir_assert(end <= tally->slots);
    weir_assert(tally->limiters > 0);
    weir_assert(tally->carrier == WEIR_CARRIER_NONE ||
                (tally->carrier < tally->link_count && tally->carries));
    for (uint32_t i = 0; i < tally->link_count; i++)
        audit_tally_link(tally, &tally->link[i]);
    for (uint32_t i = 0; i < n && i < end; i++) {
        if (tally->audit_hand >= end)
            tally->audit_hand = 0;
        for (uint32_t k = 0; k < tally->link_count; k++)
            audit_tally_cell(tally, &tally->link[k], tally->audit_hand);
        tally->audit_hand++;
    }
}
