/* SPDX-License-Identifier: MIT
 * lab/fleet.h - a fleet in one process: limiters and roots, the same objects
 * that libweir and the daemon link, over a simulated network, store, clocks and
 * processors.
 *
 * A node runs on its own clock and its own processor. Messages that arrive
 * while it works wait in a bounded buffer, as in a socket's; its messages leave
 * when its work is done. After each call into a node its outbox is drained, as
 * the contract of the nodes demands.
 *
 * There are two times. The world's time (weir_fleet_now()) is known to the lab
 * alone. Each node's clock starts at an hour of its own, so a caller of a
 * node's or a table's function passes weir_fleet_clock_of() as 'now'.
 *
 * Nodes are named by struct weir_node_place. One thread. Aborts if memory
 * runs out: a simulation that goes on after that proves nothing. */

#ifndef WEIR_FLEET_H
#define WEIR_FLEET_H

#include "core/node/limiter.h"
#include "core/node/region.h"
#include "core/table/table_permit.h"
#include "lab/net.h"

#define WEIR_FLEET_LIMITERS_MAX 65536
#define WEIR_FLEET_ROOTS_MAX WEIR_ROOTS_MAX
/* Bound of the bytes sent and not yet taken before a message on one way of a
 * link; a root is paused at half of it. */
#define WEIR_FLEET_INBOX_BYTES (256u << 10)

struct weir_fleet;

struct weir_node_place {
    bool root;      /* else a limiter */
    uint32_t index; /* from 0 */
};

static inline struct weir_node_place weir_limiter_place(uint32_t index)
{
    return (struct weir_node_place){ .index = index };
}

static inline struct weir_node_place weir_root_place(uint32_t index)
{
    return (struct weir_node_place){ .root = true, .index = index };
}

struct weir_fleet_options {
    uint64_t seed;
    uint32_t limiters, roots;
    uint32_t limiters_started;     /* so many first ones; the others later */
    uint32_t slots;                /* of each limiter's table */
    uint32_t asks;                 /* of each limiter, under way at once */
    uint32_t leases;               /* of each limiter, as its option */
    uint32_t gate_slots;           /* of each limiter's table */
    struct weir_net net;           /* of every link, both ways */
    struct weir_settings settings; /* report_interval > 0 */
    /* For each root the roots above it, as bits: it then is a region's root and
     * has its quotas from them. None: a topmost root. Limiters link to all
     * roots but those that weir_fleet_allow() forbids. */
    uint32_t upstream[WEIR_FLEET_ROOTS_MAX];
};

/* Callbacks of a watcher; any may be NULL. Called from within the event. */
struct weir_fleet_watch {
    void *context;
    /* A take, charge (+) or refund (-) went through on the limiter: 'ref' is
     * the leaf's slot in its table. */
    void (*counted)(void *context, uint32_t limiter, struct weir_ref ref,
                    int64_t weight);
    /* A node has taken a message and not yet answered ('from': the limiter or
     * root at the other end, by the message's kind; a region's root may be the
     * limiter). */
    void (*received)(void *context, struct weir_node_place to, uint32_t from,
                     const struct weir_message *message);
    /* A root has composed a message for the limiter (possibly a region's root),
     * which is sent next. During an edit of the store other roots may not have
     * the edit yet. */
    void (*sent)(void *context, uint32_t root, uint32_t limiter,
                 const struct weir_message *message);
    /* Before a node dies, with its memory still there; after a node was born,
     * before it has links. Not called for the nodes that weir_fleet_new()
     * starts. */
    void (*dying)(void *context, struct weir_node_place place);
    void (*born)(void *context, struct weir_node_place place);
};

struct weir_fleet *weir_fleet_new(const struct weir_fleet_options *options);
void weir_fleet_free(struct weir_fleet *fleet);
/* At most four watchers; 'watch' is copied. */
void weir_fleet_watch(struct weir_fleet *fleet,
                      const struct weir_fleet_watch *watch);

struct weir_world *weir_fleet_world(struct weir_fleet *fleet);
weir_instant weir_fleet_now(const struct weir_fleet *fleet);
/* Everything up to and including 'until' happens. */
void weir_fleet_run(struct weir_fleet *fleet, weir_instant until);
/* The first error that a node returned, 0: none. Its link was then dropped, and
 * is tried again 50 ms later. */
int weir_fleet_error(const struct weir_fleet *fleet);

/* ---- The quota store, shared by all roots ---- */

/* One edit; every live root applies it at once. 0 or a negative enum
 * weir_error with 'diag' (may be NULL) filled; WEIR_ESTORE while away. */
int weir_fleet_put(struct weir_fleet *fleet, const struct weir_quota *quota,
                   struct weir_diag *diag);
/* Resets the quota: `weir quota reset`. */
int weir_fleet_empty(struct weir_fleet *fleet, struct weir_text name,
                     struct weir_diag *diag);
int weir_fleet_remove(struct weir_fleet *fleet, const char *name,
                      struct weir_diag *diag);
/* The store is away: edits are refused, roots that start have no quotas. */
void weir_fleet_store_away(struct weir_fleet *fleet, bool away);
const struct weir_catalog *weir_fleet_catalog(const struct weir_fleet *fleet);

/* ---- Requests ---- */

/* The outcome bits of weir_table_take(); 0 (passed) when no quota rules the
 * name. A limiter that isn't running passes nothing: LIMITED. 'reply' may be
 * NULL. */
unsigned weir_fleet_take(struct weir_fleet *fleet, uint32_t limiter,
                         struct weir_text name, uint64_t weight,
                         struct weir_reply *reply);
/* The same for a peek by name, as libweir makes it. */
unsigned weir_fleet_peek(struct weir_fleet *fleet, uint32_t limiter,
                         struct weir_text name, uint64_t weight,
                         struct weir_reply *out_reply);
/* The outcome bits of weir_table_enter(), and its leave. A permit record is
 * lost with its node: after a kill it must not be given back. */
unsigned weir_fleet_enter(struct weir_fleet *fleet, uint32_t limiter,
                          struct weir_text name, uint64_t weight,
                          struct weir_permit_record *out_record);
void weir_fleet_leave(struct weir_fleet *fleet, uint32_t limiter,
                      struct weir_permit_record *record);
/* The same, with the outcome from which an adaptive quota learns. */
void weir_fleet_leave_as(struct weir_fleet *fleet, uint32_t limiter,
                         struct weir_permit_record *record,
                         enum weir_permit_outcome outcome);
/* As weir_limiter_ask(); a limiter that isn't running has no root. The caller
 * fetches the answers from weir_fleet_limiter(). */
int weir_fleet_ask(struct weir_fleet *fleet, uint32_t limiter,
                   const struct weir_step_ask *ask, uint64_t ticket);
void weir_fleet_charge(struct weir_fleet *fleet, uint32_t limiter,
                       struct weir_text name, uint64_t weight);
void weir_fleet_refund(struct weir_fleet *fleet, uint32_t limiter,
                       struct weir_text name, uint64_t weight);

/* ---- Faults ---- */

/* SIGKILL: its memory and its links are gone. Start: born again, empty, as a
 * new incarnation. Killing a node that doesn't run or starting one that does
 * has no effect. */
void weir_fleet_kill(struct weir_fleet *fleet, struct weir_node_place place);
void weir_fleet_start(struct weir_fleet *fleet, struct weir_node_place place);
/* The node's links break and are made anew; its memory stays. */
void weir_fleet_reset(struct weir_fleet *fleet, struct weir_node_place place);
/* SIGSTOP and SIGCONT: nothing runs, links stay up, messages wait. A limiter
 * that is paused takes no requests (LIMITED, and not counted). */
void weir_fleet_pause(struct weir_fleet *fleet, struct weir_node_place place,
                      bool paused);
/* The root leases from now on, in a new term; if it is a topmost one, the other
 * running ones are told. A region has one root that does. 'first': no other
 * root ever did. */
void weir_fleet_lead(struct weir_fleet *fleet, uint32_t root, bool first);
/* Time that a node's processor takes for each message, read or written, and for
 * each count, announcement, fill or quota in it (both 0: none). */
void weir_fleet_cpu(struct weir_fleet *fleet, struct weir_node_place place,
                    weir_duration per_message, weir_duration per_item);
/* The node's clock jumps by 'step' nanoseconds (may be negative) and runs on
 * at 1 + drift_ppm / 10^6, between 0.1 and 2. */
void weir_fleet_clock(struct weir_fleet *fleet, struct weir_node_place place,
                      int64_t step, double drift_ppm);

/* The index of a region's root as a limiter of the roots above it, for
 * functions that take a limiter of a link. */
uint32_t weir_fleet_upper(const struct weir_fleet *fleet, uint32_t root);

/* Ways between a limiter and a root, as bits. */
enum weir_way { WEIR_WAY_UP = 1, WEIR_WAY_DOWN = 2, WEIR_WAY_BOTH = 3 };
/* From now on messages of these ways vanish, those in flight too ('cut' 0: none
 * do). With both ways cut, both ends also see the link go down after 'noticed'
 * (0: at once); with one way cut, neither does. A link that is down doesn't
 * come up over a cut of any kind. */
void weir_fleet_cut(struct weir_fleet *fleet, uint32_t limiter, uint32_t root,
                    enum weir_way cut, weir_duration noticed);
/* Whether the limiter links to the root at all (at first: all do). */
void weir_fleet_allow(struct weir_fleet *fleet, uint32_t limiter, uint32_t root,
                      bool allowed);
void weir_fleet_net(struct weir_fleet *fleet, uint32_t limiter, uint32_t root,
                    const struct weir_net *net);

/* ---- State ---- */

/* Number of places, of running nodes and others. */
uint32_t weir_fleet_limiters(const struct weir_fleet *fleet);
uint32_t weir_fleet_roots(const struct weir_fleet *fleet);
bool weir_fleet_alive(const struct weir_fleet *fleet,
                      struct weir_node_place place);
/* NULL: the node isn't running. */
struct weir_table *weir_fleet_table(const struct weir_fleet *fleet,
                                    uint32_t limiter);
struct weir_limiter *weir_fleet_limiter(const struct weir_fleet *fleet,
                                        uint32_t limiter);
struct weir_root *weir_fleet_root(const struct weir_fleet *fleet,
                                  uint32_t root);
/* NULL: not a region's root, or not running. */
struct weir_region *weir_fleet_region(const struct weir_fleet *fleet,
                                      uint32_t root);
/* The connection is up at both ends, and not cut. */
bool weir_fleet_linked(const struct weir_fleet *fleet, uint32_t limiter,
                       uint32_t root);
/* The reading of the node's clock. */
weir_instant weir_fleet_clock_of(const struct weir_fleet *fleet,
                                 struct weir_node_place place);
/* Units in a limiter's bucket, its count, units in a root's bucket and the
 * root's count; 0 if unknown. */
double weir_fleet_limiter_fill(struct weir_fleet *fleet, uint32_t limiter,
                               struct weir_text name);
uint64_t weir_fleet_count(struct weir_fleet *fleet, uint32_t limiter,
                          struct weir_text name);
double weir_fleet_root_fill(struct weir_fleet *fleet, uint32_t root,
                            struct weir_text name);
uint64_t weir_fleet_root_passed(struct weir_fleet *fleet, uint32_t root,
                                struct weir_text name);

struct weir_fleet_stats {
    uint64_t messages, bytes;    /* sent, both ways */
    uint64_t reports, fills;     /* messages of these kinds, sent */
    uint64_t lost;               /* on the way */
    uint64_t waiting_bytes_most; /* on any way of a link */
};
void weir_fleet_stats(const struct weir_fleet *fleet,
                      struct weir_fleet_stats *out);

#endif /* WEIR_FLEET_H */
