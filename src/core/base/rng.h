/* SPDX-License-Identifier: MIT
 * base/rng.h - a random number generator; the caller holds its state.
 *
 * SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
 * generators", OOPSLA 2014): one word of state, so racing updates of a shared
 * state lose a step and nothing else. */

#ifndef WEIR_RNG_H
#define WEIR_RNG_H

#include "core/base/base.h"

struct weir_rng {
    uint64_t state; /* any value is a good seed */
};

static inline uint64_t weir_rng_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static inline uint64_t weir_rng_next(struct weir_rng *rng)
{
    rng->state += 0x9e3779b97f4a7c15ull;
    return weir_rng_mix(rng->state);
}

/* Uniform below 'bound' (> 0); the bias of 2^-64 * bound is left in. */
static inline uint64_t weir_rng_below(struct weir_rng *rng, uint64_t bound)
{
    weir_audit(bound > 0);
    return (uint64_t)(((weir_u128)weir_rng_next(rng) * bound) >> 64);
}

/* Uniform in [0, 1). */
static inline double weir_rng_unit(struct weir_rng *rng)
{
    return (double)(weir_rng_next(rng) >> 11) * 0x1p-53;
}

#endif /* WEIR_RNG_H */
