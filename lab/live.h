/* SPDX-License-Identifier: MIT
 * lab/live.h - one live run: who does what to the fleet and writes down what
 * comes of it; for live*.c only. weir_run_live() of run.h is the way in. */

#ifndef WEIR_LIVE_H
#define WEIR_LIVE_H

#include "base/rng.h"
#include "lab/live_fleet.h"
#include "lab/load.h"

/* A quota of the scenario as it is now. */
struct weir_live_quota {
    const struct weir_quota *quota; /* NULL: removed */
    uint64_t epoch;                 /* of that; WEIR_NEVER: on its way */
    double limit_per_s, low, high;  /* units; NaN without a limit */
    double root_fills[WEIR_LIVE_ROOTS_MAX]; /* NaN: not seen */
    struct weir_sample *samples; /* the result's; NULL: it has no series */
};

/* A load as it is now. */
struct weir_live_load {
    const struct weir_load *load;
    size_t quota;                    /* of the scenario */
    struct weir_arrival arrival;     /* its rate, by time */
    bool on[WEIR_LIVE_LIMITERS_MAX]; /* the limiters that get it */
};

struct weir_live_restart {
    struct weir_place place;
    weir_duration at;
    bool waits;
};

/* An "expect" of an action that is looked at until it holds, or too late. */
struct weir_live_expect {
    const struct weir_condition *condition;
    weir_duration until; /* of the scenario's time */
    weir_instant late;   /* when it was seen that it didn't hold by then; 0 */
};

struct weir_live {
    const struct weir_scenario *scenario;
    const struct weir_run_options *options;
    struct weir_result *result;
    struct weir_live_fleet *fleet;
    struct weir_rng rng; /* draws nodes */
    weir_instant start;  /* 0: not yet */
    weir_duration held;  /* the scenario's time stood still for so long */
    struct weir_live_quota *quotas;     /* as scenario->quotas */
    struct weir_live_load *loads;       /* as scenario->loads */
    size_t next_action;                 /* of the scenario's */
    struct weir_live_restart *restarts; /* one for each node: limiters, roots */
    struct weir_live_expect *expects;   /* that wait */
    size_t expect_count;
    bool *broken;   /* as scenario->always */
    bool away;      /* the store */
    size_t closed;  /* samples whose state is written */
    uint64_t bytes; /* passed on when the last was closed */
    bool done;
};

/* ---- live_act.c: what is done at an instant ---- */

/* Everything that is due at 'now': actions, restarts, waiting expectations.
 * Returns the scenario's time. */
weir_duration weir_live_act(struct weir_live *live, weir_instant now);
/* Gives each limiter its part of each load as of 'at'. */
void weir_live_share(struct weir_live *live, weir_duration at);
/* Draws the nodes of a selection, of those in it for which out[i] is true:
 * afterwards it is for those that were drawn. */
void weir_live_draw(struct weir_live *live, const struct weir_selection *nodes,
                    bool *out, uint32_t count);

/* ---- live_series.c: what is seen ---- */

/* The quotas as they are at the start, and their series. */
void weir_live_series_init(struct weir_live *live);
/* For weir_live_watch: 'context' is the live run. */
void weir_live_counted(void *context, uint32_t limiter, uint64_t sample,
                       const struct weir_live_counts *loads, uint64_t reports);
void weir_live_looked(void *context, uint32_t root, uint64_t sample,
                      const double *fills);
/* The state at the end of a sample. */
void weir_live_close(struct weir_live *live, size_t sample);
/* When all is counted: the true fills. */
void weir_live_fill(struct weir_live *live);
/* NaN: it can't be told now. */
double weir_live_quantity(const struct weir_live *live,
                          const struct weir_condition *condition);
/* The index in scenario->quotas; NULL: 0, the first. */
size_t weir_live_quota_index(const struct weir_live *live, const char *name);
/* The quota is this from now on (NULL: there is none), at 'epoch'. */
void weir_live_quota_set(struct weir_live_quota *state,
                         const struct weir_quota *quota, uint64_t epoch);

#endif /* WEIR_LIVE_H */
