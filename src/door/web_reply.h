/* SPDX-License-Identifier: MIT
 * door/web_reply.h - answers of the web door; for web*.c only. */

#ifndef WEIR_WEB_REPLY_H
#define WEIR_WEB_REPLY_H

#include <jansson.h>

#include "door/web.h"

#define WEIR_WEB_HEADERS_SIZE 4096 /* bytes of headers of a reply's own */
/* How a body is written; seconds since the machine's start to a microsecond. */
#define WEIR_WEB_JSON (JSON_COMPACT | JSON_REAL_PRECISION(12))

struct weir_web_reply {
    int status;
    json_t *body;                        /* owned; NULL: none */
    char *text;                          /* malloc'ed, owned; in its place */
    struct weir_text bytes;              /* static; in its place, as it is */
    const char *cache;                   /* Cache-Control; static; NULL:
                                          * no-store */
    const char *type;                    /* content type; static */
    char headers[WEIR_WEB_HEADERS_SIZE]; /* whole lines with CRLF; "": none */
    size_t headers_len;
};

/* Adds "name: …". What has no room, or a line end in it, is left out. */
void weir_web_add_header(struct weir_web_reply *reply, const char *name,
                         const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A problem of RFC 9457: {type, title, status, detail}. 'type' NULL: of no
 * more meaning than the status ("about:blank"), titled as that is. */
void weir_web_problem(struct weir_web_reply *reply, int status,
                      const char *type, const char *title, const char *detail);

/* A call that decides. */
struct weir_web_take {
    const struct weir_door_host *host;
    struct weir_web_reply *reply;
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

/* ---- Permits (web_permit.c) ---- */

/* What a connection holds; all zero at first. */
struct weir_web_permits {
    struct weir_web_held *held; /* owned; NULL: none ever */
    size_t room, count;
    uint64_t last; /* the last number that was given */
};
#define WEIR_WEB_PERMITS_MAX 1024 /* of one connection */

/* POST /v1/enter and /v1/leave. */
void weir_web_enter(const struct weir_door_host *host,
                    struct weir_web_permits *permits, struct weir_text body,
                    struct weir_web_reply *reply, weir_instant now);
void weir_web_leave(struct weir_web_permits *permits, struct weir_text body,
                    struct weir_web_reply *reply, weir_instant now);
/* The connection has gone: all are given back. */
void weir_web_permits_end(struct weir_web_permits *permits);

/* POST /v1/take: decides and answers. 'body' is what came. 'old_headers':
 * X-RateLimit-… too. */
void weir_web_take(const struct weir_door_host *host, struct weir_text body,
                   bool old_headers, struct weir_web_reply *reply,
                   weir_instant now);

/* POST /json: Envoy's rate limit service. */
void weir_web_rls(struct weir_rls_desk *desk, struct weir_text body,
                  struct weir_web_reply *reply, weir_instant now);

/* The body; or NULL, and the reply is a problem. A new reference. */
json_t *weir_web_json(struct weir_text body, struct weir_web_reply *reply);

/* ---- The page (web_page.c) ---- */

struct weir_http1_request;
struct weir_page_file;
struct weir_talk;

/* A file of the page. */
void weir_web_file(const struct weir_page_file *file,
                   const struct weir_http1_request *request,
                   struct weir_web_reply *reply);

/* GET of a path that the page asks (weir_web_views); false: it is none. */
bool weir_web_look(const struct weir_web_views *views, struct weir_text target,
                   struct weir_web_reply *reply, weir_instant now);

/* A connection that is told of the moment each second; all zero: it isn't. */
struct weir_web_stream {
    char *target; /* owned; NULL: it is none */
    char *shown;  /* the header Authorization, which is looked at anew for each
                   * event; owned */
    char *reader; /* whose it is: by what it showed, or where it comes from;
                   * owned */
    bool due;
};
/* False: no memory. */
bool weir_web_stream_open(struct weir_web_stream *stream,
                          struct weir_text target, const char *shown,
                          const char *reader);
void weir_web_stream_close(struct weir_web_stream *stream);
/* The reply as an event: written to the talk. */
void weir_web_stream_tell(struct weir_talk *talk,
                          const struct weir_web_reply *reply);

/* GET /metrics, for Prometheus. */
void weir_web_metrics(const struct weir_door_host *host,
                      struct weir_web_reply *reply);

#endif /* WEIR_WEB_REPLY_H */
