/* SPDX-License-Identifier: MIT
 * lab/output.c - JSON lines and CSV.
 *
 * Numbers have six digits: a last place of a double that two compilers round
 * differently gives the same text. An unknown value (NaN) is null in JSON and
 * an empty cell in CSV. */

#include "lab/output.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "lab/model.h"
#include "lab/output_page.h"

/* ---- JSON ---- */

static json_t *json_figure(double value)
{
    return isfinite(value) ? json_real(value + 0.0) : json_null();
}

static json_t *metrics_of(const struct weir_scenario *scenario,
                          const struct weir_result *result)
{
    json_t *metrics = json_object();
    for (size_t i = 0; i < scenario->measure_count; i++)
        json_object_set_new(metrics, scenario->measures[i].name,
                            json_figure(result->measures[i]));
    return metrics;
}

static json_t *expectations(const struct weir_scenario *scenario,
                            const struct weir_result *result)
{
    json_t *list = json_array();
    for (size_t i = 0; i < result->expect_count; i++) {
        const struct weir_outcome_line *line = &result->expects[i];
        json_t *entry =
            json_pack("{s:s, s:b, s:o}", "text", line->text, "held", line->held,
                      "value", json_figure(line->value));
        /* Only for an instant before the end of the run. */
        if (line->at > 0 && line->at < scenario->span)
            json_object_set_new(entry, "at_s",
                                json_figure((double)line->at / 1e9));
        json_array_append_new(list, entry);
    }
    return list;
}

static json_t *claims(const struct weir_batch *batch)
{
    const struct weir_scenario *first = batch->scenarios[0];
    json_t *list = json_array();
    for (size_t j = 0; j < first->claim_count; j++) {
        bool holds = true;
        for (size_t i = 0; i < batch->count; i++)
            holds &= batch->results[i]->claims[j];
        json_array_append_new(list,
                              json_pack("{s:s, s:b}", "text",
                                        first->claims[j].text, "holds", holds));
    }
    return list;
}

static json_t *violations(const struct weir_result *result)
{
    json_t *list = json_array();
    if (result->violation)
        json_array_append_new(
            list, json_pack("{s:s, s:I}", "text", result->violation, "event",
                            (json_int_t)result->violation_event));
    return list;
}

static void set_unless_empty(json_t *object, const char *key, json_t *list)
{
    if (json_array_size(list) > 0)
        json_object_set(object, key, list);
    json_decref(list);
}

static void write_line(const struct weir_batch *batch, size_t at, FILE *out)
{
    const struct weir_scenario *scenario = batch->scenarios[at];
    const struct weir_result *result = batch->results[at];
    json_t *line = json_pack(
        "{s:s, s:I, s:s*, s:o, s:I, s:I}", "scenario", batch->name, "seed",
        (json_int_t)batch->seed, "variant", scenario->variant, "metrics",
        metrics_of(scenario, result), "events", (json_int_t)result->events,
        "takes", (json_int_t)result->takes);
    set_unless_empty(line, "expectations", expectations(scenario, result));
    set_unless_empty(line, "claims", claims(batch));
    set_unless_empty(line, "violations", violations(result));
    json_dumpf(line, out, JSON_COMPACT | JSON_REAL_PRECISION(6));
    fputc('\n', out);
    json_decref(line);
}

void weir_output_json(const struct weir_batch *batch, FILE *out)
{
    for (size_t i = 0; i < batch->count; i++)
        write_line(batch, i, out);
}

/* ---- CSV ---- */

struct column {
    const char *name;
    size_t offset; /* of a double */
};

static const struct column fleet_columns[] = {
    { "reports", offsetof(struct weir_fleet_sample, reports) },
    { "messages", offsetof(struct weir_fleet_sample, messages) },
    { "bytes", offsetof(struct weir_fleet_sample, bytes) },
    { "links", offsetof(struct weir_fleet_sample, links) },
    { "limiters", offsetof(struct weir_fleet_sample, limiters) },
    { "roots", offsetof(struct weir_fleet_sample, roots) },
    { "waiting_bytes", offsetof(struct weir_fleet_sample, waiting_bytes) },
    { "unseen_share", offsetof(struct weir_fleet_sample, unseen_share) },
};

static const struct column quota_columns[] = {
    { "offered", offsetof(struct weir_quota_sample, offered) },
    { "passed", offsetof(struct weir_quota_sample, passed) },
    { "limited", offsetof(struct weir_quota_sample, refused) },
    { "ideal_passed", offsetof(struct weir_quota_sample, ideal_passed) },
    { "ideal_limited", offsetof(struct weir_quota_sample, ideal_refused) },
    { "limit_per_s", offsetof(struct weir_quota_sample, limit_per_s) },
    { "low", offsetof(struct weir_quota_sample, low) },
    { "high", offsetof(struct weir_quota_sample, high) },
    { "fill_most", offsetof(struct weir_quota_sample, fill_most) },
    { "fill", offsetof(struct weir_quota_sample, fill) },
    { "root_fill", offsetof(struct weir_quota_sample, root_fill) },
    { "limiter_fill", offsetof(struct weir_quota_sample, limiter_fill) },
    { "divergence", offsetof(struct weir_quota_sample, divergence) },
};

static void write_cells(const void *sample, const struct column *columns,
                        size_t count, FILE *out)
{
    for (size_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, (const char *)sample + columns[i].offset, sizeof value);
        fputc(',', out);
        if (isfinite(value))
            fprintf(out, "%.6g", value + 0.0);
    }
}

/* A column is QUOTA.FIELD, in quotes if the name has a comma, for example. */
static void write_heading(const struct weir_result *result, FILE *out)
{
    fputs("time_s", out);
    for (size_t i = 0; i < WEIR_COUNT_OF(fleet_columns); i++)
        fprintf(out, ",%s", fleet_columns[i].name);
    for (size_t q = 0; q < result->quota_count; q++) {
        for (size_t i = 0; i < WEIR_COUNT_OF(quota_columns); i++) {
            fputs(",\"", out);
            for (const char *c = result->quotas[q].name; *c; c++)
                fputs(*c == '"' ? "\"\"" : (char[]){ *c, '\0' }, out);
            fprintf(out, ".%s\"", quota_columns[i].name);
        }
    }
    fputc('\n', out);
}

/* The same for a model: a column is one of its series. */
static void write_model_csv(const struct weir_scenario *scenario,
                            const struct weir_result *result, FILE *out)
{
    const struct weir_model_series *series = scenario->model->series;
    fputs("time_s", out);
    for (size_t i = 0; series[i].name; i++)
        fprintf(out, ",%s", series[i].name);
    fputc('\n', out);
    for (size_t at = 0; at < result->sample_count; at++) {
        fprintf(out, "%.10g", (double)(at + 1) * (double)result->step / 1e9);
        for (size_t i = 0; series[i].name; i++)
            fprintf(out, ",%.6g", result->model_series[i][at] + 0.0);
        fputc('\n', out);
    }
}

static void write_csv(const struct weir_result *result, FILE *out)
{
    write_heading(result, out);
    for (size_t i = 0; i < result->sample_count; i++) {
        fprintf(out, "%.10g", (double)(i + 1) * (double)result->step / 1e9);
        write_cells(&result->fleet[i], fleet_columns,
                    WEIR_COUNT_OF(fleet_columns), out);
        for (size_t q = 0; q < result->quota_count; q++)
            write_cells(&result->quotas[q].samples[i], quota_columns,
                        WEIR_COUNT_OF(quota_columns), out);
        fputc('\n', out);
    }
}

int weir_output_csv(const struct weir_batch *batch, const char *dir,
                    struct weir_diag *diag)
{
    for (size_t i = 0; i < batch->count; i++) {
        const char *variant = batch->scenarios[i]->variant;
        char stem[WEIR_STEM_BYTES];
        snprintf(stem, sizeof stem, "%.80s%s%.80s-%" PRIu64, batch->name,
                 variant ? "-" : "", variant ? variant : "", batch->seed);
        weir_output_clean(stem);
        FILE *out = weir_output_open(dir, stem, ".csv", diag);
        if (!out)
            return WEIR_ESYSTEM;
        if (batch->scenarios[i]->model)
            write_model_csv(batch->scenarios[i], batch->results[i], out);
        else
            write_csv(batch->results[i], out);
        int error = weir_output_close(out, diag);
        if (error)
            return error;
    }
    return WEIR_OK;
}

/* ---- Figures ---- */

bool weir_output_is_common(const struct weir_batch *batch, size_t setting)
{
    const char *value = batch->scenarios[0]->settings[setting].value;
    for (size_t i = 1; i < batch->count; i++) {
        const struct weir_scenario *other = batch->scenarios[i];
        if (setting >= other->setting_count ||
            strcmp(other->settings[setting].value, value) != 0)
            return false;
    }
    return true;
}

/* "weir-fleet, seed 1, limiters=50, rtt=1ms": the run, without the settings
 * that differ between panels; cut at the end of 'buf'. */
static void write_caption(const struct weir_batch *batches, size_t count,
                          char *buf, size_t size)
{
    const struct weir_batch *batch = &batches[0];
    const struct weir_scenario *first = batch->scenarios[0];
    FILE *out = fmemopen(buf, size - 1, "w");
    if (!out)
        return;
    fprintf(out, "%s, ", batch->name);
    if (count == 1)
        fprintf(out, "seed %" PRIu64, batch->seed);
    else
        fprintf(out, "seeds %" PRIu64 "..%" PRIu64, batch->seed,
                batches[count - 1].seed);
    for (size_t i = 0; i < first->setting_count; i++)
        if (weir_output_is_common(batch, i))
            fprintf(out, ", %s=%s", first->settings[i].key,
                    first->settings[i].value);
    fclose(out);
}

int weir_output_figures(const struct weir_batch *batches, size_t count,
                        const char *dir, struct weir_diag *diag)
{
    const struct weir_scenario *first = batches[0].scenarios[0];
    int result = WEIR_OK;
    for (size_t i = 0; i < first->figure_count; i++) {
        const struct weir_figure *figure = &first->figures[i];
        bool curves = figure->measure != NULL;
        char stem[WEIR_STEM_BYTES];
        char number[24] = "";
        char caption[140] = "";
        if (first->figure_count > 1)
            snprintf(number, sizeof number, "-%zu", i + 1);
        snprintf(stem, sizeof stem, "%.120s%s", batches[0].name, number);
        weir_output_clean(stem);
        write_caption(batches, curves ? count : 1, caption, sizeof caption);
        struct weir_page page = {
            .dir = dir, .stem = stem, .title = figure->title, .caption = caption
        };
        int error =
            curves ? weir_output_curves(batches, count, figure, &page, diag)
                   : weir_output_series(&batches[0], figure, &page, diag);
        if (error && error != WEIR_ENOENT)
            return error;
        result = error ? error : result;
    }
    return result;
}
