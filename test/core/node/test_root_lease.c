/* SPDX-License-Identifier: MIT
 * test/core/node/test_root_lease.c - leased quotas between roots, regions and
 * holders: messages as bytes, over networks that are slow, lossy and out of
 * order. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "codec/weir_v1.h"
#include "compare.h"
#include "core/node/root_state.h"
#include "io/clock.h"
#include "lease_net.h"
#include "table_maker.h"

/* Allowance for the lease pool's round, the gathering of a client, and a
 * message that goes along with the one before it. */
#define PAUSES (20 * WEIR_MILLISECOND)

static const uint32_t up_to[] = { 0, 1, 2 };
static const struct weir_text nobody = { NULL, 0 };

/* ---- One root ---- */

static void test_asked_and_answered(void **state)
{
    (void)state;
    struct net net;
    uint32_t root = net_begin(&net, 1);
    net_begin_first(&net, root);
    uint32_t a = net_leaf(&net, 1, up_to), b = net_leaf(&net, 1, up_to);
    net_want(&net, a, 0, 30);
    net_want(&net, b, 0, 90);
    net_run(&net, WEIR_SECOND);
    assert_near(net_has(&net, a, 0), 30);
    assert_near(net_has(&net, b, 0), 70);
    struct weir_root_stats stats = net_stats(&net, root);
    assert_int_equal(stats.leased, 1);
    assert_int_equal(stats.lease_holders, 2);
    assert_compare(stats.lease_grants, >=, 2);

    /* A holder that gives back makes room, at once. */
    net_want(&net, a, 0, -1);
    net_run(&net, WEIR_SECOND);
    assert_near(net_has(&net, b, 0), 90);
    assert_int_equal(net_stats(&net, root).lease_holders, 1);

    /* An edit of the limit is pushed. */
    net_edit(&net, 0, 40);
    net_run(&net, WEIR_SECOND);
    assert_near(net_has(&net, b, 0), 40);
    net.ceiling[0] = 40;
    net_run(&net, 100 * WEIR_SECOND);
    assert_near(net_has(&net, b, 0), 40);

    /* A link that is gone for good leaves its units reserved until the lease
     * ends. */
    net_link(&net, b, 0, false);
    net_run(&net, 300 * WEIR_SECOND);
    assert_int_equal(net_stats(&net, root).leased, 0);
    net_fini(&net);
}

static enum weir_lease_error error_of(struct net *net, uint32_t leaf,
                                      uint32_t quota)
{
    struct net_node *node = &net->nodes[leaf];
    return weir_lease_client_error(node->client, node->place[quota]);
}

static void test_what_is_no_leased_quota(void **state)
{
    (void)state;
    struct net net;
    net_init(&net, 1);
    uint32_t root = net_root(&net);
    net_edit(&net, 0, -1);
    net_begin_first(&net, root);
    uint32_t a = net_leaf(&net, 1, up_to);
    net_want(&net, a, 0, 10);
    net_want(&net, a, 1, 10);
    net_run(&net, WEIR_SECOND);
    assert_int_equal(error_of(&net, a, 0), WEIR_LEASE_NOT_LEASED);
    assert_int_equal(error_of(&net, a, 1), WEIR_LEASE_UNKNOWN);
    assert_compare(net_stats(&net, root).lease_refused, >=, 2);
    assert_int_equal(net_stats(&net, root).leased, 0);

    /* The quotas become leased, and the holders notice. */
    net_edit(&net, 0, 100);
    net_edit(&net, 1, 100);
    net_run(&net, 10 * WEIR_SECOND);
    assert_near(net_has(&net, a, 0), 10);
    assert_near(net_has(&net, a, 1), 10);
    net_edit(&net, 0, -1);
    net_run(&net, 20 * WEIR_SECOND);
    assert_int_equal(error_of(&net, a, 0), WEIR_LEASE_NOT_LEASED);
    net_fini(&net);
}

static void test_only_the_master_leases(void **state)
{
    (void)state;
    struct net net;
    net_init(&net, 1);
    uint32_t first = net_root(&net), second = net_root(&net);
    net_edit(&net, 0, 100);
    uint32_t a = net_leaf(&net, 1, &up_to[first]);
    net_want(&net, a, 0, 10);
    net_run(&net, WEIR_SECOND);
    assert_near(net_has(&net, a, 0), 0);
    struct weir_lease_client *client = net.nodes[a].client;
    assert_int_equal(weir_lease_client_elsewhere(client).len, 0);

    /* The master's address, if no link leads there. */
    net_begin_first(&net, second);
    weir_root_lease_end(net.nodes[first].root, net.term,
                        WEIR_TEXT("eu-2.example:7077"), net.now);
    net_run(&net, WEIR_SECOND);
    assert_true(weir_text_equal(weir_lease_client_elsewhere(client),
                                WEIR_TEXT("eu-2.example:7077")));
    /* A welcome has it too; an address that is no text isn't sent. */
    uint32_t b = net_leaf(&net, 1, &up_to[first]);
    net_run(&net, WEIR_SECOND);
    client = net.nodes[b].client;
    assert_int_equal(weir_lease_client_elsewhere(client).len, 17);
    weir_root_lease_end(net.nodes[first].root, net.term, WEIR_TEXT("\xff\xfe"),
                        net.now);
    net_run(&net, WEIR_SECOND);
    assert_int_equal(weir_lease_client_elsewhere(client).len, 0);
    assert_int_equal(weir_lease_client_master(client), WEIR_LEASE_PLACE_NONE);

    /* A link leads there: the master is asked. */
    uint32_t c = net_leaf(&net, 2, up_to);
    net_want(&net, c, 0, 10);
    net_run(&net, WEIR_SECOND);
    assert_near(net_has(&net, c, 0), 10);
    net_fini(&net);
}

static void test_a_newcomer_waits_for_two_round_trips(void **state)
{
    (void)state;
    struct net net;
    uint32_t root = net_begin(&net, 1);
    net.delay = 100 * WEIR_MILLISECOND;
    net_begin_first(&net, root);
    uint32_t leaf[4];
    for (int i = 0; i < 4; i++)
        leaf[i] = net_leaf(&net, 1, up_to);
    for (int i = 0; i < 3; i++)
        net_want(&net, leaf[i], 0, 200);
    net_run(&net, 5 * WEIR_SECOND);
    assert_near(net_sum(&net, 0), 100);
    net_want(&net, leaf[3], 0, 200);
    /* Up, down to the others, their acknowledgement up, down to the new
     * holder. */
    net_run(&net, 4 * net.delay - WEIR_MILLISECOND);
    assert_near(net_has(&net, leaf[3], 0), 0);
    net_run(&net, PAUSES);
    for (int i = 0; i < 4; i++)
        assert_near(net_has(&net, leaf[i], 0), 25);
    net_fini(&net);
}

/* ---- Roots that follow each other ---- */

static void put_away(struct net *net, uint32_t root, struct weir_text name)
{
    struct weir_change change = {
        .removed = true, .quota = { .name = name, .epoch = ++net->epoch }
    };
    weir_root_apply(net->nodes[root].root, &change, net->now);
    weir_root_settle(net->nodes[root].root, net->now);
}

/* Quotas that existed before may be leased out by an earlier term. A quota
 * created since can't be, until a leased one was removed. */
static void test_a_new_quota_needs_no_learning(void **state)
{
    (void)state;
    for (int alone = 0; alone < 2; alone++) {
        struct net net;
        net_init(&net, 1);
        uint32_t root = net_root(&net);
        uint32_t leaf = net_leaf(&net, 1, up_to);
        if (alone)
            weir_root_lease_alone(net.nodes[root].root, true);
        net_edit(&net, 0, 100);
        weir_root_lease_begin(net.nodes[root].root, ++net.term, net.now,
                              net.now);
        net_edit(&net, 1, 100);
        net_want(&net, leaf, 0, 50);
        net_want(&net, leaf, 1, 50);
        net_run(&net, WEIR_SECOND);
        assert_near(net_has(&net, leaf, 0), 0);
        assert_near(net_has(&net, leaf, 1), alone ? 50 : 0);
        net_edit(&net, 0, -1); /* counted */
        net_edit(&net, 2, 100);
        net_want(&net, leaf, 2, 50);
        net_run(&net, WEIR_SECOND);
        assert_near(net_has(&net, leaf, 2), 0);
        net_fini(&net);
    }
}

/* It was leased and removed before this term. */
static void test_a_second_life_is_learned(void **state)
{
    (void)state;
    struct net net;
    net_init(&net, 1);
    uint32_t root = net_root(&net);
    uint32_t leaf = net_leaf(&net, 1, up_to);
    weir_root_lease_alone(net.nodes[root].root, true);
    net_edit(&net, 0, 100);
    net_edit(&net, 3, 100);
    put_away(&net, root, WEIR_TEXT("q3"));
    weir_root_lease_begin(net.nodes[root].root, ++net.term, net.now, net.now);
    net_edit(&net, 3, 100);
    net_want(&net, leaf, 3, 50);
    net_run(&net, WEIR_SECOND);
    assert_near(net_has(&net, leaf, 3), 0);
    net_fini(&net);
}

static uint32_t master_of(const struct net *net)
{
    for (uint32_t i = 0; i < net->count; i++) {
        if (net->nodes[i].root && !net->nodes[i].region &&
            weir_root_leases(net->nodes[i].root))
            return i;
    }
    return UINT32_MAX;
}

/* As the pump of a master does if the election can keep numbers: one at first,
 * another when it is wanted. */
static uint64_t kept;
static void keep(struct net *net)
{
    uint32_t master = master_of(net);
    if (master != UINT32_MAX)
        weir_root_lease_keep(net->nodes[master].root, ++kept, net->now);
}

static void keep_if_wanted(struct net *net)
{
    uint32_t master = master_of(net);
    if (master != UINT32_MAX &&
        weir_root_lease_wants_keep(net->nodes[master].root))
        keep(net);
}

/* The master resigns or is lost; another root is elected later, or at once. */
static void change_master(struct net *net, uint32_t roots)
{
    uint32_t before = master_of(net);
    uint32_t after = (uint32_t)weir_rng_below(&net->rng, roots);
    if (before != UINT32_MAX)
        weir_root_lease_end(net->nodes[before].root, net->term, nobody,
                            net->now);
    weir_instant vacant = net->now;
    net_run(net, weir_rng_below(&net->rng, 90) * WEIR_SECOND);
    weir_root_lease_begin(net->nodes[after].root, ++net->term, vacant,
                          net->now);
    weir_root_lease_found(net->nodes[after].root, kept);
    net_run(net, weir_rng_below(&net->rng, 200) * WEIR_MILLISECOND);
    if (weir_rng_below(&net->rng, 8) > 0)
        keep(net);
}

static void test_the_next_master_takes_over(void **state)
{
    (void)state;
    struct net net;
    uint32_t first = net_begin(&net, 2), second = first + 1;
    net_begin_first(&net, first);
    uint32_t a = net_leaf(&net, 2, up_to), b = net_leaf(&net, 2, up_to);
    net_want(&net, a, 0, 80);
    net_want(&net, b, 0, 80);
    net_run(&net, 5 * WEIR_SECOND);
    assert_near(net_sum(&net, 0), 100);
    weir_root_lease_end(net.nodes[first].root, net.term, nobody, net.now);
    weir_root_lease_begin(net.nodes[second].root, ++net.term, net.now, net.now);
    /* No holder loses anything by it, at any instant. */
    for (int i = 0; i < 100; i++) {
        net_run(&net, 50 * WEIR_MILLISECOND);
        assert_near(net_sum(&net, 0), 100);
    }
    /* Messages that the first one still sends are of an old term. */
    net_run(&net, 200 * WEIR_SECOND);
    assert_near(net_has(&net, a, 0), 50);
    assert_near(net_has(&net, b, 0), 50);
    net_fini(&net);
}

/* With a number kept it knows at once that it has heard all holders, and grants
 * further wants; and it answers no holder before it has kept its own number. */
static void test_the_next_master_has_heard_all(void **state)
{
    (void)state;
    struct net net;
    uint32_t first = net_begin(&net, 2), second = first + 1;
    net_begin_first(&net, first);
    keep(&net);
    uint32_t a = net_leaf(&net, 2, up_to), b = net_leaf(&net, 2, up_to);
    net_want(&net, a, 0, 30);
    net_want(&net, b, 0, 30);
    for (int i = 0; i < 30; i++) {
        net_run(&net, WEIR_SECOND);
        keep_if_wanted(&net);
    }
    assert_near(net_sum(&net, 0), 60);
    weir_root_lease_end(net.nodes[first].root, net.term, nobody, net.now);
    net_want(&net, a, 0, 70);
    weir_root_lease_begin(net.nodes[second].root, ++net.term, net.now, net.now);
    weir_root_lease_found(net.nodes[second].root, kept);
    net_run(&net, 5 * WEIR_SECOND);
    assert_int_equal(net_stats(&net, second).lease_grants, 0);
    assert_near(net_sum(&net, 0), 60);
    keep(&net);
    net_run(&net, WEIR_SECOND);
    assert_near(net_sum(&net, 0), 100);

    /* A holder that comes now waits for another number. */
    uint32_t c = net_leaf(&net, 2, up_to);
    net_want(&net, a, 0, 20);
    net_want(&net, c, 0, 30);
    net_run(&net, 20 * WEIR_SECOND);
    assert_near(net_has(&net, c, 0), 0);
    keep_if_wanted(&net);
    net_run(&net, WEIR_SECOND);
    assert_near(net_has(&net, c, 0), 30);
    net_fini(&net);
}

static void mishap(struct net *net, uint32_t roots, const uint32_t *leaf,
                   uint32_t leaves)
{
    uint32_t who = leaf[weir_rng_below(&net->rng, leaves)];
    uint32_t quota = (uint32_t)weir_rng_below(&net->rng, 2);
    uint32_t up = (uint32_t)weir_rng_below(&net->rng, net->nodes[who].ups);
    keep_if_wanted(net);
    switch (weir_rng_below(&net->rng, 8)) {
    case 0:
        change_master(net, roots);
        break;
    case 1:
        net_link(net, who, up, !net->nodes[who].up[up].up);
        break;
    case 2:
        net_want(net, who, quota, -1);
        break;
    case 7: /* a release is overtaken by later messages */
        net_want(net, who, quota, -1);
        net_run(net, 10 * WEIR_MILLISECOND);
        net_want(net, who, quota, 50);
        break;
    case 3: /* the limit is raised, and lowered only to its old value */
        net_edit(net, 1, weir_rng_below(&net->rng, 2) ? 150 : 300);
        break;
    default:
        net_want(net, who, quota, (double)weir_rng_below(&net->rng, 100));
        break;
    }
}

static void calm(struct net *net, const uint32_t *leaf, uint32_t leaves)
{
    net->lost_ppm = net->doubled_ppm = 0;
    net->jitter = 0;
    for (uint32_t i = 0; i < net->count; i++) {
        for (uint32_t k = 0; k < net->nodes[i].ups; k++) {
            if (!net->nodes[i].up[k].up)
                net_link(net, i, k, true);
        }
    }
    for (uint32_t i = 0; i < leaves; i++)
        net_want(net, leaf[i], 0, 40);
    keep(net);
    for (int i = 0; i < 400; i++) {
        net_run(net, WEIR_SECOND);
        keep_if_wanted(net);
    }
}

static void test_random_masters_and_networks(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("masters");
    for (int life = 0; life < 12; life++) {
        struct net net;
        net_init(&net, weir_rng_next(&rng));
        uint32_t leaf[6];
        for (int i = 0; i < 3; i++)
            net_root(&net);
        net_edit(&net, 0, 100);
        net_edit(&net, 1, 300);
        net.ceiling[0] = 100;
        net.ceiling[1] = 300;
        net.delay = 5 * WEIR_MILLISECOND;
        net.jitter = 300 * WEIR_MILLISECOND;
        net.lost_ppm = 100000;
        net.doubled_ppm = 100000;
        net_begin_first(&net, 0);
        for (int i = 0; i < 6; i++)
            leaf[i] = net_leaf(&net, 3, up_to);
        for (int i = 0; i < 60; i++) {
            mishap(&net, 3, leaf, 6);
            net_run(&net, weir_rng_below(&net.rng, 10 * WEIR_SECOND));
        }
        calm(&net, leaf, 6);
        if (fabs(net_sum(&net, 0) - 100) > 0.2)
            fail_msg("life %d: %g of 100 are in use after a calm", life,
                     net_sum(&net, 0));
        net_fini(&net);
    }
}

/* ---- Regions ---- */

struct tree {
    struct net net;
    uint32_t top, region[2], leaf[2][3];
};

static void plant(struct tree *t, weir_duration delay)
{
    net_init(&t->net, 1);
    t->top = net_root(&t->net);
    net_edit(&t->net, 0, 120);
    t->net.ceiling[0] = 120;
    t->net.delay = delay;
    net_begin_first(&t->net, t->top);
    for (int r = 0; r < 2; r++) {
        t->region[r] = net_region(&t->net, r ? "us" : "eu", 1, &t->top);
        weir_root_lease_begin(t->net.nodes[t->region[r]].root, 1, WEIR_NEVER,
                              t->net.now);
        for (int i = 0; i < 3; i++)
            t->leaf[r][i] = net_leaf(&t->net, 1, &t->region[r]);
    }
    net_run(&t->net, 3 * WEIR_SECOND);
}

static void test_a_region_over_holders(void **state)
{
    (void)state;
    struct tree t;
    plant(&t, 10 * WEIR_MILLISECOND);
    for (int i = 0; i < 3; i++)
        net_want(&t.net, t.leaf[0][i], 0, 20);
    net_run(&t.net, WEIR_SECOND);
    for (int i = 0; i < 3; i++)
        assert_near(net_has(&t.net, t.leaf[0][i], 0), 20);
    assert_int_equal(net_stats(&t.net, t.top).lease_holders, 1);
    assert_int_equal(net_stats(&t.net, t.region[0]).lease_holders, 3);

    /* Another region comes, and all want more than there is. */
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 3; i++)
            net_want(&t.net, t.leaf[r][i], 0, 90);
    }
    net_run(&t.net, 2 * WEIR_SECOND);
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 3; i++)
            assert_near(net_has(&t.net, t.leaf[r][i], 0), 20);
    }
    /* It goes on so, and units given back below go up. */
    net_run(&t.net, 200 * WEIR_SECOND);
    assert_near(net_sum(&t.net, 0), 120);
    for (int i = 0; i < 3; i++)
        net_want(&t.net, t.leaf[0][i], 0, -1);
    net_run(&t.net, 5 * WEIR_SECOND);
    assert_near(net_sum(&t.net, 0), 120);
    assert_int_equal(net_stats(&t.net, t.region[0]).leased, 0);
    assert_int_equal(net_stats(&t.net, t.top).lease_holders, 1);
    net_fini(&t.net);
}

static void test_a_newcomer_below_a_region(void **state)
{
    (void)state;
    struct tree t;
    plant(&t, 100 * WEIR_MILLISECOND);
    for (int i = 0; i < 3; i++)
        net_want(&t.net, t.leaf[1][i], 0, 200);
    net_run(&t.net, 5 * WEIR_SECOND);
    assert_near(net_sum(&t.net, 0), 120);
    net_want(&t.net, t.leaf[0][0], 0, 200);
    /* Up twice, down twice, acknowledgement up twice, down twice. */
    net_run(&t.net, 8 * t.net.delay - WEIR_MILLISECOND);
    assert_near(net_has(&t.net, t.leaf[0][0], 0), 0);
    net_run(&t.net, 2 * PAUSES);
    assert_near(net_has(&t.net, t.leaf[0][0], 0), 30);
    net_fini(&t.net);
}

static void test_a_region_is_cut_off(void **state)
{
    (void)state;
    struct tree t;
    plant(&t, 10 * WEIR_MILLISECOND);
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 3; i++)
            net_want(&t.net, t.leaf[r][i], 0, 90);
    }
    net_run(&t.net, 5 * WEIR_SECOND);
    net_link(&t.net, t.region[0], 0, false);
    /* Its units stay its own for its lease; then the others get them. */
    net_run(&t.net, 30 * WEIR_SECOND);
    assert_near(net_sum(&t.net, 0), 120);
    net_run(&t.net, 200 * WEIR_SECOND);
    for (int i = 0; i < 3; i++) {
        assert_near(net_has(&t.net, t.leaf[0][i], 0), 0);
        assert_near(net_has(&t.net, t.leaf[1][i], 0), 40);
    }
    net_link(&t.net, t.region[0], 0, true);
    net_run(&t.net, 10 * WEIR_SECOND);
    for (int i = 0; i < 3; i++)
        assert_near(net_has(&t.net, t.leaf[0][i], 0), 20);
    net_fini(&t.net);
}

/* A quota that isn't leased any more is still in use at holders that can't be
 * reached. A region gives nothing back that may be in use, for the quota may be
 * leased again. */
static void test_a_region_keeps_what_an_ended_quota_has_out(void **state)
{
    (void)state;
    struct tree t;
    plant(&t, 10 * WEIR_MILLISECOND);
    net_want(&t.net, t.leaf[0][0], 0, 200);
    net_run(&t.net, 5 * WEIR_SECOND);
    assert_near(net_has(&t.net, t.leaf[0][0], 0), 120);
    net_link(&t.net, t.leaf[0][0], 0, false);
    net_edit(&t.net, 0, -1);
    net_run(&t.net, 5 * WEIR_SECOND);
    net_link(&t.net, t.region[0], 0, false);
    net_edit(&t.net, 0, 120);
    net_want(&t.net, t.leaf[1][0], 0, 200);
    net_run(&t.net, 5 * WEIR_SECOND);
    assert_near(net_has(&t.net, t.leaf[0][0], 0), 120);
    net_run(&t.net, 200 * WEIR_SECOND);
    assert_near(net_has(&t.net, t.leaf[1][0], 0), 120);
    net_fini(&t.net);
}

/* One of two roots of a region is master, then the other: its clients keep
 * their units at every instant, and so does the other region. */
static void test_a_region_changes_its_master(void **state)
{
    (void)state;
    struct tree t;
    plant(&t, 10 * WEIR_MILLISECOND);
    uint32_t other = net_region(&t.net, "eu", 1, &t.top);
    const uint32_t both[2] = { t.region[0], other };
    uint32_t leaf[3];
    for (int i = 0; i < 3; i++) {
        leaf[i] = net_leaf(&t.net, 2, both);
        net_want(&t.net, leaf[i], 0, 90);
        net_want(&t.net, t.leaf[1][i], 0, 90);
    }
    net_run(&t.net, 5 * WEIR_SECOND);
    for (int i = 0; i < 3; i++)
        assert_near(net_has(&t.net, leaf[i], 0), 20);
    struct weir_text id;
    struct weir_lease_holder_stats holder;
    const struct weir_root *top = t.net.nodes[t.top].root;
    uint32_t cursor = 0;
    while (weir_lease_manager_look_holder(weir_root_lease_manager(top),
                                          WEIR_TEXT("q0"), &cursor, &id,
                                          &holder, t.net.now)) {
        struct weir_text name = weir_root_lease_client_name(top, id);
        assert_true(weir_text_equal(name, WEIR_TEXT("eu")) ||
                    weir_text_equal(name, WEIR_TEXT("us")));
    }

    weir_root_lease_end(t.net.nodes[t.region[0]].root, 1, nobody, t.net.now);
    weir_root_lease_begin(t.net.nodes[other].root, 2, t.net.now, t.net.now);
    for (int i = 0; i < 3000; i++) {
        net_run(&t.net, 50 * WEIR_MILLISECOND);
        for (int k = 0; k < 3; k++) {
            assert_near(net_has(&t.net, leaf[k], 0), 20);
            assert_near(net_has(&t.net, t.leaf[1][k], 0), 20);
        }
    }
    assert_int_equal(net_stats(&t.net, t.top).lease_holders, 2);
    net_fini(&t.net);
}

static void shake(struct tree *t, uint32_t region)
{
    struct weir_root *root = t->net.nodes[t->region[region]].root;
    uint32_t leaf = t->leaf[region][weir_rng_below(&t->net.rng, 3)];
    switch (weir_rng_below(&t->net.rng, 7)) {
    case 6: /* not leased any more, then leased again */
        net_edit(&t->net, 0, -1);
        net_run(&t->net, weir_rng_below(&t->net.rng, 10) * WEIR_SECOND);
        net_edit(&t->net, 0, 120);
        break;
    case 0:
        net_link(&t->net, t->region[region], 0,
                 !t->net.nodes[t->region[region]].up[0].up);
        break;
    case 1: { /* its mastership is lost, and regained */
        weir_instant vacant = t->net.now;
        uint64_t term = weir_root_lease_term(root);
        weir_root_lease_end(root, term, nobody, t->net.now);
        net_run(&t->net, weir_rng_below(&t->net.rng, 30) * WEIR_SECOND);
        weir_root_lease_begin(root, term + 1, vacant, t->net.now);
        break;
    }
    case 2:
        net_link(&t->net, leaf, 0, !t->net.nodes[leaf].up[0].up);
        break;
    default:
        net_want(&t->net, leaf, 0,
                 (double)weir_rng_below(&t->net.rng, 100) - 10);
        break;
    }
}

static void test_random_trees(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("trees");
    for (int life = 0; life < 10; life++) {
        struct tree t;
        plant(&t, 5 * WEIR_MILLISECOND);
        t.net.rng.state = weir_rng_next(&rng);
        t.net.jitter = 200 * WEIR_MILLISECOND;
        t.net.lost_ppm = 50000;
        t.net.doubled_ppm = 50000;
        for (int i = 0; i < 60; i++) {
            shake(&t, (uint32_t)weir_rng_below(&t.net.rng, 2));
            net_run(&t.net, weir_rng_below(&t.net.rng, 10 * WEIR_SECOND));
        }
        uint32_t leaf[6];
        memcpy(leaf, t.leaf, sizeof(leaf));
        calm(&t.net, leaf, 6);
        if (fabs(net_sum(&t.net, 0) - 120) > 0.5)
            fail_msg("life %d: %g of 120 are in use after a calm", life,
                     net_sum(&t.net, 0));
        net_fini(&t.net);
    }
}

/* ---- Slow peers, and peers that ask for everything ---- */

/* Its output is full: pushes wait, only the newest of each quota, and answers
 * are not delayed. */
static void test_a_peer_is_held(void **state)
{
    (void)state;
    struct net net;
    net_init(&net, 1);
    struct weir_root *root = net.nodes[net_root(&net)].root;
    net_edit(&net, 0, 100);
    net_begin_first(&net, 0);
    uint32_t a = net_leaf(&net, 1, up_to);
    net_want(&net, a, 0, 100);
    net_run(&net, WEIR_SECOND);
    weir_root_pause(root, a, true);
    for (int limit = 90; limit >= 40; limit -= 10) {
        net_edit(&net, 0, limit);
        net_run(&net, 100 * WEIR_MILLISECOND);
    }
    assert_near(net_has(&net, a, 0), 100);
    assert_int_equal(root->peers[a].pushed.count, 1);
    uint64_t pushes = net_stats(&net, 0).lease_pushes;
    weir_root_pause(root, a, false);
    net_run(&net, 100 * WEIR_MILLISECOND);
    assert_near(net_has(&net, a, 0), 40);
    assert_int_equal(net_stats(&net, 0).lease_pushes, pushes + 1);
    /* A link that goes leaves nothing to be sent. */
    weir_root_pause(root, a, true);
    net_edit(&net, 0, 30);
    net_run(&net, 100 * WEIR_MILLISECOND);
    assert_int_equal(root->peers[a].pushed.count, 1);
    net_link(&net, a, 0, false);
    assert_int_equal(root->peers[a].pushed.count, 0);
    net_fini(&net);
}

/* One peer wants every possible name: those beyond the bound are refused, the
 * others answered, and everything that is sent is within its bounds. */
static void test_a_flood_of_names(void **state)
{
    (void)state;
    static struct weir_want wants[WEIR_LEASES_MAX];
    static char names[WEIR_LEASES_MAX][16];
    static const struct weir_band band = { 0, 1, 1e18 };
    struct net net;
    net_init(&net, 1);
    struct weir_root *root = net.nodes[net_root(&net)].root;
    struct weir_change change = { .quota = made_quota_of("f/*", "", 9, 9) };
    change.quota.sharing = WEIR_LEASED;
    change.quota.epoch = change.quota.created = 1;
    assert_int_equal(weir_root_apply(root, &change, net.now), 0);
    weir_root_settle(root, net.now);
    net_begin_first(&net, 0);
    uint32_t a = net_leaf(&net, 1, up_to), peer;
    net_run(&net, WEIR_SECOND);
    struct weir_message out, message = {
        .type = WEIR_MESSAGE_WANTS,
        .session = net.nodes[a].up[0].session,
        .wants = { .term = net.term, .count = WEIR_LEASES_MAX, .wants = wants },
    };
    uint32_t refused = 0, answered = 0;
    for (uint32_t i = 0; i < WEIR_LEASED_MAX / WEIR_LEASES_MAX + 2; i++) {
        for (uint32_t k = 0; k < WEIR_LEASES_MAX; k++) {
            snprintf(names[k], sizeof(names[k]), "f/%u.%u", i, k);
            wants[k] = (struct weir_want){ .name = weir_text_of(names[k]),
                                           .has = 1e18,
                                           .taken = UINT64_MAX,
                                           .band_count = 1,
                                           .bands = &band };
        }
        message.wants.number = i + 1;
        assert_int_equal(weir_root_receive(root, a, &message, net.now), 0);
        while (weir_root_next(root, &peer, &out, net.now)) {
            if (out.type != WEIR_MESSAGE_GRANTS)
                continue;
            assert_compare(weir_v1_size(&out), <=, WEIR_MESSAGE_BYTES_MAX);
            for (size_t k = 0; k < out.grants.count; k++) {
                const struct weir_lease_grant *row = &out.grants.grants[k];
                answered++;
                refused += row->error == WEIR_LEASE_NO_ROOM;
                assert_compare(row->grant.capacity, <=, 9);
            }
        }
    }
    assert_int_equal(answered, WEIR_LEASED_MAX + 2 * WEIR_LEASES_MAX);
    assert_int_equal(refused, 2 * WEIR_LEASES_MAX);
    assert_int_equal(net_stats(&net, 0).leased, WEIR_LEASED_MAX);
    /* A message out of range ends its link. */
    wants[0].has = NAN;
    wants[0].name = WEIR_TEXT("f/0.0");
    message.wants.number++;
    assert_int_equal(weir_root_receive(root, a, &message, net.now),
                     WEIR_EPROTOCOL);
    /* An answer that was not read is dropped with the link. */
    assert_compare(root->peers[a].granted.capacity, >, 0);
    net_link(&net, a, 0, false);
    assert_int_equal(root->peers[a].granted.capacity, 0);
    assert_int_equal(root->peers[a].granted.name_capacity, 0);
    net_fini(&net);
}

/* ---- Doorman's protocol ---- */

static void test_doors(void **state)
{
    (void)state;
    struct net net;
    net_init(&net, 1);
    struct weir_root *root = net.nodes[net_root(&net)].root;
    net_edit(&net, 0, 100);
    net_edit(&net, 1, -1);
    struct weir_band band = { 0, 1, 30 };
    struct weir_lease_pool_ask ask = { .bands = &band, .band_count = 1 };
    struct weir_client who = { WEIR_TEXT("old client"), WEIR_WAY_NONE };
    struct weir_text q0 = WEIR_TEXT("q0"), q1 = WEIR_TEXT("q1");
    struct weir_grant grant;
    assert_int_equal(weir_root_lease_ask(root, &who, q0, &ask, &grant, net.now),
                     WEIR_ENOTREADY);
    net_begin_first(&net, 0);
    assert_int_equal(weir_root_lease_ask(root, &who, q0, &ask, &grant, net.now),
                     0);
    assert_near(grant.capacity, 30);
    assert_compare(grant.lease, >, 0);
    assert_compare(grant.refresh, >, 0);
    assert_int_equal(weir_root_lease_ask(root, &who, q1, &ask, &grant, net.now),
                     WEIR_EQUOTA);
    assert_int_equal(
        weir_root_lease_ask(root, &who, WEIR_TEXT("no"), &ask, &grant, net.now),
        WEIR_ENOENT);
    struct weir_client limiter = { { "\0x", 2 }, WEIR_WAY_NONE };
    assert_int_equal(
        weir_root_lease_ask(root, &limiter, q0, &ask, &grant, net.now),
        WEIR_EINVAL);
    band.wants = NAN;
    assert_int_equal(weir_root_lease_ask(root, &who, q0, &ask, &grant, net.now),
                     WEIR_EINVAL);
    struct weir_leased leased;
    assert_int_equal(weir_root_lease_rule(root, q0, &leased), 0);
    assert_near(leased.rule.capacity, 100);
    assert_int_equal(weir_root_lease_rule(root, q1, &leased), WEIR_EQUOTA);
    weir_root_lease_release(root, &who, q0, 0, net.now);
    net_fini(&net);
}

/* The answer that one of Doorman's clients gets from this root. */
static struct weir_grant ask_at_door(struct weir_root *root, const char *id,
                                     weir_instant now)
{
    const struct weir_band band = { 0, 1, 100 };
    const struct weir_lease_pool_ask ask = { .bands = &band,
                                             .band_count = 1,
                                             .guard = WEIR_DOORMAN_GUARD };
    const struct weir_client who = { weir_text_of(id), WEIR_WAY_NONE };
    struct weir_grant grant;
    assert_int_equal(
        weir_root_lease_ask(root, &who, WEIR_TEXT("q0"), &ask, &grant, now), 0);
    return grant;
}

/* A region's clock may lose a refresh in a lease, and the wall clock of its
 * client may be behind: both use the previous master's grant for that much
 * longer. No other client is granted it until then. */
static void test_a_slow_clock_and_another_master(void **state)
{
    (void)state;
    struct net net;
    net_init(&net, 1);
    struct weir_root *first = net.nodes[net_root(&net)].root;
    struct weir_root *second = net.nodes[net_root(&net)].root;
    struct weir_change change = { .quota = made_quota_of("q0", "", 100, 100) };
    change.quota.sharing = WEIR_LEASED;
    change.quota.lease = 60 * WEIR_SECOND;
    change.quota.refresh = WEIR_SECOND;
    change.quota.epoch = change.quota.created = 1;
    assert_int_equal(weir_root_apply(first, &change, net.now), 0);
    assert_int_equal(weir_root_apply(second, &change, net.now), 0);
    weir_root_settle(first, net.now);
    weir_root_settle(second, net.now);
    net_begin_first(&net, 0);
    struct weir_grant had = ask_at_door(first, "behind", net.now);
    assert_near(had.capacity, 100);
    weir_instant over =
        net.now + had.lease + change.quota.refresh + WEIR_DOORMAN_GUARD;
    weir_root_lease_end(first, net.term, nobody, net.now);
    weir_root_lease_begin(second, ++net.term, net.now, net.now);
    for (; net.now < over; net.now += WEIR_SECOND / 2)
        assert_near(ask_at_door(second, "other", net.now).capacity, 0);
    net.now += 2 * had.lease;
    assert_near(ask_at_door(second, "other", net.now).capacity, 100);
    net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asked_and_answered),
        cmocka_unit_test(test_what_is_no_leased_quota),
        cmocka_unit_test(test_only_the_master_leases),
        cmocka_unit_test(test_a_newcomer_waits_for_two_round_trips),
        cmocka_unit_test(test_a_new_quota_needs_no_learning),
        cmocka_unit_test(test_a_second_life_is_learned),
        cmocka_unit_test(test_the_next_master_takes_over),
        cmocka_unit_test(test_the_next_master_has_heard_all),
        cmocka_unit_test(test_random_masters_and_networks),
        cmocka_unit_test(test_a_region_over_holders),
        cmocka_unit_test(test_a_newcomer_below_a_region),
        cmocka_unit_test(test_a_region_is_cut_off),
        cmocka_unit_test(test_a_region_keeps_what_an_ended_quota_has_out),
        cmocka_unit_test(test_a_region_changes_its_master),
        cmocka_unit_test(test_random_trees),
        cmocka_unit_test(test_a_peer_is_held),
        cmocka_unit_test(test_a_flood_of_names),
        cmocka_unit_test(test_doors),
        cmocka_unit_test(test_a_slow_clock_and_another_master),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
