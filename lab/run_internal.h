/* SPDX-License-Identifier: MIT
 * lab/run_internal.h - the parts of a simulated run, for its own files. */

#ifndef WEIR_RUN_INTERNAL_H
#define WEIR_RUN_INTERNAL_H

#include "lab/check.h"
#include "lab/load.h"
#include "lab/run.h"

struct weir_director;
struct weir_sampler;

/* All members are owned but 'scenario' and 'options'. */
struct weir_run {
    const struct weir_scenario *scenario;
    const struct weir_run_options *options;
    struct weir_fleet *fleet;
    struct weir_truth *truth;
    struct weir_check *check; /* NULL: without checkers */
    struct weir_loads *loads;
    struct weir_director *director;
    struct weir_sampler *sampler;
    struct weir_result *result;
    weir_instant start, end; /* of the scenario */
    double progress;         /* last reported */
};

/* ---- director.c: actions by instant ---- */

struct weir_director *weir_director_new(struct weir_run *run);
void weir_director_free(struct weir_director *director);
/* Sets the fleet's links, and the networks, processors and clocks of the
 * instant 0. */
void weir_director_build(struct weir_director *director);
/* The scenario begins now. */
void weir_director_start(struct weir_director *director);
/* A sample was taken: tests the conditions that must always hold. */
void weir_director_sampled(struct weir_director *director);
/* The run is over: expectations that still wait have failed. */
void weir_director_end(struct weir_director *director);

/* ---- sample.c: the series ---- */

struct weir_sampler *weir_sampler_new(struct weir_run *run);
void weir_sampler_free(struct weir_sampler *sampler);
void weir_sampler_start(struct weir_sampler *sampler);

/* ---- quantity.c: the present state ---- */

/* The present value; NaN: unknown. OVER_HIGH is the maximum since the last
 * sample. */
double weir_quantity_now(struct weir_run *run, enum weir_quantity quantity,
                         const char *quota);
/* Units in the largest bucket of the running roots; NaN if none runs. */
double weir_largest_root_fill(const struct weir_run *run,
                              struct weir_text name);
/* Units in a limiter's bucket; false: it doesn't run, or doesn't have the
 * name. */
bool weir_limiter_belief(const struct weir_run *run, uint32_t limiter,
                         struct weir_text name, double *out_fill);
uint32_t weir_count_links(const struct weir_run *run);
uint32_t weir_count_alive(const struct weir_run *run, bool roots);
uint32_t weir_count_ready(const struct weir_run *run);

#endif /* WEIR_RUN_INTERNAL_H */
