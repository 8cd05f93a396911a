/* SPDX-License-Identifier: MIT
 * test_region_permit.c - one limit on the units in flight for a whole tree of
 * regions.
 *
 *         0   1          the topmost roots
 *        /  \/  \
 *      2  3    4  5      two regions of two roots
 *      limiters  limiters
 *
 * Random histories over a network that loses, doubles, reorders and replays,
 * with limiters and roots of all tiers that die, links that are cut, and quotas
 * that are edited: when all is calm again, every root and every limiter knows
 * the units in flight exactly, whichever root carried them. Then how well a
 * limit is held, and the fate of a lost region's units. WEIR_SEED=N
 * WEIR_HISTORIES=1 plays one history again. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/root_state.h"
#include "crowd.h"
#include "histories.h"

#define HISTORIES 200
#define LIMITERS_MAX 6
#define STALE_AFTER (3 * WEIR_SECOND)
/* A dead limiter's units are given back one tier after the other, and
 * everything is sent again. */
#define CALM (30 * WEIR_SECOND)

/* The roots, and the roots above each. The last four belong to the two regions
 * of the limiters. */
struct shape {
    uint32_t roots, tops;
    uint32_t upstream[WEIR_FLEET_ROOTS_MAX];
};

static const struct shape two_tiers = { 6, 2, { 0, 0, 3, 3, 3, 3 } };
static const struct shape three_tiers = { 8,
                                          2,
                                          { 0, 0, 3, 3, 12, 12, 12, 12 } };

/* Shape of the tree in the current history. */
static const struct shape *shape;

static uint32_t region_of(const struct crowd *c, uint32_t limiter)
{
    return limiter < c->limiters / 2 ? 0 : 1;
}

/* The first of the two roots of a region. */
static uint32_t first_of(const struct crowd *c, uint32_t region)
{
    return c->roots - 4 + 2 * region;
}

static void make(struct crowd *c, const struct shape *of, uint32_t limiters,
                 const struct weir_settings *settings)
{
    struct weir_fleet_options options = { .seed = c->seed,
                                          .limiters = limiters,
                                          .roots = of->roots,
                                          .slots = 16,
                                          .net = c->net,
                                          .settings = *settings };
    memcpy(options.upstream, of->upstream, sizeof(options.upstream));
    shape = of;
    c->roots = c->uppers = of->roots;
    c->limiters = limiters;
    c->fleet = weir_fleet_new(&options);
    for (uint32_t l = 0; l < limiters; l++) {
        uint32_t first = first_of(c, region_of(c, l));
        for (uint32_t i = 0; i < of->roots; i++)
            weir_fleet_allow(c->fleet, l, i, i - first < 2);
        weir_fleet_start(c->fleet, limiter_at(l));
    }
}

/* ---- Invariants ---- */

/* Units in flight in the limiters of one region. */
static uint64_t in_flight_in(struct crowd *c, uint32_t region, const char *name)
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < c->limiters; l++)
        sum += region_of(c, l) == region ? crowd_held(c, l, name) : 0;
    return sum;
}

/* For replaying one history by hand. */
static void show(struct crowd *c, const char *name)
{
    print_message("  %s: ", name);
    for (uint32_t i = 0; i < c->limiters; i++)
        print_message(" %llu (of %.0f)",
                      (unsigned long long)crowd_held(c, i, name),
                      weir_fleet_limiter_fill(c->fleet, i, weir_text_of(name)));
    print_message("\n");
    for (uint32_t i = 0; i < shape->roots; i++) {
        struct weir_root *root = weir_fleet_root(c->fleet, i);
        struct weir_root_quota *use =
            root ? weir_merge_get(&root->merge, weir_text_of(name)) : NULL;
        if (use)
            print_message("  root %u: %llu, carried %llu, above %llu\n", i,
                          (unsigned long long)use->in_flight,
                          (unsigned long long)use->carried_in_flight,
                          (unsigned long long)use->up_in_flight);
    }
}

static void check_known(struct crowd *c, const char *name)
{
    if (getenv("WEIR_SHOW"))
        show(c, name);
    uint64_t truth = crowd_in_flight(c, name);
    struct weir_text text = weir_text_of(name);
    for (uint32_t r = 0; r < shape->tops; r++)
        crowd_expect(c, weir_fleet_root_fill(c->fleet, r, text), truth, "top",
                     r, name);
    for (uint32_t r = first_of(c, 0); r < shape->roots; r++) {
        if (in_flight_in(c, r < first_of(c, 1) ? 0 : 1, name) > 0)
            crowd_expect(c, weir_fleet_root_fill(c->fleet, r, text), truth,
                         "root", r, name);
    }
    crowd_check_limiters(c, name);
}

/* ---- Histories ---- */

/* A link of a limiter, or of a region's root, is cut or mended. */
static void op_cut(struct crowd *c)
{
    uint32_t from = (uint32_t)below(c, c->limiters);
    uint32_t to = first_of(c, region_of(c, from)) + (uint32_t)below(c, 2);
    if (below(c, 2)) {
        uint32_t tops = shape->tops;
        uint32_t root = tops + (uint32_t)below(c, shape->roots - tops);
        from = weir_fleet_upper(c->fleet, root);
        to = (uint32_t)__builtin_ctz(shape->upstream[root]) +
             (uint32_t)below(c, 2);
    }
    weir_fleet_cut(c->fleet, from, to, (enum weir_way)below(c, 4),
                   below(c, 2) * WEIR_SECOND);
}

static void play(uint64_t seed)
{
    struct crowd *c = test_calloc(1, sizeof(*c));
    c->seed = seed;
    c->rng.state = seed * 2654435761u;
    crowd_draw_network(c);
    struct weir_settings settings = {
        .report_interval = (1 + below(c, 10)) * 100 * WEIR_MILLISECOND,
        .stale_after = STALE_AFTER,
        .slack = below(c, 4) != 0,
    };
    make(c, below(c, 3) ? &two_tiers : &three_tiers,
         2 + 2 * (uint32_t)below(c, LIMITERS_MAX / 2), &settings);
    crowd_put(c, "db", NULL, WEIR_CONCURRENCY, 1 + below(c, 60));
    crowd_put(c, "db/a", "db", WEIR_CONCURRENCY, 1 + below(c, 60));
    run(c, below(c, 2) * 2 * WEIR_SECOND);
    unsigned mishaps = (unsigned)below(c, 16);
    for (uint64_t steps = 10 + below(c, 90); steps > 0; steps--)
        crowd_step(c, mishaps, op_cut);
    crowd_heal(c, CALM);
    check_known(c, "db");
    check_known(c, "db/a");
    crowd_end(c);
}

static void test_histories(void **state)
{
    (void)state;
    uint64_t seed = from_environment("WEIR_SEED", 1);
    /* A region receives a removal when its limiter already has the edits after
     * it. */
    play(11022);
    uint64_t count = histories(20, HISTORIES);
    for (uint64_t i = 0; i < count; i++)
        play(seed + i);
    print_message("  %llu histories\n", (unsigned long long)count);
}

/* ---- Stories ---- */

static const struct weir_settings usual = { .report_interval = WEIR_SECOND,
                                            .stale_after = STALE_AFTER,
                                            .slack = true };

static struct crowd *quiet_tree(const struct shape *of, uint32_t limiters,
                                uint64_t seed)
{
    struct crowd *c = test_calloc(1, sizeof(*c));
    c->rng.state = c->seed = seed;
    c->net = (struct weir_net){ .shape = WEIR_DELAY_UNIFORM,
                                .delay = WEIR_MILLISECOND };
    make(c, of, limiters, &usual);
    crowd_put(c, "db", NULL, WEIR_CONCURRENCY, 40);
    run(c, 2 * WEIR_SECOND);
    return c;
}

/* All ask for as much as the whole limit, for half a minute. */
static void hold_one_limit(const struct shape *of, uint64_t seed)
{
    struct crowd *c = quiet_tree(of, 6, seed);
    double mean;
    uint64_t most = crowd_press(c, 30000, &mean);
    print_message("  seed %llu: in flight of 40 in two regions: at most %llu, "
                  "in the mean %.1f\n",
                  (unsigned long long)seed, (unsigned long long)most, mean);
    /* If each region had a limit of its own, all 64 of 64 would be in
     * flight. */
    assert_compare(most, <=, 40 + 3 * 6);
    assert_compare(mean, >, 25);
    assert_compare(mean, <, 44);
    crowd_end(c);
}

static void test_regions_hold_one_limit(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        hold_one_limit(&two_tiers, seed);
        hold_one_limit(&three_tiers, seed);
    }
}

/* Enters one at a time, with time to report each; returns how many passed. */
static int enter_slowly(struct crowd *c, uint32_t limiter, int most)
{
    struct weir_permit_record record;
    int entered = 0;
    for (int i = 0; i < 20 * most && entered < most; i++) {
        entered +=
            !(weir_fleet_enter(c->fleet, limiter, WEIR_TEXT("db"), 1, &record) &
              WEIR_OUTCOME_LIMITED);
        run(c, 50 * WEIR_MILLISECOND);
    }
    return entered;
}

/* Units of one region are not available to another, until its limiter is
 * gone. */
static void test_what_another_region_has(void **state)
{
    (void)state;
    struct crowd *c = quiet_tree(&two_tiers, 4, 7);
    assert_int_equal(enter_slowly(c, 0, 30), 30);
    run(c, 2 * WEIR_SECOND);
    assert_int_equal(enter_slowly(c, 2, 30), 10);
    weir_fleet_kill(c->fleet, limiter_at(0));
    run(c, STALE_AFTER - WEIR_SECOND);
    assert_int_equal(enter_slowly(c, 3, 1), 0);
    run(c, 6 * WEIR_SECOND);
    assert_int_equal(enter_slowly(c, 3, 40), 30);
    crowd_end(c);
}

/* Through the death of each root of a region in turn, and their return, the
 * units of its limiters are counted above all the time; for a while perhaps
 * twice. */
static void test_a_carrier_dies(void **state)
{
    (void)state;
    struct crowd *c = quiet_tree(&two_tiers, 4, 7);
    assert_int_equal(enter_slowly(c, 0, 20), 20);
    assert_int_equal(enter_slowly(c, 1, 10), 10);
    run(c, 2 * WEIR_SECOND);
    uint32_t first = first_of(c, 0);
    double most = 0;
    for (int ms = 0; ms < 60000; ms += 10) {
        if (ms % 15000 == 0)
            weir_fleet_kill(c->fleet, root_at(first + ms / 15000 % 2));
        if (ms % 15000 == 7000)
            weir_fleet_start(c->fleet, root_at(first + ms / 15000 % 2));
        for (uint32_t top = 0; top < 2; top++) {
            double fill = weir_fleet_root_fill(c->fleet, top, WEIR_TEXT("db"));
            assert_compare(fill, >=, 30);
            most = fill > most ? fill : most;
        }
        run(c, 10 * WEIR_MILLISECOND);
    }
    print_message("  of 30 in flight the top saw %.0f at most\n", most);
    assert_compare(most, <=, 60);
    check_known(c, "db");
    crowd_end(c);
}

/* A region is cut off while another region has the whole limit. By `share` it
 * has at least the part of one node that reports to the top: there are four
 * roots that do. */
static void test_a_share_while_cut_off(void **state)
{
    (void)state;
    struct crowd *c = quiet_tree(&two_tiers, 4, 7);
    crowd_put_on_stale(c, WEIR_STALE_SHARE);
    run(c, 2 * WEIR_SECOND);
    assert_int_equal(enter_slowly(c, 2, 40), 40);
    assert_int_equal(enter_slowly(c, 0, 1), 0);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t upper = weir_fleet_upper(c->fleet, first_of(c, 0) + i);
        for (uint32_t top = 0; top < 2; top++)
            weir_fleet_cut(c->fleet, upper, top, WEIR_WAY_BOTH, 0);
    }
    run(c, STALE_AFTER + 4 * WEIR_SECOND);
    int entered = enter_slowly(c, 0, 40);
    print_message("  cut off, of 40 that another region has: %d\n", entered);
    assert_compare(entered, >=, 10);
    assert_compare(entered, <=, 20);
    crowd_end(c);
}

/* From a rate to a concurrency quota and back, and removed while permits are
 * out. */
static void test_edits_leave_nothing_behind(void **state)
{
    (void)state;
    struct crowd *c = quiet_tree(&three_tiers, 4, 7);
    assert_int_equal(enter_slowly(c, 0, 20), 20);
    crowd_put(c, "db", NULL, WEIR_RATE, 1000);
    run(c, 3 * WEIR_SECOND);
    crowd_put(c, "db", NULL, WEIR_CONCURRENCY, 40);
    run(c, 3 * WEIR_SECOND);
    check_known(c, "db");
    assert_int_equal(weir_fleet_remove(c->fleet, "db", NULL), 0);
    run(c, 3 * WEIR_SECOND);
    crowd_put(c, "db", NULL, WEIR_CONCURRENCY, 40);
    run(c, 3 * WEIR_SECOND);
    check_known(c, "db");
    assert_int_equal(enter_slowly(c, 3, 40), 20);
    crowd_kill(c, 0);
    assert_int_equal(weir_fleet_remove(c->fleet, "db", NULL), 0);
    run(c, 10 * WEIR_SECOND);
    crowd_put(c, "db", NULL, WEIR_CONCURRENCY, 40);
    run(c, 10 * WEIR_SECOND);
    assert_int_equal(crowd_in_flight(c, "db"), 20);
    check_known(c, "db");
    crowd_end(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions_hold_one_limit),
        cmocka_unit_test(test_what_another_region_has),
        cmocka_unit_test(test_a_carrier_dies),
        cmocka_unit_test(test_a_share_while_cut_off),
        cmocka_unit_test(test_edits_leave_nothing_behind),
        cmocka_unit_test(test_histories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
