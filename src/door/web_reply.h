/* SPDX-License-Identifier: MIT
 * door/web_reply.h - answers of the web door; for web*.c only. */

#ifndef WEIR_WEB_REPLY_H
#define WEIR_WEB_REPLY_H

#include "door/http_reply.h"
#include "door/web.h"

/* A problem of RFC 9457: {type, title, status, detail}. 'type' NULL: of no
 * more meaning than the status ("about:blank"), titled as that is. */
void weir_web_problem(struct weir_http_reply *reply, int status,
                      const char *type, const char *title, const char *detail);

/* A call that decides. */
struct weir_web_take {
    const struct weir_door_host *host;
    const struct weir_door_taker *taker;
    struct weir_http_reply *reply;
    bool old_headers; /* X-RateLimit-… too */
    weir_instant now;
};
/* Reads an ask; 0, or the reply is a problem. */
int weir_web_read_ask(const struct weir_web_take *take, json_t *from,
                      struct weir_door_ask *out);
/* Says what was decided: the status, the body and the headers. */
void weir_web_say(const struct weir_web_take *take,
                  const struct weir_reply *reply);
/* Always -1. */
int weir_web_refuse(const struct weir_web_take *take, const char *detail);
/* Refuses as weir_door_decide() or the like did: 403, or 400. */
void weir_web_refuse_ask(const struct weir_web_take *take, int error,
                         const char *detail);

/* ---- Permits (web_permit.c) ---- */

/* What a connection holds; all zero at first. */
struct weir_web_permits {
    struct weir_web_held *held; /* owned; NULL: none ever */
    size_t room, count;
    uint64_t last; /* the last number that was given */
};
#define WEIR_WEB_PERMITS_MAX 1024 /* of one connection */

/* POST /v1/enter and /v1/leave. A permit is left by the identity that entered
 * it; for another on the same connection there is none (404). */
void weir_web_enter(const struct weir_door_host *host,
                    const struct weir_door_taker *taker,
                    struct weir_web_permits *permits, struct weir_text body,
                    struct weir_http_reply *reply, weir_instant now);
void weir_web_leave(const struct weir_door_taker *taker,
                    struct weir_web_permits *permits, struct weir_text body,
                    struct weir_http_reply *reply, weir_instant now);
/* The connection has gone: all are given back. */
void weir_web_permits_end(struct weir_web_permits *permits);

/* POST /v1/take: decides and answers. 'body' is what came. 'old_headers':
 * X-RateLimit-… too. */
void weir_web_take(const struct weir_door_host *host,
                   const struct weir_door_taker *taker, struct weir_text body,
                   bool old_headers, struct weir_http_reply *reply,
                   weir_instant now);

/* POST /json: Envoy's rate limit service. */
void weir_web_rls(struct weir_rls_desk *desk,
                  const struct weir_door_taker *taker, struct weir_text body,
                  struct weir_http_reply *reply, weir_instant now);

/* The body; or NULL, and the reply is a problem. A new reference. */
json_t *weir_web_json(struct weir_text body, struct weir_http_reply *reply);

/* GET /metrics, for Prometheus. */
void weir_web_metrics(const struct weir_door_host *host,
                      struct weir_http_reply *reply);

#endif /* WEIR_WEB_REPLY_H */
