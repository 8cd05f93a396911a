/* SPDX-License-Identifier: MIT
 * bench/ready.c - a limiter that comes, with an empty table.
 *
 *     weir-bench-ready ROOTS SLOTS
 *
 * Tells as one line of JSON how long it took until it had the quotas of its
 * roots, how much processor time and memory, and how many there are. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <weir/weir.h>

static double now_s(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static double cpu_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static long resident(void)
{
    long pages = 0;
    long here = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &pages, &here) != 2)
        here = 0;
    if (file != NULL)
        fclose(file);
    return here * sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir *weir;
    if (argc != 3)
        return 2;
    options.roots = argv[1];
    options.name = "bench/ready";
    options.quotas_max = (uint32_t)strtoul(argv[2], NULL, 10);
    double start = now_s();
    long before = resident();
    if (weir_open(&options, &weir) < 0 ||
        weir_ready(weir, 100 * WEIR_SECOND) < 0)
        return 1;
    double seconds = now_s() - start;
    struct weir_status status;
    weir_status(weir, &status);
    printf("{\"seconds\": %.3f, \"cpu_seconds\": %.3f, \"bytes\": %ld, "
           "\"quotas\": %" PRIu32 "}\n", seconds, cpu_s(),
           resident() - before, status.slots_used);
    weir_close(weir);
    return 0;
}
