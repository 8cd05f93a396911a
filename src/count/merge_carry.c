/* SPDX-License-Identifier: MIT
 * count/merge_carry.c - what limiters hand to a root that has an upstream.
 *
 * Limiters name one root their carrier (tally_carry.c), and what they hand over
 * is summed apart ('carried', and the paces of those who do), for the region's
 * limiter half to report. Of a bucket there are two pictures then: ours, of
 * what limiters told us, and the one from above, where our carried counts are,
 * those of other regions, and those that came by other roots of this one. They
 * hold much of the same, so they are
 * never added: the larger is told, and the pace of others from the same. What
 * the region may count until it is answered (its stop above) is shared out like
 * room; used up, a full bucket is told, that others keep full. The stated bound
 * is then, for the topmost bucket,
 *
 *     high + sum over region roots of 2 * slack
 *          + sum over limiters of (2 * slack + weight) + grains and ages
 *
 * slack as each was last told, when the second sum is at most the first's rest.
 *
 * What is in flight. What those limiters hold that last named us their carrier
 * ('carried_held') is the region's own above, all of it and not by differences:
 * as if it held it itself. So it is right again with the next report, and what
 * a root takes along that dies is given back above after stale_after; until
 * then what another carries already is there twice, never not at all.
 *
 * Of rates, a root that dies takes with it what it was handed and hadn't been
 * answered for, and of each of its limiters the one report in doubt. So much
 * may be missing above; nothing is there twice. */

#include "count/merge_parts.h"

/* ---- The queue of those to be carried on ---- */

void weir_use_carry_on(struct weir_merge *merge, struct weir_use *use)
{
    if (use->carrying)
        return;
    uint32_t number = weir_use_number(merge, use);
    use->carrying = true;
    use->next_carrying = 0;
    if (merge->carrying_last != 0)
        weir_use_at(merge, merge->carrying_last)->next_carrying = number;
    else
        merge->carrying = number;
    merge->carrying_last = number;
}

static struct weir_use *next_carrying(struct weir_merge *merge)
{
    if (merge->carrying == 0)
        return NULL;
    struct weir_use *use = weir_use_at(merge, merge->carrying);
    merge->carrying = use->next_carrying;
    if (merge->carrying == 0)
        merge->carrying_last = 0;
    use->carrying = false;
    use->next_carrying = 0;
    return use;
}

void weir_merge_carry(struct weir_merge *merge, uint32_t work,
                      bool (*each)(void *context, struct weir_use *use),
                      void *context)
{
    uint32_t last = merge->carrying_last;
    uint32_t number = 0;
    while (work-- > 0 && number != last) {
        struct weir_use *use = next_carrying(merge);
        if (!use)
            return;
        number = weir_use_number(merge, use);
        if (!use->live)
            weir_use_free_if_left(merge, use);
        else if (each(context, use))
            weir_use_carry_on(merge, use);
    }
}

uint64_t weir_merge_ahead(const struct weir_merge *merge,
                          const struct weir_use *use, weir_instant now)
{
    weir_u128 sum =
        (weir_u128)use->carried_pace * weir_merge_elapsed(merge, now) -
        use->carried_from;
    if ((weir_i128)sum <= 0)
        return 0;
    weir_u128 units = sum >> WEIR_PACE_SHIFT;
    return units < WEIR_AHEAD_MAX ? (uint64_t)units : WEIR_AHEAD_MAX;
}

/* ---- What a cell's limiter hands over ---- */

void weir_cell_set_carried(struct weir_merge *merge, struct weir_use *use,
                           struct weir_cell *cell, bool carried)
{
    if (cell->carried == carried)
        return;
    weir_u128 from = (weir_u128)cell->pace * cell->paced_at;
    cell->carried = carried;
    use->carried_pace += carried ? cell->pace : 0 - cell->pace;
    use->carried_from += carried ? from : 0 - from;
    uint64_t held = cell->gauge ? cell->last : 0;
    use->carried_held += carried ? held : 0 - held;
    weir_use_carry_on(merge, use);
}

void weir_cell_carry(struct weir_merge *merge, struct weir_use *use,
                     struct weir_cell *cell, const struct weir_count *count,
                     uint64_t refused, weir_duration late_from)
{
    use->carried += (uint64_t)count->carry;
    if ((int64_t)refused > 0)
        use->carried_refused += refused;
    weir_cell_set_carried(merge, use, cell, true);
    if (count->carry != 0 && late_from > merge->late_from)
        merge->late_from = late_from;
    weir_use_carry_on(merge, use);
}
