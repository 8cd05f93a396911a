/* SPDX-License-Identifier: MIT
 * io/daemon.c - signals as events, enough descriptors. */

#include "io/daemon.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

static const int watched[] = { SIGTERM, SIGINT, SIGHUP };

struct weir_signals {
    struct event *events[WEIR_COUNT_OF(watched)];
    weir_signal_fn *on_signal;
    void *context;
};

static void on_signal_event(evutil_socket_t number, short what, void *context)
{
    (void)what;
    struct weir_signals *signals = context;
    signals->on_signal(signals->context, number == SIGHUP ? WEIR_SIGNAL_RELOAD
                                                          : WEIR_SIGNAL_STOP);
}

struct weir_signals *weir_signals_new(struct event_base *base,
                                      weir_signal_fn *on_signal, void *context)
{
    struct weir_signals *signals = calloc(1, sizeof(*signals));
    if (!signals)
        return NULL;
    signals->on_signal = on_signal;
    signals->context = context;
    for (size_t i = 0; i < WEIR_COUNT_OF(watched); i++) {
        signals->events[i] =
            evsignal_new(base, watched[i], on_signal_event, signals);
        if (!signals->events[i] || evsignal_add(signals->events[i], NULL)) {
            weir_signals_free(&signals);
            return NULL;
        }
    }
    /* A client that closes its connection during an answer must not kill us. */
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    (void)sigaction(SIGPIPE, &ignore, NULL);
    return signals;
}

void weir_signals_free(struct weir_signals **signals)
{
    struct weir_signals *self = *signals;
    if (!self)
        return;
    *signals = NULL;
    for (size_t i = 0; i < WEIR_COUNT_OF(watched); i++) {
        if (self->events[i])
            event_free(self->events[i]);
    }
    free(self);
}

/* Raises the limit if needed; returns the limit in force. */
static size_t raise_files(size_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    rlim_t before = limit.rlim_cur;
    if (before >= wanted)
        return (size_t)before;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return (size_t)before;
    return (size_t)limit.rlim_cur;
}

size_t weir_files_spare(size_t wanted)
{
    size_t limit = raise_files(wanted + WEIR_FILES_EXTRA);
    size_t extra = limit / 4 < WEIR_FILES_EXTRA ? limit / 4 : WEIR_FILES_EXTRA;
    size_t spare = limit - extra < wanted ? limit - extra : wanted;
    return spare > 0 ? spare : 1;
}
