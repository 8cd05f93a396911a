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

/* Parses the values of options: 'seeds' ("7" or "1..20") of the option named
 * 'option'; 'threads' of --jobs and 'until_event' of --until-event, each
 * NULL if it isn't given. Prints an error. Returns 0 or an exit status. */
int weir_lab_jobs_parse(struct weir_lab_jobs *jobs, const char *option,
                        const char *seeds, const char *threads,
                        const char *until_event, uint64_t *out_until_event);

/* ---- lab_print.c: results of runs, for people ---- */

/* Prints the run's parameters, measures, claims, expectations: over all seeds.
 * Two variants that are 'compared' get a column of their difference. */
void weir_lab_print(const struct weir_batch *batches, size_t count,
                    bool compared, FILE *out);

#endif /* WEIR_LAB_COMMAND_H */
