/* SPDX-License-Identifier: MIT
 * cli/lab_run.c - weir lab run, weir lab compare.
 *
 * A plan is a list of variants that run at each of the seeds: those of one
 * scenario, or, to compare, those of one scenario twice, under two settings.
 * The results of a seed are a batch. JSON and CSV are written batch by batch;
 * tables and figures, which are about all seeds, at the end. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lab_command.h"

/* Seeds that are kept in memory for tables and figures. */
#define KEPT_MAX 10000
#define LABEL_MAX 200

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
    "      --json                  a JSON object for each seed, one a line\n"
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

/* The request, as typed. */
struct request {
    const char *name;
    const char *seed, *seeds, *jobs, *variant, *out, *until_event, *patience;
    struct weir_cli_values sets[2]; /* before and after --vs */
    bool json, live, trace, compare;
};

struct plan {
    struct request request;
    struct weir_lab_source sources[2];
    struct weir_scenario **scenarios; /* owned, and each of them */
    size_t count;
    size_t split;              /* from here on they are of the second source */
    char (*labels)[LABEL_MAX]; /* owned; names of the compared sides */
    uint64_t first, last, until_event;
    weir_duration patience;
    unsigned threads;
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
        abort();
    made->refused = plan->count;
    for (size_t v = 0; v < plan->count; v++) {
        struct share share = { progress, v, plan->count };
        struct weir_run_options options = {
            .seed = seed,
            .check = true,
            .trace = plan->request.trace,
            .until_event = plan->until_event,
            .patience = plan->patience,
            .progress = report_share,
            .context = &share,
        };
        made->results[v] =
            plan->request.live
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
    const struct request *request = &plan->request;
    size_t side = variant < plan->count && variant >= plan->split;
    fputs("weir lab run ", out);
    add_shell_word(out, request->name);
    fprintf(out, " --seed %" PRIu64, seed);
    for (size_t i = 0; i < request->sets[side].count; i++) {
        fputs(" --set ", out);
        add_shell_word(out, request->sets[side].items[i]);
    }
    const char *name = variant < plan->count && !request->compare
                           ? plan->scenarios[variant]->variant
                           : request->variant;
    if (name) {
        fputs(" --variant ", out);
        add_shell_word(out, name);
    }
    if (request->live)
        fputs(" --live", out);
    if (request->patience)
        fprintf(out, " --patience %s", request->patience);
    if (event)
        fprintf(out, " --until-event %" PRIu64 " --trace", event);
}

static void describe_run_seed(void *context, uint64_t seed, char *buf,
                              size_t size)
{
    const struct plan *plan = context;
    FILE *out = fmemopen(buf, size, "w");
    if (!out)
        abort();
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
        plan->status = weir_lab_refuse(
            &plan->sources[made->refused >= plan->split], &made->diag);
        free_result_item(plan, made);
        return false;
    }
    const struct request *request = &plan->request;
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
    if (request->json) {
        weir_output_json(&batch, stdout);
        fflush(stdout);
    }
    bool written =
        !request->out || weir_output_csv(&batch, request->out, &diag) == 0;
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
    const struct request *request = &plan->request;
    if (plan->status == WEIR_EXIT_ERROR || plan->kept_count == 0)
        return;
    if (!request->json)
        weir_lab_print(plan->kept, plan->kept_count, request->compare, stdout);
    if (!request->out)
        return;
    struct weir_diag diag = { 0 };
    int error =
        weir_output_figures(plan->kept, plan->kept_count, request->out, &diag);
    /* Without gnuplot the rest is written, and diag has an advice. */
    if (error == WEIR_ENOENT)
        fprintf(stderr, "weir: %s\n", diag.text);
    else if (error)
        plan->status = weir_cli_fail("%s", diag.text);
    if (!request->json && !error)
        printf("figures and series: %s\n", request->out);
}

static void run_plan(struct plan *plan)
{
    const struct request *request = &plan->request;
    size_t seeds = (size_t)(plan->last - plan->first) + 1;
    if (!request->json || request->out)
        plan->kept = calloc(seeds, sizeof *plan->kept);
    if (plan->until_event)
        fprintf(stderr,
                "weir: stops before event %" PRIu64
                "; the results are of the run until then\n",
                plan->until_event);
    struct weir_lab_jobs jobs = { .first = plan->first,
                                  .last = plan->last,
                                  .threads = request->live ? 1 : plan->threads,
                                  .context = plan,
                                  .run = run_scenario_seed,
                                  .done = collect_run_seed,
                                  .drop = free_result_item,
                                  .replay = describe_run_seed };
    weir_lab_jobs_run(&jobs);
    finish_plan(plan);
}

/* ---- Making the plan ---- */

static int parse_run_numbers(struct plan *plan)
{
    const struct request *request = &plan->request;
    if (request->seed && request->seeds)
        return weir_cli_fail("choose one of --seed and --seeds");
    uint64_t threads = 0;
    int status = weir_lab_seeds_parse(request->seed ? "--seed" : "--seeds",
                                      request->seed    ? request->seed
                                      : request->seeds ? request->seeds
                                                       : "1",
                                      &plan->first, &plan->last);
    if (status == 0 && request->jobs)
        status = weir_lab_count_parse("--jobs", request->jobs,
                                      WEIR_LAB_JOBS_MAX, &threads);
    if (status == 0 && request->until_event)
        status = weir_lab_count_parse("--until-event", request->until_event,
                                      INT64_MAX, &plan->until_event);
    if (status)
        return status;
    plan->threads = (unsigned)threads;
    bool one = plan->first == plan->last;
    if (!one && (request->trace || request->until_event))
        return weir_cli_fail("--trace and --until-event go with one --seed");
    if (plan->last - plan->first >= KEPT_MAX &&
        (!request->json || request->out))
        return weir_cli_fail(
            "more than %d seeds only with --json, and without --out", KEPT_MAX);
    if (request->live && (request->trace || request->until_event))
        return weir_cli_fail("--live has no events to trace or stop at");
    if (request->patience && !request->live)
        return weir_cli_fail("--patience is for --live: nothing is late in "
                             "virtual time");
    return request->patience
               ? weir_cli_parse_duration("--patience", request->patience,
                                         &plan->patience)
               : 0;
}

/* Adds the variants of one source to the plan. */
static int add_variants(struct plan *plan, const struct weir_lab_source *source)
{
    size_t count = weir_script_variants(source->script);
    struct weir_scenario **grown =
        realloc(plan->scenarios, (plan->count + count) * sizeof *grown);
    if (!grown)
        abort();
    plan->scenarios = grown;
    for (size_t i = 0; i < count; i++) {
        struct weir_scenario *scenario = weir_lab_build(source, i);
        if (!scenario)
            return WEIR_EXIT_ERROR;
        plan->scenarios[plan->count++] = scenario;
    }
    return 0;
}

static int refuse_variant(const struct plan *plan)
{
    const char *asked = plan->request.variant;
    const char *names[WEIR_SCENARIO_VARIANTS_MAX + 1] = { NULL };
    for (size_t i = 0; i < plan->count; i++)
        names[i] = plan->scenarios[i]->variant;
    if (!names[0])
        return weir_cli_fail("%s has no variants", plan->request.name);
    const char *nearest = weir_cli_nearest(asked, names);
    return weir_cli_fail("%s has no variant '%s'; %s '%s'", plan->request.name,
                         asked, nearest ? "did you mean" : "its first is",
                         nearest ? nearest : names[0]);
}

/* --variant: drops the other variants. */
static int choose_variant(struct plan *plan)
{
    const char *asked = plan->request.variant;
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
        abort();
    for (size_t v = 0; v < plan->count; v++) {
        const struct weir_cli_values *sets =
            &plan->request.sets[v >= plan->split];
        FILE *out = fmemopen(plan->labels[v], LABEL_MAX - 1, "w");
        if (!out)
            abort();
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
    const struct request *request = &plan->request;
    int status = parse_run_numbers(plan);
    for (size_t side = 0; status == 0 && side <= request->compare; side++) {
        plan->split = plan->count;
        status = weir_lab_open(&plan->sources[side], request->name,
                               &request->sets[side]);
        if (status == 0)
            status = add_variants(plan, &plan->sources[side]);
    }
    if (!request->compare)
        plan->split = plan->count;
    if (status == 0)
        status = choose_variant(plan);
    if (status == 0 && request->compare)
        name_sides(plan);
    struct weir_diag diag = { 0 };
    if (status == 0 && request->out &&
        weir_output_folder(request->out, &diag) < 0)
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
    weir_lab_close(&plan->sources[0]);
    weir_lab_close(&plan->sources[1]);
}

static int carry_out(const struct request *request)
{
    struct plan plan = { .request = *request };
    plan.status = make_plan(&plan);
    if (plan.status == WEIR_EXIT_OK)
        run_plan(&plan);
    free_plan(&plan);
    return plan.status;
}

/* ---- The commands ---- */

/* Parses the options of a run, or one side of --vs, which takes only the first
 * of them. Returns as weir_cli_parse(). */
static int parse_request(struct request *request, size_t side, const char *help,
                         int argc, char **argv)
{
    const struct weir_cli_option options[] = {
        { .name = "seed", .value = &request->seed },
        { .name = "seeds", .value = &request->seeds },
        { .name = "set", .values = &request->sets[side] },
        { .name = "json", .flag = &request->json },
        { .name = "out", .value = &request->out },
        { .name = "jobs", .letter = 'j', .value = &request->jobs },
        /* Of a run alone: */
        { .name = "variant", .value = &request->variant },
        { .name = "live", .flag = &request->live },
        { .name = "patience", .value = &request->patience },
        { .name = "until-event", .value = &request->until_event },
        { .name = "trace", .flag = &request->trace },
    };
    size_t count = request->compare ? 6 : WEIR_COUNT_OF(options);
    return weir_cli_parse(NULL, help, options, count, argc, argv);
}

int weir_cli_lab_run(int argc, char **argv)
{
    struct request request = { 0 };
    int at = parse_request(&request, 0, run_help, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (argc - at != 1)
        return weir_cli_fail("one scenario, please; for example: weir lab "
                             "run weir-fleet (`weir lab list` names them)");
    request.name = argv[at];
    return carry_out(&request);
}

int weir_cli_lab_compare(int argc, char **argv)
{
    struct request request = { .compare = true };
    int vs = 1;
    while (vs < argc && strcmp(argv[vs], "--vs") != 0)
        vs++;
    int at = parse_request(&request, 0, compare_help, vs, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (vs == argc)
        return weir_cli_fail("compare what with what? For example: weir lab "
                             "compare weir-fleet --set slack=off --vs --set "
                             "slack=on");
    int names = vs - at;
    request.name = names > 0 ? argv[at] : NULL;
    argv[vs] = argv[0];
    at = parse_request(&request, 1, compare_help, argc - vs, argv + vs);
    if (at < 0)
        return weir_cli_parsed(at);
    names += argc - vs - at;
    if (names != 1)
        return weir_cli_fail("one scenario, please; for example: weir lab "
                             "compare weir-fleet --set slack=off --vs --set "
                             "slack=on");
    if (!request.name)
        request.name = argv[vs + at];
    return carry_out(&request);
}
