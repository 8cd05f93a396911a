/* SPDX-License-Identifier: MIT
 * lab/check.h - the checkers: invariants judged after every event of every run,
 * each under the name of the property that it proves.
 *
 *   conservation   no count lost or doubled: a root counts no more than a
 *                  limiter let through, each bucket moves by exactly the
 *                  units in its reports, and in the end all has arrived
 *   unseen_bound   the units that the fleet let through, in one bucket, are
 *                  never above high + sum over limiters of (2 slack +
 *                  weight) and the terms that check_unseen.c adds
 *   agreement      when the network is whole and the load gone, every
 *                  report is answered, and roots and limiters hold the true
 *                  fill
 *   epochs         no node's epoch goes back under one store; no limiter is
 *                  ahead of the store; its quotas are the store's of that
 *                  epoch
 *   verdicts       a request that passed had room on its whole chain, as the
 *                  limiter saw it; a refused one had not; all links are
 *                  charged or none; random refusals are as frequent as the
 *                  band says
 *   bounds         queues, tables and reports a second on a link stay within
 *                  their named bounds; no node refuses another's message
 *
 * A checker watches the fleet from outside and changes nothing in it: a run is
 * the same with and without it. */

#ifndef WEIR_CHECK_H
#define WEIR_CHECK_H

#include "lab/fleet.h"

struct weir_check;

/* Watches the fleet, which must outlive the checker. To be called before the
 * first event of the fleet. */
struct weir_check *weir_check_new(struct weir_fleet *fleet);
void weir_check_free(struct weir_check *check);
/* A running limiter has just decided on a take, with that outcome. */
void weir_check_decided(struct weir_check *check, uint32_t limiter,
                        struct weir_text name, uint64_t weight,
                        unsigned outcome);
/* After each event. Returns NULL while every property holds. Otherwise returns
 * the sentence that names the first violation ("unseen_bound: …"), owned by
 * 'check', and the same sentence from then on. */
const char *weir_check_event(struct weir_check *check);
/* At the end. If no request was made, no message lost and no session begun for
 * WEIR_CHECK_SETTLE, also judges the properties of a fleet at rest. */
#define WEIR_CHECK_SETTLE (12 * WEIR_SECOND)
const char *weir_check_end(struct weir_check *check);
/* The largest fraction of the stated bound that was used so far, 0 .. 1. */
double weir_check_unseen_share(const struct weir_check *check);

/* Counts of the judgements made, so that a test sees that a checker judged at
 * all. */
struct weir_check_stats {
    uint64_t reports, passes, decisions, quota_sets;
    uint64_t bounded; /* judgements of unseen_bound: for each pass, link of its
                       * chain and root for which the bound was promised */
    uint64_t ends;    /* statements judged at the end of the run */
    /* Of the model "swarm": comparisons of a process's part with the master's
     * account, requests, and ends of runs. */
    uint64_t parts, requests, recoveries;
};
void weir_check_stats(const struct weir_check *check,
                      struct weir_check_stats *out);

#endif /* WEIR_CHECK_H */
