/* SPDX-License-Identifier: MIT
 * test_lease_pool_learn.c - lease pools with partial knowledge or leased
 * capacity: pools that learn their predecessor's grants, and pools of regions,
 * with a capacity that is itself leased. By hand; at random:
 * test_lease_pool.c, test_lease_tree.c. */

#include "compare.h"
#include "pool_by_hand.h"

/* ---- A pool that learns ---- */

static void test_learns(void **state)
{
    (void)state;
    weir_instant leases = BEGIN + 60 * WEIR_SECOND;
    struct weir_lease_pool *b =
        learner_of(100, leases, leases + 60 * WEIR_SECOND, 100);
    uint32_t first = joined(b), second = joined(b), third = joined(b);

    /* Holders keep their amounts; a holder that had nothing shares in the
     * rest. */
    assert_near(asked(b, first, 80, 70, 0, BEGIN).capacity, 70);
    assert_near(asked(b, second, 80, 0, 0, BEGIN).capacity, 0);
    struct weir_grant push;
    assert_true(weir_lease_pool_next(b, &push, BEGIN));
    assert_int_equal(push.holder, first);
    assert_near(push.capacity, 35);
    /* Reports beyond the capacity are capped at it. Such a report is believed:
     * this holder gets the rest, and no other gets more. */
    assert_near(asked(b, third, 80, 5000, 0, BEGIN).capacity, 30);
    assert_near(asked(b, second, 80, 0, 0, BEGIN).capacity, 0);
    assert_true(stats_of(b, BEGIN).learning);
    assert_near(stats_of(b, BEGIN).out, 5070);
    weir_lease_pool_free(b);
}

/* When the predecessor's leases are over, its safe capacities may still be in
 * use: their sum has a known bound. */
static void test_learns_in_two_steps(void **state)
{
    (void)state;
    weir_instant leases = BEGIN + 60 * WEIR_SECOND;
    weir_instant safes = leases + 60 * WEIR_SECOND;
    struct weir_lease_pool *b = learner_of(100, leases, safes, 40);
    uint32_t first = joined(b), second = joined(b);
    struct weir_band band = { 0, 1, 90 };
    struct weir_lease_pool_ask ask = {
        .bands = &band, .band_count = 1, .has = 30, .safe = 10, .streams = true
    };
    struct weir_grant grant;
    weir_lease_pool_ask(b, first, &ask, &grant, BEGIN);
    assert_near(grant.capacity, 30);
    ask.taken = grant.serial;
    assert_int_equal(weir_lease_pool_deadline(b, BEGIN + WEIR_SECOND), leases);
    weir_lease_pool_ask(b, first, &ask, &grant, leases - 1);
    assert_near(grant.capacity, 30);
    ask.taken = grant.serial;
    weir_lease_pool_tick(b, leases);
    weir_lease_pool_ask(b, first, &ask, &grant, leases);
    assert_near(grant.capacity, 70); /* 30 may be promised to others */
    assert_near(asked(b, second, 90, 0, 0, leases).capacity, 0);
    ask.taken = grant.serial;
    weir_lease_pool_ask(b, first, &ask, &grant, leases);
    assert_near(grant.capacity, 35);
    weir_lease_pool_tick(b, safes);
    assert_false(stats_of(b, safes).learning);
    assert_near(asked(b, second, 90, 0, 0, safes).capacity, 30);
    weir_lease_pool_free(b);
}

/* A region that is new, too: it learns its own grants bit by bit, and until
 * then its acknowledgements free nothing. */
static void test_one_that_learns_below(void **state)
{
    (void)state;
    weir_instant leases = BEGIN + 60 * WEIR_SECOND;
    struct weir_lease_pool *b = learner_of(100, leases, leases, 0);
    uint32_t server = joined(b), other = joined(b);
    struct weir_band band = { 0, 3, 20 };
    struct weir_lease_pool_ask ask = { .bands = &band,
                                       .band_count = 1,
                                       .has = 10,
                                       .safe = 6,
                                       .streams = true,
                                       .learning = true };
    struct weir_grant grant;
    weir_lease_pool_ask(b, server, &ask, &grant, BEGIN);
    assert_near(grant.capacity, 10);
    assert_near(grant.safe, 6);
    ask.taken = grant.serial;
    ask.has = 30;
    ask.safe = 9;
    weir_lease_pool_ask(b, server, &ask, &grant, BEGIN);
    assert_near(stats_of(b, BEGIN).out, 30);
    assert_near(stats_of(b, BEGIN).safe_out, 9);
    assert_near(grant.capacity, 20);
    assert_near(grant.safe, 9); /* no less than its predecessor may have had */
    assert_near(asked(b, other, 50, 0, 0, BEGIN).capacity, 0);
    ask.taken = grant.serial;
    weir_lease_pool_ask(b, server, &ask, &grant, BEGIN);
    assert_near(stats_of(b, BEGIN).out, 30);

    /* Then it knows all: its acknowledgements count, and it leases on. */
    ask.learning = false;
    ask.taken = grant.serial;
    weir_lease_pool_ask(b, server, &ask, &grant, BEGIN);
    assert_near(stats_of(b, BEGIN).out, 20);
    assert_near(asked(b, other, 50, 0, 0, BEGIN).capacity, 10);
    /* A late message from the time when it learned changes nothing: the part
     * that it has given back since is now another holder's. */
    ask.learning = true;
    weir_lease_pool_ask(b, server, &ask, &grant, BEGIN);
    assert_near(stats_of(b, BEGIN).out, 30);
    assert_near(asked(b, other, 50, 0, 0, BEGIN).capacity, 10);
    weir_lease_pool_free(b);
}

/* While it learns it has to believe reports, but not beyond the capacity, nor
 * for longer than it learns. */
static void test_one_that_lies_to_who_learns(void **state)
{
    (void)state;
    weir_instant leases = BEGIN + 60 * WEIR_SECOND;
    struct weir_lease_pool *b = learner_of(100, leases, leases, 0);
    uint32_t liar = joined(b), other = joined(b);
    for (weir_instant now = BEGIN; now < leases; now += WEIR_SECOND) {
        assert_near(called(b, liar, 0, 1e18, now).capacity, 0);
        assert_near(called(b, other, 100, 0, now).capacity, 0);
        assert_near(stats_of(b, now).out, 100);
    }
    called(b, liar, 0, 1e18, leases);
    assert_near(called(b, other, 100, 0, leases).capacity, 100);
    weir_lease_pool_free(b);
}

/* The same when this pool has learned: it knows the most that the region can
 * have. (A region's master reported it, and its successor acknowledged less
 * since; or it was delayed on another path. If it were believed, the region
 * would be granted that much again.) */
static void test_late_word_of_one_that_learned(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint32_t server = joined(b), other = joined(b);
    uint64_t taken = asked(b, server, 100, 0, 0, BEGIN).serial;
    asked(b, other, 100, 0, 0, BEGIN);
    taken = asked(b, server, 100, 100, taken, BEGIN).serial;
    asked(b, server, 100, 50, taken, BEGIN);
    assert_near(asked(b, other, 100, 0, 0, BEGIN).capacity, 50);

    struct weir_band band = { 0, 3, 100 };
    struct weir_lease_pool_ask late = { .bands = &band,
                                        .band_count = 1,
                                        .has = 100,
                                        .safe = 70,
                                        .streams = true,
                                        .learning = true };
    struct weir_grant grant;
    assert_int_equal(weir_lease_pool_ask(b, server, &late, &grant, BEGIN), 0);
    assert_near(grant.capacity, 50);
    assert_near(stats_of(b, BEGIN).out, 100);
    weir_lease_pool_free(b);
}

/* A region that is new reports grants that outlast the lease of its
 * predecessor. They are accounted for, but must not come into force again
 * beside later grants to others. */
static void test_what_is_past_is_promised_for_no_time(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    struct weir_lease_rule rule = rule_of(WEIR_SHARE_FAIR, 100);
    rule.linger = 3 * WEIR_SECOND;
    rule.safe = 10;
    weir_lease_pool_set_rule(b, &rule);
    uint32_t other = joined(b), server = joined(b);
    assert_near(asked(b, other, 60, 0, 0, BEGIN).capacity, 60);

    struct weir_band band = { 0, 3, 100 };
    struct weir_lease_pool_ask fresh = { .bands = &band,
                                         .band_count = 1,
                                         .has = 70,
                                         .safe = 70,
                                         .streams = true,
                                         .learning = true };
    struct weir_grant grant;
    assert_int_equal(weir_lease_pool_ask(b, server, &fresh, &grant, BEGIN), 0);
    assert_near(grant.capacity, 40);
    assert_near(grant.safe, 70);
    assert_int_equal(grant.safe_lease, grant.lease);
    weir_lease_pool_free(b);
}

/* ---- A region's pool, with a leased capacity ---- */

/* Leases 'capacity' to this pool until 'over', then 'safe' until
 * 'safe_over'. */
static void lease_to(struct weir_lease_pool *b, double capacity,
                     weir_instant expiry, double safe, weir_instant safe_until)
{
    struct weir_lease_rule rule = rule_of(WEIR_SHARE_FAIR, capacity);
    rule.safe = safe;
    weir_lease_pool_set_rule(b, &rule);
    weir_lease_pool_set_expiry(b, expiry, safe, safe_until);
}

/* The pool's lease ran out, and a holder was granted the rest for as long as it
 * lasts. Then the pool is leased more again, for a shorter time. The holder
 * must not be sent this by a push, which would last as long as its earlier
 * grant. */
static void test_no_push_outlasts_our_lease(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    weir_instant soon = BEGIN + WEIR_SECOND, then = BEGIN + 9 * WEIR_SECOND;
    uint32_t holder = joined(b);
    lease_to(b, 5, then, 5, then);
    struct weir_grant grant = asked(b, holder, 50, 0, 0, BEGIN);
    assert_near(grant.capacity, 5);
    assert_int_equal(grant.lease, then - BEGIN);

    lease_to(b, 40, soon, 5, then);
    assert_false(weir_lease_pool_next(b, &grant, BEGIN));
    grant = asked(b, holder, 50, 5, grant.serial, BEGIN);
    assert_near(grant.capacity, 40);
    assert_int_equal(grant.lease, soon - BEGIN);
    weir_lease_pool_free(b);
}

/* When the pool's lease was over, a holder was granted 5 for long; then, of a
 * short lease, 40. If that answer was lost and a later push was not, the holder
 * uses the pushed amount for as long as its first grant. So the pool has only
 * this amount for that long, whether it is pushed because another holder waits
 * or to send a roster token. */
static void test_what_is_pushed_outlasts_our_lease(void **state)
{
    (void)state;
    for (int roster_tokens = 0; roster_tokens < 2; roster_tokens++) {
        struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
        weir_instant now = BEGIN, then = BEGIN + 9 * WEIR_SECOND;
        weir_instant soon = BEGIN + 2 * WEIR_SECOND;
        weir_lease_pool_keep(b, roster_tokens ? 7 : 0, now);
        uint32_t first = joined(b), second = joined(b);
        lease_to(b, 5, then, 5, then);
        assert_near(asked(b, first, 40, 0, 0, now).capacity, 5);

        lease_to(b, 40, soon, 5, then);
        assert_near(asked(b, first, 40, 5, 0, now).capacity, 40);
        if (!roster_tokens)
            asked(b, second, 40, 0, 0, now);
        now += WEIR_SECOND;
        struct weir_grant push;
        assert_true(weir_lease_pool_next(b, &push, now));
        assert_int_equal(push.holder, first);
        assert_compare(push.capacity, <=, 5);
        assert_true(!roster_tokens || push.roster_token != 0);
        weir_lease_pool_free(b);
    }
}

/* Two holders were granted 20 each, then 5. When the pool's lease is over, that
 * is all of its 10: neither may be granted more for longer, even if more is
 * accounted. */
static void test_our_lease_is_over(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    weir_instant over = BEGIN + 9 * WEIR_SECOND;
    weir_instant safe_over = BEGIN + 19 * WEIR_SECOND;
    uint32_t first = joined(b), second = joined(b);
    lease_to(b, 40, over, 10, safe_over);
    asked(b, first, 20, 0, 0, BEGIN);
    asked(b, second, 20, 0, 0, BEGIN);
    lease_to(b, 40, over - WEIR_SECOND, 10, safe_over); /* it was shortened */
    struct weir_grant grant = asked(b, first, 20, 20, 0, BEGIN);
    assert_near(grant.safe, 10);
    grant = asked(b, second, 20, 20, 0, BEGIN);
    assert_near(grant.safe, 0);

    weir_instant now = over - WEIR_SECOND;
    lease_to(b, 10, safe_over, 10, safe_over);
    assert_near(asked(b, second, 20, 20, grant.serial, now).capacity, 0);
    weir_lease_pool_free(b);
}

/* The predecessor had 33. Two holders report 12.5 each from it, with 8 in safe
 * capacity; a third, which is silent, has 8 likewise. The predecessor's lease
 * was over, so all three are at 8, and the root above accounts for these 24
 * when it leases 19 to this pool. This pool doesn't know whether that lease is
 * over, so the two may use no more than they have if it is: 24 less the 8 of
 * the third. */
static void test_their_lease_was_over_before(void **state)
{
    (void)state;
    weir_instant leases = BEGIN + 60 * WEIR_SECOND;
    weir_instant safes = leases + 60 * WEIR_SECOND;
    struct weir_lease_pool *b =
        learner_of(33, leases, safes, WEIR_LEASE_UNITS_MAX);
    struct weir_band band = { 0, 1, 50 };
    struct weir_lease_pool_ask asks[2];
    struct weir_grant grants[2];
    uint32_t holders[2];
    for (int i = 0; i < 2; i++) {
        asks[i] = (struct weir_lease_pool_ask){ .bands = &band,
                                                .band_count = 1,
                                                .has = 12.5,
                                                .safe = 8,
                                                .streams = true };
        holders[i] = joined(b);
        assert_int_equal(
            weir_lease_pool_ask(b, holders[i], &asks[i], NULL, BEGIN), 0);
    }
    for (weir_instant now = BEGIN; now < safes; now += 10 * WEIR_SECOND) {
        lease_to(b, 19, now + 20 * WEIR_SECOND, 24, 2 * safes);
        weir_lease_pool_tick(b, now);
        for (int i = 0; i < 2; i++) {
            weir_lease_pool_ask(b, holders[i], &asks[i], &grants[i], now);
            asks[i].taken = grants[i].serial;
            asks[i].has = grants[i].capacity;
        }
        assert_compare(grants[0].capacity + grants[1].capacity, <=, 24 - 8);
    }
    assert_near(grants[0].capacity + grants[1].capacity, 24 - 8);
    weir_lease_pool_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_learns_in_two_steps),
        cmocka_unit_test(test_one_that_learns_below),
        cmocka_unit_test(test_one_that_lies_to_who_learns),
        cmocka_unit_test(test_late_word_of_one_that_learned),
        cmocka_unit_test(test_what_is_past_is_promised_for_no_time),
        cmocka_unit_test(test_no_push_outlasts_our_lease),
        cmocka_unit_test(test_what_is_pushed_outlasts_our_lease),
        cmocka_unit_test(test_our_lease_is_over),
        cmocka_unit_test(test_their_lease_was_over_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
