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

/* ---- http_take_message.c ---- */

/* A problem of RFC 9457: {type, title, status, detail}. The status is the
 * title. */
void weir_http_take_problem(struct weir_http_reply *reply, int status,
                            const char *detail);
/* Replies 400 with 'detail'; returns -1. */
int weir_http_take_refuse(const struct weir_http_take_call *call,
                          const char *detail);
/* Replies to an error of weir_protocol_decide() or the like: 403, or 400. */
void weir_http_take_refuse_error(const struct weir_http_take_call *call,
                                 int error, const char *detail);
/* Parses the body; NULL: the reply is a problem. A new reference. */
json_t *weir_http_take_read_json(const struct weir_http_take_call *call);
/* Reads a request for a decision; 0, or -1, and the reply is a problem. */
int weir_http_take_read_request(const struct weir_http_take_call *call,
                                json_t *from,
                                struct weir_protocol_request *out);
/* Adds a decision's values to the object 'to'. */
void weir_http_take_add_verdict(json_t *to, const struct weir_reply *reply);
/* Writes a decision: the status, the body and the headers. 'old_headers': with
 * X-RateLimit-…. */
void weir_http_take_write_reply(const struct weir_http_take_call *call,
                                const struct weir_reply *reply,
                                bool old_headers);

/* ---- Routes ---- */

/* POST /v1/take: decides and replies. */
void weir_http_take_decide(const struct weir_http_take_call *call);
/* POST /json: Envoy's rate limit service. */
void weir_http_take_rls(const struct weir_http_take_call *call);
/* POST /v1/enter and /v1/leave. Only the identity that entered a permit can
 * leave it; for another one on the same connection it doesn't exist (404). */
void weir_http_take_enter(const struct weir_http_take_call *call);
void weir_http_take_leave(const struct weir_http_take_call *call);
/* The connection has ended: gives all permits back. */
void weir_http_take_permits_end(struct weir_http_take_permits *permits);
/* GET /metrics, for Prometheus. */
void weir_http_take_metrics(const struct weir_http_take_call *call);

#endif /* WEIR_HTTP_TAKE_INTERNAL_H */
