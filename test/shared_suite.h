/* SPDX-License-Identifier: MIT
 * test/shared_suite.h - the requirements on every store of shared counters, on
 * a real server: by store/shared.h, or by another interface to the same
 * steps. */

#ifndef SHARED_SUITE_H
#define SHARED_SUITE_H

#include "shared_rules.h"
#include "shared_server.h"
#include "store/shared.h"

/* The suite's access to a store, and control of its server. Each function fails
 * the test on errors. */
struct shared_way {
    void *(*open)(void); /* a client; doesn't wait for the server */
    void (*close)(void *client);
    /* As weir_shared_step(). */
    int (*step)(void *client, const char *key, const struct shared_wish *wish,
                const struct weir_algorithm_ask *ask,
                struct weir_algorithm_answer *out, weir_duration deadline);
    bool (*is_up)(void *client); /* answers are coming */
    bool (*start)(void);         /* false: the server isn't installed */
    void (*kill)(void);
    void (*stop)(void);
    void (*go_on)(void);
    /* For stores where rules aren't sent with each step: called before the
     * first step, and at each edit; the server runs. Else NULL. */
    void (*put)(const char *key, const struct shared_wish *wish);
};

struct shared_under_test {
    const struct shared_way *way; /* NULL: store/shared.h, to this kind: */
    enum shared_server_kind kind;
    /* A fixed window may refuse a little early: at least this part of the limit
     * passes. */
    double fixed_least;
    /* For store/shared.h: a server that announces far too many bytes; then
     * sends bytes without end. */
    const char *huge;
    const char *truncated; /* the beginning of an answer, then the end */
};

/* Runs the suite; returns the number of failed tests. */
int shared_suite_run(const struct shared_under_test *under_test);

/* An open store; fails the test on errors. */
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
