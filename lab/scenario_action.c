/* SPDX-License-Identifier: MIT
 * lab/scenario_action.c - "at T VERB …; VERB …": actions at an instant.
 *
 * One table of verbs reads and prints: a row says how the verb's words are
 * parsed and printed. "network", "cpu" and "clock" as statements of their own
 * are the same verbs at the instant 0. */

#include "lab/memory.h"
#include "lab/scenario_internal.h"

typedef int reader(struct weir_builder *builder, struct weir_action *action);
typedef void printer(FILE *out, const struct weir_scenario *scenario,
                     const struct weir_action *action);

/* ---- Nodes alone: kill start reset pause resume --------------------- */

static int read_action_nodes(struct weir_builder *builder,
                             struct weir_action *action)
{
    action->some = true;
    return weir_build_nodes(builder, &action->nodes);
}

static void print_nodes(FILE *out, const struct weir_scenario *scenario,
                        const struct weir_action *action)
{
    fputc(' ', out);
    weir_print_nodes(out, scenario, &action->nodes);
}

/* "after D", if present. */
static int read_after(struct weir_builder *builder, weir_duration *out)
{
    const struct weir_word *word;
    if (!weir_line_keyword(&builder->line, "after"))
        return 0;
    int error = weir_line_want(&builder->line, "a duration", &word);
    return error < 0 ? error : weir_read_duration(word, out, builder->diag);
}

static void print_after(FILE *out, const char *words, weir_duration span)
{
    if (span == 0)
        return;
    fputs(words, out);
    weir_print_duration(out, span);
}

static int read_restart(struct weir_builder *builder,
                        struct weir_action *action)
{
    int error = read_action_nodes(builder, action);
    return error < 0 ? error : read_after(builder, &action->span);
}

static void print_restart(FILE *out, const struct weir_scenario *scenario,
                          const struct weir_action *action)
{
    print_nodes(out, scenario, action);
    print_after(out, " after ", action->span);
}

/* ---- cpu, clock ----------------------------------------------------- */

#define ACTION(NAME, MEMBER, READ, PRINT)                       \
    {                                                           \
        NAME, offsetof(struct weir_action, MEMBER), READ, PRINT \
    }

static const struct weir_script_field cpu_fields[] = {
    ACTION("message", span, weir_field_duration, weir_field_print_duration),
    ACTION("item", span2, weir_field_duration, weir_field_print_duration),
};

static int read_clock_step(struct weir_builder *builder,
                           const struct weir_word *value, void *member)
{
    return weir_read_step(value, member, builder->diag);
}

static void print_step(FILE *out, const struct weir_scenario *scenario,
                       const void *member)
{
    (void)scenario;
    weir_print_step(out, *(const int64_t *)member);
}

/* "200ppm": a clock that gains 0.2 ms a second. */
static int read_drift(struct weir_builder *builder,
                      const struct weir_word *value, void *member)
{
    struct weir_word number;
    struct weir_word rest;
    if (!weir_word_cut(value, "ppm", &number, &rest) || rest.text.len > 0)
        return WEIR_REFUSE(builder, value,
                           "a drift is written as 200ppm: "
                           "microseconds a second");
    return weir_read_real(&number, -500000, 500000, member, builder->diag);
}

static void print_drift(FILE *out, const struct weir_scenario *scenario,
                        const void *member)
{
    (void)scenario;
    weir_print_real(out, *(const double *)member);
    fputs("ppm", out);
}

static const struct weir_script_field clock_fields[] = {
    ACTION("step", step, read_clock_step, print_step),
    ACTION("drift", ppm, read_drift, print_drift),
};

static int read_cpu(struct weir_builder *builder, struct weir_action *action)
{
    int error = read_action_nodes(builder, action);
    return error < 0
               ? error
               : weir_values_read(builder, cpu_fields,
                                  WEIR_COUNT_OF(cpu_fields), action, NULL);
}

static void print_cpu(FILE *out, const struct weir_scenario *scenario,
                      const struct weir_action *action)
{
    print_nodes(out, scenario, action);
    weir_fields_print(out, scenario, cpu_fields, WEIR_COUNT_OF(cpu_fields),
                      action, &(struct weir_action){ .span = 0 });
}

static int read_clock_action(struct weir_builder *builder,
                             struct weir_action *action)
{
    int error = read_action_nodes(builder, action);
    return error < 0
               ? error
               : weir_values_read(builder, clock_fields,
                                  WEIR_COUNT_OF(clock_fields), action, NULL);
}

static void print_clock(FILE *out, const struct weir_scenario *scenario,
                        const struct weir_action *action)
{
    print_nodes(out, scenario, action);
    weir_fields_print(out, scenario, clock_fields, WEIR_COUNT_OF(clock_fields),
                      action, &(struct weir_action){ .span = 0 });
}

/* ---- Links: cut mend network ---------------------------------------- */

static int read_cut(struct weir_builder *builder, struct weir_action *action)
{
    struct weir_line *line = &builder->line;
    action->some = true;
    action->ways = WEIR_WAY_BOTH;
    int error =
        weir_build_pair(builder, "from", &action->nodes, &action->others);
    if (error < 0)
        return error;
    if (weir_line_keyword(line, "up"))
        action->ways = WEIR_WAY_UP;
    else if (weir_line_keyword(line, "down"))
        action->ways = WEIR_WAY_DOWN;
    const struct weir_word *word = weir_line_peek(line);
    if (!weir_line_keyword(line, "noticed"))
        return 0;
    if (action->ways != WEIR_WAY_BOTH)
        return WEIR_REFUSE(builder, word,
                           "a cut of one way is noticed by "
                           "nobody; cut both, or leave this out");
    return read_after(builder, &action->span);
}

static void print_pair(FILE *out, const struct weir_scenario *scenario,
                       const struct weir_action *action, const char *word)
{
    print_nodes(out, scenario, action);
    fprintf(out, " %s ", word);
    weir_print_nodes(out, scenario, &action->others);
}

static void print_cut_action(FILE *out, const struct weir_scenario *scenario,
                             const struct weir_action *action)
{
    print_pair(out, scenario, action, "from");
    if (action->ways == WEIR_WAY_UP)
        fputs(" up", out);
    if (action->ways == WEIR_WAY_DOWN)
        fputs(" down", out);
    print_after(out, " noticed after ", action->span);
}

/* "mend", "mend NODES": from all others; "mend NODES from NODES". */
static int read_mend(struct weir_builder *builder, struct weir_action *action)
{
    struct weir_line *line = &builder->line;
    size_t start = line->next;
    action->some = weir_line_peek(line) != NULL;
    if (!action->some)
        return 0;
    struct weir_selection nodes;
    int error = weir_build_nodes(builder, &nodes);
    if (error < 0)
        return error;
    if (weir_line_peek(line)) {
        line->next = start;
        return weir_build_pair(builder, "from", &action->nodes,
                               &action->others);
    }
    struct weir_selection all = weir_nodes_all(builder->scenario, !nodes.root);
    action->nodes = nodes.root ? all : nodes;
    action->others = nodes.root ? nodes : all;
    return 0;
}

static void print_mend(FILE *out, const struct weir_scenario *scenario,
                       const struct weir_action *action)
{
    if (action->some)
        print_pair(out, scenario, action, "from");
}

/* Whether nodes precede the fields. */
static bool names_nodes(const struct weir_line *line)
{
    const struct weir_word *word = weir_line_peek(line);
    return word && !memchr(word->text.p, '=', word->text.len);
}

static int read_network(struct weir_builder *builder,
                        struct weir_action *action)
{
    int error = 0;
    action->net = builder->scenario->net;
    action->some = names_nodes(&builder->line);
    if (action->some)
        error = weir_build_pair(builder, "to", &action->nodes, &action->others);
    return error < 0 ? error : weir_build_net(builder, &action->net);
}

static void print_network(FILE *out, const struct weir_scenario *scenario,
                          const struct weir_action *action)
{
    if (action->some)
        print_pair(out, scenario, action, "to");
    struct weir_net base = scenario->net;
    base.delay = ~action->net.delay; /* so that at least one field is printed */
    weir_print_net(out, scenario, &action->net, &base);
}

/* ---- Quotas, the store, load ---------------------------------------- */

static int read_set_action(struct weir_builder *builder,
                           struct weir_action *action)
{
    struct weir_line *line = &builder->line;
    const struct weir_word *name;
    int error = weir_line_want(line, "the quota's name", &name);
    if (error < 0)
        return error;
    action->name = weir_scenario_text(builder->scenario, name->text);
    struct weir_scenario_edit *edit =
        WEIR_APPEND(builder, builder->edits, builder->edit_count);
    edit->where = action->where;
    edit->fields = *line;
    while (weir_line_take(line))
        continue;
    return 0;
}

static void print_set_action(FILE *out, const struct weir_scenario *scenario,
                             const struct weir_action *action)
{
    struct weir_quota base;
    size_t at = (size_t)(action - scenario->actions);
    weir_scenario_quota_before(scenario, at, action->name, &base);
    fputc(' ', out);
    weir_print_quota(out, &action->quota, &base);
}

static int read_remove(struct weir_builder *builder, struct weir_action *action)
{
    const struct weir_word *name;
    int error = weir_line_want(&builder->line, "the quota's name", &name);
    if (error < 0)
        return error;
    action->name = weir_build_mention(builder, name);
    return 0;
}

static void print_name(FILE *out, const struct weir_scenario *scenario,
                       const struct weir_action *action)
{
    (void)scenario;
    fputc(' ', out);
    weir_print_word(out, weir_text_of(action->name));
}

static int read_store_action(struct weir_builder *builder,
                             struct weir_action *action)
{
    static const char *const words[] = { "back", "away", NULL };
    const struct weir_word *word;
    int away = 0;
    int error = weir_line_want(&builder->line, "away or back", &word);
    if (error == 0)
        error = weir_read_choice(word, "state of the store", words, &away,
                                 builder->diag);
    action->flag = away == 1;
    return error;
}

static void print_store_action(FILE *out, const struct weir_scenario *scenario,
                               const struct weir_action *action)
{
    (void)scenario;
    fputs(action->flag ? " away" : " back", out);
}

static int read_load(struct weir_builder *builder, struct weir_action *action)
{
    struct weir_line *line = &builder->line;
    const struct weir_word *name;
    const struct weir_word *word;
    const struct weir_load *load;
    struct weir_word key;
    struct weir_word value;
    int error = weir_line_want(line, "the load's name", &name);
    if (error == 0)
        error = weir_build_find_load(builder, name, &load);
    if (error == 0)
        error = weir_line_want(line, "rate=…", &word);
    if (error < 0)
        return error;
    if (!weir_word_cut(word, "=", &key, &value) || !weir_word_is(&key, "rate"))
        return WEIR_REFUSE(builder, word,
                           "of a load only the rate changes: load NAME rate=…");
    action->name = weir_scenario_text(builder->scenario, name->text);
    action->rate.at = action->at;
    return weir_read_rate(&value, &action->rate.per_s,
                          &action->rate.times_limit, builder->diag);
}

static void print_load(FILE *out, const struct weir_scenario *scenario,
                       const struct weir_action *action)
{
    print_name(out, scenario, action);
    fputs(" rate=", out);
    weir_print_rate(out, action->rate.per_s, action->rate.times_limit);
}

/* ---- expect --------------------------------------------------------- */

static int read_expect(struct weir_builder *builder, struct weir_action *action)
{
    const struct weir_word *word = NULL;
    int error = weir_build_condition_now(builder, &action->condition);
    if (error < 0 || !weir_line_keyword(&builder->line, "within"))
        return error;
    error = weir_line_want(&builder->line, "a duration", &word);
    if (error == 0)
        error = weir_read_duration(word, &action->span, builder->diag);
    if (error == 0 && action->at + action->span > builder->scenario->span)
        return WEIR_REFUSE(builder, word,
                           "the run ends before this is over; see its 'run'");
    return error;
}

static void print_expect(FILE *out, const struct weir_scenario *scenario,
                         const struct weir_action *action)
{
    fputc(' ', out);
    weir_print_condition(out, scenario, &action->condition);
    print_after(out, " within ", action->span);
}

/* ---- The table ------------------------------------------------------ */

static const struct {
    const char *word;
    reader *read;
    printer *print;
} verbs[] = {
    [WEIR_ACTION_KILL] = { "kill", read_action_nodes, print_nodes },
    [WEIR_ACTION_START] = { "start", read_action_nodes, print_nodes },
    [WEIR_ACTION_RESTART] = { "restart", read_restart, print_restart },
    [WEIR_ACTION_RESET] = { "reset", read_action_nodes, print_nodes },
    [WEIR_ACTION_PAUSE] = { "pause", read_action_nodes, print_nodes },
    [WEIR_ACTION_RESUME] = { "resume", read_action_nodes, print_nodes },
    [WEIR_ACTION_CPU] = { "cpu", read_cpu, print_cpu },
    [WEIR_ACTION_CLOCK] = { "clock", read_clock_action, print_clock },
    [WEIR_ACTION_CUT] = { "cut", read_cut, print_cut_action },
    [WEIR_ACTION_MEND] = { "mend", read_mend, print_mend },
    [WEIR_ACTION_NET] = { "network", read_network, print_network },
    [WEIR_ACTION_SET] = { "set", read_set_action, print_set_action },
    [WEIR_ACTION_REMOVE] = { "remove", read_remove, print_name },
    [WEIR_ACTION_STORE] = { "store", read_store_action, print_store_action },
    [WEIR_ACTION_LOAD] = { "load", read_load, print_load },
    [WEIR_ACTION_EXPECT] = { "expect", read_expect, print_expect },
};

static int find_verb(struct weir_builder *builder, const struct weir_word *word,
                     enum weir_action_kind *out)
{
    const char *names[WEIR_COUNT_OF(verbs) + 1] = { NULL };
    for (size_t i = 0; i < WEIR_COUNT_OF(verbs); i++)
        names[i] = verbs[i].word;
    int kind = 0;
    int error = weir_read_choice(word, "verb", names, &kind, builder->diag);
    *out = (enum weir_action_kind)kind;
    return error;
}

/* Parses the verb 'word' and its arguments. */
static int build_verb(struct weir_builder *builder,
                      const struct weir_word *word, weir_duration at)
{
    struct weir_action action = { .at = at, .where = word->where };
    size_t start = builder->line.next - 1;
    int error = weir_build_room(builder, builder->scenario->action_count);
    if (error == 0)
        error = find_verb(builder, word, &action.kind);
    if (error == 0)
        error = verbs[action.kind].read(builder, &action);
    if (error == 0)
        error = weir_line_end(&builder->line, true);
    if (error < 0)
        return error;
    action.text = weir_build_words(builder, start);
    weir_scenario_act(builder->scenario, &action);
    return 0;
}

int weir_build_initial(struct weir_builder *builder)
{
    return build_verb(builder, &builder->line.words[0], 0);
}

int weir_build_at(struct weir_builder *builder)
{
    struct weir_line *line = &builder->line;
    const struct weir_word *word;
    weir_duration at;
    int error = weir_line_want(line, "an instant, such as 10s", &word);
    if (error == 0)
        error = weir_read_duration(word, &at, builder->diag);
    if (error < 0)
        return error;
    if (at > builder->scenario->span)
        return WEIR_REFUSE(builder, word,
                           "%s is after the end of the run; see its 'run'",
                           WEIR_SHOWN(word));
    for (;;) {
        error = weir_line_want(line, "a verb, such as kill, cut or set", &word);
        if (error == 0)
            error = build_verb(builder, word, at);
        if (error < 0 || line->next == line->count)
            return error;
        line->next++; /* the ';' */
    }
}

void weir_print_action(FILE *out, const struct weir_scenario *scenario,
                       size_t action)
{
    const struct weir_action *one = &scenario->actions[action];
    fputs("at ", out);
    weir_print_duration(out, one->at);
    fprintf(out, " %s", verbs[one->kind].word);
    verbs[one->kind].print(out, scenario, one);
    fputc('\n', out);
}
