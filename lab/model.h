/* SPDX-License-Identifier: MIT
 * lab/model.h - scenarios that aren't fleets: one experiment each, run in
 * virtual time with the product's own pure parts.
 *
 * "model NAME key=value …" replaces roots, limiters, quotas and loads in a
 * scenario. The rest of the language is the same: settings, variants, measures,
 * claims, figures. A model declares its parameters (fields), its results
 * (metrics) and its values over time (series), by names of its own; it has no
 * copy of the product's decisions. */

#ifndef WEIR_MODEL_H
#define WEIR_MODEL_H

#include <stdio.h>

#include "lab/check.h"
#include "lab/scenario.h"

#define WEIR_MODEL_FIELDS_MAX 64

enum weir_model_kind {
    WEIR_MODEL_DURATION, /* ns */
    WEIR_MODEL_RATE,     /* a second */
    WEIR_MODEL_COUNT,    /* a whole number, at most 2^53 */
    WEIR_MODEL_SHARE,    /* 0 .. 1 */
    WEIR_MODEL_REAL,
    WEIR_MODEL_WORD, /* the index of one of 'words' */
};

struct weir_model_field {
    const char *name; /* NULL ends a list */
    enum weir_model_kind kind;
    double preset;
    double min, max;          /* of counts and reals */
    const char *const *words; /* of a word; ends with NULL */
    const char *sentence;
};

struct weir_model_metric {
    const char *name; /* NULL ends a list */
    const char *sentence;
};

/* How a series is drawn: summed to a rate, or by its maximum. */
struct weir_model_series {
    const char *name; /* NULL ends a list */
    const char *unit; /* of the axis; series of one unit share a panel */
    bool rate;        /* a sample is a count; the figure shows it per second */
};

struct weir_model_run;
struct weir_run_options; /* run.h */

struct weir_model {
    const char *name;     /* NULL ends the list of models */
    const char *sentence; /* description for people */
    const struct weir_model_field *fields;
    const struct weir_model_metric *metrics;
    const struct weir_model_series *series;
    /* Runs it once. Deterministic in 'run' alone. */
    void (*play)(struct weir_model_run *run);
};
extern const struct weir_model *const weir_models[]; /* ends with NULL */

/* Input and results of a model. */
struct weir_model_run {
    const double *values; /* by the model's fields */
    uint64_t seed;
    weir_duration span, step; /* of the run; of a sample */
    size_t sample_count;
    double *metrics; /* by the model's metrics; NaN until set */
    double **series; /* by the model's series: 'sample_count' samples each,
                       * of 0 */
    uint64_t events, takes;
    /* Of a model that has checkers: as in weir_run_options (until_event, trace,
     * check), and as in weir_result. 'violation' is then the result's. */
    const struct weir_run_options *options;
    char *violation;
    uint64_t violation_event;
    struct weir_check_stats checked;
};

/* Adds to the sample that contains 'at' (since the start), if it is within the
 * run. */
static inline void weir_model_add(struct weir_model_run *run, size_t series,
                                  weir_duration at, double value)
{
    size_t sample = at / run->step;
    if (sample < run->sample_count)
        run->series[series][sample] += value;
}

/* ---- scenario_model.c ---- */

struct weir_builder;
int weir_build_model(struct weir_builder *builder);
/* Prints a field's value as it can be read back. */
void weir_model_value_print(FILE *out, const struct weir_model_field *field,
                            double value);
void weir_print_model(FILE *out, const struct weir_scenario *scenario);

/* ---- run_model.c ---- */

struct weir_result;
/* As weir_run_simulated(), of a scenario with a model. */
struct weir_result *weir_run_model(const struct weir_scenario *scenario,
                                   const struct weir_run_options *options,
                                   struct weir_diag *diag);

#endif /* WEIR_MODEL_H */
