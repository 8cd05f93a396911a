/* SPDX-License-Identifier: MIT
 * test/histories.h - the number of random histories of a test.
 *
 * By default a test plays enough histories to find a planted bug for certain,
 * in some seconds. The environment sets more, for a night, or fewer, under a
 * sanitizer:
 *
 *   WEIR_HISTORIES  their number in test_sync; slower tests play fewer
 *   WEIR_SEED       the first, or the only one, to play a failure again */

#ifndef WEIR_TEST_HISTORIES_H
#define WEIR_TEST_HISTORIES_H

#include "seed.h"

/* The number of histories, if each takes as long as 'worth' of test_sync's. */
static inline uint64_t histories(uint64_t worth, uint64_t otherwise)
{
    uint64_t many = from_environment("WEIR_HISTORIES", otherwise * worth);
    return many < worth ? 1 : many / worth;
}

#endif /* WEIR_TEST_HISTORIES_H */
