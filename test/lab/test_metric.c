/* SPDX-License-Identifier: MIT
 * test/lab/test_metric.c - measures of series with known results. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "compare.h"
#include "lab/run.h"

#define SAMPLES 200 /* 20 bins of 1 s */
#define LIMIT 100.0

static struct weir_quota_sample samples[SAMPLES];
static struct weir_fleet_sample fleet[SAMPLES];
static struct weir_quota_series series = { "api", samples };
static struct weir_quota quotas[1];
static const struct weir_scenario scenario = {
    .span = SAMPLES * WEIR_SECOND / 10,
    .bin = WEIR_SECOND,
    .quotas = quotas,
    .quota_count = 1,
};
static struct weir_result result;

/* The limit passes, evenly. */
static int set_up(void **state)
{
    (void)state;
    quotas[0].name = weir_text_of("api");
    for (int i = 0; i < SAMPLES; i++) {
        samples[i] = (struct weir_quota_sample){
            .offered = 15,
            .passed = 10,
            .refused = 5,
            .ideal_passed = 9,
            .ideal_refused = 6,
            .limit_per_s = LIMIT,
        };
        fleet[i] = (struct weir_fleet_sample){
            .reports = 12,
            .messages = 24,
            .bytes = 600,
            .links = 6,
        };
    }
    result = (struct weir_result){
        .step = WEIR_SECOND / 10,
        .sample_count = SAMPLES,
        .quotas = &series,
        .quota_count = 1,
        .fleet = fleet,
    };
    return 0;
}

static double over(enum weir_metric metric, double from, double to)
{
    const struct weir_measure measure = {
        .metric = metric,
        .over = { (weir_duration)(from * 1e9), (weir_duration)(to * 1e9) },
    };
    return weir_metric_of(&scenario, &result, &measure);
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) < 1e-9))
        fail_msg("%.12g, not %.12g", value, expected);
}

static void test_a_steady_stream(void **state)
{
    (void)state;
    assert_near(over(WEIR_METRIC_OFFERED_MEAN, 0, 0), 1.5);
    assert_near(over(WEIR_METRIC_PASSED_MEAN, 0, 0), 1);
    assert_near(over(WEIR_METRIC_PASSED_SD, 0, 0), 0);
    assert_near(over(WEIR_METRIC_IDEAL_MEAN, 0, 0), 0.9);
    assert_near(over(WEIR_METRIC_REFUSED_SHARE, 0, 0), 1.0 / 3);
    assert_near(over(WEIR_METRIC_ONSET_EXCESS, 5, 10), 0.5);
    assert_near(over(WEIR_METRIC_ECHO, 0, 4), 2);
    assert_near(over(WEIR_METRIC_IDEAL_ECHO, 0, 4), 2.4);
    assert_near(over(WEIR_METRIC_REPORTS, 0, 0), 20);
    assert_near(over(WEIR_METRIC_MESSAGES, 0, 0), 40);
    assert_near(over(WEIR_METRIC_BYTES, 0, 0), 1000);
    assert_true(isnan(over(WEIR_METRIC_PERIOD_S, 0, 0)));
    assert_near(over(WEIR_METRIC_MAX_FILL_OVER_HIGH, 0, 0), 0);
}

/* Every other second 20 % more, and 20 % less. */
static void test_bins_are_judged_whole(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++)
        samples[i].passed = i / 10 % 2 ? 12 : 8;
    assert_near(over(WEIR_METRIC_PASSED_MEAN, 0, 0), 1);
    assert_near(over(WEIR_METRIC_PASSED_SD, 0, 0), 0.2);
    assert_near(over(WEIR_METRIC_PASSED_MIN, 0, 0), 0.8);
    assert_near(over(WEIR_METRIC_PASSED_MAX, 0, 0), 1.2);
    /* Only the bin 1 .. 2 is completely in 0.5 .. 2.5. */
    assert_near(over(WEIR_METRIC_PASSED_MEAN, 0.5, 2.5), 1.2);
    assert_true(isnan(over(WEIR_METRIC_PASSED_MEAN, 0.5, 1.9)));
    assert_near(over(WEIR_METRIC_PERIOD_S, 0, 0), 2);
}

/* If an edit changes the limit and passes follow it, that is no swing. */
static void test_the_limit_of_the_time_counts(void **state)
{
    (void)state;
    for (int i = 100; i < SAMPLES; i++) {
        samples[i].limit_per_s = 3 * LIMIT;
        samples[i].passed = 30;
    }
    assert_near(over(WEIR_METRIC_PASSED_SD, 0, 0), 0);
    assert_near(over(WEIR_METRIC_PASSED_MEAN, 0, 0), 1);
    const struct weir_measure against = { .metric = WEIR_METRIC_PASSED_MAX,
                                          .against_per_s = 2 * LIMIT };
    assert_near(weir_metric_of(&scenario, &result, &against), 1.5);
}

static void test_noise_is_no_swing(void **state)
{
    (void)state;
    struct weir_rng rng = { 1 };
    /* A triangle of 4 s with noise of two fifths of its height. */
    for (int i = 0; i < SAMPLES; i++) {
        double part = i % 40 / 40.0;
        double up = part < 0.5 ? 2 * part : 2 - 2 * part;
        samples[i].passed = 20 * up + 8 * weir_rng_unit(&rng);
    }
    double period = over(WEIR_METRIC_PERIOD_S, 0, 0);
    assert_compare(fabs(period - 4), <, 0.15);
}

static void test_the_end_of_an_echo(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++)
        samples[i].refused = i < 123 ? 5 : 0;
    assert_near(over(WEIR_METRIC_ECHO_S, 10, 0), 2.3);
    assert_near(over(WEIR_METRIC_ECHO_S, 15, 0), 0);
    assert_near(over(WEIR_METRIC_ECHO, 10, 0), 23 * 5 / LIMIT);
    /* A window that begins within a sample leaves it out. */
    assert_near(over(WEIR_METRIC_ECHO_S, 12.25, 0), 0);
}

static void test_most_is_of_the_window(void **state)
{
    (void)state;
    samples[30].over_high_most = 0.25;
    samples[60].over_high_most = 0.125;
    fleet[99].waiting_bytes = 77;
    assert_near(over(WEIR_METRIC_MAX_FILL_OVER_HIGH, 0, 0), 0.25);
    assert_near(over(WEIR_METRIC_MAX_FILL_OVER_HIGH, 4, 0), 0.125);
    assert_near(over(WEIR_METRIC_WAITING_BYTES, 0, 10), 77);
    samples[70].over_high_most = NAN; /* not measured: can't be judged */
    assert_true(isnan(over(WEIR_METRIC_MAX_FILL_OVER_HIGH, 0, 0)));
}

static void test_divergence_is_of_those_that_know(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++)
        samples[i].divergence = i < 100 ? NAN : 5;
    assert_near(over(WEIR_METRIC_DIVERGENCE, 0, 0), 0.05);
}

static void test_a_run_that_stopped_has_less(void **state)
{
    (void)state;
    result.sample_count = 55;
    assert_near(over(WEIR_METRIC_ECHO, 5, 0), 0.25);
    assert_true(isnan(over(WEIR_METRIC_ECHO, 10, 0)));
    assert_true(isnan(over(WEIR_METRIC_PASSED_MEAN, 10, 0)));
    assert_true(isnan(over(WEIR_METRIC_DIVERGENCE, 10, 0)));
    const struct weir_measure other = { .quota = "other" };
    assert_true(isnan(weir_metric_of(&scenario, &result, &other)));
}

static void test_comparisons(void **state)
{
    (void)state;
    static const struct {
        enum weir_comparison comparison;
        double below, equal, above;
    } cases[] = {
        { WEIR_IS_LESS, 1, 0, 0 },  { WEIR_IS_AT_MOST, 1, 1, 0 },
        { WEIR_IS_EQUAL, 0, 1, 0 }, { WEIR_IS_AT_LEAST, 0, 1, 1 },
        { WEIR_IS_MORE, 0, 0, 1 },  { WEIR_IS_WITHIN, 0, 1, 1 },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(cases); i++) {
        const struct weir_condition condition = {
            .comparison = cases[i].comparison, .value = 2, .value2 = 4
        };
        assert_true(weir_condition_holds(&condition, 1) == cases[i].below);
        assert_true(weir_condition_holds(&condition, 2) == cases[i].equal);
        assert_true(weir_condition_holds(&condition, 3) == cases[i].above);
        assert_false(weir_condition_holds(&condition, NAN));
    }
}

static void test_claims_are_of_their_variant(void **state)
{
    (void)state;
    struct weir_condition conditions[] = {
        { .at_end = true,
          .measure = { .metric = WEIR_METRIC_PASSED_MEAN },
          .comparison = WEIR_IS_EQUAL,
          .value = 1,
          .variant = "counted" },
        { .at_end = true,
          .measure = { .metric = WEIR_METRIC_PASSED_MEAN },
          .comparison = WEIR_IS_EQUAL,
          .value = 0.7,
          .variant = "static" },
    };
    struct weir_claim claim = { .conditions = conditions,
                                .condition_count = 2 };
    struct weir_scenario variant = scenario;
    variant.claims = &claim;
    variant.claim_count = 1;
    variant.variant = "counted";
    weir_result_judge(&variant, &result);
    assert_true(result.claims[0]);
    free(result.claims);
    free(result.measures);
    variant.variant = "static";
    weir_result_judge(&variant, &result);
    assert_false(result.claims[0]);
    free(result.claims);
    free(result.measures);
}

static void test_every_metric_is_computed(void **state)
{
    (void)state;
    for (int i = 0; i < WEIR_METRIC_COUNT; i++)
        over((enum weir_metric)i, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_steady_stream, set_up),
        cmocka_unit_test_setup(test_bins_are_judged_whole, set_up),
        cmocka_unit_test_setup(test_the_limit_of_the_time_counts, set_up),
        cmocka_unit_test_setup(test_noise_is_no_swing, set_up),
        cmocka_unit_test_setup(test_the_end_of_an_echo, set_up),
        cmocka_unit_test_setup(test_most_is_of_the_window, set_up),
        cmocka_unit_test_setup(test_divergence_is_of_those_that_know, set_up),
        cmocka_unit_test_setup(test_a_run_that_stopped_has_less, set_up),
        cmocka_unit_test_setup(test_comparisons, set_up),
        cmocka_unit_test_setup(test_claims_are_of_their_variant, set_up),
        cmocka_unit_test_setup(test_every_metric_is_computed, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
