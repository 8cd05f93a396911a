/* SPDX-License-Identifier: MIT
 * counted/merge.c - how a root adds up the counts of its limiters.
 *
 *     limiter A  slot 7 ──┐  limiter cell: last total, last fill sent
 *     limiter B  slot 2 ──┼─> root quota "site/put": bucket, its cells
 *     limiter C  slot 9 ──┘
 *
 * A cell remembers the limiter's total, so a count that arrives twice adds
 * nothing: the bucket gets the difference between totals. A total is either
 * announced absolutely (at a session's start) or follows from the last answered
 * one.
 *
 * Late counts. A limiter that was cut off comes back with the counts of seconds
 * or minutes. In time, those units would have leaked from the bucket; without
 * them the bucket ran empty. The root sums the leak that an empty bucket loses
 * ('dry'). Late counts first use up that sum, as far as it arose since their
 * limiter was last in time and no other late counts have used it; only the rest
 * is added. The bucket then holds as much as if no limiter had been late. If
 * the load itself had paused, the bucket was rightly empty: the units taken as
 * drained are at most those that drained from the limiter's own bucket, as it
 * reports (tally.c). Late counts fill the bucket up to 'high' at most and cause
 * no debt: while no root could be reached, on_stale decided. Presumed units are
 * part of that fill. When they were added on top, the counts that replaced them
 * became a debt of about 0.7 s of the limit, and a reconnected fleet was
 * refused for that time.
 *
 * Presuming. A count also carries the limiter's presumed pace. The bucket grows
 * at that pace until the next count of the slot, which replaces the presumed
 * units exactly. A limiter needs to report only when its traffic differs from
 * the presumed, not on all traffic. This is dead reckoning, as in navigation
 * and multiplayer games. The sum presumed of all cells by 'now' is one linear
 * form,
 *
 *     sum of pace * (now - paced_at)  =  pace * now - pace_from
 *
 * in whole numbers. So no unit is presumed twice or lost, and a bucket's fill
 * costs the same with ten thousand cells. A pace ends with its link, after some
 * intervals of silence and twice the largest age of counts (node/root.c), and
 * after some more in which the limiter reports but doesn't confirm that slot's
 * pace. Their time goes by the reports that were taken (read_till). A slow root
 * has reports of many seconds waiting, and would take all its limiters for
 * silent: when one was slow for 30 s, its bucket ran dry, and later held 670
 * units of 1,500 too many (the limit: 1,000/s).
 *
 * Lead. Counts are old when they come: by the report's way, and by the time
 * that a slow root leaves it unread. So a report echoes the root's age, as its
 * limiter reckons it by the newest fills. By 'lead' the root means the
 * difference to its age when it takes the report: the ways of those fills and
 * of the report together. The pace begins that much before the report came. No
 * two clocks are compared. (TCP's time stamps, RFC 7323, measure so.)
 *
 * The bound needs no assumption on either way. Report made at s, taken at T,
 * way of the fills at least 0: T - s <= lead. Thus at t >= T the root presumes
 * at least pace * (t - s), and the limiter knows t - s. The whole round trip is
 * the lead, not the report's way alone: then limiters at any distance read the
 * same fill. Before, each read its own pace * round trip too much, and limiters
 * at 80, 150 and 250 ms got .43, .33 and .24 of the limit; now .33 each. The
 * price: from a load's onset to its end the bucket holds too much by pace * the
 * way of the fills, on the safe side.
 *
 * Slack. A limiter's count may differ from the presumed count, either way, by
 * the slack it was sent. The slacks of a bucket are together half of the room
 * left in it. Of that, if the bucket is filled to 'low', a quarter is divided
 * equally, the rest in proportion to the exposure, the square root of pace *
 * (lead + 20 ms). A count at random strays as far before it can be corrected.
 * In a bucket that is emptier, as much less goes by exposure. There a limiter
 * needs slack for traffic that the root doesn't presume yet: when a load began,
 * the first limiter that reported got four fifths of all, and the others were
 * refused requests until their reports were answered (test_limiter_lease, half
 * of the limit).
 *
 * A limiter stops at its slack and a part of a second one beyond the presumed
 * count (tally_stop.c); in a region, and at a root that takes no echo, at twice
 * the slack. (Stops at once the slack in regions let roots differ after an
 * onset by up to .38 of the limit, not .24: test_region, three tiers, 12
 * seeds.) The stated bound is then
 *
 *     counted <= presumed here + sum over limiters of (2 * slack + weight)
 *
 * for any interval and round trip, with the slack that each limiter was last
 * sent. Each limiter is also sent the pace of all others, and uses the bucket
 * as presumed by 'now'. Of the limiters that passed units, the one with the
 * newest fill knows all that the others may do until they get theirs. So the
 * bound on a bucket is
 *
 *     high + sum over limiters of (2 * slack + weight)
 *          + a 25th of the room + (sum of paces - limit) * age, if above 0
 *
 * where 'room' is the room when slack was sent. 'age' is how long a fill
 * travels, plus the 50 ms after which a limiter looks again at the presumed
 * counts of others.
 *
 * If a limiter pauses, the units presumed of it may leak from an empty bucket;
 * when it goes on, its real count replaces them, and the bucket holds too
 * little by as much. The error is less than the slack (above that the limiter
 * reports) plus its pace for those 50 ms. It is in the bound's second slack.
 * Only if an answer is lost while its link lives may the limiter not send that
 * report, until it has repeated the previous one or the pace ends.
 *
 * At the onset of load the root receives nothing until the first limiter has
 * used up its slack, and meanwhile its bucket leaks while empty. From then on
 * the bucket is too full by as much, never too empty, and the roots differ by
 * it, until the bucket is empty the next time. The error is at most the limit
 * times high / (2 * the load), a quarter of a second of the limit at three
 * times the limit, and the report's way. A limiter that is sent this fill
 * passes less, once (test_fleet). In a region the error occurs at each tier.
 *
 * Fills to send. A cell is due when the others' part of the bucket differs from
 * the part it was sent, pace included, by a 32nd of the room left; or when its
 * slack should be less than half of the slack it has. This grain is a part of
 * the room and not of the slack, because the limiter needs the sum of the
 * others: with 50 limiters a grain of half a slack sent every unit to all, ten
 * times the messages, and held the limit no better. The grain is part of the
 * bound: the last limiter that passes units may miss this much of the others.
 * Due cells are found by looking at moved buckets in order, a bounded number of
 * cells at a time: an overloaded root sends later, it doesn't do more work.
 * After a look at its cells, a bucket is skipped until it can have moved, for
 * one of them, by a quarter of a grain. So a limiter may miss 5/4 of a grain,
 * 5/128 of the room: the 25th in the bound.
 *
 * Overload. A flood of names makes nearly all of a root's work, and nearly all
 * of these names are far from their limits. An overloaded root (the node sets
 * 'overloaded' when it asks for fewer reports) sends the fill of a bucket that
 * is less than half full only to a limiter that has just announced it or has a
 * slack that is off by half. Counts of others make no cell due there, and a
 * count is answered without a fill. The bound on unseen counts stays: the
 * slack was computed from the same room. The fill that a limiter sees may be
 * too small by up to half the bucket. After the overload the sweep sends the
 * withheld fills. Measured in virtual time, 12 limiters, 3,000 names under a
 * flood of 6,000/s beside a quota at three times its limit, 100 us a message
 * (mean of seeds 1 to 3):
 *
 *     a count or a fill takes          36 us         50 us         60 us
 *     passed / its deviation
 *       all fills sent              .98 / .07     .72 / .09     .52 / .12
 *       only needed fills sent     1.00 / .01    1.01 / .02     .98 / .17
 *
 * Roots with an upstream, and the units handed to them: merge_carry.c.
 *
 * The bound on how much of a bucket one limiter can fill: merge_debt.c.
 * Numbers of a report may be any of their type, so sums of them are made
 * modulo 2^64, in 128 bits, or held to the range of their type.
 *
 * Units in flight (kind concurrency). There is no leak, no late count and no
 * presumed unit: a cell's last total is the number of units that its limiter's
 * permits last held, and the fill is the sum of the cells. A lost or doubled
 * report is corrected by the next. A cold root knows the units in flight when
 * all limiters have reported; it adopts no fill. Limiters and roots learn of an
 * edit of the kind at different times, so an announcement names the kind of its
 * totals, and totals of the other kind are ignored. A limiter that was away for
 * stale_after counts as having nothing in flight (it goes by on_stale then, or
 * died); when it returns, it reports all of it again. The bound is the one
 * above, without paces: the units that others hold beyond their last report,
 * each 2 * slack + weight, and those begun while a fill was on its way.
 *
 * Measured in virtual time, mean of 20 seeds: 50 limiters, three times the
 * limit, a round trip of 1 ms, and slack as a multiple of the present one:
 *
 *     multiple                1/2   3/4     1   5/4   3/2     2     3     4
 *     reports a link and s    7.3   4.7   3.0   2.2   1.7   1.3   1.1   1.1
 *     deviation of a second  .009  .010  .010  .011  .012  .016  .028  .076
 *     above 'high', limit-s     0     0     0     0     0     0     0   .11
 *     refused afterwards     .092  .101  .108  .118  .129  .144  .176  .192
 *
 * Rejected: sending on a timer (millions of idle cells would be sent nothing
 * new), and sending only to limiters that report (a limiter that waits for a
 * request would decide on a fill an hour old). Reporting each 'slack' units
 * instead of each deviation: 19 reports a second instead of 3. Of late counts,
 * adding those made since the bucket was last empty: fifty limiters, each with
 * the whole bucket in its counts, filled it to 'high', all were refused, and
 * the roots disagreed while the load lasted. Taking a limiter's fill from
 * another root: two roots that each received half of the fleet's reports both
 * took a half for the whole. */

#include "core/counted/merge.h"

#include "core/counted/merge_internal.h"

/* Counts may be late by this at most, so that twice the time times the
 * fastest leak (2^8 a nanosecond) is a number of 63 bits. */
#define LATE_MOST ((weir_duration)1 << 53) /* 104 days */
/* A limiter of no lead learns of others after this: a push of theirs, and the
 * way of its own. */
#define EXPOSED_LEAST (20 * WEIR_MILLISECOND)
/* Buckets looked at for one that is made. */
#define SWEEP_A_NEW 4

void weir_merge_init(struct weir_merge *merge, const struct weir_mem *mem,
                     uint64_t seed, weir_instant now)
{
    *merge = (struct weir_merge){ .mem = *mem,
                                  .seed = seed,
                                  .origin = now,
                                  .read_till = now,
                                  .slack = true };
}

void weir_merge_fini(struct weir_merge *merge)
{
    const struct weir_mem *mem = &merge->mem;
    for (uint32_t i = 0; i < merge->root_quotas_used; i++) {
        if (merge->root_quotas[i].live)
            mem->free(mem->context, merge->root_quotas[i].name,
                      merge->root_quotas[i].name_len);
    }
    mem->free(mem->context, merge->root_quotas,
              merge->root_quota_capacity * sizeof(*merge->root_quotas));
    weir_index_fini(&merge->index, mem);
}

/* ---- Limiter cells ---- */

/* The cell of a slot, made if need be; NULL: no memory. */
static struct weir_limiter_cell *make_cell(struct weir_merge *merge,
                                           struct weir_merge_limiter *limiter,
                                           uint32_t slot)
{
    weir_assert(slot < WEIR_LIMITER_CELLS_MAX);
    const struct weir_mem *mem = &merge->mem;
    size_t page = slot / WEIR_LIMITER_CELLS_A_PAGE;
    struct weir_limiter_cell_page **pages = weir_mem_grow(
        mem, limiter->pages, sizeof(*pages), &limiter->page_capacity, page + 1);
    if (!pages)
        return NULL;
    limiter->pages = pages;
    if (!pages[page])
        pages[page] = mem->alloc(mem->context, sizeof(**pages));
    return pages[page] ? &pages[page]->cell[slot % WEIR_LIMITER_CELLS_A_PAGE]
                       : NULL;
}

/* Enters a free cell with limiter and slot into the root quota's list. */
static void attach_cell(struct weir_merge *merge,
                        struct weir_limiter_cell *cell,
                        struct weir_root_quota *root_quota)
{
    weir_assert(cell->root_quota == 0 && root_quota->live);
    cell->root_quota = weir_root_quota_number(merge, root_quota);
    cell->prev = NULL;
    cell->next = root_quota->cells;
    if (root_quota->cells)
        root_quota->cells->prev = cell;
    root_quota->cells = cell;
    root_quota->cell_count++;
    root_quota->connected += cell->limiter->connected;
    cell->limiter->cells++;
}

/* From now on the cell's limiter has 'units' in flight. */
static void set_cell_in_flight(struct weir_merge *merge,
                               struct weir_root_quota *root_quota,
                               struct weir_limiter_cell *cell, uint64_t units)
{
    weir_assert(cell->inflight);
    if ((int64_t)units < 0)
        units = 0;
    if (units > WEIR_IN_FLIGHT_MAX)
        units = WEIR_IN_FLIGHT_MAX;
    int64_t moved = (int64_t)(units - cell->last);
    if (moved == 0)
        return;
    root_quota->in_flight += (uint64_t)moved;
    root_quota->added += (uint64_t)moved;
    root_quota->units_moved +=
        moved < 0 ? 0 - (uint64_t)moved : (uint64_t)moved;
    cell->last = units;
    weir_merge_enqueue(merge, root_quota, WEIR_MERGE_MOVED);
    if (!cell->carried)
        return;
    root_quota->carried_in_flight += (uint64_t)moved;
    weir_merge_enqueue(merge, root_quota, WEIR_MERGE_CARRYING);
    weir_assert(cell->last <= WEIR_IN_FLIGHT_MAX);
}

/* From now on the cell's pace, or its units in flight, are in the carried sums,
 * or aren't. */
static void set_cell_carried(struct weir_merge *merge,
                             struct weir_root_quota *root_quota,
                             struct weir_limiter_cell *cell, bool carried)
{
    weir_assert(weir_root_quota_at(merge, cell->root_quota) == root_quota);
    if (cell->carried == carried)
        return;
    weir_u128 from = (weir_u128)cell->pace * cell->paced_at;
    cell->carried = carried;
    root_quota->carried_pace += carried ? cell->pace : 0 - cell->pace;
    root_quota->carried_from += carried ? from : 0 - from;
    uint64_t in_flight = cell->inflight ? cell->last : 0;
    root_quota->carried_in_flight += carried ? in_flight : 0 - in_flight;
    weir_merge_enqueue(merge, root_quota, WEIR_MERGE_CARRYING);
}

/* Gives back the cell's units in flight. */
static void release_cell(struct weir_merge *merge,
                         struct weir_limiter_cell *cell)
{
    if (cell->inflight)
        set_cell_in_flight(merge, weir_root_quota_at(merge, cell->root_quota),
                           cell, 0);
}

/* When the cell's pace began, if at 'at' it is 'ahead' of its counts. */
static uint64_t begun_at(uint64_t at, uint64_t ahead, uint64_t pace)
{
    weir_assert(pace > 0);
    weir_u128 since = ((weir_u128)ahead << WEIR_PACE_SHIFT) / pace;
    return since < at ? at - (uint64_t)since : 0;
}

/* The square root, rounded down. */
static uint32_t root_of(uint64_t square)
{
    uint64_t root = 0;
    for (uint64_t bit = (uint64_t)1 << 31; bit > 0; bit >>= 1) {
        if ((root + bit) * (root + bit) <= square)
            root += bit;
    }
    return (uint32_t)root;
}

/* The standard deviation of the units that pass at random at 'pace' before the
 * limiter learns of the others' counts: at most 2^31. */
static uint32_t exposure_of(uint64_t pace, weir_duration lead)
{
    weir_assert(pace <= WEIR_PACE_MAX && lead <= WEIR_LEAD_MAX);
    weir_u128 fine = (weir_u128)pace * (lead + EXPOSED_LEAST)
                         << 2 * WEIR_FILL_FRAC >>
                     WEIR_PACE_SHIFT;
    uint64_t most = (uint64_t)1 << 62;
    return root_of(fine < most ? (uint64_t)fine : most);
}

static void set_cell_exposure(struct weir_root_quota *root_quota,
                              struct weir_limiter_cell *cell, uint32_t exposure)
{
    weir_assert(root_quota->exposure >= cell->exposure);
    root_quota->exposure += (uint64_t)exposure - cell->exposure;
    cell->exposure = exposure;
}

/* From now on the root presumes 'pace' for the cell, whose count has this
 * 'lead' and is already 'ahead'. The units presumed so far stay in the bucket
 * and are returned, scaled: the count, and those presumed from now on, replace
 * them. They may be below 0. */
static int64_t set_cell_pace(struct weir_merge *merge,
                             struct weir_root_quota *root_quota,
                             struct weir_limiter_cell *cell, uint64_t pace,
                             uint64_t ahead, weir_duration lead,
                             weir_instant now)
{
    weir_assert(weir_root_quota_at(merge, cell->root_quota) == root_quota);
    if (cell->pace == 0 && pace == 0)
        return 0;
    uint64_t before = weir_merge_presumed(merge, root_quota, now);
    uint64_t at = weir_merge_elapsed(merge, now);
    cell->counted_at = at;
    set_cell_exposure(root_quota, cell, exposure_of(pace, lead));
    at = lead < at ? at - lead : 0;
    if (ahead != 0 && pace != 0)
        at = begun_at(at, ahead, pace);
    root_quota->pace += pace - cell->pace;
    root_quota->pace_from +=
        (weir_u128)pace * at - (weir_u128)cell->pace * cell->paced_at;
    if (root_quota->pace > root_quota->pace_most)
        root_quota->pace_most = root_quota->pace;
    cell->pace = pace;
    cell->paced_at = at;
    uint64_t gone = before - weir_merge_presumed(merge, root_quota, now);
    root_quota->in += gone;
    return (int64_t)gone;
}

/* Ends the cell's pace: its limiter is gone, or silent. */
static void drop_cell_pace(struct weir_merge *merge,
                           struct weir_limiter_cell *cell)
{
    if (cell->pace == 0)
        return;
    struct weir_root_quota *root_quota =
        weir_root_quota_at(merge, cell->root_quota);
    set_cell_carried(merge, root_quota, cell, false);
    root_quota->pace -= cell->pace;
    root_quota->pace_from -= (weir_u128)cell->pace * cell->paced_at;
    cell->pace = 0;
    set_cell_exposure(root_quota, cell, 0);
    root_quota->unlooked = true;
    weir_merge_enqueue(merge, root_quota, WEIR_MERGE_MOVED);
}

/* Takes the cell out of the list, with its pace and its units in flight. */
static void detach_cell(struct weir_merge *merge,
                        struct weir_limiter_cell *cell)
{
    drop_cell_pace(merge, cell);
    release_cell(merge, cell);
    struct weir_root_quota *root_quota =
        weir_root_quota_at(merge, cell->root_quota);
    weir_assert(root_quota->cell_count > 0 && cell->limiter->cells > 0);
    weir_assert(root_quota->connected >= cell->limiter->connected);
    if (cell->prev)
        cell->prev->next = cell->next;
    else
        root_quota->cells = cell->next;
    if (cell->next)
        cell->next->prev = cell->prev;
    root_quota->cell_count--;
    root_quota->connected -= cell->limiter->connected;
    cell->limiter->cells--;
    weir_limiter_cell_set_due(cell, false);
    cell->root_quota = 0;
    weir_assert(cell->pace == 0);
}

/* ---- Buckets ---- */

struct weir_root_quota *weir_merge_root_quota(struct weir_merge *merge,
                                              struct weir_text name,
                                              const struct weir_quota *quota,
                                              weir_instant now)
{
    struct weir_root_quota *root_quota = weir_merge_get(merge, name);
    if (root_quota)
        return root_quota;
    /* A new name pays for clearing former ones away. Under a flood of names at
     * most a quarter of the array is waste. */
    weir_merge_sweep(merge, &merge->hand, SWEEP_A_NEW, now);
    return weir_root_quota_make(merge, name, quota, now);
}

/* A debt: its sum less 'leaked', all that has leaked. One larger than any
 * bucket is 0: the sums wrapped while it was idle. */
static int64_t debt_left(uint64_t in, uint64_t leaked)
{
    int64_t debt = (int64_t)(in - leaked);
    return debt > 0 && debt <= WEIR_SCALED_MAX ? debt : 0;
}

/* The inverse: the sum for a debt; one below 0 counts as 0. */
static uint64_t debt_sum(int64_t debt, uint64_t leaked)
{
    return leaked + (uint64_t)(debt > 0 ? debt : 0);
}

void weir_merge_edit(struct weir_merge *merge,
                     struct weir_root_quota *root_quota,
                     const struct weir_quota *quota, weir_instant now)
{
    weir_assert(root_quota->live);
    int64_t fill = weir_merge_fill(merge, root_quota, now);
    uint64_t leaked =
        weir_leaked(root_quota->bucket.leak, weir_merge_elapsed(merge, now));
    int64_t adopted = (int64_t)(root_quota->adopted - leaked);
    unsigned from = root_quota->bucket.leak.frac;
    int64_t high = root_quota->bucket.high > 0 ? root_quota->bucket.high : 0;
    bool flips = root_quota->inflight != (quota->kind == WEIR_CONCURRENCY);
    if (root_quota->created != quota->created || flips)
        fill = adopted = 0;
    for (struct weir_limiter_cell *cell = root_quota->cells; cell;
         cell = cell->next)
        cell->in = (uint64_t)debt_left(cell->in, leaked);
    weir_root_quota_use(merge, root_quota, quota);
    fill = weir_fill_edited(weir_root_quota_rescaled(root_quota, fill, from),
                            weir_root_quota_rescaled(root_quota, high, from),
                            root_quota->bucket.high);
    /* Presumed units are not cut: their pace ends, or a count replaces them. */
    int64_t presumed = (int64_t)weir_merge_presumed(merge, root_quota, now);
    int64_t counted = weir_fill_smaller(
        fill - presumed, weir_root_quota_edited_most(root_quota));
    fill = counted + presumed;
    weir_root_quota_set_fill(merge, root_quota, fill, now);
    leaked =
        weir_leaked(root_quota->bucket.leak, weir_merge_elapsed(merge, now));
    adopted =
        weir_root_quota_rescaled(root_quota, adopted > 0 ? adopted : 0, from);
    root_quota->adopted =
        leaked + (uint64_t)(fill > 0 ? weir_fill_smaller(adopted, fill) : 0);
    weir_merge_enqueue(merge, root_quota, WEIR_MERGE_MOVED);
    for (struct weir_limiter_cell *cell = root_quota->cells; cell;
         cell = cell->next) {
        if (flips)
            drop_cell_pace(merge, cell);
        cell->dry = cell->dry_before = root_quota->dry; /* on a new scale */
        int64_t debt =
            weir_root_quota_rescaled(root_quota, (int64_t)cell->in, from);
        cell->in = debt_sum(weir_fill_smaller(debt, counted), leaked);
        if (cell->limiter->connected)
            weir_limiter_cell_set_due(cell, true);
    }
}

void weir_merge_drop(struct weir_merge *merge,
                     struct weir_root_quota *root_quota)
{
    weir_assert(root_quota->live && merge->root_quotas_live > 0);
    while (root_quota->cells)
        detach_cell(merge, root_quota->cells);
    weir_assert(root_quota->cell_count == 0 && root_quota->connected == 0);
    if (merge->upstream && merge->upstream->dropped)
        merge->upstream->dropped(merge->upstream->context, root_quota);
    /* The queue has its number if touched: the element is freed when its
     * turn comes. */
    const struct weir_mem *mem = &merge->mem;
    weir_index_remove(&merge->index, root_quota->hash,
                      weir_root_quota_number(merge, root_quota) - 1);
    mem->free(mem->context, root_quota->name, root_quota->name_len);
    root_quota->name = NULL;
    root_quota->name_len = 0;
    root_quota->live = false;
    merge->root_quotas_live--;
    weir_root_quota_free_if_left(merge, root_quota);
}

/* Has its limiters looked at again for due fills. */
static void catch_up(struct weir_merge *merge,
                     struct weir_root_quota *root_quota)
{
    weir_assert(root_quota->live && root_quota->passed_over);
    root_quota->passed_over = false;
    root_quota->unlooked = true;
    weir_merge_enqueue(merge, root_quota, WEIR_MERGE_MOVED);
}

/* Ends paces that were not confirmed. A limiter repeats a slot's pace at each
 * interval's end while the slot lives. If the quota was removed and recreated
 * before this root saw it, the bucket and its cells go on here, but the
 * limiter's slot is free and never reports again. Limiters use a pace for at
 * most half of this time, so none relies on it any more. */
static void end_paces(struct weir_merge *merge,
                      struct weir_root_quota *root_quota)
{
    uint64_t at = weir_merge_elapsed(merge, merge->read_till);
    for (struct weir_limiter_cell *cell = root_quota->cells; cell;
         cell = cell->next) {
        weir_duration most = 2 * cell->limiter->pace_good;
        if (most < merge->pace_most)
            most = merge->pace_most;
        if (at >= cell->counted_at && at - cell->counted_at >= most)
            drop_cell_pace(merge, cell);
    }
}

void weir_merge_sweep(struct weir_merge *merge, uint32_t *cursor, uint32_t look,
                      weir_instant now)
{
    for (uint32_t i = 0; i < look && i < merge->root_quotas_used; i++) {
        *cursor = *cursor + 1 < merge->root_quotas_used ? *cursor + 1 : 0;
        struct weir_root_quota *root_quota = &merge->root_quotas[*cursor];
        if (root_quota->live && root_quota->passed_over && !merge->overloaded)
            catch_up(merge, root_quota);
        if (root_quota->live && root_quota->pace != 0 && merge->pace_most > 0)
            end_paces(merge, root_quota);
        if (!root_quota->live || root_quota->cell_count > 0)
            continue;
        if (weir_merge_fill(merge, root_quota, now) == 0)
            weir_merge_drop(merge, root_quota);
    }
}

/* ---- Limiters ---- */

void weir_merge_connect(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter, bool connected)
{
    struct weir_limiter_cell *cell;
    uint32_t cursor = 0;
    if (limiter->connected == connected)
        return;
    limiter->connected = connected;
    limiter->released = false;
    while (weir_merge_next_cell(limiter, &cursor, &cell)) {
        struct weir_root_quota *root_quota =
            weir_root_quota_at(merge, cell->root_quota);
        if (connected) {
            root_quota->connected++;
            continue;
        }
        drop_cell_pace(merge, cell);
        weir_assert(root_quota->connected > 0);
        root_quota->connected--;
        weir_limiter_cell_set_due(cell, false);
    }
}

void weir_merge_mute(struct weir_merge *merge,
                     struct weir_merge_limiter *limiter)
{
    struct weir_limiter_cell *cell;
    uint32_t cursor = 0;
    while (weir_merge_next_cell(limiter, &cursor, &cell))
        drop_cell_pace(merge, cell);
}

void weir_merge_release(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter)
{
    struct weir_limiter_cell *cell;
    uint32_t cursor = 0;
    if (limiter->connected || limiter->released)
        return;
    limiter->released = true;
    while (weir_merge_next_cell(limiter, &cursor, &cell))
        release_cell(merge, cell);
}

void weir_merge_forget(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter)
{
    const struct weir_mem *mem = &merge->mem;
    struct weir_limiter_cell *cell;
    uint32_t cursor = 0;
    while (weir_merge_next_cell(limiter, &cursor, &cell))
        detach_cell(merge, cell);
    weir_assert(limiter->cells == 0 && limiter->due == 0);
    for (size_t p = 0; p < limiter->page_capacity; p++) {
        if (limiter->pages[p])
            mem->free(mem->context, limiter->pages[p],
                      sizeof(*limiter->pages[p]));
    }
    mem->free(mem->context, limiter->pages,
              limiter->page_capacity * sizeof(*limiter->pages));
    *limiter = (struct weir_merge_limiter){ 0 };
}

bool weir_merge_drained(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter, weir_instant now)
{
    struct weir_limiter_cell *cell;
    uint32_t cursor = 0;
    while (weir_merge_next_cell(limiter, &cursor, &cell)) {
        if (!cell->inflight &&
            weir_merge_fill(merge, weir_root_quota_at(merge, cell->root_quota),
                            now) > 0)
            return false;
    }
    return true;
}

/* Takes over the limiter's announced fill, if it is more than the root knows.
 * Without a witness the fill is from before this root's birth. Several such
 * fills are of one history, so the largest counts, and units counted since stay
 * on top. With a witness, those units are in the fill. */
static void adopt_fill(struct weir_merge *merge,
                       struct weir_root_quota *root_quota,
                       const struct weir_announce *announce, weir_instant now)
{
    weir_assert(root_quota->live);
    if (root_quota->unlimited || root_quota->inflight || announce->fill <= 0 ||
        weir_merge_elapsed(merge, now) > merge->learn)
        return;
    unsigned frac = root_quota->bucket.leak.frac;
    int64_t most = root_quota->debt_most;
    int64_t fill = announce->fill >= weir_rescale(most, frac, WEIR_FILL_FRAC)
                       ? most
                       : weir_rescale(announce->fill, WEIR_FILL_FRAC, frac);
    uint64_t leaked =
        weir_leaked(root_quota->bucket.leak, weir_merge_elapsed(merge, now));
    int64_t adopted = (int64_t)(root_quota->adopted - leaked);
    int64_t present = weir_merge_fill(merge, root_quota, now);
    int64_t known = announce->witnessed ? present : adopted > 0 ? adopted : 0;
    if (fill > adopted)
        root_quota->adopted = leaked + (uint64_t)fill;
    if (fill <= known)
        return;
    int64_t sum = present + (fill - known);
    weir_root_quota_set_fill(
        merge, root_quota,
        weir_fill_smaller(sum, weir_root_quota_fill_most(root_quota)), now);
    /* Makes the fill due at other limiters. */
    root_quota->added += ((uint64_t)(fill - known) >> frac) + 1;
    root_quota->unlooked = true;
    weir_merge_enqueue(merge, root_quota, WEIR_MERGE_MOVED);
}

/* Sets the total from which the next count differs. Units in flight come with
 * the count beside the announcement. */
static void take_base(struct weir_merge *merge, struct weir_limiter_cell *cell,
                      const struct weir_announce *announce, bool known)
{
    cell->base = announce->base;
    if (known && cell->inflight && announce->in_flight)
        return;
    if (cell->inflight || announce->in_flight) {
        release_cell(merge, cell);
        drop_cell_pace(merge, cell);
        cell->inflight = announce->in_flight;
        cell->last = cell->inflight ? 0 : announce->base;
        return;
    }
    bool raises = (int64_t)(announce->base - cell->last) > 0 && !announce->sank;
    if (!known || raises)
        cell->last = announce->base;
}

int weir_merge_announce(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter,
                        struct weir_root_quota *root_quota,
                        const struct weir_announce *announce, weir_instant now)
{
    if (announce->slot >= WEIR_LIMITER_CELLS_MAX)
        return WEIR_EPROTOCOL;
    struct weir_limiter_cell *cell = make_cell(merge, limiter, announce->slot);
    if (!cell)
        return WEIR_ENOMEM;
    bool known = cell->root_quota == weir_root_quota_number(merge, root_quota);
    if (!known) {
        if (cell->root_quota != 0)
            detach_cell(merge, cell);
        *cell = (struct weir_limiter_cell){ .limiter = limiter,
                                            .slot = announce->slot };
        attach_cell(merge, cell, root_quota);
        cell->dry = root_quota->dry - (uint64_t)WEIR_SCALED_MAX;
        cell->dry_before = cell->dry;
        adopt_fill(merge, root_quota, announce, now);
    }
    weir_assert(cell->limiter == limiter && cell->slot == announce->slot);
    take_base(merge, cell, announce, known);
    if (!known || (int64_t)(announce->refused - cell->refused_last) > 0)
        cell->refused_last = announce->refused;
    cell->refused_base = announce->refused;
    cell->sent_others = weir_limiter_cell_others(merge, root_quota, cell, now);
    cell->sent_pace = 0;
    cell->sent_at = 0;
    return WEIR_OK;
}

void weir_merge_unannounce(struct weir_merge *merge,
                           struct weir_merge_limiter *limiter, uint32_t slot)
{
    struct weir_limiter_cell *cell = weir_limiter_cell_of(limiter, slot);
    if (cell && cell->root_quota != 0)
        detach_cell(merge, cell);
}

static int64_t clamp_to_64(weir_i128 sum)
{
    return sum > INT64_MIN ? (int64_t)sum : INT64_MIN;
}

/* Of 'late' units, which drained at the limiter, the part that drained here
 * too: the leak that the empty bucket lost because they were missing. Counted
 * since the report before the last, because the last may have waited long for
 * its turn; and at most the leak of twice the counts' age, because this report
 * may have waited too. Leak lost earlier is not used: other limiters are late
 * by about the same time. */
static int64_t drained_units(struct weir_root_quota *root_quota,
                             const struct weir_limiter_cell *cell, int64_t late,
                             weir_duration from)
{
    weir_assert(late > 0);
    if (from > LATE_MOST)
        from = LATE_MOST;
    uint64_t most = weir_leaked(root_quota->bucket.leak, 2 * from);
    uint64_t dry = root_quota->dry - cell->dry_before;
    if (dry > most)
        dry = most;
    if (dry < (uint64_t)root_quota->dry_left)
        root_quota->dry_left = (int64_t)dry;
    int64_t units = weir_fill_smaller(late, root_quota->dry_left >>
                                                root_quota->bucket.leak.frac);
    root_quota->dry_left -= units << root_quota->bucket.leak.frac;
    weir_assert(units >= 0 && units <= late);
    return units;
}

/* Puts units of a count into the bucket, as far as its limiter's debt allows.
 * Late units cause no debt and are not bounded. Returns the units allowed; late
 * units are allowed in full. */
static int64_t charge_cell(struct weir_merge *merge,
                           struct weir_root_quota *root_quota,
                           struct weir_limiter_cell *cell, int64_t units,
                           int64_t instead, bool no_debt, weir_instant now)
{
    weir_assert(root_quota->debt_most >= 0);
    uint64_t leaked =
        weir_leaked(root_quota->bucket.leak, weir_merge_elapsed(merge, now));
    /* After an edit the presumed units may be more than the bucket: a limiter
     * owes no more than is there beside them, which may be below 0. */
    int64_t counted = weir_merge_fill(merge, root_quota, now) - instead -
                      (int64_t)weir_merge_presumed(merge, root_quota, now);
    int64_t debt = weir_fill_smaller(debt_left(cell->in, leaked), counted);
    if (!no_debt && units > 0) {
        /* It is unknown which limiter an adopted fill came from. */
        int64_t room = root_quota->debt_most - debt -
                       debt_left(root_quota->adopted, leaked);
        units =
            weir_limiter_cell_cut(merge, root_quota, cell, units, room, now);
    }
    weir_i128 one = (weir_i128)1 << root_quota->bucket.leak.frac;
    weir_i128 scaled = units * one;
    int64_t moved =
        weir_root_quota_add(merge, root_quota, units, instead, no_debt, now);
    /* Units that only lift an empty bucket are no debt of the limiter. */
    if (moved > scaled)
        moved = scaled > -debt ? (int64_t)scaled : -debt;
    cell->in = debt_sum(debt + moved, leaked);
    return units;
}

/* Adds to the units by which the bucket moved for the other limiters. */
static void note_moved(struct weir_root_quota *root_quota, int64_t units,
                       int64_t instead)
{
    weir_i128 net =
        (weir_i128)units - (instead >> root_quota->bucket.leak.frac);
    weir_i128 sum = root_quota->units_moved + (net < 0 ? -net : net);
    root_quota->units_moved = sum < UINT64_MAX ? (uint64_t)sum : UINT64_MAX;
}

/* Sets the cell's units in flight, also in the carried sum. */
static void count_in_flight(struct weir_merge *merge,
                            struct weir_root_quota *root_quota,
                            struct weir_limiter_cell *cell, uint64_t total,
                            bool carried, weir_instant now)
{
    weir_assert(cell->inflight);
    merge->merged++;
    set_cell_carried(merge, root_quota, cell, carried);
    set_cell_in_flight(merge, root_quota, cell, total);
    /* The region passes its whole count up, whichever root carries it. */
    if (merge->upstream)
        weir_merge_enqueue(merge, root_quota, WEIR_MERGE_CARRYING);
    if (root_quota->counted &&
        weir_limiter_cell_is_owed(merge, root_quota, cell, now))
        weir_limiter_cell_set_due(cell, true);
}

/* Takes the units and the pace that the cell's limiter hands over. 'refused':
 * units more than at its last report. */
static void carry_cell(struct weir_merge *merge,
                       struct weir_root_quota *root_quota,
                       struct weir_limiter_cell *cell,
                       const struct weir_count *count, uint64_t refused,
                       weir_duration late_from)
{
    root_quota->carried += (uint64_t)count->carry;
    if ((int64_t)refused > 0)
        root_quota->carried_refused += refused;
    set_cell_carried(merge, root_quota, cell, true);
    if (count->carry != 0 && late_from > merge->late_from)
        merge->late_from = late_from;
    weir_merge_enqueue(merge, root_quota, WEIR_MERGE_CARRYING);
    weir_assert(cell->carried);
}

bool weir_merge_count(struct weir_merge *merge,
                      struct weir_merge_limiter *limiter,
                      const struct weir_count *count,
                      const struct weir_report *report, weir_instant now)
{
    struct weir_limiter_cell *cell = weir_limiter_cell_of(limiter, count->slot);
    if (!cell || cell->root_quota == 0)
        return false;
    struct weir_root_quota *root_quota =
        weir_root_quota_at(merge, cell->root_quota);
    weir_assert(root_quota->live && cell->limiter == limiter);
    uint64_t total = cell->base + (uint64_t)count->passed;
    uint64_t refused = cell->refused_base + count->refused;
    uint64_t refused_delta = refused - cell->refused_last;
    cell->base = total;
    cell->refused_base = cell->refused_last = refused;
    if ((int64_t)refused_delta > 0)
        root_quota->refused += refused_delta;
    bool carried = report->carried && merge->upstream;
    if (cell->inflight) {
        if (carried && (int64_t)refused_delta > 0)
            root_quota->carried_refused += refused_delta;
        count_in_flight(merge, root_quota, cell, total, carried, now);
        return true;
    }
    int64_t delta = (int64_t)(total - cell->last);
    cell->last = total;
    root_quota->passed += (uint64_t)delta;
    merge->merged++;

    /* A repeated report (its answer was lost) begins with the units that were
     * taken before, and late units are the oldest too: subtract them. */
    weir_i128 known = (weir_i128)count->passed - delta;
    weir_i128 rest = count->late - (known > 0 ? known : 0);
    int64_t late = rest < delta ? clamp_to_64(rest) : delta;
    if (late > 0) {
        weir_merge_fill(merge, root_quota, now);
        /* No late_from: this root didn't limit the slot, since an unknown
         * time. */
        weir_duration from =
            report->late_from > 0 ? report->late_from : LATE_MOST;
        delta -= drained_units(root_quota, cell, late, from);
    }
    bool presumes =
        merge->slack && !root_quota->unlimited && !root_quota->inflight;
    uint64_t pace = presumes ? count->pace : 0;
    set_cell_carried(merge, root_quota, cell, false);
    int64_t instead = set_cell_pace(merge, root_quota, cell, pace, count->ahead,
                                    report->lead, now);
    bool no_debt = report->late_from > 0 || late > 0 || merge->detached;
    delta = charge_cell(merge, root_quota, cell, delta, instead, no_debt, now);
    note_moved(root_quota, delta, instead);
    /* The limiter half needs the whole count of the region (its share above),
     * whichever root carries it. */
    if (merge->upstream)
        weir_merge_enqueue(merge, root_quota, WEIR_MERGE_CARRYING);
    if (carried)
        carry_cell(merge, root_quota, cell, count, refused_delta,
                   report->late_from);
    cell->dry_before = cell->dry;
    cell->dry = root_quota->dry;
    if (root_quota->counted) {
        if (weir_limiter_cell_is_owed(merge, root_quota, cell, now))
            weir_limiter_cell_set_due(cell, true);
        if (delta != 0 || instead != 0)
            weir_merge_enqueue(merge, root_quota, WEIR_MERGE_MOVED);
    }
    return true;
}
