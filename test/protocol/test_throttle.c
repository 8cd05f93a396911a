/* SPDX-License-Identifier: MIT
 * test/protocol/test_throttle.c - CL.THROTTLE's table compared with
 * redis-cell's arithmetic, written as in the original, where that is exact. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/base/rng.h"
#include "io/clock.h"
#include "protocol/resp/throttle.h"
#include "seed.h"

#define START (1000 * WEIR_SECOND)

static struct weir_throttle *throttle_of(uint32_t keys_max)
{
    struct weir_throttle *throttle =
        weir_throttle_new(&weir_mem_system, keys_max, 7);
    assert_non_null(throttle);
    return throttle;
}

static struct weir_throttle_reply asked(struct weir_throttle *throttle,
                                        const char *key, int64_t burst,
                                        int64_t count, int64_t period,
                                        int64_t quantity, weir_instant now)
{
    struct weir_throttle_reply reply;
    struct weir_throttle_ask ask = { .key = weir_text_of(key),
                                     .max_burst = burst,
                                     .count = count,
                                     .period_s = period,
                                     .quantity = quantity };
    assert_int_equal(weir_throttle_decide(throttle, &ask, &reply, now), 0);
    return reply;
}

static void check(struct weir_throttle_reply reply, int limited, int limit,
                  int remaining, int retry, int reset)
{
    assert_int_equal(reply.limited, limited);
    assert_int_equal(reply.limit, limit);
    assert_int_equal(reply.remaining, remaining);
    assert_int_equal(reply.retry_after_s, retry);
    assert_int_equal(reply.reset_after_s, reset);
}

static void it_answers_as_the_readme_says(void **state)
{
    (void)state;
    struct weir_throttle *t = throttle_of(10);
    check(asked(t, "user123", 15, 30, 60, 1, START), 0, 16, 15, -1, 2);
    check(asked(t, "user123", 15, 30, 60, 16, START), 1, 16, 15, 2, 2);
    check(asked(t, "user123", 15, 30, 60, 17, START), 1, 16, 15, -1, 2);
    check(asked(t, "user123", 15, 30, 60, 0, START), 0, 16, 15, -1, 2);
    check(asked(t, "user123", 15, 30, 60, -1, START), 0, 16, 16, -1, 0);
    check(asked(t, "other", 15, 30, 60, 16, START), 0, 16, 0, -1, 32);
    weir_throttle_free(&t);
}

/* redis-cell, with T a whole number of microseconds, for one key. */
struct model {
    int64_t tat;
    bool has_tat;
};

static int64_t to_seconds(int64_t ns)
{
    return ns / 1000000000 + (ns % 1000000000 >= 1000000);
}

static struct weir_throttle_reply model_asked(struct model *model,
                                              int64_t burst, int64_t step,
                                              int64_t quantity, int64_t now)
{
    int64_t tau = step * (burst + 1);
    int64_t tat = model->has_tat ? model->tat : now;
    int64_t next = (now > tat ? now : tat) + step * quantity;
    bool limited = now < next - tau;
    int64_t ttl = (limited ? tat : next) - now;
    if (limited && ttl < 0)
        ttl = 0;
    int64_t left = tau - ttl;
    struct weir_throttle_reply reply = {
        .limited = limited,
        .limit = burst + 1,
        .remaining = left > 0 ? left / step : 0,
        .retry_after_s = limited && step * quantity <= tau
                             ? to_seconds(next - tau - now)
                             : -1,
        .reset_after_s = to_seconds(ttl),
    };
    if (!limited) {
        model->tat = next;
        model->has_tat = true;
    }
    return reply;
}

static void it_answers_as_redis_cell_where_that_is_exact(void **state)
{
    (void)state;
    static const int64_t counts[] = { 1, 2, 30, 1000, 500000 };
    struct weir_rng rng = { seed_or(11) };
    for (int run = 0; run < 200; run++) {
        struct weir_throttle *t = throttle_of(4);
        struct model model = { .has_tat = false };
        int64_t count = counts[weir_rng_below(&rng, 5)];
        int64_t period = count == 30 ? 60 : 1;
        int64_t burst = (int64_t)weir_rng_below(&rng, 50);
        int64_t step = period * 1000000000 / count;
        weir_instant now = START;
        for (int i = 0; i < 200; i++) {
            int64_t quantity = (int64_t)weir_rng_below(&rng, 6);
            now += weir_rng_below(&rng, (uint64_t)(4 * step));
            struct weir_throttle_reply is =
                asked(t, "k", burst, count, period, quantity, now);
            struct weir_throttle_reply should =
                model_asked(&model, burst, step, quantity, (int64_t)now);
            check(is, should.limited, (int)should.limit, (int)should.remaining,
                  (int)should.retry_after_s, (int)should.reset_after_s);
        }
        weir_throttle_free(&t);
    }
}

/* Rates at which redis-cell lets all pass: a unit takes less than a
 * millisecond. */
static void fast_rates_limit(void **state)
{
    (void)state;
    static const int64_t counts[] = { 1001, 6000, 7777777, 1000000000 };
    for (size_t i = 0; i < WEIR_COUNT_OF(counts); i++) {
        struct weir_throttle *t = throttle_of(4);
        int64_t passed = 0;
        /* For a hundredth of a second, twice the limit is asked for. */
        int64_t quantity = counts[i] / 1000 > 1 ? counts[i] / 1000 : 1;
        for (int step = 0; step < 20; step++)
            passed += quantity *
                      !asked(t, "k", quantity, counts[i], 1, quantity,
                             START + (weir_instant)step * WEIR_MILLISECOND / 2)
                           .limited;
        int64_t most = quantity + 1 + counts[i] * 95 / 10000 + 1;
        assert_in_range(passed, most - 2 * quantity - 1, most);
        weir_throttle_free(&t);
    }
}

static void probes_and_peeks_leave_no_trace(void **state)
{
    (void)state;
    struct weir_throttle *t = throttle_of(4);
    struct weir_throttle_reply reply;
    struct weir_throttle_ask probe = { .key = WEIR_TEXT("k"),
                                       .max_burst = 1,
                                       .count = 1,
                                       .period_s = 1,
                                       .quantity = 2,
                                       .probe = true };
    for (int i = 0; i < 5; i++)
        assert_int_equal(weir_throttle_decide(t, &probe, &reply, START), 0);
    check(reply, 0, 2, 0, -1, 2);
    check(asked(t, "k", 1, 1, 1, 0, START), 0, 2, 2, -1, 0);
    assert_int_equal(weir_throttle_counts(t).keys, 0);
    weir_throttle_free(&t);
}

#define KEY_MAX 600 /* some of them long, and hashed */

static void keys_of_any_length_are_told_apart(void **state)
{
    (void)state;
    struct weir_throttle *t = throttle_of(10000);
    char key[KEY_MAX + 1];
    for (int round = 0; round < 2; round++)
        for (size_t len = 0; len <= KEY_MAX; len++) {
            memset(key, 'k', len);
            key[len] = '\0';
            /* One passes a key; the second time none. */
            assert_int_equal(asked(t, key, 0, 1, 100, 1, START).limited, round);
        }
    assert_int_equal(weir_throttle_counts(t).keys, KEY_MAX + 1);
    assert_true(weir_throttle_forget(t, WEIR_TEXT("kkk"), START));
    assert_false(weir_throttle_forget(t, WEIR_TEXT("kkk"), START));
    check(asked(t, "kkk", 0, 1, 100, 1, START), 0, 1, 0, -1, 100);
    weir_throttle_free(&t);
}

static void idle_keys_make_room(void **state)
{
    (void)state;
    struct weir_throttle *t = throttle_of(1000);
    char key[64];
    /* Each key is idle a second later; ten come in each second. */
    for (int i = 0; i < 5000; i++) {
        /* Half of them are too long for their cell. */
        snprintf(key, sizeof key, "%060d", i);
        (void)asked(t, key + (i % 2) * 40, 0, 1, 1, 1,
                    START + (weir_instant)i * WEIR_SECOND / 10);
    }
    struct weir_throttle_counts counts = weir_throttle_counts(t);
    assert_in_range(counts.keys, 1, 50);
    assert_int_equal(counts.evicted, 0);
    weir_throttle_free(&t);
}

static void a_flood_of_keys_keeps_to_its_bound(void **state)
{
    (void)state;
    struct weir_throttle *t = throttle_of(100);
    char key[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%d", i);
        (void)asked(t, key, 0, 1, 1000, 1, START + (weir_instant)i);
    }
    struct weir_throttle_counts counts = weir_throttle_counts(t);
    assert_int_equal(counts.keys, 100);
    assert_int_equal(counts.evicted, 900);
    weir_throttle_free(&t);
}

static void the_one_nearest_to_idle_goes(void **state)
{
    (void)state;
    struct weir_throttle *t = throttle_of(16);
    char key[8];
    /* The table is full with as many keys as it chooses from; the seventh is
     * the first to be idle. */
    for (int i = 0; i < 16; i++) {
        snprintf(key, sizeof key, "%d", i);
        (void)asked(t, key, 0, 1, i == 7 ? 50 : 100 + i, 1, START);
    }
    (void)asked(t, "one more", 0, 1, 100, 1, START);
    for (int i = 0; i < 16; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_int_equal(asked(t, key, 0, 1, 100, 0, START).remaining,
                         i == 7 ? 1 : 0);
    }
    assert_int_equal(weir_throttle_counts(t).evicted, 1);
    weir_throttle_free(&t);
}

/* Of a limit of seven in a minute, each unit is 8571428571 3/7 ns. */
static void what_remains_is_exact(void **state)
{
    (void)state;
    struct weir_throttle *t = throttle_of(4);
    weir_instant second = WEIR_SECOND;
    for (int taken = 1; taken <= 7; taken++)
        assert_int_equal(asked(t, "k", 6, 7, 60, 1, START).remaining,
                         7 - taken);
    check(asked(t, "k", 6, 7, 60, 1, START), 1, 7, 0, 9, 60);
    check(asked(t, "k", 6, 7, 60, 0, START + 30 * second), 0, 7, 3, -1, 30);
    check(asked(t, "k", 6, 7, 60, 0, START + 60 * second - 1), 0, 7, 6, -1, 0);
    check(asked(t, "k", 6, 7, 60, 0, START + 60 * second), 0, 7, 7, -1, 0);
    weir_throttle_free(&t);
}

/* As many units as leak meanwhile, again and again: the same ones remain. */
static void roundings_do_not_add_up(void **state)
{
    (void)state;
    struct weir_throttle *t = throttle_of(4);
    weir_instant now = START;
    check(asked(t, "k", 13, 7, 60, 7, now), 0, 14, 7, -1, 60);
    for (int round = 0; round < 10000; round++) {
        now += 60 * WEIR_SECOND;
        for (int left = 13; left >= 7; left--)
            assert_int_equal(asked(t, "k", 13, 7, 60, 1, now).remaining, left);
    }
    weir_throttle_free(&t);
}

/* A unit takes three nanoseconds and a third. */
static void a_limit_of_fast_units_passes_exactly(void **state)
{
    (void)state;
    struct weir_throttle *t = throttle_of(4);
    int passed = 0;
    for (int i = 0; i < 2000; i++)
        passed += !asked(t, "k", 999, 300000000, 1, 1, START).limited;
    assert_int_equal(passed, 1000);
    weir_throttle_free(&t);
}

/* A bucket of fractions with the denominator 'count': a unit is 'period', and
 * 'count' leak in a nanosecond. */
struct fractions {
    int64_t burst, count, period;
    weir_i128 fill;
    weir_instant at;
};

static struct weir_throttle_reply fractions_asked(struct fractions *bucket,
                                                  int64_t quantity,
                                                  weir_instant now)
{
    weir_i128 limit = (weir_i128)(bucket->burst + 1) * bucket->period;
    weir_i128 cost = (weir_i128)quantity * bucket->period;
    bucket->fill -= (weir_i128)(now - bucket->at) * bucket->count;
    if (bucket->fill < 0)
        bucket->fill = 0;
    bucket->at = now;
    bool limited = bucket->fill + cost > limit;
    weir_i128 wait = bucket->fill + cost - limit;
    if (!limited)
        bucket->fill += cost;
    return (struct weir_throttle_reply){
        .limited = limited,
        .limit = bucket->burst + 1,
        .remaining = (int64_t)((limit - bucket->fill) / bucket->period),
        .retry_after_s = limited && cost <= limit
                             ? to_seconds((int64_t)(wait / bucket->count))
                             : -1,
        .reset_after_s = to_seconds((int64_t)(bucket->fill / bucket->count)),
    };
}

static void it_answers_as_fractions_do(void **state)
{
    (void)state;
    static const int64_t counts[] = { 1,         3,          7,
                                      11,        999,        1000003,
                                      999999937, 4294967291, 4294967296 };
    static const int64_t periods[] = { 1, 7, 60, 86400 };
    struct weir_rng rng = { seed_or(12) };
    for (int run = 0; run < 1000; run++) {
        struct weir_throttle *t = throttle_of(4);
        struct fractions bucket = {
            .burst = (int64_t)weir_rng_below(&rng, 50),
            .count = counts[weir_rng_below(&rng, WEIR_COUNT_OF(counts))],
            .period = periods[weir_rng_below(&rng, 4)],
            .at = START,
        };
        int64_t period_s = bucket.period;
        bucket.period *= (int64_t)WEIR_SECOND;
        uint64_t unit = (uint64_t)(bucket.period / bucket.count) + 1;
        weir_instant now = START;
        for (int i = 0; i < 200; i++) {
            int64_t quantity = (int64_t)weir_rng_below(&rng, 7) - 1;
            now += weir_rng_below(&rng, 4 * unit);
            struct weir_throttle_reply is = asked(
                t, "k", bucket.burst, bucket.count, period_s, quantity, now);
            struct weir_throttle_reply should =
                fractions_asked(&bucket, quantity, now);
            check(is, should.limited, (int)should.limit, (int)should.remaining,
                  (int)should.retry_after_s, (int)should.reset_after_s);
        }
        weir_throttle_free(&t);
    }
}

/* Ticks that are shorter than the parts of a stored tat. */
static void rounding_passes_no_more(void **state)
{
    (void)state;
    static const int64_t counts[] = { 4294967297, 5000000029, 99999999977 };
    struct weir_rng rng = { seed_or(13) };
    for (size_t i = 0; i < WEIR_COUNT_OF(counts); i++) {
        struct weir_throttle *t = throttle_of(4);
        weir_instant now = START;
        int64_t per_ns = counts[i] / (int64_t)WEIR_SECOND;
        int64_t burst = 10 * per_ns;
        weir_i128 passed = 0;
        /* Twice as many units are asked for as leak. */
        for (int request = 0; request < 100000; request++) {
            int64_t quantity =
                1 + (int64_t)weir_rng_below(&rng, 4 * (uint64_t)per_ns);
            now += weir_rng_below(&rng, 3);
            if (!asked(t, "k", burst - 1, counts[i], 1, quantity, now).limited)
                passed += quantity;
        }
        weir_i128 leaked = (weir_i128)(now - START) * counts[i] / WEIR_SECOND;
        assert_true(passed <= burst + leaked);
        assert_true(passed >= leaked * 9 / 10);
        weir_throttle_free(&t);
    }
}

/* A burst of 2,737 years, of which 73 are kept. */
static void no_more_than_the_limit_passes_at_once(void **state)
{
    (void)state;
    static const int64_t quantities[] = { 1000002, 2000000, 500000, 1 };
    for (size_t i = 0; i < WEIR_COUNT_OF(quantities); i++) {
        struct weir_throttle *t = throttle_of(4);
        int64_t passed = 0;
        for (int asks = 0; asks < 4; asks++) {
            struct weir_throttle_reply reply;
            struct weir_throttle_ask ask = { .key = WEIR_TEXT("k"),
                                             .max_burst = 1000000,
                                             .count = 1,
                                             .period_s = 86400,
                                             .quantity = quantities[i] };
            assert_int_equal(weir_throttle_decide(t, &ask, &reply, START), 0);
            passed += reply.limited ? 0 : ask.quantity;
            bool never = quantities[i] > reply.limit;
            assert_int_equal(reply.limited && reply.retry_after_s == -1, never);
        }
        assert_compare(passed, <=, 1000001);
        assert_int_equal(passed > 0, quantities[i] <= 1000001);
        weir_throttle_free(&t);
    }
}

static void no_number_is_too_large(void **state)
{
    (void)state;
    static const int64_t numbers[] = { INT64_MIN,     -1,       0, 1, 1000,
                                       INT64_MAX - 1, INT64_MAX };
    size_t n = WEIR_COUNT_OF(numbers);
    struct weir_throttle *t = throttle_of(4);
    for (size_t i = 0; i < n * n * n * n; i++) {
        struct weir_throttle_reply reply = { .limit = -7 };
        struct weir_throttle_ask ask = { .key = WEIR_TEXT("k"),
                                         .max_burst = numbers[i % n],
                                         .count = numbers[i / n % n],
                                         .period_s = numbers[i / n / n % n],
                                         .quantity = numbers[i / n / n / n] };
        bool sound = ask.max_burst >= 0 && ask.count > 0 && ask.period_s > 0;
        int error = weir_throttle_decide(t, &ask, &reply, START + i);
        assert_int_equal(error, sound ? 0 : WEIR_EINVAL);
        assert_true(sound ? reply.limit > 0 && reply.remaining >= 0
                          : reply.limit == -7);
        if (sound && ask.quantity > reply.limit)
            assert_true(reply.limited && reply.retry_after_s == -1);
    }
    weir_throttle_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_answers_as_the_readme_says),
        cmocka_unit_test(it_answers_as_redis_cell_where_that_is_exact),
        cmocka_unit_test(fast_rates_limit),
        cmocka_unit_test(probes_and_peeks_leave_no_trace),
        cmocka_unit_test(keys_of_any_length_are_told_apart),
        cmocka_unit_test(idle_keys_make_room),
        cmocka_unit_test(a_flood_of_keys_keeps_to_its_bound),
        cmocka_unit_test(the_one_nearest_to_idle_goes),
        cmocka_unit_test(what_remains_is_exact),
        cmocka_unit_test(roundings_do_not_add_up),
        cmocka_unit_test(a_limit_of_fast_units_passes_exactly),
        cmocka_unit_test(it_answers_as_fractions_do),
        cmocka_unit_test(rounding_passes_no_more),
        cmocka_unit_test(no_more_than_the_limit_passes_at_once),
        cmocka_unit_test(no_number_is_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
