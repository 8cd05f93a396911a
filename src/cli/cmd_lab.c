/* SPDX-License-Identifier: MIT
 * cli/cmd_lab.c - weir lab: its subcommands, but swarm and agent.
 *
 * run and compare make a plan, a list of variants that run at each of the
 * seeds: those of one scenario, or, to compare, those of one scenario twice,
 * under two settings. The results of a seed are a batch. JSON and CSV are
 * written batch by batch; tables and figures, which are about all seeds, at the
 * end. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lab_agent.h"
#include "cli/lab_command.h"
#include "cli/root_client.h"
#include "cli/table_print.h"
#include "lab/memory.h"
#include "lab/model.h"

#define NAMES_MAX 256
/* Seeds that are kept in memory for tables and figures. */
#define KEPT_MAX 10000
#define LABEL_MAX 200

static const char lab_help[] =
    "Whole fleets in one process, in virtual time, from a seed: the same\n"
    "limiters and roots that services and `weir serve` run, over a simulated\n"
    "network, with the faults of one.\n"
    "\n"
    "    weir lab list\n"
    "    weir lab run weir-fleet --out figures\n"
    "    weir lab compare weir-fleet --set slack=off --vs --set slack=on\n"
    "\n"
    "  list     the scenarios that come with the program\n"
    "  show     print one, to begin one's own with\n"
    "  check    read a file and show the errors in it\n"
    "  models   experiments that aren't fleets, for one's own scenarios\n"
    "  run      run a scenario, in the simulator or in real processes\n"
    "  compare  run it under two settings, side by side\n"
    "  swarm    random scenarios with random faults, under all checkers\n"
    "\n"
    "`weir help lab COMMAND` says more; weir-lab(1), weir-scenario(5) all.\n";

/* ---- Scenarios ---- */

/* A scenario named on the command line, a built-in one's name or a file's, with
 * --set. */
struct source {
    const char *path; /* as typed; borrowed */
    char *text;       /* owned */
    size_t len;
    struct weir_lab_script *script; /* owned */
};

static bool is_path(const char *name)
{
    size_t len = strlen(name);
    return strchr(name, '/') || strcmp(name, "-") == 0 ||
           (len > 5 && strcmp(name + len - 5, ".weir") == 0);
}

static int refuse_scenario_name(const char *name)
{
    const char *names[NAMES_MAX + 1] = { NULL };
    for (size_t i = 0; weir_builtins[i].name && i < NAMES_MAX; i++)
        names[i] = weir_builtins[i].name;
    const char *nearest = weir_cli_nearest(name, names);
    if (nearest)
        return weir_cli_fail("there is no scenario '%s'; did you mean '%s'?",
                             name, nearest);
    return weir_cli_fail("there is no scenario '%s'; `weir lab list` names "
                         "those there are, and a file's name ends with .weir",
                         name);
}

static int read_scenario_file(struct source *source)
{
    bool standard = strcmp(source->path, "-") == 0;
    FILE *file = standard ? stdin : fopen(source->path, "re");
    source->text = malloc(WEIR_SCENARIO_BYTES_MAX + 1);
    size_t len = 0;
    if (file && source->text)
        len = fread(source->text, 1, WEIR_SCENARIO_BYTES_MAX + 1, file);
    int status = 0;
    if (!file || !source->text || ferror(file))
        status =
            weir_cli_fail("can't read %s: %s", source->path, strerror(errno));
    if (file && !standard)
        fclose(file);
    source->len = len;
    return status;
}

/* The text of 'name': a built-in scenario, or a file if it contains a '/' or
 * ends with ".weir". Prints an error. Returns 0 or an exit status; the source
 * can be closed in either case. */
static int find_source(struct source *source, const char *name)
{
    *source = (struct source){ .path = name };
    if (is_path(name))
        return read_scenario_file(source);
    for (size_t i = 0; weir_builtins[i].name; i++) {
        if (strcmp(weir_builtins[i].name, name) != 0)
            continue;
        source->text = strdup(weir_builtins[i].text);
        if (!source->text)
            return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
        source->len = strlen(source->text);
        return 0;
    }
    return refuse_scenario_name(name);
}

/* Prints why a scenario was refused, with the line shown. Returns
 * WEIR_EXIT_ERROR. */
static int refuse_scenario(const struct source *source,
                           const struct weir_diag *diag)
{
    char shown[2048];
    struct weir_text text = { source->text, source->len };
    weir_script_show(source->path, text, diag, shown, sizeof shown);
    fputs(shown, stderr);
    return WEIR_EXIT_ERROR;
}

/* Finds the text, reads it, and applies --set ('sets' may be NULL). Errors as
 * of find_source(). */
static int open_source(struct source *source, const char *name,
                       const struct weir_cli_values *sets)
{
    int status = find_source(source, name);
    if (status)
        return status;
    struct weir_diag diag = { 0 };
    struct weir_text text = { source->text, source->len };
    source->script = weir_script_read(name, text, &diag);
    if (!source->script)
        return refuse_scenario(source, &diag);
    if (sets && sets->count > WEIR_CLI_VALUES_MAX)
        return weir_cli_fail("--set comes at most %d times",
                             WEIR_CLI_VALUES_MAX);
    for (size_t i = 0; sets && i < sets->count; i++)
        if (weir_script_set(source->script, sets->items[i], &diag) < 0)
            return weir_cli_fail("--set %s: %s", sets->items[i], diag.text);
    return 0;
}

static void close_source(struct source *source)
{
    weir_script_free(source->script);
    free(source->text);
    *source = (struct source){ 0 };
}

/* Builds a variant, or prints the error in it (NULL). */
static struct weir_scenario *build_variant(const struct source *source,
                                           size_t variant)
{
    struct weir_diag diag = { 0 };
    struct weir_scenario *scenario =
        weir_scenario_build(source->script, variant, &diag);
    if (!scenario)
        refuse_scenario(source, &diag);
    return scenario;
}

/* ---- list ---- */

static const char list_help[] =
    "Lists the scenarios that come with the program.\n"
    "\n"
    "  --json  as a JSON array\n";

static int run_list(int argc, char **argv)
{
    bool json = false;
    const struct weir_cli_option option = { .name = "json", .flag = &json };
    int at = weir_cli_parse(NULL, list_help, &option, 1, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at != argc)
        return weir_cli_fail("`weir lab list` takes no names; to see one: "
                             "weir lab show %s",
                             argv[at]);
    struct weir_rows rows = { .columns = 2 };
    json_t *list = json ? json_array() : NULL;
    for (size_t i = 0; weir_builtins[i].name; i++) {
        const char *name = weir_builtins[i].name;
        struct source source;
        bool opened = open_source(&source, name, NULL) == 0;
        const char *title = opened ? weir_script_title(source.script) : NULL;
        if (opened && json)
            json_array_append_new(
                list, json_pack("{s:s, s:s}", "name", name, "title", title));
        else if (opened)
            weir_rows_add_all(&rows, name, title, NULL);
        close_source(&source);
    }
    weir_rows_print(&rows, stdout);
    if (json)
        weir_cli_print_json(list);
    return WEIR_EXIT_OK;
}

/* ---- show, check ---- */

static const char show_help[] = "Prints a scenario, to begin one's own with.\n"
                                "\n"
                                "    weir lab show weir-fleet > mine.weir\n";

static int run_show(int argc, char **argv)
{
    int at = weir_cli_parse(NULL, show_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (argc - at != 1)
        return weir_cli_fail("one scenario, please; for example: weir lab "
                             "show weir-fleet");
    struct source source;
    int status = find_source(&source, argv[at]);
    if (status == 0)
        fwrite(source.text, 1, source.len, stdout);
    close_source(&source);
    return status;
}

static const char check_help[] =
    "Reads scenarios, builds every variant of theirs, and shows the errors;\n"
    "runs nothing.\n"
    "\n"
    "    weir lab check mine.weir\n"
    "\n"
    "  --set KEY=VALUE  instead of the file's value of KEY\n";

static int check_one(const char *name, const struct weir_cli_values *sets)
{
    struct source source;
    int status = open_source(&source, name, sets);
    size_t count = status == 0 ? weir_script_variants(source.script) : 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        struct weir_scenario *scenario = build_variant(&source, i);
        status = scenario ? 0 : WEIR_EXIT_ERROR;
        weir_scenario_free(scenario);
    }
    if (status == 0 && count == 1)
        printf("%s: good\n", name);
    else if (status == 0)
        printf("%s: good, %zu variants\n", name, count);
    close_source(&source);
    return status;
}

static int run_check(int argc, char **argv)
{
    struct weir_cli_values sets = { 0 };
    const struct weir_cli_option option = { .name = "set", .values = &sets };
    int at = weir_cli_parse(NULL, check_help, &option, 1, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc)
        return weir_cli_fail("which file? For example: weir lab check "
                             "mine.weir");
    int worst = 0;
    for (int i = at; i < argc; i++) {
        int status = check_one(argv[i], &sets);
        worst = status ? status : worst;
    }
    return worst;
}

/* ---- models: the models' own tables list their parameters, measures and
 * series, so this command is their manual ---- */

static const char models_help[] =
    "Lists the models: experiments that a scenario plays in the place of a\n"
    "fleet, with the statement `model NAME field=value …`. With a name: the\n"
    "model's parameters, its measures, and its series over time.\n"
    "\n"
    "    weir lab models pacing\n"
    "    weir lab show pacing       a scenario that uses it\n";

static void print_models(void)
{
    struct weir_rows rows = { .columns = 2 };
    for (size_t i = 0; weir_models[i]; i++)
        weir_rows_add_all(&rows, weir_models[i]->name, weir_models[i]->sentence,
                          NULL);
    weir_rows_print(&rows, stdout);
}

/* "algorithm=token_bucket", with its preset. */
static void show_preset(const struct weir_model_field *field, char *buf,
                        size_t size)
{
    FILE *out = fmemopen(buf, size, "w");
    if (!out)
        return;
    fprintf(out, "%s=", field->name);
    weir_model_value_print(out, field, field->preset);
    fclose(out);
    buf[size - 1] = '\0';
}

static void print_words(const struct weir_model *model)
{
    for (size_t i = 0; model->fields[i].name; i++) {
        const struct weir_model_field *field = &model->fields[i];
        if (field->kind != WEIR_MODEL_WORD)
            continue;
        printf("\n%s is one of:", field->name);
        for (size_t w = 0; field->words[w]; w++)
            printf(" %s", field->words[w]);
        printf("\n");
    }
}

static void print_model(const struct weir_model *model)
{
    printf("%s: %s\n\nParameters:\n", model->name, model->sentence);
    struct weir_rows rows = { .columns = 2 };
    for (size_t i = 0; model->fields[i].name; i++) {
        char preset[80] = "";
        show_preset(&model->fields[i], preset, sizeof preset);
        weir_rows_add_all(&rows, preset, model->fields[i].sentence, NULL);
    }
    weir_rows_print(&rows, stdout);
    print_words(model);
    printf("\nMeasures:\n");
    rows.columns = 2;
    for (size_t i = 0; model->metrics[i].name; i++)
        weir_rows_add_all(&rows, model->metrics[i].name,
                          model->metrics[i].sentence, NULL);
    weir_rows_print(&rows, stdout);
    printf("\nShows over time:\n");
    rows.columns = 2;
    for (size_t i = 0; model->series[i].name; i++)
        weir_rows_add_all(&rows, model->series[i].name, model->series[i].unit,
                          NULL);
    weir_rows_print(&rows, stdout);
}

static int run_models(int argc, char **argv)
{
    int at = weir_cli_parse(NULL, models_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc) {
        print_models();
        return WEIR_EXIT_OK;
    }
    for (size_t i = 0; weir_models[i]; i++) {
        if (strcmp(weir_models[i]->name, argv[at]) != 0)
            continue;
        print_model(weir_models[i]);
        return WEIR_EXIT_OK;
    }
    return weir_cli_fail("there is no model '%s'; `weir lab models` names them",
                         argv[at]);
}

/* ---- run, compare ---- */

static const char run_help[] =
    "Runs a scenario: whole fleets in virtual time, from a seed.\n"
    "\n"
    "    weir lab run weir-fleet\n"
    "    weir lab run weir-fleet --seeds 1..20 --set limiters=200\n"
    "    weir lab run mine.weir --out figures\n"
    "\n"
    "      --seed N, --seeds A..B  one run for each                     [1]\n"
    "      --set KEY=VALUE         instead of the file's value of KEY\n"
    "      --variant NAME          this one alone\n"
    "      --live                  real processes, in real time\n"
    "      --patience DURATION     wait so long for late expectations   [0]\n"
    "      --json                  a JSON line for each seed and variant\n"
    "      --out DIR               series as CSV, figures as SVG\n"
    "      --jobs N                seeds at once              [processors]\n"
    "      --until-event N         stop before that event\n"
    "      --trace                 every event to standard error\n"
    "\n"
    "Exit status 0: all expectations held, 1: some did not, 2: an error.\n"
    "See weir-lab(1); scenarios are written as weir-scenario(5) says.\n";

static const char compare_help[] =
    "Runs a scenario under two settings, at the same seeds, and shows them\n"
    "side by side.\n"
    "\n"
    "    weir lab compare weir-fleet --set slack=off --vs --set slack=on\n"
    "    weir lab compare weir-fleet --vs --set rtt=100ms --out figures\n"
    "\n"
    "The options before --vs are the first setting; it may be none. The other\n"
    "options are those of `weir lab run`, but --live, --patience,\n"
    "--variant, --until-event and --trace.\n";

struct plan {
    /* As typed; NULL: not given. */
    const char *name;
    const char *seed, *seeds, *jobs, *variant, *out, *until_text,
        *patience_text;
    struct weir_cli_values sets[2]; /* before and after --vs */
    bool json, live, trace, compare;
    /* What is run: */
    struct source sources[2];
    struct weir_scenario **scenarios; /* owned, and each of them */
    size_t count;
    size_t split;              /* from here on they are of the second source */
    char (*labels)[LABEL_MAX]; /* owned; names of the compared sides */
    struct weir_lab_jobs runs;
    uint64_t until_event; /* 0: none */
    weir_duration patience;
    struct weir_batch *kept; /* owned, with their results */
    size_t kept_count;
    int status;
};

/* ---- One seed, on any thread ---- */

/* The results of a seed: one for each variant, or the reason why a variant was
 * refused. */
struct made {
    struct weir_result **results;
    struct weir_diag diag;
    size_t refused; /* a variant; plan->count: none */
};

/* The variants of a seed share its progress. */
struct share {
    struct weir_lab_progress *progress;
    size_t variant, count;
};

static void report_share(void *context, double part)
{
    const struct share *share = context;
    weir_lab_progress(share->progress,
                      ((double)share->variant + part) / (double)share->count);
}

static void *run_scenario_seed(void *context, uint64_t seed,
                               struct weir_lab_progress *progress)
{
    const struct plan *plan = context;
    struct made *made = calloc(1, sizeof *made);
    if (made)
        made->results = calloc(plan->count, sizeof *made->results);
    if (!made || !made->results)
        weir_no_memory();
    made->refused = plan->count;
    for (size_t v = 0; v < plan->count; v++) {
        struct share share = { progress, v, plan->count };
        struct weir_run_options options = {
            .seed = seed,
            .check = true,
            .trace = plan->trace,
            .until_event = plan->until_event,
            .patience = plan->patience,
            .progress = report_share,
            .context = &share,
        };
        made->results[v] =
            plan->live
                ? weir_run_live(plan->scenarios[v], &options, &made->diag)
                : weir_run_simulated(plan->scenarios[v], &options, &made->diag);
        if (made->results[v])
            continue;
        made->refused = v;
        break;
    }
    return made;
}

static void free_results(const struct plan *plan, struct weir_result **results)
{
    for (size_t v = 0; v < plan->count; v++)
        weir_result_free(results[v]);
    free(results);
}

static void free_result_item(void *context, void *item)
{
    struct made *made = item;
    free_results(context, made->results);
    free(made);
}

/* ---- The command that replays a seed ---- */

/* Quotes a word for the shell. */
static void add_shell_word(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-+=.,:/%@";
    if (word[0] && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){ *word, '\0' }, out);
    fputc('\'', out);
}

/* The command for one variant; plan->count: for all. */
static void write_replay(const struct plan *plan, uint64_t seed, size_t variant,
                         uint64_t event, FILE *out)
{
    size_t side = variant < plan->count && variant >= plan->split;
    fputs("weir lab run ", out);
    add_shell_word(out, plan->name);
    fprintf(out, " --seed %" PRIu64, seed);
    for (size_t i = 0; i < plan->sets[side].count; i++) {
        fputs(" --set ", out);
        add_shell_word(out, plan->sets[side].items[i]);
    }
    const char *name = variant < plan->count && !plan->compare
                           ? plan->scenarios[variant]->variant
                           : plan->variant;
    if (name) {
        fputs(" --variant ", out);
        add_shell_word(out, name);
    }
    if (plan->live)
        fputs(" --live", out);
    if (plan->patience_text)
        fprintf(out, " --patience %s", plan->patience_text);
    if (event)
        fprintf(out, " --until-event %" PRIu64 " --trace", event);
}

static void describe_run_seed(void *context, uint64_t seed, char *buf,
                              size_t size)
{
    const struct plan *plan = context;
    FILE *out = fmemopen(buf, size, "w");
    if (!out)
        weir_no_memory();
    write_replay(plan, seed, plan->count, 0, out);
    fclose(out);
    buf[size - 1] = '\0';
}

/* ---- Results, seed by seed ---- */

static void print_violations(const struct plan *plan,
                             const struct weir_batch *batch)
{
    for (size_t v = 0; v < batch->count; v++) {
        const struct weir_result *result = batch->results[v];
        if (!result->violation)
            continue;
        const char *variant = batch->scenarios[v]->variant;
        fprintf(stderr, "weir: seed %" PRIu64 "%s%s: %s\n", batch->seed,
                variant ? ", " : "", variant ? variant : "", result->violation);
        fputs("  to stop before that event: ", stderr);
        write_replay(plan, batch->seed, v, result->violation_event, stderr);
        fputc('\n', stderr);
    }
}

/* Whether all expectations held, in all variants. */
static bool all_held(const struct weir_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->results[i]->failed)
            return false;
    return true;
}

static bool collect_run_seed(void *context, uint64_t seed, void *item)
{
    struct plan *plan = context;
    struct made *made = item;
    if (made->refused < plan->count) {
        plan->status = refuse_scenario(
            &plan->sources[made->refused >= plan->split], &made->diag);
        free_result_item(plan, made);
        return false;
    }
    struct weir_batch batch = { .name = plan->scenarios[0]->name,
                                .seed = seed,
                                .scenarios = plan->scenarios,
                                .results = made->results,
                                .count = plan->count };
    free(made);
    struct weir_diag diag = { 0 };
    print_violations(plan, &batch);
    if (!all_held(&batch) && plan->status == WEIR_EXIT_OK)
        plan->status = WEIR_EXIT_LIMITED;
    if (plan->json) {
        weir_output_json(&batch, stdout);
        fflush(stdout);
    }
    bool written = !plan->out || weir_output_csv(&batch, plan->out, &diag) == 0;
    if (!written)
        plan->status = weir_cli_fail("%s", diag.text);
    if (plan->kept)
        plan->kept[plan->kept_count++] = batch;
    else
        free_results(plan, batch.results);
    return written;
}

static void finish_plan(struct plan *plan)
{
    if (plan->status == WEIR_EXIT_ERROR || plan->kept_count == 0)
        return;
    if (!plan->json)
        weir_lab_print(plan->kept, plan->kept_count, plan->compare, stdout);
    if (!plan->out)
        return;
    struct weir_diag diag = { 0 };
    int error =
        weir_output_figures(plan->kept, plan->kept_count, plan->out, &diag);
    /* Without gnuplot the rest is written, and diag has an advice. */
    if (error == WEIR_ENOENT)
        fprintf(stderr, "weir: %s\n", diag.text);
    else if (error)
        plan->status = weir_cli_fail("%s", diag.text);
    if (!plan->json && !error)
        printf("figures and series: %s\n", plan->out);
}

static void run_plan(struct plan *plan)
{
    size_t seeds = (size_t)(plan->runs.last - plan->runs.first) + 1;
    if (!plan->json || plan->out)
        plan->kept = calloc(seeds, sizeof *plan->kept);
    if (plan->until_event)
        fprintf(stderr,
                "weir: stops before event %" PRIu64
                "; the results are of the run until then\n",
                plan->until_event);
    plan->runs.context = plan;
    plan->runs.run = run_scenario_seed;
    plan->runs.done = collect_run_seed;
    plan->runs.drop = free_result_item;
    plan->runs.replay = describe_run_seed;
    if (plan->live)
        plan->runs.threads = 1;
    weir_lab_jobs_run(&plan->runs);
    finish_plan(plan);
}

/* ---- Making the plan ---- */

static int parse_run_numbers(struct plan *plan)
{
    if (plan->seed && plan->seeds)
        return weir_cli_fail("choose one of --seed and --seeds");
    int status =
        weir_lab_jobs_parse(&plan->runs, plan->seed ? "--seed" : "--seeds",
                            plan->seed    ? plan->seed
                            : plan->seeds ? plan->seeds
                                          : "1",
                            plan->jobs, plan->until_text, &plan->until_event);
    if (status)
        return status;
    bool one = plan->runs.first == plan->runs.last;
    if (!one && (plan->trace || plan->until_text))
        return weir_cli_fail("--trace and --until-event go with one --seed");
    if (plan->runs.last - plan->runs.first >= KEPT_MAX &&
        (!plan->json || plan->out))
        return weir_cli_fail(
            "more than %d seeds only with --json, and without --out", KEPT_MAX);
    if (plan->live && (plan->trace || plan->until_text))
        return weir_cli_fail("--live has no events to trace or stop at");
    if (plan->patience_text && !plan->live)
        return weir_cli_fail("--patience is for --live: nothing is late in "
                             "virtual time");
    return plan->patience_text
               ? weir_cli_parse_duration("--patience", plan->patience_text,
                                         &plan->patience)
               : 0;
}

/* Adds the variants of one source to the plan. */
static int add_variants(struct plan *plan, const struct source *source)
{
    size_t count = weir_script_variants(source->script);
    struct weir_scenario **grown =
        realloc(plan->scenarios, (plan->count + count) * sizeof *grown);
    if (!grown)
        weir_no_memory();
    plan->scenarios = grown;
    for (size_t i = 0; i < count; i++) {
        struct weir_scenario *scenario = build_variant(source, i);
        if (!scenario)
            return WEIR_EXIT_ERROR;
        plan->scenarios[plan->count++] = scenario;
    }
    return 0;
}

static int refuse_variant(const struct plan *plan)
{
    const char *asked = plan->variant;
    const char *names[WEIR_SCENARIO_VARIANTS_MAX + 1] = { NULL };
    for (size_t i = 0; i < plan->count; i++)
        names[i] = plan->scenarios[i]->variant;
    if (!names[0])
        return weir_cli_fail("%s has no variants", plan->name);
    const char *nearest = weir_cli_nearest(asked, names);
    return weir_cli_fail("%s has no variant '%s'; %s '%s'", plan->name, asked,
                         nearest ? "did you mean" : "its first is",
                         nearest ? nearest : names[0]);
}

/* --variant: drops the other variants. */
static int choose_variant(struct plan *plan)
{
    const char *asked = plan->variant;
    if (!asked)
        return 0;
    size_t found = 0;
    while (found < plan->count &&
           (!plan->scenarios[found]->variant ||
            strcmp(plan->scenarios[found]->variant, asked) != 0))
        found++;
    if (found == plan->count)
        return refuse_variant(plan);
    struct weir_scenario *chosen = plan->scenarios[found];
    for (size_t i = 0; i < plan->count; i++)
        if (i != found)
            weir_scenario_free(plan->scenarios[i]);
    plan->scenarios[0] = chosen;
    plan->count = plan->split = 1;
    return 0;
}

/* The compared sides are named by their settings. */
static void name_sides(struct plan *plan)
{
    plan->labels = calloc(plan->count, sizeof *plan->labels);
    if (!plan->labels)
        weir_no_memory();
    for (size_t v = 0; v < plan->count; v++) {
        const struct weir_cli_values *sets = &plan->sets[v >= plan->split];
        FILE *out = fmemopen(plan->labels[v], LABEL_MAX - 1, "w");
        if (!out)
            weir_no_memory();
        if (sets->count == 0)
            fputs("as written", out);
        for (size_t i = 0; i < sets->count; i++)
            fprintf(out, "%s%s", i > 0 ? "," : "", sets->items[i]);
        if (plan->scenarios[v]->variant)
            fprintf(out, " %s", plan->scenarios[v]->variant);
        fclose(out);
        plan->scenarios[v]->variant = plan->labels[v];
    }
}

static int make_plan(struct plan *plan)
{
    int status = parse_run_numbers(plan);
    for (size_t side = 0; status == 0 && side <= plan->compare; side++) {
        plan->split = plan->count;
        status =
            open_source(&plan->sources[side], plan->name, &plan->sets[side]);
        if (status == 0)
            status = add_variants(plan, &plan->sources[side]);
    }
    if (!plan->compare)
        plan->split = plan->count;
    if (status == 0)
        status = choose_variant(plan);
    if (status == 0 && plan->compare)
        name_sides(plan);
    struct weir_diag diag = { 0 };
    if (status == 0 && plan->out && weir_output_folder(plan->out, &diag) < 0)
        status = weir_cli_fail("--out: %s", diag.text);
    return status;
}

static void free_plan(struct plan *plan)
{
    for (size_t i = 0; i < plan->kept_count; i++)
        free_results(plan, plan->kept[i].results);
    free(plan->kept);
    for (size_t i = 0; i < plan->count; i++)
        weir_scenario_free(plan->scenarios[i]);
    free(plan->scenarios);
    free(plan->labels);
    close_source(&plan->sources[0]);
    close_source(&plan->sources[1]);
}

static int carry_out(struct plan *plan)
{
    plan->status = make_plan(plan);
    if (plan->status == WEIR_EXIT_OK)
        run_plan(plan);
    free_plan(plan);
    return plan->status;
}

/* Parses the options of a run, or one side of --vs, which takes only the first
 * of them. Returns as weir_cli_parse(). */
static int parse_plan(struct plan *plan, size_t side, const char *help,
                      int argc, char **argv)
{
    const struct weir_cli_option options[] = {
        { .name = "seed", .value = &plan->seed },
        { .name = "seeds", .value = &plan->seeds },
        { .name = "set", .values = &plan->sets[side] },
        { .name = "json", .flag = &plan->json },
        { .name = "out", .value = &plan->out },
        { .name = "jobs", .letter = 'j', .value = &plan->jobs },
        /* Of a run alone: */
        { .name = "variant", .value = &plan->variant },
        { .name = "live", .flag = &plan->live },
        { .name = "patience", .value = &plan->patience_text },
        { .name = "until-event", .value = &plan->until_text },
        { .name = "trace", .flag = &plan->trace },
    };
    size_t count = plan->compare ? 6 : WEIR_COUNT_OF(options);
    return weir_cli_parse(NULL, help, options, count, argc, argv);
}

static int run_run(int argc, char **argv)
{
    struct plan plan = { 0 };
    int at = parse_plan(&plan, 0, run_help, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (argc - at != 1)
        return weir_cli_fail("one scenario, please; for example: weir lab "
                             "run weir-fleet (`weir lab list` names them)");
    plan.name = argv[at];
    return carry_out(&plan);
}

static int run_compare(int argc, char **argv)
{
    struct plan plan = { .compare = true };
    int vs = 1;
    while (vs < argc && strcmp(argv[vs], "--vs") != 0)
        vs++;
    int at = parse_plan(&plan, 0, compare_help, vs, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (vs == argc)
        return weir_cli_fail("compare what with what? For example: weir lab "
                             "compare weir-fleet --set slack=off --vs --set "
                             "slack=on");
    int names = vs - at;
    plan.name = names > 0 ? argv[at] : NULL;
    argv[vs] = argv[0];
    at = parse_plan(&plan, 1, compare_help, argc - vs, argv + vs);
    if (at < 0)
        return weir_cli_parsed(at);
    names += argc - vs - at;
    if (names != 1)
        return weir_cli_fail("one scenario, please; for example: weir lab "
                             "compare weir-fleet --set slack=off --vs --set "
                             "slack=on");
    if (!plan.name)
        plan.name = argv[vs + at];
    return carry_out(&plan);
}

/* ---- lab ---- */

int weir_cli_lab(int argc, char **argv)
{
    static const struct weir_cli_subcommand known[] = {
        { "list", run_list },
        { "show", run_show },
        { "check", run_check },
        { "models", run_models },
        { "run", run_run },
        { "compare", run_compare },
        { "swarm", weir_cli_lab_swarm },
    };
    /* A part of --live, not a command for people. */
    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return weir_cli_lab_agent(argc - 1, argv + 1);
    return weir_cli_run("lab", lab_help, known, WEIR_COUNT_OF(known), argc,
                        argv);
}
