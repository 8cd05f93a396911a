/* SPDX-License-Identifier: MIT
 * test/core/quota/test_units.c - limits, bursts and durations as texts. */

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "quota_maker.h"

static struct weir_limit limit_of(const char *text)
{
    struct weir_limit limit = { 0 };
    struct weir_diag diag = { 0 };
    int error = weir_limit_parse(weir_text_of(text), &limit, &diag);
    if (error < 0)
        fail_msg("'%s': %s", text, diag.text);
    return limit;
}

static void check_limit(const char *text, uint64_t units, weir_duration per,
                        const char *printed)
{
    struct weir_limit limit = limit_of(text);
    assert_false(limit.unlimited);
    assert_int_equal(limit.units, units);
    assert_int_equal(limit.per, per);
    char buf[64];
    buf[weir_limit_format(&limit, buf, 63)] = '\0';
    assert_string_equal(buf, printed);
}

#define MINUTE (60 * WEIR_SECOND)
#define DAY (86400 * WEIR_SECOND)

static void limits_mean_what_people_write(void **state)
{
    (void)state;
    check_limit("100/s", 100, WEIR_SECOND, "100/s");
    check_limit("90000/s", 90000, WEIR_SECOND, "90000/s");
    check_limit("100MiB/s", 104857600, WEIR_SECOND, "100MiB/s");
    check_limit("104857600/s", 104857600, WEIR_SECOND, "100MiB/s");
    check_limit("100Mi/s", 104857600, WEIR_SECOND, "100MiB/s");
    check_limit("100/min", 100, MINUTE, "100/min");
    check_limit("60/min", 60, MINUTE, "60/min");
    check_limit("1.5/s", 3, 2 * WEIR_SECOND, "3/2s");
    check_limit("1.50/s", 3, 2 * WEIR_SECOND, "3/2s");
    check_limit("0.1/3s", 1, 30 * WEIR_SECOND, "1/30s");
    check_limit("1.5k/h", 1500, 60 * MINUTE, "1500/h");
    check_limit("3/10s", 3, 10 * WEIR_SECOND, "3/10s");
    check_limit(" 2 k / 1.5 s ", 2000, 1500 * WEIR_MILLISECOND, "2000/1500ms");
    check_limit("1/day", 1, DAY, "1/day");
    check_limit("1/d", 1, DAY, "1/day");
    check_limit("7/2d", 7, 2 * DAY, "7/2d");
    check_limit("1/week", 1, 7 * DAY, "1/w");
    check_limit("1000/month", 1000, 30 * DAY, "1000/30d");
    check_limit("5/2month", 5, 60 * DAY, "5/60d");
    check_limit("0", 0, WEIR_SECOND, "0");
    check_limit("0/s", 0, WEIR_SECOND, "0");
    check_limit("100G/s", WEIR_LIMIT_MAX, WEIR_SECOND, "100G/s");
    check_limit("1/366d", 1, WEIR_PERIOD_MAX, "1/366d");
    check_limit("100/ns", 100, 1, "100/ns");
    assert_true(limit_of("unlimited").unlimited);
}

/* The message must name the error, not only report one. */
static void refuse(const char *text, const char *sentence)
{
    struct weir_limit limit = { 7, 7, false };
    struct weir_diag diag = { 0 };
    int error = weir_limit_parse(weir_text_of(text), &limit, &diag);
    if (error != WEIR_EQUOTA)
        fail_msg("'%s' gave %d", text, error);
    if (!strstr(diag.text, sentence))
        fail_msg("'%s' gave: %s", text, diag.text);
    assert_int_equal(limit.units, 7);
}

static void bad_limits_get_their_own_sentence(void **state)
{
    (void)state;
    refuse("", "is empty");
    refuse("   ", "is empty");
    refuse("-1/s", "is negative");
    refuse("NaN", "is not a number");
    refuse("nan/s", "is not a number");
    refuse("inf", "write limit=unlimited");
    refuse("Infinity/s", "write limit=unlimited");
    refuse("100", "has no period");
    refuse("100/", "period after '/' is missing");
    refuse("100/0s", "1 ns to 366 days");
    refuse("1/367d", "1 ns to 366 days");
    refuse("1/-5s", "is negative");
    refuse("100/parsec", "is no period");
    refuse("100x/s", "is no factor");
    refuse("1e5/s", "is no factor");
    refuse("abc", "doesn't begin with a number");
    refuse("101G/s", "above 100G/s");
    refuse("100000000001/s", "above 100G/s");
    refuse("101/ns", "above 100G/s");
    refuse("99999999999999999999/s", "above 100G/s");
    refuse("0.000000000000000000001/s", "can't be kept exactly");
    refuse("11111111111111111111111/s", "more than 22 digits");
    refuse("1/0.5ns", "finer than a nanosecond");
    refuse("1/9999999999999999999w", "584 years");
    refuse("1.2.3/s", "is no factor");
}

static void a_limit_is_read_back_as_printed(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("limits");
    for (int i = 0; i < 200000; i++) {
        struct weir_limit limit = make_limit(&rng);
        char buf[64];
        size_t len = weir_limit_format(&limit, buf, sizeof(buf));
        struct weir_limit back = { 0 };
        struct weir_text text = { buf, len };
        if (weir_limit_parse(text, &back, NULL) < 0 ||
            back.unlimited != limit.unlimited || back.units != limit.units ||
            back.per != limit.per)
            fail_msg("%.*s", (int)len, buf);
    }
}

static void a_burst_is_read_back_as_printed(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("bursts");
    for (int i = 0; i < 200000; i++) {
        struct weir_burst burst = make_burst(&rng);
        char buf[64];
        size_t len = weir_burst_format(&burst, buf, sizeof(buf));
        struct weir_burst back = { 0 };
        struct weir_text text = { buf, len };
        if (weir_burst_parse(text, &back, NULL) < 0 || back.unset ||
            back.in_time != burst.in_time || back.amount != burst.amount)
            fail_msg("%.*s", (int)len, buf);
    }
}

static void check_duration(const char *text, weir_duration duration,
                           const char *printed)
{
    weir_duration read = 1;
    assert_int_equal(weir_duration_parse(weir_text_of(text), &read, NULL), 0);
    assert_int_equal(read, duration);
    char buf[64];
    buf[weir_duration_format(read, buf, 63)] = '\0';
    assert_string_equal(buf, printed);
}

static void durations(void **state)
{
    (void)state;
    check_duration("1s", WEIR_SECOND, "1s");
    check_duration("1.5 s", 1500 * WEIR_MILLISECOND, "1.5s");
    check_duration("20ms", 20 * WEIR_MILLISECOND, "20ms");
    check_duration("1500ms", 1500 * WEIR_MILLISECOND, "1.5s");
    check_duration("90s", 90 * WEIR_SECOND, "90s");
    check_duration("120s", 120 * WEIR_SECOND, "2min");
    check_duration("0s", 0, "0s");
    check_duration("3\xC2\xB5s", 3000, "3us");
}

static void durations_refused(void **state)
{
    (void)state;
    weir_duration out = 5;
    struct weir_diag diag;
    assert_int_equal(weir_duration_parse(WEIR_TEXT("20"), &out, &diag),
                     WEIR_EQUOTA);
    assert_non_null(strstr(diag.text, "has no unit"));
    assert_int_equal(weir_duration_parse(WEIR_TEXT("-1s"), &out, &diag),
                     WEIR_EQUOTA);
    assert_int_equal(
        weir_duration_parse(WEIR_TEXT("18446744073.709551616s"), &out, &diag),
        WEIR_EQUOTA);
    assert_int_equal(out, 5);
    assert_int_equal(
        weir_duration_parse(WEIR_TEXT("18446744073.709551615s"), &out, &diag),
        0);
    assert_true(out == WEIR_NEVER);
}

static void bursts_and_units(void **state)
{
    (void)state;
    struct weir_burst burst;
    assert_int_equal(weir_burst_parse(WEIR_TEXT("1Mi"), &burst, NULL), 0);
    assert_false(burst.in_time);
    assert_int_equal(burst.amount, 1 << 20);
    assert_int_equal(weir_burst_parse(WEIR_TEXT("1.5Ki"), &burst, NULL), 0);
    assert_int_equal(burst.amount, 1536);
    assert_int_equal(weir_burst_parse(WEIR_TEXT("200ms"), &burst, NULL), 0);
    assert_true(burst.in_time);
    struct weir_diag diag;
    assert_int_equal(weir_burst_parse(WEIR_TEXT("1.5"), &burst, &diag),
                     WEIR_EQUOTA);
    assert_non_null(strstr(diag.text, "whole number"));
    assert_int_equal(weir_burst_parse(WEIR_TEXT("367d"), &burst, &diag),
                     WEIR_EQUOTA);
    assert_int_equal(weir_burst_parse(WEIR_TEXT("2000T"), &burst, &diag),
                     WEIR_EQUOTA);
    uint64_t units;
    assert_int_equal(weir_units_parse(WEIR_TEXT("4Ki"), &units, NULL), 0);
    assert_int_equal(units, 4096);
    assert_int_equal(weir_units_parse(WEIR_TEXT("10M"), &units, NULL), 0);
    assert_int_equal(units, 10000000);
    assert_int_equal(weir_units_parse(WEIR_TEXT("4s"), &units, NULL),
                     WEIR_EQUOTA);
}

/* ---- Limits as numbers ---- */

static void check_rate(double rate, int wanted, const char *printed)
{
    struct weir_limit limit;
    if (weir_limit_of_rate(rate, &limit) != wanted)
        fail_msg("%.17g", rate);
    char buf[64];
    buf[weir_limit_format(&limit, buf, 63)] = '\0';
    assert_string_equal(buf, printed);
    assert_true(wanted == 1 || weir_limit_rate(&limit) == rate);
}

static void rates_have_the_digits_that_people_write(void **state)
{
    (void)state;
    check_rate(0, 0, "0");
    check_rate(-0.0, 0, "0");
    check_rate(500, 0, "500/s");
    check_rate(0.1, 0, "1/10s");
    check_rate(2.5, 0, "5/2s");
    check_rate(33.333, 0, "33333/1000s");
    check_rate(1e-7, 0, "1/10000000s");
    check_rate(1.0 / 3, 0, "1/3s");
    check_rate(1.0 / 86400, 0, "1/day");
    check_rate(1e11, 0, "100G/s");
    check_rate(99999999999.5, 0, "199999999999/2s");
    check_rate(1.0000001e11, 1, "100G/s");
    check_rate(1.7976931348623157e308, 1, "100G/s");
    check_rate(3e-8, 1, "1/366d");
    check_rate(1e-8, 1, "0");
    check_rate(4.9406564584124654e-324, 1, "0");
    struct weir_limit limit = { 7, 7, false };
    assert_int_equal(weir_limit_of_rate(NAN, &limit), WEIR_EINVAL);
    assert_int_equal(weir_limit_of_rate(INFINITY, &limit), WEIR_EINVAL);
    assert_int_equal(weir_limit_of_rate(-1, &limit), WEIR_EINVAL);
    assert_int_equal(limit.units, 7);
    assert_true(weir_limit_rate(&(struct weir_limit){ .unlimited = true }) ==
                1e11);
}

/* Compared with long double, whose 64 bits decide between two doubles unless
 * both are equally near. */
static void a_limit_is_its_nearest_rate(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("rates of limits");
    for (int i = 0; i < 200000; i++) {
        struct weir_limit limit = make_limit(&rng);
        if (limit.unlimited)
            continue;
        double rate = weir_limit_rate(&limit);
        long double exact =
            (long double)limit.units * 1e9L / (long double)limit.per;
        long double off = fabsl((long double)rate - exact);
        long double half = (nextafter(rate, INFINITY) - rate) / 2;
        if (off > half * (1 + 0x1p-9L))
            fail_msg("%" PRIu64 " in %" PRIu64, limit.units, limit.per);
    }
}

/* Any double of the range, all exponents equally often, and digits as they
 * occur in files. */
static void a_rate_comes_back_from_its_limit(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("rates");
    for (int i = 0; i < 200000; i++) {
        double rate = ldexp((double)(weir_rng_next(&rng) >> 11 | 1),
                            (int)weir_rng_below(&rng, 61) - 77);
        if (weir_rng_below(&rng, 2))
            rate = (double)weir_rng_below(&rng, 1000000000) /
                   pow(10, (double)weir_rng_below(&rng, 10));
        struct weir_limit limit;
        int got = weir_limit_of_rate(rate, &limit);
        struct weir_quota quota;
        weir_quota_init(&quota);
        quota.name = WEIR_TEXT("a");
        quota.limit = limit;
        if (got < 0 || weir_quota_check(&quota, NULL) < 0)
            fail_msg("%.17g", rate);
        bool beyond = rate > 1e11 || (rate > 0 && rate < 1e9 / 31622400e9);
        if (got != beyond || (!beyond && weir_limit_rate(&limit) != rate))
            fail_msg("%.17g gave %d and %.17g", rate, got,
                     weir_limit_rate(&limit));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_mean_what_people_write),
        cmocka_unit_test(bad_limits_get_their_own_sentence),
        cmocka_unit_test(a_limit_is_read_back_as_printed),
        cmocka_unit_test(a_burst_is_read_back_as_printed),
        cmocka_unit_test(durations),
        cmocka_unit_test(durations_refused),
        cmocka_unit_test(bursts_and_units),
        cmocka_unit_test(rates_have_the_digits_that_people_write),
        cmocka_unit_test(a_limit_is_its_nearest_rate),
        cmocka_unit_test(a_rate_comes_back_from_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
