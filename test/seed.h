/* SPDX-License-Identifier: MIT
 * test/seed.h - the seed of a test's random numbers: WEIR_SEED, to play a
 * failure again, or the test's own. It is printed; tools/run-tests reads it. */

#ifndef WEIR_TEST_SEED_H
#define WEIR_TEST_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/rng.h"

static inline uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

static inline uint64_t seed_or(uint64_t otherwise)
{
    uint64_t seed = from_environment("WEIR_SEED", otherwise);
    printf("WEIR_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

/* By default it is from the clock. 'what' names the test's part. */
static inline struct weir_rng made_seed(const char *what)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    printf("%s: ", what);
    return (struct weir_rng){ seed_or((uint64_t)now.tv_sec * 1000000000 +
                                      (uint64_t)now.tv_nsec) };
}

#endif /* WEIR_TEST_SEED_H */
