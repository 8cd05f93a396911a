/* SPDX-License-Identifier: MIT
 * lab/live_fleet.h - a fleet of real processes on loopback: `weir serve` for
 * each root, `weir lab agent` for each limiter, one store, and a relay for
 * each link. What lab/fleet.h does to simulated nodes is done to these, as
 * far as a signal or a relay can.
 *
 * One thread, and one loop, which whoever waits runs. Everything dies with
 * the fleet, and with the process that made it. */

#ifndef WEIR_LIVE_FLEET_H
#define WEIR_LIVE_FLEET_H

#include "lab/run.h"

#define WEIR_LIVE_LIMITERS_MAX 64
#define WEIR_LIVE_ROOTS_MAX WEIR_FLEET_ROOTS_MAX
#define WEIR_LIVE_LOADS_MAX 64
/* For whatever is waited for: a start, an answer. */
#define WEIR_LIVE_PATIENCE (30 * WEIR_SECOND)

struct weir_live_fleet;

/* Units of one load on one limiter; of a step, or since its start. */
struct weir_live_counts {
    double requests;
    double offered, passed, refused;
};

/* What a limiter said last. */
struct weir_live_limiter {
    bool running; /* else nothing below counts */
    bool paused;
    bool settled;   /* its quotas are there: it can be given load */
    uint32_t links; /* up, as it sees it */
    uint64_t epoch;
    uint64_t sample;                   /* steps ended when it spoke */
    double fills[WEIR_LIVE_LOADS_MAX]; /* of the loads' quotas; may be NaN */
};

struct weir_live_watch {
    void *context;
    /* The limiter has told what it did in the step 'sample' (from 0): for
     * each load; and how many reports it sent. */
    void (*counted)(void *context, uint32_t limiter, uint64_t sample,
                    const struct weir_live_counts *loads, uint64_t reports);
    /* A root has answered what is in its buckets: the fill of each quota of
     * the scenario, 0 for one that isn't in use. 'asked' is what
     * weir_live_look() was given. */
    void (*looked)(void *context, uint32_t root, uint64_t asked,
                   const double *fills);
};

/* Everything is started and ready when this returns: roots, store, quotas,
 * and those limiters that begin. NULL with 'diag' filled, after 'patience'
 * at most. 'program' is the `weir` to run. The scenario outlives it. */
struct weir_live_fleet *weir_live_fleet_new(
    const struct weir_scenario *scenario, const char *program, uint64_t seed,
    const struct weir_live_watch *watch, struct weir_diag *diag);
void weir_live_fleet_free(struct weir_live_fleet *fleet);

/* Runs the loop until '*done', or an end: then returns its error (a process
 * that died, SIGINT, no end in sight after 'patience' when that isn't 0) with
 * 'diag' filled. 'what' is waited for, for the message. */
int weir_live_run(struct weir_live_fleet *fleet, const bool *done,
                  const char *what, weir_duration patience,
                  struct weir_diag *diag);
struct event_base *weir_live_base(const struct weir_live_fleet *fleet);
/* From here on limiters tell each step of 'step'. */
void weir_live_begin(struct weir_live_fleet *fleet, weir_instant start,
                     weir_duration step);
/* Ends the run with this error; the first one counts. */
void weir_live_fail(struct weir_live_fleet *fleet, int error, const char *what,
                    const char *why);

/* ---- What is done to it ---- */

void weir_live_kill(struct weir_live_fleet *fleet, struct weir_place place);
void weir_live_start(struct weir_live_fleet *fleet, struct weir_place place);
void weir_live_reset(struct weir_live_fleet *fleet, struct weir_place place);
void weir_live_pause(struct weir_live_fleet *fleet, struct weir_place place,
                     bool paused);
void weir_live_cut(struct weir_live_fleet *fleet, uint32_t limiter,
                   uint32_t root, enum weir_way ways, weir_duration noticed);
/* Requests a second of a load on one limiter. Costs nothing unless it is
 * another than before. */
void weir_live_rate(struct weir_live_fleet *fleet, uint32_t limiter,
                    size_t load, double per_s);
/* Edits go to the first root that can answer; 'edited' is told the epoch at
 * which it is in force, or 'why' it was refused (else NULL). */
typedef void weir_live_edited_fn(void *context, uint64_t epoch,
                                 const char *why);
void weir_live_put(struct weir_live_fleet *fleet,
                   const struct weir_quota *quotas, size_t count,
                   weir_live_edited_fn *edited, void *context);
void weir_live_remove(struct weir_live_fleet *fleet, const char *name,
                      weir_live_edited_fn *edited, void *context);
/* Moves the store's file aside, and back. */
void weir_live_store_away(struct weir_live_fleet *fleet, bool away);

/* ---- What is seen ---- */

const struct weir_live_limiter *weir_live_limiter(
    const struct weir_live_fleet *fleet, uint32_t limiter);
/* Root links of the limiter that are up, and not cut. */
uint32_t weir_live_links(const struct weir_live_fleet *fleet, uint32_t limiter);
/* It runs, and has told its ports. */
bool weir_live_root_runs(const struct weir_live_fleet *fleet, uint32_t root);
/* Asks every root that can answer for its fills; see 'looked'. A root that
 * still owes an answer isn't asked again. */
void weir_live_look(struct weir_live_fleet *fleet, uint64_t asked);
/* Passed on by all relays. */
uint64_t weir_live_bytes(const struct weir_live_fleet *fleet);

#endif /* WEIR_LIVE_FLEET_H */
