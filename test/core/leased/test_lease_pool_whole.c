/* SPDX-License-Identifier: MIT
 * test_lease_pool_whole.c - units that can't be divided: the odd units go
 * round, and no holder waits for them while some are free. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/leased/lease_pool.h"
#include "io/clock.h"

#define HOLDERS 4
#define MS (WEIR_SECOND / 1000)

/* Holders that take their grants at once. */
struct world {
    struct weir_lease_pool *pool;
    uint64_t serials;
    weir_instant now;
    uint32_t number[HOLDERS];
    uint64_t taken[HOLDERS];
    double has[HOLDERS];
    bool lowered[HOLDERS]; /* and hasn't reported it yet */
};

static void take(struct world *w, int holder, const struct weir_grant *grant)
{
    w->lowered[holder] = grant->capacity < w->has[holder];
    w->taken[holder] = grant->serial;
    w->has[holder] = grant->capacity;
}

static struct weir_grant ask(struct world *w, int holder, double wants)
{
    struct weir_band band = { 0, 1, wants };
    struct weir_lease_pool_ask ask = { .bands = &band,
                                       .band_count = 1,
                                       .has = w->has[holder],
                                       .taken = w->taken[holder],
                                       .streams = true };
    struct weir_grant grant;
    assert_int_equal(
        weir_lease_pool_ask(w->pool, w->number[holder], &ask, &grant, w->now),
        0);
    return grant;
}

static void ask_and_take(struct world *w, int holder, double wants)
{
    struct weir_grant grant = ask(w, holder, wants);
    take(w, holder, &grant);
}

static void push(struct world *w)
{
    struct weir_grant grant;
    while (weir_lease_pool_next(w->pool, &grant, w->now))
        for (int i = 0; i < HOLDERS; i++)
            if (w->number[i] == grant.holder)
                take(w, i, &grant);
}

static void begin(struct world *w, double capacity, weir_duration refresh)
{
    struct weir_lease_rule rule = { .share = WEIR_SHARE_FAIR,
                                    .capacity = capacity,
                                    .lease = 60 * WEIR_SECOND,
                                    .refresh = refresh,
                                    .linger = WEIR_SECOND,
                                    .whole = true };
    *w = (struct world){ .now = 1000 * WEIR_SECOND };
    w->pool = weir_lease_pool_new(&weir_mem_system, &rule, NULL, &w->serials, 1,
                                  w->now);
    for (int i = 0; i < HOLDERS; i++)
        weir_lease_pool_join(w->pool, 100 + (uint64_t)i, &w->number[i]);
}

static double wants_of(int holder)
{
    return holder == 0 ? 2 : 1;
}

/* Four holders for two units; one that has waited already is asked to rest. */
static void who_rests_while_waiting_is_counted(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 2, 5 * WEIR_SECOND);
    ask_and_take(&w, 1, 1);
    push(&w);
    w.now += WEIR_SECOND;
    ask_and_take(&w, 1, 1);
    (void)ask(&w, 1, 0); /* its answer is lost */
    ask_and_take(&w, 0, 2);
    for (int i = 1; i < HOLDERS; i++)
        ask_and_take(&w, i, 1);
    ask_and_take(&w, 0, 2); /* before the next round */

    double sum[HOLDERS] = { 0 };
    for (int step = 0; step < 400; step++) {
        w.now += 50 * MS;
        push(&w);
        for (int i = 0; i < HOLDERS; i++) {
            if (step % 20 == i * 4 || w.lowered[i])
                ask_and_take(&w, i, wants_of(i));
            push(&w);
            sum[i] += w.has[i] / 400;
        }
    }
    double all = 0;
    for (int i = 0; i < HOLDERS; i++) {
        all += sum[i];
        if (sum[i] < 0.2)
            fail_msg("holder %d: %g units on average", i, sum[i]);
    }
    if (all < 1.8)
        fail_msg("%g of 2 units are given", all);
    weir_lease_pool_free(w.pool);
}

/* Some rounds: each of the first two that is lowered acknowledges it, and wants
 * 100 as before. */
static void go_round(struct world *w)
{
    for (int i = 0; i < 10; i++, w->now += 10 * MS) {
        push(w);
        for (int k = 0; k < 2; k++) {
            if (w->lowered[k])
                ask_and_take(w, k, 100);
        }
    }
}

/* A new holder waits for less than the odd unit, which no holder gives up. Then
 * it wants more, and the next round takes that from the others. */
static void who_waits_and_wants_more_is_given_it(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 40, 15 * WEIR_SECOND);
    ask_and_take(&w, 0, 100);
    ask_and_take(&w, 1, 100);
    go_round(&w);
    assert_true(w.has[0] == 20 && w.has[1] == 20);
    ask_and_take(&w, 2, 1.25);
    go_round(&w);
    assert_true(w.has[2] == 0);
    ask_and_take(&w, 2, 100);
    go_round(&w);
    if (w.has[2] < 12)
        fail_msg("the newcomer has %g of 40", w.has[2]);
    weir_lease_pool_free(w.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_rests_while_waiting_is_counted),
        cmocka_unit_test(who_waits_and_wants_more_is_given_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
