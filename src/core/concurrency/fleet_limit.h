/* SPDX-License-Identifier: MIT
 * concurrency/fleet_limit.h - one limit for all processes of a fleet, found
 * from the latencies that all of them measure.
 *
 * A controller (concurrency/controller.h) whose samples come in batches, from
 * members: processes, or servers in between. Its limit is leased to them, and
 * each keeps to its part.
 *
 *     members --batches--> take() --> the controller's window --> limit
 *                            |              ^
 *                            '-- weight ----'--- tick(): outliers, judgement
 *
 * Two rules protect the fleet from one member:
 *
 *   Weight. A member that has g permits can't have let in more than g T / m
 *   requests in a time T in which they took m on average (Little's law). Of
 *   more, WEIR_FLEET_LIMIT_EXCESS times that many count, by the mean of the
 *   fleet's last window: with false latencies, short or long, a member's
 *   samples weigh as much as its part. So do requests that haven't come back:
 *   one, and WEIR_FLEET_LIMIT_EXCESS times g, count as overdue at most.
 *
 *   Outliers. A member is one if more than half of its requests are slow, or
 *   overdue, while the window without all such members isn't over the setpoint,
 *   and they are at most a tenth of the members, or one of three to nineteen.
 *   Then their paths are slow, and not what all share: if the window is over
 *   because of them it isn't judged. After two such windows in a row a member
 *   is left out. Its samples count no more, until it wasn't one in two windows.
 *   (Half, and not the percentile: near the setpoint chance alone makes some
 *   members worse than the percentile.)
 *
 * Grows by the allocator it was given; one thread at a time. */

#ifndef WEIR_FLEET_LIMIT_H
#define WEIR_FLEET_LIMIT_H

#include "core/concurrency/controller.h"
#include "core/concurrency/latency_window.h"

#define WEIR_FLEET_LIMIT_MEMBERS_MAX (1u << 20)
#define WEIR_FLEET_LIMIT_EXCESS 1.5
/* Samples of a member by which it may be an outlier. */
#define WEIR_FLEET_LIMIT_FEW 20
/* Windows in a row after which a member is left out, or back. */
#define WEIR_FLEET_LIMIT_ROW 2
/* So long after its last batch a member is none, and its state is forgotten. */
#define WEIR_FLEET_LIMIT_SILENCE (3 * WEIR_SECOND)

struct weir_fleet_limit;

/* NULL: no memory. The options must be sound, of a kind that takes batches
 * (weir_controller_merges()), and are copied; 'mem' is copied. */
struct weir_fleet_limit *weir_fleet_limit_new(
    const struct weir_mem *mem, const struct weir_controller_options *options,
    weir_instant now);
void weir_fleet_limit_free(struct weir_fleet_limit *fleet); /* or NULL */
/* As weir_controller_edit(). */
void weir_fleet_limit_edit(struct weir_fleet_limit *fleet,
                           const struct weir_controller_options *options,
                           weir_instant now);
/* The processes go by 'limit' in sum, as they say: it is the limit from now on,
 * as far as the options allow, and windows begin anew. */
void weir_fleet_limit_begin(struct weir_fleet_limit *fleet, double limit,
                            weir_instant now);

/* All that a member has seen since its last batch. 'member': its number, below
 * WEIR_FLEET_LIMIT_MEMBERS_MAX; numbers should be dense. 'granted': the permits
 * that it could use, >= 0. A batch of another cut than the present one
 * (weir_fleet_limit_cut()) shows an earlier limit: its latencies don't count.
 * Returns 0 or WEIR_ENOMEM: nothing has changed. */
int weir_fleet_limit_take(struct weir_fleet_limit *fleet, uint32_t member,
                          double granted,
                          const struct weir_latency_batch *batch,
                          weir_instant now);
/* The numbers that members have had are below this one. */
uint32_t weir_fleet_limit_numbers(const struct weir_fleet_limit *fleet);
/* The number is free for another member. */
void weir_fleet_limit_forget(struct weir_fleet_limit *fleet, uint32_t member);

/* Judges the window, if it is over. Call it after batches were taken, and at
 * the deadline. Returns whether a window was over, or a batch has ended a
 * stall: then read limit and cut again. */
bool weir_fleet_limit_tick(struct weir_fleet_limit *fleet, weir_instant now);
weir_instant weir_fleet_limit_deadline(const struct weir_fleet_limit *fleet);

/* ---- In between: a server whose own limit is given ----
 *
 * With 'given' in the options nothing is judged. The limit is a part of
 * another's, and the batches go there, added together. Outliers are found where
 * the limit is, among its members. */

void weir_fleet_limit_give(struct weir_fleet_limit *fleet, double limit,
                           uint64_t cut, weir_instant now);
/* All batches since the last call, as one. 'bins': room for WEIR_WINDOW_BINS,
 * which 'out' borrows. */
void weir_fleet_limit_collect(struct weir_fleet_limit *fleet,
                              struct weir_latency_count *bins,
                              struct weir_latency_batch *out, weir_instant now);

/* ---- The limit ---- */

double weir_fleet_limit_limit(const struct weir_fleet_limit *fleet);
/* A number of the last decrease, resumption, or first answer of a stall;
 * another one after each. Members are told it with their parts, and put it into
 * their batches. 0: there was none, and batches of any cut count. */
uint64_t weir_fleet_limit_cut(const struct weir_fleet_limit *fleet);
/* Whether the next answer may take the limit back to what it was: batches
 * should come soon. */
bool weir_fleet_limit_is_stalled(const struct weir_fleet_limit *fleet);

struct weir_fleet_limit_view {
    struct weir_controller_view controller;
    weir_duration target;
    uint32_t members;   /* with a batch in the last WEIR_FLEET_LIMIT_SILENCE */
    uint32_t outliers;  /* of all */
    uint32_t in_flight; /* the sum of the members' last peaks */
    uint64_t excused;   /* windows that were not judged because of outliers */
    bool learning; /* false; a root's view: it hears what the members have */
};
void weir_fleet_limit_view(const struct weir_fleet_limit *fleet,
                           struct weir_fleet_limit_view *out, weir_instant now);
/* Whether a member is left out. */
bool weir_fleet_limit_is_out(const struct weir_fleet_limit *fleet,
                             uint32_t member);
/* A member that was left out, or is back, since it was last returned; what came
 * between isn't returned, nor members that are forgotten. False: there is
 * none. */
bool weir_fleet_limit_news(struct weir_fleet_limit *fleet, uint32_t *out_member,
                           bool *out_is_out);

#endif /* WEIR_FLEET_LIMIT_H */
