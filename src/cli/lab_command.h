/* SPDX-License-Identifier: MIT
 * cli/lab_command.h - the parts of `weir lab`. */

#ifndef WEIR_LAB_COMMAND_H
#define WEIR_LAB_COMMAND_H

#include <stdio.h>

#include "command/cli.h"
#include "lab/output.h"

/* The subcommands of other files; argv[0] is "lab". */
int weir_cli_lab_swarm(int argc, char **argv);

/* ---- lab_jobs.c: many seeds at once, with results in the seeds' order ---- */

#define WEIR_LAB_JOBS_MAX 256
/* The maximum of seeds in one command. */
#define WEIR_LAB_SEEDS_MAX 1000000

/* The progress of one run, reported by the run. */
struct weir_lab_progress;
/* 'part' of 0 .. 1; 'progress' as 'context' of weir_run_options. */
void weir_lab_progress(void *progress, double part);

struct weir_lab_jobs {
    uint64_t first, last; /* seeds, both included */
    unsigned threads;     /* 0: as many as there are processors */
    void *context;
    /* Runs a seed, on any thread. */
    void *(*run)(void *context, uint64_t seed,
                 struct weir_lab_progress *progress);
    /* Gets a result, in the order of the seeds, on the thread that called; owns
     * 'made'. False: no more seeds are run or passed on. */
    bool (*done)(void *context, uint64_t seed, void *made);
    /* Not NULL: frees a result that 'done' doesn't get. */
    void (*drop)(void *context, void *made);
    /* Writes the command that runs the seed again; printed if that run
     * crashes. */
    void (*replay)(void *context, uint64_t seed, char *buf, size_t size);
};

/* Shows a bar on standard error if that is a terminal. */
void weir_lab_jobs_run(const struct weir_lab_jobs *jobs);

/* "7" or "1..20". Prints an error. Returns 0 or an exit status. */
int weir_lab_seeds_parse(const char *option, const char *text,
                         uint64_t *out_first, uint64_t *out_last);

/* A whole number from 1 to 'max'. Likewise. */
int weir_lab_count_parse(const char *option, const char *text, uint64_t max,
                         uint64_t *out);

/* ---- lab_print.c: results of runs, for people ---- */

/* Prints the run's parameters, measures, claims, expectations: over all seeds.
 * Two variants that are 'compared' get a column of their difference. */
void weir_lab_print(const struct weir_batch *batches, size_t count,
                    bool compared, FILE *out);

#endif /* WEIR_LAB_COMMAND_H */
