/* SPDX-License-Identifier: MIT
 * server/http_streams.c - streams that know nothing of what they carry.
 *
 * A stream is an ordinary request that the door answers again and again: its
 * credentials are looked at anew each time, so that who is no longer let in
 * hears no more, and what it is told is what a single answer says, less the
 * line ends (which would end an event's data).
 *
 *     GET /v1/events?watch=site         data: {"at": 817.3, …}
 *                                       (a blank line)
 *                                       data: {"at": 818.3, …}
 *
 * Who doesn't read gets no more until he has, and is dropped if he doesn't:
 * so a stream holds WEIR_HTTP_STREAM_BEHIND bytes and one event at most.
 *
 * How many there may be is looked at when the first answer is there, so that
 * who isn't let in hears that and nothing else; one reader, by his credential
 * or else by his address, has a part of them, so that no page left open in many
 * tabs, and no script, keeps others from looking.
 *
 * A stream is the last thing on its connection, or that would stand idle for
 * as long as a stream may be silent.
 *
 * One timer for all. It stands while there is none. */

#include "server/http_streams.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door/page_file.h"

/* evhttp ends a connection that is silent; here it is the client's part to
 * listen. */
#define SILENCE_MAX (365 * 86400) /* seconds */

struct stream {
    struct stream *next, **self;
    struct weir_http_streams *streams;
    struct evhttp_request *request; /* evhttp's; NULL: it has ended */
    bool begun;                     /* the first event was sent */
    char reader[WEIR_HTTP_READER_MAX]; /* who; "": not asked yet */
    unsigned behind;                /* events left out in a row */
};

struct weir_http_streams {
    struct weir_http_streams_options options;
    struct event *timer; /* owned */
    struct stream *first;
    size_t count;
};

/* ---- Life of one ---- */

static void stream_free(struct stream *stream)
{
    *stream->self = stream->next;
    if (stream->next)
        stream->next->self = stream->self;
    struct weir_http_streams *all = stream->streams;
    all->count--;
    if (all->count == 0)
        event_del(all->timer);
    free(stream);
}

static void on_gone(struct evhttp_connection *connection, void *context)
{
    (void)connection;
    struct stream *stream = context;
    /* A client that goes before the end of its answer leaves the request to
     * us, without a connection; one that we drop takes it along. */
    if (!evhttp_request_get_connection(stream->request))
        evhttp_request_free(stream->request);
    stream_free(stream);
}

static struct stream *stream_new(struct weir_http_streams *all,
                                 struct evhttp_request *request)
{
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    *stream = (struct stream){ .next = all->first,
                               .self = &all->first,
                               .streams = all,
                               .request = request };
    if (all->first)
        all->first->self = &stream->next;
    all->first = stream;
    all->count++;
    evhttp_connection_set_closecb(evhttp_request_get_connection(request),
                                  on_gone, stream);
    return stream;
}

/* ---- Events ---- */

static void begin(struct stream *stream)
{
    struct evkeyvalq *headers =
        evhttp_request_get_output_headers(stream->request);
    struct evhttp_connection *connection =
        evhttp_request_get_connection(stream->request);
    evhttp_add_header(headers, "Content-Type", "text/event-stream");
    evhttp_add_header(headers, "Cache-Control", "no-store");
    evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
    evhttp_add_header(headers, "Connection", "close");
    evhttp_connection_set_timeout(connection, SILENCE_MAX);
    evhttp_send_reply_start(stream->request, HTTP_OK, NULL);
    stream->begun = true;
}

/* JSON that was printed for people: its line ends are followed by blanks, and
 * no text in it holds one. */
static void add_line(struct evbuffer *out, const char *text, size_t len)
{
    const char *end = text + len;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t part = stop ? (size_t)(stop - text) : (size_t)(end - text);
        evbuffer_add(out, text, part);
        text += part;
        while (text < end && (*text == '\n' || *text == ' '))
            text++;
    }
}

static void send_event(struct stream *stream, const char *name,
                       const struct weir_admin_answer *answer)
{
    struct evbuffer *out = evbuffer_new();
    if (!out)
        return; /* the next may find memory */
    evbuffer_add_printf(out, "%sdata: ", name);
    add_line(out, answer->body, answer->len);
    evbuffer_add(out, "\n\n", 2);
    evhttp_send_reply_chunk(stream->request, out);
    evbuffer_free(out);
}

/* The request is let go: whatever evhttp still does with the connection is
 * none of ours. */
static struct evhttp_request *let_go(struct stream *stream)
{
    struct evhttp_request *request = stream->request;
    stream->request = NULL;
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), NULL,
                                  NULL);
    return request;
}

/* ---- Who is one too many ---- */

static void refuse(struct weir_http_streams *all,
                   struct evhttp_request *request, bool own)
{
    static const char format[] =
        "{\"type\": \"urn:weir:error:WEIR_EFULL\", \"status\": 503,\n"
        " \"title\": \"A bounded table has no room\",\n"
        " \"detail\": \"%u streams of events %s, which is as many as a root "
        "keeps: close a page, or ask /v1/live\",\n"
        " \"error\": \"WEIR_EFULL\"}\n";
    char body[512];
    int len = snprintf(body, sizeof body, format,
                       own ? WEIR_PAGE_STREAMS_EACH : WEIR_PAGE_STREAMS_MAX,
                       own ? "are yours" : "are open");
    const struct weir_admin_answer answer = {
        .status = 503,
        .type = "application/problem+json",
        .body = body,
        .len = (size_t)len,
    };
    all->options.send(request, &answer);
}

/* It was let in, or nobody would be told whether there is room. */
static bool has_room(const struct stream *stream, bool *out_own)
{
    size_t all = 0;
    size_t own = 0;
    for (const struct stream *other = stream->streams->first; other;
         other = other->next) {
        all += other->begun;
        own += other->begun && strcmp(other->reader, stream->reader) == 0;
    }
    *out_own = own >= WEIR_PAGE_STREAMS_EACH;
    return !*out_own && all < WEIR_PAGE_STREAMS_MAX;
}

/* ---- Answers ---- */

static void on_answer(void *context, const struct weir_admin_answer *answer)
{
    struct stream *stream = context;
    bool own;
    if (answer->status != 200 && !stream->begun) {
        stream->streams->options.send(let_go(stream), answer);
        return;
    }
    if (!stream->begun && !has_room(stream, &own)) {
        refuse(stream->streams, let_go(stream), own);
        return;
    }
    if (!stream->begun)
        begin(stream);
    if (answer->status == 200) {
        send_event(stream, "", answer);
        return;
    }
    send_event(stream, "event: problem\n", answer);
    evhttp_send_reply_end(let_go(stream));
}

static void ask(struct stream *stream)
{
    const struct weir_http_streams_options *options = &stream->streams->options;
    options->ask(options->context, stream->request, stream->reader, on_answer,
                 stream);
    if (!stream->request)
        stream_free(stream);
}

static bool is_behind(const struct stream *stream)
{
    struct bufferevent *connection = evhttp_connection_get_bufferevent(
        evhttp_request_get_connection(stream->request));
    return evbuffer_get_length(bufferevent_get_output(connection)) >
           WEIR_HTTP_STREAM_BEHIND;
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_http_streams *all = context;
    struct stream *next;
    for (struct stream *stream = all->first; stream; stream = next) {
        next = stream->next;
        stream->behind = is_behind(stream) ? stream->behind + 1 : 0;
        if (stream->behind > WEIR_HTTP_STREAM_SLOW)
            evhttp_connection_free(
                evhttp_request_get_connection(stream->request));
        else if (stream->behind == 0)
            ask(stream);
    }
}

/* ---- Life of all ---- */

void weir_http_streams_open(struct weir_http_streams *streams,
                            struct evhttp_request *request)
{
    struct stream *stream = stream_new(streams, request);
    if (!stream) {
        evhttp_send_error(request, HTTP_INTERNAL, NULL);
        return;
    }
    const struct timeval every = { .tv_sec = WEIR_HTTP_STREAM_EVERY };
    if (streams->count == 1)
        event_add(streams->timer, &every);
    ask(stream);
}

struct weir_http_streams *weir_http_streams_new(
    const struct weir_http_streams_options *options)
{
    struct weir_http_streams *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->options = *options;
    made->timer = event_new(options->base, -1, EV_PERSIST, on_timer, made);
    if (!made->timer) {
        free(made);
        return NULL;
    }
    return made;
}

void weir_http_streams_free(struct weir_http_streams **streams)
{
    if (!*streams)
        return;
    weir_assert((*streams)->count == 0);
    event_free((*streams)->timer);
    free(*streams);
    *streams = NULL;
}
