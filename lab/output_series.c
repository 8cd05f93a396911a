/* SPDX-License-Identifier: MIT
 * lab/output_series.c - figures over time: passing rates, fills.
 *
 * Each variant has a panel for each unit that the figure shows, on the same
 * scale as its neighbours. Rates are drawn bin by bin, as the measures count
 * them: finer rates would show the randomness of the arrivals and not the
 * limit. Levels are drawn sample by sample and, if there are too many samples
 * for a figure, by the maximum of a few, so that no peak is lost.
 *
 * Colours are Okabe and Ito's, which colour-blind readers can distinguish;
 * dashes distinguish the curves in print. */

#include <math.h>
#include <string.h>

#include "lab/model.h"
#include "lab/output_page.h"

#define POINTS_MAX 240

/* Units of panels' axes, of a fleet. */
#define UNIT_RATE "units a second"
#define UNIT_LEVEL "units in the bucket"
#define UNIT_REPORTS "reports a link and second"
#define UNIT_LIMITERS "limiters that run"

/* How a curve is drawn. LOW and HIGH come with the first level. */
enum { CURVE_LOW = WEIR_SERIES_COUNT, CURVE_HIGH, CURVE_COUNT };
struct style {
    const char *label;
    const char *unit; /* curves of one unit share a panel */
    const char *line;
};
static const struct style fleet_styles[CURVE_COUNT] = {
    [WEIR_SERIES_OFFERED] = { "offered", UNIT_RATE,
                              "lc '#999999' lw 1.5 dt 3" },
    [WEIR_SERIES_PASSED] = { "passed", UNIT_RATE, "lc '#0072B2' lw 2.2" },
    [WEIR_SERIES_REFUSED] = { "limited", UNIT_RATE,
                              "lc '#D55E00' lw 1.5 dt 4" },
    [WEIR_SERIES_IDEAL] = { "ideal limiter", UNIT_RATE,
                            "lc '#E69F00' lw 1.8 dt 2" },
    [WEIR_SERIES_LIMIT] = { "limit", UNIT_RATE, "lc '#000000' lw 1" },
    [WEIR_SERIES_FILL] = { "true fill", UNIT_LEVEL, "lc '#0072B2' lw 1.8" },
    [WEIR_SERIES_ROOT_FILL] = { "fullest root", UNIT_LEVEL,
                                "lc '#E69F00' lw 1.6 dt 2" },
    [WEIR_SERIES_LIMITER_FILL] = { "mean limiter", UNIT_LEVEL,
                                   "lc '#009E73' lw 1.6 dt 4" },
    [WEIR_SERIES_REPORTS] = { "reports", UNIT_REPORTS, "lc '#CC79A7' lw 1.8" },
    [WEIR_SERIES_LIMITERS] = { "limiters", UNIT_LIMITERS,
                               "lc '#009E73' lw 1.8" },
    [CURVE_LOW] = { "low_burst", UNIT_LEVEL, "lc '#777777' lw 1 dt 3" },
    [CURVE_HIGH] = { "high_burst", UNIT_LEVEL, "lc '#000000' lw 1" },
};

/* Line styles of a model's series, in order. */
static const char *const model_lines[] = {
    "lc '#0072B2' lw 1.8",      "lc '#E69F00' lw 1.6 dt 2",
    "lc '#009E73' lw 1.6 dt 4", "lc '#D55E00' lw 1.6 dt 3",
    "lc '#CC79A7' lw 1.6 dt 5", "lc '#000000' lw 1",
};

/* The curves of a figure with the same unit. */
struct group {
    const char *unit;
    int curves[CURVE_COUNT];
    size_t count;
    double most; /* over all variants: one scale */
};

struct drawing {
    const struct weir_batch *batch;
    const struct weir_figure *figure;
    struct weir_page *page;
    struct group groups[WEIR_SERIES_COUNT];
    size_t group_count;
    size_t variant_count; /* number of those shown */
};

/* ---- Values ---- */

/* One run, in steps of some samples each. */
struct view {
    const struct weir_model *model;
    double **series;                         /* of the model */
    const struct weir_quota_sample *samples; /* NULL: no such quota */
    const struct weir_fleet_sample *fleet;
    size_t begin, end; /* samples */
    size_t stride;
    double step_s; /* of a sample */
};

static struct style style_of(const struct weir_batch *batch, int curve)
{
    const struct weir_model *model = batch->scenarios[0]->model;
    if (!model)
        return fleet_styles[curve];
    const struct weir_model_series *series = &model->series[curve];
    struct style style = {
        series->name, series->unit,
        model_lines[(size_t)curve % WEIR_COUNT_OF(model_lines)]
    };
    /* A series with a fleet's name looks as in a fleet. */
    for (size_t i = 0; i < CURVE_COUNT; i++) {
        if (strcmp(fleet_styles[i].label, series->name) == 0)
            style.line = fleet_styles[i].line;
    }
    return style;
}

/* Drawn by the maximum of some samples, and not as a rate. */
static bool is_level(const struct weir_batch *batch, int curve)
{
    const struct weir_model *model = batch->scenarios[0]->model;
    return model ? !model->series[curve].rate
                 : strcmp(fleet_styles[curve].unit, UNIT_LEVEL) == 0;
}

static const struct weir_quota_sample *samples_of(
    const struct weir_result *result, const char *quota)
{
    for (size_t i = 0; i < result->quota_count; i++)
        if (!quota || strcmp(result->quotas[i].name, quota) == 0)
            return result->quotas[i].samples;
    return NULL;
}

static struct view view_of_group(const struct drawing *drawing, size_t variant,
                                 const struct group *group)
{
    const struct weir_scenario *scenario = drawing->batch->scenarios[variant];
    const struct weir_result *result = drawing->batch->results[variant];
    const struct weir_interval *over = &drawing->figure->over;
    struct view view = {
        .model = scenario->model,
        .series = result->model_series,
        .samples = samples_of(result, drawing->figure->quota),
        .fleet = result->fleet,
        .begin = (size_t)(over->from / result->step),
        .end =
            over->to ? (size_t)(over->to / result->step) : result->sample_count,
        .stride = is_level(drawing->batch, group->curves[0])
                      ? 1
                      : (size_t)(scenario->bin / result->step),
        .step_s = (double)result->step / 1e9,
    };
    if (view.end > result->sample_count)
        view.end = result->sample_count;
    if (view.stride == 0)
        view.stride = 1;
    size_t points =
        view.end > view.begin ? (view.end - view.begin) / view.stride : 0;
    if (points > POINTS_MAX)
        view.stride *= (points + POINTS_MAX - 1) / POINTS_MAX;
    return view;
}

/* A quota's value in one sample. */
static double sample_value(const struct weir_quota_sample *sample, int curve)
{
    switch (curve) {
    case WEIR_SERIES_OFFERED:
        return sample->offered;
    case WEIR_SERIES_PASSED:
        return sample->passed;
    case WEIR_SERIES_REFUSED:
        return sample->refused;
    case WEIR_SERIES_IDEAL:
        return sample->ideal_passed;
    case WEIR_SERIES_LIMIT:
        return sample->limit_per_s;
    case WEIR_SERIES_FILL:
        return sample->fill_most;
    case WEIR_SERIES_ROOT_FILL:
        return sample->root_fill;
    case WEIR_SERIES_LIMITER_FILL:
        return sample->limiter_fill;
    case CURVE_LOW:
        return sample->low;
    case CURVE_HIGH:
        return sample->high;
    }
    return NAN;
}

/* Over 'stride' samples from 'at' on: the sum per second of a count, the mean
 * of a state, the maximum of a level. */
static double fleet_value_at(const struct view *view, size_t at, int curve)
{
    double sum = 0, most = -INFINITY, links = 0;
    for (size_t i = at; i < at + view->stride; i++) {
        double value = curve == WEIR_SERIES_REPORTS    ? view->fleet[i].reports
                       : curve == WEIR_SERIES_LIMITERS ? view->fleet[i].limiters
                       : view->samples ? sample_value(&view->samples[i], curve)
                                       : NAN;
        sum += value;
        most = value > most ? value : most;
        links += view->fleet[i].links;
    }
    double count = (double)view->stride;
    if (strcmp(fleet_styles[curve].unit, UNIT_LEVEL) == 0)
        return most > -INFINITY ? most : NAN;
    if (curve == WEIR_SERIES_LIMIT || curve == WEIR_SERIES_LIMITERS)
        return sum / count;
    if (curve == WEIR_SERIES_REPORTS)
        return sum / (links * view->step_s); /* no links: a hole */
    return sum / (count * view->step_s);
}

static double model_value_at(const struct view *view, size_t at, int curve)
{
    double sum = 0, most = -INFINITY;
    for (size_t i = at; i < at + view->stride; i++) {
        double value = view->series[curve][i];
        sum += value;
        most = value > most ? value : most;
    }
    return view->model->series[curve].rate
               ? sum / ((double)view->stride * view->step_s)
               : most;
}

static double value_at(const struct view *view, size_t at, int curve)
{
    return view->model ? model_value_at(view, at, curve)
                       : fleet_value_at(view, at, curve);
}

/* ---- Curves of one panel ---- */

static void add_curve(struct drawing *drawing, int curve)
{
    size_t at = 0;
    const char *unit = style_of(drawing->batch, curve).unit;
    while (at < drawing->group_count &&
           strcmp(drawing->groups[at].unit, unit) != 0)
        at++;
    struct group *group = &drawing->groups[at];
    if (at == drawing->group_count) {
        drawing->group_count++;
        group->unit = unit;
        if (!drawing->batch->scenarios[0]->model &&
            is_level(drawing->batch, curve)) {
            group->curves[group->count++] = CURVE_HIGH;
            group->curves[group->count++] = CURVE_LOW;
        }
    }
    group->curves[group->count++] = curve;
}

static void find_group_scale(const struct drawing *drawing, struct group *group)
{
    for (size_t v = 0; v < drawing->variant_count; v++) {
        struct view view = view_of_group(drawing, v, group);
        for (size_t i = view.begin; i + view.stride <= view.end;
             i += view.stride)
            for (size_t c = 0; c < group->count; c++) {
                double value = value_at(&view, i, group->curves[c]);
                group->most = value > group->most ? value : group->most;
            }
    }
}

/* ---- Writing ---- */

/* One line a step: the middle of its time, then the curves. Returns the block's
 * index. */
static size_t write_block(const struct drawing *drawing, size_t variant,
                          const struct group *group)
{
    const char *name = drawing->batch->scenarios[variant]->variant;
    size_t block = weir_page_block(drawing->page, name ? name : "");
    FILE *out = drawing->page->data;
    fputs("# time_s", out);
    for (size_t c = 0; c < group->count; c++)
        fprintf(out, " | %s", style_of(drawing->batch, group->curves[c]).label);
    fputc('\n', out);
    struct view view = view_of_group(drawing, variant, group);
    for (size_t i = view.begin; i + view.stride <= view.end; i += view.stride) {
        double middle = (double)i + (double)view.stride / 2;
        fprintf(out, "%.10g", middle * view.step_s);
        for (size_t c = 0; c < group->count; c++)
            weir_page_number(out, value_at(&view, i, group->curves[c]));
        fputc('\n', out);
    }
    return block;
}

static void write_series_panel(const struct drawing *drawing, size_t variant,
                               const struct group *group)
{
    const struct weir_scenario *scenario = drawing->batch->scenarios[variant];
    const struct weir_interval *over = &drawing->figure->over;
    FILE *out = drawing->page->script;
    weir_page_panel(drawing->page, scenario->variant ? scenario->variant : "",
                    "seconds", group->unit);
    size_t block = write_block(drawing, variant, group);
    weir_page_x_range(drawing->page, (double)over->from / 1e9,
                      (double)(over->to ? over->to : scenario->span) / 1e9);
    fprintf(out, "set yrange [0:%.4g]\nplot \\\n",
            group->most > 0 ? 1.06 * group->most : 1);
    for (size_t c = 0; c < group->count; c++) {
        struct style style = style_of(drawing->batch, group->curves[c]);
        fprintf(out,
                "    data index %zu using 1:%zu with lines %s title '%s'%s\n",
                block, c + 2, style.line, style.label,
                c + 1 < group->count ? ", \\" : "");
    }
}

/* Measures the key with the most entries. */
static void measure_keys(const struct drawing *drawing)
{
    struct weir_page *page = drawing->page;
    page->entries = page->entry_bytes = 0;
    for (size_t g = 0; g < drawing->group_count; g++) {
        const struct group *group = &drawing->groups[g];
        if (group->count > page->entries)
            page->entries = group->count;
        for (size_t c = 0; c < group->count; c++) {
            struct style style = style_of(drawing->batch, group->curves[c]);
            size_t len = strlen(style.label);
            if (len > page->entry_bytes)
                page->entry_bytes = len;
        }
    }
}

/* Panels side by side for several units; else below each other while they are
 * few. */
static void lay_out_panels(struct drawing *drawing)
{
    size_t variants = drawing->variant_count;
    size_t groups = drawing->group_count;
    size_t columns = groups > 1      ? groups
                     : variants <= 3 ? 1
                     : variants <= 8 ? 2
                                     : 3;
    size_t count = variants * groups;
    drawing->page->columns = columns;
    drawing->page->count = count;
    drawing->page->keys = groups;
    drawing->page->named = drawing->batch->scenarios[0]->variant != NULL;
    drawing->page->panel_height = count <= columns       ? 300
                                  : count <= 2 * columns ? 210
                                                         : 150;
}

int weir_output_series(const struct weir_batch *batch,
                       const struct weir_figure *figure, struct weir_page *page,
                       struct weir_diag *diag)
{
    struct drawing drawing = { .batch = batch,
                               .figure = figure,
                               .page = page,
                               .variant_count = batch->count };
    for (size_t i = 0; i < figure->series_count; i++)
        add_curve(&drawing, figure->series[i]);
    while (drawing.variant_count * drawing.group_count > WEIR_FIGURE_PANELS_MAX)
        drawing.variant_count--;
    for (size_t i = 0; i < drawing.group_count; i++)
        find_group_scale(&drawing, &drawing.groups[i]);
    lay_out_panels(&drawing);
    measure_keys(&drawing);
    int error = weir_page_open(page, diag);
    if (error)
        return error;
    for (size_t v = 0; v < drawing.variant_count; v++)
        for (size_t i = 0; i < drawing.group_count; i++)
            write_series_panel(&drawing, v, &drawing.groups[i]);
    return weir_page_close(page, diag);
}
