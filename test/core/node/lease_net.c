/* SPDX-License-Identifier: MIT
 * test/core/node/lease_net.c - see lease_net.h. Events in the order of their
 * time: a message arrives, or a node's deadline comes. */

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
#include "core/node/root_state.h"
#include "io/clock.h"
#include "lease_net.h"
#include "table_maker.h"

/* Most messages that a node sends in one turn. */
#define TURNS 1000

struct net_packet {
    struct net_packet *next;
    weir_instant at;
    uint32_t below, link; /* the node below, and its link */
    bool to_root;
    size_t len;
    uint8_t bytes[];
};

static const struct weir_store_id STORE = { .uuid = { 7 } };

/* ---- Life ---- */

void net_init(struct net *net, uint64_t seed)
{
    *net = (struct net){ .rng = { seed },
                         .now = NET_BEGIN,
                         .delay = 10 * WEIR_MILLISECOND };
}

static void drop_packets(struct net *net, uint32_t below, uint32_t link)
{
    struct net_packet **at = &net->packets;
    while (*at) {
        struct net_packet *packet = *at;
        if (packet->below != below || packet->link != link) {
            at = &packet->next;
            continue;
        }
        *at = packet->next;
        free(packet);
    }
}

void net_fini(struct net *net)
{
    for (uint32_t i = 0; i < net->count; i++) {
        struct net_node *node = &net->nodes[i];
        for (uint32_t k = 0; k < node->ups; k++)
            drop_packets(net, i, k);
        if (node->region)
            weir_region_free(node->region);
        else
            weir_root_free(node->root);
        free(node->block);
    }
    assert_null(net->packets);
}

static struct weir_root_options root_options(const struct net *net)
{
    struct weir_root_options options = {
        .mem = weir_mem_system,
        .seed = net->count + 1,
        .peers_max = NET_NODES,
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
    };
    options.incarnation[0] = (uint8_t)(net->count + 1);
    return options;
}

static struct net_node *add_node(struct net *net, uint32_t ups,
                                 const uint32_t *up)
{
    assert_compare(net->count, <, NET_NODES);
    assert_compare(ups, <=, NET_UPS);
    struct net_node *node = &net->nodes[net->count];
    node->incarnation[0] = (uint8_t)(net->count + 1);
    node->ups = ups;
    for (uint32_t i = 0; i < ups; i++)
        node->up[i].node = up[i];
    for (uint32_t q = 0; q < NET_QUOTAS; q++)
        node->place[q] = WEIR_LEASE_PLACE_NONE;
    return node;
}

static uint32_t link_all(struct net *net)
{
    uint32_t index = net->count++;
    for (uint32_t i = 0; i < net->nodes[index].ups; i++)
        net_link(net, index, i, true);
    return index;
}

uint32_t net_root(struct net *net)
{
    struct weir_root_options options = root_options(net);
    struct net_node *node = add_node(net, 0, NULL);
    node->root = weir_root_new(&options, net->now);
    assert_int_equal(weir_root_store(node->root, &STORE, 0, 0, net->now), 0);
    weir_root_settle(node->root, net->now);
    return link_all(net);
}

uint32_t net_region(struct net *net, const char *name, uint32_t ups,
                    const uint32_t *up)
{
    struct weir_region_options options = { .root = root_options(net),
                                           .name = weir_text_of(name),
                                           .upstreams = ups,
                                           .slots = 16 };
    struct net_node *node = add_node(net, ups, up);
    node->region = weir_region_new(&options, net->now);
    node->root = weir_region_root(node->region);
    return link_all(net);
}

uint32_t net_leaf(struct net *net, uint32_t ups, const uint32_t *up)
{
    struct weir_lease_client_options options = { .places = NET_QUOTAS,
                                                 .links = ups,
                                                 .seed = net->count + 1 };
    struct net_node *node = add_node(net, ups, up);
    size_t size = weir_lease_client_size(&options);
    size = (size + WEIR_CACHE_LINE - 1) / WEIR_CACHE_LINE * WEIR_CACHE_LINE;
    node->block = aligned_alloc(WEIR_CACHE_LINE, size);
    memset(node->block, 0, size);
    node->client = weir_lease_client_init(node->block, &options);
    return link_all(net);
}

/* ---- The network ---- */

static void post(struct net *net, uint32_t below, uint32_t link, bool to_root,
                 const struct weir_message *message)
{
    size_t len = weir_v1_size(message);
    struct net_packet *packet = malloc(sizeof(*packet) + len);
    *packet = (struct net_packet){ .at = net->now + net->delay,
                                   .below = below,
                                   .link = link,
                                   .to_root = to_root,
                                   .len = len };
    if (net->jitter > 0)
        packet->at += weir_rng_below(&net->rng, net->jitter);
    assert_int_equal(weir_v1_encode(message, packet->bytes, len), len);
    struct net_packet **at = &net->packets;
    while (*at && (*at)->at <= packet->at)
        at = &(*at)->next;
    packet->next = *at;
    *at = packet;
}

static bool chance(struct net *net, uint32_t ppm)
{
    return ppm > 0 && weir_rng_below(&net->rng, 1000000) < ppm;
}

/* Sessions begin with a hello, which is never lost: the test is about the
 * messages after it. */
static void send(struct net *net, uint32_t below, uint32_t link, bool to_root,
                 const struct weir_message *message)
{
    bool begins = message->type == WEIR_MESSAGE_HELLO ||
                  message->type == WEIR_MESSAGE_WELCOME;
    if (!net->nodes[below].up[link].up)
        return;
    net->sent++;
    net->wants += message->type == WEIR_MESSAGE_WANTS;
    if (begins || !chance(net, net->lost_ppm))
        post(net, below, link, to_root, message);
    if (!begins && chance(net, net->doubled_ppm))
        post(net, below, link, to_root, message);
}

static void say_hello(struct net *net, uint32_t index, uint32_t link)
{
    struct net_node *node = &net->nodes[index];
    struct weir_message message = {
        .type = WEIR_MESSAGE_HELLO,
        .session = ++net->sessions,
        .hello = { .protocol = WEIR_PROTOCOL, .name = WEIR_TEXT("leaf") },
    };
    memcpy(message.hello.incarnation, node->incarnation, WEIR_INCARNATION_SIZE);
    node->up[link].session = message.session;
    send(net, index, link, true, &message);
}

void net_link(struct net *net, uint32_t index, uint32_t link, bool up)
{
    static const struct weir_lease_link down = { .up = false };
    struct net_node *node = &net->nodes[index];
    struct net_node *above = &net->nodes[node->up[link].node];
    drop_packets(net, index, link);
    node->up[link].up = up;
    weir_root_link(above->root, index, up, net->now);
    if (node->region)
        weir_region_up_link(node->region, link, up, net->now);
    else
        weir_lease_client_link(node->client, link, &down, net->now);
    if (up && node->client)
        say_hello(net, index, link);
}

/* ---- Nodes ---- */

static void welcomed(struct net *net, struct net_node *node, uint32_t link,
                     const struct weir_welcome *welcome)
{
    struct weir_lease_link said = { .up = welcome->ready,
                                    .leases = welcome->leases,
                                    .term = welcome->term,
                                    .root = welcome->incarnation[0],
                                    .master = welcome->master };
    weir_lease_client_link(node->client, link, &said, net->now);
}

static void take_leaf(struct net *net, struct net_node *node, uint32_t link,
                      const struct weir_message *message)
{
    if (message->session != node->up[link].session)
        return;
    if (message->type == WEIR_MESSAGE_WELCOME)
        welcomed(net, node, link, &message->welcome);
    if (message->type == WEIR_MESSAGE_GRANTS)
        weir_lease_client_take(node->client, link, &message->grants, net->now);
}

static void deliver(struct net *net, const struct net_packet *packet)
{
    static unsigned char room[8u << 20];
    struct weir_arena arena = { .base = room, .size = sizeof(room) };
    struct weir_message message;
    struct net_node *node = &net->nodes[packet->below];
    assert_int_equal(weir_v1_decode(packet->bytes, packet->len, packet->to_root,
                                    &arena, &message),
                     0);
    int error = 0;
    if (packet->to_root)
        error = weir_root_receive(net->nodes[node->up[packet->link].node].root,
                                  packet->below, &message, net->now);
    else if (node->region)
        error = weir_region_up_receive(node->region, packet->link, &message,
                                       net->now);
    else
        take_leaf(net, node, packet->link, &message);
    assert_int_equal(error, 0);
}

static uint32_t link_to(const struct net_node *node, uint32_t above)
{
    uint32_t link = 0;
    while (node->up[link].node != above)
        link++;
    assert_compare(link, <, node->ups);
    return link;
}

static void turn_root(struct net *net, uint32_t index)
{
    struct net_node *node = &net->nodes[index];
    struct weir_message message;
    uint32_t peer, link;
    if (node->region)
        weir_region_tick(node->region, net->now);
    else
        weir_root_tick(node->root, net->now);
    while (weir_root_next(node->root, &peer, &message, net->now))
        send(net, peer, link_to(&net->nodes[peer], index), false, &message);
    while (node->region &&
           weir_region_up_next(node->region, &link, &message, net->now))
        send(net, index, link, true, &message);
}

static void turn_leaf(struct net *net, uint32_t index)
{
    struct net_node *node = &net->nodes[index];
    struct weir_message message = { .type = WEIR_MESSAGE_WANTS };
    uint32_t link, place;
    while (weir_lease_client_changed(node->client, &place, net->now)) {
    }
    while (
        weir_lease_client_next(node->client, &link, &message.wants, net->now)) {
        message.session = node->up[link].session;
        send(net, index, link, true, &message);
    }
}

static weir_instant deadline(const struct net *net, uint32_t index)
{
    const struct net_node *node = &net->nodes[index];
    if (node->client)
        return weir_lease_client_deadline(node->client, net->now);
    if (node->region)
        return weir_region_deadline(node->region, net->now);
    return weir_root_deadline(node->root, net->now);
}

static void turn(struct net *net, uint32_t index)
{
    for (int work = 0; work < TURNS; work++) {
        if (net->nodes[index].client)
            turn_leaf(net, index);
        else
            turn_root(net, index);
        if (deadline(net, index) > net->now)
            return;
    }
    fail_msg("node %u is never done", index);
}

/* ---- Quotas ---- */

void net_edit(struct net *net, uint32_t quota, int64_t limit)
{
    char name[8];
    snprintf(name, sizeof(name), "q%u", quota);
    uint64_t units = limit >= 0 ? (uint64_t)limit : 1000;
    struct weir_change change = { .quota =
                                      made_quota_of(name, "", units, units) };
    net->epoch++;
    change.quota.epoch = net->epoch;
    change.quota.created = quota + 1;
    change.quota.sharing = limit >= 0 ? WEIR_LEASED : WEIR_COUNTED;
    for (uint32_t i = 0; i < net->count; i++) {
        struct weir_root *root = net->nodes[i].root;
        if (!root || net->nodes[i].region)
            continue;
        assert_int_equal(weir_root_store(root, &STORE, net->epoch, 0, net->now),
                         0);
        assert_int_equal(weir_root_apply(root, &change, net->now), 0);
        weir_root_settle(root, net->now);
    }
}

void net_want(struct net *net, uint32_t leaf, uint32_t quota, double wants)
{
    struct net_node *node = &net->nodes[leaf];
    uint32_t *place = &node->place[quota];
    char name[8];
    snprintf(name, sizeof(name), "q%u", quota);
    struct weir_lease_want want = { .name = weir_text_of(name),
                                    .on_stale = WEIR_STALE_LIMIT };
    if (wants >= 0 && *place == WEIR_LEASE_PLACE_NONE)
        *place = weir_lease_client_open(node->client, &want, net->now);
    if (wants >= 0)
        weir_lease_client_want(node->client, *place, wants, net->now);
    else if (*place != WEIR_LEASE_PLACE_NONE)
        weir_lease_client_close(node->client, *place, net->now);
    if (wants < 0)
        *place = WEIR_LEASE_PLACE_NONE;
    turn(net, leaf);
}

uint32_t net_begin(struct net *net, uint32_t roots)
{
    net_init(net, 1);
    uint32_t first = net_root(net);
    for (uint32_t i = 1; i < roots; i++)
        net_root(net);
    net_edit(net, 0, 100);
    net->ceiling[0] = 100;
    return first;
}

void net_begin_first(struct net *net, uint32_t root)
{
    weir_root_lease_begin(net->nodes[root].root, ++net->term, WEIR_NEVER,
                          net->now);
}

double net_has(const struct net *net, uint32_t leaf, uint32_t quota)
{
    const struct net_node *node = &net->nodes[leaf];
    if (!node->client || node->place[quota] == WEIR_LEASE_PLACE_NONE)
        return 0;
    return weir_lease_holder_limit(
        weir_lease_client_holder(node->client, node->place[quota]), net->now);
}

double net_sum(const struct net *net, uint32_t quota)
{
    double sum = 0;
    for (uint32_t i = 0; i < net->count; i++)
        sum += net_has(net, i, quota);
    return sum;
}

void assert_near(double is, double should)
{
    if (!(fabs(is - should) <= 1e-6 * (1 + should)))
        fail_msg("%.9g, not %.9g", is, should);
}

struct weir_root_stats net_stats(const struct net *net, uint32_t root)
{
    struct weir_root_stats stats;
    weir_root_stats(net->nodes[root].root, &stats);
    return stats;
}

/* ---- Time ---- */

static void audit(const struct net *net)
{
    for (uint32_t i = 0; i < net->count; i++)
        if (net->nodes[i].root)
            weir_root_audit(net->nodes[i].root, UINT32_MAX);
    for (uint32_t q = 0; q < NET_QUOTAS; q++) {
        double sum = net_sum(net, q);
        if (net->ceiling[q] > 0 && sum > net->ceiling[q] * (1 + 1e-9))
            fail_msg("q%u: %.9g are gone by, where there are %.9g, at %.3f s",
                     q, sum, net->ceiling[q],
                     (double)(net->now - NET_BEGIN) / 1e9);
    }
}

static weir_instant next_event(const struct net *net, weir_instant until)
{
    weir_instant at = until;
    if (net->packets && net->packets->at < at)
        at = net->packets->at;
    for (uint32_t i = 0; i < net->count; i++) {
        weir_instant due = deadline(net, i);
        if (due < at)
            at = due;
    }
    return at;
}

static void arrive(struct net *net)
{
    while (net->packets && net->packets->at <= net->now) {
        struct net_packet *packet = net->packets;
        net->packets = packet->next;
        deliver(net, packet);
        uint32_t below = packet->below;
        turn(net,
             packet->to_root ? net->nodes[below].up[packet->link].node : below);
        free(packet);
        audit(net);
    }
}

void net_run(struct net *net, weir_duration span)
{
    weir_instant until = net->now + span;
    while (net->now < until) {
        for (uint32_t i = 0; i < net->count; i++)
            turn(net, i);
        net->now = next_event(net, until);
        arrive(net);
        audit(net);
    }
}
