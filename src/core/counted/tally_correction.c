/* SPDX-License-Identifier: MIT
 * counted/tally_correction.c - estimates the counts of others since the last
 * fill: by a ratio of their smoothed rate if limiters report by time alone
 * (with slack, roots send a pace: merge.c), and in proportion to our own counts
 * while no root can be reached. Also learns the refusal probability of `hold`
 * for that time.
 *
 * Values learnt before an outage are used for all of it, so they cover some ten
 * seconds and not only the last moment: machines stall, and a machine that
 * stalled for half a second had no part of the limit just then.
 *
 * Our part is the units we added, divided by all units added to the bucket
 * between two fills of the same root. Both are sums over the same fills: units
 * that come late in one are made up for in the next, and the parts of all
 * limiters sum up to one. A bucket that ran empty hides units of others that
 * leaked, so the part is learnt from a bucket that is half full; if there has
 * been none for some time, we count as alone. A region's root takes as its own
 * all units that limiters of the region passed, by any carrier: carriers
 * change, most of all when links do, and each root of the region would then go
 * on with the part that it had carried.
 *
 * `hold` refuses such a part of the demand that our part of the limit passes.
 * The demand is learnt only while load is above the limit, for as long as an
 * overload goes on: it isn't lowered by the quiet before it and doesn't outlast
 * it. The share of refused requests is not used: an overload begins with an
 * empty bucket, and limiters also refuse while they wait for an answer. From
 * few requests little is known, so the bucket's own probability, common to all
 * limiters, is mixed in with the weight of PRIOR_UNITS units.
 *
 * Measured in virtual time, 24 seeds, 3 limiters, three times the limit, all
 * roots killed, or a region of half the load cut off (test_stalls): units
 * passed during the outage divided by the right number, mean / deviation.
 * 'stops': each node was stopped for a tenth of the time. 'moment before' is an
 * earlier version: the last two seconds for `share`, the last fill for `hold`,
 * and only the carried units for a region's root:
 *
 *                        share, roots  hold, roots  share, region  hold, region
 *     moment before      1.10 / .03     .91 / .04   1.01 / .23     .86 / .06
 *     as it is           1.01 / .00    1.00 / .01   1.01 / .02     .99 / .02
 *     moment, stops      1.06 / .03    1.20 / .54    .96 / .26     .47 / .43
 *     as it is, stops    1.02 / .02    1.09 / .06    .96 / .09    1.02 / .09
 *
 * A stopped node had less demand, so `hold` passes more when it runs again. */

#include "core/counted/bits.h"
#include "core/counted/tally_internal.h"

/* A longer pause ends an overload … */
#define PAUSE_MOST (2 * WEIR_SECOND)
/* … and the bucket's own probability weighs as many units. */
#define PRIOR_UNITS 16

/* Counts of this time give a rate. */
#define LATELY (10 * WEIR_SECOND)

/* The factor that fades a sum over the last WEIR_LEARN_SPAN after a span. */
static float fading_of(weir_duration span)
{
    return (float)WEIR_LEARN_SPAN / (float)(span + WEIR_LEARN_SPAN);
}

/* Units added to the bucket, by us and by others. */
struct parts {
    float own, others;
};

/* Whether the bucket was half full at both fills. */
static bool is_shared(const struct weir_tally_cell *cell,
                      const struct weir_slot_view *view, int64_t fill)
{
    int64_t half = weir_rescale(view->bucket.high, view->bucket.leak.frac,
                                WEIR_FILL_FRAC) /
                   2;
    return half > 0 && cell->fill >= half && fill >= half;
}

void weir_tally_learn_part(struct weir_tally *tally, uint32_t slot,
                           struct weir_tally_cell *cell,
                           const struct weir_slot_view *view,
                           const struct weir_tally_added *added,
                           weir_instant now)
{
    weir_assert(slot < tally->slots);
    float ours = added->own;
    if (tally->carried)
        ours = (float)(int64_t)(tally->carried[slot].whole - cell->fill_ours);
    if (cell->shared_at != 0 &&
        weir_since(cell->shared_at, now) > WEIR_LEARN_SPAN)
        cell->shared_at = 0;
    bool shared = is_shared(cell, view, added->fill);
    if (!shared && cell->shared_at != 0)
        return;
    /* Sums of shared and unshared buckets are not mixed. */
    if (shared ? cell->shared_at == 0 : cell->others != 0)
        cell->own = cell->others = 0;
    float fading = fading_of(weir_since(cell->fill_at, now));
    cell->own = cell->own * fading + ours;
    cell->others = cell->others * fading;
    if (!shared)
        return;
    cell->others += added->own + added->others - ours;
    cell->shared_at = now;
}

/* The parts by the root that has most of our units. */
static struct parts parts_of(const struct weir_tally *tally, uint32_t slot)
{
    struct parts parts = { 0, 0 };
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (!cell->has_fill || cell->own < parts.own)
            continue;
        parts.own = cell->own;
        parts.others = cell->others > 0 ? cell->others : 0;
    }
    return parts;
}

/* An equal part. */
static float part_least(const struct weir_tally *tally)
{
    weir_assert(tally->limiters > 0);
    return 1.0f / (float)(tally->limiters ? tally->limiters : 1);
}

/* Our part of a quota's traffic, at least an equal one. */
static float part_of_slot(const struct weir_tally *tally, uint32_t slot)
{
    struct parts parts = parts_of(tally, slot);
    float least = part_least(tally);
    float all = parts.own + parts.others;
    float part = all > 0 ? parts.own / all : least;
    weir_assert(least > 0);
    return part > least ? part : least;
}

double weir_tally_rate(const struct weir_tally *tally, uint32_t slot,
                       weir_instant now)
{
    weir_assert(slot < tally->slots);
    const struct weir_tally_pace *pace = &tally->pace[slot];
    bool lately = pace->at != 0 && weir_since(pace->at, now) < LATELY;
    return lately ? (double)pace->per_s : 0;
}

double weir_tally_part(const struct weir_tally *tally, uint32_t slot)
{
    weir_assert(slot < tally->slots);
    struct parts parts = parts_of(tally, slot);
    float all = parts.own + parts.others;
    return (double)(all > 0 ? parts.own / all : part_least(tally));
}

static float others_of(const struct weir_tally *tally, uint32_t slot)
{
    float most = 0;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (cell->has_fill && cell->others_per_s > most)
            most = cell->others_per_s;
    }
    return most;
}

/* Units that others are taken to add while we, or our region, add those of the
 * time since the last call: the bucket then grows as if all went on in the same
 * proportions. */
static float share_others(struct weir_tally *tally, uint32_t slot,
                          uint64_t counted)
{
    weir_assert(slot < tally->slots);
    float own = (float)(int64_t)counted;
    float ours = own;
    if (tally->carried) {
        uint64_t whole = tally->carried[slot].whole;
        ours = (float)(int64_t)(whole - tally->share_whole[slot]);
        tally->share_whole[slot] = whole;
    }
    return ours / part_of_slot(tally, slot) - own;
}

/* Units in flight don't grow by themselves. The others keep their last count,
 * but at most so much that an equal part is left to us: the limiter that had
 * the rest may be gone. */
static void leave_a_part(struct weir_tally *tally, uint32_t slot,
                         const struct weir_slot_view *view, weir_instant now)
{
    weir_assert(view->inflight);
    unsigned frac = view->bucket.leak.frac;
    int64_t high = view->bucket.high > 0 ? view->bucket.high : 0;
    uint64_t limit = (uint64_t)high >> frac;
    uint64_t fleet = tally->limiters ? tally->limiters : 1;
    uint64_t most = limit - (limit + fleet - 1) / fleet + view->count;
    if ((uint64_t)view->fill >> frac > most)
        weir_table_set_fill(tally->table, slot, (int64_t)(most << frac),
                            view->count, now);
}

static void extrapolate_slot(struct weir_tally *tally, uint32_t slot,
                             bool share, float seconds, weir_instant now)
{
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    uint64_t own = view.count - tally->share_mark[slot];
    tally->share_mark[slot] = view.count;
    if (view.sharing != WEIR_COUNTED || view.unlimited)
        return;
    bool shares = view.on_stale == WEIR_STALE_SHARE && !tally->share_above;
    if (view.inflight) {
        if (share && shares)
            leave_a_part(tally, slot, &view, now);
        return;
    }
    float units = 0;
    if (!share)
        units = others_of(tally, slot) * tally->ratio * seconds;
    else if (shares)
        units = share_others(tally, slot, own);
    float unit = (float)((uint64_t)1 << view.bucket.leak.frac);
    float most = (float)WEIR_SCALED_MAX / 4;
    if (units != 0 && units * unit < most && units * unit > -most)
        weir_table_add_others(tally->table, slot, (int64_t)(units * unit));
}

void weir_tally_extrapolate(struct weir_tally *tally, bool share,
                            weir_instant now)
{
    weir_duration span = now - tally->extrapolated_at;
    tally->extrapolated_at = now;
    float seconds = (float)span / (float)WEIR_SECOND;
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = weir_bit_next(tally->filled, 0, end); slot < end;
         slot = weir_bit_next(tally->filled, slot + 1, end))
        extrapolate_slot(tally, slot, share, seconds, now);
}

/* ---- The refusal probability of `hold` ---- */

/* Learns the demand since the last call, if load is above the limit. */
static void learn_offered(struct weir_tally_hold *hold,
                          const struct weir_slot_view *view, uint64_t refused,
                          weir_instant now)
{
    weir_duration span = weir_since(hold->at, now);
    int64_t denied = (int64_t)(refused - hold->refused);
    float offered = (float)((int64_t)(view->count - hold->count) + denied);
    hold->count = view->count;
    hold->refused = refused;
    hold->at = now;
    if (weir_since(hold->limited_at, now) > PAUSE_MOST)
        hold->offered = hold->seconds = 0;
    if (denied <= 0 && view->fill < view->bucket.low)
        return;
    hold->limited_at = now;
    if (span > PAUSE_MOST)
        return; /* part of an outage, or of the quiet before */
    float fading = fading_of(span);
    hold->offered = hold->offered * fading + offered;
    hold->seconds = hold->seconds * fading + (float)span / (float)WEIR_SECOND;
    weir_assert(hold->limited_at == now);
}

/* The part of the demand above our part of the limit. */
static float refusal_learnt(const struct weir_tally *tally, uint32_t slot,
                            const struct weir_tally_hold *hold,
                            const struct weir_slot_view *view)
{
    struct parts parts = parts_of(tally, slot);
    float part = parts.own > 0 ? parts.own / (parts.own + parts.others)
                               : part_least(tally);
    float unit = (float)((uint64_t)1 << view->bucket.leak.frac);
    float limit = (float)weir_leaked(view->bucket.leak, WEIR_SECOND) / unit;
    float beyond = hold->offered - part * limit * hold->seconds;
    float prior = hold->last * PRIOR_UNITS;
    float refusal = (beyond + prior) / (hold->offered + PRIOR_UNITS);
    if (refusal < 0)
        return 0;
    return refusal < 1 ? refusal : 1;
}

void weir_tally_learn_hold(struct weir_tally *tally, uint32_t slot, bool blind,
                           weir_instant now)
{
    weir_assert(slot < tally->slots);
    struct weir_tally_hold *hold = &tally->hold[slot];
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    uint64_t refused = weir_table_refused(tally->table, slot);
    if (hold->generation != view.generation)
        *hold = (struct weir_tally_hold){ .generation = view.generation,
                                          .count = view.count,
                                          .refused = refused,
                                          .at = now };
    learn_offered(hold, &view, refused, now);
    if (!blind)
        hold->last = weir_table_refusal(tally->table, slot, now);
    bool limits = weir_since(hold->limited_at, now) <= PAUSE_MOST;
    weir_table_set_hold(tally->table, slot,
                        limits ? refusal_learnt(tally, slot, hold, &view) : 0);
}
