/* SPDX-License-Identifier: MIT
 * test/core/node/test_debt.c - a limiter with false reports, in a fleet of
 * honest ones under three times the limit, in virtual time: max_debt after its
 * last report the limit passes again, with any restarts of roots and edits of
 * the quota. WEIR_SEED plays another fleet. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/root_state.h"
#include "histories.h"
#include "lab/fleet.h"

#define LIMIT 400
#define HONEST 4
#define LIAR HONEST /* the peer of a limiter that the fleet never starts */
#define MAX_DEBT (10 * WEIR_SECOND)
#define LYING 15  /* seconds, a lie in each; the bound is the last's */
#define JUDGED 10 /* seconds */
#define TWO_TO_62 ((int64_t)1 << 62)

#define Q WEIR_TEXT("q")

static const struct weir_settings settings = {
    .report_interval = WEIR_SECOND,
    .stale_after = 3 * WEIR_SECOND,
    .slack = true,
};

struct stage {
    struct weir_fleet *fleet;
    uint64_t seed;
    uint32_t roots;
    uint64_t session, number; /* of the liar, on all roots alike */
    uint8_t incarnation;
    uint64_t told; /* units, modulo 2^64, in all incarnations */
};

static void put(struct stage *stage, uint64_t limit)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = Q;
    quota.limit = (struct weir_limit){ .units = limit, .per = WEIR_SECOND };
    quota.max_debt = MAX_DEBT;
    assert_int_equal(weir_fleet_put(stage->fleet, &quota, NULL), 0);
}

/* 'region': root 1 is a region's, below root 0. All honest limiters but the
 * last are below it; the last one is linked to root 0. */
static struct stage open_stage(uint32_t roots, bool region)
{
    struct stage stage = { .roots = roots,
                           .seed = from_environment("WEIR_SEED", 1) };
    struct weir_fleet_options options = {
        .seed = stage.seed,
        .limiters = HONEST + 1,
        .limiters_started = HONEST,
        .roots = roots,
        .slots = 16,
        .net = { .shape = WEIR_DELAY_UNIFORM,
                 .delay = WEIR_MILLISECOND,
                 .spread = WEIR_MILLISECOND },
        .settings = settings,
    };
    if (region)
        options.upstream[1] = 1;
    stage.fleet = weir_fleet_new(&options);
    for (uint32_t i = 0; region && i < HONEST; i++)
        weir_fleet_allow(stage.fleet, i, i + 1 < HONEST ? 0 : 1, false);
    put(&stage, LIMIT);
    weir_fleet_run(stage.fleet, weir_fleet_now(stage.fleet) + 2 * WEIR_SECOND);
    return stage;
}

static void close_stage(struct stage *stage)
{
    assert_int_equal(weir_fleet_error(stage->fleet), 0);
    weir_fleet_free(stage->fleet);
}

/* 'seconds' of load at three times the limit, by limiters from 'first' on.
 * Returns the part of the limit that passed. */
static double load(struct stage *stage, int seconds, uint32_t first)
{
    struct weir_world *world = weir_fleet_world(stage->fleet);
    weir_instant start = weir_fleet_now(stage->fleet);
    uint64_t passed = 0;
    for (double at = 0; at < seconds;
         at += weir_world_exponential(world, 1 / (3.0 * LIMIT))) {
        weir_fleet_run(stage->fleet, start + (weir_duration)(at * 1e9));
        uint32_t who =
            first + (uint32_t)weir_rng_below(&world->rng, HONEST - first);
        passed += !(weir_fleet_take(stage->fleet, who, Q, 1, NULL) &
                    WEIR_OUTCOME_LIMITED);
    }
    weir_fleet_run(stage->fleet, start + (weir_duration)seconds * WEIR_SECOND);
    return (double)passed / seconds / LIMIT;
}

static void expect(const struct stage *stage, double share, const char *when)
{
    print_message("%s: %.3f of the limit passes\n", when, share);
    if (share < 0.9 || share > 1.2)
        fail_msg("%s %.3f of the limit passes; repeat with WEIR_SEED=%llu",
                 when, share, (unsigned long long)stage->seed);
}

/* ---- The liar ---- */

static void say(struct stage *stage, uint32_t root,
                const struct weir_message *message)
{
    struct weir_node_place place = { .root = true, .index = root };
    assert_int_equal(
        weir_root_receive(weir_fleet_root(stage->fleet, root), LIAR, message,
                          weir_fleet_clock_of(stage->fleet, place)),
        0);
}

static void link_to(struct stage *stage, uint32_t root, bool up)
{
    struct weir_node_place place = { .root = true, .index = root };
    weir_root_link(weir_fleet_root(stage->fleet, root), LIAR, up,
                   weir_fleet_clock_of(stage->fleet, place));
}

/* A new session on roots from 'first' on, of the same limiter or of a new
 * one. */
static void arrive(struct stage *stage, uint32_t first, bool another)
{
    stage->incarnation += another;
    stage->number = 0;
    struct weir_message hello = {
        .type = WEIR_MESSAGE_HELLO,
        .session = ++stage->session,
        .hello = { .protocol = WEIR_PROTOCOL, .name = WEIR_TEXT("liar") },
    };
    memset(hello.hello.incarnation, 200 + stage->incarnation,
           WEIR_INCARNATION_SIZE);
    for (uint32_t r = first; r < stage->roots; r++) {
        link_to(stage, r, false);
        link_to(stage, r, true);
        say(stage, r, &hello);
    }
}

static void leave(struct stage *stage, uint32_t first)
{
    for (uint32_t r = first; r < stage->roots; r++)
        link_to(stage, r, false);
}

static void lie(struct stage *stage, uint32_t first, int64_t units)
{
    const struct weir_quota *quota =
        weir_catalog_get(weir_fleet_catalog(stage->fleet), Q);
    struct weir_announce announce = {
        .slot = 3, .name = Q, .created = quota->created, .fill = INT64_MAX
    };
    struct weir_count count = {
        .slot = 3, .passed = units, .carry = units, .pace = WEIR_PACE_MAX
    };
    stage->number++;
    stage->told += (uint64_t)units;
    struct weir_message report = {
        .type = WEIR_MESSAGE_REPORT,
        .session = stage->session,
        .report = { .number = stage->number,
                    .epoch = quota->epoch,
                    .announce_count = stage->number == 1,
                    .announces = &announce,
                    .carried = true,
                    .count = 1,
                    .counts = &count },
    };
    for (uint32_t r = first; r < stage->roots; r++)
        say(stage, r, &report);
}

/* Lies for as many seconds as it takes to use up all debt. */
static void lie_on(struct stage *stage, uint32_t first)
{
    static const int64_t lies[] = { TWO_TO_62, INT64_MAX, INT64_MIN,
                                    TWO_TO_62, -1,        1 << 30 };
    for (int second = 0; second < LYING; second++) {
        lie(stage, first, lies[second % WEIR_COUNT_OF(lies)]);
        load(stage, 1, 0);
    }
    lie(stage, first, TWO_TO_62);
}

/* The totals of the roots are the units that honest limiters let through plus
 * those in the liar's reports. */
static void check_totals(struct stage *stage)
{
    weir_fleet_run(stage->fleet,
                   weir_fleet_now(stage->fleet) + 3 * WEIR_SECOND);
    uint64_t passed = stage->told;
    for (uint32_t i = 0; i < HONEST; i++)
        passed += weir_fleet_count(stage->fleet, i, Q);
    for (uint32_t r = 0; r < stage->roots; r++)
        assert_int_equal(weir_fleet_root_passed(stage->fleet, r, Q), passed);
}

static void wait_for_debts(struct stage *stage, int debts)
{
    load(stage, debts * (int)(MAX_DEBT / WEIR_SECOND), 0);
}

/* ---- After the reports ---- */

static void test_after_it_has_left(void **state)
{
    (void)state;
    struct stage stage = open_stage(2, false);
    expect(&stage, load(&stage, JUDGED, 0), "before");
    arrive(&stage, 0, true);
    lie_on(&stage, 0);
    assert_compare(load(&stage, 1, 0), <, 0.1);
    leave(&stage, 0);
    wait_for_debts(&stage, 1);
    expect(&stage, load(&stage, JUDGED, 0), "after it has left");
    check_totals(&stage);
    struct weir_debtor debtor;
    assert_true(weir_root_debtor_of(weir_fleet_root(stage.fleet, 0), Q, &debtor,
                                    weir_fleet_now(stage.fleet)));
    assert_true(weir_text_equal(debtor.limiter, WEIR_TEXT("liar")));
    close_stage(&stage);
}

static void test_while_it_is_silent(void **state)
{
    (void)state;
    struct stage stage = open_stage(2, false);
    arrive(&stage, 0, true);
    lie_on(&stage, 0);
    wait_for_debts(&stage, 1);
    expect(&stage, load(&stage, JUDGED, 0), "while it is silent");
    check_totals(&stage);
    close_stage(&stage);
}

static void test_after_an_edit(void **state)
{
    (void)state;
    struct stage stage = open_stage(2, false);
    put(&stage, 100 * LIMIT);
    weir_fleet_run(stage.fleet, weir_fleet_now(stage.fleet) + WEIR_SECOND);
    arrive(&stage, 0, true);
    lie_on(&stage, 0);
    leave(&stage, 0);
    /* Honest limiters still report their counts under the old limit. */
    load(&stage, 2, 0);
    put(&stage, LIMIT);
    wait_for_debts(&stage, 1);
    expect(&stage, load(&stage, JUDGED, 0), "after an edit");
    check_totals(&stage);
    close_stage(&stage);
}

/* Limiters report their fill to roots that are started; the liar reports a full
 * bucket, and goes on. */
static void test_after_a_restart_of_the_roots(void **state)
{
    (void)state;
    struct stage stage = open_stage(2, false);
    arrive(&stage, 0, true);
    lie_on(&stage, 0);
    for (uint32_t r = 0; r < stage.roots; r++) {
        weir_fleet_kill(stage.fleet, (struct weir_node_place){ true, r });
        weir_fleet_start(stage.fleet, (struct weir_node_place){ true, r });
    }
    load(&stage, 1, 0);
    arrive(&stage, 0, false);
    lie(&stage, 0, INT64_MAX);
    load(&stage, 1, 0);
    lie(&stage, 0, TWO_TO_62);
    leave(&stage, 0);
    wait_for_debts(&stage, 1);
    expect(&stage, load(&stage, JUDGED, 0), "after a restart of the roots");
    close_stage(&stage);
}

/* Each identity is a limiter of its own, with a debt of its own: the bound is
 * that many times max_debt. */
static void test_identities_have_a_debt_each(void **state)
{
    (void)state;
    struct stage stage = open_stage(2, false);
    for (int i = 0; i < 3; i++) {
        arrive(&stage, 0, true);
        lie(&stage, 0, TWO_TO_62);
    }
    leave(&stage, 0);
    double debt = (double)LIMIT * (double)MAX_DEBT / (double)WEIR_SECOND;
    assert_compare(weir_fleet_root_fill(stage.fleet, 0, Q), <=, 3 * debt + 1);
    wait_for_debts(&stage, 3);
    expect(&stage, load(&stage, JUDGED, 0), "after three identities");
    check_totals(&stage);
    close_stage(&stage);
}

/* A reset empties the bucket at once, and no root that is started takes the old
 * fill over from limiters. */
static void test_after_a_reset(void **state)
{
    (void)state;
    struct stage stage = open_stage(2, false);
    arrive(&stage, 0, true);
    lie_on(&stage, 0);
    leave(&stage, 0);
    assert_compare(load(&stage, 1, 0), <, 0.1);
    for (int restarts = 0; restarts < 2; restarts++) {
        assert_int_equal(weir_fleet_empty(stage.fleet, Q, NULL), 0);
        for (uint32_t r = 0; restarts > 0 && r < stage.roots; r++) {
            weir_fleet_kill(stage.fleet, (struct weir_node_place){ true, r });
            weir_fleet_start(stage.fleet, (struct weir_node_place){ true, r });
        }
        load(&stage, 1, 0);
        expect(&stage, load(&stage, 5, 0), "after a reset");
        arrive(&stage, 0, true);
        lie(&stage, 0, TWO_TO_62);
        leave(&stage, 0);
        assert_compare(load(&stage, 2, 0), <, 0.7);
    }
    close_stage(&stage);
}

/* The liar reports to a region's root, which hands all of it up. The limiter
 * elsewhere gets the limit again, and the region exceeds its debt. */
static void test_in_a_region(void **state)
{
    (void)state;
    struct stage stage = open_stage(2, true);
    load(&stage, 3, 0);
    arrive(&stage, 1, true);
    lie_on(&stage, 1);
    leave(&stage, 1);
    wait_for_debts(&stage, 1);
    expect(&stage, load(&stage, JUDGED, HONEST - 1), "above the region");
    expect(&stage, load(&stage, JUDGED, 0), "in all");
    close_stage(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_after_it_has_left),
        cmocka_unit_test(test_while_it_is_silent),
        cmocka_unit_test(test_after_an_edit),
        cmocka_unit_test(test_after_a_restart_of_the_roots),
        cmocka_unit_test(test_identities_have_a_debt_each),
        cmocka_unit_test(test_after_a_reset),
        cmocka_unit_test(test_in_a_region),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
