/* SPDX-License-Identifier: MIT
 * lab/run_simulated.c - a scenario in virtual time; see run.h.
 *
 * A fleet, and around it parts of the same world: sources of load, the
 * director, the sampler. The world is stepped event by event, and the checkers
 * run after each. All random numbers follow from the seed, and each part
 * outside the fleet draws from a stream of its own, so that every fleet under
 * test gets the same requests and faults.
 *
 * The scenario's time begins when its limiters have their quotas. Earlier
 * events are checked and counted, but no requests are made. */

#include <stdio.h>
#include <sys/resource.h>

#include "io/clock.h"
#include "lab/memory.h"
#include "lab/model.h"
#include "lab/run_internal.h"

/* Seeds of the random streams. */
#define SEED_OF_IDEAL 0x1dea1
#define SEED_OF_LOADS 0x10ad5

#define START_OVER_MAX (10 * WEIR_SECOND)

/* Part of the time between two calls of 'progress'. */
#define PROGRESS_STEP 0.005

/* ---- Building ---- */

static int put_simulated_quotas(struct weir_run *run, struct weir_diag *diag)
{
    const struct weir_scenario *scenario = run->scenario;
    for (size_t i = 0; i < scenario->quota_count; i++) {
        int error = weir_fleet_put(run->fleet, &scenario->quotas[i], diag);
        if (error < 0)
            return error;
    }
    return WEIR_OK;
}

static void make_fleet(struct weir_run *run)
{
    const struct weir_scenario *scenario = run->scenario;
    const struct weir_fleet_options options = {
        .seed = run->options->seed,
        .limiters = scenario->limiters,
        .roots = scenario->roots,
        .limiters_started = 0,
        .slots = scenario->slots,
        .net = scenario->net,
        .settings = scenario->node,
    };
    run->fleet = weir_fleet_new(&options);
    if (run->options->check)
        run->check = weir_check_new(run->fleet);
    run->truth = weir_truth_new(run->fleet, true, scenario->ideal_curve,
                                run->options->seed ^ SEED_OF_IDEAL);
}

static int make_run(struct weir_run *run, struct weir_diag *diag)
{
    run->result = weir_result_new(run->scenario, run->options->seed, diag);
    if (!run->result)
        return WEIR_ETOOBIG;
    make_fleet(run);
    int error = put_simulated_quotas(run, diag);
    if (error < 0)
        return error;
    run->loads =
        weir_loads_new(run->fleet, run->truth, run->check, run->scenario,
                       run->options->seed ^ SEED_OF_LOADS, diag);
    if (!run->loads)
        return WEIR_ESYSTEM;
    run->director = weir_director_new(run);
    run->sampler = weir_sampler_new(run);
    weir_director_build(run->director);
    return WEIR_OK;
}

static void tear_down(struct weir_run *run)
{
    if (run->fleet) {
        weir_sampler_free(run->sampler);
        weir_director_free(run->director);
        weir_loads_free(run->loads);
        weir_check_free(run->check);
        weir_truth_free(run->truth);
        weir_fleet_free(run->fleet);
    }
}

/* ---- Running ---- */

static void trace(const struct weir_run *run, const char *name, uint64_t event)
{
    weir_instant zero = run->start > 0 ? run->start : WEIR_WORLD_START;
    weir_instant at = weir_fleet_now(run->fleet) - zero;
    fprintf(stderr, "event %llu at %.9f s%s: %s\n", (unsigned long long)event,
            (double)at / 1e9, run->start > 0 ? "" : " of warming up", name);
}

static void report_progress(struct weir_run *run, weir_instant now)
{
    if (!run->options->progress || run->start == 0)
        return;
    double part = (double)(now - run->start) / (double)(run->end - run->start);
    if (part < run->progress + PROGRESS_STEP)
        return;
    run->progress = part;
    run->options->progress(run->options->context, part);
}

static void violate(struct weir_run *run, const char *sentence, uint64_t event)
{
    run->result->violation = weir_must_text(weir_text_of(sentence));
    run->result->violation_event = event;
    run->result->failed = true;
}

/* Event by event; false: the run is over. */
static bool run_until(struct weir_run *run, weir_instant until)
{
    struct weir_world *world = weir_fleet_world(run->fleet);
    const struct weir_run_options *options = run->options;
    for (;;) {
        if (options->until_event > 0 && world->events >= options->until_event)
            return false;
        const struct weir_part *next = weir_world_next(world, until);
        const char *name = next ? next->name : NULL;
        uint64_t event = world->events;
        if (!weir_world_step(world, until))
            return true;
        if (options->trace)
            trace(run, name, event);
        const char *violation =
            run->check ? weir_check_event(run->check) : NULL;
        if (violation) {
            violate(run, violation, event);
            return false;
        }
        report_progress(run, world->now);
    }
}

/* The limiters start spread over a report interval, as the processes of a fleet
 * do: otherwise all of them would always report at the same instants. */
static bool start_limiters(struct weir_run *run)
{
    uint32_t count = run->scenario->limiters_started;
    weir_duration over = run->scenario->node.report_interval;
    weir_instant now = weir_fleet_now(run->fleet);
    if (over > START_OVER_MAX)
        over = START_OVER_MAX;
    for (uint32_t i = 0; i < count; i++) {
        weir_fleet_start(run->fleet, weir_limiter_place(i));
        if (!run_until(run, now + over * (i + 1) / count))
            return false;
    }
    return true;
}

static bool warm_up(struct weir_run *run)
{
    if (!start_limiters(run))
        return false;
    weir_instant now = weir_fleet_now(run->fleet);
    weir_instant end = now + WEIR_RUN_WARM_UP_MAX;
    while (now < end && weir_count_ready(run) < weir_count_alive(run, false)) {
        now += WEIR_MILLISECOND;
        if (!run_until(run, now))
            return false;
    }
    return true;
}

static bool play_scenario(struct weir_run *run)
{
    if (!warm_up(run))
        return false;
    run->start = weir_fleet_now(run->fleet);
    run->end = run->start + run->scenario->span;
    weir_sampler_start(run->sampler);
    weir_loads_start(run->loads);
    weir_director_start(run->director);
    return run_until(run, run->end);
}

static void finish_run(struct weir_run *run, bool whole)
{
    struct weir_result *result = run->result;
    result->events = weir_fleet_world(run->fleet)->events;
    result->takes = weir_loads_takes(run->loads);
    weir_director_end(run->director);
    const char *violation =
        whole && run->check ? weir_check_end(run->check) : NULL;
    if (violation)
        violate(run, violation, result->events);
    if (run->check)
        weir_check_stats(run->check, &result->checked);
    weir_result_judge(run->scenario, result);
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        result->memory_peak = (size_t)usage.ru_maxrss << 10;
}

struct weir_result *weir_run_simulated(const struct weir_scenario *scenario,
                                       const struct weir_run_options *options,
                                       struct weir_diag *diag)
{
    if (scenario->model)
        return weir_run_model(scenario, options, diag);
    weir_instant began = weir_clock_now();
    struct weir_run run = { .scenario = scenario, .options = options };
    if (diag)
        *diag = (struct weir_diag){ 0 };
    if (make_run(&run, diag) < 0) {
        tear_down(&run);
        weir_result_free(run.result);
        return NULL;
    }
    bool whole = play_scenario(&run);
    finish_run(&run, whole);
    run.result->wall_s = (double)(weir_clock_now() - began) / 1e9;
    tear_down(&run);
    return run.result;
}
