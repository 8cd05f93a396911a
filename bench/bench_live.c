/* SPDX-License-Identifier: MIT
 * bench/bench_live.c - a service's view of libweir, for
 * bench/roots-alive-and-dead.
 *
 * A limiter of the roots named on the command line. It executes the commands of
 * its standard input, and answers each with a line:
 *
 *     ready           0 or a negative error, within ten seconds
 *     up              the number of connected roots
 *     take NAME N     p50 and p99.9 of N takes, nanoseconds each
 *     empty N         the same of nothing: the cost of the timing itself
 *     watch NAME      takes until the verdict differs from the first one;
 *                     the instant of that take, nanoseconds;
 *                     "never" after five seconds
 *
 * Each take is timed alone, by CLOCK_MONOTONIC around it, and reads the clock
 * itself as well ('now' is 0), as in a service. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/load_parts.h"

#define TAKES_MAX 1000000u
#define WORD_MAX 63
#define WATCH_MAX (5 * WEIR_SECOND)

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void percentiles_print(uint32_t *took, size_t count)
{
    qsort(took, count, sizeof(*took), by_size);
    printf("%" PRIu32 " %" PRIu32 "\n", took[count / 2],
           took[count - 1 - count / 1000]);
}

static uint32_t since(uint64_t start)
{
    uint64_t took = live_now() - start;
    return took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
}

static void takes(struct weir_handle quota, uint32_t *took, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t start = live_now();
        (void)weir_take(quota, 1, NULL, 0);
        took[i] = since(start);
    }
    percentiles_print(took, count);
}

static void empties(uint32_t *took, size_t count)
{
    for (size_t i = 0; i < count; i++)
        took[i] = since(live_now());
    percentiles_print(took, count);
}

static void watch(struct weir_handle quota)
{
    enum weir_verdict first = weir_take(quota, 1, NULL, 0);
    uint64_t start = live_now();
    printf("watching\n");
    fflush(stdout);
    while (weir_take(quota, 1, NULL, 0) == first) {
        if (live_now() - start > WATCH_MAX) {
            printf("never\n");
            return;
        }
        /* As in a service with 10,000 requests a second. */
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
    printf("%" PRIu64 "\n", live_now());
}

static bool obey(struct weir *weir, const char *line, uint32_t *took)
{
    char word[WORD_MAX + 1] = "", name[WORD_MAX + 1] = "";
    size_t count = 0;
    struct weir_handle quota = { 0 };
    int words = sscanf(line, "%63s %63s %zu", word, name, &count);
    if (strcmp(word, "empty") == 0)
        count = strtoul(name, NULL, 10);
    if (count > TAKES_MAX)
        return false;
    if (words >= 2 && strcmp(word, "empty") != 0 &&
        weir_handle_open(weir, name, strlen(name), &quota) < 0)
        return false;
    if (strcmp(word, "ready") == 0) {
        printf("%d\n", weir_ready(weir, 10 * WEIR_SECOND));
    } else if (strcmp(word, "up") == 0) {
        struct weir_status status;
        weir_status(weir, &status);
        printf("%" PRIu32 "\n", status.roots_up);
    } else if (strcmp(word, "take") == 0 && count > 0) {
        takes(quota, took, count);
    } else if (strcmp(word, "empty") == 0 && count > 0) {
        empties(took, count);
    } else if (strcmp(word, "watch") == 0) {
        watch(quota);
    } else {
        return false;
    }
    weir_handle_close(quota);
    return fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
    static uint32_t took[TAKES_MAX];
    if (argc != 2) {
        fprintf(stderr, "usage: %s HOST:PORT,...\n", argv[0]);
        return 2;
    }
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.roots = argv[1];
    options.name = "bench";
    struct weir *weir;
    int error = weir_open(&options, &weir);
    if (error < 0) {
        fprintf(stderr, "%s\n", weir_strerror(error));
        return 1;
    }
    char line[256];
    bool good = true;
    while (good && fgets(line, sizeof(line), stdin) != NULL)
        good = obey(weir, line, took);
    weir_close(weir);
    return good ? 0 : 1;
}
