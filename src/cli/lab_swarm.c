/* SPDX-License-Identifier: MIT
 * cli/lab_swarm.c - weir lab swarm: random scenarios, random faults, all
 * checkers. */

#include <inttypes.h>
#include <stdlib.h>

#include "cli/lab_command.h"
#include "lab/memory.h"
#include "lab/swarm.h"

static const char swarm_help[] =
    "Makes a random fleet with random quotas, load and faults from each seed,\n"
    "and runs it under all checkers. Of four seeds one (2, 6, 10, ...) is an\n"
    "adaptive fleet, the others have counted quotas.\n"
    "\n"
    "    weir lab swarm\n"
    "    weir lab swarm --seeds 1..100000\n"
    "    weir lab swarm --seeds 17 --show > 17.weir\n"
    "\n"
    "      --seeds A..B     one run for each                       [1..200]\n"
    "      --json           a JSON object for each seed, one a line\n"
    "      --jobs N         seeds at once                      [processors]\n"
    "      --show           print the scenario instead of running it\n"
    "      --until-event N  stop before that event\n"
    "      --trace          every event to standard error\n"
    "\n"
    "Exit status 0: no violation, 1: some, 2: an error.\n";

struct swarm {
    const char *seeds, *jobs, *until_event;
    bool json, show, trace;
    struct weir_lab_jobs runs;
    uint64_t until;
    uint64_t failed, adaptive, takes, events;
};

/* For people. */
static const char *seed_kind(uint64_t seed)
{
    return weir_swarm_is_adaptive(seed) ? "an adaptive fleet"
                                        : "counted quotas";
}

struct made {
    struct weir_scenario *scenario;
    struct weir_result *result; /* NULL: refused; diag says why */
    struct weir_diag diag;
};

static void *run_swarm_seed(void *context, uint64_t seed,
                            struct weir_lab_progress *progress)
{
    const struct swarm *swarm = context;
    struct weir_run_options options = { .seed = seed,
                                        .check = true,
                                        .trace = swarm->trace,
                                        .until_event = swarm->until,
                                        .progress = weir_lab_progress,
                                        .context = progress };
    struct made *made = calloc(1, sizeof *made);
    if (!made)
        weir_no_memory();
    made->scenario = weir_swarm_scenario(seed);
    made->result = weir_run_simulated(made->scenario, &options, &made->diag);
    return made;
}

static void free_swarm_item(void *context, void *item)
{
    (void)context;
    struct made *made = item;
    weir_result_free(made->result);
    weir_scenario_free(made->scenario);
    free(made);
}

static void describe_swarm_seed(void *context, uint64_t seed, char *buf,
                                size_t size)
{
    (void)context;
    snprintf(buf, size, "weir lab swarm --seeds %" PRIu64, seed);
}

static void print_failure(uint64_t seed, const struct made *made)
{
    const struct weir_result *result = made->result;
    if (!result) {
        weir_cli_fail("seed %" PRIu64 ": %s", seed, made->diag.text);
        return;
    }
    for (size_t i = 0; i < result->expect_count; i++)
        if (!result->expects[i].held)
            weir_cli_fail("seed %" PRIu64 ": expected %s, found %g", seed,
                          result->expects[i].text, result->expects[i].value);
    if (result->violation)
        fprintf(stderr,
                "weir: seed %" PRIu64 " (%s): %s\n"
                "  to stop before that event: weir lab swarm --seeds %" PRIu64
                " --until-event %" PRIu64 " --trace\n",
                seed, seed_kind(seed), result->violation, seed,
                result->violation_event);
}

static bool collect_swarm_seed(void *context, uint64_t seed, void *item)
{
    struct swarm *swarm = context;
    struct made *made = item;
    swarm->adaptive += weir_swarm_is_adaptive(seed);
    if (!made->result || made->result->failed) {
        print_failure(seed, made);
        swarm->failed++;
    }
    if (made->result) {
        swarm->takes += made->result->takes;
        swarm->events += made->result->events;
    }
    if (made->result && swarm->json) {
        struct weir_batch batch = { "swarm", seed, &made->scenario,
                                    &made->result, 1 };
        weir_output_json(&batch, stdout);
        fflush(stdout);
    }
    free_swarm_item(NULL, made);
    return true;
}

static int run_swarm(struct swarm *swarm)
{
    swarm->runs.context = swarm;
    swarm->runs.run = run_swarm_seed;
    swarm->runs.done = collect_swarm_seed;
    swarm->runs.drop = free_swarm_item;
    swarm->runs.replay = describe_swarm_seed;
    weir_lab_jobs_run(&swarm->runs);
    if (!swarm->json) {
        char takes[16], events[16];
        printf("seeds %" PRIu64 "..%" PRIu64 ": %" PRIu64 " of %" PRIu64
               " failed; %s requests, %s events; adaptive fleets: %" PRIu64
               "\n",
               swarm->runs.first, swarm->runs.last, swarm->failed,
               swarm->runs.last - swarm->runs.first + 1,
               weir_cli_units((double)swarm->takes, takes),
               weir_cli_units((double)swarm->events, events), swarm->adaptive);
    }
    return swarm->failed > 0 ? WEIR_EXIT_LIMITED : WEIR_EXIT_OK;
}

static int show_swarm(const struct swarm *swarm)
{
    for (uint64_t seed = swarm->runs.first; seed <= swarm->runs.last; seed++) {
        struct weir_scenario *scenario = weir_swarm_scenario(seed);
        char *text = weir_scenario_print(scenario);
        fputs(text, stdout);
        free(text);
        weir_scenario_free(scenario);
    }
    return WEIR_EXIT_OK;
}

static int parse_swarm_numbers(struct swarm *swarm)
{
    int status =
        weir_lab_jobs_parse(&swarm->runs, "--seeds", swarm->seeds, swarm->jobs,
                            swarm->until_event, &swarm->until);
    if (status == 0 && (swarm->trace || swarm->until) &&
        swarm->runs.first != swarm->runs.last)
        status = weir_cli_fail("--trace and --until-event go with one seed: "
                               "--seeds %" PRIu64,
                               swarm->runs.first);
    return status;
}

int weir_cli_lab_swarm(int argc, char **argv)
{
    struct swarm swarm = { .seeds = "1..200" };
    const struct weir_cli_option options[] = {
        { .name = "seeds", .value = &swarm.seeds },
        { .name = "seed", .value = &swarm.seeds },
        { .name = "json", .flag = &swarm.json },
        { .name = "jobs", .letter = 'j', .value = &swarm.jobs },
        { .name = "show", .flag = &swarm.show },
        { .name = "until-event", .value = &swarm.until_event },
        { .name = "trace", .flag = &swarm.trace },
    };
    int at = weir_cli_parse(NULL, swarm_help, options, WEIR_COUNT_OF(options),
                            argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at != argc)
        return weir_cli_fail("the swarm makes its own scenarios; to run %s: "
                             "weir lab run %s",
                             argv[at], argv[at]);
    int status = parse_swarm_numbers(&swarm);
    if (status)
        return status;
    return swarm.show ? show_swarm(&swarm) : run_swarm(&swarm);
}
