/* SPDX-License-Identifier: MIT
 * os/daemon.h - what a program on the loop needs of the system: signals as
 * events, room for descriptors. Never used by libweir. */

#ifndef WEIR_DAEMON_H
#define WEIR_DAEMON_H

#include "base/base.h"

struct event_base;
struct weir_signals;

enum weir_signal {
    WEIR_SIGNAL_STOP,   /* SIGTERM or SIGINT: end gracefully; a second one
                         * of them is for the caller to take as "at once" */
    WEIR_SIGNAL_RELOAD, /* SIGHUP */
};
typedef void weir_signal_fn(void *context, enum weir_signal signal);

/* Watches the signals on the loop; SIGPIPE is ignored from here on. One
 * loop of a process may do so. NULL: no memory. */
struct weir_signals *weir_signals_new(struct event_base *base,
                                      weir_signal_fn *on_signal, void *context);
void weir_signals_free(struct weir_signals **signals);

/* Descriptors that aren't connections: stores, links to roots, logs. */
#define WEIR_FILES_EXTRA 256
/* Raises RLIMIT_NOFILE so that 'wanted' connections have a descriptor beside
 * WEIR_FILES_EXTRA others, or as far as the system lets. Returns how many
 * connections have one, at most 'wanted' and at least 1: of a limit below 4 *
 * WEIR_FILES_EXTRA a quarter is left to the others. */
size_t weir_files_spare(size_t wanted);

#endif /* WEIR_DAEMON_H */
