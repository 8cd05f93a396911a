/* SPDX-License-Identifier: MIT
 * bench/bench_fleet.c - many limiters in one process, each with many counters.
 *
 *     weir-bench-fleet ROOTS NAME LIMITERS QUOTAS SECONDS
 *
 * LIMITERS instances of libweir, each with handles to QUOTAS quotas named
 * "load/0000" and on. Each counter is taken from twice a second, so every
 * counter has changed in every report interval. The program prints a line when
 * all limiters have their quotas, begins when it reads a line, and after
 * SECONDS prints one line of JSON: the takes, the reports of all limiters, and
 * the time. The limiters live on, and report the remaining counts, until the
 * input ends. bench/scale measures the root's side. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/load_parts.h"

#define LIMITERS_MAX 1000
#define QUOTAS_MAX 10000
#define ROUND (500 * WEIR_MILLISECOND) /* each counter, once */

struct fleet {
    const char *roots;
    const char *name;
    size_t limiters;
    size_t quotas;
    struct weir *weir[LIMITERS_MAX];
    struct weir_handle *handles; /* owned: limiters * quotas */
    uint64_t takes;
};

static bool open_limiter(struct fleet *fleet, size_t index)
{
    char name[64];
    snprintf(name, sizeof(name), "%s/%04zu", fleet->name, index);
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.roots = fleet->roots;
    options.name = name;
    options.threads_max = 2;
    if (weir_open(&options, &fleet->weir[index]) < 0 ||
        weir_ready(fleet->weir[index], 60 * WEIR_SECOND) < 0)
        return false;
    for (size_t i = 0; i < fleet->quotas; i++) {
        int len = snprintf(name, sizeof(name), "load/%04zu", i);
        if (weir_handle_open(fleet->weir[index], name, (size_t)len,
                             &fleet->handles[index * fleet->quotas + i]) < 0)
            return false;
    }
    return true;
}

/* Takes from each counter of one limiter. */
static void take_all(struct fleet *fleet, size_t index)
{
    weir_instant now = live_now();
    for (size_t i = 0; i < fleet->quotas; i++)
        (void)weir_take(fleet->handles[index * fleet->quotas + i], 1, NULL,
                        now);
    fleet->takes += fleet->quotas;
}

static uint64_t reports(const struct fleet *fleet)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < fleet->limiters; i++) {
        struct weir_status status;
        weir_status(fleet->weir[i], &status);
        sum += status.reports;
    }
    return sum;
}

/* The limiters' turns are spread evenly over a round. */
static void run(struct fleet *fleet, weir_duration span)
{
    weir_instant start = live_now();
    weir_instant next = start;
    uint64_t before = reports(fleet);
    while (next < start + span) {
        for (size_t i = 0; i < fleet->limiters; i++) {
            take_all(fleet, i);
            next += ROUND / fleet->limiters;
            if (live_now() < next)
                live_sleep_until(next);
        }
        if (live_now() > next)
            next = live_now();
    }
    double seconds = (double)(live_now() - start) / 1e9;
    printf("{\"limiters\": %zu, \"quotas\": %zu, \"seconds\": %.3f, "
           "\"takes\": %" PRIu64 ", \"reports\": %" PRIu64 "}\n",
           fleet->limiters, fleet->quotas, seconds, fleet->takes,
           reports(fleet) - before);
    fflush(stdout);
}

static size_t number(const char *text, size_t most)
{
    size_t value = strtoull(text, NULL, 10);
    return value <= most ? value : most;
}

int main(int argc, char **argv)
{
    static struct fleet fleet;
    if (argc != 6) {
        fprintf(stderr, "usage: %s ROOTS NAME LIMITERS QUOTAS SECONDS\n",
                argv[0]);
        return 2;
    }
    fleet.roots = argv[1];
    fleet.name = argv[2];
    fleet.limiters = number(argv[3], LIMITERS_MAX);
    fleet.quotas = number(argv[4], QUOTAS_MAX);
    fleet.handles =
        calloc(fleet.limiters * fleet.quotas + 1, sizeof(*fleet.handles));
    for (size_t i = 0; fleet.handles != NULL && i < fleet.limiters; i++) {
        if (!open_limiter(&fleet, i)) {
            fprintf(stderr, "%s: limiter %zu found no root\n", argv[0], i);
            return 1;
        }
    }
    puts("{\"ready\": true}");
    fflush(stdout);
    (void)getchar();
    run(&fleet, number(argv[5], 600) * WEIR_SECOND);
    while (getchar() != EOF)
        continue;
    for (size_t i = 0; i < fleet.limiters; i++)
        weir_close(fleet.weir[i]);
    return 0;
}
