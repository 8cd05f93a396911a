/* SPDX-License-Identifier: MIT
 * test_limiter_kick.c - takes that wake the limiter's thread: the first use of
 * a name doesn't while a report is due anyway, and is in that report. */

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
#include "table_maker.h"

#define QUOTAS 5
#define SLOTS 16
#define LIMIT 1000 /* units a second */
#define BURST 1000

static const struct weir_store_id store = { .uuid = { 7 } };
static const struct weir_settings settings = {
    .report_interval = WEIR_SECOND,
    .stale_after = 10 * WEIR_SECOND,
    .slack = true,
};

struct world {
    struct weir_table *table;
    struct weir_limiter *limiter;
    struct weir_root *root;
    struct weir_ref quota[QUOTAS];
    struct weir_report report; /* the last one, as far as these tests need it */
    uint32_t told[QUOTAS];     /* slots */
    weir_instant now;
};

static void name_of(unsigned i, char name[8])
{
    snprintf(name, 8, "q%u", i);
}

static struct weir_root *make_root(weir_instant now)
{
    struct weir_root_options options = { .mem = weir_mem_system,
                                         .peers_max = 1,
                                         .settings = settings,
                                         .incarnation = { 1 } };
    struct weir_root *root = weir_root_new(&options, now);
    assert_non_null(root);
    assert_int_equal(weir_root_store(root, &store, QUOTAS, 0, now), 0);
    for (unsigned i = 0; i < QUOTAS; i++) {
        char name[8];
        name_of(i, name);
        struct weir_change change = { .quota = made_quota_of(name, "", LIMIT,
                                                             BURST) };
        change.quota.epoch = change.quota.created = i + 1;
        assert_int_equal(weir_root_apply(root, &change, now), 0);
    }
    weir_root_settle(root, now);
    return root;
}

/* Delivers the limiter's messages to the root. */
static void say(struct world *w)
{
    struct weir_message message;
    uint32_t link;
    while (weir_limiter_next(w->limiter, &link, &message, w->now)) {
        if (message.type == WEIR_MESSAGE_REPORT) {
            w->report = message.report;
            assert_compare(message.report.count, <=, QUOTAS);
            for (size_t i = 0; i < message.report.count; i++)
                w->told[i] = message.report.counts[i].slot;
        }
        assert_int_equal(weir_root_receive(w->root, 0, &message, w->now), 0);
    }
}

static void hear(struct world *w)
{
    struct weir_message message;
    uint32_t link;
    while (weir_root_next(w->root, &link, &message, w->now))
        assert_int_equal(weir_limiter_receive(w->limiter, 0, &message, w->now),
                         0);
}

/* Delivers both ways until the limiter has received all. */
static void pass(struct world *w, weir_duration time)
{
    w->now += time;
    weir_limiter_tick(w->limiter, w->now);
    weir_root_tick(w->root, w->now);
    for (int i = 0; i < 8; i++) {
        say(w);
        hear(w);
    }
    say(w);
}

static int make(void **state)
{
    static struct world w;
    w = (struct world){ .now = MADE_AT };
    w.root = make_root(w.now);
    w.table = made_table(SLOTS, 2, 1);
    struct weir_limiter_options options = { .table = w.table,
                                            .slots = SLOTS,
                                            .links = 1,
                                            .name = WEIR_TEXT("l"),
                                            .incarnation = { 9 },
                                            .seed = 1 };
    size_t size = (weir_limiter_size(&options) + 63) & ~(size_t)63;
    void *block = aligned_alloc(64, size);
    assert_non_null(block);
    memset(block, 0, size);
    w.limiter = weir_limiter_init(block, &options, w.now);
    weir_root_link(w.root, 0, true, w.now);
    weir_limiter_link(w.limiter, 0, true, w.now);
    for (int i = 0; i < 10; i++)
        pass(&w, WEIR_SECOND);
    for (unsigned i = 0; i < QUOTAS; i++) {
        char name[8];
        name_of(i, name);
        assert_true(weir_table_find(w.table, weir_text_of(name), &w.quota[i]));
    }
    *state = &w;
    return 0;
}

static unsigned take(struct world *w, unsigned quota, uint64_t weight)
{
    return weir_table_take(w->table, 0, w->quota[quota], weight, NULL, w->now);
}

static bool was_told(const struct world *w, unsigned quota)
{
    for (size_t i = 0; i < w->report.count; i++) {
        if (w->told[i] == w->quota[quota].slot)
            return true;
    }
    return false;
}

/* A report was sent just now, and the first of a flood of names has requested
 * the next one: the limiter waits until it may send it. */
static void a_report_is_coming(struct world *w)
{
    assert_int_equal(take(w, 0, 1), WEIR_OUTCOME_KICK);
    pass(w, WEIR_SECOND / 2);
    assert_true(was_told(w, 0));
    assert_int_equal(take(w, 1, 1), WEIR_OUTCOME_KICK);
    pass(w, WEIR_MILLISECOND);
    assert_false(was_told(w, 1));
}

static void one_wakes_the_thread_for_all(void **state)
{
    struct world *w = *state;
    a_report_is_coming(w);
    assert_int_equal(take(w, 2, 1), 0);
    assert_int_equal(take(w, 3, 1), 0);
    assert_false(weir_table_is_urgent(w->table));
    pass(w, WEIR_REPORT_SPACING);
    assert_true(was_told(w, 1) && was_told(w, 2) && was_told(w, 3));
    /* That report was answered: a new name requests the next. */
    assert_int_equal(take(w, 4, 1), WEIR_OUTCOME_KICK);
}

static void who_may_be_stopped_asks_nonetheless(void **state)
{
    struct world *w = *state;
    a_report_is_coming(w);
    unsigned outcome = 0;
    for (unsigned i = 0; i < LIMIT && outcome == 0; i++)
        outcome = take(w, 0, 1);
    assert_int_equal(outcome, WEIR_OUTCOME_KICK);
}

/* A name that is used while an answer is awaited isn't in the report that was
 * sent. */
static void the_report_before_is_none_that_is_coming(void **state)
{
    struct world *w = *state;
    assert_int_equal(take(w, 0, 1), WEIR_OUTCOME_KICK);
    w->now += WEIR_SECOND / 2;
    weir_limiter_tick(w->limiter, w->now);
    say(w);
    assert_true(was_told(w, 0));
    assert_int_equal(take(w, 1, 1), WEIR_OUTCOME_KICK);
}

/* A report is made, and is not delivered yet. */
static void who_comes_while_it_is_sent_asks(void **state)
{
    struct world *w = *state;
    struct weir_message message;
    uint32_t link;
    a_report_is_coming(w);
    w->now += WEIR_REPORT_SPACING;
    weir_limiter_tick(w->limiter, w->now);
    assert_true(weir_limiter_next(w->limiter, &link, &message, w->now));
    assert_int_equal(message.type, WEIR_MESSAGE_REPORT);
    assert_int_equal(take(w, 2, 1), WEIR_OUTCOME_KICK);
}

static void with_no_root_there_each_look_is_asked_for(void **state)
{
    struct world *w = *state;
    a_report_is_coming(w);
    weir_limiter_link(w->limiter, 0, false, w->now);
    say(w);
    assert_int_equal(take(w, 2, 1), WEIR_OUTCOME_KICK);
}

static int unmake(void **state)
{
    struct world *w = *state;
    weir_root_free(w->root);
    free(w->limiter);
    free(w->table);
    return 0;
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, make, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_wakes_the_thread_for_all),
        TEST(who_may_be_stopped_asks_nonetheless),
        TEST(the_report_before_is_none_that_is_coming),
        TEST(who_comes_while_it_is_sent_asks),
        TEST(with_no_root_there_each_look_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
