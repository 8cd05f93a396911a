/* SPDX-License-Identifier: MIT
 * server/election/mastership.h - between the election and the root node: tells
 * the root when it is the master, and checks it before each answer that grants
 * something.
 *
 * One thread, that of the loop. */

#ifndef WEIR_MASTERSHIP_H
#define WEIR_MASTERSHIP_H

#include "core/node/root_lease.h"
#include "server/election/election.h"

struct weir_mastership;

struct weir_mastership_options {
    struct weir_election_options election; /* its callbacks are set here */
    const char *store; /* the URL of the quotas; NULL: there is none. If the
                        * kind is none and this is a file, a lock beside it
                        * elects among the roots of this host that use it */
    bool alone; /* the operator says that no lease of another server or an
                 * earlier process is out: this root doesn't learn. For a root
                 * without an election, and its first mastership */
    /* Asks the quotas' store for its mark that no root of it was ever master;
     * weir_mastership_set_mark() has the answer, in the order of the asks, or
     * the ask is void (false). NULL: there is no store. */
    bool (*take_mark)(void *context);
    struct weir_root *root;           /* borrowed */
    void (*on_change)(void *context); /* the root may have something to send */
    void *context;
};

/* Joins the election. Errors as weir_election_new(). */
int weir_mastership_new(const struct weir_mastership_options *options,
                        struct weir_mastership **out, struct weir_diag *diag);
/* Doesn't inform the other servers: resign first. NULL inside is legal. */
void weir_mastership_free(struct weir_mastership **mastership);

/* Whether this root may grant something at this very moment. If it was master
 * and isn't by the clock any more, the root is told here: earlier than by the
 * loop. NULL: no, no mastership was set. */
bool weir_mastership_holds(struct weir_mastership *mastership);
/* Call it after the root has received requests: a new lease holder may wait for
 * a kept number (weir_root_lease_wants_keep). NULL: nothing to do. */
void weir_mastership_keep(struct weir_mastership *mastership);
/* The answer to an ask of take_mark(). 'never': no root of the store was ever
 * master before this one, so no lease is out. */
void weir_mastership_set_mark(struct weir_mastership *mastership, bool never);
/* The master, "HOST:PORT"; "": this server, or not known. Borrowed until the
 * loop goes on. */
const char *weir_mastership_master(const struct weir_mastership *mastership);

/* Grants nothing from now on, and hands the mastership over. */
void weir_mastership_resign(struct weir_mastership *mastership);
/* The other servers know, or it took longer than a second; or this one has not
 * resigned. */
bool weir_mastership_is_settled(const struct weir_mastership *mastership);

#endif /* WEIR_MASTERSHIP_H */
