/* SPDX-License-Identifier: MIT
 * lab/model_algorithm.c - algorithms as models name them. */

#include "lab/model_algorithm.h"

#include "lab/memory.h"

static const struct {
    enum weir_algorithm algorithm;
    uint8_t sub_windows;
} kinds[] = {
    { WEIR_LEAKY, 0 },          { WEIR_LEAKY_QUEUE, 0 },
    { WEIR_TOKEN_BUCKET, 0 },   { WEIR_FIXED_WINDOW, 0 },
    { WEIR_SLIDING_LOG, 0 },    { WEIR_SLIDING_WINDOW, 1 },
    { WEIR_SLIDING_WINDOW, 4 }, { WEIR_SLIDING_WINDOW, 60 },
};

const char *const weir_model_algorithms[] = {
    "leaky",     "leaky_queue", "token_bucket", "fixed_window", "sliding_log",
    "sliding_1", "sliding_4",   "sliding_60",   NULL,
};

void weir_model_algorithm_init(struct weir_model_algorithm *bucket_state,
                               size_t algorithm, uint64_t quantity,
                               weir_duration window, uint64_t burst,
                               uint64_t initial)
{
    bucket_state->rule = (struct weir_algorithm_rule){
        .algorithm = kinds[algorithm].algorithm,
        .buckets = 1,
        .sub_windows = kinds[algorithm].sub_windows,
        .window = window,
        .quantity = quantity,
        .entries = (uint32_t)(quantity < WEIR_ENTRIES_MAX ? quantity
                                                          : WEIR_ENTRIES_MAX),
        .initial = (int64_t)initial,
    };
    weir_bucket_init(&bucket_state->rule.bucket[0].bucket, quantity, window,
                     burst, burst);
    weir_assert(weir_algorithm_check(&bucket_state->rule));
    bucket_state->state =
        weir_must_zeroed(1, weir_algorithm_size(&bucket_state->rule));
}

void weir_model_algorithm_fini(struct weir_model_algorithm *bucket_state)
{
    free(bucket_state->state);
}

struct weir_algorithm_answer weir_model_algorithm_decide(
    struct weir_model_algorithm *bucket_state, enum weir_algorithm_op op,
    uint64_t weight, weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = op, .weight = weight };
    struct weir_algorithm_answer answer;
    weir_algorithm_step(&bucket_state->rule, bucket_state->state, &ask, &answer,
                        now);
    return answer;
}
