/* SPDX-License-Identifier: MIT
 * test/lab/test_world.c - virtual time: parts run in the order of their
 * instants, whichever are woken, moved and put to sleep on the way (compared
 * with a plain search for the least); one seed gives one order of parts that
 * are due at once; pipes follow their network's settings. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "lab/fleet_clock.h"
#include "lab/memory.h"
#include "lab/net.h"
#include "seed.h"

/* ---- The heap ---- */

#define PARTS 50

struct counter {
    struct weir_part part;
    weir_instant ran_at;
    uint32_t *order; /* of all parts that ran */
    uint32_t *ran;
    uint32_t index;
};

static void count_run(struct weir_part *part, weir_instant now)
{
    struct counter *counter = (struct counter *)part;
    counter->ran_at = now;
    counter->order[(*counter->ran)++] = counter->index;
}

static void make_counters(struct counter *counters, uint32_t *order,
                          uint32_t *ran)
{
    *ran = 0;
    for (uint32_t i = 0; i < PARTS; i++)
        counters[i] = (struct counter){
            .part = { .run = count_run }, .order = order, .ran = ran, .index = i
        };
}

/* Wakes, moves and puts to sleep at random; before each step the least of the
 * instants is looked up the slow way. */
static void test_parts_run_in_order(void **state)
{
    (void)state;
    struct weir_rng rng = { seed_or(1) };
    struct weir_world world;
    weir_world_init(&world, 7);
    struct counter counters[PARTS];
    weir_instant due[PARTS];
    uint32_t order[1];
    uint32_t ran;
    make_counters(counters, order, &ran);
    for (int i = 0; i < PARTS; i++)
        due[i] = WEIR_NEVER;
    for (int step = 0; step < 200000; step++) {
        uint32_t which = (uint32_t)weir_rng_below(&rng, PARTS);
        weir_instant at = weir_rng_below(&rng, 5) == 0
                              ? WEIR_NEVER
                              : world.now + weir_rng_below(&rng, 20);
        weir_world_wake(&world, &counters[which].part, at);
        due[which] = at;
        if (weir_rng_below(&rng, 3) != 0)
            continue;
        weir_instant least = WEIR_NEVER;
        for (int i = 0; i < PARTS; i++)
            least = due[i] < least ? due[i] : least;
        weir_instant until = world.now + weir_rng_below(&rng, 5);
        ran = 0;
        bool stepped = weir_world_step(&world, until);
        assert_int_equal(stepped, least <= until);
        assert_int_equal(ran, stepped);
        assert_int_equal(world.now, stepped ? least : until);
        if (!stepped)
            continue;
        assert_int_equal(due[order[0]], least);
        due[order[0]] = WEIR_NEVER;
    }
    weir_world_fini(&world);
}

static void run_at_once(uint64_t seed, uint32_t *order)
{
    struct weir_world world;
    weir_world_init(&world, seed);
    struct counter counters[PARTS];
    uint32_t ran;
    make_counters(counters, order, &ran);
    for (uint32_t i = 0; i < PARTS; i++)
        weir_world_wake(&world, &counters[i].part, world.now + 10);
    while (weir_world_step(&world, world.now + 100))
        continue;
    assert_int_equal(ran, PARTS);
    weir_world_fini(&world);
}

static void test_a_seed_is_an_order(void **state)
{
    (void)state;
    uint32_t one[PARTS], again[PARTS], other[PARTS];
    run_at_once(1, one);
    run_at_once(1, again);
    run_at_once(2, other);
    assert_memory_equal(one, again, sizeof(one));
    assert_memory_not_equal(one, other, sizeof(one));
}

static void test_what_was_due_in_the_past_is_due_now(void **state)
{
    (void)state;
    struct weir_world world;
    weir_world_init(&world, 1);
    struct counter counters[PARTS];
    uint32_t order[1], ran;
    make_counters(counters, order, &ran);
    weir_world_wake(&world, &counters[0].part, 5);
    assert_ptr_equal(weir_world_next(&world, world.now), &counters[0].part);
    assert_true(weir_world_step(&world, world.now));
    assert_int_equal(counters[0].ran_at, WEIR_WORLD_START);
    assert_int_equal(world.events, 1);
    weir_world_fini(&world);
}

/* ---- A node's clock ---- */

/* The instant found is the first at which the clock shows the wanted time: one
 * nanosecond earlier it doesn't yet. */
static void test_deadlines_come_true_on_a_drifting_clock(void **state)
{
    (void)state;
    struct weir_rng rng = { seed_or(1) };
    weir_instant now = WEIR_WORLD_START;
    struct weir_fleet_clock clock = { .since = now,
                                      .showed = now,
                                      .rate = WEIR_CLOCK_TRUE };
    for (int i = 0; i < 100000; i++) {
        now += weir_rng_below(&rng, 1000);
        if (weir_rng_below(&rng, 10) == 0)
            weir_fleet_clock_set(&clock,
                                 (int64_t)weir_rng_below(&rng, 2000) - 1000,
                                 600000 * (weir_rng_unit(&rng) - 0.5), now);
        weir_instant shows = weir_fleet_clock_at(&clock, now);
        weir_instant wanted = shows + weir_rng_below(&rng, 1000);
        weir_instant at = weir_fleet_clock_when(&clock, wanted, now);
        assert_compare(weir_fleet_clock_at(&clock, at), >=, wanted);
        assert_true(at == now || weir_fleet_clock_at(&clock, at - 1) < wanted);
    }
    assert_int_equal(weir_fleet_clock_when(&clock, WEIR_NEVER, now),
                     WEIR_NEVER);
}

static void test_a_clock_never_shows_less_than_a_second(void **state)
{
    (void)state;
    struct weir_fleet_clock clock = { .since = 5,
                                      .showed = 10 * WEIR_SECOND,
                                      .rate = WEIR_CLOCK_TRUE };
    weir_fleet_clock_set(&clock, -100 * (int64_t)WEIR_SECOND, 0, 5);
    assert_int_equal(weir_fleet_clock_at(&clock, 5), WEIR_SECOND);
}

/* ---- Pipes ---- */

#define SENT 20000

/* Packets carry their number; the far end notes those that arrive. */
struct far_end {
    struct weir_world world;
    struct weir_net net;
    struct weir_pipe pipe;
    uint32_t arrived, overtook, doubled;
    uint32_t times[SENT];
    uint32_t last;
    weir_instant sent_at[SENT];
    double delay_sum; /* seconds */
    double delay_most;
};

static void note_arrival(void *owner, struct weir_packet *packet)
{
    struct far_end *end = owner;
    uint32_t number;
    memcpy(&number, packet->bytes, sizeof(number));
    double delay = (double)(end->world.now - end->sent_at[number]) * 1e-9;
    end->delay_sum += delay;
    end->delay_most = fmax(end->delay_most, delay);
    end->arrived++;
    end->overtook += number < end->last;
    end->doubled += end->times[number]++ > 0;
    end->last = number;
    weir_packet_free(packet);
}

/* One packet per 'gap' through a pipe with those settings. */
static struct far_end *send_through(const struct weir_net *net,
                                    weir_duration gap)
{
    struct far_end *end = weir_must_zeroed(1, sizeof(*end));
    weir_world_init(&end->world, seed_or(1));
    end->net = *net;
    end->pipe = (struct weir_pipe){ .world = &end->world,
                                    .net = &end->net,
                                    .owner = end,
                                    .arrived = note_arrival };
    weir_pipe_init(&end->pipe);
    for (uint32_t i = 0; i < SENT; i++) {
        struct weir_packet *packet = weir_packet_new(&end->pipe, 100);
        memcpy(packet->bytes, &i, sizeof(i));
        end->sent_at[i] = end->world.now;
        weir_pipe_send(packet, end->world.now);
        weir_instant until = end->world.now + gap;
        while (weir_world_step(&end->world, until))
            continue;
    }
    while (weir_world_step(&end->world, end->world.now + WEIR_SECOND))
        continue;
    assert_int_equal(end->pipe.bytes, 0);
    assert_int_equal(end->world.count, 0);
    return end;
}

static void free_end(struct far_end *end)
{
    weir_pipe_empty(&end->pipe);
    weir_world_fini(&end->world);
    free(end);
}

static void test_a_pipe_keeps_order_and_delays(void **state)
{
    (void)state;
    const enum weir_delay_shape shapes[] = {
        WEIR_DELAY_FIXED,
        WEIR_DELAY_UNIFORM,
        WEIR_DELAY_EXPONENTIAL,
        WEIR_DELAY_PARETO,
    };
    /* Packets far apart: none waits for one before it. */
    const double mean[] = { 10e-3, 10e-3, 12e-3, 12e-3 };
    const double most[] = { 10e-3, 12e-3, 100e-3, 210e-3 };
    for (size_t i = 0; i < WEIR_COUNT_OF(shapes); i++) {
        struct weir_net net = { .shape = shapes[i],
                                .delay = 10 * WEIR_MILLISECOND,
                                .spread = 2 * WEIR_MILLISECOND };
        struct far_end *end = send_through(&net, 300 * WEIR_MILLISECOND);
        double found = end->delay_sum / SENT;
        print_message("shape %d: mean %.3f ms, most %.1f ms\n", shapes[i],
                      found * 1e3, end->delay_most * 1e3);
        assert_int_equal(end->arrived, SENT);
        assert_int_equal(end->overtook, 0);
        assert_compare(fabs(found - mean[i]), <, 0.05 * mean[i]);
        assert_compare(end->delay_most, <=, most[i] + 1e-9);
        free_end(end);
        /* And close together. */
        end = send_through(&net, WEIR_MILLISECOND / 10);
        assert_int_equal(end->arrived, SENT);
        assert_int_equal(end->overtook, 0);
        free_end(end);
    }
}

static void test_a_pipe_loses_doubles_and_reorders(void **state)
{
    (void)state;
    struct weir_net net = { .shape = WEIR_DELAY_UNIFORM,
                            .delay = 10 * WEIR_MILLISECOND,
                            .spread = 10 * WEIR_MILLISECOND,
                            .loss = 0.2,
                            .twice = 0.1 };
    struct far_end *end = send_through(&net, WEIR_MILLISECOND);
    double least = SENT * 0.8, most = SENT * 0.8 * 1.1;
    assert_compare(fabs(end->arrived - end->doubled - least), <, 0.02 * SENT);
    assert_compare(fabs(end->arrived - most), <, 0.02 * SENT);
    assert_int_equal(end->overtook, 0);
    free_end(end);
    net = (struct weir_net){ .shape = WEIR_DELAY_UNIFORM,
                             .delay = 10 * WEIR_MILLISECOND,
                             .spread = 10 * WEIR_MILLISECOND,
                             .reorder = 1 };
    end = send_through(&net, WEIR_MILLISECOND);
    assert_int_equal(end->arrived, SENT);
    assert_compare(end->overtook, >, SENT / 4);
    free_end(end);
}

/* 100 bytes at 10,000 bytes/s take 10 ms; sent one each millisecond they queue,
 * and the last waits for all of them. */
static void test_a_slow_pipe_makes_packets_wait(void **state)
{
    (void)state;
    struct weir_net net = { .delay = WEIR_MILLISECOND, .bytes_per_s = 10000 };
    struct far_end *end = send_through(&net, 20 * WEIR_MILLISECOND);
    assert_compare(fabs(end->delay_most - 11e-3), <, 1e-6);
    free_end(end);
    end = send_through(&net, WEIR_MILLISECOND);
    assert_int_equal(end->arrived, SENT);
    assert_compare(fabs(end->delay_most - SENT * 9e-3), <, 0.1);
    free_end(end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_run_in_order),
        cmocka_unit_test(test_a_seed_is_an_order),
        cmocka_unit_test(test_what_was_due_in_the_past_is_due_now),
        cmocka_unit_test(test_deadlines_come_true_on_a_drifting_clock),
        cmocka_unit_test(test_a_clock_never_shows_less_than_a_second),
        cmocka_unit_test(test_a_pipe_keeps_order_and_delays),
        cmocka_unit_test(test_a_pipe_loses_doubles_and_reorders),
        cmocka_unit_test(test_a_slow_pipe_makes_packets_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
