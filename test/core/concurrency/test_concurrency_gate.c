/* SPDX-License-Identifier: MIT
 * test_concurrency_gate.c - the concurrency gate in one thread.
 *
 * Threads are in test_concurrency_gate_threads.c and test_explore_gate.c; gate
 * and controller together in test_model_adaptive.c. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/base/rng.h"
#include "core/concurrency/concurrency_gate.h"

#define MS WEIR_MILLISECOND
#define PERMITS 64

static struct weir_concurrency_gate *gate;
static struct weir_concurrency_gate_permit permits[PERMITS];
static weir_instant now;

static struct weir_concurrency_gate_options usual(double limit)
{
    struct weir_concurrency_gate_options options;
    weir_concurrency_gate_defaults(&options, WEIR_CONTROLLER_NONE);
    options.controller.initial = limit;
    return options;
}

static void add_class(struct weir_concurrency_gate_options *options,
                      const char *name, double share_percent)
{
    static uint32_t klass;
    klass = options->class_of[0].name[0] == '\0' ? 0 : options->classes;
    strcpy(options->class_of[klass].name, name);
    options->class_of[klass].share_percent = share_percent;
    options->classes = klass + 1;
}

static void make(const struct weir_concurrency_gate_options *options)
{
    struct weir_diag diag = { 0 };
    if (weir_concurrency_gate_check(options, &diag) != WEIR_OK)
        fail_msg("%s", diag.text);
    free(gate);
    void *block = NULL;
    size_t bytes = weir_concurrency_gate_size(options);
    assert_int_equal(posix_memalign(&block, WEIR_CACHE_LINE, bytes), 0);
    memset(block, 0xa5, bytes);
    memset(permits, 0, sizeof(permits));
    now = 1000 * WEIR_SECOND;
    gate = weir_concurrency_gate_init(block, options, now);
}

static int teardown(void **state)
{
    (void)state;
    free(gate);
    gate = NULL;
    return 0;
}

static bool enter_units(uint32_t klass, int permit, uint32_t units)
{
    return weir_concurrency_gate_enter(gate, klass, units, &permits[permit],
                                       now);
}

static bool enter(uint32_t klass, int permit)
{
    return enter_units(klass, permit, 1);
}

static void leave(int permit, enum weir_sample_outcome outcome)
{
    weir_concurrency_gate_leave(gate, &permits[permit], outcome, now);
}

static struct weir_concurrency_gate_view view(void)
{
    struct weir_concurrency_gate_view seen;
    assert_true(weir_concurrency_gate_view(gate, &seen, now));
    return seen;
}

static uint32_t in_flight(void)
{
    return view().in_flight;
}

/* ---- One class ---- */

static void test_limit_is_the_limit(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(10);
    make(&options);
    for (int i = 0; i < 10; i++)
        assert_true(enter(0, i));
    assert_int_equal(permits[9].in_flight, 10);
    struct weir_concurrency_gate_permit none = { .units = 7 };
    assert_false(weir_concurrency_gate_enter(gate, 0, 1, &none, now));
    assert_int_equal(none.units, 0);
    weir_concurrency_gate_leave(gate, &none, WEIR_SAMPLE_SUCCESS, now);
    assert_int_equal(in_flight(), 10);
    leave(3, WEIR_SAMPLE_SUCCESS);
    assert_true(enter(0, 3));
    assert_false(enter(0, 10));
}

/* After a limit falls below the units in flight, none enters until enough have
 * left. */
static void test_limit_falls_below_what_is_held(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(10);
    weir_controller_defaults(&options.controller, WEIR_CONTROLLER_REQUEST);
    options.controller.initial = 10;
    make(&options);
    for (int i = 0; i < 10; i++)
        assert_true(enter(0, i));
    now += 300 * MS;
    leave(0, WEIR_SAMPLE_SUCCESS); /* 5 */
    leave(1, WEIR_SAMPLE_SUCCESS); /* 2 */
    assert_true(view().controller.limit == 2);
    for (int i = 2; i < 9; i++) {
        assert_false(enter(0, 20));
        leave(i, WEIR_SAMPLE_IGNORED);
    }
    assert_int_equal(in_flight(), 1);
    assert_true(enter(0, 20));
    assert_false(enter(0, 21));
}

static void test_given_back_twice_or_never(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(3);
    options.lost_after = 60 * WEIR_SECOND;
    make(&options);
    assert_true(enter(0, 0) && enter(0, 1) && enter(0, 2));
    struct weir_concurrency_gate_permit copy = permits[0];
    leave(0, WEIR_SAMPLE_SUCCESS);
    leave(0, WEIR_SAMPLE_SUCCESS);
    assert_int_equal(in_flight(), 2);
    /* The copy leaves in the place of another permit, which then has none to
     * leave. */
    weir_concurrency_gate_leave(gate, &copy, WEIR_SAMPLE_SUCCESS, now);
    leave(1, WEIR_SAMPLE_SUCCESS);
    assert_int_equal(in_flight(), 0);
    leave(2, WEIR_SAMPLE_SUCCESS);
    assert_int_equal(in_flight(), 0);
    /* Permits that never leave are written off, and their late leaves have no
     * effect. */
    assert_true(enter(0, 0) && enter(0, 1) && enter(0, 2));
    for (int seconds = 0; !enter(0, 3); seconds++) {
        assert_compare(seconds, <=, 130);
        now += WEIR_SECOND;
    }
    assert_int_equal(view().lost, 3);
    assert_int_equal(in_flight(), 1);
    now += 2 * WEIR_SECOND; /* by now the newest is overdue */
    weir_concurrency_gate_tick(gate, now);
    assert_int_equal(view().overdue, 1);
    for (int i = 0; i < 3; i++)
        leave(i, WEIR_SAMPLE_SUCCESS);
    assert_int_equal(in_flight(), 1);
    assert_int_equal(view().overdue, 1);
    leave(3, WEIR_SAMPLE_SUCCESS);
    assert_int_equal(in_flight(), 0);
}

/* Permits are written off however often the limit moves meanwhile. */
static void test_written_off_beside_traffic(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < WEIR_CONTROLLER_KINDS; kind++) {
        struct weir_concurrency_gate_options options;
        weir_concurrency_gate_defaults(&options,
                                       (enum weir_controller_kind)kind);
        options.lost_after = 10 * WEIR_SECOND;
        make(&options);
        assert_true(enter(0, 0));
        for (unsigned i = 0; i < 30000; i++) {
            now += MS / 2;
            bool entered = enter(0, 1);
            now += MS / 2;
            if (entered)
                leave(1, WEIR_SAMPLE_SUCCESS);
        }
        assert_int_equal(view().lost, 1);
    }
}

/* A permit that leaves late leaves from the life in which it is counted now. */
static void test_lives_go_on(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(PERMITS);
    make(&options);
    struct weir_rng rng = { 11 };
    uint32_t held = 0;
    for (int i = 0; i < 20000; i++) {
        int permit = (int)weir_rng_below(&rng, PERMITS);
        now += weir_rng_below(&rng, WEIR_SECOND);
        if (permits[permit].units > 0) {
            held -= permits[permit].units;
            leave(permit, WEIR_SAMPLE_SUCCESS);
        } else if (enter_units(0, permit,
                               1 + (uint32_t)weir_rng_below(&rng, 3))) {
            held += permits[permit].units;
        }
        assert_int_equal(in_flight(), held);
        assert_compare(held, <=, PERMITS);
    }
    assert_int_equal(view().lost, 0);
}

static void test_age_of_the_oldest(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(3);
    make(&options);
    assert_true(enter(0, 0));
    weir_instant begun = now;
    for (int i = 0; i < 100; i++) {
        now += 100 * MS;
        assert_true(enter(0, 1));
        leave(1, WEIR_SAMPLE_SUCCESS);
        struct weir_concurrency_gate_view seen = view();
        assert_true(seen.overdue == 0 || seen.overdue == 1);
        assert_compare(seen.overdue_age, <=, now - begun);
        if (now - begun >= 2500 * MS)
            assert_true(seen.overdue == 1 &&
                        seen.overdue_age + 2500 * MS >= now - begun);
    }
}

/* ---- Fractions and groups ---- */

/* An enter is tried each 'step'; each permit is out for 'latency'. Returns how
 * many were in flight on average. */
static double used(weir_duration latency, weir_duration step,
                   weir_duration span)
{
    weir_instant done[PERMITS] = { 0 };
    uint64_t sum = 0;
    for (weir_instant end = now + span; now < end; now += step)
        for (int i = 0; i < PERMITS; i++) {
            if (permits[i].units > 0 && done[i] <= now)
                leave(i, WEIR_SAMPLE_SUCCESS);
            if (permits[i].units > 0 || !enter(0, i))
                continue;
            done[i] = now + latency;
            sum += latency;
        }
    return (double)sum / (double)span;
}

static void test_fractions_hold_on_average(void **state)
{
    (void)state;
    static const double limits[] = { 0.02, 0.25, 0.55, 0.9, 1,
                                     1.5,  2.75, 11.5, 20 };
    static const weir_duration steps[] = { 1 * MS, 37 * MS };
    for (size_t i = 0; i < WEIR_COUNT_OF(limits); i++)
        for (size_t j = 0; j < WEIR_COUNT_OF(steps); j++) {
            struct weir_concurrency_gate_options options = usual(limits[i]);
            /* A controller with fractional limits that never decides. */
            weir_controller_defaults(&options.controller,
                                     WEIR_CONTROLLER_TARGET);
            options.controller.initial = limits[i];
            options.controller.count = WEIR_WINDOW_SAMPLES_MAX;
            options.controller.window_max = options.controller.window_min =
                500 * WEIR_SECOND;
            make(&options);
            double mean = used(100 * MS, steps[j], 400 * WEIR_SECOND);
            double whole = (double)(uint64_t)limits[i];
            assert_compare(mean, <=, limits[i] * 1.01);
            /* On a grid of 37 ms a permit leaves after 111. */
            double least = limits[i] < 1 ? limits[i] : whole;
            assert_true(mean >= least * (j == 0 ? 0.99 : 0.99 * 100 / 111));
            if (j == 0 && limits[i] > 1 && limits[i] > whole)
                assert_compare(mean, >=, whole + (limits[i] - whole) / 13);
        }
}

/* One in flight, then a pause of three times as long. */
static void test_a_quarter(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options;
    weir_concurrency_gate_defaults(&options, WEIR_CONTROLLER_TARGET);
    options.controller.initial = 0.25;
    options.controller.target = 100 * MS; /* and so the first mean */
    make(&options);
    /* No permit came before: the first two come closer together. */
    for (int i = 0; i < 2; i++) {
        assert_true(enter(0, 0));
        assert_false(enter(0, 1));
        now += 100 * MS;
        leave(0, WEIR_SAMPLE_SUCCESS);
        now += i == 0 ? 100 * MS : 0;
    }
    assert_false(enter(0, 1));
    assert_int_equal(weir_concurrency_gate_wait(gate, now), 300 * MS);
    now += 300 * MS - 1;
    assert_false(enter(0, 1));
    now += 1;
    assert_true(enter(0, 1));
}

/* The pause is of answers' latency: callers that give up after two seconds
 * don't delay the next permit by eight. */
static void test_a_quarter_of_time_outs(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options;
    weir_concurrency_gate_defaults(&options, WEIR_CONTROLLER_TARGET);
    options.controller.initial = 0.25;
    options.controller.target = 100 * MS;
    options.controller.window_min = options.controller.window_max =
        500 * WEIR_SECOND;
    make(&options);
    for (int i = 0; i < 20; i++) {
        assert_true(enter(0, 0));
        assert_false(enter(0, 1));
        now += 2 * WEIR_SECOND;
        assert_false(enter(0, 1)); /* it is still in flight */
        leave(0, WEIR_SAMPLE_DROPPED);
    }
    assert_true(enter(0, 0));
}

/* Enters, after at most so long, and leaves after 'latency'. Returns how long
 * it was refused. */
static weir_duration answer_after(weir_duration latency, weir_duration most)
{
    weir_instant begin = now, end = now + most;
    for (; !enter(0, 0); now += MS)
        assert_true(now < end);
    weir_duration waited = now - begin;
    now += latency;
    leave(0, WEIR_SAMPLE_SUCCESS);
    return waited;
}

/* A few answers show that a service is quick again: the pause of a quarter of a
 * permit, by a mean of 2 s, was 8 s. */
static void test_a_few_quick_answers_shorten_pauses(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options;
    weir_concurrency_gate_defaults(&options, WEIR_CONTROLLER_TARGET);
    options.controller.given = true;
    make(&options);
    assert_true(weir_concurrency_gate_give(gate, 0.25, 0, now));
    for (int i = 0; i < 4; i++)
        answer_after(2 * WEIR_SECOND, 11 * WEIR_SECOND);
    for (int i = 0; i < 4; i++)
        answer_after(20 * MS, 11 * WEIR_SECOND);
    assert_compare(answer_after(20 * MS, 11 * WEIR_SECOND), <, 600 * MS);
}

/* A pause that began by a low limit goes on by the higher one: after a hang a
 * process has its part at once. */
static void test_a_pause_goes_by_a_limit_that_rises(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options;
    weir_concurrency_gate_defaults(&options, WEIR_CONTROLLER_TARGET);
    options.controller.target = 100 * MS; /* and so the first mean */
    options.controller.given = true;
    make(&options);
    assert_true(weir_concurrency_gate_give(gate, 0.05, 0, now));
    for (int i = 0; i < 2; i++)
        answer_after(100 * MS, 3 * WEIR_SECOND);
    /* A pause of 2 s, 30 % more or less, of which 100 ms are over. */
    assert_false(enter(0, 0));
    assert_true(weir_concurrency_gate_give(gate, 0.5, 0, now));
    now += 250 * MS;
    assert_true(enter(0, 0));
}

static void test_groups_are_all_or_none(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(10);
    make(&options);
    assert_true(enter_units(0, 0, 7));
    assert_false(enter_units(0, 1, 4));
    assert_int_equal(in_flight(), 7);
    assert_true(enter_units(0, 1, 3));
    leave(0, WEIR_SAMPLE_SUCCESS);
    assert_int_equal(in_flight(), 3);
    /* Larger than the whole limit: alone, and then a pause. */
    assert_false(enter_units(0, 2, 20));
    leave(1, WEIR_SAMPLE_SUCCESS);
    assert_true(enter_units(0, 2, 20));
    assert_false(enter(0, 3));
    now += MS;
    leave(2, WEIR_SAMPLE_SUCCESS);
    assert_false(enter_units(0, 2, 20));
    assert_true(enter_units(0, 2, 10));
}

/* ---- Classes (upstream: Netflix's partitions of 30 % and 70 %) ---- */

#define BATCH 0
#define LIVE 1
#define OTHER 2

static void make_partitions(double limit)
{
    struct weir_concurrency_gate_options options = usual(limit);
    add_class(&options, "batch", 30);
    add_class(&options, "live", 70);
    add_class(&options, "other", 0);
    make(&options);
}

static void test_shares(void **state)
{
    (void)state;
    make_partitions(10);
    assert_true(view().share_of[BATCH] == 3);
    assert_true(view().share_of[LIVE] == 7);
    assert_true(view().share_of[OTHER] == 0);
    make_partitions(20);
    assert_true(view().share_of[BATCH] == 6);
    make_partitions(1);
    assert_true(view().share_of[BATCH] == 1);
}

static void test_batch_borrows_and_live_is_sure(void **state)
{
    (void)state;
    make_partitions(10);
    for (int i = 0; i < 10; i++)
        assert_true(enter(BATCH, i));
    assert_false(enter(BATCH, 10));
    for (int i = 10; i < 17; i++)
        assert_true(enter(LIVE, i));
    assert_false(enter(LIVE, 17));
    assert_int_equal(in_flight(), 17);
    assert_int_equal(view().in_flight_of[BATCH], 10);
    assert_int_equal(view().in_flight_of[LIVE], 7);
    for (int i = 0; i < 17; i++)
        leave(i, WEIR_SAMPLE_SUCCESS);
    assert_int_equal(in_flight(), 0);
    assert_int_equal(view().in_flight_of[BATCH], 0);
    assert_int_equal(view().in_flight_of[LIVE], 0);
}

static void test_full_shares_are_full(void **state)
{
    (void)state;
    make_partitions(10);
    for (int i = 0; i < 3; i++)
        assert_true(enter(BATCH, i));
    for (int i = 3; i < 10; i++)
        assert_true(enter(LIVE, i));
    assert_false(enter(BATCH, 10));
    assert_false(enter(LIVE, 10));
    assert_false(enter(OTHER, 10));
    leave(0, WEIR_SAMPLE_SUCCESS);
    assert_true(enter(OTHER, 10)); /* unknown: only unused permits */
    assert_false(enter(OTHER, 11));
    assert_true(enter(BATCH, 0)); /* but each class gets its share */
    assert_int_equal(in_flight(), 11);
}

static void test_observed_is_never_refused(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(4);
    add_class(&options, "bulk", 0);
    add_class(&options, "sync", 0);
    options.class_of[1].observed = true;
    make(&options);
    for (int i = 0; i < 3; i++)
        assert_true(enter(0, i));
    for (int i = 3; i < 20; i++)
        assert_true(enter(1, i));
    assert_false(enter(0, 20)); /* the limit is full with permits of sync */
    for (int i = 3; i < 20; i++)
        leave(i, WEIR_SAMPLE_SUCCESS);
    assert_true(enter(0, 20));
    assert_false(enter(0, 21));
}

static void test_unheard_is_no_sample(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(10);
    weir_controller_defaults(&options.controller, WEIR_CONTROLLER_REQUEST);
    add_class(&options, "heard", 0);
    add_class(&options, "unheard", 0);
    options.class_of[1].unheard = true;
    make(&options);
    for (int klass = 1; klass >= 0; klass--) {
        assert_true(enter((uint32_t)klass, klass));
        now += WEIR_SECOND;
        leave(klass, WEIR_SAMPLE_SUCCESS);
        assert_int_equal(view().controller.windows, klass == 0);
    }
    assert_int_equal(view().in_flight_of[1], 0);
}

/* Compared with the rule, spelled out slowly. */
static void test_random_classes(void **state)
{
    (void)state;
    make_partitions(10);
    struct weir_rng rng = { 5 };
    uint32_t held[3] = { 0 };
    static const uint32_t share[3] = { 3, 7, 0 };
    for (int i = 0; i < 50000; i++) {
        int permit = (int)weir_rng_below(&rng, PERMITS);
        uint32_t klass = (uint32_t)weir_rng_below(&rng, 3);
        uint32_t units = 1 + (uint32_t)weir_rng_below(&rng, 4);
        now += weir_rng_below(&rng, 300 * MS);
        if (permits[permit].units > 0) {
            held[permits[permit].klass] -= permits[permit].units;
            leave(permit, WEIR_SAMPLE_SUCCESS);
            continue;
        }
        uint32_t sum = held[0] + held[1] + held[2];
        bool lets = held[klass] + units <= share[klass] || sum + units <= 10;
        assert_true(enter_units(klass, permit, units) == lets);
        held[klass] += lets ? units : 0;
    }
}

/* ---- The controller in it ---- */

/* No answer and no tick comes: refused enters close the window. */
static void test_refused_close_windows(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options;
    weir_concurrency_gate_defaults(&options, WEIR_CONTROLLER_TARGET);
    make(&options);
    for (int i = 0; i < 20; i++)
        assert_true(enter(0, i));
    weir_instant begun = now;
    while (view().controller.limit == 20) {
        now += 10 * MS;
        assert_false(enter(0, 30));
        assert_compare(now - begun, <, 10 * WEIR_SECOND);
    }
    assert_true(view().controller.limit == 10);
    assert_int_equal(view().controller.reason, WEIR_LIMIT_DROPPED);
    assert_compare(now - begun, <=,
                   2 * options.controller.window_min + 10 * MS);
}

static void test_samples_say_what_was(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(5);
    make(&options);
    assert_true(enter(0, 0));
    assert_true(enter(0, 1));
    now += 30 * MS;
    leave(0, WEIR_SAMPLE_SUCCESS);
    assert_int_equal(view().controller.latency, 30 * MS);
    now -= 60 * MS; /* a clock that went back counts as no time, not as ages */
    leave(1, WEIR_SAMPLE_SUCCESS);
    assert_int_equal(view().controller.latency, 0);
    assert_compare(weir_concurrency_gate_wait(gate, now), >, 0);
}

static void test_bad_options(void **state)
{
    (void)state;
    struct weir_diag diag = { 0 };
    struct weir_concurrency_gate_options options = usual(5);
    options.classes = 0;
    assert_int_equal(weir_concurrency_gate_check(&options, &diag), WEIR_EINVAL);
    options = usual(5);
    options.classes = 2; /* without names */
    assert_int_equal(weir_concurrency_gate_check(&options, &diag), WEIR_EINVAL);
    options = usual(5);
    add_class(&options, "a", 60);
    add_class(&options, "b", 40);
    assert_int_equal(weir_concurrency_gate_check(&options, &diag), WEIR_OK);
    options.class_of[1].share_percent = 41;
    assert_int_equal(weir_concurrency_gate_check(&options, &diag), WEIR_EINVAL);
    options.class_of[1].share_percent = 40;
    options.class_of[1].observed = true;
    assert_int_equal(weir_concurrency_gate_check(&options, &diag), WEIR_EINVAL);
    options.class_of[1].observed = false;
    strcpy(options.class_of[1].name, "a");
    assert_int_equal(weir_concurrency_gate_check(&options, NULL), WEIR_EINVAL);
    memset(options.class_of[1].name, 'a', sizeof(options.class_of[1].name));
    assert_int_equal(weir_concurrency_gate_check(&options, NULL), WEIR_EINVAL);
    options = usual(5);
    options.controller.min = 6;
    assert_int_equal(weir_concurrency_gate_check(&options, NULL), WEIR_EINVAL);
}

#define GATE(test) cmocka_unit_test_teardown((test), teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GATE(test_limit_is_the_limit),
        GATE(test_limit_falls_below_what_is_held),
        GATE(test_given_back_twice_or_never),
        GATE(test_written_off_beside_traffic),
        GATE(test_lives_go_on),
        GATE(test_age_of_the_oldest),
        GATE(test_fractions_hold_on_average),
        GATE(test_a_quarter),
        GATE(test_a_quarter_of_time_outs),
        GATE(test_a_pause_goes_by_a_limit_that_rises),
        GATE(test_a_few_quick_answers_shorten_pauses),
        GATE(test_groups_are_all_or_none),
        GATE(test_shares),
        GATE(test_batch_borrows_and_live_is_sure),
        GATE(test_full_shares_are_full),
        GATE(test_observed_is_never_refused),
        GATE(test_unheard_is_no_sample),
        GATE(test_random_classes),
        GATE(test_refused_close_windows),
        GATE(test_samples_say_what_was),
        GATE(test_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
