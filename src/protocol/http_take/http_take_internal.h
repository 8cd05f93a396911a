/* SPDX-License-Identifier: MIT
 * protocol/http_take/http_take_internal.h - replies of the HTTP API; for this folder only. */

#ifndef WEIR_HTTP_TAKE_INTERNAL_H
#define WEIR_HTTP_TAKE_INTERNAL_H

#include "front/http_reply.h"
#include "protocol/http_take/http_take.h"

/* A problem of RFC 9457: {type, title, status, detail}. 'type' NULL: the status
 * says all ("about:blank"), and is the title. */
void weir_http_take_problem(struct weir_http_reply *reply, int status,
                            const char *type, const char *title,
                            const char *detail);

/* A request for decisions. */
struct weir_http_take_call {
    const struct weir_protocol_host *host;
    const struct weir_protocol_taker *taker;
    struct weir_http_reply *reply;
    bool old_headers; /* also send X-RateLimit-… */
    weir_instant now;
};
/* Reads an ask; 0, or the reply is a problem. */
int weir_http_take_read_request(const struct weir_http_take_call *take,
                                json_t *from,
                                struct weir_protocol_request *out);
/* Writes a decision: the status, the body and the headers. */
void weir_http_take_write_reply(const struct weir_http_take_call *take,
                                const struct weir_reply *reply);
/* Replies 400 with 'detail'; returns -1. */
int weir_http_take_refuse(const struct weir_http_take_call *take,
                          const char *detail);
/* Replies to an error of weir_protocol_decide() or the like: 403, or 400. */
void weir_http_take_refuse_error(const struct weir_http_take_call *take,
                                 int error, const char *detail);

/* ---- Permits (http_take_permit.c) ---- */

/* Permits of a connection; zeroed at first. */
struct weir_http_take_permits {
    struct weir_http_take_record *held; /* owned; NULL: none so far */
    size_t room, count;
    uint64_t last; /* the last number given */
};
#define WEIR_HTTP_TAKE_PERMITS_MAX 1024 /* permits of one connection */

/* POST /v1/enter and /v1/leave. Only the identity that entered a permit can
 * leave it; for another one on the same connection it doesn't exist (404). */
void weir_http_take_enter(const struct weir_protocol_host *host,
                          const struct weir_protocol_taker *taker,
                          struct weir_http_take_permits *permits,
                          struct weir_text body, struct weir_http_reply *reply,
                          weir_instant now);
void weir_http_take_leave(const struct weir_protocol_taker *taker,
                          struct weir_http_take_permits *permits,
                          struct weir_text body, struct weir_http_reply *reply,
                          weir_instant now);
/* The connection has ended: gives all permits back. */
void weir_http_take_permits_end(struct weir_http_take_permits *permits);

/* POST /v1/take: decides and replies. 'body' is the request's. 'old_headers':
 * also send X-RateLimit-…. */
void weir_http_take_decide(const struct weir_protocol_host *host,
                           const struct weir_protocol_taker *taker,
                           struct weir_text body, bool old_headers,
                           struct weir_http_reply *reply, weir_instant now);

/* POST /json: Envoy's rate limit service. */
void weir_http_take_rls(struct weir_rls_service *service,
                        const struct weir_protocol_taker *taker,
                        struct weir_text body, struct weir_http_reply *reply,
                        weir_instant now);

/* Parses the body; NULL: the reply is a problem. A new reference. */
json_t *weir_http_take_read_json(struct weir_text body,
                                 struct weir_http_reply *reply);

/* GET /metrics, for Prometheus. */
void weir_http_take_metrics(const struct weir_protocol_host *host,
                            struct weir_http_reply *reply);

#endif /* WEIR_HTTP_TAKE_INTERNAL_H */
