/* SPDX-License-Identifier: MIT
 * lab/check.h - what must hold after every event of every run, each under
 * the name of what it proves.
 *
 *   conservation   no count lost or doubled: of what a limiter let through a
 *                  root holds no more than that, each bucket moves by exactly
 *                  what its reports bring, and in the end all has arrived
 *   unseen_bound   what the fleet let through, in one bucket, is never above
 *                  high + sum over limiters of (2 slack + weight), and what
 *                  check_unseen.c says
 *   agreement      when the network is whole and the load gone, all is
 *                  answered, and roots and limiters hold the true fill
 *   epochs         no node's epoch goes back under one store; no limiter is
 *                  ahead of the store; what it has is what the store had
 *   verdicts       a request that passed had room on its whole chain, as the
 *                  limiter saw it; one refused had not; all are charged or
 *                  none; chance is what the band says
 *   bounds         queues, tables and reports a second on a link stay within
 *                  their names; no node refuses another's words
 *
 * A checker watches the fleet from outside and changes nothing in it: a run
 * is the same with and without it. */

#ifndef WEIR_CHECK_H
#define WEIR_CHECK_H

#include "lab/fleet.h"

struct weir_check;

/* Watches the fleet, which outlives it; made before anything has happened. */
struct weir_check *weir_check_new(struct weir_fleet *fleet);
void weir_check_free(struct weir_check *check);
/* A limiter that runs has just decided on a take, with that outcome. */
void weir_check_decided(struct weir_check *check, uint32_t limiter,
                        struct weir_text name, uint64_t weight,
                        unsigned outcome);
/* After each event. NULL: all hold; else the sentence that says which didn't
 * ("unseen_bound: …"), owned by 'check'; the same from then on. */
const char *weir_check_event(struct weir_check *check);
/* At the end. If no request was made, no message lost and no session begun
 * for WEIR_CHECK_SETTLE: what must hold when all has come to rest. */
#define WEIR_CHECK_SETTLE (12 * WEIR_SECOND)
const char *weir_check_end(struct weir_check *check);
/* The most of the stated bound that was used so far, 0 .. 1. */
double weir_check_unseen_share(const struct weir_check *check);

/* How much was judged: a checker that judges nothing would hold of
 * anything. */
struct weir_check_stats {
    uint64_t reports, passes, decisions, quota_sets;
    uint64_t bounded; /* of a pass, a link of its chain and a root: those for
                       * which the bound was promised */
    uint64_t ends;    /* statements that were held against the end */
};
void weir_check_stats(const struct weir_check *check,
                      struct weir_check_stats *out);

/* Names, for help and the list of planted bugs; ends with NULL. */
extern const char *const weir_check_names[];

#endif /* WEIR_CHECK_H */
