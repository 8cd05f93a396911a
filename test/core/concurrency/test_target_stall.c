/* SPDX-License-Identifier: MIT
 * test_target_stall.c - the controller target in a stall of its dependency, and
 * after it.
 *
 * The whole way, with a storage and callers, is the scenario
 * adaptive-hang-pool. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "compare.h"
#include "controller_samples.h"

/* From now on callers all give up after two seconds, until a window is closed.
 */
static void stall(struct weir_controller *c)
{
    uint64_t windows = windows_of(c);
    clock_now += 1900 * MS;
    for (int i = 0; i < 100 && windows_of(c) == windows; i++) {
        clock_now += 100 * MS;
        dropped(c, 2 * WEIR_SECOND, 20);
    }
    assert_int_equal(windows_of(c), windows + 1);
}

/* A request that begins now, and its answer. */
static double answer(struct weir_controller *c, weir_duration latency)
{
    clock_now += latency;
    return ok(c, latency, 20);
}

/* At 40, after a first decrease: it doesn't double any more. */
static struct weir_controller *stalled_from_40(int windows)
{
    struct weir_controller *c = target_made(80);
    answers(c, 100, WEIR_SECOND, 0, 0, 2010 * MS);
    NEAR(limit_of(c), 40);
    clock_now += WEIR_SECOND;
    answer(c, 190 * MS); /* in time, and no reason to move */
    for (int i = 0; i < windows; i++)
        stall(c);
    return c;
}

static void test_target_takes_a_stall_back(void **state)
{
    (void)state;
    struct weir_controller *c = stalled_from_40(3);
    NEAR(limit_of(c), 5);
    struct weir_controller_view view;
    weir_controller_view(c, &view);
    assert_int_equal(view.reason, WEIR_LIMIT_DROPPED);
    NEAR(answer(c, 97 * MS), 40);
    weir_controller_view(c, &view);
    assert_int_equal(view.reason, WEIR_LIMIT_RESUMED);
    NEAR(view.before, 5);
    assert_int_equal(c->window->samples, 0);
    /* By overdue permits, too, of callers that wait. */
    c = stalled_from_40(0);
    struct weir_overdue overdue = { .count = 26 };
    weir_instant hung = clock_now;
    for (int window = 0; window < 2; window++) {
        clock_now = weir_controller_deadline(c);
        overdue.age = clock_now - hung;
        weir_controller_tick(c, &overdue, clock_now);
    }
    NEAR(limit_of(c), 20);
    NEAR(answer(c, 20 * MS), 40);
}

static void test_target_stall_is_not_taken_back(void **state)
{
    (void)state;
    /* By an answer to a request of before the last decrease, a late one, and
     * an ignored one; by another one then at once. */
    struct weir_controller *c = stalled_from_40(3);
    NEAR(ok(c, 20 * MS, 20), 5);
    NEAR(answer(c, 98 * MS), 5);
    clock_now += WEIR_SECOND;
    NEAR(feed(c, MS, 20, WEIR_SAMPLE_IGNORED), 5);
    NEAR(dropped(c, MS, 20), 5);
    NEAR(answer(c, 20 * MS), 40);
    /* By any after windows that are over by slow answers. */
    c = stalled_from_40(0);
    answers(c, 100, WEIR_SECOND, 0, 0, 2010 * MS);
    NEAR(limit_of(c), 20);
    NEAR(answer(c, 20 * MS), 20);
}

/* What the hang has delayed comes after its end, and isn't held against a
 * storage that is well again. */
static void test_target_first_answer_ends_the_silence(void **state)
{
    (void)state;
    struct weir_controller *c = stalled_from_40(3);
    clock_now += 1900 * MS;
    for (int i = 0; i < 20; i++)
        ok(c, 1900 * MS - MS, 20);
    clock_now += 15 * WEIR_SECOND;
    weir_controller_tick(c, NULL, clock_now);
    NEAR(limit_of(c), 5);
    NEAR(answer(c, 20 * MS), 40);
    /* One that goes on being slow is overloaded: nothing to take back. */
    c = stalled_from_40(3);
    answer(c, 300 * MS);
    answers(c, 400, 300 * MS, 0, 0, 4 * WEIR_SECOND);
    assert_compare(limit_of(c), <, 5);
    double limit = limit_of(c);
    NEAR(answer(c, 20 * MS), limit);
}

static void test_target_stall_leaves_an_eighth(void **state)
{
    (void)state;
    struct weir_controller *c = stalled_from_40(20);
    NEAR(limit_of(c), 5);
    NEAR(answer(c, 20 * MS), 40);
    /* But one with any answer in time falls as ever. */
    c = stalled_from_40(0);
    uint64_t windows = windows_of(c);
    for (int i = 0; i < 2000 && windows_of(c) < windows + 6; i++) {
        dropped(c, 2 * WEIR_SECOND, 20);
        dropped(c, 2 * WEIR_SECOND, 20);
        answer(c, 150 * MS);
    }
    NEAR(limit_of(c), 40 / 64.0);
    NEAR(answer(c, 20 * MS), 40 / 64.0);
}

/* A storage that stops whenever it is loaded is loaded less and less, until a
 * window has held the setpoint. */
static void test_target_resumes_by_halves(void **state)
{
    (void)state;
    struct weir_controller *c = stalled_from_40(2);
    static const double limits[] = { 40, 20, 10, 5 };
    for (size_t i = 0; i < WEIR_COUNT_OF(limits); i++) {
        NEAR(answer(c, 20 * MS), limits[i]);
        stall(c);
        stall(c);
    }
    NEAR(answer(c, 20 * MS), 2.5);
    answers(c, 100, 190 * MS, 0, 0, 2010 * MS);
    double before = limit_of(c);
    stall(c);
    stall(c);
    NEAR(limit_of(c), before / 4);
    NEAR(answer(c, 20 * MS), before);
    /* It doesn't lower a limit that has fallen by less than that. */
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_TARGET, 40, WEIR_PERMITS_MIN, 10000);
    o.backoff = 0.9;
    c = made(&o);
    for (int i = 0; i < 2; i++) {
        stall(c);
        NEAR(limit_of(c), 36);
        NEAR(answer(c, 20 * MS), i == 0 ? 40 : 36);
    }
}

/* Some that are dropped, or never come back, beside answers in time: as without
 * the rule for stalls. */
static void test_target_some_dropped_is_no_stall(void **state)
{
    (void)state;
    struct weir_controller *c = stalled_from_40(0);
    struct weir_overdue overdue = { .count = 3, .age = 2 * WEIR_SECOND };
    uint64_t windows = windows_of(c);
    for (int i = 1; i < 20000 && windows_of(c) < windows + 10; i++) {
        clock_now += 24 * MS;
        feed(c, 50 * MS, 20,
             i % 10 == 0 ? WEIR_SAMPLE_DROPPED : WEIR_SAMPLE_SUCCESS);
        if (i % 40 == 0)
            weir_controller_tick(c, &overdue, clock_now);
        assert_true(c->target.full == 0);
    }
    NEAR(limit_of(c), 40 / 1024.0);
}

static void test_target_edited_in_a_stall(void **state)
{
    (void)state;
    struct weir_controller *c = stalled_from_40(3);
    struct weir_controller_options o = c->options;
    o.max = 10;
    weir_controller_edit(c, &o, clock_now);
    NEAR(answer(c, 20 * MS), 10);
    c = stalled_from_40(3);
    o = c->options;
    o.target *= 2;
    weir_controller_edit(c, &o, clock_now);
    NEAR(answer(c, 20 * MS), 5); /* another rule: forgotten */
}

static void test_mean_is_of_answers(void **state)
{
    (void)state;
    struct weir_controller *c = target_made(20);
    dropped(c, 2 * WEIR_SECOND, 20);
    assert_int_equal(weir_controller_mean(c), 200 * MS);
    answers(c, 100, 50 * MS, 0, 0, WEIR_SECOND);
    for (int i = 0; i < 100; i++)
        dropped(c, 2 * WEIR_SECOND, 20);
    assert_int_equal(weir_controller_mean(c), 50 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_target_takes_a_stall_back),
        cmocka_unit_test(test_target_stall_is_not_taken_back),
        cmocka_unit_test(test_target_first_answer_ends_the_silence),
        cmocka_unit_test(test_target_stall_leaves_an_eighth),
        cmocka_unit_test(test_target_resumes_by_halves),
        cmocka_unit_test(test_target_some_dropped_is_no_stall),
        cmocka_unit_test(test_target_edited_in_a_stall),
        cmocka_unit_test(test_mean_is_of_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
