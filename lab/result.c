/* SPDX-License-Identifier: MIT
 * lab/result.c - memory of results; see run.h.
 *
 * Every quota that the scenario mentions has a series. A load to all instances
 * of a template is sampled under the template's name. */

#include "lab/memory.h"
#include "lab/run.h"

const char *weir_quota_meant(const struct weir_scenario *scenario,
                             const char *quota)
{
    if (quota)
        return quota;
    return scenario->quota_count > 0 ? scenario->quotas[0].name.p : NULL;
}

size_t weir_result_capacity(const struct weir_scenario *scenario)
{
    weir_duration step = scenario->bin / WEIR_RUN_SAMPLES_A_BIN;
    weir_assert(step > 0);
    return scenario->span / step;
}

/* Adds a series of that name, unless there is one. */
static void add_series(struct weir_quota_series **series, size_t *count,
                       const char *name)
{
    for (size_t i = 0; i < *count; i++) {
        if (strcmp((*series)[i].name, name) == 0)
            return;
    }
    /* Few, so growing by one is enough. */
    size_t size = (*count + 1) * sizeof(**series);
    *series = weir_must(realloc(*series, size));
    (*series)[(*count)++] = (struct weir_quota_series){
        .name = weir_must_text(weir_text_of(name)),
    };
}

static void add_measured_quota(struct weir_result *result,
                               const struct weir_scenario *scenario,
                               const char *quota)
{
    const char *name = weir_quota_meant(scenario, quota);
    if (name)
        add_series(&result->quotas, &result->quota_count, name);
}

static void add_measure(struct weir_result *result,
                        const struct weir_scenario *scenario,
                        const struct weir_measure *measure)
{
    add_measured_quota(result, scenario, measure->quota);
    if (measure->load)
        add_series(&result->loads, &result->load_count, measure->load);
}

static void add_condition(struct weir_result *result,
                          const struct weir_scenario *scenario,
                          const struct weir_condition *condition)
{
    if (condition->at_end)
        add_measure(result, scenario, &condition->measure);
    else
        add_measured_quota(result, scenario, condition->quota);
}

static void add_quotas(struct weir_result *result,
                       const struct weir_scenario *s)
{
    add_measured_quota(result, s, NULL);
    for (size_t i = 0; i < s->load_count; i++)
        add_measured_quota(result, s, s->loads[i].quota);
    for (size_t i = 0; i < s->measure_count; i++)
        add_measure(result, s, &s->measures[i]);
    for (size_t i = 0; i < s->figure_count; i++)
        add_measured_quota(result, s, s->figures[i].quota);
    for (size_t i = 0; i < s->always_count; i++)
        add_condition(result, s, &s->always[i]);
    for (size_t i = 0; i < s->expect_count; i++)
        add_condition(result, s, &s->expects[i]);
    for (size_t i = 0; i < s->claim_count; i++) {
        for (size_t k = 0; k < s->claims[i].condition_count; k++)
            add_condition(result, s, &s->claims[i].conditions[k]);
    }
}

struct weir_result *weir_result_new(const struct weir_scenario *scenario,
                                    uint64_t seed, struct weir_diag *diag)
{
    struct weir_result *result = weir_must_zeroed(1, sizeof(*result));
    result->seed = seed;
    result->step = scenario->bin / WEIR_RUN_SAMPLES_A_BIN;
    add_quotas(result, scenario);
    size_t count = weir_result_capacity(scenario);
    size_t series = result->quota_count + result->load_count;
    if (count > WEIR_RUN_SAMPLES_MAX / (series + 1)) {
        weir_diag_put(diag, WEIR_ETOOBIG,
                      "too many samples for this many quotas: run a shorter "
                      "time, or in larger bins");
        weir_result_free(result);
        return NULL;
    }
    for (size_t i = 0; i < result->quota_count; i++)
        result->quotas[i].samples =
            weir_must_zeroed(count, sizeof(struct weir_quota_sample));
    for (size_t i = 0; i < result->load_count; i++)
        result->loads[i].samples =
            weir_must_zeroed(count, sizeof(struct weir_quota_sample));
    result->fleet = weir_must_zeroed(count, sizeof(*result->fleet));
    return result;
}

void weir_result_expect(struct weir_result *result,
                        const struct weir_condition *condition,
                        weir_duration at, double value, bool held)
{
    /* Few, so growing by one is enough. */
    size_t size = (result->expect_count + 1) * sizeof(*result->expects);
    result->expects = weir_must(realloc(result->expects, size));
    result->expects[result->expect_count++] = (struct weir_outcome_line){
        .held = held,
        .value = value,
        .text = weir_must_text(weir_text_of(condition->text)),
        .where = condition->where,
        .at = at,
    };
    result->failed = result->failed || !held;
}

void weir_result_free(struct weir_result *result)
{
    if (!result)
        return;
    for (size_t i = 0; i < result->quota_count; i++) {
        free(result->quotas[i].name);
        free(result->quotas[i].samples);
    }
    for (size_t i = 0; i < result->load_count; i++) {
        free(result->loads[i].name);
        free(result->loads[i].samples);
    }
    for (size_t i = 0; i < result->expect_count; i++)
        free(result->expects[i].text);
    free(result->loads);
    free(result->quotas);
    if (result->model_series)
        free(result->model_series[0]);
    free(result->model_series);
    free(result->model_metrics);
    free(result->fleet);
    free(result->measures);
    free(result->expects);
    free(result->claims);
    free(result->violation);
    free(result);
}
