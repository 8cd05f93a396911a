/* SPDX-License-Identifier: MIT
 * lab/model_algorithm.h - algorithms as models name them: a bucket state for
 * one key. */

#ifndef WEIR_MODEL_ALGORITHM_H
#define WEIR_MODEL_ALGORITHM_H

#include "core/algorithm/algorithm.h"

/* "sliding_N" is a sliding window of N parts. Ends with NULL. */
extern const char *const weir_model_algorithms[];

struct weir_model_algorithm {
    struct weir_algorithm_rule rule;
    void *state; /* owned */
};

/* 'algorithm' is an index into the words above. 'quantity' units pass in a
 * 'window'; this is also the rate of buckets, which have room for 'burst'
 * units. A token bucket starts with 'initial' units. */
void weir_model_algorithm_init(struct weir_model_algorithm *bucket_state,
                               size_t algorithm, uint64_t quantity,
                               weir_duration window, uint64_t burst,
                               uint64_t initial);
void weir_model_algorithm_fini(struct weir_model_algorithm *bucket_state);

struct weir_algorithm_answer weir_model_algorithm_decide(
    struct weir_model_algorithm *bucket_state, enum weir_algorithm_op op,
    uint64_t weight, weir_instant now);

#endif /* WEIR_MODEL_ALGORITHM_H */
