/* SPDX-License-Identifier: MIT
 * lab/run.h - runs of a scenario and their results, for both back ends.
 *
 * A run samples series in steps of a tenth of a bin; measures are computed from
 * them at the end (metric.c), so that both back ends measure alike. */

#ifndef WEIR_RUN_H
#define WEIR_RUN_H

#include "lab/check.h"
#include "lab/scenario.h"

#define WEIR_RUN_SAMPLES_A_BIN 10
/* Bound for all quotas together. */
#define WEIR_RUN_SAMPLES_MAX 5000000
/* Longest time before a scenario begins; it begins when its first limiters have
 * their quotas. */
#define WEIR_RUN_WARM_UP_MAX (60 * WEIR_SECOND)
/* One sample of one quota: sums over the step, state at its end. NaN if the
 * back end can't know. Of a template: sums over its instances, also of the
 * limits; fills are those of its fullest instance. */
struct weir_quota_sample {
    double offered, passed, refused; /* units in this step */
    double ideal_passed, ideal_refused;
    double limit_per_s, low, high;  /* units; NaN without a limit */
    double fill, fill_most;         /* true, units; maximum of this step */
    double over_high_most;          /* … its part above high, limit-seconds */
    double root_fill, limiter_fill; /* largest; mean of the limiters that have
                                     * one */
    double divergence;              /* mean |limiter's - true|, units */
};
/* One sample of the fleet. */
struct weir_fleet_sample {
    double reports, messages, bytes; /* in this step */
    double links, limiters, roots;   /* up, at its end */
    double waiting_bytes;            /* most waiting at any node, since the
                                      * start */
    double unseen_share; /* largest part of the stated bound used since then */
};

/* Of a quota or of a load. A load's samples have its own sums and its quota's
 * limit; the rest is 0. */
struct weir_quota_series {
    char *name;
    struct weir_quota_sample *samples;
};

struct weir_outcome_line { /* of an expectation */
    bool held;
    double value; /* value found */
    char *text;   /* as written */
    struct weir_where where;
    weir_duration at;
};

struct weir_result {
    uint64_t seed;
    weir_duration step;
    size_t sample_count;
    struct weir_quota_series *quotas; /* the quotas that the scenario measures,
                                       * shows or loads */
    size_t quota_count;
    struct weir_quota_series *loads; /* the loads that it measures */
    size_t load_count;
    struct weir_fleet_sample *fleet;
    double *model_metrics; /* by the metrics of the scenario's model */
    double **model_series; /* by its series; 'sample_count' of each */
    double *measures;      /* as scenario->measures */
    struct weir_outcome_line *expects; /* actions', always, at the end */
    size_t expect_count;
    bool *claims;             /* as scenario->claims */
    bool failed;              /* an expectation or a checker failed */
    char *violation;          /* of a checker: its name and its sentence */
    uint64_t violation_event; /* the number of the event, after which the run
                               * stopped; series end before it */
    struct weir_check_stats checked; /* number of judgements */
    double wall_s; /* elapsed; not in outputs that must repeat */
    uint64_t events, takes;
    size_t memory_peak; /* peak memory of this process so far, bytes; like
                         * wall_s not in outputs that must repeat */
};

struct weir_run_options {
    uint64_t seed;
    bool check;             /* run the checkers (check.h) */
    bool trace;             /* prints each event to standard error */
    uint64_t until_event;   /* stop before it; 0: don't stop */
    weir_duration patience; /* live: longest delay of a scenario's actions by an
                             * expectation that is late */
    /* Called some times a second with 0 .. 1; may be NULL. */
    void (*progress)(void *context, double part);
    void *context;
};

/* Both return NULL with 'diag' filled if the scenario can't be run that way
 * (line and column are those of the word). */
struct weir_result *weir_run_simulated(const struct weir_scenario *scenario,
                                       const struct weir_run_options *options,
                                       struct weir_diag *diag);
struct weir_result *weir_run_live(const struct weir_scenario *scenario,
                                  const struct weir_run_options *options,
                                  struct weir_diag *diag);
void weir_result_free(struct weir_result *result);

/* ---- metric.c: measures from the series ---- */

/* NaN: unknown (no such quota, no whole bin in the window, no limit). */
double weir_metric_of(const struct weir_scenario *scenario,
                      const struct weir_result *result,
                      const struct weir_measure *measure);
/* Equality is to a part in 10^9. No condition holds for NaN. */
bool weir_condition_holds(const struct weir_condition *condition, double value);
/* Adds a line about an expectation of the scenario; a failed one fails the run
 * (result.c). */
void weir_result_expect(struct weir_result *result,
                        const struct weir_condition *condition,
                        weir_duration at, double value, bool held);
/* Fills measures, the expectations at the end, and claims. (Only the conditions
 * about this variant are judged: a claim holds if it holds in all variants.) */
void weir_result_judge(const struct weir_scenario *scenario,
                       struct weir_result *result);

/* ---- result.c: memory, for the back ends ---- */

/* A result for the samples of the quotas that the scenario loads, measures,
 * shows or names in an expectation. NULL with 'diag': too many. */
struct weir_result *weir_result_new(const struct weir_scenario *scenario,
                                    uint64_t seed, struct weir_diag *diag);
/* Upper bound of 'sample_count'. */
size_t weir_result_capacity(const struct weir_scenario *scenario);
/* 'quota', or the name of the first quota for NULL. */
const char *weir_quota_meant(const struct weir_scenario *scenario,
                             const char *quota);

#endif /* WEIR_RUN_H */
