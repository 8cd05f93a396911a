/* SPDX-License-Identifier: MIT
 * test_leaky.c - the bucket's arithmetic compared with exact rationals.
 *
 * A leak is 'units' every 'per' nanoseconds; the units that leak in t are units
 * * t / per, a rational that fits in 128 bits. The fixed-point leak must never
 * be below it, and above it by less than one 2^-frac. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/algorithm/leaky.h"
#include "table_maker.h"

#define YEAR (366ull * 86400 * WEIR_SECOND)

static uint64_t random_bits(struct weir_rng *rng, unsigned bits)
{
    uint64_t any = weir_rng_next(rng);
    unsigned wanted = (unsigned)weir_rng_below(rng, bits) + 1;
    return any >> (64 - wanted);
}

/* A rate from 1 a year to 10^11 a second. */
static void random_rate(struct weir_rng *rng, uint64_t *out_units,
                        weir_duration *out_per)
{
    weir_duration per = random_bits(rng, 55);
    per = per > 0 && per <= YEAR ? per : WEIR_SECOND;
    weir_u128 most = (weir_u128)per * 100;
    uint64_t units = random_bits(rng, 63) + 1;
    *out_units = units <= most ? units : (uint64_t)most;
    *out_per = per;
}

/* floor(a * b / c) and whether it is exact, by long division: a * b may have
 * 119 bits, shifted by 20 more it needs the parts. */
static weir_u128 exact_leak(uint64_t units, weir_duration per, unsigned frac,
                            uint64_t elapsed, bool *out_whole)
{
    weir_u128 product = (weir_u128)units * elapsed;
    weir_u128 quotient = product / per;
    weir_u128 rest = product % per;
    weir_u128 scaled = rest << frac;
    *out_whole = scaled % per == 0;
    return (quotient << frac) + scaled / per;
}

static void test_leak_is_exact_to_one(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("leak_is_exact");
    for (int i = 0; i < 200000; i++) {
        uint64_t units;
        weir_duration per;
        random_rate(&rng, &units, &per);
        uint64_t high = random_bits(&rng, 50);
        struct weir_bucket bucket;
        weir_bucket_init(&bucket, units, per, high / 2, high);
        uint64_t elapsed = random_bits(&rng, 60);
        bool whole;
        weir_u128 exact =
            exact_leak(units, per, bucket.leak.frac, elapsed, &whole);
        uint64_t got = weir_leaked(bucket.leak, elapsed);
        uint64_t above = got - (uint64_t)exact;
        assert_compare(above, <=, 1);
        if (whole)
            assert_int_equal(above, 0);
    }
}

static void test_scale_keeps_room_for_debt_and_a_year(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("scale_keeps_room");
    for (int i = 0; i < 100000; i++) {
        uint64_t units;
        weir_duration per;
        random_rate(&rng, &units, &per);
        uint64_t high = i % 3 ? random_bits(&rng, 50) : WEIR_BURST_MAX;
        uint64_t low = weir_rng_below(&rng, high + 1);
        struct weir_bucket bucket;
        weir_bucket_init(&bucket, units, per, low, high);
        unsigned frac = bucket.leak.frac;
        assert_compare(frac, <=, WEIR_FRAC_MAX);
        assert_compare(bucket.leak.whole, <, 128);
        assert_true(bucket.low == (int64_t)(low << frac));
        assert_true(bucket.high == (int64_t)(high << frac));
        weir_u128 most = ((weir_u128)high + WEIR_DEBT_MAX + WEIR_WEIGHT_MAX)
                         << frac;
        assert_compare(most, <=, (weir_u128)WEIR_SCALED_MAX);
        assert_compare(weir_leaked(bucket.leak, YEAR), <, (uint64_t)1 << 62);
        /* Slow limits have the finest scale. */
        if (units <= per >> 14 && high < (uint64_t)1 << 39)
            assert_int_equal(frac, WEIR_FRAC_MAX);
    }
}

static void test_leak_time_is_the_first_instant(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("leak_time");
    for (int i = 0; i < 100000; i++) {
        uint64_t units;
        weir_duration per;
        random_rate(&rng, &units, &per);
        struct weir_bucket bucket;
        weir_bucket_init(&bucket, units, per, 1, 1);
        int64_t scaled = (int64_t)random_bits(&rng, 61);
        weir_duration time = weir_leak_time(bucket.leak, scaled);
        if (time == WEIR_NEVER)
            continue;
        if (scaled <= 0) {
            assert_int_equal(time, 0);
            continue;
        }
        weir_u128 rate =
            ((weir_u128)bucket.leak.whole << 64) | bucket.leak.part;
        assert_compare(rate, >, 0);
        /* rate * time may pass 128 bits: compare the quotients. */
        weir_u128 wanted = (weir_u128)(uint64_t)scaled << 64;
        assert_compare(wanted / rate, <=, time);
        assert_true(time == wanted / rate + (wanted % rate != 0));
    }
}

static void test_leak_time_of_what_never_leaks(void **state)
{
    (void)state;
    struct weir_bucket bucket;
    weir_bucket_closed(&bucket);
    assert_true(weir_leak_time(bucket.leak, 1) == WEIR_NEVER);
    assert_true(weir_leak_time(bucket.leak, 0) == 0);
    assert_compare(bucket.high, <, 0);
    weir_bucket_open(&bucket);
    assert_true(bucket.high == WEIR_SCALED_MAX);
    assert_true(bucket.low == WEIR_SCALED_MAX);
    /* 10^11 a second are a hundred a nanosecond, without a fraction. */
    weir_bucket_init(&bucket, WEIR_LIMIT_MAX, WEIR_SECOND, 1, 1);
    assert_int_equal(bucket.leak.whole, 100);
    assert_int_equal(bucket.leak.frac, 0);
    /* Once a day: one unit takes a whole day. */
    weir_bucket_init(&bucket, 1, 86400 * WEIR_SECOND, 1, 1);
    assert_int_equal(bucket.leak.frac, WEIR_FRAC_MAX);
    weir_duration day = weir_leak_time(bucket.leak, bucket.high);
    assert_compare(day, <=, 86400 * WEIR_SECOND);
    assert_compare(day, >, 86399 * WEIR_SECOND);
}

static void test_rescale_never_loses_fill(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("rescale");
    for (int i = 0; i < 100000; i++) {
        unsigned from = (unsigned)weir_rng_below(&rng, WEIR_FRAC_MAX + 1);
        unsigned to = (unsigned)weir_rng_below(&rng, WEIR_FRAC_MAX + 1);
        int64_t fill = (int64_t)random_bits(&rng, 40);
        int64_t scaled = weir_rescale(fill, from, to);
        /* Both on the finest scale. */
        int64_t fine = fill << (WEIR_FRAC_MAX - from);
        int64_t rescaled = scaled << (WEIR_FRAC_MAX - to);
        assert_compare(rescaled, >=, fine);
        assert_compare(rescaled - fine, <, (int64_t)1 << (WEIR_FRAC_MAX - to));
    }
}

/* The bound of weir-quota(5): an edit forgives at most the former 'high' less
 * the new one, nothing of a debt, and nothing if 'high' isn't lowered. */
static void test_an_edit_forgives_the_difference_at_most(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("an_edit_forgives");
    for (int i = 0; i < 200000; i++) {
        int64_t before = (int64_t)random_bits(&rng, 61) - 1;
        int64_t high = (int64_t)random_bits(&rng, 61) - 1;
        int64_t fill = (int64_t)random_bits(&rng, 61);
        int64_t edited = weir_fill_edited(fill, before, high);
        int64_t from = before > 0 ? before : 0, to = high > 0 ? high : 0;
        assert_true(edited >= 0 && edited <= fill);
        assert_true(fill - edited <= (from > to ? from - to : 0));
        assert_true(fill < from || edited >= fill - from);
        if (fill <= from)
            assert_true(edited <= to);
    }
    assert_true(weir_fill_edited(900, 1000, 100) == 100);
    assert_true(weir_fill_edited(1100, 1000, 100) == 200);
    assert_true(weir_fill_edited(50, 1000, 100) == 50);
    assert_true(weir_fill_edited(900, 1000, -1) == 0);
    assert_true(weir_fill_edited(900, -1, 1000) == 900);
}

static void test_band_refuses_in_proportion(void **state)
{
    (void)state;
    /* All draws, evenly spaced: the fraction that refuses is the fill's
     * relative position in the band. */
    int64_t low = 1000, band = 640;
    for (int64_t over = -5; over <= band + 5; over++) {
        int refused = 0;
        for (uint64_t k = 0; k < 640; k++) {
            uint64_t chance = k * (UINT64_MAX / 640) + UINT64_MAX / 1280;
            refused += weir_band_refuses(low + over, low, band, chance);
        }
        int64_t expected = over < 0 ? 0 : over > band ? band : over;
        assert_compare(llabs(refused - expected), <=, 1);
    }
    assert_false(weir_band_refuses(low, low, band, 0));
    assert_true(weir_band_refuses(low + band, low, band, UINT64_MAX));
    assert_true(weir_band_refuses(low + 1, low, 0, UINT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leak_is_exact_to_one),
        cmocka_unit_test(test_scale_keeps_room_for_debt_and_a_year),
        cmocka_unit_test(test_leak_time_is_the_first_instant),
        cmocka_unit_test(test_leak_time_of_what_never_leaks),
        cmocka_unit_test(test_rescale_never_loses_fill),
        cmocka_unit_test(test_an_edit_forgives_the_difference_at_most),
        cmocka_unit_test(test_band_refuses_in_proportion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
