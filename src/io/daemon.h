/* SPDX-License-Identifier: MIT
 * io/daemon.h - signals as events and enough descriptors, for programs on the
 * loop. libweir never uses it. */

#ifndef WEIR_DAEMON_H
#define WEIR_DAEMON_H

#include "core/base/base.h"

struct event_base;
struct weir_signals;

enum weir_signal {
    WEIR_SIGNAL_STOP,   /* SIGTERM or SIGINT: end gracefully; the caller may
                         * take a second one as "at once" */
    WEIR_SIGNAL_RELOAD, /* SIGHUP */
};
typedef void weir_signal_fn(void *context, enum weir_signal signal);

/* Watches the signals on the loop; from here on SIGPIPE is ignored. Only one
 * loop of a process may do so. NULL: no memory. */
struct weir_signals *weir_signals_new(struct event_base *base,
                                      weir_signal_fn *on_signal, void *context);
void weir_signals_free(struct weir_signals **signals);

/* Descriptors for other uses than connections: stores, links to roots, logs. */
#define WEIR_FILES_EXTRA 256
/* Raises RLIMIT_NOFILE to 'wanted' connections and WEIR_FILES_EXTRA other
 * descriptors, or as far as the system allows. Returns how many connections
 * have a descriptor, at most 'wanted' and at least 1. If the limit is below 4 *
 * WEIR_FILES_EXTRA, a quarter of it is left to the others. */
size_t weir_files_spare(size_t wanted);

#endif /* WEIR_DAEMON_H */
