/* SPDX-License-Identifier: MIT
 * lab/live.h - one live run: the state of the part that acts on the fleet and
 * records its series; for live*.c only. The entry is weir_run_live() of
 * run.h. */

#ifndef WEIR_LIVE_H
#define WEIR_LIVE_H

#include "core/base/rng.h"
#include "lab/live_fleet.h"
#include "lab/load.h"

/* The present state of a quota of the scenario. */
struct weir_live_quota {
    const struct weir_quota *quota; /* NULL: removed */
    uint64_t epoch;                 /* of that; WEIR_NEVER: being edited */
    double limit_per_s, low, high;  /* units; NaN without a limit */
    double root_fills[WEIR_LIVE_ROOTS_MAX]; /* NaN: not read yet */
    /* the result's; NULL: it has no series */
    struct weir_quota_sample *samples;
};

/* The present state of a load. */
struct weir_live_load {
    const struct weir_load *load;
    size_t quota;                    /* of the scenario */
    struct weir_arrival arrival;     /* its rate, by time */
    bool on[WEIR_LIVE_LIMITERS_MAX]; /* the limiters that get it */
};

struct weir_live_restart {
    struct weir_node_place place;
    weir_duration at;
    bool waits;
};

/* An "expect" of an action, tested until it holds or its time is over. */
struct weir_live_expect {
    const struct weir_condition *condition;
    weir_duration until; /* of the scenario's time */
    weir_instant late;   /* when its time was found to be over; 0: not yet */
};

struct weir_live {
    const struct weir_scenario *scenario;
    const struct weir_run_options *options;
    struct weir_result *result;
    struct weir_live_fleet *fleet;
    struct weir_rng rng; /* draws nodes */
    weir_instant start;  /* 0: not yet */
    weir_duration held;  /* total time for which the scenario's clock stood
                          * still */
    struct weir_live_quota *quotas;     /* as scenario->quotas */
    struct weir_live_load *loads;       /* as scenario->loads */
    size_t next_action;                 /* of the scenario's */
    struct weir_live_restart *restarts; /* one for each node: limiters, roots */
    struct weir_live_expect *expects;   /* those that wait */
    size_t expect_count;
    bool *broken;   /* by scenario->always */
    bool away;      /* the store is away */
    size_t closed;  /* samples with recorded state */
    uint64_t bytes; /* passed on when the last sample was closed */
    bool done;
};

/* ---- live_act.c: actions due at an instant ---- */

/* Does everything that is due at 'now': actions, restarts, waiting
 * expectations. Returns the scenario's time. */
weir_duration weir_live_act(struct weir_live *live, weir_instant now);
/* Gives each limiter its part of each load as of 'at'. */
void weir_live_share(struct weir_live *live, weir_duration at);
/* Draws the nodes of a selection from those for which out[i] is true; then sets
 * out[i] true for the drawn nodes only. */
void weir_live_draw(struct weir_live *live, const struct weir_selection *nodes,
                    bool *out, uint32_t count);

/* ---- live_series.c: the recorded series ---- */

/* Records the quotas at the start, and begins their series. */
void weir_live_series_init(struct weir_live *live);
/* For weir_live_watch: 'context' is the live run. */
void weir_live_counted(void *context, uint32_t limiter, uint64_t sample,
                       const struct weir_live_counts *loads, uint64_t reports);
void weir_live_looked(void *context, uint32_t root, uint64_t sample,
                      const double *fills);
/* Records the state at the end of a sample. */
void weir_live_close(struct weir_live *live, size_t sample);
/* Computes the true fills, when all counts have come. */
void weir_live_fill(struct weir_live *live);
/* NaN: unknown now. */
double weir_live_quantity(const struct weir_live *live,
                          const struct weir_condition *condition);
/* The index in scenario->quotas; NULL: 0, the first. */
size_t weir_live_quota_index(const struct weir_live *live, const char *name);
/* The quota has this state from now on (NULL: removed), since 'epoch'. */
void weir_live_quota_set(struct weir_live_quota *state,
                         const struct weir_quota *quota, uint64_t epoch);

/* ---- live_check.c ---- */

/* 0, or WEIR_EINVAL: 'diag' names the statement that --live can't run, and its
 * place in the file. */
int weir_live_check(const struct weir_scenario *scenario,
                    struct weir_diag *diag);

#endif /* WEIR_LIVE_H */
