/* SPDX-License-Identifier: MIT
 * counted/merge_carry.c - units that limiters hand to a root with an upstream.
 *
 * Each limiter names one root of its region its carrier (tally_answer.c). The
 * units and paces that it hands over are summed apart ('carried'), and the
 * region's limiter half reports them upwards. Such a root knows two fills of a
 * bucket: its own, of all that limiters reported to it, and the fill from
 * above. The fill from above has this root's carried counts, those of other
 * regions, and those carried by other roots of this region. Both have many
 * units in common, so they are never added: the larger is sent, with its own
 * pace of others. The units that the region may count until it is answered (its
 * stop above) are divided like room. When they are used up, the root sends a
 * full bucket that others keep full. The stated bound for the topmost bucket is
 *
 *     high + sum over region roots of 2 * slack
 *          + sum over limiters of (2 * slack + weight) + grains and ages
 *
 * with the slack last sent to each, while the second sum is at most the rest of
 * the first.
 *
 * Units in flight. The permits of limiters that last named this root their
 * carrier ('carried_in_flight') are reported above as the region's own, as a
 * whole and not by differences. So an error ends with the next report. If a
 * root dies, its part is given back above after stale_after. Until then
 * another carrier may report the same units: they are there twice, never
 * missing.
 *
 * Rates. A root that dies loses the units that were handed to it and not
 * answered above, and of each of its limiters the one report in doubt. These
 * may be missing above; no unit is there twice. */

#include "core/counted/merge_internal.h"

void weir_merge_carry(struct weir_merge *merge, uint32_t work,
                      bool (*each)(void *context,
                                   struct weir_root_quota *root_quota),
                      void *context)
{
    uint32_t last = merge->queue[WEIR_MERGE_CARRYING].last;
    uint32_t number = 0;
    while (work-- > 0 && number != last) {
        struct weir_root_quota *root_quota =
            weir_merge_dequeue(merge, WEIR_MERGE_CARRYING);
        if (!root_quota)
            return;
        number = weir_root_quota_number(merge, root_quota);
        if (!root_quota->live)
            weir_root_quota_free_if_left(merge, root_quota);
        else if (each(context, root_quota))
            weir_merge_enqueue(merge, root_quota, WEIR_MERGE_CARRYING);
    }
}

uint64_t weir_merge_ahead(const struct weir_merge *merge,
                          const struct weir_root_quota *root_quota,
                          weir_instant now)
{
    weir_u128 sum =
        (weir_u128)root_quota->carried_pace * weir_merge_elapsed(merge, now) -
        root_quota->carried_from;
    if ((weir_i128)sum <= 0)
        return 0;
    weir_u128 units = sum >> WEIR_PACE_SHIFT;
    return units < WEIR_AHEAD_MAX ? (uint64_t)units : WEIR_AHEAD_MAX;
}
