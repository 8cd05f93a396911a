/* SPDX-License-Identifier: MIT
 * test/lab/test_model_adaptive.c - the scenarios adaptive-*: the claims of
 * each, and the plant itself at fixed limits.
 *
 * The claims are the figures of the article's experiment in simulations by
 * others, with the tolerances given there, and the promises of the target
 * controller. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model_runs.h"
#include "seed.h"

static struct weir_lab_script *read_builtin(const char *name)
{
    struct weir_diag diag = { 0 };
    struct weir_lab_script *script =
        weir_script_read("x.weir", weir_text_of(builtin_text(name)), &diag);
    if (!script)
        fail_msg("%s:%u: %s", name, diag.line, diag.text);
    return script;
}

static struct ran build_one(const struct weir_lab_script *script,
                            size_t variant)
{
    struct weir_diag diag = { 0 };
    struct ran ran = { .scenario =
                           weir_scenario_build(script, variant, &diag) };
    if (!ran.scenario)
        fail_msg("%u:%u: %s", diag.line, diag.column, diag.text);
    return ran;
}

static void run(struct ran *ran)
{
    struct weir_diag diag = { 0 };
    const struct weir_run_options options = { .seed = from_environment(
                                                  "WEIR_SEED", 1) };
    ran->result = weir_run_simulated(ran->scenario, &options, &diag);
    assert_non_null(ran->result);
}

static struct ran run_one(const struct weir_lab_script *script, size_t variant)
{
    struct ran ran = build_one(script, variant);
    run(&ran);
    return ran;
}

#define NEAR(a, b, by) assert_true((a) >= (b) - (by) && (a) <= (b) + (by))

/* ---- The plant ---- */

static void a_fixed_limit_admits_what_is_known_of_it(void **state)
{
    (void)state;
    static const struct {
        const char *initial;
        double admitted, p95_ms;
    } rows[] = {
        { "initial=1", 15, 54 },       { "initial=2", 22.22, 82.8 },
        { "initial=3", 28.12, 104.4 }, { "initial=4", 33.04, 122.4 },
        { "initial=5", 37.06, 136.8 }, { "initial=6", 40.12, 147.6 },
        { "initial=7", 43.75, 158.4 }, { "initial=8", 46.15, 169.2 },
        { "initial=9", 48.58, 176.4 }, { "initial=10", 51.4, 187.2 },
        { "initial=11", 55, 198 },     { "initial=12", 56.25, 205.2 },
        { "initial=13", 59.34, 216 },  { "initial=16", 66.13, 241.2 },
        { "initial=20", 74.21, 270 },  { "initial=21", 75, 270 },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        struct weir_lab_script *script = read_builtin("adaptive-none");
        assert_int_equal(weir_script_set(script, rows[i].initial, NULL), 0);
        struct ran ran = run_one(script, 0);
        weir_script_free(script);
        NEAR(metric_of(&ran, "passed_rps"), rows[i].admitted, 0.05);
        NEAR(metric_of(&ran, "p95_ms"), rows[i].p95_ms, 0.05);
        ran_free(&ran);
    }
}

/* From its start, before it has settled. */
static void the_percentiles_first_limits(void **state)
{
    (void)state;
    static const double limits[] = { 26, 13, 6, 7, 8, 9, 10, 11, 12, 6 };
    struct weir_lab_script *script = read_builtin("adaptive-percentile");
    struct ran ran = run_one(script, 0);
    weir_script_free(script);
    const struct weir_model_series *series = ran.scenario->model->series;
    size_t of = 0;
    while (strcmp(series[of].name, "limit") != 0)
        of++;
    const double *seen = ran.result->model_series[of];
    size_t at = 0;
    for (size_t i = 0; i < WEIR_COUNT_OF(limits); i++) {
        assert_true(seen[at] == limits[i]);
        while (seen[at] == limits[i])
            at++;
    }
    ran_free(&ran);
}

static void the_same_seed_is_the_same_run(void **state)
{
    (void)state;
    struct weir_lab_script *script = read_builtin("adaptive-percentile");
    struct ran one = run_one(script, 1);
    struct ran two = run_one(script, 1);
    weir_script_free(script);
    const struct weir_model *model = one.scenario->model;
    for (size_t i = 0; model->metrics[i].name; i++)
        assert_memory_equal(&one.result->model_metrics[i],
                            &two.result->model_metrics[i], sizeof(double));
    assert_int_equal(one.result->events, two.result->events);
    ran_free(&one);
    ran_free(&two);
}

/* ---- The claims ---- */

/* Wishes that can't be met together with the target, as adaptive-scale.weir
 * explains; and the last one isn't met without a hang either. */
static const char *const wishes[] = {
    "target, 10: of 55.6/s, 52 evenly, 49 by chance",
    "target, 20: of 55.6/s, 52 evenly, 49 by chance",
    "target, 10: of 55.6/s, 52 evenly, 49 by chance, then too",
    "target, 20: of 55.6/s, 52 evenly, 49 by chance, then too",
    "3, after 10 s: within 15 %, in each run",
};

static bool is_wish(const char *text)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(wishes); i++)
        if (strcmp(text, wishes[i]) == 0)
            return true;
    return false;
}

/* Some files are for fleets of one to twenty: sizes in between give no
 * surprise, and run only with WEIR_DEEP=1. */
static bool is_between(const char *variant)
{
    static const char *const fleets[] = { "instances=2", "instances=3",
                                          "instances=5", "instances=10" };
    size_t len = variant ? strlen(variant) : 0;
    for (size_t i = 0; i < WEIR_COUNT_OF(fleets); i++) {
        size_t end = strlen(fleets[i]);
        if (len >= end && strcmp(variant + len - end, fleets[i]) == 0)
            return !getenv("WEIR_DEEP");
    }
    return false;
}

static void holds_all(void **state)
{
    const char *name = *state;
    struct weir_lab_script *script = read_builtin(name);
    size_t refuted = 0;
    for (size_t v = 0; v < weir_script_variants(script); v++) {
        struct ran ran = build_one(script, v);
        if (is_between(ran.scenario->variant)) {
            weir_scenario_free(ran.scenario);
            continue;
        }
        run(&ran);
        for (size_t i = 0; i < ran.scenario->claim_count; i++) {
            const char *text = ran.scenario->claims[i].text;
            if (ran.result->claims[i] || is_wish(text))
                continue;
            print_error("WEIR_SEED=%llu %s, %s: %s\n",
                        (unsigned long long)from_environment("WEIR_SEED", 1),
                        name, ran.scenario->variant, text);
            refuted++;
        }
        ran_free(&ran);
    }
    weir_script_free(script);
    assert_int_equal(refuted, 0);
}

#define HOLDS(name)                                               \
    {                                                             \
        "adaptive-" name, holds_all, NULL, NULL, "adaptive-" name \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fixed_limit_admits_what_is_known_of_it),
        cmocka_unit_test(the_percentiles_first_limits),
        cmocka_unit_test(the_same_seed_is_the_same_run),
        HOLDS("none"),
        HOLDS("request"),
        HOLDS("percentile"),
        HOLDS("guard"),
        HOLDS("scale"),
        HOLDS("join"),
        HOLDS("floor"),
        HOLDS("burst"),
        HOLDS("step"),
        HOLDS("hang"),
        HOLDS("hang-pool"),
        HOLDS("pool"),
        HOLDS("classes"),
        HOLDS("retry"),
        HOLDS("static"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
