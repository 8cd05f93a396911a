/* SPDX-License-Identifier: MIT
 * lab/live.c - a scenario is run by real processes, in real time.
 *
 *     live_check     whether the scenario can be run live
 *     live_fleet     processes, store, relays (live_process, live_relay)
 *     live_edit      requests to roots (live_ask)
 *     live_act       actions and load
 *     live_series    counts, fills, quantities
 *
 * The scenario's time starts when everything is ready. A tick of some
 * milliseconds does everything that is due since the last one; no other part
 * reads the time. Agents count by the same clock (CLOCK_MONOTONIC is one for
 * the machine) and name the sample of each count, so a busy parent delays
 * actions but never moves counts.
 *
 * On a busy machine a fleet takes longer to meet an expectation, and the next
 * action must still come after it. So the scenario's time stands still while an
 * expectation is late, as long as the run's patience lasts. The series go on by
 * the clock: in a run that had to wait, a measure over a span covers another
 * part of the scenario.
 *
 * No checker runs, since the lab can't read a process's memory. Properties
 * proved by the checkers in the simulator must show in the scenario's
 * expectations here. */

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "lab/live.h"
#include "lab/memory.h"

#define TICK_US 5000
/* From the moment when all are ready to the scenario's first instant. */
#define LEAD (20 * WEIR_MILLISECOND)
/* Usual time from a sample's end until its agents have reported it. */
#define LAG (10 * WEIR_MILLISECOND)
/* Time after the last sample, for the agents' last lines. */
#define TRAIL (2 * WEIR_SECOND)

/* ---- During the run ---- */

static void judge_always(struct weir_live *live, weir_duration at)
{
    const struct weir_scenario *scenario = live->scenario;
    for (size_t i = 0; i < scenario->always_count; i++) {
        const struct weir_condition *condition = &scenario->always[i];
        double value = weir_live_quantity(live, condition);
        if (live->broken[i] || weir_condition_holds(condition, value))
            continue;
        live->broken[i] = true;
        weir_result_expect(live->result, condition, at, value, false);
    }
}

/* A sample is closed shortly after its end, when its lines have arrived. */
static void close_samples(struct weir_live *live, weir_duration at)
{
    size_t count = at < LAG ? 0 : (at - LAG) / live->result->step;
    size_t capacity = weir_result_capacity(live->scenario);
    if (count > capacity)
        count = capacity;
    if (live->closed == count)
        return;
    for (; live->closed < count; live->closed++)
        weir_live_close(live, live->closed);
    weir_live_look(live->fleet, count - 1);
    judge_always(live, at);
    if (live->options->progress)
        live->options->progress(live->options->context,
                                (double)count / (double)capacity);
}

/* Whether every agent that runs has reported the last sample. */
static bool has_all_samples(const struct weir_live *live)
{
    for (uint32_t i = 0; i < live->scenario->limiters; i++) {
        const struct weir_live_limiter *limiter =
            weir_live_limiter(live->fleet, i);
        if (limiter->running && limiter->settled && !limiter->paused &&
            limiter->sample < live->closed)
            return false;
    }
    return true;
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_live *live = context;
    weir_instant now = weir_clock_now();
    if (now < live->start)
        return;
    weir_duration span = live->scenario->span;
    close_samples(live, now - live->start);
    weir_duration at = weir_live_act(live, now);
    if (at < span || live->expect_count > 0) {
        weir_live_share(live, at);
        return;
    }
    bool closed = live->closed == weir_result_capacity(live->scenario);
    live->done = closed && (has_all_samples(live) || at > span + TRAIL);
}

static int run_live(struct weir_live *live, struct weir_diag *diag)
{
    struct event_base *base = weir_live_base(live->fleet);
    struct timeval in = { .tv_usec = TICK_US };
    struct event *tick =
        weir_must(event_new(base, -1, EV_PERSIST, on_tick, live));
    live->start = weir_clock_now() + LEAD;
    live->bytes = weir_live_bytes(live->fleet);
    weir_live_begin(live->fleet, live->start, live->result->step);
    event_add(tick, &in);
    int error = weir_live_run(live->fleet, &live->done, "the run", 0, diag);
    event_free(tick);
    return error;
}

/* ---- Before and after ---- */

static void make_live_parts(struct weir_live *live)
{
    const struct weir_scenario *scenario = live->scenario;
    weir_live_series_init(live);
    live->rng.state = live->options->seed;
    live->loads = weir_must_zeroed(scenario->load_count, sizeof *live->loads);
    for (size_t i = 0; i < scenario->load_count; i++) {
        struct weir_live_load *load = &live->loads[i];
        load->load = &scenario->loads[i];
        load->quota = weir_live_quota_index(live, load->load->quota);
        double limit = live->quotas[load->quota].limit_per_s;
        load->arrival.load = load->load;
        load->arrival.base_per_s = limit > 0 ? limit : 0;
        memset(load->on, 1, sizeof load->on);
        weir_live_draw(live, &load->load->on, load->on, scenario->limiters);
    }
    live->restarts = weir_must_zeroed(scenario->limiters + scenario->roots,
                                      sizeof *live->restarts);
    live->expects =
        weir_must_zeroed(scenario->action_count, sizeof *live->expects);
    live->broken = weir_must_zeroed(scenario->always_count, sizeof(bool));
}

/* Adds the conditions that always held to the results. */
static void judge_live(struct weir_live *live)
{
    const struct weir_scenario *scenario = live->scenario;
    live->result->sample_count = live->closed;
    weir_live_fill(live);
    for (size_t i = 0; i < scenario->always_count; i++) {
        const struct weir_condition *condition = &scenario->always[i];
        if (!live->broken[i])
            weir_result_expect(live->result, condition, scenario->span,
                               weir_live_quantity(live, condition), true);
    }
    weir_result_judge(scenario, live->result);
}

static void clean_up(struct weir_live *live)
{
    weir_live_fleet_free(live->fleet);
    free(live->quotas);
    free(live->loads);
    free(live->restarts);
    free(live->expects);
    free(live->broken);
}

static int find_program(char *buf, size_t size, struct weir_diag *diag)
{
    ssize_t len = readlink("/proc/self/exe", buf, size - 1);
    if (len <= 0)
        return weir_diag_set(diag, WEIR_ESYSTEM,
                             "--live can't find its own "
                             "program: /proc/self/exe: ",
                             strerror(errno), NULL);
    buf[len] = '\0';
    return 0;
}

struct weir_result *weir_run_live(const struct weir_scenario *scenario,
                                  const struct weir_run_options *options,
                                  struct weir_diag *diag)
{
    if (scenario->model) {
        weir_diag_put(diag, WEIR_EINVAL,
                      "a model is played in virtual time only; run it without "
                      "--live");
        return NULL;
    }
    char program[PATH_MAX];
    weir_instant begun = weir_clock_now();
    if (weir_live_check(scenario, diag) < 0 ||
        find_program(program, sizeof program, diag) < 0)
        return NULL;
    struct weir_live live = { .scenario = scenario, .options = options };
    live.result = weir_result_new(scenario, options->seed, diag);
    if (!live.result)
        return NULL;
    make_live_parts(&live);
    struct weir_live_watch watch = { .context = &live,
                                     .counted = weir_live_counted,
                                     .looked = weir_live_looked };
    live.fleet =
        weir_live_fleet_new(scenario, program, options->seed, &watch, diag);
    bool ran = live.fleet && run_live(&live, diag) == 0;
    if (ran)
        judge_live(&live);
    live.result->wall_s = (double)(weir_clock_now() - begun) / WEIR_SECOND;
    clean_up(&live);
    if (ran)
        return live.result;
    weir_result_free(live.result);
    return NULL;
}
