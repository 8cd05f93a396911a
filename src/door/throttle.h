/* SPDX-License-Identifier: MIT
 * door/throttle.h - CL.THROTTLE as a table: keys that a client names together
 * with their rate, each a theoretical arrival time (GCRA).
 *
 * The keys are transient and of this process: none is stored, none is told to
 * a root. There is a bound on them. One that is idle (its next request would
 * find it as a new one) goes when room is looked for; if none is, one of those
 * that are nearest to it goes, and begins anew: that is counted.
 *
 * The arithmetic is redis-cell's, so the replies are, with what it leaves to
 * chance made whole:
 *   - T, the time of one unit, isn't cut to whole nanoseconds (in the reply:
 *     microseconds), so a rate is never more than what was asked for and
 *     'remaining' never above the limit by rounding;
 *   - a key whose time is below a millisecond lives on: fast rates limit;
 *   - a burst, a count or a period below zero is refused.
 *
 * Source: redis-cell (what is replied); ITU-T I.371 annex A (GCRA).
 *
 * One thread. */

#ifndef WEIR_THROTTLE_H
#define WEIR_THROTTLE_H

#include "base/base.h"

#define WEIR_THROTTLE_KEY_MAX 512 /* bytes */
#define WEIR_THROTTLE_KEYS_DEFAULT 1000000u
#define WEIR_THROTTLE_KEYS_MAX (1u << 27) /* of one table */

struct weir_throttle;

struct weir_throttle_ask {
    struct weir_text key; /* at most WEIR_THROTTLE_KEY_MAX bytes */
    int64_t max_burst;    /* units beyond the first, >= 0 */
    int64_t count;        /* units a period, > 0 */
    int64_t period_s;     /* > 0; beyond 2^33, 272 years, it counts as that */
    int64_t quantity;     /* units; 0: looks; below 0: gives back */
    bool probe;           /* changes nothing */
};

struct weir_throttle_reply {
    bool limited;
    int64_t limit;         /* max_burst + 1 */
    int64_t remaining;     /* above the limit where more was given back than
                            * there was */
    int64_t retry_after_s; /* rounded up from 1 ms on; -1: passed, or never */
    int64_t reset_after_s; /* the same rounding */
};

/* 'mem' is borrowed; 0 < keys_max <= WEIR_THROTTLE_KEYS_MAX; 'seed' is chance.
 * NULL: no memory. Grows as keys come, some 100 bytes each. */
struct weir_throttle *weir_throttle_new(const struct weir_mem *mem,
                                        uint32_t keys_max, uint64_t seed);
/* NULL inside is legal. */
void weir_throttle_free(struct weir_throttle **throttle);

/* Decides. 0, WEIR_EINVAL (a parameter outside its range), WEIR_ETOOBIG (the
 * key) or WEIR_ENOMEM. */
int weir_throttle_decide(struct weir_throttle *throttle,
                         const struct weir_throttle_ask *ask,
                         struct weir_throttle_reply *out, weir_instant now);
/* The key begins anew; false: there was none that isn't idle. */
bool weir_throttle_forget(struct weir_throttle *throttle, struct weir_text key,
                          weir_instant now);

struct weir_throttle_counts {
    uint32_t keys, keys_max;
    uint64_t passed, limited;
    uint64_t evicted; /* keys that went before they were idle */
};
struct weir_throttle_counts weir_throttle_counts(
    const struct weir_throttle *throttle);

#endif /* WEIR_THROTTLE_H */
