/* SPDX-License-Identifier: MIT
 * test_few_roots.c - a limiter that is connected to fewer roots than there are
 * says so, and is not alarmed by roots that start or stop. Random histories in
 * virtual time against a naive clock. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/node/limiter.h"
#include "core/node/root.h"
#include "io/clock.h"
#include "seed.h"
#include "table_maker.h"

#define ROOTS 3
#define SLOTS 16
#define HISTORIES 40
#define STEPS 60
#define LAG 4 /* seconds, for messages and an interval's end */
#define AFTER ((int)(WEIR_FEW_ROOTS_AFTER / WEIR_SECOND))

static const struct weir_settings settings = {
    .report_interval = WEIR_SECOND,
    .stale_after = 10 * WEIR_SECOND,
    .slack = true,
};

struct world {
    struct weir_table *table;
    struct weir_limiter *limiter;
    void *block;
    struct weir_root *root[ROOTS];
    bool up[ROOTS];
    uint32_t there;  /* roots, as all of them say */
    uint32_t others; /* that the limiter knows and leaves out */
    weir_instant now;
    int events;
};

static struct weir_root *make_root(unsigned number, weir_instant now)
{
    const struct weir_store_id store = { .uuid = { 7 } };
    struct weir_root_options options = { .mem = weir_mem_system,
                                         .peers_max = 1,
                                         .settings = settings,
                                         .incarnation = { 1,
                                                          (uint8_t)number } };
    struct weir_root *root = weir_root_new(&options, now);
    assert_non_null(root);
    assert_int_equal(weir_root_store(root, &store, 0, 0, now), 0);
    weir_root_settle(root, now);
    return root;
}

static void begin(struct world *w)
{
    *w = (struct world){ .now = MADE_AT };
    w->table = made_table(SLOTS, 2, 1);
    struct weir_limiter_options options = { .table = w->table,
                                            .slots = SLOTS,
                                            .links = ROOTS,
                                            .name = WEIR_TEXT("l"),
                                            .incarnation = { 9 },
                                            .seed = 1 };
    size_t size = (weir_limiter_size(&options) + 63) & ~(size_t)63;
    w->block = aligned_alloc(64, size);
    assert_non_null(w->block);
    memset(w->block, 0, size);
    w->limiter = weir_limiter_init(w->block, &options, w->now);
    for (unsigned i = 0; i < ROOTS; i++)
        w->root[i] = make_root(i, w->now);
}

static void end(struct world *w)
{
    for (unsigned i = 0; i < ROOTS; i++)
        weir_root_free(w->root[i]);
    free(w->block);
    free(w->table);
}

static void link_root(struct world *w, unsigned number, bool up)
{
    if (w->up[number] == up)
        return;
    w->up[number] = up;
    weir_root_link(w->root[number], 0, up, w->now);
    weir_limiter_link(w->limiter, number, up, w->now);
}

static void deliver(struct world *w)
{
    struct weir_message message;
    uint32_t link;
    for (int i = 0; i < 8; i++) {
        while (weir_limiter_next(w->limiter, &link, &message, w->now))
            assert_int_equal(
                weir_root_receive(w->root[link], 0, &message, w->now), 0);
        for (unsigned k = 0; k < ROOTS; k++) {
            weir_root_set_roots(w->root[k], w->there);
            while (weir_root_next(w->root[k], &link, &message, w->now))
                assert_int_equal(
                    weir_limiter_receive(w->limiter, k, &message, w->now), 0);
        }
    }
}

static void pass_second(struct world *w)
{
    struct weir_event event;
    for (int i = 0; i < 4; i++) {
        w->now += WEIR_SECOND / 4;
        weir_limiter_set_others(w->limiter, w->others);
        weir_limiter_tick(w->limiter, w->now);
        for (unsigned k = 0; k < ROOTS; k++)
            weir_root_tick(w->root[k], w->now);
        deliver(w);
    }
    while (weir_limiter_event(w->limiter, &event))
        w->events += event.type == WEIR_EVENT_FEW_ROOTS;
}

static bool is_reported(const struct world *w)
{
    bool few;
    (void)weir_limiter_roots(w->limiter, &few);
    return few;
}

static bool is_few(const struct world *w)
{
    uint32_t up = 0;
    for (unsigned i = 0; i < ROOTS; i++)
        up += w->up[i];
    return up > 0 && up + w->others < w->there;
}

/* The naive clock. A change of the world may look for a moment like one that
 * ends the state, as when a link comes before the new number. */
struct naive {
    bool few;
    int seconds; /* since 'few' is so … */
    int same;    /* … and since the world was changed */
    bool sure;   /* it was otherwise for longer than the lag before */
    int events;
    bool reported;
};

static void check(struct world *w, struct naive *naive)
{
    bool few = is_few(w);
    if (few != naive->few) {
        naive->sure = naive->seconds > LAG;
        naive->few = few;
        naive->seconds = 0;
    }
    naive->seconds++;
    naive->same++;
    bool reported = is_reported(w);
    if (few && naive->same > AFTER + LAG)
        assert_true(reported);
    if (few && naive->sure && naive->seconds < AFTER)
        assert_false(reported);
    if (!few && naive->seconds > LAG)
        assert_false(reported);
    naive->events += reported && !naive->reported;
    naive->reported = reported;
    assert_int_equal(w->events, naive->events);
}

static void test_histories(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed(__func__);
    int reported = 0;
    for (int i = 0; i < HISTORIES; i++) {
        static struct world w;
        struct naive naive = { .sure = true };
        begin(&w);
        for (int k = 0; k < STEPS; k++) {
            link_root(&w, (unsigned)weir_rng_below(&rng, ROOTS),
                      weir_rng_below(&rng, 3) > 0);
            if (weir_rng_below(&rng, 2))
                w.there = (uint32_t)weir_rng_below(&rng, ROOTS + 2);
            w.others = weir_rng_below(&rng, 6) == 0;
            naive.same = 0;
            int seconds = 1 + (int)weir_rng_below(
                                  &rng, weir_rng_below(&rng, 4) ? 20 : 90);
            for (int s = 0; s < seconds; s++) {
                pass_second(&w);
                check(&w, &naive);
            }
        }
        reported += w.events;
        end(&w);
    }
    assert_true(reported > HISTORIES); /* else nothing was tested */
}

/* A root is killed: it is counted until its row expires. Another takes its
 * place, and is counted before the limiter knows its address. */
static void test_no_alarm_while_roots_change(void **state)
{
    (void)state;
    static struct world w;
    begin(&w);
    w.there = 2;
    link_root(&w, 0, true);
    link_root(&w, 1, true);
    for (int i = 0; i < 10; i++)
        pass_second(&w);
    for (int round = 0; round < 5; round++) {
        link_root(&w, 1, false);
        for (int i = 0; i < 20; i++) /* WEIR_PRESENCE_TTL, and a write */
            pass_second(&w);
        w.there = 1;
        for (int i = 0; i < LAG; i++)
            pass_second(&w);
        w.there = 2;
        for (int i = 0; i < 45; i++) /* DNS */
            pass_second(&w);
        link_root(&w, 1, true);
        for (int i = 0; i < LAG; i++)
            pass_second(&w);
    }
    assert_int_equal(w.events, 0);
    end(&w);
}

static void test_a_load_balancer(void **state)
{
    (void)state;
    static struct world w;
    begin(&w);
    w.there = 2;
    for (int i = 0; i < AFTER + 2 * LAG; i++) {
        /* It leads to another root each time. */
        if (i % 7 == 0) {
            unsigned to = i / 7 % 2;
            link_root(&w, 1 - to, false);
            link_root(&w, to, true);
        }
        pass_second(&w);
    }
    assert_int_equal(w.events, 1);
    assert_true(is_reported(&w));
    end(&w);
}

/* Old roots, and those without a store, don't say how many there are. */
static void test_not_known(void **state)
{
    (void)state;
    static struct world w;
    begin(&w);
    link_root(&w, 0, true);
    for (int i = 0; i < 3 * AFTER; i++)
        pass_second(&w);
    assert_int_equal(w.events, 0);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
        cmocka_unit_test(test_no_alarm_while_roots_change),
        cmocka_unit_test(test_a_load_balancer),
        cmocka_unit_test(test_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
