/* SPDX-License-Identifier: MIT
 * store/shared.h - a store that processes share counters in: one atomic step
 * a decision (sharing: exact).
 *
 *     redis://HOST:PORT[/DB]             one script an algorithm
 *     rediss://HOST:PORT[/DB]            the same over TLS
 *     memcached://HOST:PORT[,HOST:PORT]  fixed_window: a counter a window;
 *                                        all others: compare-and-swap of the
 *                                        meter's state
 *
 * What holds for each of them, and is tested by one suite: what passes over
 * all processes is what one meter (algo/meter.h) would have let pass whose
 * clock is the store's; with memcached's counters it may be a little less,
 * never more. memcached has no clock to ask: there it is the processes' wall
 * clocks, which must agree to well below a window. Redis counts time in
 * microseconds and units in doubles (shared_common.lua has the bound).
 *
 * A store that is away costs those who ask at that moment their deadline (of
 * short ones several, WEIR_SHARED_DEADLINE in all), and then nobody anything
 * until a probe finds it again. With several servers each is away for its own
 * names only. A Redis cluster's redirections aren't
 * followed; the keys are made for one (a meter's share a hash tag), so name the
 * server or a proxy. Redis 5 or later (a script's effects are what it
 * replicates), Valkey, memcached.
 *
 * A rule may change under a name: what was used stays used; but with
 * memcached's counters another window begins anew. An algorithm that changes
 * begins anew. After fork() a child opens its own store and leaves the
 * parent's alone.
 *
 *     callers' threads                    the store's own thread
 *     weir_shared_step() -> queue ->  one connection, pipelined
 *            ^                          |
 *            +--- answer or deadline <--+
 */

#ifndef WEIR_SHARED_H
#define WEIR_SHARED_H

#include "algo/meter.h"

#define WEIR_SHARED_URI_MAX 512
#define WEIR_SHARED_PENDING_MAX 65536 /* steps under way in one store */
#define WEIR_SHARED_SWAPS_MAX 64      /* tries of one compare-and-swap */
#define WEIR_SHARED_PROBE \
    (400 * WEIR_MILLISECOND) /* between two probes of a
                                        * dead store, up to a quarter less */
#define WEIR_SHARED_DEADLINE \
    (20 * WEIR_MILLISECOND)                         /* of a step, if unset; and
                                        * how long a store is silent before it
                                        * is away, whatever the deadlines */
#define WEIR_SHARED_DEADLINE_MAX (10 * WEIR_SECOND) /* longer ones are cut */

struct weir_shared;

struct weir_shared_options {
    const char *uri;          /* as above */
    const char *secrets_file; /* of Redis: lines "HOST:PORT USER PASSWORD"
                               * (USER "-": none), read at each connect; NULL:
                               * none. No other may use it (mode 0600). In
                               * plain text a password goes to this host only,
                               * and to "redis://HOST:PORT" of such a line */
    const char *tls_ca;       /* of rediss; NULL: the system's */
    const char *prefix;       /* of keys; NULL: "weir" */
};

/* Whether 'uri' can be a store's: for weir_quota_check() and for people. */
int weir_shared_uri_check(struct weir_text uri, struct weir_diag *diag);

/* Starts the store's thread and begins to connect; never waits and never
 * fails because nobody answers. Returns 0, WEIR_EINVAL or WEIR_ESYNTAX with
 * 'diag', WEIR_ENOMEM, WEIR_ESYSTEM. */
int weir_shared_open(const struct weir_shared_options *options,
                     struct weir_shared **out_shared, struct weir_diag *diag);
/* No step may be running. NULL is legal. */
void weir_shared_close(struct weir_shared *shared);

/* One step on the meter of 'key' (a quota's name; 1 .. WEIR_NAME_MAX bytes) by
 * 'rule', at the store's own time. Waits for at most 'deadline'. Any thread.
 * Returns 0; WEIR_ETIMEOUT: no answer in time (whether it was charged isn't
 * known); WEIR_ECONNECT: the store is away, said at once; WEIR_EFULL: too many
 * steps under way, or too many lost swaps (nothing was charged);
 * WEIR_EPROTOCOL: the store answered something else. 'out' is written on
 * success only. */
int weir_shared_step(struct weir_shared *shared, struct weir_text key,
                     const struct weir_meter_rule *rule,
                     const struct weir_meter_ask *ask,
                     struct weir_meter_answer *out, weir_duration deadline);

/* What goes on, for metrics, tests and benches. */
struct weir_shared_status {
    bool up;        /* answers are coming */
    uint64_t steps; /* answered */
    uint64_t timeouts;
    uint64_t refused;    /* at once, because the store was away */
    uint64_t swaps_lost; /* tries of a compare-and-swap that another won */
    uint64_t reloads;    /* scripts sent again after NOSCRIPT */
    char last_error[160];
};
void weir_shared_status(struct weir_shared *shared,
                        struct weir_shared_status *out);

#endif /* WEIR_SHARED_H */
