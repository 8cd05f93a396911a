/* SPDX-License-Identifier: MIT
 * test_lease_pool_roster.c - how a successor knows that it has heard all lease
 * holders: by hand. At random: test_lease_tree.c. */

#include "compare.h"
#include "core/leased/lease_holder.h"
#include "pool_by_hand.h"

enum { ANN = 1, BOB, EVE };

/* By then no new holder has come for a while. */
#define QUIET (BEGIN + WEIR_SECOND)

static uint32_t named(struct weir_lease_pool *b, uint64_t name)
{
    uint32_t holder;
    assert_int_equal(weir_lease_pool_join(b, name, &holder), 0);
    return holder;
}

/* A streaming holder asks for 40, and shows a roster token. */
static struct weir_grant shows_at(struct weir_lease_pool *b, uint32_t holder,
                                  double has, uint64_t roster_token,
                                  weir_instant now)
{
    struct weir_band band = { 0, 1, 40 };
    struct weir_lease_pool_ask ask = { .bands = &band,
                                       .band_count = 1,
                                       .has = has,
                                       .streams = true,
                                       .roster_token = roster_token };
    struct weir_grant grant;
    assert_int_equal(weir_lease_pool_ask(b, holder, &ask, &grant, now), 0);
    return grant;
}

static struct weir_grant shows(struct weir_lease_pool *b, uint32_t holder,
                               double has, uint64_t roster_token)
{
    return shows_at(b, holder, has, roster_token, BEGIN);
}

/* A holder comes, and is sent a roster token when all is quiet. */
static uint32_t told(struct weir_lease_pool *b, uint64_t name)
{
    uint32_t holder = named(b, name);
    assert_int_equal(shows(b, holder, 0, 0).roster_token, 0);
    assert_int_not_equal(shows_at(b, holder, 0, 0, QUIET).roster_token, 0);
    return holder;
}

/* The master after one that kept 'number'. */
static struct weir_lease_pool *successor_of(uint64_t number)
{
    struct weir_lease_rule rule = rule_of(WEIR_SHARE_FAIR, 100);
    const struct weir_learning learning = {
        .leases = BEGIN + 60 * WEIR_SECOND,
        .safes = BEGIN + 120 * WEIR_SECOND,
        .promised = 100,
        .kept = number,
    };
    struct weir_lease_pool *b =
        weir_lease_pool_new(&maker_mem, &rule, &learning, &serials, 1, BEGIN);
    weir_lease_pool_keep(b, number + 1, BEGIN);
    return b;
}

/* The roster token of a master that keeps 7, and knows Ann and Bob. */
static uint64_t roster_token_of_both(struct weir_lease_pool *b)
{
    shows(b, named(b, ANN), 0, 0);
    uint32_t bob = named(b, BOB);
    shows(b, bob, 0, 0);
    weir_lease_pool_keep(b, 7, BEGIN);
    uint64_t roster_token = shows_at(b, bob, 40, 0, QUIET).roster_token;
    assert_int_not_equal(roster_token, 0);
    return roster_token;
}

static void test_all_were_heard(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint64_t roster_token = roster_token_of_both(b);
    weir_lease_pool_free(b);

    b = successor_of(7);
    uint32_t ann = named(b, ANN), bob = named(b, BOB), eve = named(b, EVE);
    assert_near(shows(b, bob, 10, roster_token).capacity, 10);
    assert_near(shows(b, eve, 0, 0).capacity, 0);
    assert_true(stats_of(b, BEGIN).learning);
    struct weir_grant grant = shows(b, ann, 20, roster_token);
    assert_false(stats_of(b, BEGIN).learning);
    assert_near(grant.capacity, 100. / 3);
    assert_int_not_equal(grant.roster_token, 0);
    assert_int_not_equal(grant.roster_token, roster_token);
    weir_lease_pool_free(b);
}

/* Another number was kept since the token was sent: a holder may have come. */
static void test_another_number_was_kept(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint64_t roster_token = roster_token_of_both(b);
    weir_lease_pool_free(b);
    const uint64_t found[] = { 0, 8 };
    for (size_t i = 0; i < WEIR_COUNT_OF(found); i++) {
        b = successor_of(found[i]);
        shows(b, named(b, ANN), 10, roster_token);
        shows(b, named(b, BOB), 20, roster_token);
        assert_true(stats_of(b, BEGIN).learning);
        weir_lease_pool_free(b);
    }
}

/* A region that is new itself counts as heard when it has heard its own
 * holders. */
static void test_one_that_learns_counts_later(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint64_t roster_token = roster_token_of_both(b);
    weir_lease_pool_free(b);
    b = successor_of(7);
    uint32_t ann = named(b, ANN), bob = named(b, BOB);
    shows(b, ann, 10, roster_token);
    struct weir_band band = { 0, 1, 40 };
    struct weir_lease_pool_ask ask = { .bands = &band,
                                       .band_count = 1,
                                       .has = 5,
                                       .streams = true,
                                       .learning = true,
                                       .roster_token = roster_token };
    struct weir_grant grant;
    assert_int_equal(weir_lease_pool_ask(b, bob, &ask, &grant, BEGIN), 0);
    assert_true(stats_of(b, BEGIN).learning);
    ask.learning = false;
    ask.has = 30;
    ask.roster_token = 0; /* it was answered */
    assert_int_equal(weir_lease_pool_ask(b, bob, &ask, &grant, BEGIN), 0);
    assert_false(stats_of(b, BEGIN).learning);
    assert_near(stats_of(b, BEGIN).out, 10 + 40);
    weir_lease_pool_free(b);
}

/* Asks for 40, and isn't answered. */
static void waits(struct weir_lease_pool *b, uint32_t holder, weir_instant now)
{
    struct weir_band band = { 0, 1, 40 };
    struct weir_lease_pool_ask ask = { .bands = &band,
                                       .band_count = 1,
                                       .streams = true };
    struct weir_grant grant = { .serial = 0 };
    assert_int_equal(weir_lease_pool_ask(b, holder, &ask, &grant, now),
                     WEIR_ENOTREADY);
    assert_int_equal(grant.serial, 0);
}

/* A holder that comes after tokens without it were sent waits for another
 * number. It isn't granted 0, which it would use; but others are lowered to
 * make room for it. */
static void test_newcomer_waits_for_a_number(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 90);
    roster_token_of_both(b);
    assert_false(weir_lease_pool_wants_keep(b));
    uint32_t eve = named(b, EVE);
    waits(b, eve, QUIET);
    assert_true(weir_lease_pool_wants_keep(b));
    struct weir_grant push;
    unsigned lowered = 0;
    while (weir_lease_pool_next(b, &push, QUIET)) {
        assert_int_not_equal(push.holder, eve);
        assert_near(push.capacity, 30);
        lowered++;
    }
    assert_int_equal(lowered, 2);
    weir_lease_pool_keep(b, 8, BEGIN);
    assert_false(weir_lease_pool_wants_keep(b));
    assert_near(shows(b, eve, 0, 0).capacity, 10);
    weir_lease_pool_free(b);
}

/* Holders that come one after the other don't wait for each other: as when a
 * fleet starts, or its sharing is switched. */
static void test_nobody_waits_for_who_came_just_now(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 200);
    weir_lease_pool_keep(b, 7, BEGIN);
    weir_instant now = BEGIN;
    for (uint64_t name = ANN; name <= EVE; name++) {
        struct weir_grant grant = shows_at(b, named(b, name), 0, 0, now);
        assert_near(grant.capacity, 40);
        assert_int_equal(grant.roster_token, 0);
        now += WEIR_SECOND / 4;
    }
    assert_false(weir_lease_pool_wants_keep(b));
    now += WEIR_SECOND;
    assert_int_not_equal(shows_at(b, 0, 40, 0, now).roster_token, 0);
    waits(b, named(b, EVE + 1), now);
    weir_lease_pool_free(b);
}

/* The number can't be kept. So no tokens are sent. When both have acknowledged
 * a grant without one, neither can show a token, and the new holder waits no
 * more. */
static void test_newcomer_waits_for_no_roster_token(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 200);
    weir_lease_pool_keep(b, 7, BEGIN);
    uint32_t ann = told(b, ANN), eve = named(b, EVE);
    waits(b, eve, QUIET);
    struct weir_grant grant = asked(b, ann, 40, 40, 0, QUIET);
    assert_int_equal(grant.roster_token, 0);
    waits(b, eve, QUIET);
    asked(b, ann, 40, 40, grant.serial - 1, QUIET);
    waits(b, eve, QUIET);
    assert_false(weir_lease_pool_lets_in(b));
    assert_int_equal(asked(b, ann, 40, 40, grant.serial, QUIET).roster_token,
                     0);
    assert_true(weir_lease_pool_lets_in(b));
    assert_false(weir_lease_pool_lets_in(b));
    grant = shows(b, eve, 0, 0);
    assert_near(grant.capacity, 40);
    assert_int_equal(grant.roster_token, 0);
    /* Nor does any other, and tokens are sent when a number is kept. */
    shows(b, named(b, BOB), 0, 0);
    assert_true(weir_lease_pool_wants_keep(b));
    weir_lease_pool_keep(b, 8, BEGIN);
    assert_int_not_equal(shows_at(b, eve, 0, 0, QUIET).roster_token, 0);
    weir_lease_pool_free(b);
}

/* Likewise when every grant to the silent holder is over. */
static void test_newcomer_waits_for_who_is_silent(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 200);
    weir_lease_pool_keep(b, 7, BEGIN);
    told(b, ANN);
    uint32_t eve = named(b, EVE);
    weir_instant over = QUIET + (60 + 8) * WEIR_SECOND;
    weir_lease_pool_tick(b, over - 1);
    waits(b, eve, over - 1);
    weir_lease_pool_tick(b, over);
    assert_near(asked(b, eve, 40, 0, 0, over).capacity, 40);
    weir_lease_pool_free(b);
}

/* By then the silent holder shows its token to no root: holders that came since
 * aren't on that roster. It has no safe capacity, so nothing outlasts its
 * lease. */
static void test_who_is_forgotten_shows_no_roster_token(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 200);
    weir_lease_pool_keep(b, 7, BEGIN);
    uint32_t ann = told(b, ANN);
    struct weir_lease_holder holder;
    struct weir_lease_holder_ask ask;
    weir_lease_holder_init(&holder, WEIR_STALE_SHARE, false, 1, BEGIN);
    weir_lease_holder_ask(&holder, holder.number + 1, &ask, QUIET);
    struct weir_grant grant = shows_at(b, ann, 0, 0, QUIET);
    assert_int_not_equal(grant.roster_token, 0);
    assert_near(grant.safe, 0);
    assert_true(
        weir_lease_holder_granted(&holder, ask.number, 1, &grant, QUIET));
    weir_lease_holder_lost(&holder, QUIET);
    weir_lease_holder_ask(&holder, holder.number + 1, &ask,
                          QUIET + 60 * WEIR_SECOND - 1);
    assert_int_equal(ask.roster_token, grant.roster_token);
    weir_instant over = QUIET + (60 + 8) * WEIR_SECOND;
    weir_lease_pool_tick(b, over);
    assert_near(shows_at(b, named(b, EVE), 0, 0, over).capacity, 40);
    weir_lease_holder_ask(&holder, holder.number + 1, &ask, over);
    assert_int_equal(ask.roster_token, 0);
    weir_lease_pool_free(b);
}

/* A sharing that bounds no sum may be switched to one that does, at the very
 * moment at which the master is lost. */
static void test_no_sharing_lets_a_newcomer_in(void **state)
{
    (void)state;
    const enum weir_share_algorithm shares[] = { WEIR_SHARE_NONE,
                                                 WEIR_SHARE_STATIC,
                                                 WEIR_SHARE_FAIR };
    for (size_t i = 0; i < WEIR_COUNT_OF(shares); i++) {
        struct weir_lease_pool *b = pool_of(shares[i], 200);
        weir_lease_pool_keep(b, 7, BEGIN);
        told(b, ANN);
        waits(b, named(b, EVE), QUIET);
        /* A client of Doorman's protocol is granted 0, and is to ask again
         * soon. */
        uint32_t bob = named(b, BOB);
        struct weir_grant grant = called(b, bob, 40, 0, QUIET);
        assert_near(grant.capacity, 0);
        assert_near(grant.safe, 0);
        assert_int_equal(grant.refresh, WEIR_SECOND);
        weir_lease_pool_keep(b, 8, BEGIN);
        grant = called(b, bob, 40, 0, QUIET);
        assert_compare(grant.capacity, >=, 40);
        assert_int_equal(grant.refresh, 8 * WEIR_SECOND);
        weir_lease_pool_free(b);
    }
}

/* A client of Doorman's protocol shows no token, so none is sent, and no holder
 * waits for a number any more. */
static void test_no_roster_token_with_one_that_keeps_none(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 200);
    weir_lease_pool_keep(b, 7, BEGIN);
    called(b, named(b, ANN), 40, 0, BEGIN);
    assert_int_equal(shows(b, named(b, BOB), 0, 0).roster_token, 0);
    assert_near(shows(b, named(b, EVE), 0, 0).capacity, 40);
    assert_false(weir_lease_pool_wants_keep(b));
    weir_lease_pool_free(b);
}

/* Moves time on until something is pushed. Returns the token that all of those
 * grants have; none of them has more or less, or a longer lease. */
static uint64_t called_out(struct weir_lease_pool *b, unsigned *out_count,
                           weir_instant *now)
{
    struct weir_grant push;
    while (!weir_lease_pool_next(b, &push, *now)) {
        *now = weir_lease_pool_deadline(b, *now);
        assert_compare(*now, <, BEGIN + 60 * WEIR_SECOND);
    }
    uint64_t roster_token = push.roster_token;
    *out_count = 0;
    do {
        assert_int_equal(push.roster_token, roster_token);
        assert_near(push.capacity, 40);
        assert_int_equal(push.lease, 0);
        ++*out_count;
    } while (weir_lease_pool_next(b, &push, *now));
    assert_int_not_equal(roster_token, 0);
    return roster_token;
}

/* The new holder made all tokens void. The others are sent another when it is
 * quiet, not a refresh later, so that a successor may come in between. */
static void test_a_void_roster_token_is_told_anew(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 200);
    roster_token_of_both(b);
    uint32_t eve = named(b, EVE);
    waits(b, eve, QUIET);
    weir_lease_pool_keep(b, 8, QUIET);
    assert_int_equal(shows(b, eve, 0, 0).roster_token, 0);
    unsigned count;
    weir_instant now = QUIET;
    uint64_t roster_token = called_out(b, &count, &now);
    assert_int_equal(count, 3);
    assert_compare(now, <=, QUIET + WEIR_SECOND);
    /* The tokens are valid; void again, so soon, they are replaced only at the
     * refresh. */
    waits(b, named(b, EVE + 1), now);
    weir_lease_pool_keep(b, 9, now);
    weir_instant next = now;
    called_out(b, &count, &next);
    assert_int_equal(count, 3);
    assert_int_equal(next, now + 8 * WEIR_SECOND);
    weir_lease_pool_free(b);
    b = successor_of(8);
    for (uint64_t name = ANN; name <= EVE; name++) {
        assert_true(stats_of(b, BEGIN).learning);
        shows(b, named(b, name), 40, roster_token);
    }
    assert_false(stats_of(b, BEGIN).learning);
    weir_lease_pool_free(b);
}

/* Likewise when a holder has gone, for which a successor would wait in vain. */
static void test_who_goes_is_struck_off(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 200);
    roster_token_of_both(b);
    assert_true(weir_lease_pool_release(b, 0, true, QUIET));
    unsigned count;
    weir_instant now = QUIET;
    uint64_t roster_token = called_out(b, &count, &now);
    assert_int_equal(count, 1);
    assert_compare(now, <=, QUIET + WEIR_SECOND);
    weir_lease_pool_free(b);
    b = successor_of(7);
    shows(b, named(b, BOB), 40, roster_token);
    assert_false(stats_of(b, BEGIN).learning);
    weir_lease_pool_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_were_heard),
        cmocka_unit_test(test_another_number_was_kept),
        cmocka_unit_test(test_one_that_learns_counts_later),
        cmocka_unit_test(test_newcomer_waits_for_a_number),
        cmocka_unit_test(test_nobody_waits_for_who_came_just_now),
        cmocka_unit_test(test_a_void_roster_token_is_told_anew),
        cmocka_unit_test(test_who_goes_is_struck_off),
        cmocka_unit_test(test_newcomer_waits_for_no_roster_token),
        cmocka_unit_test(test_newcomer_waits_for_who_is_silent),
        cmocka_unit_test(test_who_is_forgotten_shows_no_roster_token),
        cmocka_unit_test(test_no_sharing_lets_a_newcomer_in),
        cmocka_unit_test(test_no_roster_token_with_one_that_keeps_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
