/* SPDX-License-Identifier: MIT
 * test_lease_holder.c - a lease holder's limit, its requests and its wants:
 * stories, vectors, and random histories against a lease pool's account over a
 * hostile network. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "core/base/rng.h"
#include "core/leased/lease_holder.h"
#include "seed.h"

#define S WEIR_SECOND
#define MS WEIR_MILLISECOND
#define START (1000 * S)

static struct weir_lease_holder made(enum weir_on_stale on_stale, bool inflight)
{
    struct weir_lease_holder holder;
    weir_lease_holder_init(&holder, on_stale, inflight, 1, START);
    return holder;
}

static uint64_t asked(struct weir_lease_holder *holder, weir_instant now)
{
    struct weir_lease_holder_ask ask;
    weir_lease_holder_ask(holder, holder->number + 1, &ask, now);
    return ask.number;
}

static uint64_t taken(struct weir_lease_holder *holder, weir_instant now)
{
    struct weir_lease_holder_ask ask;
    weir_lease_holder_ask(holder, holder->number + 1, &ask, now);
    return ask.taken;
}

/* A lease of 20 s, to be refreshed after 5 s. */
static struct weir_grant answer_of(uint64_t serial, double capacity)
{
    return (struct weir_grant){ .serial = serial,
                                .capacity = capacity,
                                .safe = 2,
                                .lease = 20 * S,
                                .safe_lease = 40 * S,
                                .refresh = 5 * S };
}

static struct weir_grant push_of(uint64_t serial, double capacity)
{
    struct weir_grant grant = answer_of(serial, capacity);
    grant.lease = grant.safe_lease = 0;
    return grant;
}

static bool answer(struct weir_lease_holder *holder, uint64_t number,
                   uint64_t serial, double capacity, weir_instant now)
{
    struct weir_grant grant = answer_of(serial, capacity);
    return weir_lease_holder_granted(holder, number, 1, &grant, now);
}

static bool push(struct weir_lease_holder *holder, uint64_t serial,
                 double capacity, weir_instant now)
{
    struct weir_grant grant = push_of(serial, capacity);
    return weir_lease_holder_granted(holder, 0, 1, &grant, now);
}

#define ASSERT_SAME(a, b) assert_true((a) == (b))

/* ---- Stories ---- */

static void test_a_lease_runs_from_the_sending(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    uint64_t number = asked(&holder, START);
    assert_true(answer(&holder, number, 1, 50, START + 3 * S));
    ASSERT_SAME(holder.expiry, START + 20 * S);
    ASSERT_SAME(weir_lease_holder_limit(&holder, START + 20 * S - 1), 50);
    ASSERT_SAME(weir_lease_holder_limit(&holder, START + 20 * S), 0);
    /* two requests are under way; each answer's lease counts from its own */
    uint64_t first = asked(&holder, START + 5 * S);
    uint64_t second = asked(&holder, START + 6 * S);
    assert_true(answer(&holder, second, 2, 40, START + 7 * S));
    ASSERT_SAME(holder.expiry, START + 26 * S);
    /* a newer answer has come first */
    assert_false(answer(&holder, first, 2, 70, START + 7 * S));
    ASSERT_SAME(weir_lease_holder_limit(&holder, START + 7 * S), 40);
    /* an answer that took longer than its lease */
    number = asked(&holder, START + 8 * S);
    assert_true(answer(&holder, number, 3, 60, START + 28 * S));
    ASSERT_SAME(weir_lease_holder_limit(&holder, START + 28 * S), 0);
}

#define SPANS .lease = S, .safe_lease = S, .refresh = S

static void test_what_isnt_known_doesnt_count(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    assert_false(answer(&holder, 1, 1, 50, START)); /* no such request */
    assert_false(push(&holder, 1, 50, START));      /* before any answer */
    for (int i = 0; i < WEIR_LEASE_HOLDER_ASKS + 1; i++)
        asked(&holder, START);
    assert_false(answer(&holder, 1, 1, 50, START)); /* too old */
    assert_true(answer(&holder, 2, 1, 50, START));
    assert_false(answer(&holder, 2, 1, 50, START)); /* doubled */

    const struct weir_grant unsound[] = {
        { .serial = 0, SPANS },
        { .serial = 9, .lease = S, .safe_lease = S },
        { .serial = 9, .lease = S, .safe_lease = S - 1, .refresh = S },
        { .serial = 9, SPANS, .capacity = NAN },
        { .serial = 9, SPANS, .capacity = -1 },
        { .serial = 9, SPANS, .capacity = INFINITY },
        { .serial = 9, SPANS, .safe = NAN },
        { .serial = 9, SPANS, .safe = -INFINITY },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(unsound); i++)
        assert_false(
            weir_lease_holder_granted(&holder, 3, 1, &unsound[i], START));
    struct weir_grant lasting = answer_of(9, 90);
    assert_false(weir_lease_holder_granted(&holder, 0, 1, &lasting, START));
    ASSERT_SAME(weir_lease_holder_limit(&holder, START), 50);
}

/* The caller chooses the numbers: one message asks for many holders. */
static void test_numbers_of_the_caller(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    struct weir_lease_holder_ask ask;
    weir_lease_holder_ask(&holder, 1000, &ask, START);
    ASSERT_SAME(ask.number, 1000);
    weir_lease_holder_ask(&holder, 5000, &ask, START + S);
    assert_false(answer(&holder, 999, 1, 50, START + S));
    assert_false(answer(&holder, 4999, 1, 50, START + S));
    assert_true(answer(&holder, 1000, 1, 50, START + S));
    ASSERT_SAME(holder.expiry, START + 20 * S);
    assert_true(answer(&holder, 5000, 2, 50, START + S));
    ASSERT_SAME(holder.expiry, START + 21 * S);
    weir_lease_holder_lost(&holder, START + S);
    assert_false(answer(&holder, 5000, 3, 90, START + S));
    asked(&holder, START + S);
    ASSERT_SAME(holder.number, 5001);
}

static void test_a_push_never_extends(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    answer(&holder, asked(&holder, START), 1, 50, START);
    assert_true(push(&holder, 2, 70, START + 19 * S)); /* raised at once */
    ASSERT_SAME(weir_lease_holder_limit(&holder, START + 19 * S), 70);
    assert_compare(weir_lease_holder_due(&holder), >,
                   START); /* no caller waits */
    ASSERT_SAME(weir_lease_holder_limit(&holder, START + 20 * S), 0);
    assert_true(push(&holder, 4, 30, START + 19 * S));
    assert_false(push(&holder, 3, 90, START + 19 * S)); /* overtaken */
    ASSERT_SAME(weir_lease_holder_limit(&holder, START + 19 * S), 30);
    ASSERT_SAME(weir_lease_holder_due(&holder), 0); /* sent at once */
    ASSERT_SAME(taken(&holder, START + 19 * S), 4);
    assert_compare(weir_lease_holder_due(&holder), >, START + 19 * S);
}

/* Small moves with each answer cause no further request, else each request
 * would cause the next. */
static void test_small_steps_down_wait_for_the_refresh(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    weir_lease_holder_want(&holder, 100, START);
    answer(&holder, asked(&holder, START), 1, 50, START);
    answer(&holder, asked(&holder, START), 2, 49.99, START);
    assert_compare(weir_lease_holder_due(&holder), >, START + 4 * S);
    answer(&holder, asked(&holder, START), 3, 49, START);
    ASSERT_SAME(weir_lease_holder_due(&holder), 0);
    asked(&holder, START);
    push(&holder, 4, 48.999, START); /* another holder waits */
    ASSERT_SAME(weir_lease_holder_due(&holder), 0);
}

static void test_a_inflight_takes_less_when_it_fits(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, true);
    answer(&holder, asked(&holder, START), 1, 50, START);
    weir_lease_holder_in_use(&holder, 45);
    ASSERT_SAME(taken(&holder, START), 1);
    assert_true(push(&holder, 2, 20, START));
    ASSERT_SAME(weir_lease_holder_limit(&holder, START), 20); /* in force */
    ASSERT_SAME(weir_lease_holder_has(&holder, START), 50);   /* not reported */
    weir_lease_holder_in_use(&holder, 45);
    ASSERT_SAME(weir_lease_holder_has(&holder, START), 45);
    assert_compare(weir_lease_holder_due(&holder), >, START);
    ASSERT_SAME(taken(&holder, START), 1);
    /* raised again, but to less than is in use */
    assert_true(push(&holder, 3, 30, START));
    weir_lease_holder_in_use(&holder, 31);
    ASSERT_SAME(taken(&holder, START), 1);
    weir_lease_holder_in_use(&holder, 30);
    ASSERT_SAME(weir_lease_holder_due(&holder), 0);
    ASSERT_SAME(taken(&holder, START), 3);
    ASSERT_SAME(weir_lease_holder_has(&holder, START), 30);
    /* a raise is taken at once */
    assert_true(push(&holder, 4, 33, START));
    ASSERT_SAME(taken(&holder, START), 4);
    /* units in flight when the lease runs out are still reported */
    weir_lease_holder_in_use(&holder, 12);
    ASSERT_SAME(weir_lease_holder_limit(&holder, START + 20 * S), 0);
    ASSERT_SAME(weir_lease_holder_has(&holder, START + 20 * S), 12);
}

static void test_terms(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    struct weir_grant grant = answer_of(7, 50);
    uint64_t number = asked(&holder, START);
    assert_true(weir_lease_holder_granted(&holder, number, 3, &grant, START));
    ASSERT_SAME(taken(&holder, START), 7);
    /* another master: its state is not known. Its predecessor's messages are
     * ignored, though the lease goes on */
    uint64_t under_way = asked(&holder, START);
    weir_lease_holder_lost(&holder, START + S);
    ASSERT_SAME(weir_lease_holder_due(&holder), START + S);
    grant = push_of(8, 90);
    assert_false(weir_lease_holder_granted(&holder, 0, 3, &grant, START + S));
    grant = answer_of(8, 90);
    assert_false(
        weir_lease_holder_granted(&holder, under_way, 3, &grant, START + S));
    ASSERT_SAME(weir_lease_holder_limit(&holder, START + S), 50);
    struct weir_lease_holder_ask ask;
    weir_lease_holder_ask(&holder, holder.number + 1, &ask, START + S);
    ASSERT_SAME(ask.taken, 0);
    ASSERT_SAME(ask.has, 50);
    /* a push of the new master before its answer would continue a lease of
     * another */
    grant = push_of(1, 60);
    assert_false(weir_lease_holder_granted(&holder, 0, 4, &grant, START + S));
    grant = answer_of(2, 40);
    assert_true(weir_lease_holder_granted(&holder, ask.number, 4, &grant,
                                          START + 2 * S));
    ASSERT_SAME(weir_lease_holder_limit(&holder, START + 2 * S), 40);
    ASSERT_SAME(holder.expiry, START + 21 * S);
    /* the old master sends again */
    number = asked(&holder, START + 2 * S);
    grant = answer_of(99, 90);
    assert_false(
        weir_lease_holder_granted(&holder, number, 3, &grant, START + 2 * S));
}

/* The same root, restarted with no election: its serials begin at 1. */
static void test_the_same_term_anew(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    answer(&holder, asked(&holder, START), 900, 50, START);
    weir_lease_holder_lost(&holder, START);
    assert_true(answer(&holder, asked(&holder, START), 1, 30, START));
    ASSERT_SAME(weir_lease_holder_limit(&holder, START), 30);
    ASSERT_SAME(taken(&holder, START), 1);
}

static void test_stale(void **state)
{
    (void)state;
    static const struct {
        enum weir_on_stale on_stale;
        double first, limit, has;
    } rows[] = {
        { WEIR_STALE_PASS, INFINITY, INFINITY, 30 },
        { WEIR_STALE_LIMIT, 0, 0, 0 },
        { WEIR_STALE_SHARE, 0, 2, 2 },
        { WEIR_STALE_HOLD, 0, 2, 2 }, /* only the lease pool can make it 50 */
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        struct weir_lease_holder holder = made(rows[i].on_stale, false);
        weir_lease_holder_want(&holder, 30, START);
        ASSERT_SAME(weir_lease_holder_limit(&holder, START), 0);
        weir_instant at = START + WEIR_LEASE_HOLDER_FIRST;
        ASSERT_SAME(weir_lease_holder_limit(&holder, at - 1), 0);
        ASSERT_SAME(weir_lease_holder_limit(&holder, at), rows[i].first);
        ASSERT_SAME(weir_lease_holder_has(&holder, at), 0);
        answer(&holder, asked(&holder, START), 1, 50, START);
        ASSERT_SAME(weir_lease_holder_limit(&holder, at), 50);
        at = START + 20 * S;
        ASSERT_SAME(weir_lease_holder_limit(&holder, at), rows[i].limit);
        ASSERT_SAME(weir_lease_holder_has(&holder, at), rows[i].has);
        at = START + 40 * S;
        ASSERT_SAME(holder.safe_until, at);
        ASSERT_SAME(weir_lease_holder_limit(&holder, at - 1), rows[i].limit);
        bool pass = rows[i].on_stale == WEIR_STALE_PASS;
        ASSERT_SAME(weir_lease_holder_limit(&holder, at), pass ? INFINITY : 0);
    }
}

/* It reports its safe capacity while it uses it, or will. */
static void test_says_its_safe_capacity(void **state)
{
    (void)state;
    struct weir_lease_holder_ask ask;
    static const enum weir_on_stale how[] = { WEIR_STALE_PASS, WEIR_STALE_LIMIT,
                                              WEIR_STALE_SHARE,
                                              WEIR_STALE_HOLD };
    for (size_t i = 0; i < WEIR_COUNT_OF(how); i++) {
        struct weir_lease_holder holder = made(how[i], false);
        answer(&holder, asked(&holder, START), 1, 50, START);
        weir_lease_holder_ask(&holder, holder.number + 1, &ask, START);
        ASSERT_SAME(ask.safe, i < 2 ? 0 : 2);
        weir_lease_holder_ask(&holder, holder.number + 1, &ask, START + 39 * S);
        ASSERT_SAME(ask.safe, i < 2 ? 0 : 2);
        weir_lease_holder_ask(&holder, holder.number + 1, &ask, START + 40 * S);
        ASSERT_SAME(ask.safe, 0);
    }
}

/* A region between leases out its own lease, step by step. */
static void test_between(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_PASS, true);
    struct weir_lease_holder_lease lease;
    struct weir_lease_holder_ask ask;
    weir_lease_holder_learning(&holder, true);
    weir_lease_holder_promised(&holder, 0);
    weir_lease_holder_in_use(&holder, 0);
    answer(&holder, asked(&holder, START), 1, 50, START);
    weir_lease_holder_in_use(&holder, 0);
    weir_lease_holder_lease(&holder, &lease, START);
    assert_true(lease.capacity == 50 && lease.safe == 2);
    assert_true(lease.expiry == START + 20 * S &&
                lease.safe_until == START + 40 * S);
    /* It may not know all grants: it acknowledges nothing. */
    weir_lease_holder_ask(&holder, holder.number + 1, &ask, START);
    assert_true(ask.learning && ask.taken == 0);
    weir_lease_holder_learning(&holder, false);
    weir_lease_holder_promised(&holder, 3);
    weir_lease_holder_in_use(&holder, 50);
    weir_lease_holder_ask(&holder, holder.number + 1, &ask, START);
    assert_true(!ask.learning &&
                ask.taken == 0); /* it promised more than it has */
    ASSERT_SAME(ask.safe, 3);
    weir_lease_holder_promised(&holder, 2);
    weir_lease_holder_in_use(&holder, 50);
    ASSERT_SAME(taken(&holder, START), 1);

    /* A lower safe capacity is acknowledged when the promised sum fits. */
    struct weir_grant less = push_of(2, 50);
    less.safe = 1;
    assert_true(weir_lease_holder_granted(&holder, 0, 1, &less, START));
    ASSERT_SAME(taken(&holder, START), 1);
    weir_lease_holder_promised(&holder, 1);
    weir_lease_holder_in_use(&holder, 40);
    ASSERT_SAME(taken(&holder, START), 2);

    /* On its safe capacity it doesn't pass everything: others rely on that. */
    weir_lease_holder_lease(&holder, &lease, START + 20 * S);
    assert_true(lease.capacity == 1 && lease.safe == 1);
    assert_true(lease.expiry == START + 40 * S &&
                lease.safe_until == START + 40 * S);
    weir_lease_holder_lease(&holder, &lease, START + 40 * S);
    assert_true(lease.capacity == 0 && lease.safe == 0);
}

/* ---- When it sends a request ---- */

static void test_patience_doubles(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    weir_instant now = START;
    weir_duration patience = WEIR_LEASE_HOLDER_PATIENCE;
    ASSERT_SAME(weir_lease_holder_due(&holder), START);
    for (int i = 0; i < 10; i++) {
        asked(&holder, now);
        weir_duration waits = weir_lease_holder_due(&holder) - now;
        assert_compare(waits, <=, patience);
        assert_compare(waits, >=, patience - patience / 8);
        now += waits;
        patience *= 2;
        if (patience > WEIR_LEASE_HOLDER_PATIENCE_MAX)
            patience = WEIR_LEASE_HOLDER_PATIENCE_MAX;
    }
    answer(&holder, asked(&holder, now), 1, 50, now);
    weir_duration waits = weir_lease_holder_due(&holder) - now;
    assert_compare(waits, <=, 5 * S);
    assert_compare(waits, >=, 5 * S - 5 * S / 8);
    now += waits;
    asked(&holder, now);
    assert_compare(weir_lease_holder_due(&holder), <=,
                   now + WEIR_LEASE_HOLDER_PATIENCE);
}

/* A region grants no longer than its own lease, which may be short. */
static void test_a_short_lease_is_asked_for_in_time(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    struct weir_grant grant = answer_of(1, 50);
    grant.lease = 2 * S;
    uint64_t number = asked(&holder, START);
    assert_true(weir_lease_holder_granted(&holder, number, 1, &grant, START));
    assert_compare(weir_lease_holder_due(&holder), <=, START + 1500 * MS);
}

/* Its answer when its own lease has run out: the grant is over at once, and the
 * holder asks again with patience. */
static void test_a_lease_that_is_over_already(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    answer(&holder, asked(&holder, START), 1, 50, START);
    const struct weir_grant over = { .serial = 2, .capacity = 50 };
    uint64_t number = asked(&holder, START + S);
    assert_true(
        weir_lease_holder_granted(&holder, number, 1, &over, START + S));
    ASSERT_SAME(weir_lease_holder_limit(&holder, START + S), 0);
    weir_duration waits = weir_lease_holder_due(&holder) - (START + S);
    assert_compare(waits, >, WEIR_LEASE_HOLDER_SPACING);
    assert_compare(waits, <=, WEIR_LEASE_HOLDER_PATIENCE);
    asked(&holder, START + 2 * S);
    waits = weir_lease_holder_due(&holder) - (START + 2 * S);
    assert_compare(waits, >, WEIR_LEASE_HOLDER_PATIENCE);
}

static void test_a_large_change_is_told_early(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    weir_lease_holder_want(&holder, 100, START);
    answer(&holder, asked(&holder, START), 1, 50, START);
    weir_instant refresh = weir_lease_holder_due(&holder);
    weir_lease_holder_want(&holder, 91, START + 50 * MS);
    ASSERT_SAME(weir_lease_holder_due(&holder), refresh);
    weir_lease_holder_want(&holder, 89, START + 50 * MS);
    ASSERT_SAME(weir_lease_holder_due(&holder),
                START + WEIR_LEASE_HOLDER_SPACING);
    answer(&holder, asked(&holder, START + S), 2, 50, START + S);
    weir_lease_holder_want(&holder, 200, START + 3 * S);
    assert_compare(weir_lease_holder_due(&holder), <=, START + 3 * S);
    answer(&holder, asked(&holder, START + 3 * S), 3, 50, START + 3 * S);
    weir_lease_holder_want(&holder, 0, START + 4 * S);
    assert_compare(weir_lease_holder_due(&holder), <=, START + 4 * S);
    /* a root that doesn't answer isn't asked faster and faster */
    weir_instant now = START + 4 * S;
    unsigned asks = 0;
    for (int i = 0; i < 1000; i++, now += 10 * MS) {
        weir_lease_holder_want(&holder, i % 2 ? 0 : 100, now);
        if (weir_lease_holder_due(&holder) > now)
            continue;
        asked(&holder, now);
        asks++;
    }
    assert_compare(asks, <=, 9);
    /* a change while an answer is awaited is sent after it */
    weir_lease_holder_want(&holder, 300, now);
    answer(&holder, holder.number, 4, 50, now);
    assert_compare(weir_lease_holder_due(&holder), <=,
                   now + WEIR_LEASE_HOLDER_SPACING);
}

/* An early request needn't keep its distance from the refresh before. Two early
 * ones keep it; each carries the whole state. */
static void test_early_just_after_a_refresh(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    weir_lease_holder_want(&holder, 100, START);
    answer(&holder, asked(&holder, START), 1, 50, START);
    weir_instant now = weir_lease_holder_due(&holder);
    asked(&holder, now);
    now += 25 * MS; /* its answer is on its way */
    weir_lease_holder_want(&holder, 200, now);
    assert_compare(weir_lease_holder_due(&holder), <=, now);
    answer(&holder, asked(&holder, now), 2, 50, now);
    weir_lease_holder_want(&holder, 300, now + MS);
    ASSERT_SAME(weir_lease_holder_due(&holder),
                now + WEIR_LEASE_HOLDER_SPACING);
    /* A change since a request isn't covered by its answer. */
    now += WEIR_LEASE_HOLDER_SPACING;
    uint64_t number = asked(&holder, now);
    weir_lease_holder_hurry(&holder, now + MS);
    answer(&holder, number, 3, 50, now + 2 * MS);
    ASSERT_SAME(weir_lease_holder_due(&holder),
                now + WEIR_LEASE_HOLDER_SPACING);
}

/* ---- Wants ---- */

#define WITH_HEADROOM(x) ((x) * (1 + WEIR_LEASE_HOLDER_HEADROOM))

static void assert_near(double a, double b, double part)
{
    if (!(fabs(a - b) <= part * fabs(b)))
        fail_msg("%g isn't %g", a, b);
}

/* Uses 'rate' units a second, evenly, for that long; a call each 100 ms. */
static weir_instant use(struct weir_lease_holder *holder,
                        struct weir_lease_use *total, double rate,
                        weir_duration span, weir_instant now)
{
    double due = 0;
    for (weir_duration at = 0; at < span; at += 100 * MS) {
        now += 100 * MS;
        due += rate / 10;
        uint64_t units = (uint64_t)(due + 0.5);
        due -= (double)units;
        total->offered += units;
        weir_lease_holder_use(holder, total, now);
    }
    return now;
}

static void test_use_is_smoothed(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    struct weir_lease_use total = { .offered = 1 };
    ASSERT_SAME(weir_lease_holder_wants(&holder, START), 0);
    weir_lease_holder_use(&holder, &total, START); /* the first one */
    assert_near(weir_lease_holder_wants(&holder, START), WITH_HEADROOM(10),
                1e-9);
    /* a new holder sends its rate with the second request */
    asked(&holder, START);
    weir_instant now = use(&holder, &total, 500, 100 * MS, START);
    assert_compare(weir_lease_holder_due(&holder), <=,
                   START + WEIR_LEASE_HOLDER_SPACING);
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(255),
                0.01);
    now = use(&holder, &total, 500, 900 * MS, now);
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(500), 0.1);
    now = use(&holder, &total, 500, 30 * S, now);
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(500),
                0.001);
    /* twice as much: most of it is noticed in a second, nearly all in three */
    now = use(&holder, &total, 1000, S, now);
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(816),
                0.01);
    now = use(&holder, &total, 1000, 2 * S, now);
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(975),
                0.01);
    now = use(&holder, &total, 1000, 60 * S, now);
    /* a pause of a second gives little back, one of ten seconds 63 % */
    now = use(&holder, &total, 0, S, now);
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(905),
                0.01);
    now = use(&holder, &total, 0, 9 * S, now);
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(368),
                0.01);
    now = use(&holder, &total, 0, 20 * S, now);
    ASSERT_SAME(weir_lease_holder_wants(&holder, now), 0);
    /* a holder that comes back starts as a new one */
    now = use(&holder, &total, 500, S, now);
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(500), 0.1);
}

/* A request each ten seconds: between two of them the holder wants a part of a
 * unit, if a grant may be one, and nothing else. Long after the last it wants
 * nothing. */
static void test_rare_use_wants_a_fraction(void **state)
{
    (void)state;
    for (int fractions = 0; fractions < 2; fractions++) {
        struct weir_lease_holder holder = made(WEIR_STALE_PASS, true);
        struct weir_lease_use total = { .fractions = fractions };
        weir_instant now = START;
        for (int i = 0; i < 300; i++, now += 100 * MS) {
            if (i % 100 == 0)
                total.offered = ++total.passed;
            total.in_use = i % 100 == 0;
            weir_lease_holder_use(&holder, &total, now);
        }
        double wants = weir_lease_holder_wants(&holder, now);
        double least = WITH_HEADROOM(WEIR_LEASE_HOLDER_LEAST);
        assert_near(wants, fractions ? least : 0, 1e-9);
        for (int i = 0; i < 300; i++, now += 100 * MS)
            weir_lease_holder_use(&holder, &total, now);
        ASSERT_SAME(weir_lease_holder_wants(&holder, now), 0);
    }
}

/* The spacing of the calls doesn't matter: the average of few and of many is
 * the same. */
static void test_smoothing_by_any_step(void **state)
{
    (void)state;
    static const weir_duration steps[] = { 20 * MS, 100 * MS, 700 * MS,
                                           2500 * MS };
    for (size_t i = 0; i < WEIR_COUNT_OF(steps); i++) {
        struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
        struct weir_lease_use total = { .offered = 1 };
        weir_instant now = START;
        weir_lease_holder_use(&holder, &total, now);
        while (now < START + 35 * S) {
            now += steps[i];
            total.offered = (now - START) / MS; /* 1,000/s */
            weir_lease_holder_use(&holder, &total, now);
        }
        assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(1000),
                    0.01);
        weir_instant end = now + 10 * S;
        while (now < end) {
            now += steps[i];
            weir_lease_holder_use(&holder, &total, now);
        }
        assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(368),
                    0.05);
    }
}

static void test_what_is_said_rules_until_use_does(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, false);
    struct weir_lease_use total = { .offered = 0 };
    weir_lease_holder_want(&holder, 300, START);
    ASSERT_SAME(weir_lease_holder_wants(&holder, START + 3600 * S), 300);
    weir_instant now = use(&holder, &total, 100, 10 * S, START);
    ASSERT_SAME(weir_lease_holder_wants(&holder, now), 300);
    now = use(&holder, &total, 100, 10 * S, now);
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(100),
                0.01);
    weir_lease_holder_want(&holder, 50, now); /* sent again */
    ASSERT_SAME(weir_lease_holder_wants(&holder, now), 50);
    now = use(&holder, &total, 100, 9 * S, now);
    ASSERT_SAME(weir_lease_holder_wants(&holder, now), 50);
    now = use(&holder, &total, 100, 2 * S, now);
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(100),
                0.01);
}

static void test_a_inflight_wants_what_would_be_in_use(void **state)
{
    (void)state;
    struct weir_lease_holder holder = made(WEIR_STALE_LIMIT, true);
    /* the first unit is refused, as nothing was granted yet */
    struct weir_lease_use total = { .offered = 1 };
    weir_lease_holder_use(&holder, &total, START);
    assert_near(weir_lease_holder_wants(&holder, START), 1.25, 1e-9);
    /* half of 100 a second are refused; 5 are in flight: 10 would be */
    weir_instant now = START;
    for (int i = 0; i < 300; i++) {
        now += 100 * MS;
        total.offered += 10;
        total.passed += 5;
        total.in_use = 5;
        weir_lease_holder_use(&holder, &total, now);
    }
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(10), 0.01);
    /* all pass: the wants are those in use; a peak is kept for a while */
    for (int i = 0; i < 300; i++) {
        now += 100 * MS;
        total.offered += 10;
        total.passed += 10;
        total.in_use = i == 200 ? 40 : 8;
        weir_lease_holder_use(&holder, &total, now);
    }
    assert_near(weir_lease_holder_wants(&holder, now),
                WITH_HEADROOM(40 * 0.375), 0.02);
    /* a permit that is held for an hour is in use for an hour */
    total.in_use = 1;
    for (int i = 0; i < 3600; i++) {
        now += S;
        weir_lease_holder_use(&holder, &total, now);
    }
    assert_near(weir_lease_holder_wants(&holder, now), WITH_HEADROOM(1), 1e-9);
    total.in_use = 0;
    for (int i = 0; i < 30; i++) {
        now += S;
        weir_lease_holder_use(&holder, &total, now);
    }
    ASSERT_SAME(weir_lease_holder_wants(&holder, now), 0);
}

/* All values that it sends are numbers, at least 0. */
static void test_never_nan(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("holder");
    for (int round = 0; round < 2000; round++) {
        struct weir_lease_holder holder;
        struct weir_lease_use total = { .offered = 0 };
        weir_instant now = weir_rng_next(&rng) >> weir_rng_below(&rng, 64);
        weir_lease_holder_init(
            &holder, (enum weir_on_stale)(1 + weir_rng_below(&rng, 4)),
            weir_rng_below(&rng, 2), round, now);
        for (int i = 0; i < 100; i++) {
            uint64_t chance = weir_rng_below(&rng, 5);
            uint64_t some = weir_rng_next(&rng) >> weir_rng_below(&rng, 64);
            if (weir_rng_below(&rng, 20) == 0)
                now = some; /* clocks jump, forwards and backwards */
            else
                now += weir_rng_next(&rng) >> (24 + weir_rng_below(&rng, 30));
            if (chance == 0)
                weir_lease_holder_want(&holder, (double)(some >> 5), now);
            total.offered += some;
            total.passed += weir_rng_below(&rng, 2) ? some : 0;
            total.in_use = weir_rng_below(&rng, 2) ? some : 0;
            if (chance == 1)
                weir_lease_holder_use(&holder, &total, now);
            struct weir_lease_holder_ask ask;
            weir_lease_holder_ask(&holder, holder.number + 1, &ask, now);
            assert_compare(ask.wants, >=, 0);
            assert_compare(ask.wants, <=, WEIR_LEASE_UNITS_MAX);
            assert_compare(ask.has, >=, 0);
            assert_compare(ask.has, <=, WEIR_LEASE_UNITS_MAX);
            assert_compare(weir_lease_holder_limit(&holder, now), >=, 0);
            struct weir_grant grant = { .serial = i + 1,
                                        .lease = some,
                                        .safe_lease = some,
                                        .refresh = some };
            memcpy(&grant.capacity, &(uint64_t){ weir_rng_next(&rng) }, 8);
            weir_lease_holder_granted(&holder, ask.number, 1, &grant, now);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_lease_runs_from_the_sending),
        cmocka_unit_test(test_what_isnt_known_doesnt_count),
        cmocka_unit_test(test_numbers_of_the_caller),
        cmocka_unit_test(test_a_push_never_extends),
        cmocka_unit_test(test_small_steps_down_wait_for_the_refresh),
        cmocka_unit_test(test_a_inflight_takes_less_when_it_fits),
        cmocka_unit_test(test_terms),
        cmocka_unit_test(test_the_same_term_anew),
        cmocka_unit_test(test_stale),
        cmocka_unit_test(test_says_its_safe_capacity),
        cmocka_unit_test(test_between),
        cmocka_unit_test(test_patience_doubles),
        cmocka_unit_test(test_a_short_lease_is_asked_for_in_time),
        cmocka_unit_test(test_a_lease_that_is_over_already),
        cmocka_unit_test(test_a_large_change_is_told_early),
        cmocka_unit_test(test_early_just_after_a_refresh),
        cmocka_unit_test(test_use_is_smoothed),
        cmocka_unit_test(test_rare_use_wants_a_fraction),
        cmocka_unit_test(test_smoothing_by_any_step),
        cmocka_unit_test(test_what_is_said_rules_until_use_does),
        cmocka_unit_test(test_a_inflight_wants_what_would_be_in_use),
        cmocka_unit_test(test_never_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
