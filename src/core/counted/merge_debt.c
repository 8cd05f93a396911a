/* SPDX-License-Identifier: MIT
 * counted/merge_debt.c - how much one limiter may put into a bucket.
 *
 * A root can't check a limiter's report. Without a bound one report of 2^62
 * units fills a bucket for years, for every limiter, even when the limiter is
 * gone. So each cell has a bucket of its own, with the leak of the quota, and
 * this size:
 *
 *     debt = max(max_debt of the limit, 3 * high_burst, two report intervals)
 *
 *     report --> units --+--> totals                      (all, exact)
 *                        |
 *                        +--> cell's bucket --> quota's bucket --> fills
 *                                   |
 *                                   +--> beyond           (counted, exact)
 *
 * Only units that the cell's bucket takes go into the quota's bucket. The rest
 * is counted as 'beyond' and is in no fill.
 *
 * Why it holds. Two buckets with the same leak never hold less, taken together,
 * than one bucket that gets the inflow of both. So the quota's bucket holds at
 * most what all other limiters put into it plus 'debt' of this one. Others stop
 * at 'high'. After the last report of the one limiter the bucket is at 'high'
 * again when 'debt' has leaked, and from there the limit passes.
 *
 * Why honest limiters don't notice. The units that a limiter passes by a bucket
 * of size 'high' never fill its own bucket above 'high' plus the units it takes
 * unseen (2 * slack + weight, merge.c). Slack is at most half of the room, and
 * no take is heavier than high_burst, because a heavier one is always refused.
 * So a full bucket, the units taken unseen and one charge of the greatest
 * weight that may pass fit into 3 * high_burst. Reports may come an interval
 * apart and may wait for one answer, and then hold the counts of two intervals
 * at once. Late counts (merge.c) fill the bucket up to 'high' at most, for any
 * number of units, so none are cut off here. Charges and reservations go into
 * debt by up to max_debt for each limiter: operators that charge more at a
 * time, or reserve further ahead, set a longer max_debt.
 *
 * A region's root reports for many limiters, which together keep to the same
 * limit by the same bucket; the same formula bounds it. Debts of its limiters
 * beyond that are in the region's own bucket, and its limiters are sent the
 * larger of the two fills (merge_carry.c).
 *
 * A root that was just started takes over the fill that limiters know. The fill
 * of one limiter is bounded by 'debt' too. While an adopted fill drains, it
 * counts against the room of every cell: it is not known which limiter it came
 * from, and otherwise two debts would fit.
 *
 * An edit cuts the units below the former 'high' to the new one
 * (weir_fill_edited()): a lowered limit passes at once. It also bounds the
 * bucket's fill by 'high' plus the debt of one limiter under the new limit. So
 * after a limit is lowered, every debt ends within the new max_debt. Units
 * presumed at the former limit may be more than the bucket then holds. Counts
 * that replace them need room for as much: a cell's bucket is taken to hold no
 * more than the quota's bucket does beside presumed units. That is safe, for
 * those two together hold what the quota's bucket holds.
 *
 * Units presumed of a cell (merge.c) are not bounded here: they go when the
 * link does, or after some intervals of silence, and counts replace them. Units
 * in flight (kind concurrency) are no debt either: they are each limiter's last
 * report, and go with the limiter.
 *
 * Not covered: a client that comes back under a new identity is a new
 * limiter with a debt of its own, so n identities can put n debts into a
 * bucket. A bound on all limiters together would cut off the honest debts of a
 * large fleet; credentials decide which limiters may report.
 *
 * Rejected: a bound on the quota's bucket alone (no state for each cell): the
 * limiter could not be named, and the debts of a fleet would be cut off.
 * Virtual time in one word (GCRA) for a cell: see algorithm/leaky.h. Making the
 * cell's bucket only when a report is large: a limiter that was below the bound
 * until then would get the whole debt once more. */

#include "core/counted/merge_internal.h"

/* One limiter's debt is at least so many times high_burst. */
#define HIGHS 3

/* The most that any bucket holds: high and the bound of debt. */
int64_t weir_root_quota_fill_most(const struct weir_root_quota *root_quota)
{
    int64_t debt = (int64_t)(WEIR_DEBT_MAX << root_quota->bucket.leak.frac);
    int64_t high = root_quota->bucket.high > 0 ? root_quota->bucket.high : 0;
    return high > WEIR_SCALED_MAX - debt ? WEIR_SCALED_MAX : high + debt;
}

int64_t weir_root_quota_debt_of(const struct weir_merge *merge,
                                const struct weir_root_quota *root_quota,
                                weir_duration max_debt)
{
    int64_t most = weir_root_quota_fill_most(root_quota);
    if (!root_quota->counted || root_quota->bucket.high < 0)
        return most; /* not shared, or nothing passes anyway */
    weir_duration span =
        max_debt > merge->pace_good ? max_debt : merge->pace_good;
    weir_assert(span <= WEIR_PERIOD_MAX);
    int64_t debt = (int64_t)weir_leaked(root_quota->bucket.leak, span);
    int64_t least = root_quota->bucket.high < most / HIGHS
                        ? HIGHS * root_quota->bucket.high
                        : most;
    if (debt < least)
        debt = least;
    return debt < most ? debt : most;
}

int64_t weir_root_quota_edited_most(const struct weir_root_quota *root_quota)
{
    weir_assert(root_quota->debt_most >= 0);
    int64_t most = weir_root_quota_fill_most(root_quota);
    int64_t high = root_quota->bucket.high > 0 ? root_quota->bucket.high : 0;
    return high < most - root_quota->debt_most ? high + root_quota->debt_most
                                               : most;
}

int64_t weir_limiter_cell_cut(struct weir_merge *merge,
                              struct weir_root_quota *root_quota,
                              const struct weir_limiter_cell *cell,
                              int64_t units, int64_t room, weir_instant now)
{
    weir_assert(units > 0);
    int64_t admitted = room > 0 ? room >> root_quota->bucket.leak.frac : 0;
    if (root_quota->unlimited || units <= admitted)
        return units;
    uint64_t beyond = (uint64_t)units - (uint64_t)admitted;
    if (root_quota->counted && root_quota->bucket.high >= 0) {
        root_quota->beyond += beyond;
        if (merge->watch)
            merge->watch->beyond(merge->watch->context, cell->limiter,
                                 root_quota, beyond, now);
    }
    weir_assert(admitted >= 0 && admitted < units);
    return admitted;
}
