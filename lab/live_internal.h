/* SPDX-License-Identifier: MIT
 * lab/live_internal.h - the structs of a live fleet; for live_*.c only. */

#ifndef WEIR_LIVE_INTERNAL_H
#define WEIR_LIVE_INTERNAL_H

#include "io/daemon.h"
#include "lab/live_client.h"
#include "lab/live_fleet.h"
#include "lab/live_process.h"
#include "lab/live_relay.h"

#define WEIR_LIVE_PATH_MAX 512

struct weir_live_agent {
    struct weir_live_limiter seen;
    struct weir_live_fleet *fleet;
    struct weir_process *process;                          /* NULL: killed */
    struct weir_live_counts received[WEIR_LIVE_LOADS_MAX]; /* since its start */
    double rates[WEIR_LIVE_LOADS_MAX];                     /* last sent to it */
    uint64_t reports;
    bool ready;
};

struct weir_live_root {
    struct weir_live_fleet *fleet;
    struct weir_process *process;    /* NULL: killed */
    struct weir_live_client *client; /* NULL: ports not known yet */
    bool paused, ready;
    bool looking; /* a request for fills is unanswered */
    uint64_t asked;
    char last_line[160]; /* of its log */
};

struct weir_live_fleet {
    const struct weir_scenario *scenario; /* borrowed, as the next two */
    const char *program;
    struct weir_live_watch watch;
    uint64_t seed;
    uint64_t born; /* agents started so far: each has a seed of its own */
    struct event_base *base;
    struct weir_signals *signals;
    char folder[WEIR_LIVE_PATH_MAX]; /* "": not made yet */
    struct weir_process *maker;      /* of the store */
    char last_line[160];             /* of the maker */
    struct weir_live_agent *agents;
    struct weir_live_root roots[WEIR_LIVE_ROOTS_MAX];
    struct weir_relay **relays; /* limiter after limiter, by root */
    weir_instant start;         /* 0: not begun */
    weir_duration step;
    bool arrived; /* the next stage of the start is reached */
    bool ending;
    int error;
    struct weir_diag why;
};

#endif /* WEIR_LIVE_INTERNAL_H */
