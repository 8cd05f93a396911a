/* SPDX-License-Identifier: MIT
 * node/root_lease.h - leased quotas in a root node: while it is master it
 * leases them out (leased/lease_manager.h), else it names the master.
 *
 *     limiters   WANTS by their link   -> GRANTS, and pushes after them
 *     listeners  weir_root_lease_ask() -> a grant, at the client's pace
 *     election   begin(), end()        -> sent to all limiters
 *
 * There is no master before the pump has called begin() or end(): without an
 * election it calls begin() once. The root's catalog has the leased quotas and
 * their rules. An edit is in force at once; that of a template, or of a whole
 * set, when it is settled. Grants are in messages for links and in answers for
 * listeners; nothing else here sends.
 *
 * The root's one thread; no call blocks. */

#ifndef WEIR_ROOT_LEASE_H
#define WEIR_ROOT_LEASE_H

#include "core/leased/lease_manager.h"
#include "core/node/root.h"

/* ---- Mastership ---- */

/* This root is master from now on, in 'term', which is above all earlier ones
 * (asserted: above 0). 'vacant' as of weir_lease_manager_begin(): until then
 * leases of another master may be out, and grants only repeat the leases that
 * holders report. Leases of its own earlier terms are forgotten. */
void weir_root_lease_begin(struct weir_root *root, uint64_t term,
                           weir_instant vacant, weir_instant now);
/* For a pump that can keep a number (roster token) beside the mastership, where
 * all candidates find it. Call right after begin(), with the number found
 * there. 0: there is none, and never was; WEIR_KEPT_UNKNOWN: it isn't known. If
 * it isn't 0, clients are received but not answered before the first keep(), or
 * the end of all earlier leases. */
void weir_root_lease_found(struct weir_root *root, uint64_t number);
/* Another number is kept there, above 0 and never kept before. */
void weir_root_lease_keep(struct weir_root *root, uint64_t number,
                          weir_instant now);
/* Whether another number is wanted: a new client waits for it. */
bool weir_root_lease_wants_keep(const struct weir_root *root);
/* No other candidate exists: earlier leases are from a former process of this
 * root, with the same store. So there is nothing to learn about quotas created
 * in its term. Call before begin(); false, as at first: another may have been
 * master meanwhile. */
void weir_root_lease_alone(struct weir_root *root, bool alone);
/* It is proven that no lease of another master is out: those who wait for the
 * end of such leases are answered. False: a client has reported a lease all the
 * same, and this root learns on. Only while it is master (asserted). */
bool weir_root_lease_nothing_out(struct weir_root *root, weir_instant now);
/* Whether lease holders are promised safe capacities; true at first. A root
 * whose quotas are Doorman's promises none: a new master then waits for the
 * leases of its predecessor alone. Call before begin(); all roots that elect
 * their master are told the same. */
void weir_root_lease_promise_safe(struct weir_root *root, bool promise);
/* This root isn't master, or not any more. 'term': the highest known; 0: none.
 * 'master': its address, at most WEIR_MASTER_MAX bytes (asserted); copied;
 * absent: unknown. Call again whenever one of them changes. */
void weir_root_lease_end(struct weir_root *root, uint64_t term,
                         struct weir_text master, weir_instant now);
/* The mastership as last set. 'term' as of begin() or end(); 'master' is absent
 * if it is this root, or unknown; borrowed until the next of those calls. A
 * pump that can lose the mastership by the clock calls this before it sends a
 * message with grants: if the mastership is lost, it calls end() and drops the
 * message; that is no worse than a message lost. */
bool weir_root_leases(const struct weir_root *root);
uint64_t weir_root_lease_term(const struct weir_root *root);
struct weir_text weir_root_lease_master(const struct weir_root *root);

/* ---- Listeners ---- */

/* The wants of a client without a link. 'client->id' doesn't begin with a NUL
 * byte (those are limiters'); 'client->way' is WEIR_WAY_NONE, or peers_max ..
 * WEIR_WAYS_MAX - 1: a connection. 'ask->streams' is false: there is no way
 * to push. Returns 0 and the grant, or, with nothing changed:
 *   WEIR_ENOTREADY  it isn't master, or has no quotas yet;
 *   WEIR_ENOENT     there is no such quota;
 *   WEIR_EQUOTA     it is not leased;
 *   WEIR_EINVAL     client or ask are out of their range;
 *   WEIR_EFULL      no room for another quota, holder or priority;
 *   WEIR_ENOMEM. */
int weir_root_lease_ask(struct weir_root *root,
                        const struct weir_client *client,
                        struct weir_text quota,
                        const struct weir_lease_pool_ask *ask,
                        struct weir_grant *out, weir_instant now);
/* Gives the client's lease back, if it has one; 'taken' as of
 * weir_lease_manager_release(). No effect if this root isn't master. */
void weir_root_lease_release(struct weir_root *root,
                             const struct weir_client *client,
                             struct weir_text quota, uint64_t taken,
                             weir_instant now);
/* The connection of that way is closed. */
void weir_root_lease_way_lost(struct weir_root *root, uint32_t way);

/* ---- Views ---- */

/* How the quota is leased, with or without clients; capacity and learning are
 * those of the quota. 0, or WEIR_ENOTREADY, WEIR_ENOENT, WEIR_EQUOTA as above,
 * but of any root that has quotas. */
int weir_root_lease_rule(const struct weir_root *root, struct weir_text quota,
                         struct weir_leased *out);
/* All leases, for weir_lease_manager_look() and the others; never NULL. */
const struct weir_lease_manager *weir_root_lease_manager(
    const struct weir_root *root);

#endif /* WEIR_ROOT_LEASE_H */
