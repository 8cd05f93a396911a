/* SPDX-License-Identifier: MIT
 * lab/live_process.h - a child process whose output lines come as events.
 *
 * It dies with the parent, however the parent ends. It has a process group of
 * its own, so a Ctrl-C at the terminal reaches the parent alone, which then
 * ends the child. */

#ifndef WEIR_LIVE_PROCESS_H
#define WEIR_LIVE_PROCESS_H

#include "core/base/base.h"

struct event_base;
struct weir_process;

#define WEIR_PROCESS_LINE_MAX 8192 /* bytes; the rest of a line is dropped */

/* Called from the loop. The callbacks may free the process. */
struct weir_process_handler {
    void *context;
    void (*on_line)(void *context, const char *line);
    /* The process ended by itself; 'why' is a message, NULL after a regular
     * exit. */
    void (*on_end)(void *context, const char *why);
};

/* The streams read for lines: its output alone (its errors go to the parent's
 * standard error), or both. */
enum weir_process_lines { WEIR_LINES_OUTPUT, WEIR_LINES_BOTH };

/* Runs argv[0] (a path; the array ends with NULL). WEIR_ESYSTEM with 'diag'
 * filled. An error of exec() itself is passed to on_end. */
int weir_process_new(struct event_base *base, char *const *argv,
                     enum weir_process_lines lines,
                     const struct weir_process_handler *handler,
                     struct weir_process **out, struct weir_diag *diag);
/* Sends SIGKILL; the process is gone when this returns. */
void weir_process_free(struct weir_process **process);
/* Writes a formatted line and its line feed to the process's standard input. */
void weir_process_write(struct weir_process *process, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* SIGSTOP or SIGCONT. */
void weir_process_pause(struct weir_process *process, bool paused);

#endif /* WEIR_LIVE_PROCESS_H */
