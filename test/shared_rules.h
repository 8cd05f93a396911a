/* SPDX-License-Identifier: MIT
 * test/shared_rules.h - rules of every algorithm, by hand. */

#ifndef SHARED_RULES_H
#define SHARED_RULES_H

#include <stddef.h>

#include "core/algorithm/algorithm.h"

struct shared_rule {
    const char *name;
    struct weir_algorithm_rule rule;
};

/* Writes at most 'max' rules; returns their number. Windows and periods are
 * whole microseconds, Redis's resolution. */
size_t shared_rules(struct shared_rule *out, size_t max);

/* 'quantity' units per 'window', by an algorithm; for buckets, 'quantity' is
 * the burst too. */
struct weir_algorithm_rule shared_rule_of(enum weir_algorithm algorithm,
                                          uint64_t quantity,
                                          weir_duration window);
/* A test's settings of a quota, before they become a rule or fields. */
struct shared_wish {
    enum weir_algorithm algorithm;
    uint64_t quantity; /* units per 'per'; for buckets the burst too */
    weir_duration per; /* whole seconds; unused with a calendar */
    int64_t initial;   /* token_bucket; -1: the burst */
    enum weir_calendar calendar; /* fixed_window … */
    int32_t utc_offset_s;        /* … whole minutes */
};
struct weir_algorithm_rule shared_rule_of_wish(const struct shared_wish *wish);
extern const char *const shared_algorithm_names[WEIR_SLIDING_WINDOW + 1];

#endif /* SHARED_RULES_H */
