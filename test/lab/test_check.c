/* SPDX-License-Identifier: MIT
 * test/lab/test_check.c - each checker reports when its invariant is broken, by
 * hand, in a fleet that is otherwise sound; and none does when all is well.
 * (test_planted.py breaks the product instead.) */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/root_state.h"
#include "lab/check.h"
#include "lab/run.h"
#include "lab/swarm.h"

#define LIMITERS 4

struct scene {
    struct weir_fleet *fleet;
    struct weir_check *check;
};

static const struct weir_text api = { "api", 3 };
static const struct weir_limit slow = { .units = 1,
                                        .per = 86400 * WEIR_SECOND };

static void put(struct scene *s, struct weir_limit limit, uint64_t high)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = api;
    quota.limit = limit;
    quota.low_burst = quota.high_burst = (struct weir_burst){ .amount = high };
    assert_int_equal(weir_fleet_put(s->fleet, &quota, NULL), 0);
}

/* NULL while all invariants hold. */
static const char *run(struct scene *s, weir_duration span)
{
    struct weir_world *world = weir_fleet_world(s->fleet);
    weir_instant until = world->now + span;
    const char *violation = NULL;
    while (!violation && weir_world_step(world, until))
        violation = weir_check_event(s->check);
    return violation;
}

static unsigned take(struct scene *s, uint32_t limiter, uint64_t weight)
{
    unsigned outcome = weir_fleet_take(s->fleet, limiter, api, weight, NULL);
    weir_check_decided(s->check, limiter, api, weight, outcome);
    return outcome;
}

/* A fleet in which all limiters have received the quota. */
static struct scene begin_with(uint32_t roots, uint64_t high)
{
    const struct weir_fleet_options options = {
        .seed = 1,
        .limiters = LIMITERS,
        .roots = roots,
        .limiters_started = LIMITERS,
        .slots = 16,
        .net = { .delay = WEIR_MILLISECOND },
        .settings = { .report_interval = 200 * WEIR_MILLISECOND,
                      .stale_after = 10 * WEIR_SECOND,
                      .slack = true },
    };
    struct scene s = { .fleet = weir_fleet_new(&options) };
    s.check = weir_check_new(s.fleet);
    put(&s, slow, high);
    assert_null(run(&s, WEIR_SECOND));
    for (uint32_t l = 0; l < LIMITERS; l++)
        assert_int_equal(take(&s, l, 1) & WEIR_OUTCOME_LIMITED, 0);
    assert_null(run(&s, WEIR_SECOND));
    return s;
}

static struct scene begin(uint64_t high)
{
    return begin_with(2, high);
}

static void end(struct scene *s)
{
    weir_check_free(s->check);
    weir_fleet_free(s->fleet);
}

static void assert_says(const char *violation, const char *checker)
{
    assert_non_null(violation);
    if (strncmp(violation, checker, strlen(checker)) != 0)
        fail_msg("%s was to speak, and not: %s", checker, violation);
}

static void test_all_is_well(void **state)
{
    (void)state;
    struct scene s = begin(100);
    for (int i = 0; i < 200; i++) {
        take(&s, (uint32_t)i % LIMITERS, 1);
        assert_null(run(&s, 3 * WEIR_MILLISECOND));
    }
    assert_null(run(&s, WEIR_CHECK_SETTLE + WEIR_SECOND));
    assert_null(weir_check_end(s.check));
    struct weir_check_stats stats;
    weir_check_stats(s.check, &stats);
    assert_compare(stats.bounded, >, 100);
    assert_compare(stats.ends, >=, 2 * LIMITERS);
    double share = weir_check_unseen_share(s.check);
    assert_compare(share, >, 0.3);
    assert_compare(share, <, 1);
    end(&s);
}

/* Charges may go above high, and refunds take back units that roots count
 * later. */
static void test_charges_and_refunds_are_no_violation(void **state)
{
    (void)state;
    struct scene s = begin(20);
    for (uint64_t i = 0; i < 100; i++) {
        weir_fleet_charge(s.fleet, i % LIMITERS, api, i % 7);
        weir_fleet_refund(s.fleet, (i + 1) % LIMITERS, api, i % 5);
        assert_null(run(&s, 5 * WEIR_MILLISECOND));
    }
    assert_null(run(&s, WEIR_CHECK_SETTLE + WEIR_SECOND));
    assert_null(weir_check_end(s.check));
    end(&s);
}

/* A fill that a limiter received before its clock was set back isn't ages
 * old. */
static void test_a_clock_may_be_set_back(void **state)
{
    (void)state;
    struct scene s = begin(100);
    put(&s, (struct weir_limit){ .units = 495, .per = WEIR_SECOND }, 391);
    assert_null(run(&s, WEIR_SECOND));
    weir_fleet_clock(s.fleet, (struct weir_node_place){ .index = 1 },
                     -3 * (int64_t)WEIR_SECOND / 2, 0);
    for (int i = 0; i < 300; i++) {
        take(&s, (uint32_t)i % LIMITERS, 1);
        assert_null(run(&s, WEIR_MILLISECOND));
    }
    end(&s);
}

/* A root without reports presumes nothing more, and a limiter without answers
 * counts by its slack alone. */
static void test_what_is_presumed_ends(void **state)
{
    (void)state;
    struct scene s = begin_with(1, 1400);
    for (int i = 0; i < 700; i++) {
        take(&s, 0, 1);
        assert_null(run(&s, 7 * WEIR_MILLISECOND));
    }
    const struct weir_net lost = { .delay = WEIR_MILLISECOND, .loss = 1 };
    weir_fleet_net(s.fleet, 0, 0, &lost);
    for (int i = 0; i < 1000; i++) {
        take(&s, 0, 1);
        assert_null(run(&s, 7 * WEIR_MILLISECOND));
    }
    end(&s);
}

/* A fill that a root sent before an edit may arrive when all have the edit
 * already, from another root. It grants slack from the old room, and that is no
 * violation. */
static void test_a_fill_of_before_an_edit_may_come_late(void **state)
{
    (void)state;
    struct scene s = begin(100);
    const struct weir_net far = { .delay = 50 * WEIR_MILLISECOND };
    weir_fleet_net(s.fleet, 0, 0, &far);
    assert_null(run(&s, 110 * WEIR_MILLISECOND)); /* all is answered */
    for (int i = 0; i < 14; i++) {
        take(&s, 0, 1); /* more than its slack: the units are reported */
        assert_null(run(&s, WEIR_MILLISECOND));
    }
    assert_null(run(&s, 70 * WEIR_MILLISECOND));
    put(&s, slow, 30); /* the answer is under way */
    assert_null(run(&s, 10 * WEIR_MILLISECOND));
    assert_int_equal(take(&s, 1, 1) & WEIR_OUTCOME_LIMITED, 0);
    assert_null(run(&s, 60 * WEIR_MILLISECOND));
    for (int i = 0; i < 40; i++) {
        take(&s, (uint32_t)i % LIMITERS, 1);
        assert_null(run(&s, 50 * WEIR_MILLISECOND));
    }
    assert_null(run(&s, WEIR_CHECK_SETTLE + WEIR_SECOND));
    assert_null(weir_check_end(s.check));
    end(&s);
}

static struct weir_scenario *scenario_of(const char *text)
{
    struct weir_diag diag = { 0 };
    struct weir_lab_script *script =
        weir_script_read("story.weir", weir_text_of(text), &diag);
    assert_non_null(script);
    struct weir_scenario *scenario = weir_scenario_build(script, 0, &diag);
    assert_non_null(scenario);
    weir_script_free(script);
    return scenario;
}

/* A report that no limiter made. */
static void test_conservation(void **state)
{
    (void)state;
    struct scene s = begin(100);
    struct weir_root *root = weir_fleet_root(s.fleet, 0);
    struct weir_table *table = weir_fleet_table(s.fleet, 0);
    struct weir_ref ref;
    assert_true(weir_table_find(table, api, &ref));
    const struct weir_count count = { .slot = ref.slot, .passed = 9 };
    struct weir_message message = {
        .type = WEIR_MESSAGE_REPORT,
        .session = root->peers[0].session,
        .report = { .number = root->peers[0].number + 1,
                    .epoch = 1,
                    .count = 1,
                    .counts = &count },
    };
    struct weir_node_place place = { .root = true };
    assert_int_equal(weir_root_receive(root, 0, &message,
                                       weir_fleet_clock_of(s.fleet, place)),
                     0);
    assert_says(run(&s, WEIR_SECOND), "conservation: ");
    end(&s);
}

/* All limiters ignore their stops at once. */
static void test_unseen_bound(void **state)
{
    (void)state;
    struct scene s = begin(100);
    for (uint32_t l = 0; l < LIMITERS; l++) {
        struct weir_table *table = weir_fleet_table(s.fleet, l);
        weir_table_set_slack(table, 0, WEIR_COUNT_FAR, WEIR_COUNT_FAR);
        for (int i = 0; i < 90; i++)
            take(&s, l, 1);
    }
    assert_says(weir_check_event(s.check), "unseen_bound: ");
    end(&s);
}

/* A root that grants slack from more room than its quota has, to any
 * limiter. */
static void test_unseen_bound_of_a_root(void **state)
{
    (void)state;
    struct scene s = begin(100);
    const struct weir_net away = { .delay = 10 * WEIR_SECOND };
    weir_fleet_net(s.fleet, 0, 0, &away);
    struct weir_root *root = weir_fleet_root(s.fleet, 0);
    weir_merge_get(&root->merge, api)->bucket.high *= 8;
    take(&s, 1, 14);
    assert_says(run(&s, WEIR_SECOND), "unseen_bound: root1 lets limiter");
    end(&s);
}

/* A limiter with a bucket that was emptied from outside. */
static void test_agreement(void **state)
{
    (void)state;
    struct scene s = begin(100);
    for (int i = 0; i < 95; i++) {
        take(&s, 1, 1);
        assert_null(run(&s, 50 * WEIR_MILLISECOND));
    }
    assert_null(run(&s, WEIR_CHECK_SETTLE + WEIR_SECOND));
    struct weir_table *table = weir_fleet_table(s.fleet, 0);
    struct weir_node_place place = { .index = 0 };
    weir_table_set_fill(table, 0, 0, weir_table_count(table, 0),
                        weir_fleet_clock_of(s.fleet, place));
    assert_says(weir_check_end(s.check), "agreement: ");
    end(&s);
}

/* A limiter that lost a quota, though it wasn't removed. */
static void test_epochs(void **state)
{
    (void)state;
    struct scene s = begin(100);
    struct weir_node_place place = { .index = 2 };
    weir_table_drop(weir_fleet_table(s.fleet, 2), api,
                    weir_fleet_clock_of(s.fleet, place));
    struct weir_quota other;
    weir_quota_init(&other);
    other.name = WEIR_TEXT("other");
    assert_int_equal(weir_fleet_put(s.fleet, &other, NULL), 0);
    assert_says(run(&s, WEIR_SECOND), "epochs: ");
    end(&s);
}

/* A refusal without a reason; the first one stays. */
static void test_verdicts(void **state)
{
    (void)state;
    struct scene s = begin(100);
    weir_check_decided(s.check, 0, api, 1, WEIR_OUTCOME_LIMITED);
    assert_says(weir_check_event(s.check), "verdicts: ");
    take(&s, 0, 1);
    assert_says(weir_check_event(s.check), "verdicts: ");
    end(&s);
}

/* Runs the scenario with some seeds; requires that many requests and counts. */
static void run_soundly(const struct weir_scenario *scenario, uint64_t takes,
                        uint64_t counts)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct weir_run_options options = { .seed = seed, .check = true };
        struct weir_result *result =
            weir_run_simulated(scenario, &options, NULL);
        assert_non_null(result);
        if (result->violation)
            fail_msg("seed %d: %s", (int)seed, result->violation);
        assert_compare(result->takes, >=, takes);
        assert_compare(result->checked.reports, >=, counts);
        weir_result_free(result);
    }
}

/* If all is refused until the end, refusals are reported until the end; this
 * run ends within a report. */
static void test_refusals_are_not_rest(void **state)
{
    (void)state;
    struct weir_scenario *scenario =
        scenario_of("title \"A limit of the day, used up\"\n"
                    "roots 1\nlimiters 3\nnetwork rtt=1ms\n"
                    "quota api limit=1000/d low_burst=400 high_burst=600\n"
                    "load users to api rate=100/s\n"
                    "run 40s\n"
                    "at 13.01s restart limiter1 after 1s\n");
    run_soundly(scenario, 2000, 50);
    weir_scenario_free(scenario);
}

/* Names by the thousand, in tables of 32: a slot soon has another name. Roots
 * make buckets, free them when they are empty, and make them again: this is no
 * lost count. */
static void test_floods_are_no_violation(void **state)
{
    (void)state;
    struct weir_scenario *scenario =
        scenario_of("title \"A flood wider than the tables\"\n"
                    "roots 2\nlimiters 3\nslots 32\nnetwork rtt=2ms\n"
                    "quota hot limit=200/s\nquota \"t/*\" limit=5/s\n"
                    "load a to hot rate=2x\n"
                    "load f to \"t/*\" rate=2000/s keys=3000\n"
                    "run 20s\n");
    run_soundly(scenario, 40000, 10000);
    weir_scenario_free(scenario);
}

/* An overloaded root omits buckets far from full, and sends them when it has
 * time: in the end all nodes know the fills. */
static void test_what_wasnt_told_under_overload_is_made_up_for(void **state)
{
    (void)state;
    struct weir_scenario *scenario =
        scenario_of("title \"An overloaded root, and then rest\"\n"
                    "roots 1\nlimiters 6\nslots 512\nnetwork rtt=1ms\n"
                    "cpu root1 message=100us item=200us\n"
                    "quota hot limit=200/s\n"
                    "quota \"t/*\" limit=1/d low_burst=150 high_burst=200\n"
                    "load a to hot rate=3x\n"
                    "load f to \"t/*\" rate=1500/s keys=300\n"
                    "run 34s\n"
                    "at 8s load f rate=0/s; load a rate=0/s\n"
                    "at 8s cpu root1 message=0ms item=0ms\n");
    run_soundly(scenario, 15000, 5000);
    weir_scenario_free(scenario);
}

/* A run is the same with and without checkers. */
static void test_checkers_change_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct weir_scenario *scenario = weir_swarm_scenario(seed);
        struct weir_run_options options = { .seed = seed, .check = true };
        struct weir_result *with = weir_run_simulated(scenario, &options, NULL);
        options.check = false;
        struct weir_result *without =
            weir_run_simulated(scenario, &options, NULL);
        assert_int_equal(with->events, without->events);
        assert_int_equal(with->takes, without->takes);
        assert_int_equal(with->sample_count, without->sample_count);
        for (size_t i = 0; with->fleet && i < with->sample_count; i++) {
            assert_true(with->fleet[i].messages == without->fleet[i].messages);
            assert_true(with->fleet[i].bytes == without->fleet[i].bytes);
        }
        weir_result_free(with);
        weir_result_free(without);
        weir_scenario_free(scenario);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_well),
        cmocka_unit_test(test_charges_and_refunds_are_no_violation),
        cmocka_unit_test(test_a_clock_may_be_set_back),
        cmocka_unit_test(test_what_is_presumed_ends),
        cmocka_unit_test(test_a_fill_of_before_an_edit_may_come_late),
        cmocka_unit_test(test_conservation),
        cmocka_unit_test(test_unseen_bound),
        cmocka_unit_test(test_unseen_bound_of_a_root),
        cmocka_unit_test(test_agreement),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_refusals_are_not_rest),
        cmocka_unit_test(test_floods_are_no_violation),
        cmocka_unit_test(test_what_wasnt_told_under_overload_is_made_up_for),
        cmocka_unit_test(test_checkers_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
