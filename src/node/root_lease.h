/* SPDX-License-Identifier: MIT
 * node/root_lease.h - leased quotas in a root node: while it is master it hands
 * them out (lease/brokers.h), else it says who does.
 *
 *     limiters   WANTS by their link   -> GRANTS, and pushes after them
 *     doors      weir_root_lease_ask() -> a grant, at the client's pace
 *     election   begin(), end()        -> all limiters are told
 *
 * Nobody is master before the pump has said so: whoever elects none says it
 * once. Which quotas are leased, and how, the root's catalog says; an edit is
 * in force at once, but that of a template, or of a whole set, when it is
 * settled. What is granted is in messages for links and in
 * answers for doors; nothing else here speaks.
 *
 * The root's one thread; no call blocks. */

#ifndef WEIR_ROOT_LEASE_H
#define WEIR_ROOT_LEASE_H

#include "lease/brokers.h"
#include "node/root.h"

/* ---- Who is master ---- */

/* This root is it from now on, for the time of 'term', which is above all that
 * were before (asserted: above 0). 'vacant' as weir_brokers_begin(): until
 * then leases of another may be out, and what is granted is what holders
 * report. What it leased in an earlier term is forgotten. */
void weir_root_lease_begin(struct weir_root *root, uint64_t term,
                           weir_instant vacant, weir_instant now);
/* For who has somewhere to keep a number beside the mastership, where all that
 * stand for it find it. To be called right after begin(), with the number found
 * there. 0: there is none, and never was; WEIR_KEPT_UNKNOWN: that can't be
 * said. If it isn't 0, everybody is heard, and nobody answered, before the
 * first keep(), or the end of all that was leased before. */
void weir_root_lease_found(struct weir_root *root, uint64_t number);
/* Another number is kept there, which was never kept before, above 0. */
void weir_root_lease_keep(struct weir_root *root, uint64_t number,
                          weir_instant now);
/* Another is wanted: somebody new waits for it. */
bool weir_root_lease_wants_keep(const struct weir_root *root);
/* Nobody else stands for it: what was leased before was so by an earlier life
 * of this root, whose store is all that both have. Of quotas that are created
 * in its term there is nothing to learn then. To be called before it begins;
 * false, as it is at first: somebody else may have stood meanwhile. */
void weir_root_lease_alone(struct weir_root *root, bool alone);
/* It isn't, or not any more. 'term': the highest that was heard of; 0: none.
 * 'master': where that one is, an address of at most WEIR_MASTER_MAX bytes
 * (asserted); copied; absent: it isn't known. To be called again whenever one
 * of them changes. */
void weir_root_lease_end(struct weir_root *root, uint64_t term,
                         struct weir_text master, weir_instant now);
/* Who is said to be it. 'term' as begin() or end() had it; 'master' is
 * absent if this root is, or if nobody knows; borrowed until the next of those
 * calls. A pump that can lose the mastership by the clock asks for it before it
 * sends a message of grants that has any: if it is lost, it calls end() and
 * lets the message be; that is no worse than a message lost. */
bool weir_root_leases(const struct weir_root *root);
uint64_t weir_root_lease_term(const struct weir_root *root);
struct weir_text weir_root_lease_master(const struct weir_root *root);

/* ---- Doors ---- */

/* Somebody who has no link asks. 'client->id' doesn't begin with a NUL byte
 * (those are limiters'); 'client->way' is WEIR_WAY_NONE, or peers_max ..
 * WEIR_WAYS_MAX - 1: a connection. 'ask->streams' is false: there is no way
 * to push. Returns 0 and what to answer, or, with nothing changed:
 *   WEIR_ENOTREADY  it isn't master, or has no quotas yet;
 *   WEIR_ENOENT     there is no such quota;
 *   WEIR_EQUOTA     it is shared in another way;
 *   WEIR_EINVAL     client or ask are out of their range;
 *   WEIR_EFULL      no room for another quota, holder or priority;
 *   WEIR_ENOMEM. */
int weir_root_lease_ask(struct weir_root *root,
                        const struct weir_client *client,
                        struct weir_text quota,
                        const struct weir_broker_ask *ask,
                        struct weir_grant *out, weir_instant now);
/* Gives back what the client has, if anything; 'taken' as
 * weir_brokers_release(). Who isn't master does nothing. */
void weir_root_lease_release(struct weir_root *root,
                             const struct weir_client *client,
                             struct weir_text quota, uint64_t taken,
                             weir_instant now);
/* The connection of that way is closed. */
void weir_root_lease_way_lost(struct weir_root *root, uint32_t way);

/* ---- What people look at ---- */

/* How the quota is handed out, whether or not anybody has asked for it. 0, or
 * WEIR_ENOTREADY, WEIR_ENOENT, WEIR_EQUOTA as above, but of any root that has
 * quotas. */
int weir_root_lease_rule(const struct weir_root *root, struct weir_text quota,
                         struct weir_lease_rule *out);
/* What is out, by weir_brokers_look() and the others; never NULL. */
const struct weir_brokers *weir_root_brokers(const struct weir_root *root);
/* A client as people know it: a limiter's or region's name for its id; any
 * other id as it is. Borrowed until the next call of any
 * function of the root. */
struct weir_text weir_root_lease_client_name(const struct weir_root *root,
                                             struct weir_text client_id);

#endif /* WEIR_ROOT_LEASE_H */
