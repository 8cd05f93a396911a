/* SPDX-License-Identifier: MIT
 * bench/bench_ready.c - a new limiter with an empty table.
 *
 *     weir-bench-ready ROOTS SLOTS
 *
 * Prints one line of JSON: the time until it had its roots' quotas, its
 * processor time and memory, and the number of quotas. Stays until its input
 * ends. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "test/load_parts.h"

static double cpu_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir *weir;
    if (argc != 3)
        return 2;
    options.roots = argv[1];
    options.name = "bench/ready";
    options.memory_max = strtoull(argv[2], NULL, 10) * 2048;
    weir_instant start = live_now();
    uint64_t before = live_resident_bytes();
    if (weir_open(&options, &weir) < 0 ||
        weir_ready(weir, 100 * WEIR_SECOND) < 0)
        return 1;
    double seconds = (double)(live_now() - start) * 1e-9;
    struct weir_status status;
    weir_status(weir, &status);
    printf("{\"seconds\": %.3f, \"cpu_seconds\": %.3f, \"bytes\": %" PRIu64
           ", \"quotas\": %" PRIu32 "}\n",
           seconds, cpu_s(), live_resident_bytes() - before, status.slots_used);
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    weir_close(weir);
    return 0;
}
