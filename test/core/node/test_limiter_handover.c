/* SPDX-License-Identifier: MIT
 * test_limiter_handover.c - limiters that die anywhere, one after the other
 * over one table: two roots have exactly the table's counts.
 *
 * Messages go straight from node to node; answers are lost, links break and
 * limiters die at random, and their handovers are some messages older than they
 * are. The oracle is the table's own count; for a limit, one bucket that never
 * dies. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/limiter.h"
#include "core/node/root.h"
#include "io/clock.h"
#include "table_calls.h"
#include "table_maker.h"

#define ROOTS 2
#define ALL ((1u << ROOTS) - 1)
#define QUOTAS 3
#define SLOTS 16
#define LIMIT 100000 /* units a second */
#define BURST 10000
#define STEPS 3000
#define HISTORIES 20
#define STEP (20 * WEIR_MILLISECOND)

static const struct weir_store_id store = { .uuid = { 7 } };
static const struct weir_settings settings = {
    .report_interval = 200 * WEIR_MILLISECOND,
    .stale_after = 10 * WEIR_SECOND,
    .slack = true,
};

struct world {
    struct weir_rng rng;
    struct weir_settings settings;
    struct weir_table *table;
    struct weir_limiter_options options;
    struct weir_limiter *limiter;
    struct weir_limiter_handover handover;
    struct weir_root *root[ROOTS];
    bool up[ROOTS];
    weir_instant back_at[ROOTS]; /* of a link that is down */
    unsigned deaf;               /* bit mask: these roots' answers are lost */
    struct weir_ref quota[QUOTAS];
    weir_instant now;
    unsigned deaths, doubts, cuts;
};

static void name_of(unsigned i, char name[8])
{
    snprintf(name, 8, "q%u", i);
}

static struct weir_root *make_root(const struct world *w, uint8_t number)
{
    struct weir_root_options options = { .mem = weir_mem_system,
                                         .peers_max = 1,
                                         .settings = w->settings,
                                         .incarnation = { number } };
    struct weir_root *root = weir_root_new(&options, w->now);
    assert_non_null(root);
    assert_int_equal(weir_root_store(root, &store, QUOTAS + 1, 0, w->now), 0);
    for (unsigned i = 0; i < QUOTAS; i++) {
        char name[8];
        name_of(i, name);
        struct weir_change change = { .quota = made_quota_of(name, "", LIMIT,
                                                             BURST) };
        change.quota.epoch = change.quota.created = i + 1;
        assert_int_equal(weir_root_apply(root, &change, w->now), 0);
    }
    struct weir_change slow = { .quota = made_quota_of("slow", "", 1, BURST) };
    slow.quota.epoch = slow.quota.created = QUOTAS + 1;
    assert_int_equal(weir_root_apply(root, &slow, w->now), 0);
    weir_root_settle(root, w->now);
    return root;
}

static void make_limiter(struct world *w)
{
    void *block =
        aligned_alloc(64, (weir_limiter_size(&w->options) + 63) & ~(size_t)63);
    assert_non_null(block);
    memset(block, 0, weir_limiter_size(&w->options));
    w->options.seed = weir_rng_next(&w->rng);
    w->limiter = weir_limiter_init(block, &w->options, w->now);
}

static void set_link(struct world *w, uint32_t i, bool up)
{
    if (w->up[i] == up)
        return;
    w->up[i] = up;
    weir_root_link(w->root[i], 0, up, w->now);
    weir_limiter_link(w->limiter, i, up, w->now);
}

/* Delivers the messages of all, until all are silent. */
static void conn(struct world *w)
{
    struct weir_message message;
    uint32_t link;
    bool said = true;
    while (said) {
        said = false;
        while (weir_limiter_next(w->limiter, &link, &message, w->now)) {
            said = true;
            if (w->up[link])
                assert_int_equal(
                    weir_root_receive(w->root[link], 0, &message, w->now), 0);
        }
        for (uint32_t i = 0; i < ROOTS; i++) {
            while (weir_root_next(w->root[i], &link, &message, w->now)) {
                said = true;
                bool lost = w->deaf >> i & 1;
                w->doubts += lost;
                if (w->up[i] && !lost)
                    assert_int_equal(
                        weir_limiter_receive(w->limiter, i, &message, w->now),
                        0);
            }
        }
    }
}

static void step(struct world *w)
{
    w->now += STEP;
    weir_limiter_tick(w->limiter, w->now);
    for (uint32_t i = 0; i < ROOTS; i++)
        weir_root_tick(w->root[i], w->now);
    conn(w);
}

static void make(struct world *w, uint64_t seed, bool slack)
{
    *w =
        (struct world){ .rng = { seed }, .settings = settings, .now = MADE_AT };
    w->settings.slack = slack;
    w->table = made_table(SLOTS, 2, seed);
    w->options = (struct weir_limiter_options){ .table = w->table,
                                                .slots = SLOTS,
                                                .links = ROOTS,
                                                .name = WEIR_TEXT("l"),
                                                .incarnation = { 9 } };
    for (uint32_t i = 0; i < ROOTS; i++)
        w->root[i] = make_root(w, (uint8_t)(i + 1));
    make_limiter(w);
    for (uint32_t i = 0; i < ROOTS; i++)
        set_link(w, i, true);
    for (int i = 0; i < 100; i++)
        step(w);
    for (unsigned i = 0; i < QUOTAS; i++) {
        char name[8];
        name_of(i, name);
        assert_true(
            weir_table_find(w->table, weir_text_of(name), &w->quota[i]));
        weir_table_take(w->table, 0, w->quota[i], 1, NULL, w->now);
    }
    /* Both roots know each slot; the theory needs this. */
    for (int i = 0; i < 100; i++)
        step(w);
    weir_limiter_hand_over(w->limiter, &w->handover);
}

static void finish(struct world *w)
{
    for (uint32_t i = 0; i < ROOTS; i++)
        weir_root_free(w->root[i]);
    free(w->limiter);
    free(w->table);
}

/* Its links go with it; the next one comes some time later. */
static void die(struct world *w)
{
    for (uint32_t i = 0; i < ROOTS; i++) {
        if (w->up[i])
            weir_root_link(w->root[i], 0, false, w->now);
        w->up[i] = false;
        w->back_at[i] = 0;
    }
    free(w->limiter);
    w->now += weir_rng_below(&w->rng, WEIR_SECOND);
    make_limiter(w);
    weir_limiter_inherit(w->limiter, &w->handover, w->now);
    w->deaths++;
}

static void use(struct world *w)
{
    uint64_t weight = weir_rng_below(&w->rng, 50);
    struct weir_ref ref = w->quota[weir_rng_below(&w->rng, QUOTAS)];
    if (weir_rng_below(&w->rng, 5) == 0)
        weir_table_refund(w->table, 0, ref, weight, w->now);
    else
        weir_table_take(w->table, 0, ref, weight, NULL, w->now);
}

static void misfortune(struct world *w)
{
    uint32_t i = (uint32_t)weir_rng_below(&w->rng, ROOTS);
    w->deaf = weir_rng_below(&w->rng, 8) == 0 ? ALL : 0;
    if (weir_rng_below(&w->rng, 40) == 0) {
        set_link(w, i, false);
        w->back_at[i] = w->now + weir_rng_below(&w->rng, 2 * WEIR_SECOND);
    }
    for (i = 0; i < ROOTS; i++) {
        if (w->now >= w->back_at[i])
            set_link(w, i, true);
    }
    if (weir_rng_below(&w->rng, 30) == 0)
        die(w);
    else if (weir_rng_below(&w->rng, 3) == 0)
        weir_limiter_hand_over(w->limiter, &w->handover);
}

static void roots_have_all(struct world *w)
{
    w->deaf = 0;
    for (uint32_t i = 0; i < ROOTS; i++)
        set_link(w, i, true);
    for (int i = 0; i < 1000; i++)
        step(w);
    for (unsigned q = 0; q < QUOTAS; q++) {
        char name[8];
        name_of(q, name);
        for (uint32_t i = 0; i < ROOTS; i++) {
            struct weir_usage usage;
            assert_true(weir_root_usage_of(w->root[i], weir_text_of(name),
                                           &usage, w->now));
            assert_int_equal(usage.passed,
                             weir_table_count(w->table, w->quota[q].slot));
        }
    }
}

static void nothing_is_lost_and_nothing_told_twice(void **state)
{
    (void)state;
    struct weir_rng seeds = made_seed("test_limiter_estate");
    unsigned deaths = 0, doubts = 0;
    for (int h = 0; h < HISTORIES; h++) {
        struct world w;
        make(&w, weir_rng_next(&seeds), true);
        for (int i = 0; i < STEPS; i++) {
            use(&w);
            misfortune(&w);
            step(&w);
        }
        roots_have_all(&w);
        deaths += w.deaths;
        doubts += w.doubts;
        finish(&w);
    }
    printf("%u limiters died, %u messages of roots were lost\n", deaths,
           doubts);
    assert_compare(deaths, >, 100);
    assert_compare(doubts, >, 100);
}

/* All units that pass, in one bucket with the whole limit that never dies. */
struct truth {
    double fill, most;
    weir_instant at;
};

static void take_all(struct world *w, struct truth *truth)
{
    double leaked = (double)(w->now - truth->at) * LIMIT / WEIR_SECOND;
    truth->fill = truth->fill > leaked ? truth->fill - leaked : 0;
    truth->at = w->now;
    while (truth->fill < 4 * BURST &&
           !(weir_table_take(w->table, 0, w->quota[0], 1, NULL, w->now) &
             WEIR_OUTCOME_LIMITED))
        truth->fill++;
    if (truth->fill > truth->most)
        truth->most = truth->fill;
}

/* Reports arrive, but their answers don't: the sender dies. */
static void die_in_doubt(struct world *w)
{
    bool doubt = w->deaf != 0;
    w->deaf = weir_rng_below(&w->rng, 30) == 0 ? ALL : 0;
    if (doubt)
        die(w);
    else
        weir_limiter_hand_over(w->limiter, &w->handover);
    for (uint32_t i = 0; i < ROOTS; i++)
        set_link(w, i, true);
}

static void a_limit_holds_whoever_dies(void **state)
{
    (void)state;
    struct weir_rng seeds = made_seed("test_limiter_estate");
    double most = 0;
    for (int h = 0; h < HISTORIES; h++) {
        struct world w;
        make(&w, weir_rng_next(&seeds), true);
        struct truth truth = { .at = w.now };
        for (int i = 0; i < STEPS; i++) {
            take_all(&w, &truth);
            die_in_doubt(&w);
            step(&w);
        }
        if (truth.most > most)
            most = truth.most;
        finish(&w);
    }
    printf("at most %.0f of a burst of %d\n", most, BURST);
    assert_compare(most, <=, BURST);
}

/* Reports arrive, but their answers don't: links break, no limiter dies. */
static void cut_in_doubt(struct world *w)
{
    unsigned doubt = w->deaf;
    w->deaf = weir_rng_below(&w->rng, 30) == 0
                  ? (unsigned)weir_rng_below(&w->rng, ALL + 1)
                  : 0;
    for (uint32_t i = 0; i < ROOTS; i++) {
        if ((doubt >> i & 1) && w->up[i]) {
            w->cuts++;
            set_link(w, i, false);
            w->back_at[i] = w->now + weir_rng_below(&w->rng, 3 * WEIR_SECOND);
        }
        if (w->now >= w->back_at[i])
            set_link(w, i, true);
    }
}

/* By time or by slack: the bound is the burst itself, for there is one limiter,
 * and a root considers drained only units that have drained. */
static void a_limit_holds_whose_answer_is_lost(void **state)
{
    (void)state;
    struct weir_rng seeds = made_seed("test_limiter_estate");
    double most = 0;
    unsigned cuts = 0;
    for (int h = 0; h < HISTORIES; h++) {
        struct world w;
        make(&w, weir_rng_next(&seeds), h % 2);
        struct truth truth = { .at = w.now };
        for (int i = 0; i < STEPS; i++) {
            take_all(&w, &truth);
            cut_in_doubt(&w);
            step(&w);
        }
        if (truth.most > most)
            most = truth.most;
        cuts += w.cuts;
        finish(&w);
    }
    printf("at most %.0f of a burst of %d, %u answers lost\n", most, BURST,
           cuts);
    assert_compare(most, <=, BURST);
    assert_compare(cuts, >, 100);
}

/* ---- A root that starts when a limiter dies ---- */

static double slow_fill_at(struct world *w, uint32_t i)
{
    struct weir_usage usage;
    bool found =
        weir_root_usage_of(w->root[i], WEIR_TEXT("slow"), &usage, w->now);
    return found ? usage.fill : 0;
}

/* Until the limiter has the root's welcome. */
static void greet(struct world *w, uint32_t i)
{
    struct weir_message message;
    uint32_t link;
    bool welcomed = false;
    for (int tries = 0; tries < 10 && !welcomed; tries++) {
        assert_true(weir_limiter_next(w->limiter, &link, &message, w->now));
        assert_int_equal(weir_root_receive(w->root[i], 0, &message, w->now), 0);
        assert_true(weir_root_next(w->root[i], &link, &message, w->now));
        welcomed = message.type == WEIR_MESSAGE_WELCOME;
        assert_int_equal(weir_limiter_receive(w->limiter, i, &message, w->now),
                         0);
    }
    assert_true(welcomed);
}

/* The fills that its limiter would have announced, the next one announces. */
static void a_new_root_gets_the_fills_of_a_dead_limiter(void **state)
{
    (void)state;
    struct world w;
    struct weir_ref slow;
    make(&w, 1, true);
    set_link(&w, 1, false);
    assert_true(weir_table_find(w.table, WEIR_TEXT("slow"), &slow));
    weir_table_take(w.table, 0, slow, BURST / 2, NULL, w.now);
    for (int i = 0; i < 100; i++)
        step(&w);
    assert_compare(slow_fill_at(&w, 0), >, BURST / 2 - 10);
    set_link(&w, 0, false);
    weir_root_free(w.root[0]);
    w.root[0] = make_root(&w, ROOTS + 1);
    set_link(&w, 0, true);
    greet(&w, 0);
    weir_limiter_hand_over(w.limiter, &w.handover);
    die(&w);
    set_link(&w, 0, true);
    for (int i = 0; i < 100; i++)
        step(&w);
    assert_compare(slow_fill_at(&w, 0), >, BURST / 2 - 10);
    assert_compare(slow_fill_at(&w, 0), <=, BURST / 2);
    /* From then on it is a root that the limiter has met. */
    weir_limiter_hand_over(w.limiter, &w.handover);
    assert_int_equal(w.handover.link[0].root[0], ROOTS + 1);
    finish(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_and_nothing_told_twice),
        cmocka_unit_test(a_limit_holds_whoever_dies),
        cmocka_unit_test(a_limit_holds_whose_answer_is_lost),
        cmocka_unit_test(a_new_root_gets_the_fills_of_a_dead_limiter),
    };
    return cmocka_run_group_tests_name("limiter_estate", tests, NULL, NULL);
}
