/* SPDX-License-Identifier: MIT
 * protocol/resp/throttle.h - CL.THROTTLE as a table: keys that a client names
 * together with their rate, each a theoretical arrival time (GCRA).
 *
 * The keys are transient and belong to this process: none is stored or sent to
 * a root. Their number is bounded. To make room, idle keys (for which the next
 * request would find the state of a new key) are removed; if none is idle, one
 * of those nearest to idle is evicted and loses its state, which is counted.
 *
 * The arithmetic and the replies are redis-cell's, with three differences:
 *   - T, the time of one unit, isn't cut to whole nanoseconds (in the reply:
 *     microseconds). All numbers of a reply are exact for up to 2^32 units per
 *     period, and requests for a key that have one count; beyond, rounding
 *     makes a rate lower than requested, by less than 2^-32 ns a request;
 *   - a key with a T below a millisecond isn't dropped: fast rates limit;
 *   - a burst, a count or a period below zero is refused.
 * A burst that its rate needs over 2^61 ns (73 years) to give back is cut to
 * the units of that time; fewer pass than in redis-cell, and never more.
 *
 * Source: redis-cell (the replies); ITU-T I.371 annex A (GCRA).
 *
 * One thread. */

#ifndef WEIR_THROTTLE_H
#define WEIR_THROTTLE_H

#include "core/base/base.h"

#define WEIR_THROTTLE_KEYS_DEFAULT 1000000u
#define WEIR_THROTTLE_KEYS_MAX (1u << 27) /* keys of one table */

struct weir_throttle;

struct weir_throttle_ask {
    struct weir_text key; /* any bytes; one over WEIR_NAME_MAX bytes is kept as
                           * core/quota/long_name.h says */
    int64_t max_burst;    /* units beyond the first, >= 0 */
    int64_t count;        /* units per period, > 0 */
    int64_t period_s; /* > 0; a value over 2^33, 272 years, counts as 2^33 */
    int64_t quantity; /* units; 0: look only; below 0: give back */
    bool probe;       /* look only */
};

struct weir_throttle_reply {
    bool limited;
    int64_t limit;         /* max_burst + 1 */
    int64_t remaining;     /* above the limit if more was given back than
                            * taken */
    int64_t retry_after_s; /* rounded up if its rest is 1 ms or more; -1:
                            * passed, or never */
    int64_t reset_after_s; /* the same rounding */
};

/* 'mem' is borrowed; 0 < keys_max <= WEIR_THROTTLE_KEYS_MAX; 'seed' is a random
 * number. NULL: no memory. Grows with the keys, some 100 bytes each. */
struct weir_throttle *weir_throttle_new(const struct weir_mem *mem,
                                        uint32_t keys_max, uint64_t seed);
/* NULL inside is legal. */
void weir_throttle_free(struct weir_throttle **throttle);

/* Decides. 0, WEIR_EINVAL (a parameter outside its range) or WEIR_ENOMEM. */
int weir_throttle_decide(struct weir_throttle *throttle,
                         const struct weir_throttle_ask *ask,
                         struct weir_throttle_reply *out, weir_instant now);
/* Resets the key; false: it was idle or unknown. */
bool weir_throttle_forget(struct weir_throttle *throttle, struct weir_text key,
                          weir_instant now);

struct weir_throttle_counts {
    uint32_t keys, keys_max;
    uint64_t passed, limited;
    uint64_t evicted; /* keys evicted before they were idle */
};
struct weir_throttle_counts weir_throttle_counts(
    const struct weir_throttle *throttle);

#endif /* WEIR_THROTTLE_H */
