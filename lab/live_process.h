/* SPDX-License-Identifier: MIT
 * lab/live_process.h - a child process whose lines come as events.
 *
 * It dies with the parent, however that ends; it has a process group of its
 * own, so that a Ctrl-C at the terminal reaches the parent alone, which then
 * ends it. */

#ifndef WEIR_LIVE_PROCESS_H
#define WEIR_LIVE_PROCESS_H

#include "base/base.h"

struct event_base;
struct weir_process;

#define WEIR_PROCESS_LINE_MAX 8192 /* bytes; the rest of a line is dropped */

/* Called from the loop. They may free the process. */
struct weir_process_handler {
    void *context;
    void (*on_line)(void *context, const char *line);
    /* It ended, and not by weir_process_free(); 'why' for people, NULL:
     * well. */
    void (*on_end)(void *context, const char *why);
};

/* What has the lines: its output alone (its errors go where the parent's do),
 * or both. */
enum weir_process_lines { WEIR_LINES_OUTPUT, WEIR_LINES_BOTH };

/* Runs argv[0] (a path; the array ends with NULL). WEIR_ESYSTEM with 'diag'
 * filled. What exec() itself refuses comes by on_end. */
int weir_process_new(struct event_base *base, char *const *argv,
                     enum weir_process_lines lines,
                     const struct weir_process_handler *handler,
                     struct weir_process **out, struct weir_diag *diag);
/* SIGKILL, and gone when this returns. */
void weir_process_free(struct weir_process **process);
/* A line to its standard input, formatted, with its line feed. */
void weir_process_say(struct weir_process *process, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* SIGSTOP or SIGCONT. */
void weir_process_pause(struct weir_process *process, bool paused);

#endif /* WEIR_LIVE_PROCESS_H */
