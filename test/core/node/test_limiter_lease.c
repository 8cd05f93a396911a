/* SPDX-License-Identifier: MIT
 * test_limiter_lease.c - leased quotas in limiters: how much each limiter gets
 * when the sharing, the limit or the master changes, and the fate of units in
 * flight. */

#include "lease_world.h"

/* ---- The stories ---- */

/* Three times the limit is offered. The units that pass are the limit, shared
 * evenly, and never more in any span than the bursts allow. */
static void all_of_the_limit_and_no_more(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    world_offer(world, 750, 750, 750, 750);
    world_run(world, 10 * WEIR_SECOND);
    world_forget(world);
    world_run(world, 20 * WEIR_SECOND);
    double mean = (double)world_passed(world) / 20;
    print_message("3 x the limit: %.1f/s passed of %d, level %.0f of %.0f; "
                  "each %.1f %.1f %.1f %.1f; %u messages of wants\n",
                  mean, LIMIT, world->level_most, HIGH,
                  (double)world->passed[0] / 20, (double)world->passed[1] / 20,
                  (double)world->passed[2] / 20, (double)world->passed[3] / 20,
                  world->wants);
    assert_compare(mean, >, 0.99 * LIMIT);
    assert_compare(mean, <, 1.01 * LIMIT);
    assert_compare(world->level_most, <=, HIGH + LIMITERS);
    for (uint32_t l = 0; l < LIMITERS; l++)
        assert_in_range(world->passed[l], 20 * 240, 20 * 260);
    world_end(world);
}

/* Two limiters want little and get all of that; the others share the rest. */
static void shares_are_fair(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    world_offer(world, 50, 100, 2000, 2000);
    world_run(world, 20 * WEIR_SECOND);
    world_forget(world);
    world_run(world, 20 * WEIR_SECOND);
    print_message("fair: %.1f %.1f %.1f %.1f/s passed of 50, 100, 2000, "
                  "2000/s\n",
                  (double)world->passed[0] / 20, (double)world->passed[1] / 20,
                  (double)world->passed[2] / 20, (double)world->passed[3] / 20);
    assert_int_equal(world->refused[0], 0);
    assert_int_equal(world->refused[1], 0);
    assert_in_range(world->passed[2], 20 * 385, 20 * 425);
    assert_in_range(world->passed[3], 20 * 385, 20 * 425);
    assert_compare(world->level_most, <=, HIGH + LIMITERS);
    world_end(world);
}

/* The fewest units that passed in a tenth of a second between two instants. */
static uint32_t least_between(const struct world *world, double from_s,
                              double to_s)
{
    uint32_t least = UINT32_MAX;
    for (size_t i = (size_t)(from_s * 10); i < (size_t)(to_s * 10); i++)
        least = world->bin[i] < least ? world->bin[i] : least;
    return least;
}

/* Counted, then leased, then counted, under three times the limit: no limiter
 * is shut out on the way, and no span gets more than the larger burst and the
 * smaller one. */
static void the_sharing_is_switched_under_load(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_COUNTED, WEIR_STALE_LIMIT);
    world_offer(world, 1500, 750, 500, 250);
    world_run(world, 10 * WEIR_SECOND);
    double counted = world->level_most;
    world->level_most = 0;
    world_put(world, WEIR_LEASED, LIMIT, WEIR_STALE_LIMIT);
    world_run(world, 20 * WEIR_SECOND);
    double leased = world->level_most;
    for (uint32_t l = 0; l < LIMITERS; l++)
        assert_int_equal(world_lease(world, l).leasing, WEIR_LEASING_GRANTED);
    world->level_most = 0;
    world_put(world, WEIR_COUNTED, LIMIT, WEIR_STALE_LIMIT);
    world_run(world, 10 * WEIR_SECOND);
    print_message("switched at 10 s and 30 s: level at most %.0f counted, "
                  "%.0f leased, %.0f counted, high %.0f; fewest in 100 ms "
                  "%u before, %u at 10 s, %u at 30 s\n",
                  counted, leased, world->level_most, HIGH,
                  least_between(world, 5, 10), least_between(world, 9.9, 13),
                  least_between(world, 29.9, 33));
    for (uint32_t l = 0; l < LIMITERS; l++)
        assert_int_equal(world_lease(world, l).leasing, WEIR_LEASING_NONE);
    assert_compare(leased, <=, HIGH + LOW);
    assert_compare(world->level_most, <=, HIGH + LOW);
    assert_compare(least_between(world, 9.9, 13), >=, 50);
    assert_compare(least_between(world, 29.9, 33), >=, 50);
    world_end(world);
}

/* Half of the limit is used: nothing is refused on the way there and back. */
static void an_idle_fleet_is_switched_unseen(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_COUNTED, WEIR_STALE_LIMIT);
    world_offer(world, 250, 125, 80, 45);
    world_run(world, 10 * WEIR_SECOND);
    world_put(world, WEIR_LEASED, LIMIT, WEIR_STALE_LIMIT);
    world_run(world, 30 * WEIR_SECOND);
    uint64_t leased = world->refused[0] + world->refused[1] +
                      world->refused[2] + world->refused[3];
    world_put(world, WEIR_COUNTED, LIMIT, WEIR_STALE_LIMIT);
    world_run(world, 10 * WEIR_SECOND);
    uint64_t in_all = world->refused[0] + world->refused[1] +
                      world->refused[2] + world->refused[3];
    print_message("half of the limit: %llu refused when leased, %llu after\n",
                  (unsigned long long)leased,
                  (unsigned long long)(in_all - leased));
    assert_int_equal(in_all, 0);
    world_end(world);
}

/* Switched at random moments, under random load, there and back: the highest
 * level of the oracle's bucket over twenty such histories. */
static void switched_at_any_moment(void **state)
{
    (void)state;
    double most = 0;
    for (uint64_t history = 0; history < 20; history++) {
        struct weir_rng rng = { world_seed() * 1000 + history };
        struct world *world = world_begin(WEIR_COUNTED, WEIR_STALE_LIMIT);
        for (int i = 0; i < 20; i++) {
            for (uint32_t l = 0; l < LIMITERS; l++)
                world->offered[l] = (double)weir_rng_below(&rng, 1500) *
                                    (double)weir_rng_below(&rng, 2);
            world_run(world, weir_rng_below(&rng, 5 * WEIR_SECOND));
            world_put(world,
                      world->sharing == WEIR_LEASED ? WEIR_COUNTED
                                                    : WEIR_LEASED,
                      LIMIT, WEIR_STALE_LIMIT);
        }
        world_run(world, 5 * WEIR_SECOND);
        if (world->level_most > HIGH + LOW)
            fail_msg("level %.0f in history %llu (seed %llu)",
                     world->level_most, (unsigned long long)history,
                     (unsigned long long)world_seed());
        most = world->level_most > most ? world->level_most : most;
        world_end(world);
    }
    print_message("400 switches at any moment: level %.0f at most, high %.0f\n",
                  most, HIGH);
}

/* The master falls silent: each limiter uses its grant to the end of its lease,
 * then on_stale. When the master comes back it uses grants again. */
static void a_silent_master(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    world_offer(world, 500, 500, 500, 500);
    world_run(world, 10 * WEIR_SECOND);
    world->mute = true;
    world_forget(world);
    world_run(world, 10 * WEIR_SECOND);
    uint64_t held = world_passed(world);
    world_run(world, 15 * WEIR_SECOND);
    world_forget(world);
    world_run(world, 5 * WEIR_SECOND);
    uint64_t over = world_passed(world);
    world->mute = false;
    world_run(world, 10 * WEIR_SECOND);
    world_forget(world);
    world_run(world, 5 * WEIR_SECOND);
    print_message("mute: %.0f/s in the first 10 s, %.0f/s after the lease; "
                  "%.0f/s when it is back\n",
                  (double)held / 10, (double)over / 5,
                  (double)world_passed(world) / 5);
    assert_compare(held, >, 9800);
    assert_true(over == 0);
    assert_compare(world_passed(world), >, 4900);
    world_end(world);
}

/* The quota isn't used any more: its units are given back. */
static void what_is_unused_is_given_back(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    world_offer(world, 100, 0, 0, 0);
    world_run(world, 10 * WEIR_SECOND);
    assert_int_equal(world_lease(world, 0).leasing, WEIR_LEASING_GRANTED);
    assert_int_equal(world_lease(world, 1).leasing, WEIR_LEASING_CLOSED);
    world_offer(world, 0, 0, 0, 0);
    world_run(world, 2 * WEIR_LEASE_HOLDER_IDLE);
    assert_int_equal(world->releases, 1);
    assert_int_equal(world_lease(world, 0).leasing, WEIR_LEASING_CLOSED);
    world_offer(world, 100, 0, 0, 0);
    world_forget(world);
    world_run(world, 10 * WEIR_SECOND);
    print_message("back after a minute: %llu of 1000 refused\n",
                  (unsigned long long)world->refused[0]);
    assert_compare(world->refused[0], <, 50);
    world_end(world);
}

/* Much was refused some time ago: a limiter that uses little now wants
 * little. */
static void what_was_refused_before_isnt_wanted(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    world_offer(world, 3 * LIMIT, 0, 0, 0);
    world_run(world, 10 * WEIR_SECOND);
    world_offer(world, 0, 0, 0, 0);
    world_run(world, 2 * WEIR_LEASE_HOLDER_IDLE);
    assert_int_equal(world->releases, 1);
    world_offer(world, 10, 0, 0, 0);
    world->wanted[0] = 0;
    double most = 0;
    for (int i = 0; i < 100; i++) {
        world_run(world, 100 * WEIR_MILLISECOND);
        most = world->wanted[0] > most ? world->wanted[0] : most;
    }
    print_message("%llu refused; later, of 10/s, wanted %.1f at most\n",
                  (unsigned long long)world->refused[0], most);
    assert_compare(most, <, 40);
    world_end(world);
}

/* A handle is opened and closed: that alone leases and gives back. */
static void a_handle_has_it_and_gives_it_back(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    struct weir_table *table = weir_fleet_table(world->fleet, 2);
    struct weir_ref ref;
    assert_int_equal(weir_table_pin(table, WEIR_TEXT("q"), &ref,
                                    weir_node_now(&world->fleet->limiters[2])),
                     WEIR_RESOLVED);
    assert_compare(weir_table_want(table, ref, 300), <=, WEIR_OUTCOME_KICK);
    world_run(world, WEIR_SECOND);
    assert_int_equal(world_lease(world, 2).leasing, WEIR_LEASING_GRANTED);
    assert_true(world_lease(world, 2).granted == 300);
    weir_table_unpin(table, ref);
    world_run(world, WEIR_SECOND);
    assert_int_equal(world->releases, 1);
    assert_int_equal(world_lease(world, 2).leasing, WEIR_LEASING_CLOSED);
    world_end(world);
}

/* A process that ends gives everything back, even if its quotas are used until
 * its thread is gone. */
static void a_process_that_ends_gives_all_back(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    world_offer(world, 100, 100, 0, 0);
    world_run(world, 5 * WEIR_SECOND);
    struct weir_node *node = &world->fleet->limiters[0];
    weir_limiter_release(node->limiter, weir_node_now(node));
    weir_node_rest(node);
    world_run(world, WEIR_SECOND);
    assert_int_equal(world->releases, 1);
    assert_int_equal(world_lease(world, 0).leasing, WEIR_LEASING_CLOSED);
    assert_int_equal(world_lease(world, 1).leasing, WEIR_LEASING_GRANTED);
    world_end(world);
}

/* No link leads to the master's address: that is an event, once. */
static void a_master_elsewhere_is_told_of(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    world_offer(world, 100, 0, 0, 0);
    world_run(world, 5 * WEIR_SECOND);
    world->mute = true;
    weir_root_lease_end(weir_fleet_root(world->fleet, 0), UINT32_MAX,
                        WEIR_TEXT("b:7077"), weir_fleet_now(world->fleet));
    world_run(world, 500 * WEIR_MILLISECOND);
    /* By hand: the fleet would take all events itself. */
    struct weir_node *node = &world->fleet->limiters[0];
    struct weir_event event;
    int told = 0;
    for (int s = 1; s <= 5; s++) {
        weir_limiter_tick(node->limiter, weir_node_now(node) + s * WEIR_SECOND);
        while (weir_limiter_event(node->limiter, &event)) {
            if (event.type != WEIR_EVENT_ELSEWHERE)
                continue;
            assert_string_equal(event.text, "b:7077");
            told++;
        }
    }
    assert_int_equal(told, 1);
    world_end(world);
}

/* A child of fork() has none of its parent's leases. */
static void a_child_has_no_lease(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    world_offer(world, 100, 100, 0, 0);
    world_run(world, 5 * WEIR_SECOND);
    struct weir_node *node = &world->fleet->limiters[0];
    uint8_t other[WEIR_INCARNATION_SIZE] = { 1, 2, 3 };
    weir_fleet_allow(world->fleet, 0, 0, false);
    weir_limiter_reincarnate(node->limiter, WEIR_TEXT("child"), other,
                             weir_node_now(node));
    assert_int_equal(world_lease(world, 0).leasing, WEIR_LEASING_CLOSED);
    world->offered[0] = 0;
    weir_fleet_allow(world->fleet, 0, 0, true);
    world_run(world, WEIR_SECOND);
    world->offered[0] = 100;
    world_run(world, 5 * WEIR_SECOND);
    assert_int_equal(world_lease(world, 0).leasing, WEIR_LEASING_GRANTED);
    world_end(world);
}

/* The priority of the wants is the quota's, until it is edited. */
static void the_priority_is_the_quotas(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    world_offer(world, 100, 0, 0, 0);
    world_run(world, 3 * WEIR_SECOND);
    assert_int_equal(world->priority, 0);
    world->quota_priority = -7;
    world_put(world, WEIR_LEASED, LIMIT, WEIR_STALE_LIMIT);
    world_run(world, WEIR_SECOND);
    assert_int_equal(world->priority, -7);
    world_end(world);
}

/* The limit is cut to a tenth, and raised again: each is in force within
 * moments. */
static void an_edit_of_the_limit(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    world_offer(world, 500, 500, 500, 500);
    world_run(world, 10 * WEIR_SECOND);
    world_put(world, WEIR_LEASED, LIMIT / 10, WEIR_STALE_LIMIT);
    world_run(world, 25 * WEIR_SECOND); /* the excess has leaked */
    world_forget(world);
    world_run(world, 10 * WEIR_SECOND);
    uint64_t cut = world_passed(world);
    world_put(world, WEIR_LEASED, LIMIT, WEIR_STALE_LIMIT);
    world_run(world, 10 * WEIR_SECOND);
    world_forget(world);
    world_run(world, 10 * WEIR_SECOND);
    print_message("limit 1000, 100, 1000/s: %.1f/s, then %.1f/s\n",
                  (double)cut / 10, (double)world_passed(world) / 10);
    assert_in_range(cut, 980, 1030);
    assert_in_range(world_passed(world), 9900, 10100);
    world_end(world);
}

/* Two limiters want more than there is, then a third comes: the whole limit is
 * used, in equal parts. The first two give up units as their permits leave. */
static void permits_are_shared_and_never_over(void **state)
{
    (void)state;
    struct world *world = world_begin_flight(40, 300 * WEIR_MILLISECOND);
    world_offer(world, 400, 400, 0, 0);
    world_run(world, 5 * WEIR_SECOND);
    print_message("two: %u and %u of 40 in flight\n", world->out[0],
                  world->out[1]);
    assert_int_equal(world->out[0], 20);
    assert_int_equal(world->out[1], 20);
    world->offered[2] = 400;
    world_run(world, WEIR_SECOND);
    print_message("a third, a second later: %u, %u, %u\n", world->out[0],
                  world->out[1], world->out[2]);
    assert_compare(world->out[2], >=, 12);
    world_run(world, 30 * WEIR_SECOND);
    assert_compare(world_out(world), >=, 39);
    for (uint32_t l = 0; l < 3; l++)
        assert_true(world->out[l] == 13 || world->out[l] == 14);
    world_end(world);
}

/* Permits that are held for long stay in flight. A lower limit is in force when
 * enough have left, and until then no more are in flight than at the cut. */
static void a_cut_waits_for_permits(void **state)
{
    (void)state;
    struct world *world = world_begin_flight(40, 3 * WEIR_SECOND);
    world_offer(world, 100, 100, 0, 0);
    world_run(world, 10 * WEIR_SECOND);
    assert_int_equal(world_out(world), 40);
    world_put(world, WEIR_LEASED, 10, WEIR_STALE_LIMIT);
    world_run(world, 4 * WEIR_SECOND);
    world->ceiling = 10;
    assert_compare(world_out(world), <=, 10);
    world_run(world, 10 * WEIR_SECOND);
    assert_int_equal(world_out(world), 10);
    world_end(world);
}

/* Callers that wait in a process count as wants like those that are in: all at
 * once, not one by one as each is tried; and no more when none waits. */
static void who_waits_is_wanted_for(void **state)
{
    (void)state;
    struct world *world = world_begin_flight(40, WEIR_SECOND);
    struct weir_table *table = weir_fleet_table(world->fleet, 0);
    struct weir_ref q;
    world_offer(world, 2, 0, 0, 0);
    world_run(world, 5 * WEIR_SECOND);
    assert_true(weir_table_find(table, WEIR_TEXT("q"), &q));
    print_message("wanted %.1f with 2 or so in flight", world->wanted[0]);
    weir_table_set_line(table, q.slot, 1, 30);
    world_run(world, WEIR_SECOND);
    print_message(", %.1f with 30 that wait\n", world->wanted[0]);
    assert_compare(world->wanted[0], >=, 30);
    assert_compare(world->wanted[0], <, 50);
    weir_table_set_line(table, q.slot, 0, 0);
    world_run(world, 60 * WEIR_SECOND);
    assert_compare(world->wanted[0], <, 10);
    world_end(world);
}

/* Three want one of two units: the units go round, and no caller waits for
 * ever. */
static void fewer_units_than_processes(void **state)
{
    (void)state;
    struct world *world = world_begin_flight(2, 50 * WEIR_MILLISECOND);
    world->lease = 4 * WEIR_SECOND;
    world_offer(world, 100, 100, 100, 0);
    world_run(world, 60 * WEIR_SECOND);
    world_forget(world);
    world_run(world, 120 * WEIR_SECOND);
    print_message("2 units, 3 processes: %llu, %llu, %llu entered of 4,800 "
                  "at most\n",
                  (unsigned long long)world->passed[0],
                  (unsigned long long)world->passed[1],
                  (unsigned long long)world->passed[2]);
    for (uint32_t l = 0; l < 3; l++)
        assert_compare(world->passed[l], >, 800);
    assert_compare(world_passed(world), >, 3800);
    world_end(world);
}

/* The master is gone: leases run out, no caller enters, permits in flight stay
 * so. The next master counts them, though its own lease is over. */
static void permits_outlast_leases(void **state)
{
    (void)state;
    struct world *world = world_begin_flight(40, 25 * WEIR_SECOND);
    world->lease = 4 * WEIR_SECOND;
    world->offered[0] = 100;
    world_run(world, 6 * WEIR_SECOND);
    assert_int_equal(world->out[0], 40);
    /* The first receives from no master any more, and the second asks for
     * all. */
    world->deaf = 1;
    world->offered[0] = 0;
    world->offered[1] = 100;
    world_run(world, 15 * WEIR_SECOND);
    assert_int_equal(world->out[0], 40);
    assert_int_equal(world->out[1], 0);
    world_run(world, 60 * WEIR_SECOND);
    assert_int_equal(world->out[0], 0);
    assert_int_equal(world->out[1], 40);
    world_end(world);
}

/* A handle that is closed gives back all but its permits' units. */
static void a_place_ends_with_its_last_permit(void **state)
{
    (void)state;
    struct world *world = world_begin_flight(40, 5 * WEIR_SECOND);
    struct weir_table *table = weir_fleet_table(world->fleet, 2);
    struct weir_ref ref;
    assert_int_equal(weir_table_pin(table, WEIR_TEXT("q"), &ref,
                                    weir_node_now(&world->fleet->limiters[2])),
                     WEIR_RESOLVED);
    assert_compare(weir_table_want(table, ref, 30), <=, WEIR_OUTCOME_KICK);
    world_run(world, WEIR_SECOND);
    assert_true(world_lease(world, 2).granted == 30);
    world->offered[2] = 10;
    world_run(world, WEIR_SECOND);
    world->offered[2] = 0;
    assert_compare(world->out[2], >, 0);
    weir_table_unpin(table, ref);
    world_run(world, 2 * WEIR_SECOND);
    assert_int_equal(world->releases, 0);
    world_run(world, 5 * WEIR_SECOND);
    assert_int_equal(world->out[2], 0);
    assert_int_equal(world->releases, 1);
    world_end(world);
}

/* From counted to leased and back, with the whole limit in flight: never a
 * permit above the limit on the way, and the whole limit in flight again
 * after. */
static void permits_are_switched_under_load(void **state)
{
    (void)state;
    struct world *world =
        world_begin_kind(WEIR_CONCURRENCY, 40, WEIR_COUNTED, WEIR_STALE_LIMIT);
    world->stay = 300 * WEIR_MILLISECOND;
    world->ceiling = 60; /* counted: above the limit by a stated bound */
    world_offer(world, 400, 200, 100, 100);
    world_run(world, 10 * WEIR_SECOND);
    uint32_t counted = world_out(world);
    world_put(world, WEIR_LEASED, 40, WEIR_STALE_LIMIT);
    world_run(world, 3 * WEIR_SECOND);
    world->ceiling = 40;
    world_run(world, 10 * WEIR_SECOND);
    uint32_t leased = world_out(world);
    world->ceiling = 60;
    world_put(world, WEIR_COUNTED, 40, WEIR_STALE_LIMIT);
    world_run(world, 10 * WEIR_SECOND);
    print_message("in flight of 40: %u counted, %u leased, %u counted\n",
                  counted, leased, world_out(world));
    assert_compare(leased, >=, 38);
    assert_compare(leased, <=, 40);
    for (uint32_t l = 0; l < LIMITERS; l++) {
        assert_int_equal(world_lease(world, l).leasing, WEIR_LEASING_NONE);
        assert_compare(world->out[l], >, 0);
    }
    world_end(world);
}

/* A root starts without a store, and gets its quotas: the welcome that says so
 * is lost. The limiter asks for it again, and gets a lease. */
static void a_welcome_that_is_lost(void **state)
{
    (void)state;
    const struct weir_fleet_options options = {
        .seed = world_seed(),
        .limiters = 1,
        .roots = 1,
        .limiters_started = 1,
        .slots = 4,
        .leases = 4,
        .net = { .delay = WEIR_MILLISECOND },
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 60 * WEIR_SECOND },
    };
    struct weir_fleet *fleet = weir_fleet_new(&options);
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT("q");
    quota.limit = (struct weir_limit){ LIMIT, WEIR_SECOND, false };
    quota.sharing = WEIR_LEASED;
    weir_fleet_lead(fleet, 0, true);
    assert_int_equal(weir_fleet_put(fleet, &quota, NULL), 0);
    weir_fleet_run(fleet, weir_fleet_now(fleet) + 3 * WEIR_SECOND);
    weir_fleet_store_away(fleet, true);
    weir_fleet_kill(fleet, weir_root_place(0));
    weir_fleet_start(fleet, weir_root_place(0));
    weir_fleet_lead(fleet, 0, false);
    weir_fleet_run(fleet, weir_fleet_now(fleet) + WEIR_SECOND / 2);
    assert_true(weir_fleet_linked(fleet, 0, 0));
    weir_fleet_cut(fleet, 0, 0, WEIR_WAY_DOWN, 0);
    weir_fleet_store_away(fleet, false);
    weir_fleet_run(fleet, weir_fleet_now(fleet) + WEIR_SECOND / 10);
    weir_fleet_cut(fleet, 0, 0, 0, 0);
    const struct weir_lease_manager *manager =
        weir_root_lease_manager(weir_fleet_root(fleet, 0));
    uint32_t holders = 0;
    for (int i = 0; i < 300 && holders == 0; i++) {
        weir_fleet_take(fleet, 0, WEIR_TEXT("q"), 1, NULL);
        weir_fleet_run(fleet, weir_fleet_now(fleet) + WEIR_SECOND / 10);
        weir_lease_manager_count(manager, &holders);
    }
    assert_int_equal(holders, 1);
    weir_fleet_free(fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_the_limit_and_no_more),
        cmocka_unit_test(shares_are_fair),
        cmocka_unit_test(the_sharing_is_switched_under_load),
        cmocka_unit_test(an_idle_fleet_is_switched_unseen),
        cmocka_unit_test(switched_at_any_moment),
        cmocka_unit_test(a_silent_master),
        cmocka_unit_test(what_is_unused_is_given_back),
        cmocka_unit_test(what_was_refused_before_isnt_wanted),
        cmocka_unit_test(a_handle_has_it_and_gives_it_back),
        cmocka_unit_test(a_process_that_ends_gives_all_back),
        cmocka_unit_test(a_master_elsewhere_is_told_of),
        cmocka_unit_test(a_child_has_no_lease),
        cmocka_unit_test(the_priority_is_the_quotas),
        cmocka_unit_test(an_edit_of_the_limit),
        cmocka_unit_test(permits_are_shared_and_never_over),
        cmocka_unit_test(a_cut_waits_for_permits),
        cmocka_unit_test(who_waits_is_wanted_for),
        cmocka_unit_test(fewer_units_than_processes),
        cmocka_unit_test(permits_outlast_leases),
        cmocka_unit_test(a_place_ends_with_its_last_permit),
        cmocka_unit_test(permits_are_switched_under_load),
        cmocka_unit_test(a_welcome_that_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
