/* SPDX-License-Identifier: MIT
 * test/core/node/test_root_waits.c - holders that wait at a root until a number
 * is kept beside the mastership: their request is noted, and answered later. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/node/root_state.h"
#include "lease_net.h"
#include "table_maker.h"

static const uint32_t up_to[] = { 0, 1 };
static const struct weir_text nobody = { NULL, 0 };

static void keep(struct net *net, uint32_t root, uint64_t number)
{
    weir_root_lease_keep(net->nodes[root].root, number, net->now);
}

/* If everything is handed out, the holders are granted less, without a roster
 * token. When they have acknowledged that, no new holder has to wait for a
 * number. A waiting holder's latest request counts, also when the number is
 * kept after all. */
static void test_who_waits_is_let_in(void **state)
{
    (void)state;
    struct net net;
    uint32_t root = net_begin(&net, 1);
    net_begin_first(&net, root);
    keep(&net, root, 1);
    uint32_t a = net_leaf(&net, 1, up_to), b = net_leaf(&net, 1, up_to);
    uint32_t c = net_leaf(&net, 1, up_to);
    net_want(&net, a, 0, 80);
    net_want(&net, b, 0, 80);
    net_run(&net, 60 * WEIR_SECOND);
    net_want(&net, c, 0, 10);
    assert_near(net_has(&net, c, 0), 0);
    net_run(&net, 15 * WEIR_MILLISECOND);
    assert_true(weir_root_lease_wants_keep(net.nodes[root].root));
    net_run(&net, 85 * WEIR_MILLISECOND);
    assert_near(net_has(&net, c, 0), 10);
    net_want(&net, c, 0, 60);
    net_run(&net, 2 * WEIR_SECOND);
    assert_near(net_has(&net, c, 0), 100. / 3);
    keep(&net, root, 2);
    net_run(&net, 2 * WEIR_SECOND);
    assert_near(net_has(&net, c, 0), 100. / 3);
    net_fini(&net);
}

/* A waiting holder sends a newer request, and then gives everything back. */
static void test_what_waits_is_overtaken(void **state)
{
    (void)state;
    struct net net;
    uint32_t root = net_begin(&net, 1);
    net_begin_first(&net, root);
    keep(&net, root, 1);
    uint32_t a = net_leaf(&net, 1, up_to), b = net_leaf(&net, 1, up_to);
    net_want(&net, a, 0, 20);
    net_run(&net, 60 * WEIR_SECOND);
    for (int released = 0; released < 2; released++) {
        net_want(&net, b, 0, 10);
        net_run(&net, WEIR_SECOND / 4);
        assert_near(net_has(&net, b, 0), 0);
        net_want(&net, b, 0, released ? -1 : 50);
        net_run(&net, WEIR_SECOND);
        keep(&net, root, 2 + (uint64_t)released);
        net_run(&net, WEIR_SECOND);
        assert_near(net_has(&net, b, 0), released ? 0 : 50);
        struct weir_leased_stats stats;
        assert_true(weir_lease_manager_look_of(
            weir_root_lease_manager(net.nodes[root].root), WEIR_TEXT("q0"),
            &stats, net.now));
        assert_int_equal(stats.pool.holders, released ? 1 : 2);
        net_want(&net, b, 0, -1);
        net_run(&net, 60 * WEIR_SECOND);
    }
    net_fini(&net);
}

/* A number was found, or may have been, and no other can be kept: all wait
 * until everything leased before is over. If there was no number, none
 * waits. */
static void test_no_number_can_be_kept(void **state)
{
    (void)state;
    static const uint64_t found[] = { 7, WEIR_KEPT_UNKNOWN, 0 };
    for (size_t i = 0; i < WEIR_COUNT_OF(found); i++) {
        struct net net;
        uint32_t first = net_begin(&net, 2), second = first + 1;
        net_begin_first(&net, first);
        uint32_t a = net_leaf(&net, 2, up_to), b = net_leaf(&net, 2, up_to);
        net_want(&net, a, 0, 60);
        net_run(&net, 5 * WEIR_SECOND);
        weir_root_lease_end(net.nodes[first].root, net.term, nobody, net.now);
        weir_root_lease_begin(net.nodes[second].root, ++net.term, net.now,
                              net.now);
        weir_root_lease_found(net.nodes[second].root, found[i]);
        net_want(&net, b, 0, 50);
        net_run(&net, 20 * WEIR_SECOND);
        assert_near(net_sum(&net, 0), 60);
        assert_near(net_has(&net, b, 0), found[i] != 0 ? 0 : 30);
        assert_true((net_stats(&net, second).lease_grants == 0) ==
                    (found[i] != 0));
        net_run(&net, 200 * WEIR_SECOND);
        assert_near(net_has(&net, a, 0), 50);
        assert_near(net_has(&net, b, 0), 50);
        net_fini(&net);
    }
}

/* Takes the root's messages; returns the number of grants in them. */
static size_t read_grants(struct net *net, struct weir_root *root)
{
    uint32_t peer;
    struct weir_message out;
    size_t count = 0;
    while (weir_root_next(root, &peer, &out, net->now))
        count += out.type == WEIR_MESSAGE_GRANTS ? out.grants.count : 0;
    return count;
}

/* More wait for a number to be kept than there is room for: the others aren't
 * answered then, but their requests were noted, and they are answered when they
 * ask again. */
static void test_more_wait_than_there_is_room_for(void **state)
{
    (void)state;
    enum { ROOM = 4096, MORE = 100 };
    static char names[ROOM + MORE][16];
    static const struct weir_band band = { 0, 1, 5 };
    struct net net;
    net_init(&net, 1);
    struct weir_root *root = net.nodes[net_root(&net)].root;
    struct weir_change change = { .quota = made_quota_of("f/*", "", 9, 9) };
    change.quota.sharing = WEIR_LEASED;
    change.quota.epoch = change.quota.created = 1;
    assert_int_equal(weir_root_apply(root, &change, net.now), 0);
    weir_root_settle(root, net.now);
    weir_root_lease_begin(root, ++net.term, net.now, net.now);
    weir_root_lease_found(root, 7);
    uint32_t a = net_leaf(&net, 1, up_to);
    net_run(&net, WEIR_SECOND);
    struct weir_want want = { .has = 2, .band_count = 1, .bands = &band };
    struct weir_message message = {
        .type = WEIR_MESSAGE_WANTS,
        .session = net.nodes[a].up[0].session,
        .wants = { .term = net.term, .count = 1, .wants = &want },
    };
    for (uint32_t i = 0; i < ROOM + MORE; i++) {
        snprintf(names[i], sizeof(names[i]), "f/%u", i);
        want.name = weir_text_of(names[i]);
        message.wants.number++;
        assert_int_equal(weir_root_receive(root, a, &message, net.now), 0);
    }
    assert_int_equal(read_grants(&net, root), 0);
    assert_int_equal(net_stats(&net, 0).lease_dropped, MORE);
    weir_root_lease_keep(root, 8, net.now);
    assert_int_equal(read_grants(&net, root), ROOM);

    struct weir_leased_stats last;
    assert_true(weir_lease_manager_look_of(weir_root_lease_manager(root),
                                           want.name, &last, net.now));
    assert_near(last.pool.out, 2);
    message.wants.number++;
    assert_int_equal(weir_root_receive(root, a, &message, net.now), 0);
    assert_int_equal(read_grants(&net, root), 1);
    net_fini(&net);
}

/* A message that was sent to a root before it became master, and read
 * afterwards, is outdated: the master in between may have granted more. */
static void test_a_word_from_before(void **state)
{
    (void)state;
    static const struct weir_band band = { 0, 1, 80 };
    struct net net;
    uint32_t first = net_begin(&net, 2), second = first + 1;
    net_begin_first(&net, first);
    uint32_t a = net_leaf(&net, 2, up_to);
    net_want(&net, a, 0, 80);
    net_run(&net, 5 * WEIR_SECOND);
    assert_near(net_has(&net, a, 0), 80);
    weir_root_lease_end(net.nodes[first].root, net.term, nobody, net.now);
    weir_root_lease_begin(net.nodes[second].root, ++net.term, net.now, net.now);
    struct weir_want want = {
        .name = WEIR_TEXT("q0"), .has = 1, .band_count = 1, .bands = &band
    };
    struct weir_message message = {
        .type = WEIR_MESSAGE_WANTS,
        .session = net.nodes[a].up[1].session,
        .wants = { .number = 1000,
                   .term = net.term - 1,
                   .count = 1,
                   .wants = &want },
    };
    struct weir_root *root = net.nodes[second].root;
    struct weir_leased_stats leased;
    assert_int_equal(weir_root_receive(root, a, &message, net.now), 0);
    assert_false(weir_lease_manager_look_of(weir_root_lease_manager(root),
                                            want.name, &leased, net.now));
    /* Its sender is told which root is master, and sends it anew. */
    net_run(&net, WEIR_SECOND);
    assert_true(weir_lease_manager_look_of(weir_root_lease_manager(root),
                                           want.name, &leased, net.now));
    assert_near(leased.pool.out, 80);
    net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_waits_is_let_in),
        cmocka_unit_test(test_what_waits_is_overtaken),
        cmocka_unit_test(test_no_number_can_be_kept),
        cmocka_unit_test(test_more_wait_than_there_is_room_for),
        cmocka_unit_test(test_a_word_from_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
