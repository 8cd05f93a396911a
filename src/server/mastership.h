/* SPDX-License-Identifier: MIT
 * server/mastership.h - between the election and the root node: who hands out
 * leases, told to the root, and asked for before each answer that gives
 * something.
 *
 * One thread, that of the loop. */

#ifndef WEIR_MASTERSHIP_H
#define WEIR_MASTERSHIP_H

#include "node/root_lease.h"
#include "server/election.h"

struct weir_mastership;

struct weir_mastership_options {
    struct weir_election_options election; /* its callbacks are ours */
    const char *store; /* where the quotas are; NULL: elsewhere. Kind none: if
                        * that is a file, one beside it is locked, for other
                        * roots of this host may have the same */
    struct weir_root *root;           /* borrowed */
    void (*on_change)(void *context); /* the root has something to say */
    void *context;
};

/* Stands for the election. Errors as weir_election_new(). */
int weir_mastership_new(const struct weir_mastership_options *options,
                        struct weir_mastership **out, struct weir_diag *diag);
/* Without a word to the others: resign first. NULL inside is legal. */
void weir_mastership_free(struct weir_mastership **mastership);

/* Whether this root may give something at this very moment. If it was master
 * and isn't by the clock any more, the root hears of it here: earlier than by
 * the loop. NULL: nobody has said that it is master. */
bool weir_mastership_holds(struct weir_mastership *mastership);
/* To be called after the root has taken asks: somebody new may wait for a
 * number to be kept (weir_root_lease_wants_keep). NULL: nothing to do. */
void weir_mastership_keep(struct weir_mastership *mastership);
/* Who is, "HOST:PORT"; "": this one, or nobody known. Borrowed until the
 * loop goes on. */
const char *weir_mastership_master(const struct weir_mastership *mastership);

/* Gives nothing from now on, and hands over. */
void weir_mastership_resign(struct weir_mastership *mastership);
/* The others know, or it took longer than a second; or nobody resigned. */
bool weir_mastership_is_settled(const struct weir_mastership *mastership);

#endif /* WEIR_MASTERSHIP_H */
