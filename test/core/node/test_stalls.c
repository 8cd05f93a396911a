/* SPDX-License-Identifier: MIT
 * test/core/node/test_stalls.c - how much a fleet has learnt about its load
 * when its machine stalls. In virtual time every node is stopped for 0.3 to 1 s
 * now and then, a tenth of its time; then all roots die, or a region is cut
 * off. From then on limiters pass the rate that they had learnt.
 *
 * Stalls end with the cut, so the figures show only the learning. Seeds in a
 * row; WEIR_SEED sets the first. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compare.h"
#include "histories.h"
#include "lab/fleet.h"

#define LIMIT 1000
#define SEEDS 8
#define LEARN 15        /* seconds, before the cut */
#define STALL_EVERY 6.5 /* seconds, of each node, on average */
#define STEP (50 * WEIR_MILLISECOND)
#define LIMITERS 3 /* those that are cut off */
#define NODES_MAX 16

enum mode { SHARE, HOLD, MODES };

static const struct weir_text names[MODES] = { WEIR_TEXT("share"),
                                               WEIR_TEXT("hold") };
static const enum weir_on_stale rules[MODES] = { WEIR_STALE_SHARE,
                                                 WEIR_STALE_HOLD };

enum mishap {
    ROOTS_DIE,
    LINKS_ARE_CUT, /* between the first region and the top */
    TOP_IS_SILENT, /* its links stand */
};

/* A fleet, and the part of it that is cut off: its first limiters, with two
 * roots that die, or with a region's roots, which lose their upstream. */
struct shape {
    const char *what;
    enum mishap mishap;
    uint32_t limiters, roots;
    uint32_t upstream[WEIR_FLEET_ROOTS_MAX];
    double wanted; /* the rate that the part should go on with, of the limit */
};

static const struct shape flat = { "roots die", ROOTS_DIE, LIMITERS,
                                   2,           { 0 },     1.0 };
static const struct shape region = { "a region is cut off", LINKS_ARE_CUT,
                                     2 * LIMITERS,          6,
                                     { 0, 0, 3, 3, 3, 3 },  0.5 };
static const struct shape silent = { "the top is silent",  TOP_IS_SILENT,
                                     2 * LIMITERS,         6,
                                     { 0, 0, 3, 3, 3, 3 }, 0.5 };

struct stalls {
    const struct shape *shape;
    struct weir_fleet *fleet;
    bool stalls;
    weir_instant until[NODES_MAX]; /* by node: roots, then limiters; 0: it isn't
                                    * stopped */
};

static struct weir_node_place place_of(const struct stalls *s, uint32_t node)
{
    bool root = node < s->shape->roots;
    return (struct weir_node_place){ .root = root,
                                     .index =
                                         root ? node : node - s->shape->roots };
}

/* A region's limiters link to its two roots only. */
static bool is_linked(const struct shape *shape, uint32_t limiter,
                      uint32_t root)
{
    uint32_t first = limiter < LIMITERS ? 2 : 4;
    return shape == &flat || root - first < 2;
}

static void put(struct weir_fleet *fleet, enum mode mode)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = names[mode];
    quota.limit = (struct weir_limit){ .units = LIMIT, .per = WEIR_SECOND };
    quota.low_burst = (struct weir_burst){ .amount = LIMIT };
    quota.high_burst = (struct weir_burst){ .amount = LIMIT * 3 / 2 };
    quota.on_stale = rules[mode];
    assert_int_equal(weir_fleet_put(fleet, &quota, NULL), 0);
}

static void make(struct stalls *s, const struct shape *shape, uint64_t seed)
{
    struct weir_fleet_options options = {
        .seed = seed,
        .limiters = shape->limiters,
        .roots = shape->roots,
        .slots = 16,
        .net = { .shape = WEIR_DELAY_UNIFORM,
                 .delay = WEIR_MILLISECOND,
                 .spread = WEIR_MILLISECOND / 4 },
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
    };
    for (uint32_t i = 0; i < shape->roots; i++)
        options.upstream[i] = shape->upstream[i];
    *s = (struct stalls){ .shape = shape, .fleet = weir_fleet_new(&options) };
    for (uint32_t l = 0; l < shape->limiters; l++) {
        for (uint32_t root = 0; root < shape->roots; root++)
            weir_fleet_allow(s->fleet, l, root, is_linked(shape, l, root));
        weir_fleet_start(s->fleet, (struct weir_node_place){ .index = l });
    }
    for (int mode = 0; mode < MODES; mode++)
        put(s->fleet, (enum mode)mode);
    weir_fleet_run(s->fleet, 2 * WEIR_SECOND);
}

static void end_stall(struct stalls *s, uint32_t node)
{
    s->until[node] = 0;
    weir_fleet_pause(s->fleet, place_of(s, node), false);
}

/* Stops some nodes for the next while, and lets others go on. */
static void stall(struct stalls *s)
{
    struct weir_world *world = weir_fleet_world(s->fleet);
    weir_instant now = weir_fleet_now(s->fleet);
    double chance = (double)STEP / WEIR_SECOND / STALL_EVERY;
    for (uint32_t i = 0; i < s->shape->roots + s->shape->limiters; i++) {
        if (s->until[i] != 0 && now >= s->until[i])
            end_stall(s, i);
        if (s->until[i] != 0 || !s->stalls || !weir_world_chance(world, chance))
            continue;
        uint64_t ms = 300 + weir_rng_below(&world->rng, 700);
        s->until[i] = now + ms * WEIR_MILLISECOND;
        weir_fleet_pause(s->fleet, place_of(s, i), true);
    }
}

/* Every limiter is offered this part of the limit for some seconds, as Poisson.
 * 'passed': units a second, of the limit, that pass on those that are to be cut
 * off. */
static void load(struct stalls *s, int seconds, double offered, double *passed)
{
    struct weir_world *world = weir_fleet_world(s->fleet);
    weir_instant start = weir_fleet_now(s->fleet);
    weir_instant next = start;
    double mean = 1.0 / LIMIT / offered / s->shape->limiters;
    uint64_t counted[MODES] = { 0 };
    for (double at = 0; at < seconds;
         at += weir_world_exponential(world, mean)) {
        weir_instant now = start + (weir_duration)(at * WEIR_SECOND);
        for (; next <= now; next += STEP) {
            weir_fleet_run(s->fleet, next);
            stall(s);
        }
        weir_fleet_run(s->fleet, now);
        uint32_t who =
            (uint32_t)weir_rng_below(&world->rng, s->shape->limiters);
        for (int mode = 0; mode < MODES; mode++) {
            unsigned outcome =
                weir_fleet_take(s->fleet, who, names[mode], 1, NULL);
            counted[mode] +=
                who < LIMITERS && !(outcome & WEIR_OUTCOME_LIMITED);
        }
    }
    weir_fleet_run(s->fleet, start + (weir_duration)seconds * WEIR_SECOND);
    for (int mode = 0; mode < MODES; mode++)
        passed[mode] = (double)counted[mode] / LIMIT / seconds;
}

static void cut(struct stalls *s)
{
    s->stalls = false;
    for (uint32_t i = 0; i < s->shape->roots + s->shape->limiters; i++)
        end_stall(s, i);
    for (uint32_t root = 0; root < 2; root++) {
        if (s->shape->mishap == ROOTS_DIE)
            weir_fleet_kill(s->fleet, place_of(s, root));
        if (s->shape->mishap == TOP_IS_SILENT)
            weir_fleet_pause(s->fleet, place_of(s, root), true);
        bool links = s->shape->mishap == LINKS_ARE_CUT;
        for (uint32_t below = 2; links && below < 4; below++)
            weir_fleet_cut(s->fleet, weir_fleet_upper(s->fleet, below), root,
                           WEIR_WAY_BOTH, 0);
    }
}

/* The rate that those cut off go on with, of the limit. */
static void learnt(const struct shape *shape, uint64_t seed, bool stalls,
                   double *passed)
{
    struct stalls s;
    make(&s, shape, seed);
    s.stalls = stalls;
    load(&s, LEARN, 1, passed);
    cut(&s);
    load(&s, 5, 1, passed);
    load(&s, 10, 1, passed);
    assert_int_equal(weir_fleet_error(s.fleet), 0);
    weir_fleet_free(s.fleet);
}

struct figures {
    double sum, squares, least, most;
};

static void note(struct figures *f, double x)
{
    f->least = f->sum == 0 ? x : fmin(f->least, x);
    f->most = fmax(f->most, x);
    f->sum += x;
    f->squares += x * x;
}

/* 'most_off': relative to the wanted rate. */
static void go_on(const struct shape *shape, bool stalls,
                  const double *most_off)
{
    uint64_t first = from_environment("WEIR_SEED", 1);
    uint64_t count = histories(1500, SEEDS);
    struct figures figures[MODES] = { { 0 } };
    for (uint64_t seed = first; seed < first + count; seed++) {
        double passed[MODES];
        learnt(shape, seed, stalls, passed);
        for (int mode = 0; mode < MODES; mode++)
            note(&figures[mode], passed[mode] / shape->wanted);
    }
    for (int mode = 0; mode < MODES; mode++) {
        struct figures *f = &figures[mode];
        double mean = f->sum / (double)count;
        print_message("  %s, %s, %.*s: mean %.3f, sd %.3f, %.3f to %.3f "
                      "(seeds from %llu)\n",
                      shape->what, stalls ? "stalls" : "no stalls",
                      (int)names[mode].len, names[mode].p, mean,
                      sqrt(fmax(0, f->squares / (double)count - mean * mean)),
                      f->least, f->most, (unsigned long long)first);
        assert_compare(f->least, >, 1 - most_off[mode]);
        assert_compare(f->most, <, 1 + most_off[mode]);
    }
}

static void test_roots_die(void **state)
{
    (void)state;
    go_on(&flat, false, (const double[]){ 0.04, 0.06 });
}

/* A limiter that was stopped for a tenth of the time was asked a tenth less:
 * `hold` lets that much more pass when it isn't stopped any more. */
static void test_roots_die_after_stalls(void **state)
{
    (void)state;
    go_on(&flat, true, (const double[]){ 0.15, 0.35 });
}

static void test_a_region_is_cut_off(void **state)
{
    (void)state;
    go_on(&region, false, (const double[]){ 0.1, 0.12 });
}

static void test_a_region_is_cut_off_after_stalls(void **state)
{
    (void)state;
    go_on(&region, true, (const double[]){ 0.35, 0.45 });
}

/* Until the silence is recognized, the region's limiters have a fill by which
 * its allowance is used up: "full" doesn't depend on the counts of others. */
static void test_the_top_is_silent(void **state)
{
    (void)state;
    go_on(&silent, false, (const double[]){ 0.1, 0.08 });
}

static void test_the_top_is_silent_after_stalls(void **state)
{
    (void)state;
    go_on(&silent, true, (const double[]){ 0.35, 0.45 });
}

/* Each limiter is offered 'first' for some seconds, then 'then'; then the roots
 * die. Returns the rate that passes by `hold`, of the limit. */
static double after(const char *what, double first, double then, int seconds)
{
    struct stalls s;
    double passed[MODES];
    make(&s, &flat, 1);
    load(&s, LEARN, first, passed);
    load(&s, seconds, then, passed);
    cut(&s);
    load(&s, 5, then, passed);
    load(&s, 10, then, passed);
    weir_fleet_free(s.fleet);
    print_message("  %s: %.3f of the limit\n", what, passed[HOLD]);
    return passed[HOLD];
}

static void test_hold_is_of_the_overload_that_is(void **state)
{
    (void)state;
    double begun = after("an overload that is 2 s old", 0.1, 1, 2);
    assert_compare(fabs(begun - 1), <, 0.15);
    double over = after("one that was over 3 s ago", 1, 0.2, 4);
    assert_compare(fabs(over - 0.6), <, 0.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roots_die),
        cmocka_unit_test(test_roots_die_after_stalls),
        cmocka_unit_test(test_a_region_is_cut_off),
        cmocka_unit_test(test_a_region_is_cut_off_after_stalls),
        cmocka_unit_test(test_the_top_is_silent),
        cmocka_unit_test(test_the_top_is_silent_after_stalls),
        cmocka_unit_test(test_hold_is_of_the_overload_that_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
