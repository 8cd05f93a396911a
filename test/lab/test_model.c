/* SPDX-License-Identifier: MIT
 * test/lab/test_model.c - scenarios that aren't fleets: the statement, and the
 * results that the lab's own models must give with any seed. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "model_runs.h"
#include "seed.h"

static struct weir_lab_script *read_text(const char *text)
{
    struct weir_diag diag = { 0 };
    struct weir_lab_script *script =
        weir_script_read("x.weir", weir_text_of(text), &diag);
    if (!script)
        fail_msg("%u:%u: %s", diag.line, diag.column, diag.text);
    return script;
}

/* ---- The statement ---- */

static void refused(const char *text, uint32_t line, uint32_t column,
                    const char *words)
{
    struct weir_diag diag = { 0 };
    struct weir_lab_script *script = read_text(text);
    assert_null(weir_scenario_build(script, 0, &diag));
    if (diag.line != line || diag.column != column || !strstr(diag.text, words))
        fail_msg("%u:%u: %s", diag.line, diag.column, diag.text);
    weir_script_free(script);
}

static void what_cant_be_meant_is_refused_at_the_word(void **state)
{
    (void)state;
    refused("title \"t\"\nmodel boundry\nrun 1min\n", 2, 7,
            "did you mean 'boundary'?");
    refused("title \"t\"\nmodel boundary limmit=3\nrun 1min\n", 2, 16,
            "did you mean 'limit'?");
    refused("title \"t\"\nmodel boundary limit=0\nrun 1min\n", 2, 22, "");
    refused("title \"t\"\nmodel boundary algorithm=tokens\nrun 1min\n", 2, 26,
            "token_bucket");
    refused("title \"t\"\nmodel boundary limit\nrun 1min\n", 2, 16,
            "key=value");
    refused("title \"t\"\nroots 3\nmodel boundary\nrun 1min\n", 3, 1,
            "replaces the fleet");
    refused("title \"t\"\nmodel boundary\nroots 3\nrun 1min\n", 3, 1,
            "is of a fleet");
    refused("title \"t\"\nmodel boundary\nrun 1min\nat 1s kill root1\n", 4, 1,
            "is of a fleet");
    refused("title \"t\"\nmodel boundary\nrun 1min\nmeasure passed_mena\n", 4,
            9, "passed_mean");
    refused("title \"t\"\nmodel boundary\nrun 1min\n"
            "measure passed_max over 1s..2s\n",
            4, 20, "over");
    refused("title \"t\"\nmodel boundary\nrun 1min\n"
            "figure \"f\" passt\n",
            4, 12, "did you mean 'passed'?");
}

/* ---- Running the program's own models ---- */

/* One variant of one of the program's own scenarios. */
static struct ran run_variant(const char *name, const char *variant)
{
    struct weir_lab_script *script = read_text(builtin_text(name));
    struct weir_diag diag = { 0 };
    struct ran ran = { NULL, NULL };
    for (size_t i = 0; !ran.scenario && i < weir_script_variants(script); i++) {
        ran.scenario = weir_scenario_build(script, i, &diag);
        assert_non_null(ran.scenario);
        if (strcmp(ran.scenario->variant, variant) == 0)
            break;
        weir_scenario_free(ran.scenario);
        ran.scenario = NULL;
    }
    assert_non_null(ran.scenario);
    weir_script_free(script);
    const struct weir_run_options options = { .seed = seed_or(1) };
    ran.result = weir_run_simulated(ran.scenario, &options, &diag);
    assert_non_null(ran.result);
    return ran;
}

static double value(const struct ran *ran, const char *measure)
{
    for (size_t i = 0; i < ran->scenario->measure_count; i++)
        if (strcmp(ran->scenario->measures[i].name, measure) == 0)
            return ran->result->measures[i];
    fail_msg("no measure %s", measure);
    return NAN;
}

static void within(const struct ran *ran, const char *measure, double low,
                   double high)
{
    double found = value(ran, measure);
    if (!(found >= low && found <= high))
        fail_msg("%s %s is %g, not within %g..%g", ran->scenario->variant,
                 measure, found, low, high);
}

static void a_bucket_and_a_queue_pace_evenly(void **state)
{
    (void)state;
    static const char *const even[] = { "leaky_queue", "token_bucket" };
    for (size_t i = 0; i < WEIR_COUNT_OF(even); i++) {
        struct ran ran = run_variant("pacing", even[i]);
        within(&ran, "peak_100ms", 100, 101);
        within(&ran, "max_1s", 1000, 1001);
        within(&ran, "stalled_peak_100ms", 100, 101);
        within(&ran, "stalled_max_1s", 1000, 1001);
        ran_free(&ran);
    }
}

static void windows_let_go_in_spikes(void **state)
{
    (void)state;
    struct ran ran = run_variant("pacing", "fixed_window");
    within(&ran, "peak_100ms", 1000, 1000);
    ran_free(&ran);
    ran = run_variant("pacing", "sliding_log");
    within(&ran, "peak_100ms", 1000, 1000);
    within(&ran, "max_1s", 1000, 1000);
    ran_free(&ran);
}

static void an_estimate_is_the_better_the_finer_it_is(void **state)
{
    (void)state;
    static const char *const order[] = { "fixed_window", "sliding_1",
                                         "sliding_4", "sliding_60",
                                         "sliding_log" };
    double before = INFINITY;
    for (size_t i = 0; i < WEIR_COUNT_OF(order); i++) {
        struct ran ran = run_variant("windows", order[i]);
        double error = value(&ran, "error_mean");
        if (error >= before)
            fail_msg("%s is wrong by %g, %s by %g", order[i], error,
                     order[i - 1], before);
        before = error;
        ran_free(&ran);
    }
    assert_compare(before, <=, 1e-9);
}

static void an_edge_lets_twice_the_limit_pass_only_there(void **state)
{
    (void)state;
    struct ran ran = run_variant("boundary", "fixed_window");
    within(&ran, "passed_max", 1.98, 2);
    ran_free(&ran);
    ran = run_variant("boundary", "sliding_log");
    within(&ran, "passed_max", 0.99, 1);
    ran_free(&ran);
}

static void jitter_spreads_those_who_wait(void **state)
{
    (void)state;
    struct ran ran = run_variant("stampede", "none");
    double at_once = value(&ran, "peak_10ms");
    ran_free(&ran);
    ran = run_variant("stampede", "quarter");
    within(&ran, "peak_10ms", 1, at_once / 20);
    ran_free(&ran);
}

static void an_atomic_step_is_exact_and_a_race_isnt(void **state)
{
    (void)state;
    static const char *const exact[] = { "atomic", "locked" };
    for (size_t i = 0; i < WEIR_COUNT_OF(exact); i++) {
        struct ran ran = run_variant("architectures", exact[i]);
        within(&ran, "passed_max", 0.999, 1);
        within(&ran, "passed", 0.999, 1.001);
        ran_free(&ran);
    }
    struct ran ran = run_variant("architectures", "get_then_set");
    within(&ran, "passed", 1.01, 3);
    ran_free(&ran);
    ran = run_variant("architectures", "counted");
    within(&ran, "passed", 0.97, 1.03);
    within(&ran, "latency_ms", 0, 0);
    ran_free(&ran);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cant_be_meant_is_refused_at_the_word),
        cmocka_unit_test(a_bucket_and_a_queue_pace_evenly),
        cmocka_unit_test(windows_let_go_in_spikes),
        cmocka_unit_test(an_estimate_is_the_better_the_finer_it_is),
        cmocka_unit_test(an_edge_lets_twice_the_limit_pass_only_there),
        cmocka_unit_test(jitter_spreads_those_who_wait),
        cmocka_unit_test(an_atomic_step_is_exact_and_a_race_isnt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
