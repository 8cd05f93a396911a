/* SPDX-License-Identifier: MIT
 * cli/lab_print.c - tables of results.
 *
 * One seed is shown by its values, several by mean ± standard deviation. Few
 * variants are columns, so that they are read side by side; many are rows. */

#include "cli/lab_command.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/table_print.h"

/* Columns of values beside the names, in a window of usual width. */
#define VARIANTS_ABREAST 4
#define MEASURES_ABREAST 6
#define SEEDS_NAMED 8
#define FIGURE_MAX 40 /* bytes of a value's text */

struct printing {
    const struct weir_batch *batches;
    size_t count; /* seeds */
    bool compared;
    bool colour;
    FILE *out;
};

/* ---- Values ---- */

/* 0.998, 12.3, 4567; "-" for a value that wasn't found. */
static const char *show_figure(double value, char buf[static FIGURE_MAX])
{
    double magnitude = fabs(value);
    if (!isfinite(value))
        strcpy(buf, "-");
    else
        snprintf(buf, FIGURE_MAX, "%.*f",
                 magnitude < 10     ? 3
                 : magnitude < 1000 ? 1
                                    : 0,
                 value + 0.0);
    return buf;
}

struct spread {
    double mean, sd, least, most;
};

static struct spread spread_of(const struct printing *printing, size_t variant,
                               size_t measure)
{
    struct spread spread = { .least = INFINITY, .most = -INFINITY };
    double sum = 0, squares = 0, found = 0;
    for (size_t i = 0; i < printing->count; i++) {
        const struct weir_result *result =
            printing->batches[i].results[variant];
        double value = result->measures[measure];
        if (!isfinite(value))
            continue;
        sum += value;
        squares += value * value;
        found++;
        spread.least = fmin(spread.least, value);
        spread.most = fmax(spread.most, value);
    }
    spread.mean = sum / found; /* none: NaN */
    spread.sd = sqrt(fmax(0, squares / found - spread.mean * spread.mean));
    return spread;
}

static void add_value(struct weir_rows *rows, double value)
{
    char buf[FIGURE_MAX];
    weir_rows_add(rows, show_figure(value, buf));
}

static void add_spread(const struct printing *printing, struct weir_rows *rows,
                       size_t variant, size_t measure)
{
    struct spread spread = spread_of(printing, variant, measure);
    char mean[FIGURE_MAX], sd[FIGURE_MAX];
    if (printing->count > 1 && isfinite(spread.mean))
        weir_rows_addf(rows, "%s ± %s", show_figure(spread.mean, mean),
                       show_figure(spread.sd, sd));
    else
        add_value(rows, spread.mean);
}

/* ---- Measures ---- */

static const char *variant_name(const struct weir_scenario *scenario)
{
    return scenario->variant ? scenario->variant : "";
}

/* One variant at several seeds: a column for each statistic. */
static void print_seeds(const struct printing *printing)
{
    const struct weir_scenario *only = printing->batches[0].scenarios[0];
    struct weir_rows rows = { .right = 0x1e, .bold_head = printing->colour };
    weir_rows_head(&rows, "", "mean", "sd", "least", "most", NULL);
    for (size_t m = 0; m < only->measure_count; m++) {
        struct spread spread = spread_of(printing, 0, m);
        bool any = isfinite(spread.mean);
        weir_rows_add(&rows, only->measures[m].name);
        add_value(&rows, spread.mean);
        add_value(&rows, spread.sd);
        add_value(&rows, any ? spread.least : NAN);
        add_value(&rows, any ? spread.most : NAN);
    }
    weir_rows_print(&rows, printing->out);
}

/* A column a variant. */
static void print_columns(const struct printing *printing)
{
    const struct weir_batch *batch = &printing->batches[0];
    const struct weir_scenario *first = batch->scenarios[0];
    bool change = printing->compared && batch->count == 2;
    struct weir_rows rows = { .columns = 1 + batch->count + change,
                              .right = ~1u,
                              .bold_head = printing->colour };
    if (batch->count > 1 || first->variant) {
        weir_rows_add(&rows, "");
        for (size_t v = 0; v < batch->count; v++)
            weir_rows_add(&rows, variant_name(batch->scenarios[v]));
        if (change)
            weir_rows_add(&rows, "change");
    } else {
        rows.bold_head = false;
    }
    for (size_t m = 0; m < first->measure_count; m++) {
        weir_rows_add(&rows, first->measures[m].name);
        for (size_t v = 0; v < batch->count; v++)
            add_spread(printing, &rows, v, m);
        if (change)
            add_value(&rows, spread_of(printing, 1, m).mean -
                                 spread_of(printing, 0, m).mean);
    }
    weir_rows_print(&rows, printing->out);
}

/* A row a variant, some measures at a time. */
static void print_rows(const struct printing *printing)
{
    const struct weir_batch *batch = &printing->batches[0];
    const struct weir_scenario *first = batch->scenarios[0];
    for (size_t from = 0; from < first->measure_count;
         from += MEASURES_ABREAST) {
        size_t count = first->measure_count - from;
        if (count > MEASURES_ABREAST)
            count = MEASURES_ABREAST;
        struct weir_rows rows = { .columns = 1 + count,
                                  .right = ~1u,
                                  .bold_head = printing->colour };
        if (from > 0)
            fputc('\n', printing->out);
        weir_rows_add(&rows, "");
        for (size_t m = from; m < from + count; m++)
            weir_rows_add(&rows, first->measures[m].name);
        for (size_t v = 0; v < batch->count; v++) {
            weir_rows_add(&rows, variant_name(batch->scenarios[v]));
            for (size_t m = from; m < from + count; m++)
                add_spread(printing, &rows, v, m);
        }
        weir_rows_print(&rows, printing->out);
    }
}

static void print_measures(const struct printing *printing)
{
    const struct weir_batch *batch = &printing->batches[0];
    if (batch->scenarios[0]->measure_count == 0)
        return;
    fputc('\n', printing->out);
    if (batch->count == 1 && printing->count > 1)
        print_seeds(printing);
    else if (batch->count <= VARIANTS_ABREAST)
        print_columns(printing);
    else
        print_rows(printing);
}

/* ---- Claims, expectations ---- */

static void print_mark(const struct printing *printing, bool good,
                       const char *text)
{
    if (printing->colour && !good)
        fprintf(printing->out, "  \033[1;31m%-8s\033[0m  ", text);
    else
        fprintf(printing->out, "  %-8s  ", text);
}

static void print_claims(const struct printing *printing)
{
    const struct weir_batch *batch = &printing->batches[0];
    const struct weir_scenario *first = batch->scenarios[0];
    if (first->claim_count > 0)
        fputs("\nclaims\n", printing->out);
    for (size_t c = 0; c < first->claim_count; c++) {
        size_t holds = 0;
        for (size_t i = 0; i < printing->count; i++) {
            bool all = true;
            for (size_t v = 0; v < batch->count; v++)
                all &= printing->batches[i].results[v]->claims[c];
            holds += all;
        }
        bool good = holds == printing->count;
        print_mark(printing, good,
                   good        ? "holds"
                   : holds > 0 ? "partly"
                               : "refuted");
        fputs(first->claims[c].text, printing->out);
        if (!good && holds > 0)
            fprintf(printing->out, " (holds for %zu of %zu seeds)", holds,
                    printing->count);
        fputc('\n', printing->out);
    }
}

/* "  (found 0.97)", over several seeds "(found 0.97 .. 1.01)", with the
 * seeds that failed. */
static void print_found(const struct printing *printing, size_t variant,
                        size_t line)
{
    double least = INFINITY, most = -INFINITY;
    size_t failed = 0;
    for (size_t i = 0; i < printing->count; i++) {
        const struct weir_outcome_line *found =
            &printing->batches[i].results[variant]->expects[line];
        least = fmin(least, found->value);
        most = fmax(most, found->value);
        failed += !found->held;
    }
    char low[FIGURE_MAX], high[FIGURE_MAX];
    bool same = strcmp(show_figure(least, low), show_figure(most, high)) == 0;
    fprintf(printing->out, "  (found %s%s%s)", low, same ? "" : " .. ",
            same ? "" : high);
    if (failed == 0 || printing->count == 1)
        return;
    fprintf(printing->out, "\n            in %zu of %zu seeds:", failed,
            printing->count);
    size_t named = 0;
    for (size_t i = 0; i < printing->count && named < SEEDS_NAMED; i++) {
        const struct weir_batch *batch = &printing->batches[i];
        if (batch->results[variant]->expects[line].held)
            continue;
        fprintf(printing->out, "%s %" PRIu64, named++ > 0 ? "," : "",
                batch->seed);
    }
    fputs(failed > named ? ", …" : "", printing->out);
}

/* Whether the line is about an instant of the run, not its end or all of it. */
static bool is_during(const struct weir_scenario *scenario,
                      const struct weir_outcome_line *line)
{
    return line->at > 0 && line->at < scenario->span;
}

static void print_expectation(const struct printing *printing, size_t variant,
                              size_t line)
{
    const struct weir_batch *batch = &printing->batches[0];
    const struct weir_outcome_line *first =
        &batch->results[variant]->expects[line];
    bool held = true;
    for (size_t i = 0; i < printing->count; i++)
        held &= printing->batches[i].results[variant]->expects[line].held;
    print_mark(printing, held, held ? "held" : "FAILED");
    if (batch->scenarios[variant]->variant)
        fprintf(printing->out, "%s: ", batch->scenarios[variant]->variant);
    if (is_during(batch->scenarios[variant], first))
        fprintf(printing->out, "at %.10g s: ", (double)first->at / 1e9);
    fputs(first->text, printing->out);
    print_found(printing, variant, line);
    fputc('\n', printing->out);
}

/* A run that a checker stopped has judged fewer expectations than the
 * others. */
static size_t least_expectations(const struct printing *printing,
                                 size_t variant)
{
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < printing->count; i++) {
        size_t count = printing->batches[i].results[variant]->expect_count;
        least = count < least ? count : least;
    }
    return least;
}

static void print_expectations(const struct printing *printing)
{
    bool headed = false;
    for (size_t v = 0; v < printing->batches[0].count; v++) {
        size_t count = least_expectations(printing, v);
        if (count > 0 && !headed)
            fputs("\nexpectations\n", printing->out);
        headed |= count > 0;
        for (size_t line = 0; line < count; line++)
            print_expectation(printing, v, line);
    }
}

/* ---- The whole output ---- */

static void print_run_head(const struct printing *printing)
{
    const struct weir_batch *batch = &printing->batches[0];
    const struct weir_scenario *first = batch->scenarios[0];
    fprintf(printing->out, "%s: %s\n", batch->name, first->title);
    if (printing->count == 1)
        fprintf(printing->out, "seed %" PRIu64, batch->seed);
    else
        fprintf(printing->out, "seeds %" PRIu64 "..%" PRIu64, batch->seed,
                printing->batches[printing->count - 1].seed);
    for (size_t i = 0; i < first->setting_count; i++)
        if (weir_output_is_common(batch, i))
            fprintf(printing->out, ", %s=%s", first->settings[i].key,
                    first->settings[i].value);
    fputc('\n', printing->out);
}

static void print_foot(const struct printing *printing)
{
    double wall = 0, events = 0, takes = 0;
    size_t memory = 0;
    for (size_t i = 0; i < printing->count; i++) {
        for (size_t v = 0; v < printing->batches[i].count; v++) {
            const struct weir_result *result = printing->batches[i].results[v];
            wall += result->wall_s;
            events += (double)result->events;
            takes += (double)result->takes;
            if (result->memory_peak > memory)
                memory = result->memory_peak;
        }
    }
    char some[16], more[16];
    fprintf(printing->out, "\n%s requests, %s events, %.1f s",
            weir_cli_units(takes, some), weir_cli_units(events, more), wall);
    if (memory > 0)
        fprintf(printing->out, ", %.0f MiB", (double)memory / 1048576);
    fputc('\n', printing->out);
}

void weir_lab_print(const struct weir_batch *batches, size_t count,
                    bool compared, FILE *out)
{
    struct printing printing = { .batches = batches,
                                 .count = count,
                                 .compared = compared,
                                 .colour = weir_rows_colour(out),
                                 .out = out };
    print_run_head(&printing);
    print_measures(&printing);
    /* A claim is about the scenario as it is written, not about two
     * settings. */
    if (!compared)
        print_claims(&printing);
    print_expectations(&printing);
    print_foot(&printing);
}
