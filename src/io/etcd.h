/* SPDX-License-Identifier: MIT
 * io/etcd.h - a client of etcd v3: a connection to one of several endpoints,
 * and calls over it, each with a deadline. Knows the calls of codec/etcd_v3.h,
 * not their purpose.
 *
 * When the connection ends, every call ends, and the next endpoint is tried.
 * After a round over all endpoints without an answer the client pauses; the
 * pause grows and is randomized. The client never repeats a call: only its
 * caller knows whether that is safe.
 *
 * One thread, that of the loop. */

#ifndef WEIR_ETCD_H
#define WEIR_ETCD_H

#include "codec/etcd_v3.h"
#include "io/login.h"
#include "io/stream.h"

#define WEIR_ETCD_ENDPOINTS_MAX 16
#define WEIR_ETCD_CALLS_MAX 32 /* at once */

struct weir_etcd;

/* "HOST:PORT,HOST:PORT"; "http://" before one is accepted and ignored.
 * WEIR_EINVAL with 'diag' filled. */
int weir_etcd_endpoints_parse(struct weir_text text,
                              struct weir_address out[WEIR_ETCD_ENDPOINTS_MAX],
                              uint32_t *out_count, struct weir_diag *diag);

/* No callback may free the client. */
struct weir_etcd_handler {
    void *context;
    /* Connected: calls can be made. */
    void (*on_up)(void *context);
    /* The connection has ended, or an endpoint couldn't be reached. 'why': a
     * sentence with the endpoint; NULL: that endpoint's failure was reported
     * already, and nothing was answered since. */
    void (*on_down)(void *context, const char *why);
    /* A file of the login has changed and can't be used; its last good contents
     * stay in force. */
    void (*on_file)(void *context, const char *why);
};

struct weir_etcd_options {
    struct event_base *base;              /* borrowed */
    const struct weir_address *endpoints; /* copied */
    uint32_t count;                       /* 1 .. WEIR_ETCD_ENDPOINTS_MAX */
    struct weir_login_options login;      /* TLS; paths are copied. There is
                                           * no token for etcd */
    weir_duration patience;               /* until connected; 0: 5 s */
    weir_duration pause; /* longest pause after a round without an answer; 0:
                          * 2 s */
    struct weir_etcd_handler handler;
};

/* Reads the files of the login; connects from the loop's next turn on. The
 * error of weir_login_check() or WEIR_ENOMEM with 'diag' filled. */
int weir_etcd_new(const struct weir_etcd_options *options,
                  struct weir_etcd **out, struct weir_diag *diag);
/* Ends every call with WEIR_GRPC_CANCELLED, and closes; the handler isn't
 * called for that. NULL inside is legal. */
void weir_etcd_free(struct weir_etcd **etcd);

/* The outcome of a call: an answer (status WEIR_GRPC_OK), or a failure (any
 * other status; WEIR_GRPC_OK if a watch ended in good order). A WATCH has
 * answers until 'is_over'; any other call has exactly one outcome, with which
 * it is over. Texts are borrowed. */
struct weir_etcd_outcome {
    bool is_over;
    int status;
    const char *message; /* of a failure, a sentence; never NULL */
    const struct weir_etcd_answer *answer; /* NULL: none */
};
typedef void weir_etcd_outcome_fn(void *context,
                                  const struct weir_etcd_outcome *outcome);

struct weir_etcd_call {
    struct weir_etcd_ask ask; /* its texts are copied */
    weir_duration patience;   /* time limit of the answer; of a WATCH, of its
                               * first one */
    weir_etcd_outcome_fn *on_outcome; /* may make calls; never called before
                                       * _call() returns */
    void *context;
};
/* WEIR_ECLOSED (not connected), WEIR_EFULL or WEIR_ENOMEM: then there is no
 * outcome. */
int weir_etcd_call(struct weir_etcd *etcd, const struct weir_etcd_call *call);

/* Whether calls can be made. During an outcome, false means that the connection
 * has ended, which on_down() reports, and the call with it. */
bool weir_etcd_is_up(const struct weir_etcd *etcd);

/* Leaves this endpoint for the next one; 'why' is the sentence for
 * on_down(). */
void weir_etcd_leave(struct weir_etcd *etcd, const char *why);
/* The current endpoint, "127.0.0.1:2379"; borrowed until the loop goes on. */
const char *weir_etcd_endpoint(const struct weir_etcd *etcd);

/* Whether the store refuses the request, as any of its servers would. */
bool weir_etcd_is_refusal(int status);
/* Advice to the operator about a failed call; "" if it is temporary. Static. */
const char *weir_etcd_advice(int status);

#endif /* WEIR_ETCD_H */
