/* SPDX-License-Identifier: MIT
 * test/core/algorithm/algorithm_oracle.h - every algorithm again, slow and
 * obvious.
 *
 * Buckets are rationals (numerators over the limit's period), windows a list of
 * all units ever counted. The oracle doesn't use the product's scales, sums or
 * rings. */

#ifndef WEIR_ALGORITHM_ORACLE_H
#define WEIR_ALGORITHM_ORACLE_H

#include "core/algorithm/algorithm.h"
#include "core/base/rng.h"

/* A rule as an operator writes it, and as the product stores it. Of 'rule' the
 * oracle reads only values that aren't scaled. */
struct told {
    struct weir_algorithm_rule rule;
    struct weir_algorithm_rate rates[WEIR_BUCKETS_MAX];
};

struct event {
    weir_instant at;
    int64_t part; /* the window, or part of one, that it falls into */
    uint64_t units;
};

struct oracle {
    const struct told *told;
    /* Buckets: numerators over 'per' at the instant 'at'. */
    bool begun;
    weir_instant at;
    weir_i128 level[WEIR_BUCKETS_MAX];
    /* Only whole units came since it was empty, at one instant: then; and
     * now. */
    bool stored_exact[WEIR_BUCKETS_MAX];
    bool exact[WEIR_BUCKETS_MAX];
    /* The additional error of a bucket that spills, in scaled units: refunds to
     * the bucket before have caused it. */
    weir_i128 detached[WEIR_BUCKETS_MAX];
    bool changed;
    /* Windows: events that still have units, in order. */
    struct event *events;
    size_t count;
    size_t room;
    int64_t known; /* the newest part in which something has changed */
    /* Decisions so near to the edge that a scaled unit changes them; there the
     * oracle follows the product. */
    uint64_t doubts;
};

void oracle_init(struct oracle *oracle, const struct told *told);
void oracle_fini(struct oracle *oracle);

/* Checks an answer, and follows it; 'changed': the product's state changed.
 * Fails the test. */
void oracle_check(struct oracle *oracle, const struct weir_algorithm_ask *ask,
                  const struct weir_algorithm_answer *got, bool changed,
                  weir_instant now);

/* The number of the window that contains 'now', by the C library's calendar. */
int64_t oracle_window(const struct weir_algorithm_rule *rule, weir_instant now);

/* A sound rule of that algorithm, with limits from one a year to 10^11 a
 * second and windows from one nanosecond to two years. */
void told_random(struct told *told, enum weir_algorithm algorithm,
                 struct weir_rng *rng);
/* 'units' every 'per' with that burst; a window of 'per' and 'units' in it. */
void told_simple(struct told *told, enum weir_algorithm algorithm,
                 uint64_t units, weir_duration per, uint64_t burst);

#endif /* WEIR_ALGORITHM_ORACLE_H */
