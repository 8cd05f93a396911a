/* SPDX-License-Identifier: MIT
 * door/web.c - requests in, decisions out.
 *
 * A request that isn't one (web, wire/http1.h) ends its connection: where the
 * next one begins can't be known. All else that is wrong is a problem of
 * RFC 9457, and the connection goes on. */

#include "door/web.h"

#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door/page_file.h"
#include "door/web_reply.h"
#include "os/origin.h"
#include "os/talk.h"
#include "wire/http1.h"

#define VALUE_MAX 1024 /* bytes of a header that is looked at */
#define METHOD_MAX 16  /* bytes of a method; a longer one is cut */

struct weir_web {
    const struct weir_door_host *host; /* borrowed, as is the next */
    struct weir_rls_desk *desk;
    const struct weir_web_views *views; /* borrowed; NULL: no page */
    struct weir_talk_server *server;   /* owned, as is the next */
    struct event *second;              /* for streams */
    size_t streams;
    struct weir_origin_own own;
};

/* A connection's own. */
struct visit {
    bool told_to_go_on; /* 100 was said for the request that is coming */
    struct weir_web_permits permits;
    struct weir_web_stream stream; /* if it is one, nothing else is heard */
};

struct call {
    struct weir_web *web;
    struct weir_talk *talk;
    const struct weir_http1_request *request;
    struct weir_web_reply reply;
    bool streams; /* the reply is the first of many */
};

/* ---- Replies ---- */

void weir_web_add_header(struct weir_web_reply *reply, const char *name,
                         const char *format, ...)
{
    char value[VALUE_MAX];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    if (len < 0 || len >= VALUE_MAX || strpbrk(value, "\r\n"))
        return;
    size_t room = sizeof reply->headers - reply->headers_len;
    len = snprintf(reply->headers + reply->headers_len, room, "%s: %s\r\n",
                   name, value);
    if (len > 0 && (size_t)len < room)
        reply->headers_len += (size_t)len;
    reply->headers[reply->headers_len] = '\0';
}

void weir_web_problem(struct weir_web_reply *reply, int status,
                      const char *type, const char *title, const char *detail)
{
    json_decref(reply->body);
    reply->status = status;
    reply->type = "application/problem+json";
    /* A detail that quotes a stranger's bytes may be cut in the middle of a
     * character, and is no JSON text then. */
    const char *reason = weir_http1_reason(status);
    json_t *said = json_string(detail);
    reply->body =
        json_pack("{s:s, s:s, s:i, s:o}", "type", type ? type : "about:blank",
                  "title", type ? title : reason, "status", status, "detail",
                  said ? said : json_string(reason));
}

/* 'len' below 0: it isn't known, and the end of the connection is its end. */
static void write_head(struct weir_talk *talk,
                       const struct weir_web_reply *reply, ptrdiff_t len,
                       bool keep)
{
    char head[WEIR_WEB_HEADERS_SIZE + 512];
    char length[64] = "";
    if (len >= 0)
        snprintf(length, sizeof length, "Content-Length: %td\r\n", len);
    int head_len = snprintf(head, sizeof head,
                            "HTTP/1.1 %d %s\r\n"
                            "Content-Type: %s\r\n"
                            "%s"
                            "Cache-Control: %s\r\n"
                            "X-Content-Type-Options: nosniff\r\n"
                            "%s%s\r\n",
                            reply->status, weir_http1_reason(reply->status),
                            reply->type, length,
                            reply->cache ? reply->cache : "no-store",
                            reply->headers,
                            keep ? "" : "Connection: close\r\n");
    weir_talk_write(talk, head, (size_t)head_len);
}

static void write_reply(struct weir_talk *talk,
                        const struct weir_web_reply *reply, bool keep,
                        bool head_only)
{
    char *dumped = reply->body ? json_dumps(reply->body, WEIR_WEB_JSON) : NULL;
    const char *text = reply->text ? reply->text : dumped;
    bool is_file = reply->bytes.len > 0;
    struct weir_text body =
        is_file ? reply->bytes : weir_text_of(text ? text : "");
    bool newline = body.len > 0 && !is_file;
    write_head(talk, reply, (ptrdiff_t)(body.len + newline), keep);
    if (!head_only) {
        weir_talk_write(talk, body.p, body.len);
        weir_talk_write(talk, "\n", newline);
    }
    free(dumped);
    if (!keep)
        weir_talk_end(talk);
}

static void refuse_bytes(struct weir_talk *talk, int status)
{
    struct weir_web_reply reply = { .headers = "" };
    weir_web_problem(&reply, status, NULL, NULL,
                     status == 411 ? "send a Content-Length: bodies in chunks "
                                     "aren't read here"
                     : status == 413 || status == 414 || status == 431
                         ? "the request is over the bounds of weir-agent(8)"
                         : "this is no request of HTTP/1.1");
    write_reply(talk, &reply, false, false);
    json_decref(reply.body);
}

/* ---- Who asks ---- */

/* The value as a string; NULL: there is no such header. Too long: "". */
static const char *header(const struct call *call, const char *name,
                          char buf[VALUE_MAX])
{
    struct weir_text value;
    if (!weir_http1_header(call->request, name, &value))
        return NULL;
    if (value.len >= VALUE_MAX)
        value.len = 0;
    memcpy(buf, value.p, value.len);
    buf[value.len] = '\0';
    return buf;
}

/* 'forms': a type of content that forms have is taken from a client that is no
 * browser, which would say where the request comes from. */
static bool is_welcome(struct call *call, bool forms)
{
    char method[METHOD_MAX];
    char host[VALUE_MAX];
    char origin[VALUE_MAX];
    char site[VALUE_MAX];
    char type[VALUE_MAX];
    snprintf(method, sizeof method, "%.*s", (int)call->request->method.len,
             call->request->method.p);
    struct weir_origin_request asked = {
        .method = method,
        .host = header(call, "Host", host),
        .origin = header(call, "Origin", origin),
        .sec_fetch_site = header(call, "Sec-Fetch-Site", site),
        .content_type = header(call, "Content-Type", type),
    };
    if (forms && !asked.origin && !asked.sec_fetch_site)
        asked.content_type = "application/json";
    switch (weir_origin_check(&call->web->own, &asked)) {
    case WEIR_ORIGIN_WELCOME:
        return true;
    case WEIR_ORIGIN_FOREIGN:
        weir_web_problem(&call->reply, 403, NULL, NULL,
                         WEIR_ORIGIN_FOREIGN_TEXT);
        return false;
    case WEIR_ORIGIN_SIMPLE:
        weir_web_problem(&call->reply, 415, NULL, NULL,
                         WEIR_ORIGIN_SIMPLE_TEXT);
        return false;
    }
    weir_assert(false);
    return false;
}

static bool is_admitted(struct call *call, enum weir_door_right right,
                        const char *authorization, weir_instant now)
{
    const struct weir_door_host *host = call->web->host;
    struct weir_diag diag = { 0 };
    int error = weir_door_admit(host, call->talk, right,
                                authorization ? authorization : "", &diag, now);
    weir_talk_set_known(call->talk, error == 0);
    if (error == 0)
        return true;
    bool is_stranger = error != WEIR_EDENIED;
    weir_web_problem(&call->reply, is_stranger ? 401 : 403, NULL, NULL,
                     diag.text);
    if (is_stranger)
        weir_web_add_header(&call->reply, "WWW-Authenticate", "Bearer");
    return false;
}

/* ---- What is asked ---- */

static void say_health(struct call *call, weir_instant now)
{
    (void)now;
    call->reply.body = json_pack("{s:b}", "alive", 1);
}

static void say_ready(struct call *call, weir_instant now)
{
    (void)now;
    struct weir_status status;
    weir_status(call->web->host->weir, &status);
    if (status.ready)
        call->reply.body = json_pack("{s:b}", "ready", 1);
    else
        weir_web_problem(&call->reply, 503, NULL, NULL,
                         "no root has told its quotas yet; every name is "
                         "unknown and passes");
}

static void say_status(struct call *call, weir_instant now)
{
    (void)now;
    struct weir_status status;
    weir_status(call->web->host->weir, &status);
    call->reply.body = json_pack(
        "{s:s, s:i, s:i, s:I, s:i, s:i, s:b, s:b, s:I, s:I}", "version",
        call->web->host->version, "roots", (int)status.roots, "roots_up",
        (int)status.roots_up, "epoch", (json_int_t)status.epoch, "slots",
        (int)status.slots, "slots_used", (int)status.slots_used, "ready",
        (int)status.ready, "stale", (int)status.stale, "unknown",
        (json_int_t)status.unknown, "overflowed",
        (json_int_t)status.overflowed);
}

static void say_metrics(struct call *call, weir_instant now)
{
    (void)now;
    weir_web_metrics(call->web->host, &call->reply);
}

/* The old headers are for who asks for them. */
static bool wants_old_headers(struct weir_text target)
{
    static const char asked[] = "?x-ratelimit=1";
    size_t len = sizeof asked - 1;
    return target.len > len &&
           memcmp(target.p + target.len - len, asked, len) == 0;
}

static void take(struct call *call, weir_instant now)
{
    weir_web_take(call->web->host, call->request->body,
                  wants_old_headers(call->request->target), &call->reply, now);
}

static struct weir_web_permits *permits_of(const struct call *call)
{
    struct visit *visit = weir_talk_state(call->talk);
    return &visit->permits;
}

/* Who is at work says nothing meanwhile. */
static void enter(struct call *call, weir_instant now)
{
    weir_web_enter(call->web->host, permits_of(call), call->request->body,
                   &call->reply, now);
    weir_talk_set_quiet(call->talk, permits_of(call)->count > 0);
}

static void leave(struct call *call, weir_instant now)
{
    weir_web_leave(permits_of(call), call->request->body, &call->reply, now);
    weir_talk_set_quiet(call->talk, permits_of(call)->count > 0);
}

static void on_gone(void *context, struct weir_talk *talk)
{
    struct visit *visit = weir_talk_state(talk);
    struct weir_web *web = context;
    weir_web_permits_end(&visit->permits);
    if (!visit->stream.target)
        return;
    weir_web_stream_close(&visit->stream);
    if (--web->streams == 0)
        event_del(web->second);
}

static void ask_rls(struct call *call, weir_instant now)
{
    weir_web_rls(call->web->desk, call->request->body, &call->reply, now);
}

static const struct route {
    const char *path, *method;
    bool is_open; /* without a credential */
    bool forms;   /* as is_welcome() */
    void (*run)(struct call *call, weir_instant now);
} routes[] = {
    { "/v1/take", "POST", false, false, take },
    { "/v1/enter", "POST", false, false, enter },
    { "/v1/leave", "POST", false, false, leave },
    /* Clients of envoyproxy/ratelimit post JSON as curl -d does. */
    { "/json", "POST", false, true, ask_rls },
    { "/v1/status", "GET", false, false, say_status },
    { "/metrics", "GET", false, false, say_metrics },
    { "/healthz", "GET", true, false, say_health },
    { "/readyz", "GET", true, false, say_ready },
};

static bool is_text(struct weir_text text, const char *of)
{
    return weir_text_equal(text, weir_text_of(of));
}

static struct weir_text path_of(struct weir_text target)
{
    const char *query = memchr(target.p, '?', target.len);
    size_t len = query ? (size_t)(query - target.p) : target.len;
    return (struct weir_text){ target.p, len };
}

static const struct route *find_route(struct weir_text path)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(routes); i++)
        if (is_text(path, routes[i].path))
            return &routes[i];
    return NULL;
}

/* ---- The moment, each second ---- */

static bool is_stream(const struct call *call)
{
    return is_text(path_of(call->request->target), WEIR_PAGE_EVENTS);
}

/* Where nobody shows anything, what is shown says nothing of who it is. */
static void write_reader(const struct call *call, const char *shown,
                         char reader[VALUE_MAX])
{
    if (call->web->host->admit && shown[0]) {
        snprintf(reader, VALUE_MAX, "%s", shown);
        return;
    }
    weir_talk_peer(call->talk, reader);
    char *port = strrchr(reader, ':');
    if (port)
        *port = '\0';
}

struct own {
    const char *reader;
    size_t count;
};

static void count_own(void *context, struct weir_talk *talk)
{
    struct own *own = context;
    const struct visit *visit = weir_talk_state(talk);
    own->count +=
        visit->stream.target && strcmp(visit->stream.reader, own->reader) == 0;
}

/* False: the reply says why. */
static bool has_room(struct call *call, const char *reader)
{
    struct weir_web *web = call->web;
    struct own own = { .reader = reader };
    weir_talk_server_each(web->server, count_own, &own);
    if (own.count < WEIR_PAGE_STREAMS_EACH &&
        web->streams < WEIR_PAGE_STREAMS_MAX)
        return true;
    weir_web_problem(&call->reply, 503, NULL, NULL,
                     "as many streams of events are open as an agent keeps, "
                     "8 of one reader and 32 of all: close a page, or ask "
                     "/v1/live");
    return false;
}

/* The request was answered once: from now on it is again and again. */
static void open_stream(struct call *call)
{
    struct weir_web *web = call->web;
    struct visit *visit = weir_talk_state(call->talk);
    char shown[VALUE_MAX];
    char reader[VALUE_MAX];
    const char *authorization = header(call, "Authorization", shown);
    authorization = authorization ? authorization : "";
    write_reader(call, authorization, reader);
    if (!has_room(call, reader))
        return;
    if (!weir_web_stream_open(&visit->stream, call->request->target,
                              authorization, reader)) {
        weir_web_problem(&call->reply, 503, NULL, NULL,
                         weir_strerror(WEIR_ENOMEM));
        return;
    }
    const struct timeval second = { .tv_sec = 1 };
    if (web->streams++ == 0)
        event_add(web->second, &second);
    call->streams = true;
    call->reply.type = "text/event-stream";
    write_head(call->talk, &call->reply, -1, false);
    weir_web_stream_tell(call->talk, &call->reply);
}

static void tell_stream(struct weir_web *web, struct weir_talk *talk,
                        struct weir_web_stream *stream, weir_instant now)
{
    struct call call = { .web = web, .talk = talk,
                         .reply = { .status = 200 } };
    if (!stream->due)
        return;
    stream->due = false;
    if (is_admitted(&call, WEIR_DOOR_READ, stream->shown, now))
        weir_web_look(web->views, weir_text_of(stream->target), &call.reply,
                      now);
    weir_web_stream_tell(talk, &call.reply);
    if (call.reply.status != 200)
        weir_talk_end(talk);
    json_decref(call.reply.body);
}

static void wake_stream(void *context, struct weir_talk *talk)
{
    (void)context;
    struct visit *visit = weir_talk_state(talk);
    if (!visit->stream.target)
        return;
    visit->stream.due = true;
    weir_talk_wake(talk);
}

static void on_second(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_web *web = context;
    weir_talk_server_each(web->server, wake_stream, web);
}

/* ---- Answers ---- */

/* What isn't a route: the page's. */
static void answer_page(struct call *call, bool is_head, weir_instant now)
{
    const struct weir_http1_request *request = call->request;
    bool is_get = is_text(request->method, "GET");
    if ((is_get || is_head) &&
        weir_web_look(call->web->views, request->target, &call->reply, now)) {
        if (is_get && call->reply.status == 200 && is_stream(call))
            open_stream(call);
        return;
    }
    weir_web_problem(&call->reply, 404, NULL, NULL,
                     "there is POST /v1/take, /v1/enter, /v1/leave and "
                     "/json, and GET / (the page), /v1/status, /metrics, "
                     "/healthz and /readyz; quotas are edited at a root");
}

/* A browser that is sent to the page has no credential to show yet, and its
 * files hold nothing of the limiter's. */
static bool answer_file(struct call *call, bool is_head)
{
    const struct weir_http1_request *request = call->request;
    bool reads = is_head || is_text(request->method, "GET");
    const struct weir_page_file *file =
        call->web->views && reads
            ? weir_page_file_find(path_of(request->target))
            : NULL;
    if (file)
        weir_web_file(file, request, &call->reply);
    return file != NULL;
}

static void answer(struct call *call, bool is_head, weir_instant now)
{
    const struct weir_http1_request *request = call->request;
    const struct route *route = find_route(path_of(request->target));
    char shown[VALUE_MAX];
    const char *authorization = header(call, "Authorization", shown);
    enum weir_door_right right = is_head || is_text(request->method, "GET")
                                     ? WEIR_DOOR_READ
                                     : WEIR_DOOR_TAKE;
    if (!is_welcome(call, route && route->forms) ||
        answer_file(call, is_head) ||
        (!(route && route->is_open) &&
         !is_admitted(call, right, authorization, now)))
        return;
    if (!route) {
        answer_page(call, is_head, now);
        return;
    }
    bool fits = is_text(request->method, route->method) ||
                (is_head && strcmp(route->method, "GET") == 0);
    if (fits) {
        route->run(call, now);
        return;
    }
    weir_web_problem(&call->reply, 405, NULL, NULL,
                     "this path wants another method");
    weir_web_add_header(&call->reply, "Allow", "%s%s", route->method,
                        strcmp(route->method, "GET") == 0 ? ", HEAD" : "");
}

static size_t on_bytes(void *context, struct weir_talk *talk, const char *bytes,
                       size_t len, weir_instant now)
{
    struct weir_http1_request request;
    struct visit *visit = weir_talk_state(talk);
    size_t used = 0;
    if (visit->stream.target) {
        tell_stream(context, talk, &visit->stream, now);
        return len;
    }
    int whole = weir_http1_decode(bytes, len, &request, &used);
    if (whole < 0) {
        refuse_bytes(talk, -whole);
        return len;
    }
    if (whole == 0) {
        if (request.expects && !visit->told_to_go_on)
            weir_talk_write(talk, "HTTP/1.1 100 Continue\r\n\r\n", 25);
        visit->told_to_go_on = request.expects;
        return 0;
    }
    visit->told_to_go_on = false;
    struct call call = { .web = context,
                         .talk = talk,
                         .request = &request,
                         .reply = { .status = 200,
                                    .type = "application/json" } };
    bool is_head = is_text(request.method, "HEAD");
    answer(&call, is_head, now);
    /* A stranger holds no connection. */
    bool keep = request.keep && call.reply.status != 401;
    if (!call.streams)
        write_reply(talk, &call.reply, keep, is_head);
    json_decref(call.reply.body);
    free(call.reply.text);
    return used;
}

/* ---- Life ---- */

static int listen_at(struct weir_web *web, const struct weir_place *place,
                     struct weir_diag *diag)
{
    const struct weir_talk_options options = {
        .base = web->host->base,
        .place = *place,
        .tls = web->host->tls,
        .on_short = web->host->on_short,
        .max = weir_door_talks_max(web->host),
        .crowded = WEIR_TEXT("HTTP/1.1 503 Service Unavailable\r\n"
                             "Content-Length: 0\r\n"
                             "Connection: close\r\n\r\n"),
        .silence_max = WEIR_WEB_SILENCE_MAX,
        .stranger_max = web->host->admit ? WEIR_DOOR_STRANGER_MAX : 0,
        .state_size = sizeof(struct visit),
        .context = web,
        .on_bytes = on_bytes,
        .on_gone = on_gone,
    };
    return weir_talk_server_new(&options, &web->server, diag);
}

int weir_web_new(const struct weir_door_host *host,
                 const struct weir_place *place, struct weir_rls_desk *desk,
                 const struct weir_web_views *views, struct weir_web **out,
                 struct weir_diag *diag)
{
    struct weir_web *web = calloc(1, sizeof *web);
    if (!web)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    web->host = host;
    web->desk = desk;
    web->views = views;
    web->own = (struct weir_origin_own){
        .tls = !place->path[0] && host->tls.tls,
        .of_loopback = !place->path[0] && weir_place_is_local(place),
        .public_origin = host->public_origin,
    };
    web->second = event_new(host->base, -1, EV_PERSIST, on_second, web);
    int error = web->second ? listen_at(web, place, diag)
                            : weir_diag_set(diag, WEIR_ENOMEM,
                                            weir_strerror(WEIR_ENOMEM), NULL);
    if (error < 0) {
        weir_web_free(&web);
        return error;
    }
    *out = web;
    return 0;
}

const struct weir_place *weir_web_place(const struct weir_web *web)
{
    return weir_talk_server_place(web->server);
}

void weir_web_recheck(struct weir_web *web)
{
    weir_talk_server_doubt(web->server);
}

void weir_web_stop(struct weir_web *web)
{
    weir_talk_server_stop(web->server);
}

void weir_web_free(struct weir_web **web)
{
    if (!*web)
        return;
    weir_talk_server_free(&(*web)->server);
    if ((*web)->second)
        event_free((*web)->second);
    free(*web);
    *web = NULL;
}
