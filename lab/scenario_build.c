/* SPDX-License-Identifier: MIT
 * lab/scenario_build.c - one variant of a script becomes a scenario.
 *
 * Statements come in any order, but their words depend on other statements:
 * "limiters" in a load, "the end" in a window, the name of a measure in a
 * claim. So the lines are gone through three times, and the table of statements
 * names the pass of each:
 *
 *     SIZES   numbers of nodes, duration, quotas
 *     PARTS   networks, loads, actions
 *     ASKS    measures, expectations, claims, figures
 *
 * So each name is looked up at its place, and a refusal points there. Two kinds
 * of names wait for the end: edits (they change quotas in the order of time)
 * and mentions of quotas that an edit makes. */

#include "core/quota/catalog.h"
#include "io/clock.h"
#include "lab/memory.h"
#include "lab/model.h"
#include "lab/scenario_internal.h"

enum { SIZES = 1, PARTS = 2, ASKS = 4 };

/* ---- Small statements ----------------------------------------------- */

static int read_item_number(struct weir_builder *builder, uint32_t max,
                            uint32_t *out)
{
    const struct weir_word *word;
    uint64_t number;
    int error = weir_line_want(&builder->line, "how many", &word);
    if (error == 0)
        error = weir_read_count(word, 1, max, &number, builder->diag);
    if (error == 0)
        *out = (uint32_t)number;
    return error;
}

static int build_roots(struct weir_builder *builder)
{
    return read_item_number(builder, WEIR_FLEET_ROOTS_MAX,
                            &builder->scenario->roots);
}

static int build_slots(struct weir_builder *builder)
{
    return read_item_number(builder, WEIR_SLOTS_MAX, &builder->scenario->slots);
}

static int build_limiters(struct weir_builder *builder)
{
    struct weir_scenario *scenario = builder->scenario;
    int error =
        read_item_number(builder, WEIR_FLEET_LIMITERS_MAX, &scenario->limiters);
    if (error < 0)
        return error;
    scenario->limiters_started = scenario->limiters;
    const struct weir_word *word = weir_line_take(&builder->line);
    struct weir_word key;
    struct weir_word value;
    uint64_t started;
    if (!word)
        return 0;
    if (!weir_word_cut(word, "=", &key, &value) ||
        !weir_word_is(&key, "started"))
        return WEIR_REFUSE(builder, word,
                           "here may stand started=N only: so "
                           "many run from the start");
    error =
        weir_read_count(&value, 0, scenario->limiters, &started, builder->diag);
    if (error == 0)
        scenario->limiters_started = (uint32_t)started;
    return error;
}

static int read_span(struct weir_builder *builder, weir_duration *out)
{
    const struct weir_word *word;
    int error =
        weir_line_want(&builder->line, "a duration, such as 60s", &word);
    if (error == 0)
        error = weir_read_duration(word, out, builder->diag);
    if (error == 0 && *out < WEIR_SECOND / 1000)
        return WEIR_REFUSE(builder, word,
                           "%s is too short; it must be 1ms or more",
                           WEIR_SHOWN(word));
    return error;
}

static int build_run(struct weir_builder *builder)
{
    return read_span(builder, &builder->scenario->span);
}

static int build_bin(struct weir_builder *builder)
{
    return read_span(builder, &builder->scenario->bin);
}

static int build_live(struct weir_builder *builder)
{
    builder->scenario->live = true;
    return 0;
}

static int build_title(struct weir_builder *builder)
{
    const struct weir_word *word;
    int error = weir_line_want(&builder->line, "the title", &word);
    if (error == 0)
        builder->scenario->title =
            weir_scenario_text(builder->scenario, word->text);
    return error;
}

static int build_ideal(struct weir_builder *builder)
{
    static const char *const curves[] = { "linear", "quadratic", "smooth",
                                          NULL };
    const struct weir_word *word;
    struct weir_word key;
    struct weir_word value;
    int curve;
    int error = weir_line_want(&builder->line, "curve=…", &word);
    if (error < 0)
        return error;
    if (!weir_word_cut(word, "=", &key, &value) || !weir_word_is(&key, "curve"))
        return WEIR_REFUSE(builder, word,
                           "of the ideal limiter the curve can "
                           "be chosen: curve=linear, quadratic or smooth");
    error = weir_read_choice(&value, "curve", curves, &curve, builder->diag);
    if (error == 0)
        builder->scenario->ideal_curve = (enum weir_curve)curve;
    return error;
}

/* "network rtt=…" is about every link, and must be known before "network NODES
 * to NODES …", which starts from its values. */
static int build_network(struct weir_builder *builder)
{
    const struct weir_word *word = weir_line_peek(&builder->line);
    bool some = word && !memchr(word->text.p, '=', word->text.len);
    if (some != (builder->pass == PARTS)) {
        while (weir_line_take(&builder->line))
            continue;
        return 0;
    }
    if (some)
        return weir_build_initial(builder);
    if (word)
        builder->scenario->net_where = word->where;
    return weir_build_net(builder, &builder->scenario->net);
}

static int build_links(struct weir_builder *builder)
{
    struct weir_scenario *scenario = builder->scenario;
    struct weir_linkage linkage;
    int error = weir_build_room(builder, scenario->linkage_count);
    if (error == 0)
        error =
            weir_build_pair(builder, "to", &linkage.limiters, &linkage.roots);
    if (error == 0)
        *WEIR_APPEND(builder, scenario->linkages, scenario->linkage_count) =
            linkage;
    return error;
}

/* ---- The table ------------------------------------------------------ */

static const struct {
    const char *word;
    unsigned passes; /* 0: done when the script was read */
    bool once;
    bool of_fleet; /* not beside a model */
    int (*build)(struct weir_builder *builder);
} statements[] = {
    { "title", SIZES, true, false, build_title },
    { "set", 0, false, false, NULL },
    { "variant", 0, false, false, NULL },
    { "vary", 0, false, false, NULL },
    { "roots", SIZES, true, true, build_roots },
    { "limiters", SIZES, true, true, build_limiters },
    { "slots", SIZES, true, true, build_slots },
    { "run", SIZES, true, false, build_run },
    { "bin", SIZES, true, false, build_bin },
    { "live", SIZES, true, true, build_live },
    { "node", SIZES, true, true, weir_build_settings },
    { "ideal", SIZES, true, true, build_ideal },
    { "model", SIZES, true, false, weir_build_model },
    { "quota", SIZES, false, true, weir_build_quota },
    { "network", SIZES | PARTS, false, true, build_network },
    { "links", PARTS, false, true, build_links },
    { "cpu", PARTS, false, true, weir_build_initial },
    { "clock", PARTS, false, true, weir_build_initial },
    { "load", PARTS, false, true, weir_build_load },
    { "at", PARTS, false, true, weir_build_at },
    { "measure", PARTS, false, false, weir_build_measure },
    { "always", ASKS, false, true, weir_build_always },
    { "expect", ASKS, false, false, weir_build_expect },
    { "claim", ASKS, false, false, weir_build_claim },
    { "figure", ASKS, false, false, weir_build_figure },
};

static int refuse_statement(struct weir_builder *builder,
                            const struct weir_word *word)
{
    const char *names[WEIR_COUNT_OF(statements) + 1] = { NULL };
    for (size_t i = 0; i < WEIR_COUNT_OF(statements); i++)
        names[i] = statements[i].word;
    return weir_script_unknown(builder->diag, word, "statement", names);
}

static int build_statement(struct weir_builder *builder, size_t row)
{
    const struct weir_word *word = &builder->line.words[0];
    if (statements[row].once && builder->seen & 1u << row)
        return WEIR_REFUSE(builder, word,
                           "there is %s already; it stands once in a scenario",
                           WEIR_SHOWN(word));
    builder->seen |= 1u << row;
    builder->has_fleet |= statements[row].of_fleet;
    if (statements[row].of_fleet && builder->scenario->model)
        return WEIR_REFUSE(builder, word,
                           "%s is of a fleet, and this scenario is a model; "
                           "what it can be told stands behind its name",
                           WEIR_SHOWN(word));
    int error = statements[row].build(builder);
    return error < 0 ? error : weir_line_end(&builder->line, false);
}

static int build_line(struct weir_builder *builder, uint32_t number)
{
    const struct weir_lab_script *script = builder->script;
    struct weir_scenario *scenario = builder->scenario;
    struct weir_line *line = &builder->line;
    *line = (struct weir_line){ .memory = scenario, .diag = builder->diag };
    if (number > 1 && weir_line_goes_on(script->lines[number - 1]))
        return 0;
    int error = weir_line_cut(line, script->lines, script->line_count, number,
                              scenario->settings, scenario->setting_count);
    if (error < 0 || line->count == 0)
        return error;
    const struct weir_word *word = weir_line_take(line);
    if (!word)
        return weir_line_end(line, false);
    size_t row = 0;
    while (row < WEIR_COUNT_OF(statements) &&
           !weir_word_is(word, statements[row].word))
        row++;
    if (row == WEIR_COUNT_OF(statements))
        return refuse_statement(builder, word);
    return statements[row].passes & builder->pass
               ? build_statement(builder, row)
               : 0;
}

/* ---- All lines ------------------------------------------------------ */

/* Refuses a scenario without a necessary statement. */
static int check_whole(struct weir_builder *builder)
{
    const struct weir_scenario *scenario = builder->scenario;
    struct weir_where last = weir_script_last(builder->script);
    if (scenario->span == 0)
        return weir_script_refuse(builder->diag, last,
                                  "there is no 'run' "
                                  "here; say how long it lasts: run 60s");
    if (scenario->quota_count == 0 && !scenario->model)
        return weir_script_refuse(builder->diag, last,
                                  "there is no quota here; say what is "
                                  "limited: quota NAME limit=1000/s");
    return 0;
}

static int build_all(struct weir_builder *builder)
{
    int error = 0;
    for (builder->pass = SIZES; error == 0 && builder->pass <= ASKS;
         builder->pass *= 2) {
        size_t lines = builder->script->line_count;
        for (uint32_t i = 1; error == 0 && i <= lines; i++)
            error = build_line(builder, i);
        builder->seen = 0;
        builder->has_fleet = false;
        if (error == 0 && builder->pass == SIZES)
            error = check_whole(builder);
    }
    return error < 0 ? error : weir_build_edits(builder);
}

struct weir_scenario *weir_scenario_build(const struct weir_lab_script *script,
                                          size_t variant,
                                          struct weir_diag *diag)
{
    struct weir_scenario *scenario = weir_scenario_new(script->name);
    weir_script_settle(script, variant, scenario);
    scenario->variant =
        weir_script_variant_name(script, variant, true, scenario);
    struct weir_builder builder = {
        .scenario = scenario,
        .script = script,
        .diag = diag,
        .catalog = weir_must(weir_catalog_new(&weir_mem_system, 0)),
    };
    int error = build_all(&builder);
    weir_catalog_free(builder.catalog);
    if (error == 0)
        return scenario;
    weir_scenario_free(scenario);
    return NULL;
}
