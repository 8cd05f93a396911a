/* SPDX-License-Identifier: MIT
 * os/etcd.h - a client of etcd v3: a connection to one of several endpoints,
 * and calls over it, each with a deadline. Knows the calls of
 * wire/etcd_v3.h, and not what they are for.
 *
 * When the connection ends, every call ends, and the next endpoint is tried;
 * after a round over all of them in vain, after a pause that grows, with
 * chance. Nothing is said twice by itself: who asked knows
 * whether that does harm.
 *
 * One thread, that of the loop. */

#ifndef WEIR_ETCD_H
#define WEIR_ETCD_H

#include "os/login.h"
#include "os/stream.h"
#include "wire/etcd_v3.h"

#define WEIR_ETCD_ENDPOINTS_MAX 16
#define WEIR_ETCD_CALLS_MAX 32 /* at once */

struct weir_etcd;

/* "HOST:PORT,HOST:PORT"; "http://" before one is legal, and means nothing.
 * WEIR_EINVAL with 'diag' filled. */
int weir_etcd_endpoints_parse(struct weir_text text,
                              struct weir_address out[WEIR_ETCD_ENDPOINTS_MAX],
                              uint32_t *out_count, struct weir_diag *diag);

/* None may free the client. */
struct weir_etcd_handler {
    void *context;
    /* Connected: calls can be made. */
    void (*on_up)(void *context);
    /* It isn't any more, or an endpoint couldn't be reached. 'why' for
     * people, with the endpoint; NULL: was told of that endpoint already, and
     * nothing was answered since. */
    void (*on_down)(void *context, const char *why);
    /* A file of the login has changed and can't be used; what was read before
     * is in force. */
    void (*on_file)(void *context, const char *why);
};

struct weir_etcd_options {
    struct event_base *base;              /* borrowed */
    const struct weir_address *endpoints; /* copied */
    uint32_t count;                       /* 1 .. WEIR_ETCD_ENDPOINTS_MAX */
    struct weir_login_options login;      /* TLS; paths are copied. There is
                                           * no token for etcd */
    weir_duration patience; /* for a connection to stand; 0: 5 s */
    weir_duration pause;    /* at most, after a round in vain; 0: 2 s */
    struct weir_etcd_handler handler;
};

/* Reads the files of the login; connects from the loop's next turn on. The
 * error of weir_login_check() or WEIR_ENOMEM with 'diag' filled. */
int weir_etcd_new(const struct weir_etcd_options *options,
                  struct weir_etcd **out, struct weir_diag *diag);
/* Ends every call with WEIR_GRPC_CANCELLED, and closes; the handler hears
 * nothing of that. NULL inside is legal. */
void weir_etcd_free(struct weir_etcd **etcd);

/* What comes of a call. One of these: an answer (status WEIR_GRPC_OK), or
 * how it failed (any other, WEIR_GRPC_OK when a watch ended in good order).
 * Of a WATCH answers come until it 'is_over'; any other call has exactly one,
 * with which it is over. Texts are borrowed. */
struct weir_etcd_outcome {
    bool is_over;
    int status;
    const char *message; /* of a failure, for people; never NULL */
    const struct weir_etcd_answer *answer; /* NULL: none */
};
typedef void weir_etcd_outcome_fn(void *context,
                                  const struct weir_etcd_outcome *outcome);

struct weir_etcd_call {
    struct weir_etcd_ask ask; /* its texts are copied */
    weir_duration patience;   /* for the answer; of a WATCH for the first */
    weir_etcd_outcome_fn *on_outcome; /* may make calls; never comes
                                       * before _call() returns */
    void *context;
};
/* WEIR_ECLOSED: not connected; WEIR_EFULL; WEIR_ENOMEM: then there is no
 * outcome. */
int weir_etcd_call(struct weir_etcd *etcd, const struct weir_etcd_call *call);

/* Whether calls can be made. In the outcome of one: false if the connection has
 * ended, which on_down() tells, and the call with it. */
bool weir_etcd_is_up(const struct weir_etcd *etcd);

/* Leaves this endpoint for the next one. 'why' for people. */
void weir_etcd_leave(struct weir_etcd *etcd, const char *why);
/* "127.0.0.1:2379", the one it is at; borrowed until the loop goes on. */
const char *weir_etcd_endpoint(const struct weir_etcd *etcd);

/* Whether the store refuses what was asked, and any server of it would. */
bool weir_etcd_is_refusal(int status);
/* What to do about a failed call, for people; "" if it will pass. Static. */
const char *weir_etcd_advice(int status);

#endif /* WEIR_ETCD_H */
