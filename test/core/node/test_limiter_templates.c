/* SPDX-License-Identifier: MIT
 * test_limiter_templates.c - edits of many templates that reach a limiter in
 * one message: each instance finds its template again once, when the message
 * has been applied, and requests go on in between. */

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

#define TEMPLATES 40
#define INSTANCES 2000
#define SLOTS (4 * INSTANCES)
#define BURST 1000

static const struct weir_settings settings = {
    .report_interval = WEIR_SECOND,
    .stale_after = 10 * WEIR_SECOND,
    .slack = true,
};

struct world {
    struct weir_table *table;
    struct weir_limiter *limiter;
    struct weir_root *root;
    struct weir_rng rng;
    struct weir_ref instance[INSTANCES];
    weir_instant now;
    uint64_t epoch;
    unsigned incarnation;
    bool busy; /* requests go on between the changes of a message */
};

static struct world w;

/* ---- Requests ---- */

static void name_of(unsigned i, char name[24])
{
    snprintf(name, 24, "t%u/x%u", i % TEMPLATES, i);
}

static void request(void)
{
    unsigned i = (unsigned)weir_rng_below(&w.rng, INSTANCES);
    char name[24];
    struct weir_ref ref;
    name_of(i, name);
    if (weir_is_resolved(weir_table_resolve(w.table, weir_text_of(name), false,
                                            &ref, w.now)))
        weir_table_take(w.table, 0, ref, 1, NULL, w.now);
    weir_table_take(w.table, 0, w.instance[i], 1, NULL, w.now);
    snprintf(name, sizeof(name), "t%u/new%u",
             (unsigned)weir_rng_below(&w.rng, TEMPLATES), i);
    (void)weir_table_resolve(w.table, weir_text_of(name), false, &ref, w.now);
}

/* ---- Calls of the table ---- */

static unsigned ruled; /* calls of weir_slot_rule() */

bool __real_weir_slot_rule(struct weir_table *t, uint32_t slot,
                           weir_instant now);
bool __wrap_weir_slot_rule(struct weir_table *t, uint32_t slot,
                           weir_instant now);
int __real_weir_table_put_unruled(struct weir_table *t,
                                  const struct weir_quota *quota,
                                  weir_instant now);
int __wrap_weir_table_put_unruled(struct weir_table *t,
                                  const struct weir_quota *quota,
                                  weir_instant now);
int __real_weir_table_drop_unruled(struct weir_table *t, struct weir_text name,
                                   weir_instant now);
int __wrap_weir_table_drop_unruled(struct weir_table *t, struct weir_text name,
                                   weir_instant now);

bool __wrap_weir_slot_rule(struct weir_table *t, uint32_t slot,
                           weir_instant now)
{
    ruled++;
    return __real_weir_slot_rule(t, slot, now);
}

/* Requests, audits and evictions between the changes of a message. */
static void come_between(void)
{
    if (!w.busy)
        return;
    for (int i = 0; i < 5; i++)
        request();
    if (weir_rng_below(&w.rng, 20) == 0)
        made_audit(w.table);
    if (weir_rng_below(&w.rng, 20) > 0)
        return;
    assert_true(weir_table_try_lock(w.table));
    weir_table_evict(w.table, 200, 50, w.now);
    weir_table_unlock(w.table);
}

int __wrap_weir_table_put_unruled(struct weir_table *t,
                                  const struct weir_quota *quota,
                                  weir_instant now)
{
    come_between();
    return __real_weir_table_put_unruled(t, quota, now);
}

int __wrap_weir_table_drop_unruled(struct weir_table *t, struct weir_text name,
                                   weir_instant now)
{
    come_between();
    return __real_weir_table_drop_unruled(t, name, now);
}

/* ---- The pump ---- */

static void say(void)
{
    struct weir_message message;
    uint32_t link;
    while (weir_limiter_next(w.limiter, &link, &message, w.now))
        assert_int_equal(weir_root_receive(w.root, 0, &message, w.now), 0);
}

/* Each instance, and each placeholder, is ruled by the template that matches,
 * or by none. */
static void check_rules(void)
{
    for (uint32_t slot = 0; slot < weir_table_used(w.table); slot++) {
        const struct cold *cold = weir_cold(w.table, slot);
        char name[WEIR_NAME_MAX + 1];
        struct weir_captures captures;
        if (cold->state != WEIR_SLOT_INSTANCE &&
            cold->state != WEIR_SLOT_PLACEHOLDER)
            continue;
        struct weir_text text = { name, weir_table_name(w.table, slot, name) };
        uint32_t template = weir_templates_match(w.table, text, &captures);
        if (cold->rule != template)
            fail_msg("%s is ruled by %u instead of %u", name, cold->rule,
                     template);
        assert_int_equal(cold->state, template == WEIR_SLOT_NONE
                                          ? WEIR_SLOT_PLACEHOLDER
                                          : WEIR_SLOT_INSTANCE);
        if (template == WEIR_SLOT_NONE)
            continue;
        struct slot_read own, rule;
        weir_slot_read(w.table, slot, 0, &own);
        weir_slot_read(w.table, template, 0, &rule);
        assert_int_equal(own.high, rule.high);
        assert_int_equal(own.leak.part, rule.leak.part);
        assert_int_equal(cold->created, weir_cold(w.table, template)->created);
    }
}

/* Delivers a message at a time. After each the rules are in force. */
static unsigned hear(void)
{
    struct weir_message message;
    uint32_t link;
    unsigned messages = 0;
    while (weir_root_next(w.root, &link, &message, w.now)) {
        bool quotas = message.type == WEIR_MESSAGE_QUOTAS;
        messages += quotas && message.quotas.count > 0;
        assert_int_equal(weir_limiter_receive(w.limiter, 0, &message, w.now),
                         0);
        if (quotas)
            check_rules();
    }
    return messages;
}

/* Until both have said all; returns the number of messages of quotas. */
static unsigned pass(weir_duration time)
{
    unsigned messages = 0;
    w.now += time;
    weir_limiter_tick(w.limiter, w.now);
    weir_root_tick(w.root, w.now);
    for (int i = 0; i < 8; i++) {
        say();
        messages += hear();
    }
    say();
    return messages;
}

/* ---- Edits ---- */

/* 'units' 0: removes it. */
static void edit(const char *name, const char *parent, uint64_t units)
{
    struct weir_change change = { .removed = units == 0 };
    change.quota = made_quota_of(name, parent, units ? units : 1, BURST);
    change.quota.epoch = ++w.epoch;
    change.quota.created = w.epoch;
    assert_int_equal(weir_root_apply(w.root, &change, w.now), 0);
}

static void edit_template(unsigned i, uint64_t units)
{
    char name[16];
    snprintf(name, sizeof(name), "t%u/*", i);
    edit(name, "", units);
}

static void make_root(void)
{
    struct weir_root_options options = { .mem = weir_mem_system,
                                         .peers_max = 1,
                                         .settings = settings };
    options.incarnation[0] = (uint8_t)++w.incarnation;
    w.root = weir_root_new(&options, w.now);
    assert_non_null(w.root);
}

static void set_store(uint8_t uuid)
{
    struct weir_store_id store = { .uuid = { uuid } };
    assert_int_equal(weir_root_store(w.root, &store, w.epoch, 0, w.now), 0);
}

static void make_limiter(void)
{
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
}

static void link_all(void)
{
    weir_root_link(w.root, 0, true, w.now);
    weir_limiter_link(w.limiter, 0, true, w.now);
    for (int i = 0; i < 5; i++)
        pass(WEIR_SECOND);
}

static int make(void **state)
{
    (void)state;
    w = (struct world){ .now = MADE_AT, .rng = made_seed("templates") };
    w.table = made_table(SLOTS, 1, 1);
    make_root();
    make_limiter();
    set_store(1);
    for (unsigned i = 0; i < TEMPLATES; i++)
        edit_template(i, 100 + i);
    weir_root_settle(w.root, w.now);
    link_all();
    for (unsigned i = 0; i < INSTANCES; i++) {
        char name[24];
        name_of(i, name);
        assert_int_equal(weir_table_resolve(w.table, weir_text_of(name), false,
                                            &w.instance[i], w.now),
                         WEIR_RESOLVED);
    }
    return 0;
}

static int drop(void **state)
{
    (void)state;
    made_audit(w.table);
    weir_root_free(w.root);
    free(w.limiter);
    free(w.table);
    return 0;
}

/* ---- The tests ---- */

static void test_once_a_message(void **state)
{
    (void)state;
    ruled = 0;
    for (unsigned i = 0; i < TEMPLATES; i++)
        edit_template(i, 300 + i);
    weir_root_settle(w.root, w.now);
    assert_int_equal(pass(WEIR_SECOND), 1);
    print_message("%u templates changed, %u instances: %u visits\n", TEMPLATES,
                  INSTANCES, ruled);
    assert_compare(ruled, <=, INSTANCES + TEMPLATES);
    /* Removed, with one left that has them all. */
    edit("*", "", 7);
    for (unsigned i = 0; i < TEMPLATES; i++)
        edit_template(i, 0);
    weir_root_settle(w.root, w.now);
    ruled = 0;
    assert_int_equal(pass(WEIR_SECOND), 1);
    assert_compare(ruled, <=, INSTANCES + TEMPLATES);
}

static void test_a_whole_set(void **state)
{
    (void)state;
    /* Another store, which has only one of them. */
    weir_limiter_link(w.limiter, 0, false, w.now);
    weir_root_free(w.root);
    make_root();
    set_store(2);
    edit_template(1, 5);
    weir_root_settle(w.root, w.now);
    ruled = 0;
    link_all();
    assert_compare(ruled, <=, 2 * (INSTANCES + TEMPLATES));
    check_rules();
}

/* Random edits; a slot of a removed template is soon another's. */
static void test_any_edits(void **state)
{
    (void)state;
    w.busy = true;
    for (int round = 0; round < 200; round++) {
        unsigned count = 1 + (unsigned)weir_rng_below(&w.rng, 30);
        for (unsigned i = 0; i < count; i++) {
            unsigned which = (unsigned)weir_rng_below(&w.rng, TEMPLATES);
            uint64_t units = weir_rng_below(&w.rng, 4);
            char name[24];
            snprintf(name, sizeof(name),
                     weir_rng_below(&w.rng, 4) ? "t%u/*" : "t%u/x*", which);
            if (weir_rng_below(&w.rng, 5) == 0)
                snprintf(name, sizeof(name), "t%u/x%u", which, which);
            edit(name, "", units);
        }
        weir_root_settle(w.root, w.now);
        pass(WEIR_SECOND);
        for (int i = 0; i < 20; i++)
            request();
        made_audit(w.table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_once_a_message, make, drop),
        cmocka_unit_test_setup_teardown(test_a_whole_set, make, drop),
        cmocka_unit_test_setup_teardown(test_any_edits, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
