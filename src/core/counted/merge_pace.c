/* SPDX-License-Identifier: MIT
 * counted/merge_pace.c - presumed units: the pace of counts, over the time
 * since they came. */

#include "core/counted/merge_parts.h"

uint64_t weir_root_quota_scaled_pace(const struct weir_root_quota *root_quota,
                                     weir_u128 sum)
{
    if ((weir_i128)sum <= 0)
        return 0;
    weir_u128 scaled = (sum << root_quota->bucket.leak.frac) >> WEIR_PACE_SHIFT;
    return scaled < (uint64_t)WEIR_SCALED_MAX / 4
               ? (uint64_t)scaled
               : (uint64_t)WEIR_SCALED_MAX / 4;
}

/* Units that limiters have presumably counted since they reported. */
uint64_t weir_merge_presumed(const struct weir_merge *merge,
                             const struct weir_root_quota *root_quota,
                             weir_instant now)
{
    if (root_quota->pace == 0)
        return 0;
    weir_u128 sum =
        (weir_u128)root_quota->pace * weir_merge_elapsed(merge, now) -
        root_quota->pace_from;
    return weir_root_quota_scaled_pace(root_quota, sum);
}

uint64_t weir_limiter_cell_presumed(const struct weir_merge *merge,
                                    const struct weir_root_quota *root_quota,
                                    const struct weir_limiter_cell *cell,
                                    weir_instant now)
{
    if (cell->pace == 0)
        return 0;
    int64_t age = (int64_t)(weir_merge_elapsed(merge, now) - cell->paced_at);
    return weir_root_quota_scaled_pace(
        root_quota, (weir_u128)((weir_i128)cell->pace * age));
}

uint64_t weir_limiter_cell_others(const struct weir_merge *merge,
                                  const struct weir_root_quota *root_quota,
                                  const struct weir_limiter_cell *cell,
                                  weir_instant now)
{
    uint64_t scaled = weir_merge_presumed(merge, root_quota, now) -
                      weir_limiter_cell_presumed(merge, root_quota, cell, now);
    return root_quota->added - cell->last +
           (scaled >> root_quota->bucket.leak.frac);
}
