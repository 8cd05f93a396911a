/* SPDX-License-Identifier: MIT
 * test/core/node/test_scale.c - the cost of many quotas, in bytes: nothing
 * without edits. A limiter that comes back at its old epoch is sent none, and
 * an idle interval sends as much for ten quotas as for a hundred thousand. The
 * time is measured by `make bench`. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compare.h"
#include "lab/fleet.h"

#define MANY 100000u
#define FEW 10u
#define SLOTS (MANY + MANY / 8)

struct seen {
    uint64_t quotas; /* sent to limiters */
    uint64_t welcomes;
};

static void on_received(void *context, struct weir_node_place to, uint32_t from,
                        const struct weir_message *message)
{
    struct seen *seen = context;
    (void)to;
    (void)from;
    if (message->type == WEIR_MESSAGE_QUOTAS)
        seen->quotas += message->quotas.count;
    seen->welcomes += message->type == WEIR_MESSAGE_WELCOME;
}

/* A tree of three levels with names of some 24 bytes. */
static void put(struct weir_fleet *fleet, uint32_t number)
{
    char name[64];
    char parent[64];
    struct weir_quota quota;
    weir_quota_init(&quota);
    snprintf(name, sizeof(name), "acme/%06u/api-requests", number);
    snprintf(parent, sizeof(parent), "acme/%06u/api-requests", number / 100);
    quota.name = weir_text_of(name);
    if (number > 0)
        quota.parent = weir_text_of(parent);
    quota.limit = (struct weir_limit){ .units = 1000, .per = WEIR_SECOND };
    assert_int_equal(weir_fleet_put(fleet, &quota, NULL), 0);
}

static struct weir_fleet *fleet_of(uint32_t quotas, uint32_t limiters)
{
    struct weir_fleet_options options = {
        .seed = 1,
        .limiters = limiters,
        .roots = 1,
        .slots = SLOTS,
        .net = { .delay = WEIR_MILLISECOND },
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
    };
    struct weir_fleet *fleet = weir_fleet_new(&options);
    for (uint32_t i = 0; i < MANY; i++)
        put(fleet, i % quotas);
    return fleet;
}

static void run(struct weir_fleet *fleet, weir_duration span)
{
    weir_fleet_run(fleet, weir_fleet_now(fleet) + span);
}

static void start(struct weir_fleet *fleet, uint32_t quotas)
{
    struct weir_node_place first = { .index = 0 };
    weir_fleet_start(fleet, first);
    run(fleet, 5 * WEIR_SECOND);
    struct weir_limiter *limiter = weir_fleet_limiter(fleet, 0);
    assert_true(weir_limiter_ready(limiter));
    assert_int_equal(weir_limiter_epoch(limiter), MANY);
    assert_int_equal(weir_table_live(weir_fleet_table(fleet, 0)), quotas);
}

static void finish(struct weir_fleet *fleet)
{
    assert_int_equal(weir_fleet_error(fleet), 0);
    weir_fleet_free(fleet);
}

/* The link breaks and is made anew, twice, with an edit between. */
static void test_a_reconnect_sends_no_quota(void **state)
{
    (void)state;
    struct weir_fleet *fleet = fleet_of(MANY, 1);
    struct seen seen = { 0, 0 };
    weir_fleet_watch(fleet, &(struct weir_fleet_watch){
                                .context = &seen, .received = on_received });
    start(fleet, MANY);
    assert_int_equal(seen.quotas, MANY);
    weir_fleet_reset(fleet, (struct weir_node_place){ .index = 0 });
    run(fleet, 5 * WEIR_SECOND);
    assert_int_equal(seen.welcomes, 2);
    assert_int_equal(seen.quotas, MANY);
    put(fleet, 4711);
    weir_fleet_reset(fleet, (struct weir_node_place){ .index = 0 });
    run(fleet, 5 * WEIR_SECOND);
    assert_int_equal(seen.welcomes, 3);
    assert_int_equal(seen.quotas, MANY + 1);
    finish(fleet);
}

static uint64_t idle_bytes(uint32_t quotas)
{
    struct weir_fleet *fleet = fleet_of(quotas, 1);
    start(fleet, quotas);
    struct weir_fleet_stats before;
    struct weir_fleet_stats after;
    weir_fleet_stats(fleet, &before);
    run(fleet, 100 * WEIR_SECOND);
    weir_fleet_stats(fleet, &after);
    finish(fleet);
    print_message("%u quotas: %llu messages, %llu bytes in 100 intervals\n",
                  quotas,
                  (unsigned long long)(after.messages - before.messages),
                  (unsigned long long)(after.bytes - before.bytes));
    return after.bytes - before.bytes;
}

/* Both fleets have seen as many edits: an epoch is a number on the wire. */
static void test_an_idle_interval_costs_the_same(void **state)
{
    (void)state;
    uint64_t few = idle_bytes(FEW);
    assert_compare(few, >, 0);
    assert_int_equal(idle_bytes(MANY), few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reconnect_sends_no_quota),
        cmocka_unit_test(test_an_idle_interval_costs_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
