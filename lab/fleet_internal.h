/* SPDX-License-Identifier: MIT
 * lab/fleet_internal.h - the structs of a fleet, for the fleet's own files. */

#ifndef WEIR_FLEET_INTERNAL_H
#define WEIR_FLEET_INTERNAL_H

#include "codec/weir_v1.h"
#include "lab/fleet.h"
#include "lab/fleet_clock.h"
#include "lab/memory.h"

#define WEIR_FLEET_WATCHES_MAX 4

struct weir_node {
    struct weir_part part; /* the first member */
    struct weir_fleet *fleet;
    struct weir_node_place place;
    struct weir_fleet_clock clock;
    weir_duration per_message, per_item; /* of its processor */
    weir_instant free_at;                /* the world's: when its work is
                                          * done */
    weir_duration worked;                /* all work begun, … */
    weir_instant reported_at; /* … as reported to the root at this instant, … */
    weir_duration reported_work; /* … when it was this much */
    bool paused;
    bool sending;   /* the round's messages aren't all sent */
    uint32_t batch; /* packets of the inbox to be taken in this round */
    struct weir_packet *inbox, *inbox_last; /* owned; arrived, not taken */
    /* A limiter, if it runs: */
    struct weir_limiter *limiter;
    struct weir_table *table;
    uint32_t stripe;
    void *limiter_block, *table_block; /* owned */
    /* A root, if it runs: */
    struct weir_root *root;     /* owned, but a region's */
    struct weir_region *region; /* owned; NULL: a topmost root */
};

/* What a link calls at its ends, filled by fleet_node.c. */
struct weir_link_ends {
    /* A packet has reached the node. */
    void (*arrive)(struct weir_node *node, struct weir_packet *packet);
    /* The node's end of the link goes up or down. 'above': the peer is a root
     * above it. */
    void (*switch_link)(struct weir_node *node, uint32_t peer, bool above,
                        bool up);
    /* The root is no longer paused: it may send again. */
    void (*resume)(struct weir_node *node);
};

/* Between a limiter and a root. Its part tries later again to bring the link
 * up. */
struct weir_link {
    struct weir_part part; /* the first member */
    struct weir_fleet *fleet;
    const struct weir_link_ends *ends;
    uint32_t limiter, root;
    uint32_t connection; /* rises when it goes up and when it goes down */
    uint32_t oldest;     /* the oldest connection from which a replay may come:
                          * packets of a former process don't arrive on this
                          * one's links */
    bool up;             /* and both ends have been informed */
    bool allowed;
    bool paused;             /* the root is paused */
    uint8_t cut;             /* enum weir_way: nothing arrives on these */
    weir_instant noticed_at; /* when the ends notice a cut of both ways */
    weir_instant retry_at;   /* earliest retry after an error */
    struct weir_net net;
    struct weir_pipe to_root, to_limiter;
};

struct weir_fleet {
    struct weir_fleet_options options;
    struct weir_world world;
    struct weir_node *limiters, *roots; /* owned */
    struct weir_link *links;            /* owned; [limiter * roots + root] */
    uint32_t lowers; /* limiters, and in a fleet with regions roots acting as
                      * such */
    struct weir_catalog *store; /* owned */
    uint64_t epoch;             /* of the store */
    uint64_t term;              /* of the last master */
    bool store_away;
    struct weir_arena arena; /* owned: of the decoder */
    int error;
    struct weir_fleet_watch watch[WEIR_FLEET_WATCHES_MAX];
    size_t watch_count;
    struct weir_fleet_stats stats;
};

static inline struct weir_link *weir_fleet_link(const struct weir_fleet *fleet,
                                                uint32_t limiter, uint32_t root)
{
    weir_assert(limiter < fleet->lowers && root < fleet->options.roots);
    return &fleet->links[(size_t)limiter * fleet->options.roots + root];
}

static inline struct weir_node *weir_fleet_node(const struct weir_fleet *fleet,
                                                struct weir_node_place place)
{
    weir_assert(place.index <
                (place.root ? fleet->options.roots : fleet->options.limiters));
    return place.root ? &fleet->roots[place.index]
                      : &fleet->limiters[place.index];
}

static inline bool weir_node_alive(const struct weir_node *node)
{
    return node->limiter || node->root;
}

/* ---- fleet_node.c: a node's turn ---- */

void weir_node_init(struct weir_node *node, struct weir_fleet *fleet,
                    struct weir_node_place place);
/* Creates or frees the node's memory, without informing its links. */
void weir_node_begin(struct weir_node *node);
void weir_node_end(struct weir_node *node);
weir_instant weir_node_now(const struct weir_node *node);
/* To be called after each change to the node: it sends its messages and sleeps
 * until its deadline. No effect while it is paused. */
void weir_node_rest(struct weir_node *node);
/* The node has work to do now. */
void weir_node_kick(struct weir_node *node);
extern const struct weir_link_ends weir_node_ends;
/* A root reads the store's new edits. */
void weir_node_load(struct weir_node *node);

/* ---- fleet_link.c: links ---- */

void weir_link_init(struct weir_link *link, struct weir_fleet *fleet,
                    const struct weir_link_ends *ends, uint32_t limiter,
                    uint32_t root);
void weir_link_fini(struct weir_link *link);
/* Brings the link up if nothing forbids it. */
void weir_link_settle(struct weir_link *link);
/* Both ends see the link go down; the caller settles it again. */
void weir_link_break(struct weir_link *link);
/* Breaks the link after an error of a node. */
void weir_link_drop(struct weir_link *link);
static inline struct weir_link *weir_link_of(const struct weir_packet *packet)
{
    return packet->pipe->owner;
}
/* 'leave': when the node's work is done. */
void weir_link_send(struct weir_link *link, bool to_root,
                    const struct weir_message *message, weir_instant leave);
/* Whether a packet that arrived may be taken: draws whether it is a replay. */
bool weir_link_admits(struct weir_link *link, const struct weir_packet *packet);
/* A packet of the link was taken or is lost. */
void weir_link_relieve(struct weir_link *link);

#endif /* WEIR_FLEET_INTERNAL_H */
