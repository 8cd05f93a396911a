/* SPDX-License-Identifier: MIT
 * test/lab/test_run.c - scenarios by hand, run in virtual time: the same seed
 * gives the same bytes, a fleet holds its limit, the director obeys, and
 * expectations are judged. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "compare.h"
#include "lab/run.h"
#include "seed.h"

#define QUOTAS_MAX 4
#define LOADS_MAX 2
#define ACTIONS_MAX 16
#define CONDITIONS_MAX 4

/* A scenario with memory for its parts. */
struct made {
    struct weir_scenario scenario;
    struct weir_quota quotas[QUOTAS_MAX];
    struct weir_load loads[LOADS_MAX];
    struct weir_rate_step steps[LOADS_MAX][4];
    struct weir_action actions[ACTIONS_MAX];
    struct weir_condition always[CONDITIONS_MAX];
    struct weir_condition expects[CONDITIONS_MAX];
    struct weir_measure measures[CONDITIONS_MAX];
};

static void make(struct made *made, uint32_t limiters, uint32_t roots,
                 weir_duration span)
{
    *made = (struct made){
        .scenario = {
            .name = "made",
            .title = "made by hand",
            .limiters = limiters,
            .limiters_started = limiters,
            .roots = roots,
            .slots = 64,
            .net = { .delay = WEIR_MILLISECOND / 2 },
            .node = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
            .span = span,
            .bin = WEIR_SECOND,
            .quotas = made->quotas,
            .loads = made->loads,
            .actions = made->actions,
            .always = made->always,
            .expects = made->expects,
            .measures = made->measures,
        },
    };
}

static struct weir_quota *add_quota(struct made *made, const char *name,
                                    uint64_t units)
{
    struct weir_quota *quota = &made->quotas[made->scenario.quota_count++];
    weir_quota_init(quota);
    quota->name = weir_text_of(name);
    quota->limit = (struct weir_limit){ .units = units, .per = WEIR_SECOND };
    return quota;
}

/* A load, as a multiple of the limit. */
static struct weir_load *add_load(struct made *made, const char *quota,
                                  double times)
{
    size_t at = made->scenario.load_count++;
    made->steps[at][0] =
        (struct weir_rate_step){ .per_s = times, .times_limit = true };
    made->loads[at] = (struct weir_load){
        .name = "users",
        .quota = (char *)quota,
        .steps = made->steps[at],
        .step_count = 1,
        .keys = 1,
        .weight_min = 1,
        .weight_max = 1,
        .on = { .last = made->scenario.limiters - 1 },
    };
    return &made->loads[at];
}

static void add_step(struct made *made, size_t load, weir_duration at,
                     double times)
{
    made->steps[load][made->loads[load].step_count++] = (struct weir_rate_step){
        .at = at, .per_s = times, .times_limit = true
    };
}

static struct weir_action *add_action(struct made *made, weir_duration at,
                                      enum weir_action_kind kind)
{
    struct weir_action *action = &made->actions[made->scenario.action_count++];
    *action = (struct weir_action){
        .at = at, .kind = kind, .some = true, .text = "an action"
    };
    return action;
}

static struct weir_action *expect(struct made *made, weir_duration at,
                                  enum weir_quantity quantity,
                                  enum weir_comparison comparison, double value,
                                  weir_duration within)
{
    struct weir_action *action = add_action(made, at, WEIR_ACTION_EXPECT);
    action->span = within;
    action->condition = (struct weir_condition){
        .quantity = quantity,
        .comparison = comparison,
        .value = value,
        .text = "an expectation",
    };
    return action;
}

static void measure(struct made *made, enum weir_metric metric,
                    weir_duration from, weir_duration to)
{
    made->measures[made->scenario.measure_count++] = (struct weir_measure){
        .name = "measured", .metric = metric, .over = { from, to }
    };
}

static struct weir_result *run_seed(const struct made *made, uint64_t number)
{
    const struct weir_run_options options = { .seed = number, .check = true };
    struct weir_diag diag;
    struct weir_result *result =
        weir_run_simulated(&made->scenario, &options, &diag);
    if (!result)
        fail_msg("%s", diag.text);
    if (result->violation)
        fail_msg("%s", result->violation);
    return result;
}

static struct weir_result *run(const struct made *made)
{
    return run_seed(made, seed_or(1));
}

/* The step of load in the README's table. */
static void make_fleet(struct made *made)
{
    make(made, 50, 3, 60 * WEIR_SECOND);
    add_quota(made, "api", 1000);
    add_load(made, "api", 0.5);
    add_step(made, 0, 10 * WEIR_SECOND, 3);
    add_step(made, 0, 40 * WEIR_SECOND, 0.5);
}

static void test_a_fleet_holds_its_limit(void **state)
{
    (void)state;
    static struct made made;
    make_fleet(&made);
    const weir_duration s = WEIR_SECOND;
    measure(&made, WEIR_METRIC_PASSED_MEAN, 15 * s, 40 * s);
    measure(&made, WEIR_METRIC_PASSED_SD, 15 * s, 40 * s);
    measure(&made, WEIR_METRIC_IDEAL_MEAN, 15 * s, 40 * s);
    measure(&made, WEIR_METRIC_IDEAL_SD, 15 * s, 40 * s);
    struct weir_result *result = run(&made);
    print_message("passed %.4f sd %.4f, ideal %.4f sd %.4f; %.2f s, "
                  "%llu events, %llu takes\n",
                  result->measures[0], result->measures[1], result->measures[2],
                  result->measures[3], result->wall_s,
                  (unsigned long long)result->events,
                  (unsigned long long)result->takes);
    assert_compare(fabs(result->measures[0] - 1), <, 0.02);
    assert_compare(fabs(result->measures[2] - 1), <, 0.01);
    assert_compare(result->measures[3], <, 0.03);
    weir_result_free(result);
}

/* Compares bytes: NaN is equal to NaN here. */
static void assert_same(const struct weir_result *a,
                        const struct weir_result *b)
{
    assert_int_equal(a->events, b->events);
    assert_int_equal(a->takes, b->takes);
    assert_int_equal(a->sample_count, b->sample_count);
    assert_int_equal(a->quota_count, b->quota_count);
    for (size_t i = 0; i < a->quota_count; i++)
        assert_memory_equal(a->quotas[i].samples, b->quotas[i].samples,
                            a->sample_count * sizeof(struct weir_quota_sample));
    assert_memory_equal(a->fleet, b->fleet,
                        a->sample_count * sizeof(struct weir_fleet_sample));
}

static void test_one_seed_is_one_run(void **state)
{
    (void)state;
    static struct made made;
    make(&made, 5, 2, 10 * WEIR_SECOND);
    add_quota(&made, "api", 200);
    struct weir_load *load = add_load(&made, "api", 2);
    load->spread = WEIR_SPREAD_ZIPF;
    load->skew = 1;
    made.scenario.net.loss = 0.02;
    struct weir_action *kill =
        add_action(&made, 3 * WEIR_SECOND, WEIR_ACTION_RESTART);
    kill->nodes = (struct weir_selection){ .last = 4, .count = 2 };
    kill->span = WEIR_SECOND;
    uint64_t number = seed_or(1);
    struct weir_result *a = run_seed(&made, number);
    struct weir_result *b = run_seed(&made, number);
    struct weir_result *other = run_seed(&made, number + 1);
    assert_same(a, b);
    assert_int_not_equal(a->takes, other->takes);
    weir_result_free(a);
    weir_result_free(b);
    weir_result_free(other);
}

/* The ideal limiter depends on the requests alone, and these on the seed: not
 * on the fleet. */
static void test_the_ideal_sees_the_same_whatever_the_fleet(void **state)
{
    (void)state;
    static struct made made;
    make(&made, 5, 2, 10 * WEIR_SECOND);
    add_quota(&made, "api", 200);
    add_load(&made, "api", 2);
    uint64_t number = seed_or(1);
    struct weir_result *a = run_seed(&made, number);
    made.scenario.node.slack = false;
    made.scenario.roots = 1;
    struct weir_result *b = run_seed(&made, number);
    assert_int_equal(a->takes, b->takes);
    double passed[2] = { 0 }, ideal[2] = { 0 };
    for (size_t i = 0; i < a->sample_count; i++) {
        passed[0] += a->quotas[0].samples[i].passed;
        passed[1] += b->quotas[0].samples[i].passed;
        ideal[0] += a->quotas[0].samples[i].ideal_passed;
        ideal[1] += b->quotas[0].samples[i].ideal_passed;
    }
    assert_true(ideal[0] == ideal[1]);
    assert_true(passed[0] != passed[1]);
    weir_result_free(a);
    weir_result_free(b);
}

/* Every offered unit either passed or was refused; one limiter with one root
 * and no delay is nearly the ideal one. */
static void test_requests_are_passed_or_refused(void **state)
{
    (void)state;
    static struct made made;
    make(&made, 1, 1, 20 * WEIR_SECOND);
    made.scenario.net.delay = 0;
    add_quota(&made, "api", 100);
    struct weir_load *load = add_load(&made, "api", 3);
    load->weight_max = 5;
    struct weir_result *result = run(&made);
    double offered = 0, passed = 0, refused = 0, ideal = 0;
    for (size_t i = 0; i < result->sample_count; i++) {
        const struct weir_quota_sample *sample = &result->quotas[0].samples[i];
        offered += sample->offered;
        passed += sample->passed;
        refused += sample->refused;
        ideal += sample->ideal_passed;
        assert_true(sample->over_high_most == 0);
    }
    assert_true(offered == passed + refused);
    assert_compare(fabs(offered / (double)result->takes - 3), <, 0.1);
    assert_compare(fabs(passed - ideal), <, 0.05 * ideal);
    assert_compare(passed, <, 21.5 * 100);
    assert_compare(passed, >, 20 * 100);
    weir_result_free(result);
}

static bool held(const struct weir_result *result, size_t i)
{
    assert_compare(i, <, result->expect_count);
    return result->expects[i].held;
}

/* Two loads of one quota, each on a limiter of its own: each is measured by its
 * own requests, as parts of the quota's limit. */
static void test_loads_are_measured_each(void **state)
{
    (void)state;
    static struct made made;
    make(&made, 2, 1, 10 * WEIR_SECOND);
    add_quota(&made, "api", 200);
    static const char *const names[] = { "some", "more" };
    for (uint32_t i = 0; i < 2; i++) {
        struct weir_load *load = add_load(&made, "api", 0.25 * (i + 1));
        load->name = (char *)names[i];
        load->on = (struct weir_selection){ .first = i, .last = i };
        measure(&made, WEIR_METRIC_PASSED_MEAN, 0, 0);
        made.measures[i].load = (char *)names[i];
        made.measures[i].quota = (char *)"api";
    }
    measure(&made, WEIR_METRIC_PASSED_MEAN, 0, 0);
    struct weir_result *result = run(&made);
    assert_int_equal(result->load_count, 2);
    assert_true(fabs(result->measures[0] + result->measures[1] -
                     result->measures[2]) < 1e-9);
    /* 500 and 1,000 requests, by Poisson: within six deviations. */
    assert_true(fabs(result->measures[0] - 0.25) < 6 * sqrt(500) / 2000);
    assert_true(fabs(result->measures[1] - 0.5) < 6 * sqrt(1000) / 2000);
    weir_result_free(result);
}

/* Roots die and come back, limiters are started, an edit is in force; and
 * expectations that can't come true are reported as failed. */
static void test_the_director_directs(void **state)
{
    (void)state;
    static struct made made;
    make(&made, 6, 2, 20 * WEIR_SECOND);
    made.scenario.limiters_started = 4;
    add_quota(&made, "api", 100);
    add_load(&made, "api", 1);
    const weir_duration s = WEIR_SECOND;
    struct weir_action *action;
    expect(&made, 0, WEIR_QUANTITY_READY, WEIR_IS_EQUAL, 4, 0);
    expect(&made, 0, WEIR_QUANTITY_LINKS, WEIR_IS_EQUAL, 8, 0);
    action = add_action(&made, 2 * s, WEIR_ACTION_RESTART);
    action->nodes = (struct weir_selection){ .root = true };
    action->span = 3 * s;
    expect(&made, 2 * s, WEIR_QUANTITY_ROOTS, WEIR_IS_EQUAL, 1, 0);
    expect(&made, 4 * s, WEIR_QUANTITY_ROOTS, WEIR_IS_EQUAL, 2, 2 * s);
    action = add_action(&made, 8 * s, WEIR_ACTION_START);
    action->nodes = (struct weir_selection){ .last = 5, .count = 2 };
    expect(&made, 8 * s, WEIR_QUANTITY_READY, WEIR_IS_EQUAL, 6, s);
    action = add_action(&made, 9 * s, WEIR_ACTION_CUT);
    action->nodes = (struct weir_selection){ .first = 1, .last = 1 };
    action->others = (struct weir_selection){ .root = true, .last = 1 };
    action->ways = WEIR_WAY_BOTH;
    action = add_action(&made, 10 * s, WEIR_ACTION_SET);
    action->quota = made.quotas[0];
    action->quota.limit.units = 50;
    expect(&made, 10 * s, WEIR_QUANTITY_LIMIT, WEIR_IS_EQUAL, 50, s);
    expect(&made, 10 * s, WEIR_QUANTITY_EPOCHS, WEIR_IS_EQUAL, 0, s);
    /* A limiter that is cut off uses the old limit until then. */
    add_action(&made, 10 * s + s / 2, WEIR_ACTION_MEND)->some = false;
    action = add_action(&made, 12 * s, WEIR_ACTION_KILL);
    action->nodes = (struct weir_selection){ .last = 5, .count = 3 };
    expect(&made, 12 * s, WEIR_QUANTITY_READY, WEIR_IS_EQUAL, 3, 0);
    expect(&made, 13 * s, WEIR_QUANTITY_READY, WEIR_IS_MORE, 3, 2 * s);
    struct weir_result *result = run(&made);
    assert_int_equal(result->expect_count, 9);
    for (size_t i = 0; i < 8; i++)
        assert_true(held(result, i));
    assert_true(result->expects[2].at == 2 * s);
    assert_true(result->expects[3].at == 5 * s);
    assert_compare(result->expects[6].at, >, 10 * s + s / 2);
    assert_false(held(result, 8));
    assert_true(result->expects[8].at == 15 * s);
    assert_true(result->expects[8].value == 3);
    assert_true(result->failed);
    weir_result_free(result);
}

static void test_always_and_at_the_end(void **state)
{
    (void)state;
    static struct made made;
    make(&made, 3, 1, 10 * WEIR_SECOND);
    add_quota(&made, "api", 100);
    add_load(&made, "api", 2);
    made.always[made.scenario.always_count++] = (struct weir_condition){
        .quantity = WEIR_QUANTITY_ROOTS,
        .comparison = WEIR_IS_EQUAL,
        .value = 1,
        .text = "always roots = 1",
    };
    made.always[made.scenario.always_count++] = (struct weir_condition){
        .quantity = WEIR_QUANTITY_FILL,
        .comparison = WEIR_IS_LESS,
        .value = 120,
        .text = "always fill < 120",
    };
    made.expects[made.scenario.expect_count++] = (struct weir_condition){
        .at_end = true,
        .measure = { .metric = WEIR_METRIC_REFUSED_SHARE,
                     .over = { 5 * WEIR_SECOND, 0 } },
        .comparison = WEIR_IS_WITHIN,
        .value = 0.4,
        .value2 = 0.6,
        .text = "expect limited_share over 5s.. within 0.4..0.6",
    };
    struct weir_result *result = run(&made);
    assert_int_equal(result->expect_count, 3);
    assert_true(held(result, 0));
    assert_false(held(result, 1));
    assert_compare(result->expects[1].value, >=, 120);
    assert_true(held(result, 2));
    assert_true(result->failed);
    weir_result_free(result);
}

/* A dead or paused limiter gets no requests: the others do. */
static void test_requests_go_to_those_that_run(void **state)
{
    (void)state;
    static struct made made;
    make(&made, 4, 1, 10 * WEIR_SECOND);
    struct weir_quota *quota = add_quota(&made, "api", 1000);
    quota->sharing = WEIR_LOCAL;
    add_load(&made, "api", 2)->spread = WEIR_SPREAD_ROUND_ROBIN;
    struct weir_action *action =
        add_action(&made, 4 * WEIR_SECOND, WEIR_ACTION_KILL);
    action->nodes = (struct weir_selection){ .last = 1 };
    action = add_action(&made, 4 * WEIR_SECOND, WEIR_ACTION_PAUSE);
    action->nodes = (struct weir_selection){ .first = 2, .last = 2 };
    measure(&made, WEIR_METRIC_PASSED_MEAN, 2 * WEIR_SECOND, 4 * WEIR_SECOND);
    measure(&made, WEIR_METRIC_OFFERED_MEAN, 6 * WEIR_SECOND, 0);
    measure(&made, WEIR_METRIC_PASSED_MEAN, 6 * WEIR_SECOND, 0);
    struct weir_result *result = run(&made);
    /* Four hosts bear 2,000/s; one bears 1,000/s of its own. */
    assert_compare(fabs(result->measures[0] - 2), <, 0.1);
    assert_compare(fabs(result->measures[1] - 2), <, 0.1);
    assert_compare(fabs(result->measures[2] - 1), <, 0.1);
    weir_result_free(result);
}

/* A parent's limit holds for the children of a template together; a series of
 * the template is the sum of its instances. */
static void test_instances_of_a_template(void **state)
{
    (void)state;
    static struct made made;
    make(&made, 3, 2, 15 * WEIR_SECOND);
    add_quota(&made, "all", 100);
    add_quota(&made, "user/*", 40)->parent = WEIR_TEXT("all");
    struct weir_load *load = add_load(&made, "user/*", 6);
    load->keys = 5;
    struct weir_action *action =
        add_action(&made, 3 * WEIR_SECOND, WEIR_ACTION_RESTART);
    action->nodes = (struct weir_selection){ .last = 2 };
    measure(&made, WEIR_METRIC_PASSED_MEAN, 0, 0);
    made.measures[0].quota = "user/3";
    struct weir_result *result = run(&made);
    assert_int_equal(result->quota_count, 3);
    /* One user's own series, through tables in which it has different slots. */
    for (size_t i = 0; i < result->sample_count; i++) {
        const struct weir_quota_sample *sample = &result->quotas[2].samples[i];
        assert_true(sample->offered == sample->passed + sample->refused);
    }
    double all = 0, users = 0, ideal = 0;
    for (size_t i = 50; i < result->sample_count; i++) {
        all += result->quotas[0].samples[i].passed;
        users += result->quotas[1].samples[i].passed;
        ideal += result->quotas[0].samples[i].ideal_passed;
    }
    assert_string_equal(result->quotas[1].name, "user/*");
    assert_true(all == users);
    assert_compare(fabs(all - 1000), <, 60);
    assert_compare(fabs(ideal - 1000), <, 30);
    assert_true(result->quotas[1].samples[100].limit_per_s == 5 * 40);
    weir_result_free(result);
}

/* The bucket of a local quota at the only limiter is the true one, through
 * edits and up its chain; a quota that is off has an empty one. */
static void test_the_truth_of_one_limiter_is_its_own(void **state)
{
    (void)state;
    static struct made made;
    make(&made, 1, 1, 20 * WEIR_SECOND);
    made.scenario.net.delay = 0;
    add_quota(&made, "all", 150);
    add_quota(&made, "api", 70)->parent = WEIR_TEXT("all");
    add_quota(&made, "off", 10)->mode = WEIR_OFF;
    for (size_t i = 0; i < 3; i++)
        made.quotas[i].sharing = WEIR_LOCAL;
    add_load(&made, "api", 2)->weight_max = 3;
    add_load(&made, "off", 5);
    struct weir_action *action =
        add_action(&made, 7 * WEIR_SECOND, WEIR_ACTION_SET);
    action->quota = made.quotas[1];
    action->quota.limit.units = 210;
    action = add_action(&made, 13 * WEIR_SECOND, WEIR_ACTION_SET);
    action->quota = made.quotas[1];
    action->quota.limit =
        (struct weir_limit){ .units = 10, .per = 3 * WEIR_SECOND };
    expect(&made, 14 * WEIR_SECOND, WEIR_QUANTITY_LIMIT, WEIR_IS_EQUAL,
           10.0 / 3, 0)
        ->condition.quota = "api";
    measure(&made, WEIR_METRIC_PASSED_MEAN, 2 * WEIR_SECOND, 0);
    made.measures[0].quota = "all";
    struct weir_result *result = run(&made);
    assert_int_equal(result->quota_count, 3);
    double most = 0;
    for (size_t i = 0; i < result->sample_count; i++) {
        for (size_t k = 0; k < 2; k++) {
            const struct weir_quota_sample *sample =
                &result->quotas[k].samples[i];
            assert_compare(sample->divergence, <, 1);
            most = fmax(most, sample->fill);
        }
        const struct weir_quota_sample *off = &result->quotas[2].samples[i];
        assert_true(off->fill == 0 && off->passed == off->offered);
    }
    assert_compare(most, >, 100);
    assert_true(held(result, 0));
    weir_result_free(result);
}

/* Clients of a real log, each with its own instance at its own limiter. */
static void test_an_access_log_is_replayed(void **state)
{
    (void)state;
    static struct made made;
    char path[1024];
    const char *source = getenv("WEIR_SOURCE");
    snprintf(path, sizeof(path), "%s/test/data/access.log.gz",
             source ? source : ".");
    make(&made, 4, 1, 20 * WEIR_SECOND);
    made.scenario.slots = 4096;
    add_quota(&made, "client/*", 2);
    struct weir_load *load = add_load(&made, "client/*", 0);
    load->log = path;
    load->log_speed = 20000;
    load->spread = WEIR_SPREAD_STICKY;
    struct weir_result *result = run(&made);
    assert_int_equal(result->takes, 10000);
    double offered = 0, refused = 0;
    for (size_t i = 0; i < result->sample_count; i++) {
        offered += result->quotas[0].samples[i].offered;
        refused += result->quotas[0].samples[i].refused;
    }
    assert_true(offered == 10000);
    assert_compare(refused, >, 100);
    assert_compare(refused, <, 9000);
    weir_result_free(result);
}

static void note_progress(void *context, double part)
{
    double *last = context;
    assert_compare(part, >, *last);
    assert_compare(part, <=, 1);
    *last = part;
}

static void test_progress_is_told(void **state)
{
    (void)state;
    static struct made made;
    make(&made, 3, 2, 5 * WEIR_SECOND);
    add_quota(&made, "api", 100);
    add_load(&made, "api", 1);
    double last = 0;
    const struct weir_run_options options = { .seed = 7,
                                              .progress = note_progress,
                                              .context = &last };
    struct weir_diag diag;
    weir_result_free(weir_run_simulated(&made.scenario, &options, &diag));
    assert_compare(last, >, 0.99);
}

static void test_a_run_stops_before_an_event(void **state)
{
    (void)state;
    static struct made made;
    make(&made, 3, 2, 5 * WEIR_SECOND);
    add_quota(&made, "api", 100);
    add_load(&made, "api", 1);
    const struct weir_run_options options = { .seed = 7, .until_event = 1000 };
    struct weir_diag diag;
    struct weir_result *result =
        weir_run_simulated(&made.scenario, &options, &diag);
    assert_non_null(result);
    assert_int_equal(result->events, 1000);
    weir_result_free(result);
}

static void test_what_cannot_be_run_is_told(void **state)
{
    (void)state;
    static struct made made;
    struct weir_diag diag;
    const struct weir_run_options options = { .seed = 7 };
    make(&made, 1, 1, WEIR_SECOND);
    add_quota(&made, "api", 100);
    struct weir_load *load = add_load(&made, "api", 1);
    load->log = "no/such.log";
    load->where = (struct weir_where){ .line = 7, .column = 3 };
    assert_null(weir_run_simulated(&made.scenario, &options, &diag));
    assert_int_equal(diag.line, 7);
    assert_non_null(strstr(diag.text, "no/such.log: can't be read"));

    make(&made, 1, 1, WEIR_SCENARIO_SPAN_MAX);
    made.scenario.bin = WEIR_MILLISECOND;
    add_quota(&made, "api", 100);
    assert_null(weir_run_simulated(&made.scenario, &options, &diag));
    assert_non_null(strstr(diag.text, "too many samples"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_fleet_holds_its_limit),
        cmocka_unit_test(test_one_seed_is_one_run),
        cmocka_unit_test(test_the_ideal_sees_the_same_whatever_the_fleet),
        cmocka_unit_test(test_requests_are_passed_or_refused),
        cmocka_unit_test(test_loads_are_measured_each),
        cmocka_unit_test(test_the_director_directs),
        cmocka_unit_test(test_always_and_at_the_end),
        cmocka_unit_test(test_requests_go_to_those_that_run),
        cmocka_unit_test(test_instances_of_a_template),
        cmocka_unit_test(test_the_truth_of_one_limiter_is_its_own),
        cmocka_unit_test(test_an_access_log_is_replayed),
        cmocka_unit_test(test_progress_is_told),
        cmocka_unit_test(test_a_run_stops_before_an_event),
        cmocka_unit_test(test_what_cannot_be_run_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
