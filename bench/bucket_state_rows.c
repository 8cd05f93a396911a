/* SPDX-License-Identifier: MIT
 * bench/bucket_state_rows.c - one step of each algorithm.
 *
 * A take of one unit each 10 ns, against a limit of twice that: so every take
 * passes, and the use stays at half of the bound. The windows are 1 ms; the
 * log's is 1 us, so that it has a hundred entries at any time and each step
 * drops one. 'refused' is the same at the bound: it must also compute the wait,
 * which takes divisions. A step has no lock and no name; the table's or store's
 * cost is extra. */

#include "rows.h"

#include "core/algorithm/algorithm.h"

#define STEP 10u /* nanoseconds between two takes */
#define START (WEIR_SECOND * 1700000000)

struct bucket_state {
    struct weir_algorithm_rule rule;
    weir_instant now;
    uint64_t *state;
    char rest[64];
};

enum { LEAKY, QUEUE, TOKEN, ROW, FIXED, MONTH, LOG, SLIDING_1, SLIDING_60 };
#define BUCKET_STATES 9

struct bucket_states {
    struct bucket_state passing[BUCKET_STATES];
    struct bucket_state refusing[BUCKET_STATES];
    uint64_t states[2 * BUCKET_STATES]
                   [WEIR_ALGORITHM_SIZE_MAX / sizeof(uint64_t)];
};

static const struct weir_algorithm_rule rules[BUCKET_STATES] = {
    [LEAKY] = { .algorithm = WEIR_LEAKY },
    [QUEUE] = { .algorithm = WEIR_LEAKY_QUEUE },
    [TOKEN] = { .algorithm = WEIR_TOKEN_BUCKET },
    [ROW] = { .algorithm = WEIR_TOKEN_BUCKETS },
    [FIXED] = { .algorithm = WEIR_FIXED_WINDOW },
    [MONTH] = { .algorithm = WEIR_FIXED_WINDOW,
                .calendar = WEIR_CALENDAR_MONTH },
    [LOG] = { .algorithm = WEIR_SLIDING_LOG, .entries = 256 },
    [SLIDING_1] = { .algorithm = WEIR_SLIDING_WINDOW, .sub_windows = 1 },
    [SLIDING_60] = { .algorithm = WEIR_SLIDING_WINDOW, .sub_windows = 60 },
};

static void bucket_state_make(struct bucket_state *bucket_state, unsigned kind,
                              bool full)
{
    const struct weir_algorithm_rate rates[2] = {
        { .units = 2, .per = STEP, .burst = 1000 },
        { .burst = 1000, .spill = true },
    };
    bucket_state->rule = rules[kind];
    bucket_state->rule.initial = -1;
    bucket_state->rule.window = kind == LOG ? 1000 : WEIR_MILLISECOND;
    bucket_state->rule.quantity = 2 * bucket_state->rule.window / STEP;
    if (bucket_state->rule.calendar != WEIR_CALENDAR_NONE)
        bucket_state->rule.quantity = WEIR_ALGORITHM_QUANTITY_MAX / 2;
    bucket_state->now = START;
    weir_algorithm_buckets(&bucket_state->rule, rates, kind == ROW ? 2 : 1);
    if (!full)
        return;
    struct weir_algorithm_answer answer;
    const struct weir_algorithm_ask all = { .op = WEIR_ALGORITHM_CHARGE,
                                            .weight = WEIR_WEIGHT_MAX };
    for (int i = 0; i < 64; i++)
        weir_algorithm_step(&bucket_state->rule, bucket_state->state, &all,
                            &answer, START);
}

static void *bucket_states_setup(const char **out_note)
{
    (void)out_note;
    struct bucket_states *bucket_states = bench_pages(sizeof(*bucket_states));
    if (bucket_states == NULL)
        return NULL;
    for (unsigned i = 0; i < BUCKET_STATES; i++) {
        bucket_states->passing[i].state = bucket_states->states[2 * i];
        bucket_states->refusing[i].state = bucket_states->states[2 * i + 1];
        bucket_state_make(&bucket_states->passing[i], i, false);
        bucket_state_make(&bucket_states->refusing[i], i, true);
    }
    return bucket_states;
}

static void bucket_states_teardown(void *state)
{
    bench_pages_free(state, sizeof(struct bucket_states));
}

const struct bench_fixture bench_algorithms = { bucket_states_setup,
                                                bucket_states_teardown };

static void steps(struct bucket_state *bucket_state, uint64_t n,
                  weir_duration step)
{
    const struct weir_algorithm_ask one = { .op = WEIR_ALGORITHM_TAKE,
                                            .weight = 1 };
    struct weir_algorithm_answer answer;
    weir_instant now = bucket_state->now;
    for (uint64_t i = 0; i < n; i++) {
        now += step;
        weir_algorithm_step(&bucket_state->rule, bucket_state->state, &one,
                            &answer, now);
        bench_keep(answer.passed);
    }
    bucket_state->now = now;
}

#define ROWS(name, kind)                                                       \
    void bench_algorithm_##name(void *state, int thread, uint64_t n)           \
    {                                                                          \
        (void)thread;                                                          \
        steps(&((struct bucket_states *)state)->passing[kind], n, STEP);       \
    }                                                                          \
    void bench_algorithm_##name##_refused(void *state, int thread, uint64_t n) \
    {                                                                          \
        (void)thread;                                                          \
        steps(&((struct bucket_states *)state)->refusing[kind], n, 0);         \
    }

ROWS(leaky, LEAKY)
ROWS(queue, QUEUE)
ROWS(token, TOKEN)
ROWS(row, ROW)
ROWS(fixed, FIXED)
ROWS(month, MONTH)
ROWS(log, LOG)
ROWS(sliding_1, SLIDING_1)
ROWS(sliding_60, SLIDING_60)
