/* SPDX-License-Identifier: MIT
 * store/shared.h - a store for counters that processes share: one atomic step
 * per decision (sharing: exact).
 *
 *     redis://HOST:PORT[/DB]             one script per algorithm
 *     rediss://HOST:PORT[/DB]            the same over TLS
 *     memcached://HOST:PORT[,HOST:PORT]  fixed_window: a counter per window;
 *                                        all others: compare-and-swap of the
 *                                        bucket state
 *
 * For each of them, and tested by one suite: all processes together pass as
 * many units as one bucket state (core/algorithm/algorithm.h) with the store's
 * clock would; with memcached's counters sometimes a little less, never more.
 * memcached offers no clock: the processes use their wall clocks, which must
 * agree to well below a window. Redis counts time in microseconds and units in
 * doubles (shared_common.lua has the bound).
 *
 * When a store goes away, the steps of that moment wait for their deadlines
 * (short deadlines may pass several times, for WEIR_SHARED_DEADLINE in all);
 * later ones fail at once until a probe succeeds. With several servers a dead
 * one affects only its own names. A Redis cluster's redirections aren't
 * followed, but the keys suit a cluster (those of one bucket share a hash tag):
 * name the server or a proxy. Redis 5 or later (it replicates a script's
 * effects), Valkey, memcached.
 *
 * A name's rule may change: used units stay used, except that with memcached's
 * counters another kind or length of window starts from 0. Another algorithm
 * starts from 0. After fork() a child opens its own store and leaves the
 * parent's alone.
 *
 *     callers' threads                    the store's own thread
 *     weir_shared_step() -> queue ->  one connection, pipelined
 *            ^                          |
 *            +--- answer or deadline <--+
 */

#ifndef WEIR_SHARED_H
#define WEIR_SHARED_H

#include "core/algorithm/algorithm.h"

#define WEIR_SHARED_URI_MAX 512
#define WEIR_SHARED_PENDING_MAX 65536 /* steps at once in one store */
#define WEIR_SHARED_SWAPS_MAX 64      /* tries of one compare-and-swap */
#define WEIR_SHARED_PROBE \
    (400 * WEIR_MILLISECOND) /* between two probes of a dead store, randomly
                              * up to a quarter less */
#define WEIR_SHARED_DEADLINE \
    (20 * WEIR_MILLISECOND)                         /* of a step, if unset; and
                                                     * the least silence after
                                                     * which a store is away,
                                                     * whatever the deadlines */
#define WEIR_SHARED_DEADLINE_MAX (10 * WEIR_SECOND) /* longer ones are cut */

struct weir_shared;

struct weir_shared_options {
    const char *uri;          /* a URI as above */
    const char *secrets_file; /* for Redis: a file of lines "HOST:PORT USER
                               * PASSWORD" (USER "-": none), read at each
                               * connect; NULL: none. Its mode must keep other
                               * users out (0600). In plain text a password is
                               * sent only to this host, and to
                               * "redis://HOST:PORT" of such a line */
    const char *tls_ca;       /* for rediss, the CA's file; NULL: the
                               * system's */
    const char *prefix;       /* of keys; NULL: "weir" */
};

/* Starts the store's thread and begins to connect. Never waits, and an
 * unreachable server is no error. Returns 0, WEIR_EINVAL or WEIR_ESYNTAX with
 * 'diag', WEIR_ENOMEM, WEIR_ESYSTEM. */
int weir_shared_open(const struct weir_shared_options *options,
                     struct weir_shared **out_shared, struct weir_diag *diag);
/* No step may be running. NULL is legal. */
void weir_shared_close(struct weir_shared *shared);

/* One step on the bucket state of 'key' (a quota's name; 1 .. WEIR_NAME_MAX
 * bytes) by 'rule', at the store's own time. Waits for at most 'deadline'. Any
 * thread. Returns 0; WEIR_ETIMEOUT: no answer in time (the step may or may not
 * be charged); WEIR_ECONNECT: the store is away, returned at once; WEIR_EFULL:
 * too many steps at once, or too many lost swaps (nothing was charged);
 * WEIR_EPROTOCOL: an unexpected answer. 'out' is written on success only. */
int weir_shared_step(struct weir_shared *shared, struct weir_text key,
                     const struct weir_algorithm_rule *rule,
                     const struct weir_algorithm_ask *ask,
                     struct weir_algorithm_answer *out, weir_duration deadline);

/* For metrics, tests and benches. */
struct weir_shared_status {
    bool up;        /* each server answers */
    uint64_t steps; /* answered */
    uint64_t timeouts;
    uint64_t refused;    /* failed at once, because the store was away */
    uint64_t swaps_lost; /* compare-and-swaps that another process won */
    uint64_t reloads;    /* scripts sent again after NOSCRIPT */
    char last_error[160];
};
void weir_shared_status(struct weir_shared *shared,
                        struct weir_shared_status *out);

#endif /* WEIR_SHARED_H */
