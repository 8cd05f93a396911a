/* SPDX-License-Identifier: MIT
 * test_lease_audit.c - the audits of the lease manager and of its pools find
 * each planted violation. Their histories are in test_lease_manager.c,
 * test_lease_pool.c and test_lease_tree.c, which call the audits. */

#include "compare.h"
#include "planted.h"

/* Its structs are its own. */
#include "core/leased/lease_manager.c"
#include "core/leased/lease_pool_internal.h"
#include "pool_by_hand.h"

#define CAPACITY 10
#define CLIENTS 3

static bool any_rule(void *context, struct weir_text quota,
                     struct weir_leased *out, weir_instant now)
{
    (void)context;
    (void)quota;
    (void)now;
    *out = (struct weir_leased){ .rule = rule_of(WEIR_SHARE_FAIR, CAPACITY),
                                 .expiry = WEIR_NEVER };
    return true;
}

/* Three clients of two quotas. The capacity is less than their wants, so that
 * the later ones wait. */
static struct weir_lease_manager *manager_in_use(void)
{
    struct weir_lease_manager_options options = { .mem = maker_mem,
                                                  .owner = { NULL, any_rule } };
    struct weir_lease_manager *manager = weir_lease_manager_new(&options);
    assert_non_null(manager);
    weir_lease_manager_begin(manager, WEIR_NEVER, BEGIN);
    weir_lease_manager_keep(manager, 7, BEGIN);
    for (uint32_t i = 0; i < 2 * CLIENTS; i++) {
        char id = (char)('a' + i % CLIENTS);
        struct weir_client client = { .id = { &id, 1 }, .way = i / CLIENTS };
        struct weir_band band = { .clients = 1, .wants = CAPACITY };
        struct weir_lease_pool_ask ask = { .bands = &band,
                                           .band_count = 1,
                                           .streams = true };
        struct weir_grant grant;
        assert_int_equal(weir_lease_manager_ask(manager, &client,
                                                i < CLIENTS ? WEIR_TEXT("q0")
                                                            : WEIR_TEXT("q1"),
                                                &ask, &grant, BEGIN),
                         0);
    }
    return manager;
}

static void audit_all(void *context)
{
    weir_lease_manager_audit(context, UINT32_MAX);
}

static void test_manager(void **state)
{
    (void)state;
    struct weir_lease_manager *b = manager_in_use();
    const struct planted planted[] = {
        PLANTED(b->quotas_live),
        PLANTED(b->free_quota_count),
        PLANTED(b->quota_index.count),
        PLANTED(b->client_index.count),
        PLANTED(b->heap[0]),
        PLANTED(b->quotas[1]->place),
        PLANTED(b->quotas[b->heap[0]]->due),
        PLANTED(b->quotas[0]->name[0]),
        PLANTED(b->quotas[0]->clients),
        PLANTED(b->quotas[0]->client_of[1]),
        PLANTED(b->clients[1]->id[0]),
        PLANTED(b->clients[1]->number),
        PLANTED(b->clients[1]->of),
        PLANTED(b->clients[1]->before),
        PLANTED(b->clients[1]->after),
        PLANTED(b->ways[0]),
    };
    /* Due later than those below it. */
    b->quotas[b->heap[0]]->due = b->quotas[b->heap[1]]->due;
    assert_audit_finds(audit_all, b, planted, WEIR_COUNT_OF(planted));
    weir_lease_manager_free(b);
}

static void test_pool(void **state)
{
    (void)state;
    struct weir_lease_manager *manager = manager_in_use();
    struct weir_lease_pool *b = manager->quotas[0]->pool;
    struct holder *h = &b->holders[1];
    assert_compare(b->waiting, >, 0);
    h->step = h->grant;
    const struct planted planted[] = {
        PLANTED(b->count),
        PLANTED(b->waiting),
        PLANTED(b->rested),
        PLANTED(b->lists[0].oldest),
        PLANTED(b->lists[0].newest),
        PLANTED(b->lists[1].oldest),
        PLANTED(b->roster_token.names),
        PLANTED(b->roster_token.deaf),
        PLANTED(b->roster_token.showing),
        PLANTED(b->holders[0].out),
        PLANTED(h->live),
        PLANTED(h->faded),
        PLANTED(h->known),
        PLANTED(h->waits),
        PLANTED(h->listed),
        PLANTED(h->streams),
        PLANTED(h->clients),
        PLANTED(h->before),
        PLANTED(h->after),
        PLANTED(h->name),
        PLANTED(h->turn),
    };
    assert_audit_finds(audit_all, manager, planted, WEIR_COUNT_OF(planted));
    weir_lease_manager_free(manager);
}

/* Units given out that no holder has, and the reverse. */
static void leak_units(void *context)
{
    struct weir_lease_manager *manager = context;
    manager->quotas[0]->pool->granted.high += 1e-3;
    audit_all(manager);
}

static void drop_a_claim(void *context)
{
    struct weir_lease_manager *manager = context;
    struct weir_lease_pool *pool = manager->quotas[0]->pool;
    weir_book_remove(pool->book, pool->holders[0].first);
    audit_all(manager);
}

static void test_sums(void **state)
{
    (void)state;
    struct weir_lease_manager *manager = manager_in_use();
    assert_true(audit_fails(leak_units, manager, NULL));
    assert_true(audit_fails(drop_a_claim, manager, NULL));
    weir_lease_manager_free(manager);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manager),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
