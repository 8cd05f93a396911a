/* SPDX-License-Identifier: MIT
 * test_algorithm_total.c - over a long time a bucket and a fixed window admit
 * exactly the units of the limit.
 *
 * Each limit gets WEIR_OPERATIONS takes (10^7 if unset; `make check-all` uses
 * 10^9) of one unit, in turn at half, twice and ten times the limit. They are
 * compared with the exact result: a bucket as a rational, a window as a count,
 * both independent from the first take to the last. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "algorithm_oracle.h"
#include "compare.h"
#include "table_maker.h"

#define BEGIN (1000 * WEIR_SECOND)
#define PHASE 65536 /* takes at one rate */
#define PACE 1024   /* intervals are in parts of a nanosecond */

static const struct weir_algorithm_rate limits[] = {
    { .units = 1, .per = 86400 * WEIR_SECOND, .burst = 100 },
    { .units = 7, .per = 60 * WEIR_SECOND, .burst = 100 },
    { .units = 1000, .per = WEIR_SECOND, .burst = 100 },
    { .units = 333, .per = WEIR_MILLISECOND, .burst = 100 },
    { .units = 1000, .per = 1000, .burst = 100 }, /* 10^9 a second */
};

/* The instants of the takes. */
struct paced {
    struct weir_rng rng;
    const struct weir_algorithm_rate *rate;
    uint64_t operations;
    uint64_t parts; /* of a nanosecond, not yet in 'now' */
    uint64_t step;  /* the mean interval, in parts */
    weir_instant now;
};

static uint64_t operations(void)
{
    const char *given = getenv("WEIR_OPERATIONS");
    return given ? strtoull(given, NULL, 10) : 5000000;
}

static struct paced paced_begin(const struct weir_algorithm_rate *rate,
                                struct weir_rng *rng)
{
    return (struct paced){
        .rng = { weir_rng_next(rng) },
        .rate = rate,
        .operations = operations(),
        .now = BEGIN,
    };
}

/* Tenths of the limit. The clock must last: slow limits get larger factors. */
static void set_pace(struct paced *paced, uint64_t tenths)
{
    weir_u128 step =
        (weir_u128)paced->rate->per * 10 * PACE / (paced->rate->units * tenths);
    weir_u128 most = ((weir_u128)PACE << 61) / paced->operations / 2;
    paced->step = (uint64_t)(step < most ? step : most);
}

static weir_instant paced_next(struct paced *paced)
{
    paced->parts += weir_rng_below(&paced->rng, 2 * paced->step + 1);
    paced->now += paced->parts / PACE;
    paced->parts %= PACE;
    return paced->now;
}

static bool takes(const struct told *told, uint64_t *state, weir_instant now)
{
    static const struct weir_algorithm_ask one = { .op = WEIR_ALGORITHM_TAKE,
                                                   .weight = 1 };
    struct weir_algorithm_answer answer;
    weir_algorithm_step(&told->rule, state, &one, &answer, now);
    return answer.passed;
}

static void print_total(const char *what, const struct paced *paced,
                        uint64_t admitted, uint64_t exact)
{
    printf("%s %llu every %llu ns: %llu of %llu, exactly %llu\n", what,
           (unsigned long long)paced->rate->units,
           (unsigned long long)paced->rate->per, (unsigned long long)admitted,
           (unsigned long long)paced->operations, (unsigned long long)exact);
}

/* Always more than the limit, never empty: burst + limit * time. */
static void bucket_saturated(const struct weir_algorithm_rate *rate,
                             struct weir_rng *rng)
{
    struct told told;
    told_simple(&told, WEIR_LEAKY, rate->units, rate->per, rate->burst);
    struct paced paced = paced_begin(rate, rng);
    uint64_t state[1] = { 0 };
    uint64_t admitted = 0;
    weir_u128 exact = 0;
    for (uint64_t i = 0; i < paced.operations; i++) {
        if (i % PHASE == 0)
            set_pace(&paced, i / PHASE % 2 ? 100 : 20);
        weir_instant now = i == 0 ? BEGIN : paced_next(&paced);
        admitted += takes(&told, state, now);
    }
    exact =
        (weir_u128)(paced.now - BEGIN) * rate->units / rate->per + rate->burst;
    print_total("saturated", &paced, admitted, (uint64_t)exact);
    assert_compare(admitted + 1, >=, exact);
    assert_compare(admitted, <=, exact + 1);
}

/* In turn above and below the limit, compared with a level * per. */
static void bucket_by_turns(const struct weir_algorithm_rate *rate,
                            struct weir_rng *rng)
{
    static const uint64_t tenths[] = { 5, 20, 100 };
    struct told told;
    told_simple(&told, WEIR_LEAKY, rate->units, rate->per, rate->burst);
    struct paced paced = paced_begin(rate, rng);
    uint64_t state[1] = { 0 };
    uint64_t admitted = 0;
    uint64_t exact = 0;
    weir_i128 high = (weir_i128)rate->burst * rate->per;
    weir_i128 level = 0;
    for (uint64_t i = 0; i < paced.operations; i++) {
        if (i % PHASE == 0)
            set_pace(&paced, tenths[i / PHASE % WEIR_COUNT_OF(tenths)]);
        weir_instant before = paced.now;
        weir_instant now = paced_next(&paced);
        level -= (weir_i128)(now - before) * rate->units;
        level = level > 0 ? level : 0;
        bool passes = level + (weir_i128)rate->per <= high;
        level += passes ? (weir_i128)rate->per : 0;
        exact += passes;
        admitted += takes(&told, state, now);
        assert_compare(admitted + 1, >=, exact);
        assert_compare(admitted, <=, exact + 1);
    }
    print_total("by turns", &paced, admitted, exact);
}

static void window_by_turns(const struct weir_algorithm_rate *rate,
                            struct weir_rng *rng)
{
    static const uint64_t tenths[] = { 5, 20, 100 };
    struct told told;
    told_simple(&told, WEIR_FIXED_WINDOW, rate->units, rate->per, 1);
    struct paced paced = paced_begin(rate, rng);
    uint64_t state[2] = { 0 };
    uint64_t admitted = 0;
    uint64_t exact = 0;
    uint64_t in_window = 0;
    for (uint64_t i = 0; i < paced.operations; i++) {
        if (i % PHASE == 0)
            set_pace(&paced, tenths[i / PHASE % WEIR_COUNT_OF(tenths)]);
        uint64_t before = paced.now / rate->per;
        weir_instant now = paced_next(&paced);
        in_window = now / rate->per == before ? in_window + 1 : 1;
        exact += in_window <= rate->units;
        admitted += takes(&told, state, now);
    }
    print_total("window  ", &paced, admitted, exact);
    assert_true(admitted == exact);
}

static void test_bucket_admits_the_limit(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("bucket");
    for (size_t i = 0; i < WEIR_COUNT_OF(limits); i++) {
        bucket_saturated(&limits[i], &rng);
        bucket_by_turns(&limits[i], &rng);
    }
}

static void test_fixed_window_admits_the_limit(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("fixed_window");
    for (size_t i = 0; i < WEIR_COUNT_OF(limits); i++)
        window_by_turns(&limits[i], &rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bucket_admits_the_limit),
        cmocka_unit_test(test_fixed_window_admits_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
