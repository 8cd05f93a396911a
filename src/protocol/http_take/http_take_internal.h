/* SPDX-License-Identifier: MIT
 * protocol/http_take/http_take_internal.h - what the files of the HTTP API
 * share. */

#ifndef WEIR_HTTP_TAKE_INTERNAL_H
#define WEIR_HTTP_TAKE_INTERNAL_H

#include "front/http_listener.h"
#include "protocol/http_take/http_take.h"

#define WEIR_HTTP_TAKE_PERMITS_MAX 1024 /* permits of one connection */

struct weir_http_take {
    const struct weir_protocol_host *host; /* borrowed, as is the next */
    struct weir_rls_service *service;
    const struct weir_http_take_views *views; /* borrowed; NULL: without the
                                               * page */
    struct weir_http_listener *listener;      /* owned */
};

/* Permits of a connection; zeroed at first. */
struct weir_http_take_permits {
    struct weir_http_take_record *held; /* owned; NULL: none so far */
    size_t room, count;
    uint64_t last; /* the last number given */
};

/* State of a connection. */
struct weir_http_take_visitor {
    /* of the request whose head was allowed */
    struct weir_protocol_taker taker;
    struct weir_http_take_permits permits;
};

/* A request that is being answered. */
struct weir_http_take_call {
    const struct weir_http_take *api;
    struct weir_http_call *http;
    struct weir_http_reply *reply; /* http's */
    struct weir_http_take_visitor *visitor;
    weir_instant now;
};

/* ---- http_take_decide.c ---- */

/* A problem of RFC 9457: {type, title, status, detail}. The status is the
 * title. */
void weir_http_take_problem(struct weir_http_reply *reply, int status,
                            const char *detail);
/* Of POST; 'asked' is the body. /v1/take: decides and replies. */
void weir_http_take_decide(const struct weir_http_take_call *call,
                           json_t *asked);
/* /v1/charge and /v1/settle. */
void weir_http_take_charge(const struct weir_http_take_call *call,
                           json_t *asked);
void weir_http_take_settle(const struct weir_http_take_call *call,
                           json_t *asked);
/* Replies 429 to a request of /v1/take or /v1/enter that no quota can decide:
 * its body is over the bound. */
void weir_http_take_limit(const struct weir_http_take_call *call,
                          const char *why);
/* The same of /json; 200 with --rls-shadow. */
void weir_http_take_rls_limit(const struct weir_http_take_call *call,
                              const char *why);
/* /json: Envoy's rate limit service. */
void weir_http_take_rls(const struct weir_http_take_call *call, json_t *asked);
/* /v1/enter and /v1/leave. Only the identity that entered a permit can
 * leave it; for another one on the same connection it doesn't exist (404). */
void weir_http_take_enter(const struct weir_http_take_call *call,
                          json_t *asked);
void weir_http_take_leave(const struct weir_http_take_call *call,
                          json_t *asked);
/* The connection has ended: gives all permits back. */
void weir_http_take_permits_end(struct weir_http_take_permits *permits);

#endif /* WEIR_HTTP_TAKE_INTERNAL_H */
