/* SPDX-License-Identifier: MIT
 * test/lab/model_runs.h - runs of the lab's own models, for tests of their
 * scenarios. */

#ifndef WEIR_MODEL_RUNS_H
#define WEIR_MODEL_RUNS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lab/model.h"
#include "lab/run.h"

/* Fails the test if the program has no such scenario. */
static inline const char *builtin_text(const char *name)
{
    const struct weir_builtin *b = weir_builtins;
    while (b->name && strcmp(b->name, name) != 0)
        b++;
    assert_non_null(b->name);
    return b->text;
}

struct ran {
    struct weir_scenario *scenario;
    struct weir_result *result;
};

static inline void ran_free(struct ran *ran)
{
    weir_result_free(ran->result);
    weir_scenario_free(ran->scenario);
}

/* A metric of the model; fails the test if it has none of that name. */
static inline double metric_of(const struct ran *ran, const char *metric)
{
    const struct weir_model *model = ran->scenario->model;
    for (size_t i = 0; model->metrics[i].name; i++)
        if (strcmp(model->metrics[i].name, metric) == 0)
            return ran->result->model_metrics[i];
    fail_msg("no metric %s", metric);
    return NAN;
}

#endif /* WEIR_MODEL_RUNS_H */
