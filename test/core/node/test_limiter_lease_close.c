/* SPDX-License-Identifier: MIT
 * test_limiter_lease_close.c - leased quotas in limiters: the effects of
 * handles that come and go. */

#include "lease_world.h"

#include "core/node/limiter_internal.h"
#include "core/table/table_lock_internal.h"

static uint32_t holders_of_all(const struct world *world)
{
    uint32_t holders;
    weir_lease_manager_count(world->manager, &holders);
    return holders;
}

/* The root announces that it is the master, in a message without grants. */
static void tell_who_is_master(struct world *world)
{
    for (uint32_t l = 0; l < LIMITERS; l++) {
        struct weir_node *node = &world->fleet->limiters[l];
        struct weir_message message = { .type = WEIR_MESSAGE_GRANTS,
                                        .session = world->session[l],
                                        .grants = { .term = 1 } };
        assert_int_equal(weir_limiter_receive(node->limiter, 0, &message,
                                              weir_node_now(node)),
                         0);
        weir_node_rest(node);
    }
}

static struct weir_ref pin(struct world *world, uint32_t limiter)
{
    struct weir_ref ref;
    enum weir_resolved resolved =
        weir_table_pin(weir_fleet_table(world->fleet, limiter), WEIR_TEXT("q"),
                       &ref, weir_node_now(&world->fleet->limiters[limiter]));
    assert_int_equal(resolved, WEIR_RESOLVED);
    return ref;
}

/* A use, and perhaps a want, by a handle that is open. */
static void use(struct world *world, uint32_t limiter, struct weir_ref ref,
                struct weir_rng *rng)
{
    struct weir_table *table = weir_fleet_table(world->fleet, limiter);
    if (weir_rng_below(rng, 4) == 0)
        assert_compare(weir_table_want(table, ref, 20), <=, WEIR_OUTCOME_KICK);
    if (weir_rng_below(rng, 4) == 0)
        return;
    if (world->kind == WEIR_CONCURRENCY)
        world_enter(world, limiter);
    else
        weir_fleet_take(world->fleet, limiter, WEIR_TEXT("q"), 1, NULL);
}

/* Three handles of one process, any number of them open at a time. In the end
 * none is. */
static void open_and_close(struct world *world, uint32_t limiter,
                           struct weir_rng *rng)
{
    struct weir_table *table = weir_fleet_table(world->fleet, limiter);
    struct weir_ref ref[3];
    bool is_open[3] = { false, false, false };
    for (uint64_t left = 1 + weir_rng_below(rng, 8); left > 0; left--) {
        uint64_t i = weir_rng_below(rng, 3);
        is_open[i] = !is_open[i];
        if (is_open[i]) {
            ref[i] = pin(world, limiter);
            use(world, limiter, ref[i], rng);
        } else {
            weir_table_unpin(table, ref[i]);
        }
        world_run(world, weir_rng_below(rng, 6) * weir_rng_below(rng, 50) *
                             WEIR_MILLISECOND);
    }
    for (int i = 0; i < 3; i++) {
        if (is_open[i])
            weir_table_unpin(table, ref[i]);
    }
}

/* Handles are opened, used and closed at random moments, in a millisecond or in
 * a second. The master's answers come before or after, perhaps also the one in
 * which the root announces that it is the master. Some checks after the last
 * close the master has nothing leased out, and gets no further requests. */
static void the_last_close_leaves_nothing(void **state)
{
    (void)state;
    weir_duration ways[] = { WAY, 130 * WEIR_MILLISECOND,
                             1500 * WEIR_MILLISECOND };
    for (uint64_t history = 0; history < 150; history++) {
        struct weir_rng rng = { world_seed() * 1000 + history };
        struct world *world =
            world_begin_kind(history % 2 == 0 ? WEIR_RATE : WEIR_CONCURRENCY,
                             40, WEIR_LEASED, WEIR_STALE_LIMIT);
        world->stay = weir_rng_below(&rng, 100) * WEIR_MILLISECOND;
        world->way = ways[weir_rng_below(&rng, 3)];
        bool is_known = weir_rng_below(&rng, 2) == 0;
        if (is_known)
            tell_who_is_master(world);
        open_and_close(world, 2, &rng);
        world_run(world, 500 * WEIR_MILLISECOND + (is_known ? 0 : world->way));
        uint32_t heard = world->wants;
        uint32_t at_once = holders_of_all(world);
        world_run(world, 3 * WEIR_SECOND);
        if (at_once > 0 || holders_of_all(world) > 0 || world->wants != heard)
            fail_msg("history %llu (seed %llu): %u and %u holders, %u messages "
                     "after the last close",
                     (unsigned long long)history,
                     (unsigned long long)world_seed(), at_once,
                     holders_of_all(world), world->wants - heard);
        world_end(world);
    }
}

/* A handle is opened, used and closed again and again, while the quota is used
 * by its name as well: neither takes the grant from the other. */
static void what_is_used_by_name_stays(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    struct weir_table *table = weir_fleet_table(world->fleet, 0);
    world_offer(world, 100, 0, 0, 0);
    world_run(world, 5 * WEIR_SECOND);
    world_forget(world);
    for (int i = 0; i < 100; i++) {
        struct weir_ref ref = pin(world, 0);
        world_run(world, (weir_duration)i % 7 * 10 * WEIR_MILLISECOND);
        weir_table_unpin(table, ref);
        world_run(world, (weir_duration)i % 5 * 40 * WEIR_MILLISECOND);
    }
    world_run(world, WEIR_SECOND);
    assert_int_equal(world->releases, 0);
    assert_int_equal(world->refused[0], 0);
    world_offer(world, 0, 0, 0, 0);
    world_run(world, 2 * WEIR_LEASE_HOLDER_IDLE);
    assert_int_equal(world->releases, 1);
    world_end(world);
}

/* The limiter stops asking for the units that a handle wanted when the handle
 * is closed, though the quota is used by its name afterwards. */
static void a_want_ends_with_its_handle(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    struct weir_table *table = weir_fleet_table(world->fleet, 0);
    struct weir_ref ref = pin(world, 0);
    assert_compare(weir_table_want(table, ref, 300), <=, WEIR_OUTCOME_KICK);
    world_run(world, WEIR_SECOND);
    assert_true(world->wanted[0] == 300);
    weir_table_unpin(table, ref);
    world_run(world, WEIR_SECOND);
    world_offer(world, 10, 0, 0, 0);
    world_run(world, 5 * WEIR_SECOND);
    assert_compare(world->wanted[0], <, 20);
    world_end(world);
}

/* ---- Peeks by name ---- */

static bool peek(struct world *world, uint64_t weight,
                 struct weir_reply *out_reply)
{
    unsigned outcome =
        weir_fleet_peek(world->fleet, 0, WEIR_TEXT("q"), weight, out_reply);
    return !(outcome & WEIR_OUTCOME_LIMITED);
}

/* A process that only looks gets a grant, keeps it while it looks, and takes
 * next to nothing of the limit from those that use it. */
static void peeks_have_a_grant(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    struct weir_reply reply;
    assert_false(peek(world, 1, &reply));
    assert_true(reply.stale);
    world_run(world, WEIR_SECOND);
    /* Ten times the limit, of which it leaves them all. */
    world_offer(world, 0, 4000, 4000, 2000);
    for (int i = 0; i < 900; i++) {
        assert_true(peek(world, 1, &reply));
        assert_false(reply.stale);
        world_run(world, 100 * WEIR_MILLISECOND);
    }
    assert_compare(world_lease(world, 0).granted, <, 0.001 * LIMIT);
    assert_int_equal(world->releases, 0);
    world_offer(world, 0, 0, 0, 0);
    world_run(world, 2 * WEIR_LEASE_HOLDER_IDLE);
    assert_false(peek(world, 1, &reply));
    assert_true(reply.stale);
    world_end(world);
}

/* A peek that no grant would let pass takes nothing from those that use the
 * limit. */
static void a_peek_for_too_many(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    struct weir_reply reply;
    world_offer(world, 0, 2 * LIMIT, 0, 0);
    world_run(world, 5 * WEIR_SECOND);
    for (int i = 0; i < 300; i++) {
        assert_false(peek(world, i % 2 ? WEIR_WEIGHT_MAX : 2 * LIMIT, &reply));
        world_run(world, 100 * WEIR_MILLISECOND);
    }
    assert_compare(world_lease(world, 0).granted, <, 0.01 * LIMIT);
    world_end(world);
}

/* A refused peek asks for as much as it needs; the process may use that. */
static void a_peek_for_many(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    struct weir_reply reply;
    peek(world, 40, &reply);
    world_run(world, WEIR_SECOND);
    int refused = 0;
    for (int i = 0; i < 600; i++) {
        refused += !peek(world, 40, &reply);
        world_run(world, 100 * WEIR_MILLISECOND);
    }
    /* When the grant has faded below it, one peek raises it again. */
    assert_compare(refused, <=, 60);
    world_offer(world, 400, 0, 0, 0);
    world_run(world, 5 * WEIR_SECOND);
    world_forget(world);
    world_run(world, 5 * WEIR_SECOND);
    assert_int_equal(world->refused[0], 0);
    world_end(world);
}

/* ---- The table's lock is taken meanwhile ---- */

static enum weir_leasing leasing_of(struct weir_table *table)
{
    struct weir_ref ref;
    assert_true(weir_table_find(table, WEIR_TEXT("q"), &ref));
    return weir_table_leasing(table, ref.slot);
}

/* A limiter with a grant that it uses no longer, and its table. */
static struct weir_limiter *with_grant(struct world *world,
                                       struct weir_table **out_table)
{
    *out_table = weir_fleet_table(world->fleet, 0);
    world_offer(world, 100, 0, 0, 0);
    world_run(world, 5 * WEIR_SECOND);
    world_offer(world, 0, 0, 0, 0);
    world_run(world, WEIR_SECOND);
    world_forget(world);
    assert_int_equal(leasing_of(*out_table), WEIR_LEASING_GRANTED);
    assert_true(weir_table_try_lock(*out_table));
    return world->fleet->limiters[0].limiter;
}

/* No process of the table takes by a lease that was given back. */
static void a_lease_is_given_back_after_its_use(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    struct weir_table *table;
    struct weir_limiter *limiter = with_grant(world, &table);
    weir_limiter_release(limiter, weir_node_now(&world->fleet->limiters[0]));
    assert_false(weir_limiter_settled(limiter));
    weir_table_unlock(table);
    world_run(world, WEIR_SECOND);
    assert_int_equal(leasing_of(table), WEIR_LEASING_CLOSED);
    assert_int_equal(world->releases, 1);
    assert_true(weir_limiter_settled(limiter));
    world_end(world);
}

/* A new limiter over the table has none of the last one's leases. */
static void an_inherited_lease_ends(void **state)
{
    (void)state;
    struct world *world = world_begin(WEIR_LEASED, WEIR_STALE_LIMIT);
    struct weir_table *table;
    struct weir_limiter *limiter = with_grant(world, &table);
    weir_limiter_leases_forget(limiter,
                               weir_node_now(&world->fleet->limiters[0]));
    weir_table_unlock(table);
    world_run(world, WEIR_SECOND);
    assert_int_equal(leasing_of(table), WEIR_LEASING_CLOSED);
    world_end(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_close_leaves_nothing),
        cmocka_unit_test(what_is_used_by_name_stays),
        cmocka_unit_test(a_want_ends_with_its_handle),
        cmocka_unit_test(peeks_have_a_grant),
        cmocka_unit_test(a_peek_for_many),
        cmocka_unit_test(a_peek_for_too_many),
        cmocka_unit_test(a_lease_is_given_back_after_its_use),
        cmocka_unit_test(an_inherited_lease_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
