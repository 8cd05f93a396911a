/* SPDX-License-Identifier: MIT
 * count/tally_correction.c - what others presumably counted since a fill was
 * told, guessed from the past: by a ratio of their smoothed rate, where
 * limiters report by time alone (with slack roots tell their pace: merge.c),
 * and in proportion to our own counts while no root can be asked. And what
 * `hold` is to refuse with by then.
 *
 * What was learnt before an outage is gone by for all of it, so it is of some
 * ten seconds and not of the moment before: machines stall, and on one that
 * did for half a second the others had our part just then.
 *
 * Our part is what we added, of all that was added to the bucket between two
 * fills of the same root. Both are sums over the same fills, so that what comes
 * late in one is made up for in the next, and the parts of all limiters are of
 * one whole. A bucket that ran empty hides what others let leak through it; so
 * it is learnt from one that is half full, and while there has been none for
 * some time we are alone, as far as we can see. A region's root takes for its
 * own what all limiters of the region passed, whoever carries it: carriers
 * change, most of all when links do, and by then the part of what it had
 * carried would be shared by all of them.
 *
 * `hold` refuses so that of what was asked of us our part of the limit passes.
 * What was asked is learnt while there is something to refuse, and for so long
 * as an overload goes on, so that it is neither watered down by the quiet
 * before it nor outlasts it. It isn't the share of those that were refused: an
 * overload begins with a bucket that is empty, and limiters are refused too
 * when they wait for an answer. Of a few requests it knows little; so the
 * bucket's own probability, which all limiters see, is mixed in for as many.
 *
 * Measured in virtual time, 24 seeds, 3 limiters, three times the limit, all
 * roots killed, or a region of half the load cut off (test_stalls): what they
 * went on with, of what they should, mean / deviation. Once nodes ran all the
 * time, and once each was stopped for a tenth of it; the moment before was two
 * seconds for `share`, and the last fill for `hold`, and a region's root took
 * for its own what it carried:
 *
 *                        share, roots  hold, roots  share, region  hold, region
 *     moment before      1.10 / .03     .91 / .04   1.01 / .23     .86 / .06
 *     as it is           1.01 / .00    1.00 / .01   1.01 / .02     .99 / .02
 *     moment, stops      1.06 / .03    1.20 / .54    .96 / .26     .47 / .43
 *     as it is, stops    1.02 / .02    1.09 / .06    .96 / .09    1.02 / .09
 *
 * Of who was stopped less was asked, so that `hold` lets more pass when it
 * isn't any more. */

#include "count/bits.h"
#include "count/tally_parts.h"

/* No overload lasts over such a pause … */
#define PAUSE_MOST (2 * WEIR_SECOND)
/* … and the bucket's own probability is worth so many requests. */
#define PRIOR_UNITS 16

/* What was counted so lately tells a rate. */
#define LATELY (10 * WEIR_SECOND)

/* What was added to the bucket, by us and by others. */
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
    float ours = added->own;
    if (tally->carried)
        ours = (float)(int64_t)(tally->carried[slot].whole - cell->fill_ours);
    if (cell->shared_at != 0 &&
        weir_age(cell->shared_at, now) > WEIR_LEARN_SPAN)
        cell->shared_at = 0;
    bool shared = is_shared(cell, view, added->fill);
    if (!shared && cell->shared_at != 0)
        return;
    /* What is known of one kind of bucket isn't mixed with the other. */
    if (shared ? cell->shared_at == 0 : cell->others != 0)
        cell->own = cell->others = 0;
    float fading = weir_fading(weir_age(cell->fill_at, now));
    cell->own = cell->own * fading + ours;
    cell->others = cell->others * fading;
    if (!shared)
        return;
    cell->others += added->own + added->others - ours;
    cell->shared_at = now;
}

/* As the root knows it that has most of us. */
static struct parts parts_of(const struct weir_tally *tally, uint32_t slot)
{
    struct parts parts = { 0, 0 };
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (!cell->told || cell->own < parts.own)
            continue;
        parts.own = cell->own;
        parts.others = cell->others > 0 ? cell->others : 0;
    }
    return parts;
}

/* An equal part. */
static float part_least(const struct weir_tally *tally)
{
    return 1.0f / (float)(tally->limiters ? tally->limiters : 1);
}

/* Our part of a quota's use, at least an equal one. */
static float part_of(const struct weir_tally *tally, uint32_t slot)
{
    struct parts parts = parts_of(tally, slot);
    float least = part_least(tally);
    float all = parts.own + parts.others;
    float part = all > 0 ? parts.own / all : least;
    return part > least ? part : least;
}

double weir_tally_rate(const struct weir_tally *tally, uint32_t slot,
                       weir_instant now)
{
    const struct weir_tally_pace *pace = &tally->pace[slot];
    bool lately = pace->at != 0 && weir_age(pace->at, now) < LATELY;
    return lately ? (double)pace->per_s : 0;
}

double weir_tally_part(const struct weir_tally *tally, uint32_t slot)
{
    struct parts parts = parts_of(tally, slot);
    float all = parts.own + parts.others;
    return (double)(all > 0 ? parts.own / all : part_least(tally));
}

static float others_of(const struct weir_tally *tally, uint32_t slot)
{
    float most = 0;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (cell->told && cell->others_per_s > most)
            most = cell->others_per_s;
    }
    return most;
}

/* What others are taken to add while we, or our region, add what was added
 * since the last call: so much that the bucket sees what it would if all went
 * on in the proportions of before. */
static float share_others(struct weir_tally *tally, uint32_t slot,
                          uint64_t counted)
{
    float own = (float)(int64_t)counted;
    float ours = own;
    if (tally->carried) {
        uint64_t whole = tally->carried[slot].whole;
        ours = (float)(int64_t)(whole - tally->share_whole[slot]);
        tally->share_whole[slot] = whole;
    }
    return ours / part_of(tally, slot) - own;
}

/* What is in flight doesn't go on by itself. Others keep what they had at last,
 * but so much that an equal part is left to us: who had the rest may be
 * gone. */
static void leave_a_part(struct weir_tally *tally, uint32_t slot,
                         const struct weir_slot_view *view, weir_instant now)
{
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
    if (view.gauge) {
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
    for (uint32_t slot = weir_bit_next(tally->told, 0, end); slot < end;
         slot = weir_bit_next(tally->told, slot + 1, end))
        extrapolate_slot(tally, slot, share, seconds, now);
}

/* ---- What `hold` goes on with ---- */

/* What was asked since the last call, if there was something to refuse. */
static void learn_asked(struct weir_tally_hold *hold,
                        const struct weir_slot_view *view, uint64_t refused,
                        weir_instant now)
{
    weir_duration span = weir_age(hold->at, now);
    int64_t denied = (int64_t)(refused - hold->refused);
    float asked = (float)((int64_t)(view->count - hold->count) + denied);
    hold->count = view->count;
    hold->refused = refused;
    hold->at = now;
    if (weir_age(hold->limited_at, now) > PAUSE_MOST)
        hold->asked = hold->seconds = 0;
    if (denied <= 0 && view->fill < view->bucket.low)
        return;
    hold->limited_at = now;
    if (span > PAUSE_MOST)
        return; /* of an outage, or of the quiet before */
    float fading = weir_fading(span);
    hold->asked = hold->asked * fading + asked;
    hold->seconds = hold->seconds * fading + (float)span / (float)WEIR_SECOND;
}

/* Of what was asked, what is beyond our part of the limit. */
static float refusal_learnt(const struct weir_tally *tally, uint32_t slot,
                            const struct weir_tally_hold *hold,
                            const struct weir_slot_view *view)
{
    struct parts parts = parts_of(tally, slot);
    float part = parts.own > 0 ? parts.own / (parts.own + parts.others)
                               : part_least(tally);
    float unit = (float)((uint64_t)1 << view->bucket.leak.frac);
    float limit = (float)weir_leaked(view->bucket.leak, WEIR_SECOND) / unit;
    float beyond = hold->asked - part * limit * hold->seconds;
    float prior = hold->last * PRIOR_UNITS;
    float refusal = (beyond + prior) / (hold->asked + PRIOR_UNITS);
    if (refusal < 0)
        return 0;
    return refusal < 1 ? refusal : 1;
}

void weir_tally_learn_hold(struct weir_tally *tally, uint32_t slot, bool blind,
                           weir_instant now)
{
    struct weir_tally_hold *hold = &tally->hold[slot];
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    uint64_t refused = weir_table_refused(tally->table, slot);
    if (hold->generation != view.generation)
        *hold = (struct weir_tally_hold){ .generation = view.generation,
                                          .count = view.count,
                                          .refused = refused,
                                          .at = now };
    learn_asked(hold, &view, refused, now);
    if (!blind)
        hold->last = weir_table_refusal(tally->table, slot, now);
    bool limits = weir_age(hold->limited_at, now) <= PAUSE_MOST;
    weir_table_set_hold(tally->table, slot,
                        limits ? refusal_learnt(tally, slot, hold, &view) : 0);
}
