/* SPDX-License-Identifier: MIT
 * test/lab/test_lab_fleet.c - the simulated fleet itself: links come and go as
 * directed, one seed gives the same history to the byte, processors take their
 * time, clocks run as configured, buffers are bounded, and faults match their
 * names. The nodes' behaviour is tested by test_sync and test_fleet. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "lab/fleet_internal.h"
#include "seed.h"

#define API WEIR_TEXT("api")

static struct weir_fleet_options usual(void)
{
    return (struct weir_fleet_options){
        .seed = from_environment("WEIR_SEED", 1),
        .limiters = 3,
        .limiters_started = 3,
        .roots = 2,
        .slots = 16,
        .net = { .delay = WEIR_MILLISECOND },
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
    };
}

static struct weir_node_place limiter_at(uint32_t index)
{
    return (struct weir_node_place){ .index = index };
}

static struct weir_node_place root_at(uint32_t index)
{
    return (struct weir_node_place){ .root = true, .index = index };
}

static void run(struct weir_fleet *fleet, weir_duration span)
{
    weir_fleet_run(fleet, weir_fleet_now(fleet) + span);
}

static void put(struct weir_fleet *fleet, const char *name, uint64_t units,
                weir_duration per)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = weir_text_of(name);
    quota.limit = (struct weir_limit){ .units = units, .per = per };
    quota.low_burst = (struct weir_burst){ .amount = units };
    quota.high_burst = (struct weir_burst){ .amount = units + units / 2 };
    assert_int_equal(weir_fleet_put(fleet, &quota, NULL), 0);
}

static struct weir_fleet *fleet_of(const struct weir_fleet_options *options)
{
    struct weir_fleet *fleet = weir_fleet_new(options);
    put(fleet, "api", 1000, WEIR_SECOND);
    run(fleet, 100 * WEIR_MILLISECOND);
    return fleet;
}

/* One request a millisecond, from the limiters in turn. */
static uint64_t load(struct weir_fleet *fleet, uint32_t limiters,
                     weir_duration span)
{
    uint64_t passed = 0;
    for (uint32_t i = 0; i < span / WEIR_MILLISECOND; i++) {
        run(fleet, WEIR_MILLISECOND);
        passed += !(weir_fleet_take(fleet, i % limiters, API, 1, NULL) &
                    WEIR_OUTCOME_LIMITED);
    }
    return passed;
}

static void finish(struct weir_fleet *fleet)
{
    assert_int_equal(weir_fleet_error(fleet), 0);
    weir_fleet_free(fleet);
}

/* ---- Life and links ---- */

static void test_a_fleet_meets_and_counts(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    struct weir_fleet *fleet = fleet_of(&options);
    for (uint32_t l = 0; l < 3; l++) {
        for (uint32_t r = 0; r < 2; r++)
            assert_true(weir_fleet_linked(fleet, l, r));
        assert_true(weir_limiter_ready(weir_fleet_limiter(fleet, l)));
    }
    uint64_t passed = load(fleet, 3, WEIR_SECOND);
    weir_fleet_charge(fleet, 0, API, 100);
    weir_fleet_refund(fleet, 0, API, 30);
    run(fleet, 2 * WEIR_SECOND);
    assert_int_equal(weir_fleet_root_passed(fleet, 0, API), passed + 70);
    assert_int_equal(weir_fleet_root_passed(fleet, 1, API), passed + 70);
    assert_int_equal(weir_fleet_count(fleet, 0, API) +
                         weir_fleet_count(fleet, 1, API) +
                         weir_fleet_count(fleet, 2, API),
                     passed + 70);
    finish(fleet);
}

struct seen {
    struct weir_fleet *fleet;
    uint64_t digest, counted, received, dying, born;
};

static void mix(struct seen *seen, uint64_t value)
{
    seen->digest = weir_rng_mix(seen->digest ^ value) + value;
}

static void on_counted(void *context, uint32_t limiter, struct weir_ref ref,
                       int64_t weight)
{
    struct seen *seen = context;
    mix(seen, limiter);
    mix(seen, ref.slot);
    mix(seen, (uint64_t)weight);
    seen->counted++;
}

static void on_received(void *context, struct weir_node_place to, uint32_t from,
                        const struct weir_message *message)
{
    struct seen *seen = context;
    mix(seen, weir_fleet_now(seen->fleet));
    mix(seen, to.index * 2 + to.root);
    mix(seen, from * 8 + message->type);
    mix(seen, message->session);
    seen->received++;
}

static void on_dying(void *context, struct weir_node_place place)
{
    struct seen *seen = context;
    assert_true(weir_fleet_alive(seen->fleet, place));
    seen->dying++;
}

static void on_born(void *context, struct weir_node_place place)
{
    struct seen *seen = context;
    assert_true(weir_fleet_alive(seen->fleet, place));
    seen->born++;
}

/* A second with most of the possible faults. */
static struct seen trouble(uint64_t seed)
{
    struct weir_fleet_options options = usual();
    options.seed = seed;
    options.net = (struct weir_net){ .shape = WEIR_DELAY_PARETO,
                                     .delay = WEIR_MILLISECOND,
                                     .spread = WEIR_MILLISECOND,
                                     .loss = 0.1,
                                     .twice = 0.1,
                                     .reorder = 0.1,
                                     .replay = 0.5,
                                     .bytes_per_s = 1 << 20 };
    struct weir_fleet *fleet = weir_fleet_new(&options);
    struct seen seen = { .fleet = fleet };
    struct weir_fleet_watch watch = { .context = &seen,
                                      .counted = on_counted,
                                      .received = on_received,
                                      .dying = on_dying,
                                      .born = on_born };
    weir_fleet_watch(fleet, &watch);
    put(fleet, "api", 1000, WEIR_SECOND);
    weir_fleet_cpu(fleet, root_at(0), WEIR_MILLISECOND, 1000);
    weir_fleet_clock(fleet, limiter_at(1), 1000, 200);
    load(fleet, 3, WEIR_SECOND);
    weir_fleet_kill(fleet, root_at(1));
    weir_fleet_kill(fleet, limiter_at(2));
    load(fleet, 3, WEIR_SECOND);
    weir_fleet_start(fleet, root_at(1));
    weir_fleet_start(fleet, limiter_at(2));
    weir_fleet_pause(fleet, root_at(0), true);
    load(fleet, 3, WEIR_SECOND);
    weir_fleet_pause(fleet, root_at(0), false);
    weir_fleet_reset(fleet, root_at(0));
    weir_fleet_clock(fleet, limiter_at(1), -100000, -200);
    load(fleet, 3, WEIR_SECOND);
    mix(&seen, weir_fleet_world(fleet)->events);
    finish(fleet);
    return seen;
}

static void test_a_seed_is_a_history(void **state)
{
    (void)state;
    struct seen one = trouble(1), again = trouble(1), other = trouble(2);
    assert_compare(one.received, >, 50);
    assert_compare(one.counted, >, 1000);
    assert_int_equal(one.dying, 2);
    assert_int_equal(one.born, 2);
    assert_int_equal(one.digest, again.digest);
    assert_int_not_equal(one.digest, other.digest);
    print_message("digest of seed 1: %016llx\n",
                  (unsigned long long)one.digest);
}

static void test_the_dead_take_nothing_and_come_back(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    options.limiters_started = 2;
    struct weir_fleet *fleet = fleet_of(&options);
    assert_false(weir_fleet_alive(fleet, limiter_at(2)));
    assert_false(weir_fleet_linked(fleet, 2, 0));
    assert_int_equal(weir_fleet_take(fleet, 2, API, 1, NULL),
                     WEIR_OUTCOME_LIMITED);
    assert_int_equal(weir_fleet_take(fleet, 0, WEIR_TEXT("none"), 1, NULL), 0);
    weir_fleet_start(fleet, limiter_at(2));
    run(fleet, 100 * WEIR_MILLISECOND);
    assert_int_equal(
        weir_fleet_take(fleet, 2, API, 1, NULL) & WEIR_OUTCOME_LIMITED, 0);
    assert_int_equal(weir_fleet_count(fleet, 2, API), 1);
    weir_fleet_kill(fleet, limiter_at(2));
    weir_fleet_kill(fleet, root_at(0));
    assert_ptr_equal(weir_fleet_root(fleet, 0), NULL);
    assert_ptr_equal(weir_fleet_table(fleet, 2), NULL);
    run(fleet, WEIR_SECOND);
    assert_int_equal(weir_limiter_links_up(weir_fleet_limiter(fleet, 0)), 1);
    weir_fleet_start(fleet, limiter_at(2));
    weir_fleet_start(fleet, root_at(0));
    run(fleet, WEIR_SECOND);
    assert_int_equal(weir_fleet_count(fleet, 2, API), 0);
    assert_int_equal(weir_limiter_links_up(weir_fleet_limiter(fleet, 2)), 2);
    finish(fleet);
}

static void test_the_store_goes_away_and_comes_back(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    struct weir_fleet *fleet = fleet_of(&options);
    struct weir_quota quota;
    struct weir_diag diag = { 0 };
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT("late");
    weir_fleet_store_away(fleet, true);
    assert_int_equal(weir_fleet_put(fleet, &quota, &diag), WEIR_ESTORE);
    assert_int_equal(weir_fleet_remove(fleet, "api", &diag), WEIR_ESTORE);
    weir_fleet_kill(fleet, root_at(0));
    weir_fleet_start(fleet, root_at(0));
    run(fleet, WEIR_SECOND);
    assert_false(weir_root_ready(weir_fleet_root(fleet, 0)));
    assert_true(weir_root_ready(weir_fleet_root(fleet, 1)));
    weir_fleet_store_away(fleet, false);
    assert_true(weir_root_ready(weir_fleet_root(fleet, 0)));
    assert_int_equal(weir_fleet_put(fleet, &quota, &diag), 0);
    assert_int_equal(weir_fleet_remove(fleet, "api", &diag), 0);
    run(fleet, WEIR_SECOND);
    assert_int_equal(weir_limiter_epoch(weir_fleet_limiter(fleet, 0)),
                     weir_catalog_epoch(weir_fleet_catalog(fleet)));
    assert_int_equal(weir_fleet_take(fleet, 0, API, 1000000, NULL), 0);
    assert_compare(weir_fleet_put(fleet, &(struct weir_quota){ 0 }, &diag), <,
                   0);
    finish(fleet);
}

/* ---- Faults ---- */

static uint64_t reports_taken(struct weir_fleet *fleet, uint32_t root)
{
    struct weir_root_stats stats;
    weir_root_stats(weir_fleet_root(fleet, root), &stats);
    return stats.reports;
}

static void test_a_cut_is_noticed_when_told(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    struct weir_fleet *fleet = fleet_of(&options);
    const struct weir_limiter *limiter = weir_fleet_limiter(fleet, 0);
    weir_fleet_cut(fleet, 0, 1, WEIR_WAY_BOTH, 2 * WEIR_SECOND);
    assert_false(weir_fleet_linked(fleet, 0, 1));
    run(fleet, 2 * WEIR_SECOND - 1);
    assert_int_equal(weir_limiter_links_up(limiter), 2);
    run(fleet, 1);
    assert_int_equal(weir_limiter_links_up(limiter), 1);
    weir_fleet_cut(fleet, 0, 1, 0, 0);
    run(fleet, WEIR_SECOND);
    assert_int_equal(weir_limiter_links_up(limiter), 2);
    assert_true(weir_fleet_linked(fleet, 0, 1));
    /* Mended before any node noticed: the connection was never lost. */
    weir_fleet_cut(fleet, 0, 0, WEIR_WAY_BOTH, 2 * WEIR_SECOND);
    run(fleet, WEIR_SECOND);
    weir_fleet_cut(fleet, 0, 0, 0, 0);
    run(fleet, 5 * WEIR_SECOND);
    assert_int_equal(weir_limiter_links_up(limiter), 2);
    /* And noticed at once. */
    weir_fleet_cut(fleet, 0, 0, WEIR_WAY_BOTH, 0);
    assert_int_equal(weir_limiter_links_up(limiter), 1);
    finish(fleet);
}

static void test_one_way_is_cut_in_silence(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    options.limiters = options.limiters_started = options.roots = 1;
    struct weir_fleet *fleet = fleet_of(&options);
    run(fleet, 5 * WEIR_SECOND);
    /* Down: the root receives, and its answers are lost. */
    weir_fleet_cut(fleet, 0, 0, WEIR_WAY_DOWN, 0);
    uint64_t before = reports_taken(fleet, 0);
    run(fleet, 5 * WEIR_SECOND);
    assert_int_equal(weir_limiter_links_up(weir_fleet_limiter(fleet, 0)), 1);
    assert_int_equal(reports_taken(fleet, 0), before + 1);
    /* Up: the root receives nothing at all. */
    weir_fleet_cut(fleet, 0, 0, WEIR_WAY_UP, 0);
    before = reports_taken(fleet, 0);
    run(fleet, 20 * WEIR_SECOND);
    assert_int_equal(weir_limiter_links_up(weir_fleet_limiter(fleet, 0)), 1);
    assert_int_equal(reports_taken(fleet, 0), before);
    /* A connection can't be made in one direction. */
    weir_fleet_reset(fleet, root_at(0));
    run(fleet, 10 * WEIR_SECOND);
    assert_int_equal(weir_limiter_links_up(weir_fleet_limiter(fleet, 0)), 0);
    weir_fleet_cut(fleet, 0, 0, 0, 0);
    run(fleet, WEIR_SECOND);
    assert_int_equal(weir_limiter_links_up(weir_fleet_limiter(fleet, 0)), 1);
    struct weir_fleet_stats stats;
    weir_fleet_stats(fleet, &stats);
    assert_compare(stats.lost, >, 5);
    finish(fleet);
}

static void test_a_limiter_links_where_it_may(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    struct weir_fleet *fleet = fleet_of(&options);
    weir_fleet_allow(fleet, 0, 0, false);
    weir_fleet_reset(fleet, root_at(0));
    run(fleet, WEIR_SECOND);
    assert_false(weir_fleet_linked(fleet, 0, 0));
    assert_true(weir_fleet_linked(fleet, 1, 0));
    weir_fleet_allow(fleet, 0, 0, true);
    assert_true(weir_fleet_linked(fleet, 0, 0));
    finish(fleet);
}

static void test_the_paused_do_nothing_until_they_go_on(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    options.roots = 1;
    struct weir_fleet *fleet = fleet_of(&options);
    run(fleet, 5 * WEIR_SECOND);
    weir_fleet_pause(fleet, root_at(0), true);
    uint64_t before = reports_taken(fleet, 0);
    put(fleet, "new", 5, WEIR_SECOND);
    run(fleet, 2 * WEIR_SECOND);
    assert_int_equal(reports_taken(fleet, 0), before);
    assert_true(weir_fleet_linked(fleet, 0, 0));
    weir_fleet_pause(fleet, limiter_at(1), true);
    assert_int_equal(weir_fleet_take(fleet, 1, API, 1, NULL),
                     WEIR_OUTCOME_LIMITED);
    assert_int_equal(weir_fleet_count(fleet, 1, API), 0);
    weir_fleet_pause(fleet, root_at(0), false);
    run(fleet, WEIR_SECOND);
    /* Each limiter had a report waiting, and two of them answer again. */
    assert_compare(reports_taken(fleet, 0), >=, before + 3);
    assert_int_equal(weir_limiter_epoch(weir_fleet_limiter(fleet, 0)), 2);
    assert_int_equal(weir_limiter_epoch(weir_fleet_limiter(fleet, 1)), 1);
    weir_fleet_pause(fleet, limiter_at(1), false);
    run(fleet, WEIR_SECOND);
    assert_int_equal(weir_limiter_epoch(weir_fleet_limiter(fleet, 1)), 2);
    finish(fleet);
}

struct transit {
    struct weir_fleet *fleet;
    weir_duration least, most; /* from some instant before the first fill */
};

static void on_fills(void *context, struct weir_node_place to, uint32_t from,
                     const struct weir_message *message)
{
    struct transit *transit = context;
    if (to.root || message->type != WEIR_MESSAGE_FILLS)
        return;
    weir_duration since = weir_since(
        message->fills.age, weir_fleet_clock_of(transit->fleet, root_at(from)));
    if (since < transit->least)
        transit->least = since;
    if (since > transit->most)
        transit->most = since;
}

/* A fill is made when the processor comes to it, not when it begins with those
 * before it: the age in it differs from that on arrival by its own 10 ms. */
static void test_a_busy_root_makes_each_fill_in_its_turn(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    options.limiters = options.limiters_started = 30;
    options.roots = 1;
    struct weir_fleet *fleet = fleet_of(&options);
    struct transit transit = { fleet, WEIR_NEVER, 0 };
    struct weir_fleet_watch watch = { .context = &transit,
                                      .received = on_fills };
    weir_fleet_watch(fleet, &watch);
    load(fleet, 30, WEIR_SECOND);
    weir_fleet_cpu(fleet, root_at(0), 10 * WEIR_MILLISECOND, 0);
    load(fleet, 30, 5 * WEIR_SECOND);
    print_message("the ways of fills differ by %.3f ms\n",
                  (double)(transit.most - transit.least) / 1e6);
    assert_compare(transit.most - transit.least, <=, 10 * WEIR_MILLISECOND);
    finish(fleet);
}

/* A report with its count and the answer with its fill are 2 × (10 + 5) ms:
 * a root can take 33 of them a second and no more. */
static void test_a_processor_takes_its_time(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    options.limiters = options.limiters_started = 30;
    options.roots = 1;
    options.settings.report_interval = 100 * WEIR_MILLISECOND;
    options.settings.slack = false;
    struct weir_fleet *fleet = fleet_of(&options);
    uint64_t before = reports_taken(fleet, 0);
    load(fleet, 30, WEIR_SECOND);
    uint64_t quick = reports_taken(fleet, 0) - before;
    weir_fleet_cpu(fleet, root_at(0), 10 * WEIR_MILLISECOND,
                   5 * WEIR_MILLISECOND);
    load(fleet, 30, 2 * WEIR_SECOND);
    before = reports_taken(fleet, 0);
    load(fleet, 30, 10 * WEIR_SECOND);
    uint64_t slow = reports_taken(fleet, 0) - before;
    print_message("reports taken a second: %llu, slow %.1f\n",
                  (unsigned long long)quick, (double)slow / 10);
    assert_compare(quick, >, 250);
    assert_compare(slow, >, 290);
    assert_compare(slow, <=, 340);
    finish(fleet);
}

/* A limiter behind 1 kB/s, and quotas edited all the time. */
static void test_a_full_buffer_holds_the_root(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    struct weir_fleet *fleet = fleet_of(&options);
    struct weir_net slow = { .bytes_per_s = 1000 };
    weir_fleet_net(fleet, 0, 0, &slow);
    for (uint64_t i = 0; i < 20000; i++) {
        put(fleet, "api", 1000 + i, WEIR_SECOND);
        run(fleet, WEIR_MILLISECOND);
    }
    struct weir_fleet_stats stats;
    weir_fleet_stats(fleet, &stats);
    print_message("waited at most: %llu bytes\n",
                  (unsigned long long)stats.waiting_bytes_most);
    assert_compare(stats.waiting_bytes_most, >, WEIR_FLEET_INBOX_BYTES / 2);
    assert_compare(stats.waiting_bytes_most, <=, WEIR_FLEET_INBOX_BYTES);
    weir_fleet_net(fleet, 0, 0, &options.net);
    run(fleet, 300 * WEIR_SECOND);
    assert_int_equal(weir_limiter_epoch(weir_fleet_limiter(fleet, 0)), 20001);
    finish(fleet);
}

/* ---- Clocks ---- */

static void test_each_node_has_its_own_hour(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    struct weir_fleet *fleet = fleet_of(&options);
    weir_instant one = weir_fleet_clock_of(fleet, limiter_at(0));
    weir_instant other = weir_fleet_clock_of(fleet, root_at(0));
    assert_int_not_equal(one, other);
    weir_fleet_clock(fleet, limiter_at(0), -5, 100000);
    run(fleet, WEIR_SECOND);
    assert_int_equal(weir_fleet_clock_of(fleet, limiter_at(0)),
                     one - 5 + WEIR_SECOND + WEIR_SECOND / 10);
    assert_int_equal(weir_fleet_clock_of(fleet, root_at(0)),
                     other + WEIR_SECOND);
    finish(fleet);
}

/* An idle limiter with a clock that runs twice as fast reports twice as often;
 * one with a clock that jumps ahead reports at once and then as before. The
 * world's events stay few: no node spins. */
static void test_nodes_live_by_their_own_clocks(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    options.roots = 1;
    struct weir_fleet *fleet = fleet_of(&options);
    weir_fleet_clock(fleet, limiter_at(0), 0, 1000000);
    uint64_t before[3];
    for (uint32_t i = 0; i < 3; i++)
        before[i] = weir_limiter_reports(weir_fleet_limiter(fleet, i));
    run(fleet, 10 * WEIR_SECOND);
    uint64_t fast =
        weir_limiter_reports(weir_fleet_limiter(fleet, 0)) - before[0];
    uint64_t usual_count =
        weir_limiter_reports(weir_fleet_limiter(fleet, 1)) - before[1];
    assert_in_range(fast, 18, 21);
    assert_in_range(usual_count, 9, 11);
    weir_fleet_clock(fleet, limiter_at(1), 3600 * (int64_t)WEIR_SECOND, 0);
    run(fleet, 10 * WEIR_SECOND);
    assert_in_range(weir_limiter_reports(weir_fleet_limiter(fleet, 1)),
                    before[1] + usual_count + 9, before[1] + usual_count + 12);
    uint64_t events = weir_fleet_world(fleet)->events;
    weir_fleet_clock(fleet, limiter_at(2), -(int64_t)WEIR_MILLISECOND, 0);
    weir_fleet_clock(fleet, root_at(0), -(int64_t)WEIR_MILLISECOND, -100);
    run(fleet, 10 * WEIR_SECOND);
    assert_compare(weir_fleet_world(fleet)->events - events, <, 1000);
    finish(fleet);
}

/* ---- Arrivals ---- */

/* Garbage in place of a report: the root drops the link, both ends notice it,
 * and a moment later the link is up again. */
static void test_a_link_that_speaks_garbage_is_dropped(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    struct weir_fleet *fleet = fleet_of(&options);
    struct weir_link *link = weir_fleet_link(fleet, 0, 1);
    struct weir_packet *packet = weir_packet_new(&link->to_root, 20);
    memset(packet->bytes, 0xff, 20);
    packet->connection = link->connection;
    weir_pipe_send(packet, weir_fleet_now(fleet));
    run(fleet, WEIR_MILLISECOND);
    assert_false(weir_fleet_linked(fleet, 0, 1));
    assert_true(weir_fleet_linked(fleet, 0, 0));
    assert_int_equal(weir_limiter_links_up(weir_fleet_limiter(fleet, 0)), 1);
    run(fleet, 100 * WEIR_MILLISECOND);
    assert_int_equal(weir_limiter_links_up(weir_fleet_limiter(fleet, 0)), 2);
    assert_int_equal(weir_fleet_error(fleet), WEIR_ESYNTAX);
    weir_fleet_free(fleet);
}

/* Messages in flight at a reset arrive on the next connection, if replays are
 * configured, but never at another process. */
static void test_replays_end_with_their_process(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    options.limiters = options.limiters_started = options.roots = 1;
    options.net.delay = 100 * WEIR_MILLISECOND;
    options.net.replay = 1;
    struct weir_fleet *fleet = weir_fleet_new(&options);
    struct weir_link *link = weir_fleet_link(fleet, 0, 0);
    struct weir_packet *old = link->to_root.first; /* the hello */
    assert_non_null(old);
    weir_fleet_reset(fleet, root_at(0));
    assert_true(weir_link_admits(link, old));
    weir_fleet_kill(fleet, root_at(0));
    weir_fleet_start(fleet, root_at(0));
    assert_true(weir_link_admits(link, old));
    weir_fleet_kill(fleet, limiter_at(0));
    assert_false(weir_link_admits(link, old));
    weir_fleet_start(fleet, limiter_at(0));
    assert_false(weir_link_admits(link, old));
    assert_true(weir_link_admits(link, link->to_root.last));
    finish(fleet);
}

/* ---- Overload ---- */

static weir_duration report_backoff_of(const struct weir_fleet *fleet,
                                       uint32_t root)
{
    struct weir_root_stats stats;
    weir_root_stats(weir_fleet_root(fleet, root), &stats);
    return stats.report_backoff;
}

static uint64_t reports_in(struct weir_fleet *fleet, weir_duration span)
{
    struct weir_fleet_stats before, after;
    weir_fleet_stats(fleet, &before);
    (void)load(fleet, fleet->options.limiters, span);
    weir_fleet_stats(fleet, &after);
    return after.reports - before.reports;
}

/* Thirty limiters near the limit of one quota report many times a second. For a
 * root with a slow processor that is too much: it asks for fewer reports. The
 * fleet stays under the limit, and when the processor is fast again all is as
 * before. No count is lost. */
static void test_an_overloaded_root_stretches(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    options.limiters = options.limiters_started = 30;
    options.roots = 1;
    struct weir_fleet *fleet = weir_fleet_new(&options);
    put(fleet, "api", 300, WEIR_SECOND);
    run(fleet, 100 * WEIR_MILLISECOND);
    (void)load(fleet, 30, 5 * WEIR_SECOND);
    uint64_t before = reports_in(fleet, 5 * WEIR_SECOND);
    assert_int_equal(report_backoff_of(fleet, 0), 0);

    weir_fleet_cpu(fleet, root_at(0), 10 * WEIR_MILLISECOND, 0);
    (void)load(fleet, 30, 20 * WEIR_SECOND);
    weir_duration stretched = report_backoff_of(fleet, 0);
    uint64_t during = reports_in(fleet, 5 * WEIR_SECOND);
    print_message("30 limiters: %.1f reports/s; root overloaded: stretch "
                  "%.2f s, %.1f reports/s\n",
                  (double)before / 5, (double)stretched / 1e9,
                  (double)during / 5);
    assert_compare(stretched, >, 0);
    assert_compare(stretched, <=, options.settings.stale_after / 3);
    assert_compare(during, <, before / 2);
    for (uint32_t l = 0; l < 30; l++)
        assert_true(weir_fleet_linked(fleet, l, 0));

    weir_fleet_cpu(fleet, root_at(0), 0, 0);
    (void)load(fleet, 30, 20 * WEIR_SECOND);
    assert_int_equal(report_backoff_of(fleet, 0), 0);
    uint64_t after = reports_in(fleet, 5 * WEIR_SECOND);
    print_message("and fast again: %.1f reports/s\n", (double)after / 5);
    assert_compare(after, >, during);
    run(fleet, 5 * WEIR_SECOND);
    uint64_t counted = 0;
    for (uint32_t l = 0; l < 30; l++)
        counted += weir_fleet_count(fleet, l, API);
    assert_int_equal(weir_fleet_root_passed(fleet, 0, API), counted);
    finish(fleet);
}

/* Of two roots one is slow, and asks for fewer reports. Limiters use the slack
 * of the other: no half of a second passes much less than the limit, which
 * would happen if all waited in turn for leave to report to the slow one. */
static void test_an_overloaded_root_leaves_the_rule_to_others(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    options.limiters = options.limiters_started = 30;
    struct weir_fleet *fleet = weir_fleet_new(&options);
    put(fleet, "api", 300, WEIR_SECOND);
    run(fleet, 100 * WEIR_MILLISECOND);
    (void)load(fleet, 30, 10 * WEIR_SECOND);
    weir_fleet_cpu(fleet, root_at(1), 20 * WEIR_MILLISECOND, 0);
    (void)load(fleet, 30, 10 * WEIR_SECOND);
    uint64_t least = UINT64_MAX, most = 0;
    for (int i = 0; i < 20; i++) {
        uint64_t passed = load(fleet, 30, WEIR_SECOND / 2);
        least = passed < least ? passed : least;
        most = passed > most ? passed : most;
    }
    print_message("of 150 in half a second, beside a slow root: %llu .. %llu\n",
                  (unsigned long long)least, (unsigned long long)most);
    assert_int_equal(report_backoff_of(fleet, 0), 0);
    assert_compare(report_backoff_of(fleet, 1), >, 0);
    assert_compare(least, >, 130);
    assert_compare(most, <, 170);
    finish(fleet);
}

/* But not that of a root that has sent nothing yet, and so bounds no limiter: a
 * root that is up without its quotas. */
static void test_a_root_without_quotas_takes_no_rule_over(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    options.limiters = options.limiters_started = 30;
    struct weir_fleet *fleet = weir_fleet_new(&options);
    put(fleet, "api", 300, WEIR_SECOND);
    run(fleet, 100 * WEIR_MILLISECOND);
    weir_fleet_cpu(fleet, root_at(0), 20 * WEIR_MILLISECOND, 0);
    (void)load(fleet, 30, 10 * WEIR_SECOND);
    assert_compare(report_backoff_of(fleet, 0), >, 0);
    weir_fleet_store_away(fleet, true);
    weir_fleet_kill(fleet, root_at(1));
    weir_fleet_start(fleet, root_at(1));
    run(fleet, 4 * WEIR_SECOND);
    uint64_t passed = 0;
    for (int i = 0; i < 10; i++)
        passed += load(fleet, 30, WEIR_SECOND / 10);
    /* The burst of 1.5 s, and the leak of the second. */
    print_message("in a second, of 1000: %llu\n", (unsigned long long)passed);
    assert_compare(passed, <=, 450 + 300 + 60);
    finish(fleet);
}

/* The limiter reports the backoff to its service, once each time it grows. */
static void test_a_report_backoff_is_an_event(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    struct weir_fleet *fleet = fleet_of(&options);
    struct weir_limiter *limiter = weir_fleet_limiter(fleet, 0);
    weir_instant now = weir_fleet_clock_of(fleet, limiter_at(0));
    static const weir_duration asked[] = { 100, 100, 50, 200, 0 };
    uint64_t told[WEIR_COUNT_OF(asked)];
    size_t count = 0;
    for (size_t i = 0; i < WEIR_COUNT_OF(asked); i++) {
        struct weir_message fills = {
            .type = WEIR_MESSAGE_FILLS,
            .session = weir_limiter_session(limiter, 0),
            .fills = { .report_backoff = asked[i] * WEIR_MILLISECOND },
        };
        assert_int_equal(weir_limiter_receive(limiter, 0, &fills, now), 0);
        struct weir_event event;
        while (weir_limiter_event(limiter, &event)) {
            if (event.type == WEIR_EVENT_REPORT_BACKOFF)
                told[count++] = event.count;
        }
    }
    assert_int_equal(count, 2);
    assert_int_equal(told[0], 100);
    assert_int_equal(told[1], 200);
    finish(fleet);
}

/* A quota of a version that the limiter doesn't know lets all pass, and is
 * reported. */
static void test_a_quota_of_a_later_version_is_an_event(void **state)
{
    (void)state;
    struct weir_fleet_options options = usual();
    struct weir_fleet *fleet = fleet_of(&options);
    struct weir_limiter *limiter = weir_fleet_limiter(fleet, 0);
    weir_instant now = weir_fleet_clock_of(fleet, limiter_at(0));
    struct weir_change change = { .reduced = true };
    weir_quota_init(&change.quota);
    change.quota.name = WEIR_TEXT("later");
    change.quota.mode = WEIR_OFF;
    change.quota.epoch = weir_limiter_epoch(limiter) + 1;
    assert_int_equal(weir_limiter_apply(limiter, &change, now), 0);
    struct weir_event event = { .count = 0 };
    unsigned told = 0;
    while (weir_limiter_event(limiter, &event)) {
        if (event.type == WEIR_EVENT_QUOTA_UNKNOWN) {
            assert_string_equal(event.text, "later");
            told++;
        }
    }
    assert_int_equal(told, 1);
    finish(fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_fleet_meets_and_counts),
        cmocka_unit_test(test_a_seed_is_a_history),
        cmocka_unit_test(test_the_dead_take_nothing_and_come_back),
        cmocka_unit_test(test_the_store_goes_away_and_comes_back),
        cmocka_unit_test(test_a_cut_is_noticed_when_told),
        cmocka_unit_test(test_one_way_is_cut_in_silence),
        cmocka_unit_test(test_a_limiter_links_where_it_may),
        cmocka_unit_test(test_the_paused_do_nothing_until_they_go_on),
        cmocka_unit_test(test_a_busy_root_makes_each_fill_in_its_turn),
        cmocka_unit_test(test_a_processor_takes_its_time),
        cmocka_unit_test(test_a_full_buffer_holds_the_root),
        cmocka_unit_test(test_each_node_has_its_own_hour),
        cmocka_unit_test(test_nodes_live_by_their_own_clocks),
        cmocka_unit_test(test_a_link_that_speaks_garbage_is_dropped),
        cmocka_unit_test(test_replays_end_with_their_process),
        cmocka_unit_test(test_an_overloaded_root_stretches),
        cmocka_unit_test(test_an_overloaded_root_leaves_the_rule_to_others),
        cmocka_unit_test(test_a_root_without_quotas_takes_no_rule_over),
        cmocka_unit_test(test_a_report_backoff_is_an_event),
        cmocka_unit_test(test_a_quota_of_a_later_version_is_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
