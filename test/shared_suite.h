/* SPDX-License-Identifier: MIT
 * test/shared_suite.h - what every store of shared counters must do, on a real
 * server: by store/shared.h, or by another way to the same steps. */

#ifndef SHARED_SUITE_H
#define SHARED_SUITE_H

#include "shared_rules.h"
#include "shared_server.h"
#include "store/shared.h"

/* How the suite speaks to a store, and what becomes of its server. Each fails
 * the test if it can't. */
struct shared_way {
    void *(*open)(void); /* a client; doesn't wait for the server */
    void (*close)(void *client);
    /* As weir_shared_step(). */
    int (*step)(void *client, const char *key, const struct shared_wish *wish,
                const struct weir_algorithm_ask *ask,
                struct weir_algorithm_answer *out, weir_duration deadline);
    bool (*is_up)(void *client); /* answers are coming */
    bool (*start)(void);         /* false: there is no such server here */
    void (*kill)(void);
    void (*stop)(void);
    void (*go_on)(void);
    /* Where rules aren't said with each step: before the first, and at each
     * edit; the server runs. Else NULL. */
    void (*put)(const char *key, const struct shared_wish *wish);
};

struct shared_under_test {
    const struct shared_way *way; /* NULL: store/shared.h, to this kind: */
    enum shared_server_kind kind;
    /* May refuse a little early in a fixed window: at least this share of the
     * limit passes. */
    double fixed_least;
    /* Of store/shared.h: a server that announces more than anyone wants; then
     * bytes without end. */
    const char *huge;
    const char *truncated; /* the beginning of an answer, then the end */
};

/* Runs the suite; returns the number of failed tests. */
int shared_suite_run(const struct shared_under_test *under_test);

/* An open store; fails the test if it can't be. */
struct weir_shared *shared_open_at(const char *uri, const char *secrets_file);
/* One step; the result of weir_shared_step(). */
int shared_ask(struct weir_shared *shared, const char *key,
               const struct weir_algorithm_rule *rule,
               enum weir_algorithm_op op, uint64_t weight,
               struct weir_algorithm_answer *out);
/* Steps again and again until one is answered; fails after a long time. */
void shared_await(struct weir_shared *shared);
/* Until 'last_error' holds the text. */
void shared_await_error(struct weir_shared *shared, const char *text);

#endif /* SHARED_SUITE_H */
