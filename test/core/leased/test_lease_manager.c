/* SPDX-License-Identifier: MIT
 * test_lease_manager.c - lease pools by quota and clients by id: which are
 * asked, pushed to and forgotten; then random histories compared with a table
 * of all of it. */

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/leased/lease_manager.h"
#include "mem_maker.h"
#include "table_maker.h"

#define BEGIN (1000 * WEIR_SECOND)
#define LEASE (20 * WEIR_SECOND)
#define REFRESH (5 * WEIR_SECOND)

static struct scarce memory = { .left = INT_MAX };

#define QUOTAS 8

struct house {
    struct weir_lease_manager *manager;
    double capacity[QUOTAS]; /* of "q0" … "q7"; below 0: there is none */
    double safe;
    /* of "q6" and "q7"; after it half of the capacity is left, for a lease */
    weir_instant expiry;
};

static bool rule_of(void *context, struct weir_text quota,
                    struct weir_leased *out, weir_instant now)
{
    const struct house *house = context;
    if (quota.len != 2 || quota.p[0] != 'q' ||
        house->capacity[quota.p[1] - '0'] < 0)
        return false;
    *out = (struct weir_leased){
        .rule = { .share = WEIR_SHARE_FAIR,
                  .capacity = house->capacity[quota.p[1] - '0'],
                  .safe = house->safe,
                  .lease = LEASE,
                  .refresh = REFRESH },
        .learning = LEASE,
        .expiry = WEIR_NEVER,
    };
    if (house->expiry == 0 || quota.p[1] < '6')
        return true;
    bool over = now >= house->expiry;
    out->rule.capacity /= over ? 2 : 1;
    out->safe_until = house->expiry + LEASE;
    out->expiry = over ? out->safe_until : house->expiry;
    out->safe = house->capacity[quota.p[1] - '0'] / 2;
    return true;
}

static void open_house(struct house *house)
{
    struct weir_lease_manager_options options = {
        .mem = scarce_mem(&memory),
        .seed = 1,
        .owner = { house, rule_of },
    };
    house->safe = 0;
    house->expiry = 0;
    for (int i = 0; i < QUOTAS; i++)
        house->capacity[i] = 100;
    house->manager = weir_lease_manager_new(&options);
    assert_non_null(house->manager);
}

static void close_house(struct house *house)
{
    weir_lease_manager_free(house->manager);
    assert_int_equal(memory.bytes, 0);
}

/* By its id's number, which is also its way's number. */
static int ask(struct house *house, int client, const char *quota, double wants,
               uint64_t taken, struct weir_grant *out, weir_instant now)
{
    char id[16];
    snprintf(id, sizeof(id), "client %d", client);
    struct weir_client who = { weir_text_of(id), (uint32_t)client };
    struct weir_band band = { 0, 1, wants };
    struct weir_lease_pool_ask a = {
        .bands = &band, .band_count = 1, .taken = taken, .streams = true
    };
    return weir_lease_manager_ask(house->manager, &who, weir_text_of(quota), &a,
                                  out, now);
}

static void test_only_a_master_leases(void **state)
{
    (void)state;
    struct house house;
    struct weir_grant grant;
    open_house(&house);
    assert_int_equal(ask(&house, 1, "q1", 10, 0, &grant, BEGIN),
                     WEIR_ENOTREADY);
    weir_lease_manager_begin(house.manager, WEIR_NEVER, BEGIN);
    assert_int_equal(ask(&house, 1, "q1", 10, 0, &grant, BEGIN), 0);
    assert_true(grant.capacity == 10);
    uint64_t serial = grant.serial;
    weir_lease_manager_end(house.manager);
    assert_int_equal(ask(&house, 1, "q1", 10, 0, &grant, BEGIN),
                     WEIR_ENOTREADY);
    /* Master again, after another one may have granted: so it learns. */
    weir_lease_manager_begin(house.manager, BEGIN, BEGIN);
    assert_int_equal(ask(&house, 1, "q1", 10, 0, &grant, BEGIN), 0);
    assert_true(grant.capacity == 0);
    assert_compare(grant.serial, >, serial);
    serial = grant.serial;
    /* The last lease was over long ago, and there are no safe capacities. */
    weir_lease_manager_begin(house.manager, BEGIN - LEASE - REFRESH, BEGIN);
    assert_int_equal(ask(&house, 1, "q1", 10, 0, &grant, BEGIN), 0);
    assert_true(grant.capacity == 10);
    assert_compare(grant.serial, >, serial);
    /* If there are safe capacities, they last a lease more. */
    house.safe = 2;
    weir_lease_manager_begin(house.manager, BEGIN - LEASE - REFRESH, BEGIN);
    assert_int_equal(ask(&house, 1, "q1", 10, 0, &grant, BEGIN), 0);
    assert_true(grant.capacity == 0);
    assert_int_equal(ask(&house, 1, "q1", 10, 0, &grant, BEGIN + LEASE), 0);
    assert_true(grant.capacity == 10);
    close_house(&house);
}

/* A client that waits is granted its share by a push. */
static void test_nothing_out(void **state)
{
    (void)state;
    struct house house;
    struct weir_grant grant;
    struct weir_lease_manager_push push;
    open_house(&house);
    weir_lease_manager_begin(house.manager, BEGIN, BEGIN);
    assert_int_equal(ask(&house, 1, "q1", 10, 0, &grant, BEGIN), 0);
    assert_true(grant.capacity == 0);
    assert_true(weir_lease_manager_nothing_out(house.manager, BEGIN));
    assert_true(weir_lease_manager_next(house.manager, &push, BEGIN + 1));
    assert_true(push.grant.capacity == 10);
    assert_false(
        weir_lease_manager_inherit(house.manager, WEIR_TEXT("q1"), BEGIN));
    /* Quotas that are used later don't learn either. */
    assert_int_equal(ask(&house, 1, "q2", 10, 0, &grant, BEGIN), 0);
    assert_true(grant.capacity == 10);
    close_house(&house);
}

static void test_unknown_and_removed(void **state)
{
    (void)state;
    struct house house;
    struct weir_grant grant;
    struct weir_leased_stats stats;
    open_house(&house);
    weir_lease_manager_begin(house.manager, WEIR_NEVER, BEGIN);
    size_t empty = memory.bytes;
    assert_int_equal(ask(&house, 1, "nothing", 10, 0, &grant, BEGIN),
                     WEIR_ENOENT);
    assert_int_equal(ask(&house, 1, "q1", -1, 0, &grant, BEGIN), WEIR_EINVAL);
    assert_false(weir_lease_manager_look_of(house.manager, WEIR_TEXT("q1"),
                                            &stats, BEGIN));
    assert_int_equal(ask(&house, 1, "q1", 10, 0, &grant, BEGIN), 0);
    assert_int_equal(ask(&house, 2, "q1", 10, 0, &grant, BEGIN), 0);
    assert_compare(memory.bytes, >, empty);

    house.capacity[1] = -1;
    weir_lease_manager_review(house.manager);
    assert_int_equal(weir_lease_manager_deadline(house.manager, BEGIN), BEGIN);
    weir_lease_manager_tick(house.manager, BEGIN);
    assert_false(weir_lease_manager_look_of(house.manager, WEIR_TEXT("q1"),
                                            &stats, BEGIN));
    assert_int_equal(ask(&house, 3, "q1", 100, 0, &grant, BEGIN), WEIR_ENOENT);

    /* The quota is back, and its granted units are still out. */
    house.capacity[1] = 100;
    weir_instant soon = BEGIN + WEIR_SECOND;
    assert_int_equal(ask(&house, 3, "q1", 100, 0, &grant, soon), 0);
    assert_true(grant.capacity == 80);

    /* A quota that is removed is forgotten when its last lease is over. */
    house.capacity[1] = -1;
    weir_lease_manager_review_of(house.manager, WEIR_TEXT("q1"), soon);
    struct weir_lease_manager_push push;
    weir_instant over = soon + LEASE + REFRESH;
    while (weir_lease_manager_deadline(house.manager, soon) < over) {
        soon = weir_lease_manager_deadline(house.manager, soon);
        assert_false(weir_lease_manager_next(house.manager, &push, soon));
    }
    assert_false(weir_lease_manager_next(house.manager, &push, over));
    assert_int_equal(weir_lease_manager_deadline(house.manager, over),
                     WEIR_NEVER);
    close_house(&house);
}

/* A region that leases out its own lease wakes up when that steps down. */
static void test_a_capacity_that_runs_out(void **state)
{
    (void)state;
    struct house house;
    struct weir_grant grant;
    struct weir_leased_stats stats;
    struct weir_lease_manager_push push;
    open_house(&house);
    house.safe = -1;
    weir_instant expiry = house.expiry = BEGIN + LEASE / 2;
    weir_lease_manager_begin(house.manager, WEIR_NEVER, BEGIN);
    assert_int_equal(ask(&house, 1, "q7", 200, 0, &grant, BEGIN), 0);
    assert_true(grant.capacity == 100 && grant.safe == 50);
    assert_int_equal(grant.lease, LEASE / 2);
    assert_int_equal(grant.safe_lease, LEASE / 2 + LEASE);
    while (weir_lease_manager_next(house.manager, &push, BEGIN))
        continue;
    assert_int_equal(weir_lease_manager_deadline(house.manager, BEGIN), expiry);
    while (weir_lease_manager_next(house.manager, &push, expiry))
        continue;
    weir_lease_manager_look_of(house.manager, WEIR_TEXT("q7"), &stats, expiry);
    assert_true(stats.pool.capacity == 50);
    /* It has only its safe capacity, though it may report so late. */
    assert_int_equal(ask(&house, 1, "q7", 200, grant.serial, &grant, expiry),
                     0);
    assert_true(grant.capacity == 50);
    assert_int_equal(grant.lease, LEASE);
    assert_int_equal(grant.safe_lease, LEASE);
    close_house(&house);
}

/* A release that a request may have overtaken frees nothing at once. */
static void test_late_releases(void **state)
{
    (void)state;
    struct house house;
    struct weir_grant first, other;
    const struct weir_client elsewhere = { WEIR_TEXT("client 1"), 7 };
    const struct weir_client here = { WEIR_TEXT("client 1"), 1 };
    struct weir_text q1 = WEIR_TEXT("q1");
    open_house(&house);
    weir_lease_manager_begin(house.manager, WEIR_NEVER, BEGIN);
    assert_int_equal(ask(&house, 1, "q1", 100, 0, &first, BEGIN), 0);
    weir_lease_manager_release(house.manager, &elsewhere, q1, 0, BEGIN);
    weir_lease_manager_release(house.manager, &elsewhere, q1, first.serial - 1,
                               BEGIN);
    assert_int_equal(ask(&house, 2, "q1", 100, 0, &other, BEGIN), 0);
    assert_true(other.capacity == 0);
    weir_lease_manager_release(house.manager, &elsewhere, q1, first.serial,
                               BEGIN);
    assert_int_equal(ask(&house, 2, "q1", 100, 0, &other, BEGIN), 0);
    assert_true(other.capacity == 100);
    /* A release on the way of the last request is in order. */
    assert_int_equal(ask(&house, 1, "q2", 100, 0, &first, BEGIN), 0);
    weir_lease_manager_release(house.manager, &here, WEIR_TEXT("q2"), 0, BEGIN);
    assert_int_equal(ask(&house, 2, "q2", 100, 0, &other, BEGIN), 0);
    assert_true(other.capacity == 100);
    close_house(&house);
}

static void test_pushed_by_their_ways(void **state)
{
    (void)state;
    struct house house;
    struct weir_grant first, second;
    struct weir_lease_manager_push push;
    open_house(&house);
    weir_lease_manager_begin(house.manager, WEIR_NEVER, BEGIN);
    ask(&house, 1, "q1", 100, 0, &first, BEGIN);
    ask(&house, 1, "q2", 100, 0, &first, BEGIN);
    assert_false(weir_lease_manager_next(house.manager, &push, BEGIN));
    weir_instant soon = weir_lease_manager_deadline(house.manager, BEGIN);
    ask(&house, 2, "q2", 100, 0, &second, soon);
    soon = weir_lease_manager_deadline(house.manager, soon);
    assert_compare(soon, <, BEGIN + WEIR_SECOND);
    assert_true(weir_lease_manager_next(house.manager, &push, soon));
    assert_int_equal(push.way, 1);
    assert_true(weir_text_equal(push.quota, WEIR_TEXT("q2")));
    assert_true(push.grant.capacity == 50);

    /* Without a way a client isn't pushed to, and keeps its grant until its
     * lease has run out; then it is forgotten, with all quotas that it alone
     * had. */
    weir_lease_manager_way_lost(house.manager, 1);
    weir_instant over = BEGIN + LEASE + REFRESH;
    ask(&house, 2, "q2", 100, 0, &second, over - 1);
    assert_true(second.capacity == 0);
    assert_false(weir_lease_manager_next(house.manager, &push, over - 1));
    assert_true(weir_lease_manager_next(house.manager, &push, over));
    assert_int_equal(push.way, 2);
    assert_true(push.grant.capacity == 100);
    assert_false(weir_lease_manager_next(house.manager, &push, over));
    uint32_t cursor = 0;
    struct weir_leased_stats stats;
    assert_true(weir_lease_manager_look(house.manager, &cursor, &stats, over));
    assert_true(weir_text_equal(stats.quota, WEIR_TEXT("q2")));
    assert_int_equal(stats.pool.holders, 1);
    assert_false(weir_lease_manager_look(house.manager, &cursor, &stats, over));
    close_house(&house);
}

/* ---- At random: which client has which lease ---- */

#define CLIENTS 40

struct known {
    double wants; /* below 0: no lease */
    bool cut;     /* its way is lost: a release isn't trusted at once */
    weir_instant until;
};

static void check_known(struct house *house, struct known known[][QUOTAS],
                        weir_instant now)
{
    for (int q = 0; q < QUOTAS; q++) {
        char name[3] = { 'q', (char)('0' + q), 0 };
        struct weir_leased_stats stats;
        uint32_t holders = 0, seen = 0, cursor = 0;
        double wants = 0;
        for (int c = 0; c < CLIENTS; c++) {
            holders += known[c][q].wants >= 0;
            wants += known[c][q].wants >= 0 ? known[c][q].wants : 0;
        }
        bool found = weir_lease_manager_look_of(
            house->manager, weir_text_of(name), &stats, now);
        assert_int_equal(found, holders > 0);
        if (!found)
            continue;
        assert_int_equal(stats.pool.holders, holders);
        assert_true(stats.pool.wants == wants);
        struct weir_text client;
        struct weir_lease_holder_stats holder;
        while (weir_lease_manager_look_holder(house->manager,
                                              weir_text_of(name), &cursor,
                                              &client, &holder, now)) {
            int c = atoi(client.p + sizeof("client"));
            assert_true(holder.wants == known[c][q].wants);
            seen++;
        }
        assert_int_equal(seen, holders);
    }
}

static void forget_silent(struct known known[][QUOTAS], weir_instant now)
{
    for (int c = 0; c < CLIENTS; c++)
        for (int q = 0; q < QUOTAS; q++)
            if (known[c][q].until <= now)
                known[c][q] = (struct known){ -1, false, WEIR_NEVER };
}

static void test_book_of_all(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("brokers");
    struct house house;
    struct known known[CLIENTS][QUOTAS];
    struct weir_lease_manager_push push;
    weir_instant now = BEGIN;
    open_house(&house);
    weir_lease_manager_begin(house.manager, WEIR_NEVER, now);
    for (int c = 0; c < CLIENTS; c++)
        for (int q = 0; q < QUOTAS; q++)
            known[c][q] = (struct known){ -1, false, WEIR_NEVER };
    for (int step = 0; step < 20000; step++) {
        int c = (int)weir_rng_below(&rng, CLIENTS);
        int q = (int)weir_rng_below(&rng, QUOTAS);
        char name[3] = { 'q', (char)('0' + q), 0 }, id[16];
        struct weir_grant grant;
        now += weir_rng_below(&rng, WEIR_SECOND / 4);
        forget_silent(known, now);
        while (weir_lease_manager_deadline(house.manager, now) <= now) {
            weir_lease_manager_tick(house.manager, now);
            while (weir_lease_manager_next(house.manager, &push, now))
                assert_compare(push.way, <, CLIENTS);
        }
        switch (weir_rng_below(&rng, 16)) {
        case 0:
            snprintf(id, sizeof(id), "client %d", c);
            weir_lease_manager_release(
                house.manager,
                &(struct weir_client){ weir_text_of(id), (uint32_t)c },
                weir_text_of(name), 0, now);
            if (known[c][q].wants >= 0)
                known[c][q].wants = known[c][q].cut ? 0 : -1;
            break;
        case 1:
            weir_lease_manager_way_lost(house.manager, (uint32_t)c);
            for (int i = 0; i < QUOTAS; i++)
                known[c][i].cut = true;
            break;
        case 2:
            house.capacity[q] = (double)weir_rng_below(&rng, 1000);
            weir_lease_manager_review(house.manager);
            break;
        default:
            known[c][q].wants = (double)weir_rng_below(&rng, 100);
            known[c][q].until = now + LEASE + REFRESH;
            known[c][q].cut = false;
            assert_int_equal(
                ask(&house, c, name, known[c][q].wants, 0, &grant, now), 0);
            break;
        }
        weir_lease_manager_audit(house.manager, UINT32_MAX);
        if (step % 16 == 0)
            check_known(&house, known, now);
    }
    close_house(&house);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_a_master_leases),
        cmocka_unit_test(test_nothing_out),
        cmocka_unit_test(test_unknown_and_removed),
        cmocka_unit_test(test_a_capacity_that_runs_out),
        cmocka_unit_test(test_late_releases),
        cmocka_unit_test(test_pushed_by_their_ways),
        cmocka_unit_test(test_book_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
