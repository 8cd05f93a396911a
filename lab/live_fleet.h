/* SPDX-License-Identifier: MIT
 * lab/live_fleet.h - a fleet of real processes on loopback: `weir serve` for
 * each root, `weir lab agent` for each limiter, one store, and a relay for each
 * link. The faults that lab/fleet.h injects into simulated nodes are injected
 * here as far as a signal or a relay can.
 *
 * One thread and one loop, run by the function that waits. All processes die
 * with the fleet, and with the process that made it. */

#ifndef WEIR_LIVE_FLEET_H
#define WEIR_LIVE_FLEET_H

#include "lab/run.h"

#define WEIR_LIVE_LIMITERS_MAX 64
#define WEIR_LIVE_ROOTS_MAX WEIR_FLEET_ROOTS_MAX
#define WEIR_LIVE_LOADS_MAX 64
/* Longest wait for a start or an answer. */
#define WEIR_LIVE_PATIENCE (30 * WEIR_SECOND)

struct weir_live_fleet;

/* Units of one load on one limiter, of a step or since the limiter's start. */
struct weir_live_counts {
    double requests;
    double offered, passed, refused;
};

/* The last state that a limiter reported. */
struct weir_live_limiter {
    bool running; /* if false, the members below are meaningless */
    bool paused;
    bool settled;   /* it has its quotas and can be given load */
    uint32_t links; /* up, in its view */
    uint64_t epoch;
    uint64_t sample;                   /* steps ended at its last report */
    double fills[WEIR_LIVE_LOADS_MAX]; /* of the loads' quotas; may be NaN */
};

struct weir_live_watch {
    void *context;
    /* The limiter has reported the step 'sample' (from 0): the counts of each
     * load, and the number of reports that it sent. */
    void (*counted)(void *context, uint32_t limiter, uint64_t sample,
                    const struct weir_live_counts *loads, uint64_t reports);
    /* A root has answered with the fill of each quota of the scenario, 0 for an
     * unused one. 'asked' is the argument of weir_live_look(). */
    void (*looked)(void *context, uint32_t root, uint64_t asked,
                   const double *fills);
};

/* Starts the roots, store, quotas and the first limiters, and returns when all
 * are ready. NULL with 'diag' filled, after 'patience' at most. 'program' is
 * the `weir` to run. The scenario outlives the fleet. */
struct weir_live_fleet *weir_live_fleet_new(
    const struct weir_scenario *scenario, const char *program, uint64_t seed,
    const struct weir_live_watch *watch, struct weir_diag *diag);
void weir_live_fleet_free(struct weir_live_fleet *fleet);

/* Runs the loop until '*done' or an error, which it returns with 'diag' filled:
 * a process died, SIGINT, or 'patience' is over (0: no limit). 'what' names the
 * event waited for, for the message. */
int weir_live_run(struct weir_live_fleet *fleet, const bool *done,
                  const char *what, weir_duration patience,
                  struct weir_diag *diag);
struct event_base *weir_live_base(const struct weir_live_fleet *fleet);
/* From now on limiters report each step of length 'step'. */
void weir_live_begin(struct weir_live_fleet *fleet, weir_instant start,
                     weir_duration step);

/* ---- Actions ---- */

void weir_live_kill(struct weir_live_fleet *fleet,
                    struct weir_node_place place);
void weir_live_start(struct weir_live_fleet *fleet,
                     struct weir_node_place place);
void weir_live_reset(struct weir_live_fleet *fleet,
                     struct weir_node_place place);
void weir_live_pause(struct weir_live_fleet *fleet,
                     struct weir_node_place place, bool paused);
void weir_live_cut(struct weir_live_fleet *fleet, uint32_t limiter,
                   uint32_t root, enum weir_way ways, weir_duration noticed);
/* Requests a second of a load on one limiter. An unchanged rate costs
 * nothing. */
void weir_live_rate(struct weir_live_fleet *fleet, uint32_t limiter,
                    size_t load, double per_s);
/* Edits go to the first root that can answer. 'edited' is called with the epoch
 * from which the edit is in force, or with the reason 'why' it was refused
 * (else NULL). */
typedef void weir_live_edited_fn(void *context, uint64_t epoch,
                                 const char *why);
void weir_live_put(struct weir_live_fleet *fleet,
                   const struct weir_quota *quotas, size_t count,
                   weir_live_edited_fn *edited, void *context);
void weir_live_remove(struct weir_live_fleet *fleet, const char *name,
                      weir_live_edited_fn *edited, void *context);
/* Moves the store's file aside, and back. */
void weir_live_store_away(struct weir_live_fleet *fleet, bool away);

/* ---- Observed state ---- */

const struct weir_live_limiter *weir_live_limiter(
    const struct weir_live_fleet *fleet, uint32_t limiter);
/* Root links of the limiter that are up, and not cut. */
uint32_t weir_live_links(const struct weir_live_fleet *fleet, uint32_t limiter);
/* Whether the root runs and has reported its ports. */
bool weir_live_root_runs(const struct weir_live_fleet *fleet, uint32_t root);
/* Requests the fills of every root that can answer; see 'looked'. A root that
 * hasn't answered the last request isn't asked again. */
void weir_live_look(struct weir_live_fleet *fleet, uint64_t asked);
/* Bytes passed on by all relays. */
uint64_t weir_live_bytes(const struct weir_live_fleet *fleet);

#endif /* WEIR_LIVE_FLEET_H */
