/* SPDX-License-Identifier: MIT
 * lab/output_curves.c - figures of a measure against a setting that varies, or
 * against another measure: a point for each variant, the mean over the seeds,
 * with bars of one standard deviation; a curve for each value of a second
 * setting.
 *
 * Against a measure, a curve joins its points in the order of the variants,
 * which is the file's order of the other varied setting's values, and may turn
 * back. It shows a cost and its benefit.
 *
 * Values are numbers if all of them are, in one unit or all in times; else they
 * are placed side by side as words, without a line between them, which would
 * suggest values in between. If they span decades the axis is logarithmic, with
 * tics at the values, or at round numbers if they are measured. The y axis is
 * logarithmic too if means span decades and no bar reaches 0: beside one high
 * point all others would be one line. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/quota/quota.h"
#include "lab/output_page.h"

#define DECADES_FROM 30 /* times the least */

struct point {
    const char *x_text, *by; /* borrowed from settings; NULL: none */
    double x;
    double mean, sd; /* over seeds */
};

struct drawing {
    const struct weir_figure *figure;
    struct weir_page *page;
    struct point points[WEIR_SCENARIO_VARIANTS_MAX]; /* in the order of the
                                                      * curve */
    size_t count;
    bool measured;                          /* x is a measure's mean */
    bool words;                             /* x is a word's place */
    bool decades, y_decades;                /* x, y are logarithmic */
    bool typed;                             /* tics at x as in the file */
    double least, most;                     /* x */
    double lowest, highest;                 /* y; in decades, else with 0 */
    bool bars;                              /* there are several seeds */
    char unit[32];                          /* of x; may be empty */
    const char *by[WEIR_FIGURE_CURVES_MAX]; /* values, in order of first use */
    size_t by_count;
};

/* Units of a fleet's metrics; empty: a plain number. */
static const char *const metric_units[WEIR_METRIC_COUNT] = {
    [WEIR_METRIC_OFFERED_MEAN] = "of the limit",
    [WEIR_METRIC_PASSED_MEAN] = "of the limit",
    [WEIR_METRIC_PASSED_SD] = "of the limit",
    [WEIR_METRIC_PASSED_MIN] = "of the limit",
    [WEIR_METRIC_PASSED_MAX] = "of the limit",
    [WEIR_METRIC_PERIOD_S] = "seconds",
    [WEIR_METRIC_REFUSED_SHARE] = "of the offered units",
    [WEIR_METRIC_MAX_FILL_OVER_HIGH] = "limit-seconds",
    [WEIR_METRIC_ONSET_EXCESS] = "limit-seconds",
    [WEIR_METRIC_ECHO] = "limit-seconds",
    [WEIR_METRIC_ECHO_S] = "seconds",
    [WEIR_METRIC_IDEAL_MEAN] = "of the limit",
    [WEIR_METRIC_IDEAL_SD] = "of the limit",
    [WEIR_METRIC_IDEAL_ECHO] = "limit-seconds",
    [WEIR_METRIC_REPORTS] = "a link and second",
    [WEIR_METRIC_MESSAGES] = "a link and second",
    [WEIR_METRIC_BYTES] = "a link and second",
    [WEIR_METRIC_DIVERGENCE] = "limit-seconds",
    [WEIR_METRIC_WAITING_BYTES] = "bytes",
    [WEIR_METRIC_UNSEEN_SHARE] = "of the bound",
};

/* ---- Points ---- */

static const char *setting_of(const struct weir_scenario *scenario,
                              const char *key)
{
    for (size_t i = 0; key && i < scenario->setting_count; i++)
        if (strcmp(scenario->settings[i].key, key) == 0)
            return scenario->settings[i].value;
    return NULL;
}

/* Its index among the measures, or their number. */
static size_t measure_at(const struct weir_scenario *scenario, const char *name)
{
    size_t at = 0;
    while (at < scenario->measure_count &&
           strcmp(scenario->measures[at].name, name) != 0)
        at++;
    return at;
}

/* Mean and standard deviation over the seeds that have the measure. */
static void fold_seeds(const struct weir_batch *batches, size_t count,
                       size_t variant, size_t measure, struct point *out)
{
    double sum = 0, squares = 0, found = 0;
    for (size_t i = 0; i < count; i++) {
        double value = batches[i].results[variant]->measures[measure];
        if (!isfinite(value))
            continue;
        sum += value;
        squares += value * value;
        found++;
    }
    out->mean = sum / found; /* without any: NaN, a hole */
    double variance = squares / found - out->mean * out->mean;
    out->sd = variance > 0 ? sqrt(variance) : 0;
}

static void collect_curves(struct drawing *drawing,
                           const struct weir_batch *batches, size_t count)
{
    const struct weir_figure *figure = drawing->figure;
    for (size_t v = 0; v < batches[0].count; v++) {
        const struct weir_scenario *scenario = batches[0].scenarios[v];
        size_t none = scenario->measure_count;
        size_t x = measure_at(scenario, figure->against);
        size_t y = measure_at(scenario, figure->measure);
        struct point point = { .x_text = setting_of(scenario, figure->against),
                               .by = setting_of(scenario, figure->by) };
        if ((!point.x_text && x == none) || y == none ||
            (figure->by && !point.by))
            continue;
        if (!point.x_text) {
            fold_seeds(batches, count, v, x, &point);
            point.x = point.mean;
        }
        fold_seeds(batches, count, v, y, &point);
        if (isfinite(point.x)) /* else it isn't drawn */
            drawing->points[drawing->count++] = point;
    }
    drawing->bars = count > 1;
}

/* Models name the unit in the metric's name. */
static const char *unit_of(const struct weir_scenario *scenario, size_t measure)
{
    return scenario->model ? ""
                           : metric_units[scenario->measures[measure].metric];
}

/* ---- The axis of x ---- */

static void read_measure_unit(struct drawing *drawing,
                              const struct weir_scenario *scenario)
{
    size_t measure = measure_at(scenario, drawing->figure->against);
    drawing->measured = true;
    snprintf(drawing->unit, sizeof drawing->unit, "%s",
             unit_of(scenario, measure));
}

/* All are plain numbers, with one unit after them. */
static bool read_numbers(struct drawing *drawing)
{
    const char *unit = NULL;
    for (size_t i = 0; i < drawing->count; i++) {
        struct point *point = &drawing->points[i];
        char *end;
        point->x = strtod(point->x_text, &end);
        if (end == point->x_text || (unit && strcmp(end, unit) != 0))
            return false;
        unit = end;
    }
    bool seconds = unit && strcmp(unit, "s") == 0;
    snprintf(drawing->unit, sizeof drawing->unit, "%s",
             seconds ? "seconds"
             : unit  ? unit
                     : "");
    return true;
}

static bool read_durations(struct drawing *drawing)
{
    for (size_t i = 0; i < drawing->count; i++) {
        struct point *point = &drawing->points[i];
        weir_duration duration;
        if (weir_duration_parse(weir_text_of(point->x_text), &duration, NULL) <
            0)
            return false;
        point->x = (double)duration / 1e9;
    }
    snprintf(drawing->unit, sizeof drawing->unit, "seconds");
    return true;
}

/* Equal words have the same place. */
static void place_words(struct drawing *drawing)
{
    double places = 0;
    for (size_t i = 0; i < drawing->count; i++) {
        struct point *point = &drawing->points[i];
        point->x = places;
        for (size_t j = 0; j < i; j++)
            if (strcmp(drawing->points[j].x_text, point->x_text) == 0)
                point->x = drawing->points[j].x;
        places += point->x == places;
    }
    drawing->words = true;
    drawing->unit[0] = '\0';
}

static int by_x(const void *a, const void *b)
{
    double x = ((const struct point *)a)->x;
    double y = ((const struct point *)b)->x;
    return (x > y) - (x < y);
}

/* Determines x and its unit, and sorts the points in the order of the
 * curves. */
static void read_x(struct drawing *drawing,
                   const struct weir_scenario *scenario)
{
    if (!drawing->points[0].x_text) {
        read_measure_unit(drawing, scenario);
        return;
    }
    if (!read_numbers(drawing) && !read_durations(drawing))
        place_words(drawing);
    qsort(drawing->points, drawing->count, sizeof drawing->points[0], by_x);
}

static void find_curves(struct drawing *drawing)
{
    for (size_t i = 0; i < drawing->count; i++) {
        const char *by = drawing->points[i].by;
        size_t at = 0;
        while (at < drawing->by_count && by && strcmp(drawing->by[at], by) != 0)
            at++;
        if (at < drawing->by_count || at == WEIR_FIGURE_CURVES_MAX)
            continue;
        drawing->by[drawing->by_count++] = by;
        if (!by)
            return;
    }
}

static bool spans_decades(double least, double most)
{
    return least > 0 && most / least >= DECADES_FROM;
}

static void find_curve_scale(struct drawing *drawing)
{
    double least = INFINITY, most = 0; /* means */
    double foot = INFINITY;            /* lower end of the lowest bar */
    drawing->least = drawing->most = drawing->points[0].x;
    for (size_t i = 0; i < drawing->count; i++) {
        const struct point *point = &drawing->points[i];
        drawing->least = fmin(drawing->least, point->x);
        drawing->most = fmax(drawing->most, point->x);
        least = fmin(least, point->mean);
        most = fmax(most, point->mean);
        foot = fmin(foot, point->mean - point->sd);
        drawing->highest = fmax(drawing->highest, point->mean + point->sd);
        if (point->mean < 0)
            drawing->lowest = fmin(drawing->lowest, point->mean - point->sd);
    }
    if (drawing->highest == drawing->lowest)
        drawing->highest = 1;
    drawing->decades =
        !drawing->words && spans_decades(drawing->least, drawing->most);
    drawing->y_decades = foot > 0 && spans_decades(least, most);
    if (drawing->y_decades)
        drawing->lowest = foot;
    drawing->typed = drawing->words || (drawing->decades && !drawing->measured);
}

/* ---- Writing ---- */

/* A tic at each value, as in the file. */
static void write_tics(const struct drawing *drawing)
{
    FILE *out = drawing->page->script;
    fputs("set xtics (", out);
    for (size_t i = 0; i < drawing->count; i++) {
        if (i > 0 && drawing->points[i].x == drawing->points[i - 1].x)
            continue;
        fputs(i > 0 ? ", " : "", out);
        weir_page_quote(out, drawing->points[i].x_text);
        fprintf(out, " %.6g", drawing->points[i].x);
    }
    fputs(")\n", out);
}

static void write_axes(const struct drawing *drawing)
{
    FILE *out = drawing->page->script;
    double least = drawing->least, most = drawing->most;
    double margin = most > least ? 0.06 * (most - least) : 0.5;
    if (drawing->decades)
        fputs("set logscale x\n", out);
    if (drawing->y_decades)
        fputs("set logscale y\n", out);
    fprintf(out, "set xrange [%.6g:%.6g]\nset yrange [%.4g:%.4g]\n",
            drawing->decades ? least / 1.3 : least - margin,
            drawing->decades ? most * 1.3 : most + margin,
            drawing->y_decades ? drawing->lowest / 1.3 : 1.1 * drawing->lowest,
            drawing->y_decades ? drawing->highest * 1.3
                               : 1.1 * drawing->highest);
    if (drawing->typed)
        write_tics(drawing);
}

static void write_curve(const struct drawing *drawing, const char *by,
                        bool last)
{
    /* Okabe and Ito's colours; points of different shapes for print. */
    static const struct {
        const char *colour;
        int point;
    } looks[] = { { "#0072B2", 7 },  { "#D55E00", 5 },  { "#009E73", 9 },
                  { "#CC79A7", 13 }, { "#E69F00", 11 }, { "#000000", 6 },
                  { "#56B4E9", 4 },  { "#666666", 8 } };
    FILE *data = drawing->page->data;
    FILE *script = drawing->page->script;
    size_t block = weir_page_block(drawing->page, by ? by : "");
    fputs("# x | mean | standard deviation\n", data);
    for (size_t i = 0; i < drawing->count; i++) {
        const struct point *point = &drawing->points[i];
        if (by && strcmp(point->by, by) != 0)
            continue;
        fprintf(data, "%.6g", point->x);
        weir_page_number(data, point->mean);
        weir_page_number(data, point->sd);
        fputc('\n', data);
    }
    size_t look = block % WEIR_COUNT_OF(looks);
    const char *bars = drawing->words ? "yerrorbars" : "yerrorlines";
    const char *points = drawing->words ? "points" : "linespoints";
    fprintf(script,
            "    data index %zu using %s with %s lc '%s' lw 1.8 pt %d ps 0.8",
            block, drawing->bars ? "1:2:3" : "1:2",
            drawing->bars ? bars : points, looks[look].colour,
            looks[look].point);
    if (by) {
        char title[128];
        snprintf(title, sizeof title, "%.60s = %.60s", drawing->figure->by, by);
        fputs(" title ", script);
        weir_page_quote(script, title);
    } else {
        fputs(" notitle", script);
    }
    fputs(last ? "\n" : ", \\\n", script);
}

static void write_curve_panel(const struct drawing *drawing, const char *y_unit)
{
    const struct weir_figure *figure = drawing->figure;
    bool unit = drawing->unit[0] && !drawing->typed; /* typed tics show the
                                                      * unit */
    char x_label[128], y_label[128];
    snprintf(x_label, sizeof x_label, "%.60s%s%s", figure->against,
             unit ? ", " : "", unit ? drawing->unit : "");
    snprintf(y_label, sizeof y_label, "%.60s%s%s", figure->measure,
             y_unit[0] ? ", " : "", y_unit);
    weir_page_panel(drawing->page,
                    drawing->bars ? "means over the seeds, with one standard "
                                    "deviation"
                                  : "",
                    x_label, y_label);
    write_axes(drawing);
    fputs("plot \\\n", drawing->page->script);
    for (size_t i = 0; i < drawing->by_count; i++)
        write_curve(drawing, drawing->by[i], i + 1 == drawing->by_count);
}

static void measure_key(const struct drawing *drawing)
{
    struct weir_page *page = drawing->page;
    const char *by = drawing->figure->by;
    page->entries = by ? drawing->by_count : 1;
    page->entry_bytes = 0;
    for (size_t i = 0; by && i < drawing->by_count; i++) {
        size_t len = strlen(by) + strlen(" = ") + strlen(drawing->by[i]);
        if (len > page->entry_bytes)
            page->entry_bytes = len;
    }
}

int weir_output_curves(const struct weir_batch *batches, size_t count,
                       const struct weir_figure *figure, struct weir_page *page,
                       struct weir_diag *diag)
{
    struct drawing drawing = { .figure = figure, .page = page };
    collect_curves(&drawing, batches, count);
    if (drawing.count == 0)
        return weir_diag_set(diag, WEIR_EINVAL, "the figure of ",
                             figure->measure, " against ", figure->against,
                             " has no point: no variant has both", NULL);
    const struct weir_scenario *first = batches[0].scenarios[0];
    read_x(&drawing, first);
    find_curves(&drawing);
    find_curve_scale(&drawing);
    page->count = page->columns = page->keys = 1;
    measure_key(&drawing);
    page->panel_height = 340;
    page->named = drawing.bars;
    int error = weir_page_open(page, diag);
    if (error)
        return error;
    size_t measure = measure_at(first, figure->measure);
    write_curve_panel(&drawing, unit_of(first, measure));
    return weir_page_close(page, diag);
}
