/* SPDX-License-Identifier: MIT
 * test_lease_pool.c - grants by hand; then random fleets of lease holders over
 * a network that delays, loses and reorders, pools that die and are followed
 * by empty ones, capacities that are cut: never more in use than granted. */

#include "pool_by_hand.h"

#include <stdio.h>
#include <string.h>

#include "compare.h"
#include "histories.h"
#include "table_maker.h"

/* ---- By hand ---- */

static void test_newcomer_waits_two_ways(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint32_t first = joined(b), second = joined(b);
    struct weir_grant grant = asked(b, first, 100, 0, 0, BEGIN);
    assert_near(grant.capacity, 100);
    assert_int_equal(grant.lease, 60 * WEIR_SECOND);

    /* Everything is granted: the new holder has nothing yet, and the first is
     * sent less. */
    weir_instant now = BEGIN + WEIR_SECOND;
    struct weir_grant none = asked(b, second, 100, 0, 0, now);
    assert_near(none.capacity, 0);
    struct weir_grant less;
    assert_true(weir_lease_pool_next(b, &less, now));
    assert_int_equal(less.holder, first);
    assert_near(less.capacity, 50);
    assert_int_equal(less.lease, 0);
    assert_near(stats_of(b, now).out, 100);

    /* Until it acknowledges, nothing is granted to the other. */
    struct weir_grant more;
    now += WEIR_SECOND;
    assert_false(weir_lease_pool_next(b, &more, now));
    grant = asked(b, first, 100, 50, less.serial, now);
    assert_near(grant.capacity, 50);
    assert_true(weir_lease_pool_next(b, &more, now));
    assert_int_equal(more.holder, second);
    assert_near(more.capacity, 50);
    assert_near(stats_of(b, now).out, 100);
    weir_lease_pool_free(b);
}

static void test_lease_runs_out(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint32_t first = joined(b), second = joined(b);
    asked(b, first, 100, 0, 0, BEGIN);
    assert_near(asked(b, second, 100, 0, 0, BEGIN).capacity, 0);

    /* A lease and a refresh, and not an instant less. */
    weir_instant over = BEGIN + 68 * WEIR_SECOND;
    asked(b, second, 100, 0, 0, BEGIN + 50 * WEIR_SECOND);
    weir_lease_pool_tick(b, over - 1);
    uint32_t gone;
    assert_false(weir_lease_pool_gone(b, &gone));
    assert_near(asked(b, second, 100, 0, 0, over - 1).capacity, 0);
    weir_lease_pool_tick(b, over);
    assert_true(weir_lease_pool_gone(b, &gone));
    assert_int_equal(gone, first);
    struct weir_grant more;
    assert_true(weir_lease_pool_next(b, &more, over));
    assert_near(more.capacity, 100);
    weir_lease_pool_free(b);
}

/* A holder with a clock that may be slow uses its lease for that much
 * longer. */
static void test_a_guard_outlasts_the_lease(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint32_t late = joined(b), second = joined(b);
    struct weir_band band = { .priority = 0, .clients = 1, .wants = 100 };
    struct weir_lease_pool_ask ask = { .bands = &band,
                                       .band_count = 1,
                                       .guard = 5 * WEIR_SECOND };
    struct weir_grant grant;
    assert_int_equal(weir_lease_pool_ask(b, late, &ask, &grant, BEGIN), 0);
    assert_near(grant.capacity, 100);
    assert_near(asked(b, second, 100, 0, 0, BEGIN).capacity, 0);

    /* A lease, its guard and a refresh, and not an instant less. */
    weir_instant over = BEGIN + (60 + 5 + 8) * WEIR_SECOND;
    asked(b, second, 100, 0, 0, BEGIN + 50 * WEIR_SECOND);
    weir_lease_pool_tick(b, over - 1);
    assert_near(asked(b, second, 100, 0, 0, over - 1).capacity, 0);
    weir_lease_pool_tick(b, over);
    assert_near(asked(b, second, 100, 0, 0, over).capacity, 100);
    weir_lease_pool_free(b);
}

/* The other silent holders are forgotten at that instant. */
static void test_silent_holders_keep_their_safe_capacity(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint32_t bare = joined(b), safe = joined(b), busy = joined(b);
    asked(b, bare, 10, 0, 0, BEGIN);
    struct weir_lease_rule rule = rule_of(WEIR_SHARE_FAIR, 100);
    rule.safe = 30;
    weir_lease_pool_set_rule(b, &rule);
    assert_near(asked(b, safe, 40, 0, 0, BEGIN).safe, 30);

    weir_instant over = BEGIN + 68 * WEIR_SECOND;
    weir_lease_pool_tick(b, over);
    assert_near(asked(b, busy, 100, 0, 0, over).capacity, 70);
    weir_lease_pool_tick(b, over + 60 * WEIR_SECOND);
    assert_near(asked(b, busy, 100, 0, 0, over + 60 * WEIR_SECOND).capacity,
                100);
    weir_lease_pool_free(b);
}

static void test_cut(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint32_t first = joined(b), second = joined(b);
    struct weir_grant a = asked(b, first, 50, 0, 0, BEGIN);
    asked(b, second, 50, 0, 0, BEGIN);

    /* Each is lowered to its share and not below, even if the other still has
     * more; none is raised while more is out than the capacity. */
    struct weir_lease_rule rule = rule_of(WEIR_SHARE_FAIR, 60);
    weir_lease_pool_set_rule(b, &rule);
    a = asked(b, first, 50, 50, a.serial, BEGIN + WEIR_SECOND);
    assert_near(a.capacity, 30);
    struct weir_grant push;
    assert_true(weir_lease_pool_next(b, &push, BEGIN + WEIR_SECOND));
    assert_int_equal(push.holder, second);
    assert_near(push.capacity, 30);
    assert_near(stats_of(b, BEGIN + WEIR_SECOND).out, 100);
    a = asked(b, first, 50, 30, a.serial, BEGIN + 2 * WEIR_SECOND);
    assert_near(a.capacity, 30);
    assert_near(stats_of(b, BEGIN + 2 * WEIR_SECOND).out, 80);
    weir_lease_pool_free(b);
}

/* More priorities than there is room for: none is refused, and a late one is
 * served with the next lower one until there is room. */
static void test_priorities_beyond_the_bands(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_PRIORITY, 1000);
    struct weir_band bands[WEIR_LEASE_BANDS_MAX];
    struct weir_lease_pool_ask ask = { .bands = bands,
                                       .band_count = WEIR_LEASE_BANDS_MAX,
                                       .streams = true };
    struct weir_grant grant;
    uint32_t greedy[4], late;
    for (int i = 0; i < 4; i++) {
        greedy[i] = joined(b);
        for (int k = 0; k < WEIR_LEASE_BANDS_MAX; k++)
            bands[k] = (struct weir_band){ 10 * (16 * i + k), 1, 1 };
        assert_int_equal(weir_lease_pool_ask(b, greedy[i], &ask, &grant, BEGIN),
                         0);
    }
    late = joined(b);
    bands[0] = (struct weir_band){ 15, 1, 1 };
    ask.band_count = 1;
    struct weir_band sums[WEIR_BANDS_MAX];
    assert_int_equal(weir_lease_pool_ask(b, late, &ask, &grant, BEGIN), 0);
    assert_int_equal(weir_lease_pool_bands(b, sums, WEIR_BANDS_MAX), 64);
    assert_int_equal(sums[62].priority, 10);
    assert_int_equal(sums[62].clients, 2);
    weir_lease_pool_release(b, greedy[3], true, BEGIN);
    assert_int_equal(weir_lease_pool_ask(b, late, &ask, &grant, BEGIN), 0);
    assert_int_equal(weir_lease_pool_bands(b, sums, WEIR_BANDS_MAX), 49);
    assert_int_equal(sums[46].priority, 15);
    weir_lease_pool_free(b);
}

static void test_safe_is_promised_of_what_nobody_wants(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    struct weir_lease_rule rule = rule_of(WEIR_SHARE_FAIR, 100);
    rule.safe = 30;
    weir_lease_pool_set_rule(b, &rule);
    uint32_t idle = joined(b), busy = joined(b);
    struct weir_grant at_rest = asked(b, idle, 10, 0, 0, BEGIN);
    assert_near(at_rest.capacity, 10);
    assert_near(at_rest.safe, 30);
    struct weir_grant full = asked(b, busy, 90, 0, 0, BEGIN);
    assert_near(full.capacity, 70);

    struct weir_grant push;
    assert_true(weir_lease_pool_next(b, &push, BEGIN));
    assert_int_equal(push.holder, idle);
    assert_near(push.capacity, 10);
    assert_near(push.safe, 10);
    asked(b, idle, 10, 10, push.serial, BEGIN + WEIR_SECOND);
    assert_true(weir_lease_pool_next(b, &push, BEGIN + WEIR_SECOND));
    assert_int_equal(push.holder, busy);
    assert_near(push.capacity, 90);
    assert_near(push.safe, 30);
    weir_lease_pool_free(b);
}

static void test_one_that_cant_be_pushed_to(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint32_t old = joined(b), young = joined(b);
    struct weir_band band = { .priority = 0, .clients = 1, .wants = 100 };
    struct weir_lease_pool_ask ask = { .bands = &band, .band_count = 1 };
    struct weir_grant grant;
    assert_int_equal(weir_lease_pool_ask(b, old, &ask, &grant, BEGIN), 0);
    assert_near(grant.capacity, 100);
    assert_near(asked(b, young, 100, 0, 0, BEGIN).capacity, 0);
    assert_false(weir_lease_pool_next(b, &grant, BEGIN));

    /* At its pace: a holder is granted less, acknowledges it, then the rest is
     * granted to the other. */
    ask.has = 100;
    weir_lease_pool_ask(b, old, &ask, &grant, BEGIN + 8 * WEIR_SECOND);
    assert_near(grant.capacity, 50);
    assert_false(weir_lease_pool_next(b, &grant, BEGIN + 9 * WEIR_SECOND));
    ask.has = 50;
    weir_lease_pool_ask(b, old, &ask, &grant, BEGIN + 16 * WEIR_SECOND);
    assert_true(weir_lease_pool_next(b, &grant, BEGIN + 16 * WEIR_SECOND));
    assert_int_equal(grant.holder, young);
    assert_near(grant.capacity, 50);
    weir_lease_pool_free(b);
}

/* It may have missed each answer but the first: so the first is accounted for
 * until it is over, and no longer. */
static void test_one_that_never_says_what_it_has(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint32_t mute = joined(b), other = joined(b);
    weir_instant over = BEGIN + 68 * WEIR_SECOND;
    assert_near(called(b, mute, 100, 0, BEGIN).capacity, 100);
    for (weir_instant now = BEGIN; now < over; now += WEIR_SECOND) {
        assert_near(called(b, other, 100, 0, now).capacity, 0);
        assert_near(called(b, mute, 100, 0, now + 1).capacity, 50);
    }
    called(b, mute, 100, 0, over - 1);
    assert_near(called(b, other, 100, 0, over - 1).capacity, 0);
    assert_near(called(b, mute, 100, 0, over).capacity, 50);
    assert_near(called(b, other, 100, 0, over).capacity, 50);
    weir_lease_pool_free(b);
}

/* Granted 100, 60, 30: when the first is over, the second may still be in
 * use. */
static void test_steps_are_told_one_by_one(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint32_t mute = joined(b);
    weir_instant at = BEGIN + 40 * WEIR_SECOND;
    called(b, mute, 100, 0, BEGIN);
    called(b, mute, 60, 0, at);
    called(b, mute, 30, 0, at + 1);
    called(b, mute, 30, 0, BEGIN + 68 * WEIR_SECOND);
    assert_near(stats_of(b, BEGIN + 68 * WEIR_SECOND).out, 60);
    weir_instant last = at + 1 + 68 * WEIR_SECOND;
    called(b, mute, 30, 0, last - 2);
    assert_near(stats_of(b, last - 2).out, 60);
    called(b, mute, 30, 0, last);
    assert_near(stats_of(b, last).out, 30);
    weir_lease_pool_free(b);
}

/* Its acknowledgement frees the first grant at once. The second lasts until its
 * lease is over, though the third, granted since, may not have arrived. */
static void test_what_it_says_to_have_lasts(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint32_t holder = joined(b);
    weir_instant second = BEGIN + 40 * WEIR_SECOND;
    weir_instant over = second + 68 * WEIR_SECOND;
    called(b, holder, 100, 0, BEGIN);
    called(b, holder, 50, 100, second);
    called(b, holder, 20, 50, second + WEIR_SECOND);
    assert_near(stats_of(b, second + WEIR_SECOND).out, 50);
    called(b, holder, 20, 50, over - 1);
    assert_near(stats_of(b, over - 1).out, 50);
    called(b, holder, 20, 50, over);
    assert_near(stats_of(b, over).out, 20);
    weir_lease_pool_free(b);
}

/* It reports to have nothing of its grant, so it keeps that for a lease. Of the
 * safe capacity nothing is kept for it. */
static void test_one_that_lies(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    struct weir_lease_rule rule = rule_of(WEIR_SHARE_FAIR, 100);
    rule.safe = 30;
    weir_lease_pool_set_rule(b, &rule);
    uint32_t liar = joined(b), other = joined(b);
    weir_instant over = BEGIN + 68 * WEIR_SECOND;
    called(b, liar, 100, 0, BEGIN);
    for (weir_instant now = BEGIN + 1; now < over; now += WEIR_SECOND) {
        assert_near(called(b, liar, 0, 1, now).capacity, 0);
        assert_near(called(b, other, 100, 0, now).capacity, 0);
    }
    called(b, liar, 0, 1, over);
    assert_near(called(b, other, 100, 0, over).capacity, 100);
    weir_lease_pool_free(b);
}

static void test_priorities_and_bands(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_PRIORITY, 100);
    uint32_t server = joined(b), client = joined(b);
    struct weir_band bands[] = { { 5, 3, 60 }, { 1, 2, 60 } };
    struct weir_lease_pool_ask ask = { .bands = bands,
                                       .band_count = 2,
                                       .streams = true };
    struct weir_grant grant;
    asked(b, client, 10, 0, 0, BEGIN);
    assert_int_equal(weir_lease_pool_ask(b, server, &ask, &grant, BEGIN), 0);
    assert_near(grant.capacity, 90);
    struct weir_band sums[4];
    assert_int_equal(weir_lease_pool_bands(b, sums, 4), 3);
    assert_int_equal(sums[0].priority, 5);
    assert_int_equal(sums[0].clients, 3);
    assert_near(sums[2].wants, 10);
    assert_int_equal(weir_lease_pool_bands(b, sums, 2), 2);
    assert_near(sums[1].wants, 70);

    /* A band that isn't named any more is dropped. */
    ask.band_count = 1;
    ask.taken = grant.serial;
    weir_lease_pool_ask(b, server, &ask, &grant, BEGIN);
    assert_near(grant.capacity, 60);
    assert_int_equal(weir_lease_pool_bands(b, sums, 4), 2);
    weir_lease_pool_free(b);
}

static void test_bad_asks(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    uint32_t holder = joined(b);
    double nan = 0.0 / (stats_of(b, BEGIN).out == 0 ? 0.0 : 1.0);
    struct weir_band bands[2] = { { 0, 1, 10 }, { 0, 1, 10 } };
    struct weir_lease_pool_ask ask = { .bands = bands, .band_count = 2 };
    struct weir_grant grant;
    assert_int_equal(weir_lease_pool_ask(b, holder, &ask, &grant, BEGIN),
                     WEIR_EINVAL); /* a priority twice */
    ask.band_count = 0;
    assert_int_equal(weir_lease_pool_ask(b, holder, &ask, &grant, BEGIN),
                     WEIR_EINVAL);
    ask.band_count = 1;
    double bad[] = { nan, -1, 1e300, -nan };
    for (size_t i = 0; i < WEIR_COUNT_OF(bad); i++) {
        bands[0].wants = bad[i];
        assert_int_equal(weir_lease_pool_ask(b, holder, &ask, &grant, BEGIN),
                         WEIR_EINVAL);
        bands[0].wants = 10;
        ask.has = bad[i];
        assert_int_equal(weir_lease_pool_ask(b, holder, &ask, &grant, BEGIN),
                         WEIR_EINVAL);
        ask.has = 0;
    }
    bands[0].clients = 0;
    assert_int_equal(weir_lease_pool_ask(b, holder, &ask, &grant, BEGIN),
                     WEIR_EINVAL);
    assert_near(stats_of(b, BEGIN).wants, 0);
    weir_lease_pool_free(b);
}

/* Doorman's protocol has no end of a safe capacity. */
static void test_calls_are_promised_no_safe_capacity(void **state)
{
    (void)state;
    struct weir_lease_pool *b = pool_of(WEIR_SHARE_FAIR, 100);
    struct weir_lease_rule rule = rule_of(WEIR_SHARE_FAIR, 100);
    rule.safe = 30;
    weir_lease_pool_set_rule(b, &rule);
    uint32_t old = joined(b);
    struct weir_band band = { .priority = 0, .clients = 1, .wants = 10 };
    struct weir_lease_pool_ask ask = { .bands = &band, .band_count = 1 };
    struct weir_grant grant;
    assert_int_equal(weir_lease_pool_ask(b, old, &ask, &grant, BEGIN), 0);
    assert_near(grant.safe, 0);
    assert_near(stats_of(b, BEGIN).out, 10);
    /* It has fallen silent: with its lease all of it is over. */
    weir_lease_pool_tick(b, BEGIN + 68 * WEIR_SECOND);
    assert_int_equal(stats_of(b, BEGIN + 68 * WEIR_SECOND).holders, 0);
    weir_lease_pool_free(b);
}

/* ---- At random ---- */

#define HOLDERS 12
#define WAY_MAX (2 * WEIR_SECOND)
#define PENDING_MAX 4096
#define NOBODY UINT32_MAX

/* A minimal holder: it uses the newest grant that it received. */
struct held {
    bool streams;
    bool mute;       /* it doesn't report its amount … */
    bool vague;      /* … or not to the last digit */
    bool cut;        /* none of its messages comes through, nor any to it */
    uint32_t number; /* in the lease pool */
    double wants;
    int64_t priority;
    double grant, safe;
    uint64_t serial, term;
    weir_instant expiry; /* of the lease */
    weir_instant end;    /* of its safe capacity */
    weir_instant ask_at;
    uint64_t asks;  /* numbers of its requests */
    uint64_t heard; /* the highest that the pool has received */
};

struct flying {
    weir_instant at;
    weir_instant sent_at;
    uint32_t holder; /* NOBODY: the entry is free */
    bool up;
    bool answer;
    uint64_t number, term;
    struct weir_lease_pool_ask ask;
    struct weir_band band;
    struct weir_grant grant;
};

struct world {
    struct weir_rng rng;
    struct weir_lease_pool *pool; /* NULL: dead */
    struct weir_lease_rule rule;
    weir_instant vacant_at;
    uint64_t term, serial;
    struct held held[HOLDERS];
    struct flying flying[PENDING_MAX];
    double bound; /* of all units that may be in use */
    weir_instant now;
    bool calm; /* no mishaps any more */
};

static uint64_t draw(struct world *w, uint64_t bound)
{
    return weir_rng_below(&w->rng, bound);
}

static double in_use(const struct world *w, const struct held *h)
{
    if (w->now < h->expiry)
        return h->grant;
    return w->now < h->end ? h->safe : 0;
}

static void check_never_over(struct world *w)
{
    double used = 0;
    for (uint32_t i = 0; i < HOLDERS; i++)
        used += in_use(w, &w->held[i]);
    double most = w->bound;
    if (w->pool != NULL) {
        weir_lease_pool_audit(w->pool, UINT32_MAX);
        struct weir_lease_pool_stats stats = stats_of(w->pool, w->now);
        if (!stats.learning && stats.out < w->bound)
            w->bound =
                stats.out > w->rule.capacity ? stats.out : w->rule.capacity;
        if (!stats.learning && used > stats.out * (1 + 1e-9) + 1e-9)
            fail_msg("in use %.17g, accounted %.17g", used, stats.out);
        if (stats.out > most * (1 + 1e-9))
            fail_msg("out %.17g of %.17g", stats.out, most);
    }
    if (used > most * (1 + 1e-9))
        fail_msg("in use %.17g of %.17g at %llu", used, most,
                 (unsigned long long)w->now);
}

static struct flying *fly(struct world *w, uint32_t holder)
{
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        struct flying *f = &w->flying[i];
        if (f->holder != NOBODY)
            continue;
        *f = (struct flying){ .holder = holder, .sent_at = w->now };
        f->at = w->now + 1 + draw(w, w->calm ? WEIR_SECOND / 10 : WAY_MAX);
        return f;
    }
    fail_msg("too much flies");
    return NULL;
}

static void say(struct world *w, uint32_t index)
{
    struct held *h = &w->held[index];
    h->ask_at = w->now + w->rule.refresh;
    h->asks++;
    if (h->cut || (!w->calm && draw(w, 10) == 0))
        return;
    struct flying *f = fly(w, index);
    f->up = true;
    f->number = h->asks;
    f->term = w->term;
    f->band = (struct weir_band){ h->priority, 1, h->wants };
    f->ask = (struct weir_lease_pool_ask){
        .band_count = 1,
        .has = in_use(w, h),
        .safe = w->now < h->end ? h->safe : 0,
        .taken = h->term == w->term ? h->serial : 0,
        .streams = h->streams,
        .mute = h->mute,
    };
    if (h->mute)
        f->ask.has = f->ask.safe = 0;
    if (h->vague)
        f->ask.has *= 0.999;
}

static void hear_ask(struct world *w, struct flying *f)
{
    struct held *h = &w->held[f->holder];
    if (w->pool == NULL || f->term != w->term || f->number <= h->heard)
        return;
    h->heard = f->number;
    if (h->number == NOBODY)
        h->number = joined(w->pool);
    f->ask.bands = &f->band;
    struct weir_grant grant;
    assert_int_equal(
        weir_lease_pool_ask(w->pool, h->number, &f->ask, &grant, w->now), 0);
    /* If it can't be pushed to, it may have given this back since. */
    struct flying *back = fly(w, f->holder);
    back->answer = true;
    back->number = f->number;
    back->term = w->term;
    back->sent_at = f->sent_at;
    back->grant = grant;
}

static void hear_grant(struct world *w, struct flying *f)
{
    struct held *h = &w->held[f->holder];
    /* The answer to a unary call that was replaced by a new one is ignored; so
     * is a former master's, once the holder has received from the next. */
    if (h->cut || f->term < h->term || f->term != w->term ||
        (!h->streams && f->number != h->asks))
        return;
    if (f->term == h->term && f->grant.serial <= h->serial)
        return;
    h->term = f->term;
    h->serial = f->grant.serial;
    if (f->answer) {
        h->expiry = f->sent_at + f->grant.lease;
        h->end = f->sent_at + f->grant.safe_lease;
    }
    bool less = f->grant.capacity < h->grant || f->grant.safe < h->safe;
    h->grant = f->grant.capacity;
    h->safe = f->grant.safe;
    if (less && h->streams)
        h->ask_at = w->now;
}

static void push_all(struct world *w)
{
    struct weir_grant grant;
    uint32_t gone;
    if (w->pool == NULL)
        return;
    weir_lease_pool_tick(w->pool, w->now);
    while (weir_lease_pool_gone(w->pool, &gone))
        for (uint32_t i = 0; i < HOLDERS; i++)
            if (w->held[i].number == gone)
                w->held[i].number = NOBODY;
    while (weir_lease_pool_next(w->pool, &grant, w->now)) {
        uint32_t index = 0;
        while (w->held[index].number != grant.holder)
            index++;
        assert_compare(index, <, HOLDERS);
        assert_true(w->held[index].streams);
        if (!w->calm && draw(w, 10) == 0)
            continue;
        struct flying *f = fly(w, index);
        f->term = w->term;
        f->grant = grant;
    }
}

/* The master dies, or is followed by one that knows only how long there was
 * none. */
static void change_master(struct world *w)
{
    if (w->pool != NULL) {
        weir_lease_pool_free(w->pool);
        w->pool = NULL;
        w->vacant_at = w->now;
        return;
    }
    w->term++;
    weir_instant leases = w->vacant_at + w->rule.lease + w->rule.refresh;
    const struct weir_learning learning = { leases, leases + w->rule.lease,
                                            w->bound };
    w->pool = weir_lease_pool_new(&maker_mem, &w->rule, &learning, &w->serial,
                                  w->term, w->now);
    for (uint32_t i = 0; i < HOLDERS; i++) {
        w->held[i].number = NOBODY;
        w->held[i].ask_at = w->now;
    }
}

static void set_capacity(struct world *w)
{
    static const enum weir_share_algorithm shares[] = { WEIR_SHARE_FAIR,
                                                        WEIR_SHARE_PROPORTIONAL,
                                                        WEIR_SHARE_PRIORITY };
    if (w->pool == NULL)
        return;
    /* While learning, the units that it doesn't know of are the
     * predecessor's. */
    double out = stats_of(w->pool, w->now).learning
                     ? w->bound
                     : stats_of(w->pool, w->now).out;
    w->rule.share = shares[draw(w, 3)];
    w->rule.capacity = (double)(50 + draw(w, 1000));
    w->rule.safe = (double)draw(w, 3) * 10 - 10;
    weir_lease_pool_set_rule(w->pool, &w->rule);
    w->bound = out > w->rule.capacity ? out : w->rule.capacity;
}

static void mishap(struct world *w)
{
    struct held *h = &w->held[draw(w, HOLDERS)];
    switch (draw(w, 12)) {
    case 0:
        change_master(w);
        break;
    case 1:
    case 2:
        set_capacity(w);
        break;
    case 3:
        h->cut = !h->cut;
        break;
    case 4:
        if (w->pool != NULL && h->number != NOBODY && h->streams)
            weir_lease_pool_stream_lost(w->pool, h->number);
        break;
    case 5: /* it dies, and another one starts in its place */
        if (h->number != NOBODY) {
            h->grant = h->safe = 0;
            h->expiry = h->end = 0;
        }
        break;
    default:
        h->wants = draw(w, 4) == 0 ? 0 : (double)draw(w, 300);
        if (h->streams)
            h->ask_at = w->now;
        break;
    }
}

/* The next event: a message arrives, or a holder asks. */
static void step(struct world *w, weir_instant until)
{
    weir_instant next = until;
    for (uint32_t i = 0; i < PENDING_MAX; i++)
        if (w->flying[i].holder != NOBODY && w->flying[i].at < next)
            next = w->flying[i].at;
    for (uint32_t i = 0; i < HOLDERS; i++)
        if (w->held[i].ask_at < next)
            next = w->held[i].ask_at;
    if (w->pool != NULL) {
        weir_instant due = weir_lease_pool_deadline(w->pool, w->now);
        if (due < next)
            next = due;
    }
    w->now = next > w->now ? next : w->now;
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        struct flying f = w->flying[i];
        if (f.holder == NOBODY || f.at > w->now)
            continue;
        w->flying[i].holder = NOBODY;
        if (f.up)
            hear_ask(w, &f);
        else
            hear_grant(w, &f);
        check_never_over(w);
    }
    for (uint32_t i = 0; i < HOLDERS; i++)
        if (w->held[i].ask_at <= w->now)
            say(w, i);
    push_all(w);
    check_never_over(w);
}

/* When all is calm, each holder has its share. */
static void check_settled(struct world *w)
{
    struct weir_book *book = weir_book_new(&maker_mem, 1);
    uint32_t claim[HOLDERS];
    for (uint32_t i = 0; i < HOLDERS; i++)
        assert_int_equal(weir_book_add(book, w->held[i].priority, 1,
                                       w->held[i].wants, &claim[i]),
                         0);
    for (uint32_t i = 0; i < HOLDERS; i++) {
        double share =
            weir_fair_share(book, w->rule.share, claim[i], w->rule.capacity);
        double off = share - w->held[i].grant;
        if ((off < 0 ? -off : off) > 2e-3 * share + 1e-6)
            fail_msg("holder %u of %s: %.9g, its share is %.9g", i,
                     w->held[i].streams ? "a stream" : "calls",
                     w->held[i].grant, share);
    }
    weir_book_free(book);
}

static void make_world(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof(*w));
    w->rng.state = seed;
    w->now = BEGIN;
    w->term = 1;
    w->rule = rule_of(WEIR_SHARE_FAIR, 500);
    w->rule.lease = 20 * WEIR_SECOND;
    w->rule.refresh = 5 * WEIR_SECOND;
    w->rule.safe = 10;
    w->bound = w->rule.capacity;
    w->pool = weir_lease_pool_new(&maker_mem, &w->rule, NULL, &w->serial, seed,
                                  w->now);
    for (uint32_t i = 0; i < PENDING_MAX; i++)
        w->flying[i].holder = NOBODY;
    for (uint32_t i = 0; i < HOLDERS; i++)
        w->held[i] = (struct held){
            .streams = draw(w, 3) > 0,
            .number = NOBODY,
            .wants = (double)draw(w, 300),
            .priority = (int64_t)draw(w, 3),
            .ask_at = w->now + draw(w, WEIR_SECOND),
        };
    for (uint32_t i = 0; i < HOLDERS; i++) {
        w->held[i].mute = !w->held[i].streams && draw(w, 3) == 0;
        w->held[i].vague = !w->held[i].streams && draw(w, 3) == 0;
    }
}

static void test_never_over(void **state)
{
    (void)state;
    struct weir_rng seeds = made_seed("broker");
    struct world *w = malloc(sizeof(*w));
    for (uint64_t life = histories(130, 50); life > 0; life--) {
        make_world(w, weir_rng_next(&seeds));
        for (int mishaps = 0; mishaps < 60; mishaps++) {
            weir_instant until = w->now + draw(w, 8 * WEIR_SECOND);
            while (w->now < until)
                step(w, until);
            mishap(w);
            check_never_over(w);
        }
        w->calm = true;
        if (w->pool == NULL)
            change_master(w);
        for (uint32_t i = 0; i < HOLDERS; i++)
            w->held[i].cut = false;
        weir_instant until = w->now + 160 * WEIR_SECOND;
        while (w->now < until)
            step(w, until);
        check_settled(w);
        weir_lease_pool_free(w->pool);
    }
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newcomer_waits_two_ways),
        cmocka_unit_test(test_lease_runs_out),
        cmocka_unit_test(test_a_guard_outlasts_the_lease),
        cmocka_unit_test(test_silent_holders_keep_their_safe_capacity),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_priorities_beyond_the_bands),
        cmocka_unit_test(test_safe_is_promised_of_what_nobody_wants),
        cmocka_unit_test(test_one_that_cant_be_pushed_to),
        cmocka_unit_test(test_one_that_never_says_what_it_has),
        cmocka_unit_test(test_steps_are_told_one_by_one),
        cmocka_unit_test(test_what_it_says_to_have_lasts),
        cmocka_unit_test(test_one_that_lies),
        cmocka_unit_test(test_calls_are_promised_no_safe_capacity),
        cmocka_unit_test(test_priorities_and_bands),
        cmocka_unit_test(test_bad_asks),
        cmocka_unit_test(test_never_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
