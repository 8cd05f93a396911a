/* SPDX-License-Identifier: MIT
 * lab/scenario_measure.c - "always", "expect", "measure", "claim", "figure".
 *
 * Quantities have a value at each instant; metrics are computed over a window
 * when the run is over. A measure is a metric with its window, its quota and a
 * name; expectations at the end, claims and figures name a measure, or spell a
 * metric out. "passed_mean" alone is the measure of that name if there is one,
 * else the metric over the whole run. */

#include "lab/memory.h"
#include "lab/model.h"
#include "lab/scenario_internal.h"

/* Words of the language; NULL-terminated, by the enums' values. */
static const char *const metric_names[] = {
    [WEIR_METRIC_OFFERED_MEAN] = "offered_mean",
    [WEIR_METRIC_PASSED_MEAN] = "passed_mean",
    [WEIR_METRIC_PASSED_SD] = "passed_sd",
    [WEIR_METRIC_PASSED_MIN] = "passed_min",
    [WEIR_METRIC_PASSED_MAX] = "passed_max",
    [WEIR_METRIC_PERIOD_S] = "period_s",
    [WEIR_METRIC_REFUSED_SHARE] = "limited_share",
    [WEIR_METRIC_MAX_FILL_OVER_HIGH] = "max_fill_over_high",
    [WEIR_METRIC_ONSET_EXCESS] = "onset_excess",
    [WEIR_METRIC_ECHO] = "echo",
    [WEIR_METRIC_ECHO_S] = "echo_s",
    [WEIR_METRIC_IDEAL_MEAN] = "ideal_mean",
    [WEIR_METRIC_IDEAL_SD] = "ideal_sd",
    [WEIR_METRIC_IDEAL_ECHO] = "ideal_echo",
    [WEIR_METRIC_REPORTS] = "reports",
    [WEIR_METRIC_MESSAGES] = "messages",
    [WEIR_METRIC_BYTES] = "bytes",
    [WEIR_METRIC_DIVERGENCE] = "divergence",
    [WEIR_METRIC_WAITING_BYTES] = "waiting_bytes",
    [WEIR_METRIC_UNSEEN_SHARE] = "unseen_share",
    NULL,
};

static const char *const quantity_names[] = {
    [WEIR_QUANTITY_FILL] = "fill",
    [WEIR_QUANTITY_SPREAD] = "spread",
    [WEIR_QUANTITY_OVER_HIGH] = "over_high",
    [WEIR_QUANTITY_LIMIT] = "limit",
    [WEIR_QUANTITY_READY] = "ready",
    [WEIR_QUANTITY_LINKS] = "links",
    [WEIR_QUANTITY_ROOTS] = "roots",
    [WEIR_QUANTITY_EPOCHS] = "epochs",
    NULL,
};

static const char *const series_names[] = {
    [WEIR_SERIES_OFFERED] = "offered",
    [WEIR_SERIES_PASSED] = "passed",
    [WEIR_SERIES_REFUSED] = "limited",
    [WEIR_SERIES_IDEAL] = "ideal",
    [WEIR_SERIES_LIMIT] = "limit",
    [WEIR_SERIES_FILL] = "fill",
    [WEIR_SERIES_ROOT_FILL] = "root_fill",
    [WEIR_SERIES_LIMITER_FILL] = "limiter_fill",
    [WEIR_SERIES_REPORTS] = "reports",
    [WEIR_SERIES_LIMITERS] = "limiters",
    NULL,
};

static const char *const comparisons[] = {
    [WEIR_IS_LESS] = "<",
    [WEIR_IS_AT_MOST] = "<=",
    [WEIR_IS_EQUAL] = "=",
    [WEIR_IS_AT_LEAST] = ">=",
    [WEIR_IS_MORE] = ">",
    [WEIR_IS_WITHIN] = "within",
    NULL,
};

/* ---- Parts ---------------------------------------------------------- */

/* Names to choose from, ending with NULL: the fleet's or the model's. */
static const char *const *list_metrics(struct weir_scenario *scenario)
{
    const struct weir_model *model = scenario->model;
    if (!model)
        return metric_names;
    size_t count = 0;
    while (model->metrics[count].name)
        count++;
    const char **names =
        weir_scenario_alloc(scenario, (count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = model->metrics[i].name;
    return names;
}

static const char *const *list_series(struct weir_scenario *scenario)
{
    const struct weir_model *model = scenario->model;
    if (!model)
        return series_names;
    size_t count = 0;
    while (model->series[count].name)
        count++;
    weir_assert(count <= WEIR_SERIES_COUNT);
    const char **names =
        weir_scenario_alloc(scenario, (count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = model->series[i].name;
    return names;
}

/* "of QUOTA", if present. */
static int read_of(struct weir_builder *builder, char **out)
{
    const struct weir_word *word;
    if (!weir_line_keyword(&builder->line, "of"))
        return 0;
    int error = weir_line_want(&builder->line, "the name of a quota", &word);
    if (error < 0)
        return error;
    *out = weir_build_mention(builder, word);
    return 0;
}

/* Whether the metric is one of single requests, known for each load. */
static bool is_of_load(enum weir_metric metric)
{
    switch (metric) {
    case WEIR_METRIC_OFFERED_MEAN:
    case WEIR_METRIC_PASSED_MEAN:
    case WEIR_METRIC_PASSED_SD:
    case WEIR_METRIC_PASSED_MIN:
    case WEIR_METRIC_PASSED_MAX:
    case WEIR_METRIC_PERIOD_S:
    case WEIR_METRIC_REFUSED_SHARE:
    case WEIR_METRIC_ECHO:
    case WEIR_METRIC_ECHO_S:
        return true;
    case WEIR_METRIC_MAX_FILL_OVER_HIGH:
    case WEIR_METRIC_ONSET_EXCESS:
    case WEIR_METRIC_IDEAL_MEAN:
    case WEIR_METRIC_IDEAL_SD:
    case WEIR_METRIC_IDEAL_ECHO:
    case WEIR_METRIC_REPORTS:
    case WEIR_METRIC_MESSAGES:
    case WEIR_METRIC_BYTES:
    case WEIR_METRIC_DIVERGENCE:
    case WEIR_METRIC_WAITING_BYTES:
    case WEIR_METRIC_UNSEEN_SHARE:
        return false;
    }
    weir_assert(!"a metric is one of these");
}

/* Whether the line goes on after a complete "of QUOTA". */
static bool ends_of(const struct weir_line *line)
{
    const struct weir_word *word = weir_line_peek(line);
    bool ends = !word || weir_word_is(word, "over") ||
                weir_word_is(word, "against") || weir_word_is(word, "as");
    for (size_t i = 0; !ends && comparisons[i]; i++)
        ends = weir_word_is(word, comparisons[i]);
    return ends;
}

/* "of QUOTA" or "of load NAME", if present. */
static int read_metric_of(struct weir_builder *builder,
                          struct weir_measure *out)
{
    struct weir_line *line = &builder->line;
    const struct weir_word *word;
    const struct weir_load *load;
    if (!weir_line_keyword(line, "of"))
        return 0;
    int error = weir_line_want(
        line, "the name of a quota, or load and its name", &word);
    if (error < 0)
        return error;
    if (!weir_word_is(word, "load") || ends_of(line)) {
        out->quota = weir_build_mention(builder, word);
        return 0;
    }
    word = weir_line_take(line);
    error = weir_build_find_load(builder, word, &load);
    if (error < 0)
        return error;
    if (!is_of_load((enum weir_metric)out->metric))
        return WEIR_REFUSE(builder, word,
                           "%s is not known for a load; measure it of a quota",
                           metric_names[out->metric]);
    out->load = load->name;
    out->quota = load->quota;
    return 0;
}

/* "over A..B", if present. */
static int read_over(struct weir_builder *builder, struct weir_interval *out)
{
    const struct weir_word *word;
    if (!weir_line_keyword(&builder->line, "over"))
        return 0;
    int error =
        weir_line_want(&builder->line, "a window, such as 10s..20s", &word);
    return error < 0 ? error
                     : weir_read_window(word, builder->scenario->span, out,
                                        builder->diag);
}

/* "against 90000/s", if present. */
static int read_against(struct weir_builder *builder, double *out)
{
    const struct weir_word *word;
    if (!weir_line_keyword(&builder->line, "against"))
        return 0;
    int error = weir_line_want(&builder->line, "a limit, such as 900/s", &word);
    if (error == 0)
        error = weir_read_rate(word, out, NULL, builder->diag);
    if (error == 0 && *out == 0)
        return WEIR_REFUSE(builder, word,
                           "nothing can be measured against a limit of 0");
    return error;
}

/* "OP VALUE" or "within A..B". */
static int read_comparison(struct weir_builder *builder,
                           struct weir_condition *out)
{
    const struct weir_word *word;
    int comparison = 0;
    int error = weir_line_want(&builder->line,
                               "< <= = >= > or within, and a value", &word);
    if (error == 0)
        error = weir_read_choice(word, "comparison", comparisons, &comparison,
                                 builder->diag);
    if (error == 0)
        error = weir_line_want(&builder->line, "the value", &word);
    if (error < 0)
        return error;
    out->comparison = (enum weir_comparison)comparison;
    if (out->comparison != WEIR_IS_WITHIN)
        return weir_read_amount(word, &out->value, builder->diag);
    struct weir_word low;
    struct weir_word high;
    if (!weir_word_cut(word, "..", &low, &high))
        return WEIR_REFUSE(builder, word, "within wants both ends: 0.98..1.02");
    error = weir_read_amount(&low, &out->value, builder->diag);
    if (error == 0)
        error = weir_read_amount(&high, &out->value2, builder->diag);
    if (error == 0 && out->value2 < out->value)
        return WEIR_REFUSE(builder, word,
                           "%s is empty; write the smaller value first",
                           WEIR_SHOWN(word));
    return error;
}

/* The part after a metric's name:
 * "[of QUOTA | of load NAME] [over A..B] [against LIMIT]". */
static int read_metric(struct weir_builder *builder,
                       const struct weir_word *word, struct weir_measure *out)
{
    int metric;
    int error =
        weir_read_choice(word, "metric", list_metrics(builder->scenario),
                         &metric, builder->diag);
    if (error < 0)
        return error;
    out->metric = metric;
    out->name = weir_scenario_text(builder->scenario, word->text);
    out->where = word->where;
    if (builder->scenario->model)
        return 0;
    error = read_metric_of(builder, out);
    if (error == 0)
        error = read_over(builder, &out->over);
    return error < 0 ? error : read_against(builder, &out->against_per_s);
}

static const struct weir_measure *find_measure(
    const struct weir_scenario *scenario, struct weir_text name)
{
    for (size_t i = 0; i < scenario->measure_count; i++) {
        if (weir_text_equal(weir_text_of(scenario->measures[i].name), name))
            return &scenario->measures[i];
    }
    return NULL;
}

static bool follows(const struct weir_line *line, const char *keyword)
{
    const struct weir_word *word = weir_line_peek(line);
    return word && weir_word_is(word, keyword);
}

/* A measure by its name, or a metric spelled out. */
static int read_measure_or_metric(struct weir_builder *builder,
                                  const struct weir_word *word,
                                  struct weir_measure *out)
{
    const struct weir_line *line = &builder->line;
    bool spelled = follows(line, "of") || follows(line, "over") ||
                   follows(line, "against");
    const struct weir_measure *measure =
        find_measure(builder->scenario, word->text);
    if (spelled || !measure)
        return read_metric(builder, word, out);
    *out = *measure;
    out->where = word->where;
    return 0;
}

/* ---- Conditions ----------------------------------------------------- */

static bool is_of_quota(enum weir_quantity quantity)
{
    switch (quantity) {
    case WEIR_QUANTITY_FILL:
    case WEIR_QUANTITY_SPREAD:
    case WEIR_QUANTITY_OVER_HIGH:
    case WEIR_QUANTITY_LIMIT:
        return true;
    case WEIR_QUANTITY_READY:
    case WEIR_QUANTITY_LINKS:
    case WEIR_QUANTITY_ROOTS:
    case WEIR_QUANTITY_EPOCHS:
        return false;
    }
    weir_assert(!"a quantity is one of these");
}

/* "fill of api", or "fill api". */
static int read_condition_quota(struct weir_builder *builder, char **out)
{
    const struct weir_word *word = weir_line_peek(&builder->line);
    if (!word || weir_word_is(word, "of"))
        return read_of(builder, out);
    for (size_t i = 0; comparisons[i]; i++) {
        if (weir_word_is(word, comparisons[i]))
            return 0;
    }
    *out = weir_build_mention(builder, weir_line_take(&builder->line));
    return 0;
}

int weir_build_condition_now(struct weir_builder *builder,
                             struct weir_condition *out)
{
    const struct weir_word *word;
    int quantity = 0;
    size_t start = builder->line.next;
    int error =
        weir_line_want(&builder->line, "a quantity, such as fill", &word);
    if (error == 0)
        error = weir_read_choice(word, "quantity", quantity_names, &quantity,
                                 builder->diag);
    if (error < 0)
        return error;
    out->quantity = (enum weir_quantity)quantity;
    out->where = word->where;
    if (is_of_quota(out->quantity))
        error = read_condition_quota(builder, &out->quota);
    if (error == 0)
        error = read_comparison(builder, out);
    if (error == 0)
        out->text = weir_build_words(builder, start);
    return error;
}

/* "MEASURE OP VALUE", with the first word taken already. */
static int read_at_end(struct weir_builder *builder,
                       const struct weir_word *word, struct weir_condition *out)
{
    size_t start = builder->line.next - 1;
    out->at_end = true;
    out->where = word->where;
    int error = read_measure_or_metric(builder, word, &out->measure);
    if (error == 0)
        error = read_comparison(builder, out);
    out->quota = out->measure.quota;
    if (error == 0)
        out->text = weir_build_words(builder, start);
    return error;
}

int weir_build_always(struct weir_builder *builder)
{
    struct weir_scenario *scenario = builder->scenario;
    struct weir_condition condition = { .at_end = false };
    int error = weir_build_room(builder, scenario->always_count);
    if (error == 0)
        error = weir_build_condition_now(builder, &condition);
    if (error == 0)
        *WEIR_APPEND(builder, scenario->always, scenario->always_count) =
            condition;
    return error;
}

int weir_build_expect(struct weir_builder *builder)
{
    struct weir_scenario *scenario = builder->scenario;
    struct weir_condition condition = { .at_end = true };
    const struct weir_word *word;
    int error =
        weir_line_want(&builder->line, "a measure, such as passed_mean", &word);
    if (error == 0)
        error = weir_build_room(builder, scenario->expect_count);
    if (error == 0)
        error = read_at_end(builder, word, &condition);
    if (error == 0)
        *WEIR_APPEND(builder, scenario->expects, scenario->expect_count) =
            condition;
    return error;
}

/* ---- measure -------------------------------------------------------- */

int weir_build_measure(struct weir_builder *builder)
{
    struct weir_scenario *scenario = builder->scenario;
    struct weir_measure measure = { .metric = 0 };
    const struct weir_word *word;
    int error =
        weir_line_want(&builder->line, "a metric, such as passed_mean", &word);
    if (error == 0)
        error = weir_build_room(builder, scenario->measure_count);
    if (error == 0)
        error = read_metric(builder, word, &measure);
    if (error == 0 && weir_line_keyword(&builder->line, "as"))
        error = weir_line_want(&builder->line, "the measure's name", &word);
    if (error < 0)
        return error;
    measure.name = weir_scenario_text(scenario, word->text);
    if (memchr(word->text.p, '.', word->text.len))
        return WEIR_REFUSE(builder, word,
                           "the name of a measure has no dot: "
                           "claims write VARIANT.MEASURE");
    if (find_measure(scenario, word->text))
        return WEIR_REFUSE(builder, word,
                           "there is a measure %s already; "
                           "call this one otherwise: … as NAME",
                           WEIR_SHOWN(word));
    *WEIR_APPEND(builder, scenario->measures, scenario->measure_count) =
        measure;
    return 0;
}

/* ---- claim ---------------------------------------------------------- */

/* Whether the variant exists, in the file and after --set. */
static int find_variant(struct weir_builder *builder,
                        const struct weir_word *word, bool *out_there)
{
    const struct weir_lab_script *script = builder->script;
    struct weir_scenario *memory = builder->scenario;
    size_t grid = weir_script_grid(script);
    bool axes = script->axis_count > 0;
    const char **names =
        weir_scenario_alloc(memory, (grid + 1) * sizeof *names);
    bool named = false;
    for (size_t i = 0; axes && i < grid; i++) {
        names[i] = weir_script_variant_name(script, i, false, memory);
        named = named || weir_text_equal(weir_text_of(names[i]), word->text);
    }
    if (!named)
        return weir_script_unknown(builder->diag, word, "variant", names);
    *out_there = false;
    for (size_t i = 0; i < weir_script_variants(script); i++) {
        char *name = weir_script_variant_name(script, i, true, memory);
        *out_there =
            *out_there || weir_text_equal(weir_text_of(name), word->text);
    }
    return 0;
}

/* The place of a word's last dot; its length if there is none. */
static size_t last_dot(struct weir_text text)
{
    size_t at = text.len;
    while (at > 0 && text.p[at - 1] != '.')
        at--;
    return at > 0 ? at - 1 : text.len;
}

/* "[VARIANT.]MEASURE OP VALUE" */
static int read_claimed(struct weir_builder *builder,
                        struct weir_condition *out, bool *out_there)
{
    const struct weir_word *word;
    int error =
        weir_line_want(&builder->line, "a measure, such as passed_mean", &word);
    if (error < 0)
        return error;
    size_t dot = last_dot(word->text);
    if (dot == word->text.len)
        return read_at_end(builder, word, out);
    struct weir_word variant = weir_word_part(word, 0, dot);
    struct weir_word measure = weir_word_part(word, dot + 1, SIZE_MAX);
    error = find_variant(builder, &variant, out_there);
    if (error < 0)
        return error;
    out->variant = weir_scenario_text(builder->scenario, variant.text);
    return read_at_end(builder, &measure, out);
}

int weir_build_claim(struct weir_builder *builder)
{
    struct weir_scenario *scenario = builder->scenario;
    struct weir_line *line = &builder->line;
    struct weir_claim claim = { .text = NULL };
    const struct weir_word *word;
    bool all_there = true;
    int error = weir_line_want(line, "the claim, in quotes", &word);
    if (error == 0)
        error = weir_build_room(builder, scenario->claim_count);
    if (error < 0)
        return error;
    claim.text = weir_scenario_text(scenario, word->text);
    if (!weir_line_keyword(line, "holds") || !weir_line_keyword(line, "if"))
        return WEIR_REFUSE(builder, word,
                           "say when it holds: claim \"…\" "
                           "holds if MEASURE OP VALUE");
    do {
        struct weir_condition condition = { .at_end = true };
        bool there = true;
        error = read_claimed(builder, &condition, &there);
        if (error < 0)
            return error;
        all_there = all_there && there;
        *WEIR_APPEND(builder, claim.conditions, claim.condition_count) =
            condition;
    } while (weir_line_keyword(line, "and"));
    if (all_there)
        *WEIR_APPEND(builder, scenario->claims, scenario->claim_count) = claim;
    return 0;
}

/* ---- figure --------------------------------------------------------- */

enum {
    KEYS = 1,
    MEASURES = 2,
    EITHER = KEYS | MEASURES,
};

/* The name of a setting, of a measure, or of either. */
static int read_name(struct weir_builder *builder, const struct weir_word *word,
                     unsigned kinds, const char **out)
{
    static const char *const what[] = {
        [KEYS] = "setting",
        [MEASURES] = "measure",
        [EITHER] = "setting or measure",
    };
    struct weir_scenario *scenario = builder->scenario;
    size_t keys = kinds & KEYS ? scenario->setting_count : 0;
    size_t measures = kinds & MEASURES ? scenario->measure_count : 0;
    const char **names =
        weir_scenario_alloc(scenario, (keys + measures + 1) * sizeof *names);
    for (size_t i = 0; i < keys; i++)
        names[i] = scenario->settings[i].key;
    for (size_t i = 0; i < measures; i++)
        names[keys + i] = scenario->measures[i].name;
    int at = 0;
    int error = weir_read_choice(word, what[kinds], names, &at, builder->diag);
    if (error == 0)
        *out = names[at];
    return error;
}

/* "MEASURE against KEY|MEASURE [by KEY]" */
static int read_curves(struct weir_builder *builder,
                       const struct weir_word *word, struct weir_figure *figure)
{
    struct weir_line *line = &builder->line;
    int error = read_name(builder, word, MEASURES, &figure->measure);
    weir_line_keyword(line, "against");
    if (error == 0)
        error = weir_line_want(line, "a setting that is varied, or a measure",
                               &word);
    if (error == 0)
        error = read_name(builder, word, EITHER, &figure->against);
    if (error < 0 || !weir_line_keyword(line, "by"))
        return error;
    error = weir_line_want(line, "the setting that is varied", &word);
    return error < 0 ? error : read_name(builder, word, KEYS, &figure->by);
}

static int read_series(struct weir_builder *builder,
                       const struct weir_word *word, struct weir_figure *figure)
{
    while (word) {
        int series;
        int error =
            weir_read_choice(word, "series", list_series(builder->scenario),
                             &series, builder->diag);
        if (error < 0)
            return error;
        for (size_t i = 0; i < figure->series_count; i++) {
            if (figure->series[i] == series)
                return WEIR_REFUSE(builder, word,
                                   "%s is in this figure already",
                                   WEIR_SHOWN(word));
        }
        figure->series[figure->series_count++] = series;
        bool more =
            !follows(&builder->line, "of") && !follows(&builder->line, "over");
        word = more ? weir_line_take(&builder->line) : NULL;
    }
    int error = builder->scenario->model ? 0 : read_of(builder, &figure->quota);
    return error < 0 ? error : read_over(builder, &figure->over);
}

int weir_build_figure(struct weir_builder *builder)
{
    struct weir_scenario *scenario = builder->scenario;
    struct weir_figure figure = { .title = NULL };
    const struct weir_word *title;
    const struct weir_word *word;
    int error = weir_line_want(&builder->line,
                               "the title, in quotes: what one sees", &title);
    if (error == 0)
        error = weir_line_want(&builder->line,
                               "what it shows: series, or MEASURE against KEY",
                               &word);
    if (error == 0)
        error = weir_build_room(builder, scenario->figure_count);
    if (error < 0)
        return error;
    figure.title = weir_scenario_text(scenario, title->text);
    figure.where = title->where;
    error = follows(&builder->line, "against")
                ? read_curves(builder, word, &figure)
                : read_series(builder, word, &figure);
    if (error == 0)
        *WEIR_APPEND(builder, scenario->figures, scenario->figure_count) =
            figure;
    return error;
}

/* ---- Printing ------------------------------------------------------- */

static void print_of(FILE *out, const char *quota)
{
    if (!quota)
        return;
    fputs(" of ", out);
    weir_print_word(out, weir_text_of(quota));
}

static void print_over(FILE *out, const struct weir_interval *window)
{
    if (window->from == 0 && window->to == 0)
        return;
    fputs(" over ", out);
    weir_print_window(out, window);
}

static const char *metric_name(const struct weir_scenario *scenario,
                               const struct weir_measure *measure)
{
    return scenario->model ? scenario->model->metrics[measure->metric].name
                           : metric_names[measure->metric];
}

static void print_metric(FILE *out, const struct weir_scenario *scenario,
                         const struct weir_measure *measure)
{
    fputs(metric_name(scenario, measure), out);
    print_of(out, measure->load ? "load" : measure->quota);
    if (measure->load) {
        fputc(' ', out);
        weir_print_word(out, weir_text_of(measure->load));
    }
    print_over(out, &measure->over);
    if (measure->against_per_s == 0)
        return;
    fputs(" against ", out);
    weir_print_rate(out, measure->against_per_s, false);
}

static void print_comparison(FILE *out, const struct weir_condition *condition)
{
    fprintf(out, " %s ", comparisons[condition->comparison]);
    weir_print_real(out, condition->value);
    if (condition->comparison != WEIR_IS_WITHIN)
        return;
    fputs("..", out);
    weir_print_real(out, condition->value2);
}

/* A metric's bare name could be taken for a measure of that name. */
static void print_spelled(FILE *out, const struct weir_scenario *scenario,
                          const struct weir_measure *measure)
{
    bool bare = !scenario->model && !measure->quota &&
                measure->against_per_s == 0 && measure->over.from == 0 &&
                measure->over.to == 0;
    if (bare)
        fputs(" over 0s..", out);
}

void weir_print_condition(FILE *out, const struct weir_scenario *scenario,
                          const struct weir_condition *condition)
{
    if (condition->at_end) {
        print_metric(out, scenario, &condition->measure);
        print_spelled(out, scenario, &condition->measure);
    } else {
        fputs(quantity_names[condition->quantity], out);
        print_of(out, condition->quota);
    }
    print_comparison(out, condition);
}

static void print_measure(FILE *out, const struct weir_scenario *scenario,
                          const struct weir_measure *measure)
{
    const char *metric = metric_name(scenario, measure);
    fputs("measure ", out);
    print_metric(out, scenario, measure);
    if (strcmp(measure->name, metric) != 0) {
        fputs(" as ", out);
        weir_print_word(out, weir_text_of(measure->name));
    }
    fputc('\n', out);
}

static void print_figure_statement(FILE *out,
                                   const struct weir_scenario *scenario,
                                   const struct weir_figure *figure)
{
    fputs("figure ", out);
    weir_print_quoted(out, weir_text_of(figure->title));
    for (size_t i = 0; !figure->measure && i < figure->series_count; i++)
        fprintf(out, " %s",
                scenario->model
                    ? scenario->model->series[figure->series[i]].name
                    : series_names[figure->series[i]]);
    if (figure->measure) {
        fprintf(out, " %s against %s", figure->measure, figure->against);
        if (figure->by)
            fprintf(out, " by %s", figure->by);
    }
    print_of(out, figure->quota);
    print_over(out, &figure->over);
    fputc('\n', out);
}

static void print_condition_lines(FILE *out,
                                  const struct weir_scenario *scenario,
                                  const char *word,
                                  const struct weir_condition *conditions,
                                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%s ", word);
        weir_print_condition(out, scenario, &conditions[i]);
        fputc('\n', out);
    }
}

static void print_claim(FILE *out, const struct weir_scenario *scenario,
                        const struct weir_claim *claim)
{
    for (size_t i = 0; i < claim->condition_count; i++) {
        if (claim->conditions[i].variant)
            return; /* a printed scenario has no variants */
    }
    fputs("claim ", out);
    weir_print_quoted(out, weir_text_of(claim->text));
    for (size_t i = 0; i < claim->condition_count; i++) {
        fputs(i > 0 ? " and " : " holds if ", out);
        weir_print_condition(out, scenario, &claim->conditions[i]);
    }
    fputc('\n', out);
}

void weir_print_measures(FILE *out, const struct weir_scenario *scenario)
{
    print_condition_lines(out, scenario, "always", scenario->always,
                          scenario->always_count);
    for (size_t i = 0; i < scenario->measure_count; i++)
        print_measure(out, scenario, &scenario->measures[i]);
    print_condition_lines(out, scenario, "expect", scenario->expects,
                          scenario->expect_count);
    for (size_t i = 0; i < scenario->claim_count; i++)
        print_claim(out, scenario, &scenario->claims[i]);
    for (size_t i = 0; i < scenario->figure_count; i++)
        print_figure_statement(out, scenario, &scenario->figures[i]);
}
