/* SPDX-License-Identifier: MIT
 * count/merge.c - how a root adds up what limiters say.
 *
 *     limiter A  slot 7 ──┐  cell: last total, what it was told
 *     limiter B  slot 2 ──┼─> use "site/put": bucket, list of its cells
 *     limiter C  slot 9 ──┘
 *
 * A cell remembers the limiter's total, so that what arrives twice adds
 * nothing: the bucket gets the difference between totals, and a total is
 * either announced absolutely (a session's start) or follows from the last
 * answered one.
 *
 * Late counts. A limiter that couldn't be heard comes back with the counts of
 * seconds or minutes. Had they come in time, the bucket would have leaked them;
 * it ran dry instead, and what leaked from nothing then is kept. Late counts
 * first make up for that, as far as it was since their limiter was last in time
 * and no other's have done so, and the rest is added: so, whoever of many was
 * late, the bucket holds what it would if nobody had been. But if load was
 * gone in between it was dry rightly: no more is taken for drained than has
 * drained from the limiter's own bucket, by its word (tally.c). And in all they
 * fill what is left of the bucket, but put nobody into debt: what went on while
 * no root could be asked went on by on_stale. What is presumed by then is in
 * the bucket as well: put on top of it, as it once was, its truth became a debt
 * of some 0.7 s of the limit, for which a mended fleet was refused.
 *
 * Presuming. A count also says at what pace the limiter presumably goes on,
 * and the bucket grows by that until the next count of the slot, which takes
 * the place of what was presumed, to the unit. So a limiter has to report
 * when it does something else than was presumed, not when it does something:
 * dead reckoning, as ships and games know it. What is presumed of all cells
 * by 'now' is one linear form,
 *
 *     sum of pace * (now - paced_at)  =  pace * now - pace_from
 *
 * in whole numbers, so that nothing is ever presumed twice or left behind,
 * and a bucket's fill costs the same with ten thousand cells. A pace ends
 * with its link, after some intervals of silence, and after some more in which
 * the limiter is heard and its slot isn't.
 *
 * Slack. A limiter may leave what is presumed of it, either way, by what it
 * was told: half of the room left in the bucket, divided by those who use
 * it; twice that above it, it stops. The stated bound is then
 *
 *     counted <= presumed here + sum over limiters of (2 * slack + weight)
 *
 * whatever the interval and the round trip, slack being what each was last
 * told. Each limiter is told the pace of all others too, and goes by the
 * bucket as it is presumed here by now. So, whoever was told last among those
 * that let something through knows all that the others may do until they are
 * told, and the bound on a bucket is
 *
 *     high + sum over limiters of (2 * slack + weight)
 *          + a 25th of the room + (sum of paces - limit) * age, if above 0
 *
 * where 'room' is what was left when slack was told, and 'age' is how long a
 * fill travels, and the 50 ms after which a limiter looks again at what others
 * presumably do.
 *
 * What was presumed of a limiter that paused has leaked from an empty bucket by
 * the time it goes on, and its truth takes that place: the bucket holds too
 * little by as much. That is less than the slack, below which it reports, and
 * its pace for those 50 ms, and is in the bound's second slack. Only where an
 * answer is lost and its link is not has the limiter no leave to report so,
 * until it says the former report again or the pace ends.
 *
 * At an onset nothing is heard until the first limiter has used up its slack,
 * and the bucket leaks from nothing meanwhile; by that it is too full from then
 * on, never too empty, and roots are apart by the difference, until it is empty
 * the next time. It is the limit times high / (2 * the load) at most, a quarter
 * of a second of the limit at three times the limit; of that, whoever is told
 * passes less once (test_fleet). In a region it is so much at each tier.
 *
 * Who is told. A cell is due when the others' part of the bucket has left
 * what it was told, pace included, by a 32nd of the room that is left; or when
 * its slack should be less than half of what it holds. The grain is of the
 * room and not of the slack, because what a limiter needs of the others is
 * their sum: with 50 limiters a grain of half a slack told everybody of every
 * unit, ten times the messages, and nothing held better. It is part of the
 * bound: the last to let something through may miss so much of the others.
 * Who is due is found by looking at buckets that moved, in order, a bounded
 * number of cells a time: an overloaded root tells later, it does not do more.
 * A bucket whose cells were looked at is passed over until it can have moved
 * for one of them by a quarter of a grain (so the bound has 5/4 of 1/32).
 *
 * Overload. A flood of names makes nearly all of a root's work, and nearly all
 * of them are far from their limits. A root that asks for fewer reports (the
 * node says so: 'strained') tells of a bucket that is less than half full only
 * him whose slack is off by half, or who has just announced it; others' counts
 * there move nobody, and a count of it is answered without a fill. Slack was
 * given of the same room, so what all may count unseen is what it was; what the
 * limiter sees of the bucket may be too small by up to half of it. When the
 * overload is over, the sweep has the others told. Measured in virtual time, 12
 * limiters, 3,000 names under a flood of 6,000/s beside a quota at three times
 * its limit, 100 us a message (mean of seeds 1 to 3):
 *
 *     a count or a fill takes          36 us         50 us         60 us
 *     passed / its deviation
 *       told as ever                .98 / .07     .72 / .09     .52 / .12
 *       told of what matters       1.00 / .01    1.01 / .02     .98 / .17
 *
 * A root with an upstream, and what limiters hand to it: merge_carry.c.
 *
 * The bound on how much of a bucket one limiter can fill: merge_debt.c.
 * Numbers of a report may be any of their type, so sums of them are made
 * modulo 2^64, in 128 bits, or held to the range of their type.
 *
 * What is in flight (kind concurrency). Nothing leaks there, nothing is late
 * and nothing presumed: a cell's last total is what its limiter's permits hold,
 * as it said last, and the fill is the sum of the cells. So what is lost or
 * said twice is right again with the next report, and a newborn root knows what
 * is in flight when all have reported; nobody's picture is taken over. An
 * announcement says of which kind its totals are, for limiters and roots hear
 * of an edit of the kind one after the other: totals of the other kind count
 * for nothing. A limiter that was away for stale_after has nothing in flight
 * any more (it goes by on_stale then, or it died); back again, it says all
 * anew. The bound is the one above, without paces: what others hold more than
 * they said when they were last heard of, each 2 * slack + weight, and what
 * they began while a fill was on its way.
 *
 * Measured in virtual time, mean of 20 seeds: 50 limiters, three times the
 * limit, a round trip of 1 ms, and slack as a multiple of what it is:
 *
 *     multiple                1/2   3/4     1   5/4   3/2     2     3     4
 *     reports a link and s    7.3   4.7   3.0   2.2   1.7   1.3   1.1   1.1
 *     deviation of a second  .009  .010  .010  .011  .012  .016  .028  .076
 *     above 'high', limit-s     0     0     0     0     0     0     0   .11
 *     refused afterwards     .092  .101  .108  .118  .129  .144  .176  .192
 *
 * Rejected: telling on a timer (millions of idle cells would be told
 * nothing new), and telling only who reports (a limiter that waits for a
 * request would decide on what it heard an hour ago). Reporting each 'slack'
 * units instead of each deviation: 19 reports a second where it is 3 now.
 * Of late counts, adding those made since the bucket was last empty: fifty
 * limiters, of which each holds the whole bucket, filled it to 'high', all were
 * refused, and the roots disagreed for as long as the load lasted. Taking the
 * fill that a limiter has from another root: two roots, of which each heard
 * half of the fleet, both took a half for the whole. */

#include "count/merge.h"

#include <string.h>

#include "base/hash.h"
#include "count/merge_parts.h"

/* Counts may be late by this at most, so that twice the time times the
 * fastest leak (2^8 a nanosecond) is a number of 63 bits. */
#define LATE_MOST ((weir_duration)1 << 53) /* 104 days */
/* Buckets looked at for one that is made. */
#define SWEEP_A_NEW 4

void weir_merge_init(struct weir_merge *merge, const struct weir_mem *mem,
                     uint64_t seed, weir_instant now)
{
    *merge = (struct weir_merge){
        .mem = *mem, .seed = seed, .origin = now, .slack = true
    };
}

void weir_merge_fini(struct weir_merge *merge)
{
    const struct weir_mem *mem = &merge->mem;
    for (uint32_t i = 0; i < merge->use_used; i++) {
        if (merge->uses[i].live)
            mem->free(mem->context, merge->uses[i].name,
                      merge->uses[i].name_len);
    }
    mem->free(mem->context, merge->uses,
              merge->use_capacity * sizeof(*merge->uses));
    weir_index_fini(&merge->index, mem);
}

/* ---- Buckets ---- */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

uint64_t weir_use_scaled_pace(const struct weir_use *use, weir_u128 sum)
{
    if ((weir_i128)sum <= 0)
        return 0;
    weir_u128 scaled = (sum << use->bucket.leak.frac) >> WEIR_PACE_SHIFT;
    return scaled < (uint64_t)WEIR_SCALED_MAX / 4
               ? (uint64_t)scaled
               : (uint64_t)WEIR_SCALED_MAX / 4;
}

/* What limiters have presumably counted since they reported. */
uint64_t weir_merge_presumed(const struct weir_merge *merge,
                             const struct weir_use *use, weir_instant now)
{
    if (use->pace == 0)
        return 0;
    weir_u128 sum =
        (weir_u128)use->pace * weir_merge_elapsed(merge, now) - use->pace_from;
    return weir_use_scaled_pace(use, sum);
}

/* So much leaked from nothing. Nobody can make up for more than a bucket
 * holds, so that is all that need be known of it. */
static void ran_dry(struct weir_use *use, weir_i128 scaled)
{
    int64_t dry = scaled < WEIR_SCALED_MAX ? (int64_t)scaled : WEIR_SCALED_MAX;
    use->dry += (uint64_t)dry;
    use->dry_left = smaller(use->dry_left + dry, WEIR_SCALED_MAX);
}

int64_t weir_merge_fill(struct weir_merge *merge, struct weir_use *use,
                        weir_instant now)
{
    if (use->gauge)
        return use->held < WEIR_IN_FLIGHT_MAX ? (int64_t)use->held
                                              : (int64_t)WEIR_IN_FLIGHT_MAX;
    if (use->unlimited)
        return 0;
    uint64_t out =
        weir_leaked(use->bucket.leak, weir_merge_elapsed(merge, now)) -
        weir_merge_presumed(merge, use, now);
    int64_t fill = (int64_t)(use->in - out);
    if (fill > 0)
        return fill;
    use->in = out;
    ran_dry(use, -(weir_i128)fill);
    return 0;
}

static void set_fill(struct weir_merge *merge, struct weir_use *use,
                     int64_t fill, weir_instant now)
{
    uint64_t leaked =
        weir_leaked(use->bucket.leak, weir_merge_elapsed(merge, now));
    use->in = leaked - weir_merge_presumed(merge, use, now) + (uint64_t)fill;
}

/* 'instead': the content of the bucket that the units replace, scaled.
 * Returns by how much the units moved it, scaled. */
static int64_t add_units(struct weir_merge *merge, struct weir_use *use,
                         int64_t units, int64_t instead, bool late,
                         weir_instant now)
{
    use->added += (uint64_t)units;
    if (use->unlimited)
        return 0;
    int64_t fill = weir_merge_fill(merge, use, now);
    /* What is presumed may never come: it takes no count's place but that of
     * late ones, which are owed none. */
    int64_t beside = (int64_t)weir_merge_presumed(merge, use, now);
    int64_t most = weir_use_fill_most(use) + beside;
    if (late) {
        int64_t full = use->bucket.high;
        most = full > fill - instead ? full : fill - instead;
    }
    weir_i128 one = (weir_i128)1 << use->bucket.leak.frac;
    weir_i128 wanted = fill + units * one - instead;
    if (wanted > most)
        wanted = most;
    if (wanted < 0) {
        ran_dry(use, -wanted);
        wanted = 0;
    }
    /* What leaked and what is presumed are in both. */
    int64_t more = (int64_t)wanted - fill;
    use->in += (uint64_t)more;
    return more + instead;
}

static void use_parameters(const struct weir_merge *merge, struct weir_use *use,
                           const struct weir_quota *quota)
{
    use->unlooked = true;
    use->counted = quota->sharing == WEIR_COUNTED;
    use->unlimited = quota->limit.unlimited;
    use->gauge = quota->kind == WEIR_CONCURRENCY;
    use->created = quota->created;
    use->rule_epoch = quota->epoch;
    weir_quota_bucket(quota, &use->bucket);
    use->debt_most = weir_use_debt_of(merge, use, quota->max_debt);
}

struct weir_use *weir_merge_get(struct weir_merge *merge, struct weir_text name)
{
    uint64_t hash = weir_hash(name, merge->seed);
    size_t cursor = 0;
    uint32_t index;
    while (weir_index_find(&merge->index, hash, &cursor, &index)) {
        struct weir_use *use = &merge->uses[index];
        struct weir_text other = { use->name, use->name_len };
        if (weir_text_equal(name, other))
            return use;
    }
    return NULL;
}

/* A place in the array: a freed one, or a new one. 0: none. */
static uint32_t take_place(struct weir_merge *merge)
{
    uint32_t number = merge->free_use;
    if (number != 0) {
        merge->free_use = weir_use_at(merge, number)->next_touched;
        return number;
    }
    if (merge->use_used == WEIR_USAGES_MAX)
        return 0;
    struct weir_use *uses =
        weir_mem_grow(&merge->mem, merge->uses, sizeof(*uses),
                      &merge->use_capacity, merge->use_used + 1);
    if (!uses)
        return 0;
    merge->uses = uses;
    return ++merge->use_used;
}

static void free_place(struct weir_merge *merge, struct weir_use *use)
{
    *use = (struct weir_use){ .next_touched = merge->free_use };
    merge->free_use = weir_use_number(merge, use);
}

struct weir_use *weir_merge_use(struct weir_merge *merge, struct weir_text name,
                                const struct weir_quota *quota,
                                weir_instant now)
{
    struct weir_use *use = weir_merge_get(merge, name);
    if (use)
        return use;
    /* Who floods us with names pays for clearing the former ones away: of
     * those in the array at most a quarter is ever waste. */
    weir_merge_sweep(merge, &merge->hand, SWEEP_A_NEW, now);
    uint32_t number = take_place(merge);
    if (number == 0)
        return NULL;
    const struct weir_mem *mem = &merge->mem;
    use = weir_use_at(merge, number);
    memset(use, 0, sizeof(*use));
    use->name = mem->alloc(mem->context, name.len);
    use->hash = weir_hash(name, merge->seed);
    if (!use->name ||
        weir_index_add(&merge->index, mem, use->hash, number - 1) < 0) {
        mem->free(mem->context, use->name, name.len);
        free_place(merge, use);
        return NULL;
    }
    memcpy(use->name, name.p, name.len);
    use->name_len = (uint8_t)name.len;
    use->live = true;
    use->dry_left = WEIR_SCALED_MAX; /* of the time before */
    use_parameters(merge, use, quota);
    set_fill(merge, use, 0, now);
    use->adopted = use->in;
    merge->use_live++;
    return use;
}

/* ---- The queue of buckets that moved ---- */

void weir_use_free_if_left(struct weir_merge *merge, struct weir_use *use)
{
    if (!use->touched && !use->carrying)
        free_place(merge, use);
}

void weir_merge_touch(struct weir_merge *merge, struct weir_use *use)
{
    if (use->touched)
        return;
    uint32_t number = weir_use_number(merge, use);
    use->touched = true;
    use->next_touched = 0;
    if (merge->touched_last != 0)
        weir_use_at(merge, merge->touched_last)->next_touched = number;
    else
        merge->touched = number;
    merge->touched_last = number;
}

struct weir_use *weir_merge_next_touched(struct weir_merge *merge)
{
    if (merge->touched == 0)
        return NULL;
    struct weir_use *use = weir_use_at(merge, merge->touched);
    merge->touched = use->next_touched;
    if (merge->touched == 0)
        merge->touched_last = 0;
    use->touched = false;
    use->next_touched = 0;
    return use;
}

/* ---- Cells ---- */

struct weir_cell *weir_cell_of(const struct weir_merge_limiter *limiter,
                               uint32_t slot)
{
    size_t page = slot / WEIR_CELLS_A_PAGE;
    if (page >= limiter->page_capacity || !limiter->pages[page])
        return NULL;
    return &limiter->pages[page]->cell[slot % WEIR_CELLS_A_PAGE];
}

uint64_t weir_cell_presumed(const struct weir_merge *merge,
                            const struct weir_use *use,
                            const struct weir_cell *cell, weir_instant now)
{
    if (cell->pace == 0)
        return 0;
    int64_t age = (int64_t)(weir_merge_elapsed(merge, now) - cell->paced_at);
    return weir_use_scaled_pace(use, (weir_u128)((weir_i128)cell->pace * age));
}

uint64_t weir_cell_others(const struct weir_merge *merge,
                          const struct weir_use *use,
                          const struct weir_cell *cell, weir_instant now)
{
    uint64_t scaled = weir_merge_presumed(merge, use, now) -
                      weir_cell_presumed(merge, use, cell, now);
    return use->added - cell->last + (scaled >> use->bucket.leak.frac);
}

static struct weir_cell *cell_make(struct weir_merge *merge,
                                   struct weir_merge_limiter *limiter,
                                   uint32_t slot)
{
    const struct weir_mem *mem = &merge->mem;
    size_t page = slot / WEIR_CELLS_A_PAGE;
    struct weir_cell_page **pages = weir_mem_grow(
        mem, limiter->pages, sizeof(*pages), &limiter->page_capacity, page + 1);
    if (!pages)
        return NULL;
    limiter->pages = pages;
    if (!pages[page])
        pages[page] = mem->alloc(mem->context, sizeof(**pages));
    return pages[page] ? &pages[page]->cell[slot % WEIR_CELLS_A_PAGE] : NULL;
}

static void cell_attach(struct weir_merge *merge, struct weir_cell *cell,
                        struct weir_use *use)
{
    cell->use = weir_use_number(merge, use);
    cell->prev = NULL;
    cell->next = use->cells;
    if (use->cells)
        use->cells->prev = cell;
    use->cells = cell;
    use->cell_count++;
    use->connected += cell->limiter->connected;
    cell->limiter->cells++;
}

/* From now on the cell's limiter has so much in flight. */
static void set_held(struct weir_merge *merge, struct weir_use *use,
                     struct weir_cell *cell, uint64_t units)
{
    if ((int64_t)units < 0)
        units = 0;
    if (units > WEIR_IN_FLIGHT_MAX)
        units = WEIR_IN_FLIGHT_MAX;
    int64_t moved = (int64_t)(units - cell->last);
    if (moved == 0)
        return;
    use->held += (uint64_t)moved;
    use->added += (uint64_t)moved;
    use->stirred += moved < 0 ? 0 - (uint64_t)moved : (uint64_t)moved;
    cell->last = units;
    weir_merge_touch(merge, use);
    if (!cell->carried)
        return;
    use->carried_held += (uint64_t)moved;
    weir_use_carry_on(merge, use);
}

static void release(struct weir_merge *merge, struct weir_cell *cell)
{
    if (cell->gauge)
        set_held(merge, weir_use_at(merge, cell->use), cell, 0);
}

/* Nothing is presumed of it any more: it is gone, or silent. */
static void drop_pace(struct weir_merge *merge, struct weir_cell *cell)
{
    if (cell->pace == 0)
        return;
    struct weir_use *use = weir_use_at(merge, cell->use);
    weir_cell_set_carried(merge, use, cell, false);
    use->pace -= cell->pace;
    use->pace_from -= (weir_u128)cell->pace * cell->paced_at;
    cell->pace = 0;
    use->unlooked = true;
    weir_merge_touch(merge, use);
}

static void cell_detach(struct weir_merge *merge, struct weir_cell *cell)
{
    drop_pace(merge, cell);
    release(merge, cell);
    struct weir_use *use = weir_use_at(merge, cell->use);
    if (cell->prev)
        cell->prev->next = cell->next;
    else
        use->cells = cell->next;
    if (cell->next)
        cell->next->prev = cell->prev;
    use->cell_count--;
    use->connected -= cell->limiter->connected;
    cell->limiter->cells--;
    weir_cell_set_due(cell, false);
    cell->use = 0;
}

/* ---- What is presumed ---- */

/* When the cell's pace began, if it is 'ahead' of what it passed by 'at'. */
static uint64_t begun_at(uint64_t at, uint64_t ahead, uint64_t pace)
{
    weir_u128 since = ((weir_u128)ahead << WEIR_PACE_SHIFT) / pace;
    return since < at ? at - (uint64_t)since : 0;
}

/* From now on the cell presumably adds 'pace', and it has added 'ahead'. What
 * was presumed of it so far stays in the bucket, and is returned, scaled: the
 * truth takes its place. */
static int64_t set_pace(struct weir_merge *merge, struct weir_use *use,
                        struct weir_cell *cell, uint64_t pace, uint64_t ahead,
                        weir_instant now)
{
    if (cell->pace == 0 && pace == 0)
        return 0;
    uint64_t before = weir_merge_presumed(merge, use, now);
    uint64_t at = weir_merge_elapsed(merge, now);
    cell->counted_at = at;
    if (ahead != 0 && pace != 0)
        at = begun_at(at, ahead, pace);
    use->pace += pace - cell->pace;
    use->pace_from +=
        (weir_u128)pace * at - (weir_u128)cell->pace * cell->paced_at;
    if (use->pace > use->pace_most)
        use->pace_most = use->pace;
    cell->pace = pace;
    cell->paced_at = at;
    uint64_t gone = before - weir_merge_presumed(merge, use, now);
    use->in += gone;
    return (int64_t)gone;
}

/* ---- Edits ---- */

int64_t weir_use_rescaled(const struct weir_use *use, int64_t fill,
                          unsigned from)
{
    unsigned to = use->bucket.leak.frac;
    int64_t most = weir_use_fill_most(use);
    if (to > from && fill > most >> (to - from))
        return most;
    return weir_rescale(fill, from, to);
}

void weir_merge_edit(struct weir_merge *merge, struct weir_use *use,
                     const struct weir_quota *quota, weir_instant now)
{
    int64_t fill = weir_merge_fill(merge, use, now);
    uint64_t leaked =
        weir_leaked(use->bucket.leak, weir_merge_elapsed(merge, now));
    int64_t adopted = (int64_t)(use->adopted - leaked);
    unsigned from = use->bucket.leak.frac;
    bool flips = use->gauge != (quota->kind == WEIR_CONCURRENCY);
    if (use->created != quota->created || flips)
        fill = adopted = 0;
    for (struct weir_cell *cell = use->cells; cell; cell = cell->next)
        cell->in = (uint64_t)weir_debt_left(cell->in, leaked);
    use_parameters(merge, use, quota);
    /* Presumed units go by themselves, or a count takes their place. */
    int64_t presumed = (int64_t)weir_merge_presumed(merge, use, now);
    int64_t counted = smaller(weir_use_rescaled(use, fill, from) - presumed,
                              weir_use_edited_most(use));
    fill = counted + presumed;
    set_fill(merge, use, fill, now);
    leaked = weir_leaked(use->bucket.leak, weir_merge_elapsed(merge, now));
    adopted = weir_use_rescaled(use, adopted > 0 ? adopted : 0, from);
    use->adopted = leaked + (uint64_t)(fill > 0 ? smaller(adopted, fill) : 0);
    weir_merge_touch(merge, use);
    for (struct weir_cell *cell = use->cells; cell; cell = cell->next) {
        if (flips)
            drop_pace(merge, cell);
        cell->dry = cell->dry_before = use->dry; /* of another scale */
        int64_t debt = weir_use_rescaled(use, (int64_t)cell->in, from);
        cell->in = weir_debt_sum(smaller(debt, counted), leaked);
        if (cell->limiter->connected)
            weir_cell_set_due(cell, true);
    }
}

void weir_merge_drop(struct weir_merge *merge, struct weir_use *use)
{
    while (use->cells)
        cell_detach(merge, use->cells);
    if (merge->upstream && merge->upstream->dropped)
        merge->upstream->dropped(merge->upstream->context, use);
    /* A touched use is in the queue by number: it leaves when it is its
     * turn, and the place is freed then. */
    const struct weir_mem *mem = &merge->mem;
    weir_index_remove(&merge->index, use->hash,
                      weir_use_number(merge, use) - 1);
    mem->free(mem->context, use->name, use->name_len);
    use->name = NULL;
    use->name_len = 0;
    use->live = false;
    merge->use_live--;
    weir_use_free_if_left(merge, use);
}

/* Those who use it are looked for again. */
static void catch_up(struct weir_merge *merge, struct weir_use *use)
{
    use->passed_over = false;
    use->unlooked = true;
    weir_merge_touch(merge, use);
}

/* A limiter says its pace at each interval's end, while the slot lives. Where
 * the quota went, and was made anew before this root looked, the bucket and its
 * cells go on, and of a slot that is free now nothing is ever said. The limiter
 * itself goes by half of that time at most, so nobody counts on it. */
static void end_paces(struct weir_merge *merge, struct weir_use *use,
                      weir_instant now)
{
    uint64_t at = weir_merge_elapsed(merge, now);
    for (struct weir_cell *cell = use->cells; cell; cell = cell->next) {
        if (at >= cell->counted_at && at - cell->counted_at >= merge->pace_most)
            drop_pace(merge, cell);
    }
}

void weir_merge_sweep(struct weir_merge *merge, uint32_t *cursor, uint32_t look,
                      weir_instant now)
{
    for (uint32_t i = 0; i < look && i < merge->use_used; i++) {
        *cursor = *cursor + 1 < merge->use_used ? *cursor + 1 : 0;
        struct weir_use *use = &merge->uses[*cursor];
        if (use->live && use->passed_over && !merge->strained)
            catch_up(merge, use);
        if (use->live && use->pace != 0 && merge->pace_most > 0)
            end_paces(merge, use, now);
        if (!use->live || use->cell_count > 0)
            continue;
        if (weir_merge_fill(merge, use, now) == 0)
            weir_merge_drop(merge, use);
    }
}

/* ---- Limiters ---- */

/* Calls for each cell in use. */
static void each_cell(struct weir_merge *merge,
                      struct weir_merge_limiter *limiter,
                      void (*each)(struct weir_merge *, struct weir_cell *))
{
    for (size_t p = 0; p < limiter->page_capacity; p++) {
        if (!limiter->pages[p])
            continue;
        for (int i = 0; i < WEIR_CELLS_A_PAGE; i++) {
            struct weir_cell *cell = &limiter->pages[p]->cell[i];
            if (cell->use != 0)
                each(merge, cell);
        }
    }
}

static void cell_connect(struct weir_merge *merge, struct weir_cell *cell)
{
    weir_use_at(merge, cell->use)->connected++;
}

static void cell_disconnect(struct weir_merge *merge, struct weir_cell *cell)
{
    drop_pace(merge, cell);
    weir_use_at(merge, cell->use)->connected--;
    weir_cell_set_due(cell, false);
}

void weir_merge_connect(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter, bool connected)
{
    if (limiter->connected == connected)
        return;
    limiter->connected = connected;
    limiter->released = false;
    each_cell(merge, limiter, connected ? cell_connect : cell_disconnect);
}

void weir_merge_hush(struct weir_merge *merge,
                     struct weir_merge_limiter *limiter)
{
    each_cell(merge, limiter, drop_pace);
}

void weir_merge_release(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter)
{
    if (limiter->connected || limiter->released)
        return;
    limiter->released = true;
    each_cell(merge, limiter, release);
}

void weir_merge_forget(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter)
{
    const struct weir_mem *mem = &merge->mem;
    each_cell(merge, limiter, cell_detach);
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
    for (size_t p = 0; p < limiter->page_capacity; p++) {
        if (!limiter->pages[p])
            continue;
        for (int i = 0; i < WEIR_CELLS_A_PAGE; i++) {
            const struct weir_cell *cell = &limiter->pages[p]->cell[i];
            if (cell->use != 0 && !cell->gauge &&
                weir_merge_fill(merge, weir_use_at(merge, cell->use), now) > 0)
                return false;
        }
    }
    return true;
}

/* What the limiter knew of the bucket, if that is more than we do. Without a
 * witness it is the bucket as it was before our birth: of several such the
 * largest counts, for they are of one history, and what was counted since
 * stays on top. With one, what was counted since is in it. */
static void adopt_fill(struct weir_merge *merge, struct weir_use *use,
                       const struct weir_announce *announce, weir_instant now)
{
    if (use->unlimited || use->gauge || announce->fill <= 0 ||
        weir_merge_elapsed(merge, now) > merge->learn)
        return;
    unsigned frac = use->bucket.leak.frac;
    int64_t most = use->debt_most;
    int64_t fill = announce->fill >= weir_rescale(most, frac, WEIR_FILL_FRAC)
                       ? most
                       : weir_rescale(announce->fill, WEIR_FILL_FRAC, frac);
    uint64_t leaked =
        weir_leaked(use->bucket.leak, weir_merge_elapsed(merge, now));
    int64_t adopted = (int64_t)(use->adopted - leaked);
    int64_t present = weir_merge_fill(merge, use, now);
    int64_t known = announce->witnessed ? present : adopted > 0 ? adopted : 0;
    if (fill > adopted)
        use->adopted = leaked + (uint64_t)fill;
    if (fill <= known)
        return;
    int64_t sum = present + (fill - known);
    set_fill(merge, use, smaller(sum, weir_use_fill_most(use)), now);
    /* Others are told that it moved. */
    use->added += ((uint64_t)(fill - known) >> frac) + 1;
    use->unlooked = true;
    weir_merge_touch(merge, use);
}

/* The total from which the next count differs. What is in flight the count says
 * that comes with the announcement. */
static void take_base(struct weir_merge *merge, struct weir_cell *cell,
                      const struct weir_announce *announce, bool known)
{
    cell->base = announce->base;
    if (known && cell->gauge && announce->in_flight)
        return;
    if (cell->gauge || announce->in_flight) {
        release(merge, cell);
        drop_pace(merge, cell);
        cell->gauge = announce->in_flight;
        cell->last = cell->gauge ? 0 : announce->base;
        return;
    }
    bool raises = (int64_t)(announce->base - cell->last) > 0 && !announce->sank;
    if (!known || raises)
        cell->last = announce->base;
}

int weir_merge_announce(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter,
                        struct weir_use *use,
                        const struct weir_announce *announce, weir_instant now)
{
    if (announce->slot >= WEIR_CELLS_MAX)
        return WEIR_EPROTOCOL;
    struct weir_cell *cell = cell_make(merge, limiter, announce->slot);
    if (!cell)
        return WEIR_ENOMEM;
    bool known = cell->use == weir_use_number(merge, use);
    if (!known) {
        if (cell->use != 0)
            cell_detach(merge, cell);
        *cell =
            (struct weir_cell){ .limiter = limiter, .slot = announce->slot };
        cell_attach(merge, cell, use);
        cell->dry = use->dry - (uint64_t)WEIR_SCALED_MAX;
        cell->dry_before = cell->dry;
        adopt_fill(merge, use, announce, now);
    }
    take_base(merge, cell, announce, known);
    if (!known || (int64_t)(announce->refused - cell->refused_last) > 0)
        cell->refused_last = announce->refused;
    cell->refused_base = announce->refused;
    cell->told_others = weir_cell_others(merge, use, cell, now);
    cell->told_pace = 0;
    cell->told_at = 0;
    return WEIR_OK;
}

void weir_merge_unannounce(struct weir_merge *merge,
                           struct weir_merge_limiter *limiter, uint32_t slot)
{
    struct weir_cell *cell = weir_cell_of(limiter, slot);
    if (cell && cell->use != 0)
        cell_detach(merge, cell);
}

static int64_t held_to_64(weir_i128 sum)
{
    return sum > INT64_MIN ? (int64_t)sum : INT64_MIN;
}

/* Of late units that have drained elsewhere, those that have here: so much
 * leaked from nothing, for want of them. Since the report before the last,
 * because that one may have waited long for its turn; and no more than in twice
 * the age of the counts, because this one may have as well. What is from before
 * that is nobody's: others are late by about the same. */
static int64_t drained(struct weir_use *use, const struct weir_cell *cell,
                       int64_t late, weir_duration from)
{
    if (from > LATE_MOST)
        from = LATE_MOST;
    uint64_t most = weir_leaked(use->bucket.leak, 2 * from);
    uint64_t dry = use->dry - cell->dry_before;
    if (dry > most)
        dry = most;
    if (dry < (uint64_t)use->dry_left)
        use->dry_left = (int64_t)dry;
    int64_t units = smaller(late, use->dry_left >> use->bucket.leak.frac);
    use->dry_left -= units << use->bucket.leak.frac;
    return units;
}

/* Puts units of a count into the bucket, as far as the debt of its limiter
 * allows; late units cause no debt, and need no such bound. Returns the units
 * that are allowed, or all that are late. */
static int64_t charge(struct weir_merge *merge, struct weir_use *use,
                      struct weir_cell *cell, int64_t units, int64_t instead,
                      bool no_debt, weir_instant now)
{
    uint64_t leaked =
        weir_leaked(use->bucket.leak, weir_merge_elapsed(merge, now));
    int64_t debt = weir_debt_left(cell->in, leaked);
    if (!no_debt && units > 0) {
        /* The limiter that a fill taken over came from isn't known. */
        int64_t room =
            use->debt_most - debt - weir_debt_left(use->adopted, leaked);
        units = weir_cell_cut(merge, use, cell, units, room, now);
    }
    weir_i128 one = (weir_i128)1 << use->bucket.leak.frac;
    weir_i128 scaled = units * one;
    int64_t moved = add_units(merge, use, units, instead, no_debt, now);
    /* An empty bucket is lifted as well; that is no debt of the limiter. */
    if (moved > scaled)
        moved = scaled > -debt ? (int64_t)scaled : -debt;
    cell->in = weir_debt_sum(debt + moved, leaked);
    return units;
}

/* By so much others than the cell's limiter find the bucket moved. */
static void stir(struct weir_use *use, int64_t units, int64_t instead)
{
    weir_i128 net = (weir_i128)units - (instead >> use->bucket.leak.frac);
    weir_i128 sum = use->stirred + (net < 0 ? -net : net);
    use->stirred = sum < UINT64_MAX ? (uint64_t)sum : UINT64_MAX;
}

/* In flight at the cell's limiter, in all; of what is carried, too. */
static void count_in_flight(struct weir_merge *merge, struct weir_use *use,
                            struct weir_cell *cell, uint64_t total,
                            bool carried, weir_instant now)
{
    merge->merged++;
    weir_cell_set_carried(merge, use, cell, carried);
    set_held(merge, use, cell, total);
    /* Known above it is to be whoever carries it. */
    if (merge->upstream)
        weir_use_carry_on(merge, use);
    if (use->counted && weir_cell_is_owed(merge, use, cell, now))
        weir_cell_set_due(cell, true);
}

bool weir_merge_count(struct weir_merge *merge,
                      struct weir_merge_limiter *limiter,
                      const struct weir_count *count,
                      const struct weir_report *report, weir_instant now)
{
    struct weir_cell *cell = weir_cell_of(limiter, count->slot);
    if (!cell || cell->use == 0)
        return false;
    struct weir_use *use = weir_use_at(merge, cell->use);
    uint64_t total = cell->base + (uint64_t)count->passed;
    uint64_t refused = cell->refused_base + count->refused;
    uint64_t refused_delta = refused - cell->refused_last;
    cell->base = total;
    cell->refused_base = cell->refused_last = refused;
    if ((int64_t)refused_delta > 0)
        use->refused += refused_delta;
    bool carried = report->carried && merge->upstream;
    if (cell->gauge) {
        if (carried && (int64_t)refused_delta > 0)
            use->carried_refused += refused_delta;
        count_in_flight(merge, use, cell, total, carried, now);
        return true;
    }
    int64_t delta = (int64_t)(total - cell->last);
    cell->last = total;
    use->passed += (uint64_t)delta;
    merge->merged++;

    /* What was taken before, by a report whose answer was lost, is the oldest
     * of what is told again, and so are those that are late. */
    weir_i128 known = (weir_i128)count->passed - delta;
    weir_i128 rest = count->late - (known > 0 ? known : 0);
    int64_t late = rest < delta ? held_to_64(rest) : delta;
    if (late > 0) {
        weir_merge_fill(merge, use, now);
        /* Late by itself: it was not ruled here, since when is not said. */
        weir_duration from =
            report->late_from > 0 ? report->late_from : LATE_MOST;
        delta -= drained(use, cell, late, from);
    }
    bool presumes = merge->slack && !use->unlimited && !use->gauge;
    uint64_t pace = presumes ? count->pace : 0;
    weir_cell_set_carried(merge, use, cell, false);
    int64_t instead = set_pace(merge, use, cell, pace, count->ahead, now);
    bool no_debt = report->late_from > 0 || late > 0 || merge->adrift;
    delta = charge(merge, use, cell, delta, instead, no_debt, now);
    stir(use, delta, instead);
    /* It is to be known above whoever carries it, and what the region's part
     * of it is. */
    if (merge->upstream)
        weir_use_carry_on(merge, use);
    if (carried)
        weir_cell_carry(merge, use, cell, count, refused_delta,
                        report->late_from);
    cell->dry_before = cell->dry;
    cell->dry = use->dry;
    if (use->counted) {
        if (weir_cell_is_owed(merge, use, cell, now))
            weir_cell_set_due(cell, true);
        if (delta != 0 || instead != 0)
            weir_merge_touch(merge, use);
    }
    return true;
}
