/* SPDX-License-Identifier: MIT
 * front/http_listener.c - HTTP/1.1 connections and their states.
 *
 * Theory of operation. A connection (io/conn.h) is in one of four states:
 *
 *     HEAD --(allowed, its body is there)------> answered --> HEAD
 *      |  '--(allowed, a body is to come)--> BODY --> answered --> HEAD
 *      |                                      |
 *      |<---- the ticket is answered ---- LATE (on_request has deferred it)
 *      '--> STREAM: an event each second, to its end
 *
 * Roles before bodies. A head is at most 16 KiB, and the connection's buffer
 * keeps its first part. Then on_head decides; no byte of a body is kept before
 * that, or after a refusal: the answer ends the connection, unless the whole
 * body came with its head and can be skipped. Later bytes of the peer are read
 * up to a bound and dropped (io/conn.h: WEIR_CONN_LINGER_MAX), so that the peer
 * receives the answer.
 *
 * Bodies. A small body that came with its head is used in that buffer. For any
 * other body the head is copied and the body appended to it, in memory that
 * doubles as bytes come, up to the length that the head announced; bodies_max
 * bounds the sum over all connections. When the body is complete, the head is
 * decoded and checked again: a credential that was revoked meanwhile is no
 * longer valid.
 *
 * Late answers. While an answer is owed the connection is busy and isn't read:
 * the next requests wait in the peer's socket. Ticket and connection point to
 * each other until one of them is freed.
 *
 * Streams. A stream of server-sent events is a GET that is answered again each
 * second: its head is kept, and passes on_head and on_request each time, so
 * that revoking the credential ends it. Each answer becomes an event. If the
 * peer doesn't read, the connection stalls, gets no events meanwhile, and is
 * ended as after any answer that isn't taken; a stream thus holds at most one
 * event. One reader, identified by its credential or else its address, may have
 * only a part of all streams: a page left open in many tabs doesn't block other
 * readers. The limit is checked after the first answer is made, so a peer
 * without a role learns nothing about it. */

#include "front/http_listener.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/json_text.h"
#include "io/origin.h"

#define METHOD_MAX 16 /* bytes of a method; a longer one is cut */
#define FULL_TEXT "no memory is left here for bodies of requests: try again"

enum point { HEAD, BODY, LATE, STREAM };

/* A head, and the part of its body that has come. */
struct kept {
    char *bytes; /* owned; NULL: nothing */
    size_t head, len, room;
    size_t whole; /* bytes when the body is complete */
};

/* State of a connection; the handler's state follows it. */
struct conn {
    enum point point;
    bool due;                        /* a stream's next event is due */
    struct kept kept;                /* in BODY and STREAM */
    char *reader;                    /* owned; the reader's identity, in
                                      * STREAM */
    struct weir_http_ticket *ticket; /* in LATE; borrowed */
};

struct weir_http_ticket {
    struct weir_conn *conn;      /* NULL: the connection is freed */
    struct weir_http_call *call; /* NULL: on_request has returned */
    char *bytes;                 /* owned; NULL and ready: no memory */
    size_t len;
    bool ready, keep, is_head;
};

struct weir_http_listener {
    struct weir_http_options options;
    struct weir_origin_own own;
    struct weir_conn_server *server; /* owned */
    struct event *second;            /* owned; exists while there are streams */
    size_t streams;
    size_t bodies; /* bytes of memory of incomplete bodies */
};

static size_t conn_size(void)
{
    return (sizeof(struct conn) + 15) / 16 * 16;
}

static struct conn *conn_of(const struct weir_http_call *call)
{
    return weir_conn_state(call->conn);
}

static struct weir_http_call make_call(struct weir_http_listener *listener,
                                       struct weir_conn *link,
                                       const struct weir_http1_request *request)
{
    bool is_head = weir_text_equal(request->method, WEIR_TEXT("HEAD"));
    /* What an earlier request left in JSON that no answer had. */
    (void)weir_json_failed();
    return (struct weir_http_call){
        .conn = link,
        .request = request,
        .method = is_head ? WEIR_TEXT("GET") : request->method,
        .state = (char *)weir_conn_state(link) + conn_size(),
        .reply = { .status = 200, .type = "application/json" },
        .listener = listener,
        .is_head = is_head,
    };
}

static void make_problem(struct weir_http_call *call, int status,
                         const char *detail)
{
    const struct weir_http_options *options = &call->listener->options;
    options->problem(options->context, call, status, detail);
}

/* ---- Functions for handlers ---- */

const char *weir_http_header(const struct weir_http_call *call,
                             const char *name, char buf[WEIR_HTTP_VALUE_MAX])
{
    struct weir_text value;
    if (!weir_http1_header(call->request, name, &value))
        return NULL;
    if (value.len >= WEIR_HTTP_VALUE_MAX)
        value.len = 0;
    memcpy(buf, value.p, value.len);
    buf[value.len] = '\0';
    return buf;
}

bool weir_http_file(struct weir_http_call *call)
{
    struct weir_text path = weir_uri_split(call->request->target).path;
    if (!weir_text_equal(call->method, WEIR_TEXT("GET")))
        return false;
    const struct weir_page_file *file = weir_page_files;
    while (file->path && !weir_text_equal(path, weir_text_of(file->path)))
        file++;
    if (file->path)
        weir_http_reply_file(&call->reply, file, call->request);
    return file->path != NULL;
}

void weir_http_peer_host(const struct weir_http_call *call,
                         char buf[WEIR_HTTP_VALUE_MAX])
{
    struct weir_text host = weir_address_shown_host(weir_conn_peer(call->conn));
    snprintf(buf, WEIR_HTTP_VALUE_MAX, "%.*s", (int)host.len, host.p);
}

/* ---- Kept heads and bodies ---- */

static bool keep_head(struct kept *kept, struct weir_text head, size_t room)
{
    weir_assert(!kept->bytes && room >= head.len);
    char *bytes = malloc(room);
    if (!bytes)
        return false;
    memcpy(bytes, head.p, head.len);
    *kept = (struct kept){
        .bytes = bytes, .head = head.len, .len = head.len, .room = room
    };
    return true;
}

static void drop_kept(struct weir_http_listener *listener, struct conn *conn)
{
    if (conn->point == BODY) {
        weir_assert(listener->bodies >= conn->kept.room);
        listener->bodies -= conn->kept.room;
    }
    free(conn->kept.bytes);
    conn->kept = (struct kept){ .bytes = NULL };
}

/* Makes room for 'more' bytes. False: no room. */
static bool grow_kept(struct weir_http_listener *listener, struct kept *kept,
                      size_t more)
{
    size_t room = kept->room;
    weir_assert(kept->len + more <= kept->whole);
    if (kept->len + more <= room)
        return true;
    room = 2 * room > kept->len + more ? 2 * room : kept->len + more;
    room = room < kept->whole ? room : kept->whole;
    size_t added = room - kept->room;
    if (listener->bodies + added > listener->options.bodies_max)
        return false;
    char *bytes = realloc(kept->bytes, room);
    if (!bytes)
        return false;
    kept->bytes = bytes;
    kept->room = room;
    listener->bodies += added;
    return true;
}

/* Decodes the kept request; its texts point into 'kept'. */
static void decode_kept(const struct kept *kept, struct weir_http1_request *out)
{
    size_t used;
    int whole = weir_http1_head(kept->bytes, kept->head, out, &used);
    weir_assert(whole == 1 && used == kept->head);
}

/* ---- Streams ---- */

/* Writes printed JSON as one line: only blanks follow its line ends, and no
 * text in it contains one. */
static void write_json_line(struct weir_conn *link, struct weir_text text)
{
    const char *end = text.p + text.len;
    for (const char *at = text.p; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((stop ? stop : end) - at);
        weir_conn_write(link, at, len);
        at += len;
        while (at < end && (*at == '\n' || *at == ' '))
            at++;
    }
}

/* Any status but 200 is the stream's last event. */
static void write_event(struct weir_http_call *call)
{
    struct weir_conn *link = call->conn;
    bool is_last = call->reply.status != 200;
    if (is_last)
        weir_conn_write(link, "event: problem\n", 15);
    weir_conn_write(link, "data: ", 6);
    write_json_line(link, weir_http_reply_body(&call->reply));
    weir_conn_write(link, "\n\n", 2);
    if (is_last)
        weir_conn_end(link);
}

struct own {
    const char *reader;
    size_t count;
};

static void count_own(void *context, struct weir_conn *link)
{
    struct own *own = context;
    const struct conn *conn = weir_conn_state(link);
    own->count += conn->reader && strcmp(conn->reader, own->reader) == 0;
}

static bool has_stream_room(const struct weir_http_call *call)
{
    const struct weir_http_listener *listener = call->listener;
    struct own own = { .reader = call->reader };
    weir_conn_server_each(listener->server, count_own, &own);
    return own.count < WEIR_PAGE_STREAMS_EACH &&
           listener->streams < WEIR_PAGE_STREAMS_MAX;
}

static void refuse_stream(struct weir_http_call *call, bool is_full)
{
    char detail[160];
    snprintf(detail, sizeof detail,
             "no more streams of events can be opened, at most %d per "
             "reader and %d in all: close a page, or request /v1/live",
             WEIR_PAGE_STREAMS_EACH, WEIR_PAGE_STREAMS_MAX);
    weir_http_reply_fini(&call->reply);
    make_problem(call, 503, is_full ? detail : weir_strerror(WEIR_ENOMEM));
}

/* The answer becomes the first event; false: it is a problem, and no stream
 * begins. */
static bool begin_event_stream(struct weir_http_call *call)
{
    struct weir_http_listener *listener = call->listener;
    struct conn *conn = conn_of(call);
    bool is_full = !has_stream_room(call);
    if (!is_full)
        conn->reader = strdup(call->reader);
    const struct timeval second = { .tv_sec = 1 };
    bool is_timed = listener->streams > 0 ||
                    (conn->reader && event_add(listener->second, &second) == 0);
    if (!conn->reader || !is_timed ||
        !keep_head(&conn->kept, call->head, call->head.len)) {
        free(conn->reader);
        conn->reader = NULL;
        if (listener->streams == 0)
            event_del(listener->second);
        refuse_stream(call, is_full);
        return false;
    }
    weir_assert(conn->point == HEAD);
    listener->streams++;
    conn->point = STREAM;
    char head[WEIR_HTTP_HEAD_SIZE];
    call->reply.type = "text/event-stream";
    weir_conn_write(call->conn, head,
                    weir_http_reply_head(&call->reply, -1, false, head));
    write_event(call);
    return true;
}

static void wake_stream(void *context, struct weir_conn *link)
{
    (void)context;
    struct conn *conn = weir_conn_state(link);
    if (conn->point != STREAM)
        return;
    conn->due = true;
    weir_conn_wake(link);
}

static void on_second(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_http_listener *listener = context;
    weir_conn_server_each(listener->server, wake_stream, NULL);
}

/* ---- Answers ---- */

/* The body's length for its head: 304 has none (RFC 9110, 8.6). */
static ptrdiff_t body_length(const struct weir_http_reply *reply,
                             struct weir_text body, bool newline)
{
    return reply->status == 304 ? -1 : (ptrdiff_t)(body.len + newline);
}

static bool needs_newline(const struct weir_http_reply *reply,
                          struct weir_text body)
{
    return !reply->as_it_is && body.len > 0 && body.p[body.len - 1] != '\n';
}

static bool keeps_connection(const struct weir_http_call *call)
{
    return call->request->keep && !call->ends && !call->unread;
}

static void write_whole(struct weir_http_call *call)
{
    struct weir_http_reply *reply = &call->reply;
    char head[WEIR_HTTP_HEAD_SIZE];
    if (reply->status == 401)
        weir_http_add_header(reply, "WWW-Authenticate", "Bearer");
    /* A 401 ends the connection. */
    bool keep = keeps_connection(call) && reply->status != 401;
    struct weir_text body = weir_http_reply_body(reply);
    bool newline = needs_newline(reply, body);
    ptrdiff_t len = body_length(reply, body, newline);
    weir_conn_write(call->conn, head,
                    weir_http_reply_head(reply, len, keep, head));
    if (!call->is_head) {
        weir_conn_write(call->conn, body.p, body.len);
        weir_conn_write(call->conn, "\n", newline);
    }
    if (!keep)
        weir_conn_end(call->conn);
}

void weir_http_answer(struct weir_http_call *call)
{
    weir_assert(!call->answered);
    call->answered = true;
    (void)weir_http_reply_body(&call->reply); /* may change the status */
    if (conn_of(call)->point == STREAM)
        write_event(call);
    else if (!call->reader[0] || call->reply.status != 200 ||
             !begin_event_stream(call))
        write_whole(call);
    weir_http_reply_fini(&call->reply);
}

/* ---- Late answers ---- */

struct weir_http_ticket *weir_http_defer(struct weir_http_call *call)
{
    struct weir_http_ticket *ticket = calloc(1, sizeof *ticket);
    weir_assert(!call->ticket && !call->answered);
    if (!ticket)
        return NULL;
    *ticket = (struct weir_http_ticket){ .conn = call->conn,
                                         .call = call,
                                         .keep = keeps_connection(call),
                                         .is_head = call->is_head };
    call->ticket = ticket;
    return ticket;
}

/* Copies the answer until the connection's next turn. */
static void store_answer(struct weir_http_ticket *ticket,
                         struct weir_http_reply *reply)
{
    char head[WEIR_HTTP_HEAD_SIZE];
    struct weir_text body = weir_http_reply_body(reply);
    bool newline = needs_newline(reply, body);
    ptrdiff_t len = body_length(reply, body, newline);
    size_t head_len = weir_http_reply_head(reply, len, ticket->keep, head);
    size_t body_len = ticket->is_head ? 0 : body.len;
    ticket->ready = true;
    ticket->bytes = malloc(head_len + body_len + 1);
    if (!ticket->bytes)
        return;
    memcpy(ticket->bytes, head, head_len);
    memcpy(ticket->bytes + head_len, body.p, body_len);
    ticket->bytes[head_len + body_len] = '\n';
    ticket->len = head_len + body_len + (newline && !ticket->is_head);
}

void weir_http_ticket_answer(struct weir_http_ticket *ticket,
                             struct weir_http_reply *reply)
{
    struct weir_http_call *call = ticket->call;
    weir_assert(!ticket->ready);
    if (call) {
        call->ticket = NULL;
        call->reply = *reply;
        *reply = (struct weir_http_reply){ .status = 0 };
        weir_http_answer(call);
        free(ticket);
    } else if (ticket->conn) {
        store_answer(ticket, reply);
        weir_conn_wake(ticket->conn);
    } else {
        free(ticket);
    }
    weir_http_reply_fini(reply);
}

static void write_late(struct weir_conn *link, struct conn *conn)
{
    struct weir_http_ticket *ticket = conn->ticket;
    weir_assert(conn->point == LATE && ticket);
    if (!ticket->ready)
        return;
    if (ticket->bytes)
        weir_conn_write(link, ticket->bytes, ticket->len);
    if (!ticket->bytes || !ticket->keep)
        weir_conn_end(link);
    conn->ticket = NULL;
    conn->point = HEAD;
    weir_conn_set_busy(link, false);
    free(ticket->bytes);
    free(ticket);
}

/* ---- Requests ---- */

static bool is_known_method(struct weir_text method)
{
    static const char *const methods[] = { "GET", "PUT", "PATCH", "POST",
                                           "DELETE" };
    for (size_t i = 0; i < WEIR_COUNT_OF(methods); i++)
        if (weir_text_equal(method, weir_text_of(methods[i])))
            return true;
    return false;
}

/* Whether the request's origin is allowed. A client other than a browser sends
 * no origin: its form types are accepted where the handler accepts them. */
static bool is_welcome(struct weir_http_call *call)
{
    const struct weir_http_listener *listener = call->listener;
    const struct weir_http_options *options = &listener->options;
    char method[METHOD_MAX];
    char host[WEIR_HTTP_VALUE_MAX];
    char origin[WEIR_HTTP_VALUE_MAX];
    char site[WEIR_HTTP_VALUE_MAX];
    char type[WEIR_HTTP_VALUE_MAX];
    snprintf(method, sizeof method, "%.*s", (int)call->method.len,
             call->method.p);
    struct weir_origin_request asked = {
        .method = method,
        .host = weir_http_header(call, "Host", host),
        .origin = weir_http_header(call, "Origin", origin),
        .sec_fetch_site = weir_http_header(call, "Sec-Fetch-Site", site),
        .content_type = weir_http_header(call, "Content-Type", type),
    };
    if (!asked.origin && !asked.sec_fetch_site && options->takes_forms &&
        options->takes_forms(options->context,
                             weir_uri_split(call->request->target).path))
        asked.content_type = "application/json";
    switch (weir_origin_check(&listener->own, &asked)) {
    case WEIR_ORIGIN_WELCOME:
        return true;
    case WEIR_ORIGIN_FOREIGN:
        make_problem(call, 403, WEIR_ORIGIN_FOREIGN_TEXT);
        return false;
    case WEIR_ORIGIN_SIMPLE:
        make_problem(call, 415, WEIR_ORIGIN_SIMPLE_TEXT);
        return false;
    }
    weir_assert(false);
    return false;
}

/* All checks that need only the head. */
static bool is_allowed(struct weir_http_call *call, weir_instant now)
{
    const struct weir_http_options *options = &call->listener->options;
    if (!is_known_method(call->method)) {
        make_problem(call, 501,
                     "the methods are GET, HEAD, PUT, PATCH, POST and DELETE");
        return false;
    }
    return is_welcome(call) && options->on_head(options->context, call, now);
}

/* Writes the answer that on_head or on_request has set, or waits for a later
 * one. */
static void finish_turn(struct weir_http_call *call)
{
    struct conn *conn = conn_of(call);
    if (!call->ticket) {
        if (!call->answered)
            weir_http_answer(call);
        return;
    }
    weir_assert(conn->point == HEAD); /* a stream is answered at once */
    call->ticket->call = NULL;
    conn->ticket = call->ticket;
    conn->point = LATE;
    weir_conn_set_busy(call->conn, true);
}

static void run_request(struct weir_http_call *call, weir_instant now)
{
    const struct weir_http_options *options = &call->listener->options;
    options->on_request(options->context, call, now);
    finish_turn(call);
}

/* Answers an invalid or too large request. The connection ends, since the end
 * of the request is unknown. */
static void refuse_invalid(struct weir_http_listener *listener,
                           struct weir_conn *link, int status)
{
    const struct weir_http1_request none = { .keep = false };
    struct weir_http_call call = make_call(listener, link, &none);
    make_problem(&call, status,
                 status == 411   ? "send a Content-Length: bodies in chunks "
                                   "aren't read here"
                 : status == 413 ? "a body has 1 GiB at most, and often less"
                 : status == 414 ? "a target has 12 KiB at most"
                 : status == 431 ? "a head has 16 KiB and 64 headers at most"
                 : status == 501 ? "no transfer coding is supported here"
                                 : "this is no request of HTTP/1.1");
    weir_http_answer(&call);
}

/* Keeps the head and waits for the body. */
static void await_body(struct weir_http_call *call)
{
    struct conn *conn = conn_of(call);
    struct weir_http_listener *listener = call->listener;
    if (listener->bodies + call->head.len > listener->options.bodies_max ||
        !keep_head(&conn->kept, call->head, call->head.len)) {
        make_problem(call, 503, FULL_TEXT);
        weir_http_answer(call);
        return;
    }
    weir_assert(conn->point == HEAD);
    conn->kept.whole = call->head.len + call->request->content_length;
    conn->point = BODY;
    weir_conn_set_awaits(call->conn, true);
    listener->bodies += conn->kept.room;
    if (call->request->expects)
        weir_conn_write(call->conn, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

static size_t read_request_head(struct weir_http_listener *listener,
                                struct weir_conn *link, struct weir_text bytes,
                                weir_instant now)
{
    struct weir_http1_request request;
    size_t used = 0;
    int whole = weir_http1_head(bytes.p, bytes.len, &request, &used);
    if (whole < 0)
        refuse_invalid(listener, link, -whole);
    if (whole <= 0)
        return whole < 0 ? bytes.len : 0;
    struct weir_http_call call = make_call(listener, link, &request);
    bool is_whole = bytes.len - used >= request.content_length;
    call.head = (struct weir_text){ bytes.p, used };
    call.unread = !is_whole;
    if (!is_allowed(&call, now)) {
        finish_turn(&call);
        return is_whole ? used + request.content_length : bytes.len;
    }
    if (!is_whole) {
        await_body(&call);
        return used;
    }
    call.body = (struct weir_text){ bytes.p + used, request.content_length };
    run_request(&call, now);
    return used + request.content_length;
}

static void run_kept(struct weir_http_listener *listener,
                     struct weir_conn *link, weir_instant now)
{
    struct conn *conn = weir_conn_state(link);
    struct weir_http1_request request;
    const struct kept kept = conn->kept;
    weir_assert(conn->point == BODY && listener->bodies >= kept.room);
    decode_kept(&kept, &request);
    struct weir_http_call call = make_call(listener, link, &request);
    call.head = (struct weir_text){ kept.bytes, kept.head };
    call.body =
        (struct weir_text){ kept.bytes + kept.head, kept.whole - kept.head };
    listener->bodies -= kept.room;
    conn->kept = (struct kept){ .bytes = NULL };
    conn->point = HEAD;
    weir_conn_set_awaits(link, false);
    if (is_allowed(&call, now))
        run_request(&call, now);
    else
        finish_turn(&call);
    free(kept.bytes);
}

static size_t read_request_body(struct weir_http_listener *listener,
                                struct weir_conn *link, struct weir_text bytes,
                                weir_instant now)
{
    struct conn *conn = weir_conn_state(link);
    struct kept *kept = &conn->kept;
    weir_assert(conn->point == BODY && kept->len < kept->whole);
    size_t missing = kept->whole - kept->len;
    size_t len = bytes.len < missing ? bytes.len : missing;
    if (!grow_kept(listener, kept, len)) {
        struct weir_http1_request request;
        decode_kept(kept, &request);
        struct weir_http_call call = make_call(listener, link, &request);
        call.unread = true;
        make_problem(&call, 503, FULL_TEXT);
        drop_kept(listener, conn);
        conn->point = HEAD;
        weir_conn_set_awaits(link, false);
        weir_http_answer(&call);
        return bytes.len;
    }
    memcpy(kept->bytes + kept->len, bytes.p, len);
    kept->len += len;
    if (kept->len == kept->whole)
        run_kept(listener, link, now);
    return len;
}

static void answer_stream(struct weir_http_listener *listener,
                          struct weir_conn *link, struct conn *conn,
                          weir_instant now)
{
    struct weir_http1_request request;
    if (!conn->due)
        return;
    conn->due = false;
    decode_kept(&conn->kept, &request);
    struct weir_http_call call = make_call(listener, link, &request);
    if (is_allowed(&call, now))
        run_request(&call, now);
    else
        finish_turn(&call);
}

static size_t on_request_bytes(void *context, struct weir_conn *link,
                               const char *bytes, size_t len, weir_instant now)
{
    struct weir_http_listener *listener = context;
    struct conn *conn = weir_conn_state(link);
    const struct weir_text text = { bytes, len };
    switch (conn->point) {
    case HEAD:
        return len > 0 ? read_request_head(listener, link, text, now) : 0;
    case BODY:
        return read_request_body(listener, link, text, now);
    case LATE:
        write_late(link, conn);
        return 0;
    case STREAM:
        /* A stream's client sends nothing more; if it does, its bytes aren't
         * read. */
        if (len > 0)
            weir_conn_set_busy(link, true);
        answer_stream(listener, link, conn, now);
        return len;
    }
    weir_assert(false);
    return len;
}

/* ---- Life ---- */

static void on_conn_gone(void *context, struct weir_conn *link)
{
    struct weir_http_listener *listener = context;
    struct conn *conn = weir_conn_state(link);
    if (listener->options.on_gone)
        listener->options.on_gone(listener->options.context,
                                  (char *)conn + conn_size());
    if (conn->ticket) {
        bool ready = conn->ticket->ready;
        conn->ticket->conn = NULL;
        if (ready) {
            free(conn->ticket->bytes);
            free(conn->ticket);
        }
    }
    weir_assert(conn->point != STREAM || listener->streams > 0);
    if (conn->point == STREAM && --listener->streams == 0)
        event_del(listener->second);
    free(conn->reader);
    drop_kept(listener, conn);
}

static void on_unknown_peer(void *context, const struct weir_conn *link,
                            weir_instant now)
{
    const struct weir_http_listener *listener = context;
    if (listener->options.on_unknown)
        listener->options.on_unknown(listener->options.context, link, now);
}

static int listen_at(struct weir_http_listener *listener,
                     struct weir_diag *diag)
{
    struct weir_conn_options conns = listener->options.conns;
    conns.crowded = WEIR_TEXT(
        "HTTP/1.1 503 Service Unavailable\r\n"
        "Content-Type: application/problem+json\r\n"
        "Content-Length: 120\r\n"
        "Connection: close\r\n\r\n"
        "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\","
        "\"status\":503,\"detail\":\"as many connections stand as are "
        "kept here\"}\n");
    conns.state_size = conn_size() + listener->options.state_size;
    conns.context = listener;
    conns.on_bytes = on_request_bytes;
    conns.on_unknown = on_unknown_peer;
    conns.on_gone = on_conn_gone;
    return weir_conn_server_new(&conns, &listener->server, diag);
}

int weir_http_listener_new(const struct weir_http_options *options,
                           struct weir_http_listener **out,
                           struct weir_diag *diag)
{
    weir_assert(options->on_head && options->on_request && options->problem);
    weir_assert(options->bodies_max > 0);
    struct weir_http_listener *listener = calloc(1, sizeof *listener);
    if (!listener)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    bool is_path = options->conns.place.path[0] != '\0';
    bool has_tls = !is_path && options->conns.tls.tls;
    listener->options = *options;
    listener->own = (struct weir_origin_own){
        .tls = has_tls,
        .of_loopback = !is_path && !has_tls &&
                       weir_listen_address_is_local(&options->conns.place),
        .public_origin = options->public_origin,
    };
    listener->second =
        event_new(options->conns.base, -1, EV_PERSIST, on_second, listener);
    int error = listener->second ? listen_at(listener, diag)
                                 : weir_diag_put(diag, WEIR_ENOMEM, NULL);
    if (error < 0) {
        weir_http_listener_free(&listener);
        return error;
    }
    *out = listener;
    return 0;
}

const struct weir_listen_address *weir_http_listener_address(
    const struct weir_http_listener *listener)
{
    return weir_conn_server_address(listener->server);
}

static void set_unknown(void *context, struct weir_conn *link)
{
    (void)context;
    weir_conn_set_known(link, false);
}

void weir_http_listener_recheck(struct weir_http_listener *listener)
{
    weir_conn_server_each(listener->server, set_unknown, NULL);
}

void weir_http_listener_doubt(struct weir_http_listener *listener)
{
    weir_conn_server_doubt(listener->server);
}

void weir_http_listener_stop(struct weir_http_listener *listener)
{
    weir_conn_server_stop(listener->server);
}

void weir_http_listener_free(struct weir_http_listener **listener)
{
    struct weir_http_listener *self = *listener;
    if (!self)
        return;
    *listener = NULL;
    weir_conn_server_free(&self->server);
    weir_assert(self->bodies == 0 && self->streams == 0);
    if (self->second)
        event_free(self->second);
    free(self);
}
