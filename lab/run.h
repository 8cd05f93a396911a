/* SPDX-License-Identifier: MIT
 * lab/run.h - a scenario is run: what came out. The same for both back ends.
 *
 * A run samples series in steps of a tenth of a bin; measures are computed
 * from them at the end (metric.c), so that both back ends measure alike. */

#ifndef WEIR_RUN_H
#define WEIR_RUN_H

#include "lab/check.h"
#include "lab/scenario.h"

#define WEIR_RUN_SAMPLES_A_BIN 10
/* Of all quotas together. */
#define WEIR_RUN_SAMPLES_MAX 5000000
/* A scenario begins when the limiters that it starts with have their quotas,
 * at the latest after so long. */
#define WEIR_RUN_WARM_UP_MAX (60 * WEIR_SECOND)
/* One sample of one quota: sums over the step, state at its end. NaN where
 * the back end can't tell. Of a template: sums over its instances, limits
 * too; fills are those of the instance that is the fullest. */
struct weir_sample {
    double offered, passed, refused; /* units in this step */
    double ideal_passed, ideal_refused;
    double limit_per_s, low, high;  /* units; NaN without a limit */
    double fill, fill_most;         /* true, units; most in this step */
    double over_high_most;          /* … of it above high, limit-seconds */
    double root_fill, limiter_fill; /* largest; mean of those that know it */
    double divergence;              /* mean |limiter's - true|, units */
};
/* One sample of the fleet. */
struct weir_fleet_sample {
    double reports, messages, bytes; /* in this step */
    double links, limiters, roots;   /* up, at its end */
    double waiting_bytes;            /* most before any node, since the start */
    double unseen_share; /* most of the stated bound used since then */
};

struct weir_quota_series {
    char *name;
    struct weir_sample *samples;
};

struct weir_outcome_line { /* of an expectation */
    bool held;
    double value; /* what was found */
    char *text;   /* as written */
    struct weir_where where;
    weir_duration at;
};

struct weir_result {
    uint64_t seed;
    weir_duration step;
    size_t sample_count;
    struct weir_quota_series *quotas; /* those that the scenario measures,
                                       * shows or loads */
    size_t quota_count;
    struct weir_fleet_sample *fleet;
    double *model_metrics; /* by the metrics of the scenario's model */
    double **model_series; /* by its series; 'sample_count' of each */
    double *measures;      /* as scenario->measures */
    struct weir_outcome_line *expects; /* actions', always, at the end */
    size_t expect_count;
    bool *claims;             /* as scenario->claims */
    bool failed;              /* an expectation, or a checker */
    char *violation;          /* of a checker: its name and what it saw */
    uint64_t violation_event; /* the number of the bad event, after which the
                               * run stopped; series end before it */
    struct weir_check_stats checked; /* how much was judged */
    double wall_s; /* spent; not in any output that must repeat */
    uint64_t events, takes;
    size_t memory_peak; /* bytes that this process held at most so far;
                               * as wall_s, in nothing that must repeat */
};

struct weir_run_options {
    uint64_t seed;
    bool check;             /* run the checkers (check.h) */
    bool trace;             /* each event to standard error */
    uint64_t until_event;   /* stop before it; 0: don't */
    weir_duration patience; /* live: how long the actions of a scenario are put
                             * off for an expectation that is late */
    /* Called some times a second with 0 .. 1; NULL: not. */
    void (*progress)(void *context, double part);
    void *context;
};

/* Both return NULL with 'diag' filled when the scenario can't be run that way
 * (line and column say which word). */
struct weir_result *weir_run_simulated(const struct weir_scenario *scenario,
                                       const struct weir_run_options *options,
                                       struct weir_diag *diag);
struct weir_result *weir_run_live(const struct weir_scenario *scenario,
                                  const struct weir_run_options *options,
                                  struct weir_diag *diag);
void weir_result_free(struct weir_result *result);

/* ---- metric.c: what is computed from the series ---- */

/* What a metric is, in one sentence; by enum weir_metric. */
extern const char *const weir_metric_sentences[WEIR_METRIC_COUNT];

/* NaN: can't be told (no such quota, no whole bin in the window, no limit). */
double weir_metric_of(const struct weir_scenario *scenario,
                      const struct weir_result *result,
                      const struct weir_measure *measure);
/* Equality is to a part in 10^9. NaN holds nothing. */
bool weir_condition_holds(const struct weir_condition *condition, double value);
/* A line about an expectation of the scenario; a failed one fails the run. */
void weir_result_expect(struct weir_result *result,
                        const struct weir_condition *condition,
                        weir_duration at, double value, bool held);
/* Fills measures, the expectations at the end, and claims. (Of a claim only
 * what speaks of this variant is judged: it holds if it does in all.) */
void weir_result_judge(const struct weir_scenario *scenario,
                       struct weir_result *result);

/* ---- result.c: memory, for the back ends ---- */

/* A result for that many samples of the quotas that the scenario loads,
 * measures, shows or expects something of. NULL with 'diag': too many. */
struct weir_result *weir_result_new(const struct weir_scenario *scenario,
                                    uint64_t seed, struct weir_diag *diag);
/* Samples that 'sample_count' grows up to. */
size_t weir_result_capacity(const struct weir_scenario *scenario);
/* The name of the first quota where 'quota' is NULL. */
const char *weir_quota_meant(const struct weir_scenario *scenario,
                             const char *quota);

#endif /* WEIR_RUN_H */
