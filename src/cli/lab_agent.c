/* SPDX-License-Identifier: MIT
 * cli/lab_agent.c - a process of a live run: one limiter and the load that the
 * run gives it.
 *
 * It uses libweir through weir.h alone, as any service would.
 *
 * A source of requests is a sum that grows by rate × time and a threshold: when
 * the sum is above it, a request is made, the threshold is subtracted, and the
 * next is drawn (1 for regular arrivals, an exponential of mean 1 for
 * Poisson's). So the rate may change at any time, and the kind of arrivals
 * stays the same.
 *
 * While this process is paused, its service is too: a gap longer than GAP_MAX
 * was a pause (SIGSTOP), and its requests were never made. */

#include "cli/lab_agent.h"

/* At least what a slot takes, with three roots. */
#define SLOT_BYTES 2048

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command/cli.h"
#include "core/base/rng.h"
#include "io/clock.h"
#include "lab/live_fleet.h"

#define GAP_MAX (100 * WEIR_MILLISECOND)
/* Requests that are due within this time of each other are made together. */
#define BATCH (1 * WEIR_MILLISECOND)
#define WAIT_MAX (100 * WEIR_MILLISECOND)

struct source {
    char quota[WEIR_NAME_MAX + 1];
    struct weir_handle handle;
    bool poisson;
    uint64_t weight_min, weight_max;
    double per_s;
    double due, threshold; /* in requests; see above */
    uint64_t requests;
    uint64_t offered, passed, refused; /* units */
};

struct agent {
    struct weir *weir;
    struct weir_rng rng;
    struct source sources[WEIR_LIVE_LOADS_MAX];
    size_t count;
    weir_instant now;   /* requests due before this instant are made */
    weir_instant start; /* 0: not received yet */
    weir_duration step;
    uint64_t sample;                /* the last one printed */
    bool ready;                     /* "ready" was printed */
    char line[WEIR_AGENT_LINE_MAX]; /* the input line so far */
    size_t len;
};

/* ---- Requests ---- */

static double draw_threshold(struct agent *agent, const struct source *source)
{
    return source->poisson ? -log1p(-weir_rng_unit(&agent->rng)) : 1;
}

static void take_for_source(struct agent *agent, struct source *source)
{
    weir_assert(source->weight_min <= source->weight_max);
    uint64_t span = source->weight_max - source->weight_min;
    uint64_t weight =
        source->weight_min + weir_rng_below(&agent->rng, span + 1);
    source->requests++;
    source->offered += weight;
    if (weir_take(source->handle, weight, NULL, agent->now) == WEIR_PASSED)
        source->passed += weight;
    else
        source->refused += weight;
}

/* All requests that are due by now. */
static void make_requests(struct agent *agent)
{
    weir_instant now = weir_clock_now();
    weir_duration gap = now - agent->now;
    if (gap > GAP_MAX)
        gap = GAP_MAX;
    agent->now = now;
    for (size_t i = 0; i < agent->count; i++) {
        struct source *source = &agent->sources[i];
        source->due += source->per_s * (double)gap / WEIR_SECOND;
        while (source->due >= source->threshold) {
            weir_assert(source->threshold >= 0);
            source->due -= source->threshold;
            source->threshold = draw_threshold(agent, source);
            take_for_source(agent, source);
        }
    }
}

/* ---- Output ---- */

/* NaN if another quota of the chain is nearer to its limit. */
static double fill_seen(const struct agent *agent, const struct source *source)
{
    struct weir_reply reply;
    (void)weir_peek(source->handle, 0, &reply, agent->now);
    return strcmp(reply.quota, source->quota) == 0 ? (double)reply.fill : NAN;
}

static void write_sample(struct agent *agent)
{
    weir_assert(agent->step > 0);
    struct weir_status status;
    weir_status(agent->weir, &status);
    printf("sample %" PRIu64 " %u %" PRIu64 " %d %" PRIu64, agent->sample,
           status.roots_up, status.epoch, status.ready, status.reports);
    for (size_t i = 0; i < agent->count; i++) {
        const struct source *source = &agent->sources[i];
        printf(" %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %.3f",
               source->requests, source->offered, source->passed,
               source->refused, fill_seen(agent, source));
    }
    printf("\n");
    fflush(stdout);
}

/* Prints the last step that has ended; steps missed in a pause are left out. */
static void write_step(struct agent *agent)
{
    if (agent->start == 0 || agent->now < agent->start + agent->step)
        return;
    uint64_t sample = (agent->now - agent->start) / agent->step;
    if (sample == agent->sample)
        return;
    agent->sample = sample;
    write_sample(agent);
}

/* An event may come some moments before the status changes, so the status is
 * checked in every turn. */
static void write_ready(struct agent *agent)
{
    struct weir_event event;
    while (weir_event_next(agent->weir, &event))
        ;
    struct weir_status status;
    weir_status(agent->weir, &status);
    if (!status.ready || status.roots_up < status.roots)
        return;
    if (!agent->ready)
        printf("ready %u %" PRIu64 "\n", status.roots_up, status.epoch);
    agent->ready = true;
    fflush(stdout);
}

/* ---- Input ---- */

static int add_load(struct agent *agent, const char *text)
{
    if (agent->count == WEIR_LIVE_LOADS_MAX)
        return WEIR_EFULL;
    struct source *source = &agent->sources[agent->count];
    char kind[16];
    int at = 0;
    if (sscanf(text, "%15s %" SCNu64 " %" SCNu64 " %n", kind,
               &source->weight_min, &source->weight_max, &at) != 3 ||
        source->weight_max < source->weight_min)
        return WEIR_ESYNTAX;
    size_t len = strlen(text + at);
    if (len > WEIR_NAME_MAX)
        return WEIR_ENAME;
    memcpy(source->quota, text + at, len + 1);
    source->poisson = strcmp(kind, "poisson") == 0;
    source->threshold = draw_threshold(agent, source);
    agent->count++;
    return weir_handle_open(agent->weir, source->quota, len, &source->handle);
}

static int set_source_rate(struct agent *agent, const char *text)
{
    size_t i;
    double per_s;
    if (sscanf(text, "%zu %lf", &i, &per_s) != 2 || i >= agent->count)
        return WEIR_ESYNTAX;
    make_requests(agent); /* the old rate holds up to now */
    agent->sources[i].per_s = per_s;
    return 0;
}

static int set_start(struct agent *agent, const char *text)
{
    if (sscanf(text, "%" SCNu64 " %" SCNu64, &agent->start, &agent->step) !=
            2 ||
        agent->step == 0)
        return WEIR_ESYNTAX;
    weir_instant now = weir_clock_now();
    if (now > agent->start)
        agent->sample = (now - agent->start) / agent->step;
    return 0;
}

static const struct {
    const char *word;
    int (*obey)(struct agent *agent, const char *text);
} commands[] = {
    { "load ", add_load },
    { "rate ", set_source_rate },
    { "start ", set_start },
};

static int obey_line(struct agent *agent, const char *line)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(commands); i++) {
        size_t len = strlen(commands[i].word);
        if (strncmp(line, commands[i].word, len) != 0)
            continue;
        int error = commands[i].obey(agent, line + len);
        if (error < 0)
            weir_cli_fail("lab agent: %s: %s", line, weir_strerror(error));
        return error;
    }
    weir_cli_fail("lab agent: unknown line '%s'", line);
    return WEIR_ESYNTAX;
}

/* WEIR_ECLOSED when the input has ended. */
static int read_agent_lines(struct agent *agent)
{
    ssize_t got = read(STDIN_FILENO, agent->line + agent->len,
                       sizeof agent->line - agent->len);
    if (got <= 0)
        return WEIR_ECLOSED;
    agent->len += (size_t)got;
    weir_assert(agent->len <= sizeof agent->line);
    int error = 0;
    char *at = agent->line;
    for (;;) {
        size_t left = agent->len - (size_t)(at - agent->line);
        char *end = memchr(at, '\n', left);
        if (!end) {
            memmove(agent->line, at, left);
            agent->len = left;
            return left == sizeof agent->line ? WEIR_ETOOBIG : error;
        }
        *end = '\0';
        if (error == 0)
            error = obey_line(agent, at);
        at = end + 1;
    }
}

/* ---- The loop ---- */

/* The time until the next request or sample. */
static weir_duration time_to_wait(const struct agent *agent)
{
    double wait = WAIT_MAX;
    for (size_t i = 0; i < agent->count; i++) {
        const struct source *source = &agent->sources[i];
        if (source->per_s <= 0)
            continue;
        double left = (source->threshold - source->due) / source->per_s;
        wait = fmin(wait, left * WEIR_SECOND);
    }
    if (agent->start != 0) {
        weir_instant next = agent->start + (agent->sample + 1) * agent->step;
        wait = fmin(wait, next > agent->now ? (double)(next - agent->now) : 0);
    }
    return wait < BATCH ? BATCH : (weir_duration)wait;
}

static int run_agent(struct agent *agent)
{
    agent->now = weir_clock_now();
    for (;;) {
        struct pollfd fds[] = {
            { .fd = STDIN_FILENO, .events = POLLIN },
            { .fd = weir_event_fd(agent->weir), .events = POLLIN },
        };
        weir_duration wait = time_to_wait(agent);
        struct timespec in = { .tv_nsec = (long)wait };
        int count = ppoll(fds, WEIR_COUNT_OF(fds), &in, NULL);
        /* Input first: lines that came during a pause are older than its
         * end. */
        if (count > 0 && fds[0].revents) {
            int error = read_agent_lines(agent);
            if (error < 0)
                return error;
        }
        make_requests(agent);
        write_step(agent);
        if (!agent->ready || (count > 0 && fds[1].revents))
            write_ready(agent);
    }
}

/* ---- Start ---- */

int weir_cli_lab_agent(int argc, char **argv)
{
    struct weir_cli cli;
    const char *name = NULL;
    const char *slots = "0";
    const char *seed = "1";
    const struct weir_cli_option options[] = {
        { .name = "name", .value = &name },
        { .name = "slots", .value = &slots },
        { .name = "seed", .value = &seed },
    };
    int at = weir_cli_parse(&cli, "See cli/lab_agent.h.\n", options,
                            WEIR_COUNT_OF(options), argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    struct agent agent = { .rng = { strtoull(seed, NULL, 10) } };
    struct weir_options open = WEIR_OPTIONS_INIT;
    open.roots = cli.roots;
    open.name = name;
    open.memory_max = strtoull(slots, NULL, 10) * SLOT_BYTES;
    int error = weir_open(&open, &agent.weir);
    if (error < 0)
        return weir_cli_fail("lab agent: %s", weir_strerror(error));
    error = run_agent(&agent);
    weir_close(agent.weir);
    return error == WEIR_ECLOSED ? WEIR_EXIT_OK : WEIR_EXIT_ERROR;
}
