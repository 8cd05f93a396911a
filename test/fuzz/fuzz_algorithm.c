/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_algorithm.c - any bytes as a bucket state: a sound state stays
 * sound through any steps, and every answer makes sense. */

#include <string.h>

#include "core/algorithm/algorithm.h"

#define LATEST (1700000000 * WEIR_SECOND)
#define HEAD 24 /* bytes that choose the rule and the asks */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t word_of(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    return word;
}

static void rule_of(const uint8_t *data, struct weir_algorithm_rule *out)
{
    uint64_t word = word_of(data);
    uint64_t amount = word_of(data + 8) >> (word >> 58);
    *out = (struct weir_algorithm_rule){
        .algorithm = (enum weir_algorithm)(word % 7 + 1),
        .count_limited = word >> 8 & 1,
        .sub_windows = (uint8_t)((word >> 9) % WEIR_SUB_WINDOWS_MAX + 1),
        .calendar = (enum weir_calendar)((word >> 16) % 6),
        .utc_offset_s = (int32_t)((word >> 20) % 86400) - 43200,
        .entries = (uint32_t)((word >> 24) % 64 + 1),
        .window =
            amount % (WEIR_ALGORITHM_WINDOW_MAX / 2) + WEIR_SUB_WINDOWS_MAX,
        .quantity = amount % WEIR_ALGORITHM_QUANTITY_MAX,
        .initial = (int64_t)((word >> 32) % 1000) - 1,
    };
    struct weir_algorithm_rate rates[WEIR_BUCKETS_MAX];
    for (unsigned k = 0; k < WEIR_BUCKETS_MAX; k++)
        rates[k] = (struct weir_algorithm_rate){
            .units = (amount >> k) % 1000,
            .per = (amount >> 16) % (86400 * WEIR_SECOND) + 10,
            .burst = (amount >> 8) % ((uint64_t)1 << 50) + 1,
            .spill = k > 0 && (word >> (40 + k) & 1),
        };
    bool row = out->algorithm == WEIR_TOKEN_BUCKETS;
    weir_algorithm_buckets(out, rates,
                           row ? (uint8_t)(2 + (word >> 48) % 3) : 1);
    weir_assert(weir_algorithm_check(out));
}

static void check_answer(const struct weir_algorithm_rule *rule,
                         const struct weir_algorithm_ask *ask,
                         const struct weir_algorithm_answer *answer)
{
    if (answer->passed) {
        weir_assert(!answer->never && answer->retry_after == 0);
        weir_assert(answer->wait <= ask->wait_max);
        weir_assert(answer->level < WEIR_BUCKETS_MAX);
    } else {
        weir_assert(answer->retry_after > 0 && answer->wait == 0);
        weir_assert(!answer->never || answer->retry_after == WEIR_NEVER);
    }
    weir_assert(answer->used >= 0 || rule->algorithm == WEIR_TOKEN_BUCKET);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint64_t state[WEIR_ALGORITHM_SIZE_MAX / sizeof(uint64_t)];
    static uint64_t carried[WEIR_ALGORITHM_SIZE_MAX / sizeof(uint64_t)];
    if (size < HEAD)
        return 0;
    struct weir_algorithm_rule rule;
    rule_of(data, &rule);
    size_t room = weir_algorithm_size(&rule);
    size_t given = size - HEAD < room ? size - HEAD : room;
    memset(state, 0, room);
    memcpy(state, data + HEAD, given);
    if (!weir_algorithm_sound(&rule, state, LATEST))
        return 0;

    uint64_t asked = word_of(data + 16);
    weir_instant now = LATEST - (asked >> 40);
    for (int i = 0; i < 8; i++, asked = asked >> 8 | asked << 56) {
        const struct weir_algorithm_ask ask = {
            .op = (enum weir_algorithm_op)(asked % 5 + 1),
            .weight = (asked >> 3) % 8 ? (asked >> 3) % 32 : WEIR_WEIGHT_MAX,
            .wait_max = asked,
            .level = (uint8_t)(asked % 8),
        };
        struct weir_algorithm_answer answer;
        weir_algorithm_step(&rule, state, &ask, &answer, now);
        check_answer(&rule, &ask, &answer);
        now += asked % 2 ? asked >> 30 : 0;
        weir_assert(
            weir_algorithm_sound(&rule, state, now > LATEST ? now : LATEST));
    }
    weir_assert(weir_algorithm_idle_at(&rule, state, now) >= now);
    struct weir_algorithm_rule to = rule;
    to.quantity = rule.quantity / 2;
    to.window = rule.window / 2 + WEIR_SUB_WINDOWS_MAX;
    to.entries = rule.entries / 2 + 1;
    memset(carried, 0, weir_algorithm_size(&to));
    weir_algorithm_carry(&rule, state, &to, carried, now);
    weir_assert(
        weir_algorithm_sound(&to, carried, now > LATEST ? now : LATEST));
    return 0;
}
