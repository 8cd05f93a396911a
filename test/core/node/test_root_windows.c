/* SPDX-License-Identifier: MIT
 * test/core/node/test_root_windows.c - a root with adaptive limits of fleets,
 * and clients that send it anything: it goes on, what it answers is within the
 * bounds of the wire, and an honest client's limit stays in its bounds. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/weir_v1.h"
#include "compare.h"
#include "core/concurrency/concurrency_gate.h"
#include "core/node/root_adaptive.h"
#include "core/node/root_state.h"
#include "lease_net.h"
#include "seed.h"

#define MS WEIR_MILLISECOND

static const uint32_t up_to[] = { 0 };

/* Fleets below f; 'max': of each limit. */
static struct weir_change fleet_change(double max)
{
    struct weir_change change = { .removed = false };
    weir_quota_init(&change.quota);
    change.quota.name = WEIR_TEXT("f/*");
    change.quota.kind = WEIR_CONCURRENCY;
    change.quota.sharing = WEIR_ADAPTIVE;
    change.quota.scope = WEIR_SCOPE_FLEET;
    change.quota.max = (uint64_t)(max * WEIR_DECIMAL_ONE);
    change.quota.epoch = change.quota.created = 1;
    return change;
}

/* A root that is master, with a template of fleets below f and a leased quota,
 * 'q0'. 'max': of each limit. */
static struct weir_root *begin_fleets(struct net *net, double max)
{
    net_init(net, 1);
    struct weir_root *root = net->nodes[net_root(net)].root;
    struct weir_change change = fleet_change(max);
    struct weir_diag diag;
    if (weir_quota_check(&change.quota, &diag) < 0)
        fail_msg("%s", diag.text);
    assert_int_equal(weir_root_apply(root, &change, net->now), 0);
    weir_root_settle(root, net->now);
    net->epoch = 1;
    net_edit(net, 0, 100);
    net_begin_first(net, 0);
    return root;
}

static unsigned char block[WEIR_DECODE_ARENA_SIZE];
static uint8_t bytes[WEIR_MESSAGE_BYTES_MAX];

/* Sends wants with windows as a peer's message. Returns what the root said of
 * it. */
static int send_wants(struct net *net, uint32_t leaf, struct weir_wants *wants)
{
    static uint64_t number;
    struct weir_arena arena = { block, sizeof(block), 0 };
    wants->number = ++number;
    wants->term = net->term;
    struct weir_message message = { .type = WEIR_MESSAGE_WANTS,
                                    .session = net->nodes[leaf].up[0].session,
                                    .wants = *wants };
    size_t len = weir_v1_encode(&message, bytes, sizeof(bytes));
    assert_compare(len, >, 0);
    assert_int_equal(weir_v1_decode(bytes, len, true, &arena, &message), 0);
    return weir_root_receive(net->nodes[0].root, leaf, &message, net->now);
}

/* Sends wants, and reads the answers: 'out', of the last grant. */
static int send(struct net *net, uint32_t leaf, struct weir_wants *wants,
                struct weir_lease_grant *out)
{
    struct weir_arena arena = { block, sizeof(block), 0 };
    struct weir_root *root = net->nodes[0].root;
    struct weir_message answer;
    uint32_t peer;
    int error = send_wants(net, leaf, wants);
    weir_root_tick(root, net->now);
    while (weir_root_next(root, &peer, &answer, net->now)) {
        arena.used = 0;
        size_t len = weir_v1_encode(&answer, bytes, sizeof(bytes));
        assert_compare(len, >, 0);
        assert_int_equal(weir_v1_decode(bytes, len, false, &arena, &answer), 0);
        if (answer.type == WEIR_MESSAGE_GRANTS && answer.grants.count > 0 &&
            peer == leaf)
            *out = answer.grants.grants[answer.grants.count - 1];
    }
    return error;
}

/* ---- Doorman's protocol ---- */

/* Its amounts may be any numbers. */
static void amounts_at_a_door(void **state)
{
    (void)state;
    struct net net;
    struct weir_root *root = begin_fleets(&net, 50);
    static const double wrong[] = { NAN, -1, INFINITY, -INFINITY, 2e18 };
    const struct weir_client client = { WEIR_TEXT("old"), WEIR_WAY_NONE };
    struct weir_band band = { 0, 1, 5 };
    struct weir_grant grant;
    for (size_t i = 0; i < 2 * WEIR_COUNT_OF(wrong); i++) {
        struct weir_lease_pool_ask ask = { .bands = &band, .band_count = 1 };
        bool has = i < WEIR_COUNT_OF(wrong);
        double amount = wrong[i % WEIR_COUNT_OF(wrong)];
        ask.has = has ? amount : 0;
        band.wants = has ? 5 : amount;
        assert_int_equal(weir_root_lease_ask(root, &client, WEIR_TEXT("f/a"),
                                             &ask, &grant, net.now),
                         WEIR_EINVAL);
        weir_root_tick(root, net.now);
    }
    band.wants = 5;
    struct weir_lease_pool_ask ask = { .bands = &band, .band_count = 1 };
    net.now += 60 * WEIR_SECOND;
    weir_root_tick(root, net.now);
    assert_int_equal(weir_root_lease_ask(root, &client, WEIR_TEXT("f/a"), &ask,
                                         &grant, net.now),
                     0);
    net_fini(&net);
}

/* ---- Limiters ---- */

static double limit_of(struct weir_root *root, const char *name,
                       weir_instant now)
{
    struct weir_fleet_limit_view view;
    if (!weir_root_adaptive_view(root, weir_text_of(name), &view, now))
        return -1;
    return view.controller.limit;
}

/* While a master learns, clients say that they have any amounts. */
static void amounts_while_a_master_learns(void **state)
{
    (void)state;
    struct net net;
    struct weir_root *root = begin_fleets(&net, 50);
    weir_root_lease_begin(root, ++net.term, net.now, net.now);
    uint32_t a = net_leaf(&net, 1, up_to), b = net_leaf(&net, 1, up_to);
    net_run(&net, WEIR_SECOND);
    const struct weir_band band = { 0, 1, 1e18 };
    struct weir_lease_grant grant = { .error = WEIR_LEASE_UNKNOWN };
    const struct weir_want want = {
        .name = WEIR_TEXT("f/a"), .has = 1e18, .band_count = 1, .bands = &band
    };
    for (int i = 0; i < 100; i++) {
        struct weir_wants wants = { .count = 1, .wants = &want };
        assert_int_equal(send(&net, i % 2 ? a : b, &wants, &grant), 0);
        net.now += 300 * MS;
    }
    assert_int_equal(grant.error, WEIR_LEASE_GRANTED);
    assert_compare(limit_of(root, "f/a", net.now), <=, 50);
    net_fini(&net);
}

/* Nothing is out, and there is nothing to learn: the first client of a limit
 * wants 5, and the limit is the controller's initial one. */
static void a_new_limit_is_the_initial_one(void **state)
{
    (void)state;
    struct net net;
    struct weir_root *root = begin_fleets(&net, 50);
    uint32_t a = net_leaf(&net, 1, up_to);
    net_run(&net, WEIR_SECOND);
    const struct weir_band band = { 0, 1, 5 };
    const struct weir_want want = {
        .name = WEIR_TEXT("f/a"), .has = 1, .band_count = 1, .bands = &band
    };
    const struct weir_latency_count bin = { 0, 1 };
    const struct weir_want_window window = {
        .batch = { .peak = 5, .count = 1, .bins = &bin }
    };
    struct weir_wants wants = {
        .count = 1, .wants = &want, .window_count = 1, .windows = &window
    };
    struct weir_lease_grant grant;
    struct weir_controller_options options;
    weir_controller_defaults(&options, WEIR_CONTROLLER_TARGET);
    assert_int_equal(send(&net, a, &wants, &grant), 0);
    assert_int_equal(grant.error, WEIR_LEASE_GRANTED);
    assert_true(grant.grant.capacity == 5);
    assert_true(limit_of(root, "f/a", net.now) == options.initial);
    net_fini(&net);
}

/* One client has all of a new limit, and has measured nothing yet. Another one
 * says that it goes by one permit, as a process without a part does: there is
 * nothing to learn, and the limit is no more for that. */
static void a_newcomer_of_a_full_limit(void **state)
{
    (void)state;
    struct net net;
    begin_fleets(&net, 50);
    uint32_t a = net_leaf(&net, 1, up_to), b = net_leaf(&net, 1, up_to);
    net_run(&net, WEIR_SECOND);
    const struct weir_band band = { 0, 1, 100 };
    struct weir_want want = {
        .name = WEIR_TEXT("f/a"), .has = 1, .band_count = 1, .bands = &band
    };
    struct weir_wants wants = { .count = 1, .wants = &want };
    struct weir_lease_grant grant = { .error = WEIR_LEASE_UNKNOWN };
    assert_int_equal(send_wants(&net, a, &wants), 0);
    assert_int_equal(send(&net, b, &wants, &grant), 0);
    assert_int_equal(grant.error, WEIR_LEASE_GRANTED);
    assert_true(grant.grant.capacity == 0);
    net_fini(&net);
}

/* The same name in every want, each with a window; of a quota that isn't a
 * fleet's, and of none. */
static void windows_of_anything(void **state)
{
    (void)state;
    static const char *const names[] = { "f/a", "f/a", "q0", "none", "f/b" };
    struct net net;
    struct weir_root *root = begin_fleets(&net, 50);
    uint32_t a = net_leaf(&net, 1, up_to);
    net_run(&net, WEIR_SECOND);
    const struct weir_band band = { 0, 1, 5 };
    const struct weir_latency_count most = { 0, WEIR_WINDOW_SAMPLES_MAX };
    struct weir_lease_grant grant;
    struct weir_want rows[WEIR_WINDOWS_MAX];
    struct weir_want_window windows[WEIR_WINDOWS_MAX];
    for (uint32_t i = 0; i < WEIR_WINDOWS_MAX; i++) {
        rows[i] = (struct weir_want){ .name = weir_text_of(names[i % 5]),
                                      .band_count = 1,
                                      .bands = &band };
        windows[i] = (struct weir_want_window){
            .want = i,
            .batch = { .slow = most.count,
                       .dropped = most.count,
                       .peak = WEIR_CONCURRENCY_GATE_UNITS_MAX,
                       .overdue = WEIR_CONCURRENCY_GATE_UNITS_MAX,
                       .overdue_age = UINT64_MAX,
                       .count = 1,
                       .bins = &most }
        };
    }
    for (int i = 0; i < 1000; i++) {
        struct weir_wants wants = { .count = WEIR_WINDOWS_MAX,
                                    .wants = rows,
                                    .window_count = WEIR_WINDOWS_MAX,
                                    .windows = windows };
        assert_int_equal(send(&net, a, &wants, &grant), 0);
        net.now += (weir_duration)(i % 7) * 20 * MS;
    }
    assert_compare(limit_of(root, "f/a", net.now), >, 0);
    assert_compare(limit_of(root, "f/a", net.now), <=, 50);
    assert_true(limit_of(root, "q0", net.now) == -1);
    assert_true(limit_of(root, "none", net.now) == -1);
    net_fini(&net);
}

/* Names of a template beyond the bound of limits are refused, and cost nothing
 * for longer than their leases. */
static void a_flood_of_fleets(void **state)
{
    (void)state;
    static char names[WEIR_LEASES_MAX][16];
    static struct weir_want rows[WEIR_LEASES_MAX];
    static const struct weir_band band = { 0, 1, 5 };
    struct net net;
    struct weir_root *root = begin_fleets(&net, 50);
    uint32_t a = net_leaf(&net, 1, up_to), b = net_leaf(&net, 1, up_to);
    net_run(&net, WEIR_SECOND);
    struct weir_lease_grant grant;
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < WEIR_LEASES_MAX; k++) {
            snprintf(names[k], sizeof(names[k]), "f/%u.%u", i, k);
            rows[k] = (struct weir_want){ .name = weir_text_of(names[k]),
                                          .band_count = 1,
                                          .bands = &band };
        }
        struct weir_wants wants = { .count = WEIR_LEASES_MAX, .wants = rows };
        assert_int_equal(send(&net, a, &wants, &grant), 0);
        assert_int_equal(grant.error,
                         i == 0 ? WEIR_LEASE_GRANTED : WEIR_LEASE_NO_ROOM);
    }
    assert_true(limit_of(root, "f/0.0", net.now) > 0);
    assert_true(limit_of(root, "f/1.0", net.now) == -1);
    net_link(&net, a, 0, false);
    net_run(&net, 4 * WEIR_FLEET_LEASE);
    assert_true(limit_of(root, "f/0.0", net.now) == -1);
    struct weir_wants wants = { .count = 1, .wants = rows };
    assert_int_equal(send(&net, b, &wants, &grant), 0);
    assert_int_equal(grant.error, WEIR_LEASE_GRANTED);
    net_fini(&net);
}

/* A process that names bands of no class has no more shares than another. */
static void bands_of_no_class_are_one(void **state)
{
    (void)state;
    struct net net;
    struct weir_root *root = begin_fleets(&net, 20);
    struct weir_change change = fleet_change(20);
    change.quota.classes = WEIR_TEXT("sync:10%,bulk");
    change.quota.epoch = 200;
    assert_int_equal(weir_root_apply(root, &change, net.now), 0);
    weir_root_settle(root, net.now);
    uint32_t a = net_leaf(&net, 1, up_to), b = net_leaf(&net, 1, up_to);
    net_run(&net, WEIR_SECOND);
    const struct weir_band honest = { 0, 1, 90 };
    struct weir_band many[WEIR_LEASE_GUARANTEES_MAX + 1];
    for (int i = 0; i < 9; i++)
        many[i] = (struct weir_band){ 8 - i, 1, 10 };
    struct weir_want one = {
        .name = WEIR_TEXT("f/a"), .has = 1, .band_count = 1, .bands = &honest
    };
    struct weir_want all = {
        .name = WEIR_TEXT("f/a"), .has = 1, .band_count = 9, .bands = many
    };
    struct weir_lease_grant grant = { .error = WEIR_LEASE_UNKNOWN };
    double has[2] = { 0, 0 };
    for (int i = 0; i < 20; i++) {
        struct weir_wants wants = { .count = 1, .wants = &one };
        assert_int_equal(send(&net, a, &wants, &grant), 0);
        assert_int_equal(grant.error, WEIR_LEASE_GRANTED);
        has[0] = one.has = grant.grant.capacity;
        one.taken = grant.grant.serial;
        wants = (struct weir_wants){ .count = 1, .wants = &all };
        assert_int_equal(send(&net, b, &wants, &grant), 0);
        assert_int_equal(grant.error, WEIR_LEASE_GRANTED);
        has[1] = all.has = grant.grant.capacity;
        all.taken = grant.grant.serial;
        net.now += 500 * MS;
    }
    print_message("one band: %.2f, nine: %.2f\n", has[0], has[1]);
    assert_compare(has[1], <=, 1.2 * has[0]);
    net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bands_of_no_class_are_one),
        cmocka_unit_test(amounts_at_a_door),
        cmocka_unit_test(amounts_while_a_master_learns),
        cmocka_unit_test(a_new_limit_is_the_initial_one),
        cmocka_unit_test(a_newcomer_of_a_full_limit),
        cmocka_unit_test(windows_of_anything),
        cmocka_unit_test(a_flood_of_fleets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
