/* SPDX-License-Identifier: MIT
 * io/h2_link.c - the pump between a socket and a gRPC session.
 *
 * Theory of operation.
 *
 *     socket --on_bytes--> feed --> handlers --> send
 *                                                 |
 *     socket <--write-- stream queue <--output-- h2 queue
 *
 * pump_h2() moves output until there is none, or until the stream's queue is
 * long: output that the peer doesn't take stays in the h2, and callers see the
 * h2's bound. Writing may end calls, so each pump then feeds 0 bytes, as h2.h
 * demands. One event at the end of a turn of the loop moves everything sent in
 * it, and the stream writes it at once.
 *
 * A silent peer receives a PING; any byte counts as the answer. A dead peer is
 * noticed after silence + patience.
 *
 * Handlers may close the link: 'busy' keeps its memory, and 'closed' is checked
 * after each callback. No callback comes after on_lost. */

#include "io/h2_link.h"

#include <event2/event.h>
#include <stdlib.h>

#include "io/clock.h"

struct weir_h2_link {
    struct weir_stream *stream;
    struct weir_h2 *h2;
    struct weir_h2_link_handler handler;
    struct event *flush; /* active: move output at the end of this turn */
    struct event *timer;
    weir_duration silence;
    weir_duration patience;
    weir_instant received_at;
    weir_instant asked_at; /* 0: no PING is unanswered */
    unsigned busy;
    bool server;
    bool received; /* the peer has sent a byte */
    bool open;
    bool full;   /* the owner has seen it full */
    bool lost;   /* on_lost was called, or is being called */
    bool closed; /* by the owner */
};

/* Moves the h2's output, as far as the stream has room for it. After an error
 * bytes are missing: the link is lost. */
static int carry_output(struct weir_h2_link *link, size_t high)
{
    int error = 0;
    while (error == 0 && weir_stream_queued(link->stream) < high) {
        const void *bytes;
        size_t len = weir_h2_output(link->h2, &bytes);
        if (len == 0)
            return 0;
        error = weir_stream_write(link->stream, bytes, len);
    }
    return error;
}

static void destroy_h2_link(struct weir_h2_link *link)
{
    weir_assert(link->busy == 0);
    if (link->h2) {
        weir_h2_shutdown(link->h2);
        (void)carry_output(link, WEIR_STREAM_QUEUE_MAX / 2);
    }
    weir_stream_close(&link->stream, true);
    weir_h2_free(&link->h2);
    if (link->flush)
        event_free(link->flush);
    if (link->timer)
        event_free(link->timer);
    free(link);
}

static void enter_h2_link(struct weir_h2_link *link)
{
    link->busy++;
}

static void leave_h2_link(struct weir_h2_link *link)
{
    weir_assert(link->busy > 0);
    link->busy--;
    if (link->closed && link->busy == 0)
        destroy_h2_link(link);
}

bool weir_h2_link_is_lost(const struct weir_h2_link *link)
{
    return link->lost;
}

static void lose_h2_link(struct weir_h2_link *link, const char *why)
{
    if (link->lost || link->closed)
        return;
    link->lost = true;
    (void)event_del(link->timer);
    weir_h2_end(link->h2, why);
    if (!link->closed && link->handler.on_lost)
        link->handler.on_lost(link->handler.context, link, why);
}

static void report_drain(struct weir_h2_link *link)
{
    if (!link->full || weir_h2_link_queued(link) >= WEIR_H2_LINK_LOW_MARK)
        return;
    link->full = false;
    if (link->handler.on_drain)
        link->handler.on_drain(link->handler.context, link);
}

static const char *failure(const struct weir_h2_link *link, int error)
{
    const char *breach = weir_h2_breach(link->h2);
    if (breach)
        return breach;
    if (error == WEIR_ECLOSED)
        return "the connection is closed";
    return error == WEIR_ENOMEM
               ? "no memory for the connection"
               : "the peer doesn't speak HTTP/2 as it should: is this the "
                 "gRPC port?";
}

/* Feeds (0 bytes are legal) and moves output. Call it between enter and
 * leave. */
static void pump_h2(struct weir_h2_link *link, const void *bytes, size_t len)
{
    int error = weir_h2_feed(link->h2, bytes, len);
    if (link->closed)
        return;
    int lost = carry_output(link, WEIR_H2_LINK_HIGH_MARK);
    if (error == 0)
        error = weir_h2_feed(link->h2, NULL, 0);
    if (link->closed)
        return;
    if (lost == 0)
        lost = carry_output(link, WEIR_H2_LINK_HIGH_MARK);
    if (error == 0)
        error = lost;
    if (error < 0)
        lose_h2_link(link, failure(link, error));
    else if (weir_h2_is_over(link->h2))
        lose_h2_link(link, "the connection was ended in good order");
    else
        report_drain(link);
}

static void pump_event(struct weir_h2_link *link, const void *bytes, size_t len)
{
    if (link->lost || link->closed)
        return;
    enter_h2_link(link);
    pump_h2(link, bytes, len);
    leave_h2_link(link);
}

/* ---- Events ---- */

static void arm(struct weir_h2_link *link, weir_duration delay)
{
    struct timeval time = weir_timeval_of(delay + 1000);
    (void)event_add(link->timer, &time);
}

static void on_h2_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_h2_link *link = context;
    weir_instant now = weir_clock_now();
    if (link->asked_at > link->received_at) {
        weir_duration waited = now - link->asked_at;
        if (waited < link->patience) {
            arm(link, link->patience - waited);
            return;
        }
        enter_h2_link(link);
        lose_h2_link(link, "the peer doesn't answer");
        leave_h2_link(link);
        return;
    }
    weir_duration quiet = now - link->received_at;
    if (quiet < link->silence) {
        arm(link, link->silence - quiet);
        return;
    }
    link->asked_at = now;
    weir_h2_ping(link->h2);
    /* A byte received doesn't restart the timer, so it must also expire in time
     * for the silence after it. */
    arm(link, link->silence < link->patience ? link->silence : link->patience);
    pump_event(link, NULL, 0);
}

static void on_h2_flush(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    pump_event(context, NULL, 0);
}

static void begin_h2_link(struct weir_h2_link *link)
{
    weir_assert(!link->open);
    link->open = true;
    link->received_at = weir_clock_now();
    arm(link, link->silence);
}

static void on_stream_open(void *context, struct weir_stream *stream)
{
    (void)stream;
    struct weir_h2_link *link = context;
    begin_h2_link(link);
    enter_h2_link(link);
    if (link->handler.on_open)
        link->handler.on_open(link->handler.context, link);
    if (!link->closed)
        weir_h2_link_flush(link);
    leave_h2_link(link);
}

/* Detects TLS on a plain-text link, a common mistake: the peer's first bytes
 * are then a TLS record, a hello or an alert. NULL: they aren't. */
static const char *find_tls(const struct weir_h2_link *link,
                            const uint8_t *bytes, size_t len)
{
    if (len < 2 || bytes[1] != 0x03)
        return NULL;
    if (link->server && bytes[0] == 0x16)
        return "the peer speaks TLS, and this port has none";
    if (!link->server && bytes[0] == 0x15)
        return "the peer speaks TLS: name a CA to trust";
    return NULL;
}

static void on_h2_bytes(void *context, struct weir_stream *stream,
                        const void *bytes, size_t len)
{
    (void)stream;
    struct weir_h2_link *link = context;
    link->received_at = weir_clock_now();
    const char *tls = link->received ? NULL : find_tls(link, bytes, len);
    link->received = true;
    if (!tls) {
        pump_event(link, bytes, len);
        return;
    }
    enter_h2_link(link);
    lose_h2_link(link, tls);
    leave_h2_link(link);
}

static void on_stream_drain(void *context, struct weir_stream *stream)
{
    (void)stream;
    pump_event(context, NULL, 0);
}

/* A TLS server sends an alert, or nothing, to a client that begins in plain
 * text. */
static bool may_want_tls(const struct weir_h2_link *link,
                         const struct weir_stream *stream)
{
    struct weir_tls_peer ignored;
    return link->open && !link->server && !link->received &&
           !weir_stream_peer_names(stream, &ignored);
}

static void on_stream_lost(void *context, struct weir_stream *stream,
                           const char *why)
{
    struct weir_h2_link *link = context;
    enter_h2_link(link);
    lose_h2_link(
        link, may_want_tls(link, stream)
                  ? "the peer hung up before it sent a byte: does it want TLS?"
                  : why);
    leave_h2_link(link);
}

/* ---- Calls by the owner ---- */

struct weir_h2_link *weir_h2_link_new(
    struct weir_stream *stream, bool server,
    const struct weir_h2_link_handler *handler)
{
    struct weir_h2_link *link = calloc(1, sizeof(*link));
    if (!link) {
        weir_stream_close(&stream, false);
        return NULL;
    }
    struct event_base *base = weir_stream_base(stream);
    *link = (struct weir_h2_link){
        .stream = stream,
        .server = server,
        .handler = *handler,
        .silence = WEIR_H2_LINK_SILENCE,
        .patience = WEIR_H2_LINK_PATIENCE,
    };
    link->flush = event_new(base, -1, 0, on_h2_flush, link);
    link->timer = event_new(base, -1, 0, on_h2_timer, link);
    link->h2 = weir_h2_new(server, &handler->calls);
    if (!link->flush || !link->timer || !link->h2) {
        destroy_h2_link(link);
        return NULL;
    }
    struct weir_stream_handler events = {
        .context = link,
        .on_open = on_stream_open,
        .on_bytes = on_h2_bytes,
        .on_drain = on_stream_drain,
        .on_lost = on_stream_lost,
    };
    weir_stream_set_handler(stream, &events);
    if (server)
        begin_h2_link(link);
    weir_h2_link_flush(link);
    return link;
}

struct weir_h2 *weir_h2_link_h2(const struct weir_h2_link *link)
{
    return link->h2;
}

void weir_h2_link_flush(struct weir_h2_link *link)
{
    event_active(link->flush, EV_TIMEOUT, 1);
}

size_t weir_h2_link_queued(const struct weir_h2_link *link)
{
    return weir_h2_queued(link->h2) + weir_stream_queued(link->stream);
}

bool weir_h2_link_is_full(struct weir_h2_link *link)
{
    bool full = weir_h2_link_queued(link) > WEIR_H2_LINK_HIGH_MARK;
    link->full |= full;
    return full;
}

const char *weir_h2_link_peer(const struct weir_h2_link *link)
{
    return weir_stream_peer(link->stream);
}

void weir_h2_link_set_authenticated(struct weir_h2_link *link)
{
    weir_h2_set_authenticated(link->h2);
    weir_stream_set_authenticated(link->stream);
}

bool weir_h2_link_is_refused(const struct weir_h2_link *link)
{
    return weir_stream_is_refused(link->stream);
}

bool weir_h2_link_peer_names(const struct weir_h2_link *link,
                             struct weir_tls_peer *out)
{
    return weir_stream_peer_names(link->stream, out);
}

const char *weir_h2_link_peer_doubt(const struct weir_h2_link *link,
                                    const struct weir_tls *now)
{
    return weir_stream_peer_doubt(link->stream, now);
}

void weir_h2_link_close(struct weir_h2_link **link)
{
    struct weir_h2_link *self = *link;
    if (!self)
        return;
    *link = NULL;
    self->closed = true;
    if (self->busy == 0)
        destroy_h2_link(self);
}

void weir_h2_link_set_ping(struct weir_h2_link *link, weir_duration silence,
                           weir_duration patience)
{
    link->silence = silence;
    link->patience = patience;
    if (link->open && !link->lost)
        arm(link, silence);
}
