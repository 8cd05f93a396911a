/* SPDX-License-Identifier: MIT
 * lab/alias.c - one of n by weight, in O(1); see load.h.
 *
 * Every number gets a column of the same height. A number with less weight than
 * the height shares its column with a number of more weight; a draw chooses a
 * column, then one of the two. Source: A. J. Walker, "New fast method for
 * generating discrete random numbers with arbitrary frequency distributions",
 * Electronics Letters 10(8), 1974, built in the linear time of M. D. Vose, IEEE
 * Transactions on Software Engineering 17(9), 1991. */

#include <math.h>

#include "lab/load.h"
#include "lab/memory.h"

/* Distributes weights of mean 1 to columns of height 1. */
static void fill_alias(struct weir_alias *alias, double *weight)
{
    uint32_t count = alias->count, lows = 0, highs = 0;
    uint32_t *low = weir_must_zeroed(count, sizeof(*low));
    uint32_t *high = weir_must_zeroed(count, sizeof(*high));
    for (uint32_t i = 0; i < count; i++) {
        if (weight[i] < 1)
            low[lows++] = i;
        else
            high[highs++] = i;
    }
    while (lows > 0 && highs > 0) {
        uint32_t small = low[--lows], large = high[highs - 1];
        alias->part[small] = (uint64_t)(weight[small] * 0x1p64);
        alias->other[small] = large;
        weight[large] -= 1 - weight[small];
        if (weight[large] < 1) {
            highs--;
            low[lows++] = large;
        }
    }
    weir_assert(lows + highs <= count);
    free(low);
    free(high);
}

void weir_alias_zipf(struct weir_alias *alias, uint32_t count, double skew)
{
    weir_assert(count > 0);
    *alias = (struct weir_alias){
        .count = count,
        .part = weir_must_zeroed(count, sizeof(*alias->part)),
        .other = weir_must_zeroed(count, sizeof(*alias->other)),
    };
    double *weight = weir_must_zeroed(count, sizeof(*weight));
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += weight[i] = pow(i + 1.0, -skew);
    for (uint32_t i = 0; i < count; i++) {
        weight[i] *= count / sum;
        /* The remaining columns belong to their own numbers. */
        alias->part[i] = UINT64_MAX;
        alias->other[i] = i;
    }
    fill_alias(alias, weight);
    free(weight);
}

void weir_alias_fini(struct weir_alias *alias)
{
    free(alias->part);
    free(alias->other);
    *alias = (struct weir_alias){ 0 };
}

uint32_t weir_alias_draw(const struct weir_alias *alias, struct weir_rng *rng)
{
    weir_assert(alias->count > 0);
    uint32_t place = (uint32_t)weir_rng_below(rng, alias->count);
    return weir_rng_next(rng) <= alias->part[place] ? place
                                                    : alias->other[place];
}
