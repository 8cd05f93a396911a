/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_shared.c - data that a shared store sends: any bytes as a
 * bucket state, as the integers of a reply, as a URI. Each is refused, or is a
 * state that can be stepped, and is the same when written and read again. */

#include <stdlib.h>
#include <string.h>

#include "shared_rules.h"
#include "store/shared_internal.h"
#include "store/shared_script.h"
#include "store/shared_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW (1700000000 * WEIR_SECOND)

static uint64_t state[WEIR_ALGORITHM_SIZE_MAX / 8];
static uint64_t again[WEIR_ALGORITHM_SIZE_MAX / 8];
static uint8_t written[WEIR_STATE_BYTES_MAX];

static void step_on(const struct weir_algorithm_rule *rule)
{
    struct weir_algorithm_answer answer;
    for (int op = WEIR_ALGORITHM_TAKE; op <= WEIR_ALGORITHM_RESERVE; op++) {
        struct weir_algorithm_ask ask = { .op = (enum weir_algorithm_op)op,
                                          .weight = 3,
                                          .wait_max = WEIR_SECOND };
        weir_algorithm_step(rule, state, &ask, &answer, NOW + (uint64_t)op);
    }
    size_t len = weir_state_pack(rule, state, written);
    weir_assert(weir_state_unpack(rule, written, len, again, NOW) == 0);
    weir_assert(memcmp(state, again, weir_algorithm_size(rule)) == 0);
}

static void read_value(const uint8_t *data, size_t size)
{
    for (int i = WEIR_LEAKY; i <= WEIR_SLIDING_WINDOW; i++) {
        struct weir_algorithm_rule rule =
            shared_rule_of((enum weir_algorithm)i, 7, 60 * WEIR_SECOND);
        if (weir_state_unpack(&rule, data, size, state, NOW) == 0)
            step_on(&rule);
    }
}

static void read_integers(const uint8_t *data, size_t size)
{
    int64_t integers[WEIR_SCRIPT_ANSWER_LEN + 1] = { 0 };
    size_t bytes = size < sizeof(integers) ? size : sizeof(integers);
    struct weir_algorithm_answer answer;
    memcpy(integers, data, bytes);
    if (weir_script_answer(integers, size / 8, &answer) == 0)
        weir_assert(answer.level < WEIR_BUCKETS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_diag diag = { 0 };
    struct weir_text text = { (const char *)data, size };
    struct weir_shared_uri uri;
    if (weir_shared_uri_parse(text, &uri, &diag) < 0)
        weir_assert(diag.text[0] != '\0');
    read_integers(data, size);
    read_value(data, size);
    return 0;
}
