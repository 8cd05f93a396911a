/* SPDX-License-Identifier: MIT
 * test/histories.h - how much of what a test makes by chance.
 *
 * A test by default plays as many histories as let it find a planted bug
 * surely, in some seconds. The environment asks for more, for a night, or for
 * less, under a sanitizer:
 *
 *   WEIR_HISTORIES  so many, of test_sync's; what takes longer plays fewer
 *   WEIR_SEED       the first, or the only one, to play a failure again */

#ifndef WEIR_TEST_HISTORIES_H
#define WEIR_TEST_HISTORIES_H

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* Histories that take as long as 'worth' of those of test_sync. */
static inline uint64_t histories(uint64_t worth, uint64_t otherwise)
{
    uint64_t many = from_environment("WEIR_HISTORIES", otherwise * worth);
    return many < worth ? 1 : many / worth;
}

#endif /* WEIR_TEST_HISTORIES_H */
