/* SPDX-License-Identifier: MIT
 * bench/meter_rows.c - one step of each algorithm.
 *
 * A take of one unit each 10 ns, against a limit of twice that: so every take
 * passes, and the use stays at half of the bound. The windows are 1 ms; the
 * log's is 1 us, so that it has a hundred entries at any time and each step
 * drops one. 'refused' is the same at the bound: it must also compute the wait,
 * which takes divisions. A step has no lock and no name; the table's or store's
 * cost is extra. */

#include "rows.h"

#include <string.h>

#include "algo/meter.h"

#define STEP 10u /* nanoseconds between two takes */
#define START (WEIR_SECOND * 1700000000)

struct meter {
    struct weir_meter_rule rule;
    weir_instant now;
    uint64_t *state;
    char rest[64];
};

enum { LEAKY, QUEUE, TOKEN, ROW, FIXED, MONTH, LOG, SLIDING_1, SLIDING_60 };
#define METERS 9

struct meters {
    struct meter passing[METERS];
    struct meter refusing[METERS];
    uint64_t states[2 * METERS][WEIR_METER_SIZE_MAX / sizeof(uint64_t)];
};

static const struct weir_meter_rule rules[METERS] = {
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

static void meter_make(struct meter *meter, unsigned kind, bool full)
{
    const struct weir_meter_rate rates[2] = {
        { .units = 2, .per = STEP, .burst = 1000 },
        { .burst = 1000, .spill = true },
    };
    meter->rule = rules[kind];
    meter->rule.initial = -1;
    meter->rule.window = kind == LOG ? 1000 : WEIR_MILLISECOND;
    meter->rule.quantity = 2 * meter->rule.window / STEP;
    if (meter->rule.calendar != WEIR_CALENDAR_NONE)
        meter->rule.quantity = WEIR_METER_QUANTITY_MAX / 2;
    meter->now = START;
    weir_meter_buckets(&meter->rule, rates, kind == ROW ? 2 : 1);
    if (!full)
        return;
    struct weir_meter_answer answer;
    const struct weir_meter_ask all = { .op = WEIR_METER_CHARGE,
                                        .weight = WEIR_WEIGHT_MAX };
    for (int i = 0; i < 64; i++)
        weir_meter_step(&meter->rule, meter->state, &all, &answer, START);
}

static void *meters_setup(const char **out_note)
{
    (void)out_note;
    struct meters *meters = bench_pages(sizeof(*meters));
    if (meters == NULL)
        return NULL;
    for (unsigned i = 0; i < METERS; i++) {
        meters->passing[i].state = meters->states[2 * i];
        meters->refusing[i].state = meters->states[2 * i + 1];
        meter_make(&meters->passing[i], i, false);
        meter_make(&meters->refusing[i], i, true);
    }
    return meters;
}

static void meters_teardown(void *state)
{
    bench_pages_free(state, sizeof(struct meters));
}

const struct bench_fixture bench_meters = { meters_setup, meters_teardown };

static void steps(struct meter *meter, uint64_t n, weir_duration step)
{
    const struct weir_meter_ask one = { .op = WEIR_METER_TAKE, .weight = 1 };
    struct weir_meter_answer answer;
    weir_instant now = meter->now;
    for (uint64_t i = 0; i < n; i++) {
        now += step;
        weir_meter_step(&meter->rule, meter->state, &one, &answer, now);
        bench_keep(answer.passed);
    }
    meter->now = now;
}

#define ROWS(name, kind)                                                   \
    void bench_meter_##name(void *state, int thread, uint64_t n)           \
    {                                                                      \
        (void)thread;                                                      \
        steps(&((struct meters *)state)->passing[kind], n, STEP);          \
    }                                                                      \
    void bench_meter_##name##_refused(void *state, int thread, uint64_t n) \
    {                                                                      \
        (void)thread;                                                      \
        steps(&((struct meters *)state)->refusing[kind], n, 0);            \
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
