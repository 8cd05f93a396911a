/* SPDX-License-Identifier: MIT
 * test/core/node/lease_net.h - roots, regions and bare holders of leased quotas
 * over a network in virtual time. Messages go as bytes: late, lost, doubled or
 * out of order, as configured. After each step the sum of the units that
 * holders may use must be within the capacity. */

#ifndef WEIR_LEASE_NET_H
#define WEIR_LEASE_NET_H

#include "core/base/rng.h"
#include "core/node/lease_client.h"
#include "core/node/region.h"
#include "core/node/root_lease.h"

#define NET_NODES 24
#define NET_UPS 3
#define NET_QUOTAS 4
#define NET_BEGIN (1000 * WEIR_SECOND)

struct net_up {
    uint32_t node;
    bool up;
    uint64_t session; /* of a holder's link */
};

/* Node i is peer i of the roots that it links to. */
struct net_node {
    struct weir_root *root;     /* NULL: bare holders */
    struct weir_region *region; /* NULL: a topmost root, or bare holders */
    struct weir_lease_client *client; /* of bare holders */
    void *block;
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    struct net_up up[NET_UPS];
    uint32_t ups;
    uint32_t place[NET_QUOTAS]; /* WEIR_LEASE_PLACE_NONE: not wanted */
};

struct net_packet;

struct net {
    struct net_node nodes[NET_NODES];
    uint32_t count;
    struct net_packet *packets; /* by 'at' */
    struct weir_rng rng;
    weir_instant now;
    weir_duration delay;  /* of each direction … */
    weir_duration jitter; /* … plus at most this */
    uint32_t lost_ppm, doubled_ppm;
    double ceiling[NET_QUOTAS]; /* 0: not watched */
    uint64_t sent, wants;       /* messages sent; those with wants */
    uint64_t sessions;
    uint64_t epoch;
    uint64_t term;
};

void net_init(struct net *net, uint64_t seed);
void net_fini(struct net *net);
/* net_init() with so many roots, of which it returns the first, and one quota
 * of 100/s. */
uint32_t net_begin(struct net *net, uint32_t roots);
/* The root becomes master, and there was no other master before. */
void net_begin_first(struct net *net, uint32_t root);
/* A topmost root; a region's root; a node of bare holders. Each returns its
 * number. */
uint32_t net_root(struct net *net);
uint32_t net_region(struct net *net, const char *name, uint32_t ups,
                    const uint32_t *up);
uint32_t net_leaf(struct net *net, uint32_t ups, const uint32_t *up);

/* Links go up or down; messages under way on them are lost. */
void net_link(struct net *net, uint32_t node, uint32_t up, bool is_up);
/* "q0" … have that limit per second at all topmost roots; below 0: they are
 * counted. */
void net_edit(struct net *net, uint32_t quota, int64_t limit);
/* A leaf's wants; below 0: it gives back. */
void net_want(struct net *net, uint32_t leaf, uint32_t quota, double wants);

void net_run(struct net *net, weir_duration span);
/* Units that a leaf may use, and the sum over all leaves. */
double net_has(const struct net *net, uint32_t leaf, uint32_t quota);
double net_sum(const struct net *net, uint32_t quota);
/* Up to a millionth. */
void assert_near(double is, double should);
struct weir_root_stats net_stats(const struct net *net, uint32_t root);

#endif /* WEIR_LEASE_NET_H */
