/* SPDX-License-Identifier: MIT
 * count/merge_pace.c - presumed units: the pace of counts, over the time since
 * they came. */

#include "count/merge_parts.h"

uint64_t weir_use_scaled_pace(const struct weir_use *use, weir_u128 sum)
{
    if ((weir_i128)sum <= 0)
        return 0;
    weir_u128 scaled = (sum << use->bucket.leak.frac) >> WEIR_PACE_SHIFT;
    return scaled < (uint64_t)WEIR_SCALED_MAX / 4
               ? (uint64_t)scaled
               : (uint64_t)WEIR_SCALED_MAX / 4;
}

/* Units that limiters have presumably counted since they reported. */
uint64_t weir_merge_presumed(const struct weir_merge *merge,
                             const struct weir_use *use, weir_instant now)
{
    if (use->pace == 0)
        return 0;
    weir_u128 sum =
        (weir_u128)use->pace * weir_merge_elapsed(merge, now) - use->pace_from;
    return weir_use_scaled_pace(use, sum);
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
