/* SPDX-License-Identifier: MIT
 * lab/run_model.c - runs a scenario with a model: memory around play(), and the
 * same judging as for a fleet. A sample is a bin. */

#include <math.h>
#include <sys/resource.h>

#include "io/clock.h"
#include "lab/memory.h"
#include "lab/model.h"
#include "lab/run.h"

extern const struct weir_model weir_model_pacing, weir_model_windows,
    weir_model_boundary, weir_model_stampede, weir_model_architectures,
    weir_model_doorman, weir_model_adaptive, weir_model_swarm;

const struct weir_model *const weir_models[] = {
    &weir_model_pacing,   &weir_model_windows,       &weir_model_boundary,
    &weir_model_stampede, &weir_model_architectures, &weir_model_doorman,
    &weir_model_adaptive, &weir_model_swarm,         NULL,
};

static struct weir_result *new_result(const struct weir_scenario *scenario,
                                      uint64_t seed, struct weir_diag *diag)
{
    const struct weir_model *model = scenario->model;
    size_t metrics = 0;
    size_t series = 0;
    while (model->metrics[metrics].name)
        metrics++;
    while (model->series[series].name)
        series++;
    size_t samples = scenario->span / scenario->bin;
    if (samples > WEIR_RUN_SAMPLES_MAX / (series + 1)) {
        weir_diag_put(diag, WEIR_ETOOBIG,
                      "too many samples: run a shorter time, or in larger "
                      "bins");
        return NULL;
    }
    struct weir_result *result = weir_must_zeroed(1, sizeof *result);
    result->seed = seed;
    result->step = scenario->bin;
    result->sample_count = samples;
    result->model_metrics = weir_must_zeroed(metrics + 1, sizeof(double));
    for (size_t i = 0; i < metrics; i++)
        result->model_metrics[i] = NAN;
    result->model_series = weir_must_zeroed(series + 1, sizeof(double *));
    result->model_series[0] =
        weir_must_zeroed(series * samples + 1, sizeof(double));
    for (size_t i = 1; i < series; i++)
        result->model_series[i] = result->model_series[0] + i * samples;
    return result;
}

struct weir_result *weir_run_model(const struct weir_scenario *scenario,
                                   const struct weir_run_options *options,
                                   struct weir_diag *diag)
{
    weir_instant began = weir_clock_now();
    if (diag)
        *diag = (struct weir_diag){ 0 };
    struct weir_result *result = new_result(scenario, options->seed, diag);
    if (!result)
        return NULL;
    struct weir_model_run run = {
        .values = scenario->model_values,
        .seed = options->seed,
        .span = scenario->span,
        .step = scenario->bin,
        .sample_count = result->sample_count,
        .metrics = result->model_metrics,
        .series = result->model_series,
        .options = options,
    };
    scenario->model->play(&run);
    result->events = run.events;
    result->takes = run.takes;
    result->violation = run.violation;
    result->violation_event = run.violation_event;
    result->checked = run.checked;
    result->failed = run.violation != NULL;
    weir_result_judge(scenario, result);
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        result->memory_peak = (size_t)usage.ru_maxrss << 10;
    result->wall_s = (double)(weir_clock_now() - began) / 1e9;
    return result;
}
