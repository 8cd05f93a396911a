/* SPDX-License-Identifier: MIT
 * io/stream.c - queued connections: bytes in as they come, bytes out at the end
 * of the loop's turn.
 *
 * Theory of operation. A stream is a transport (io/transport.h), an owner, and
 * for a client the way to its socket:
 *
 *     RESOLVING --> CONNECTED --error, end, too late--> LOST
 *          \----not found, too late--------------------/
 *     CONNECTED --close--> (FLUSHING --written, 2 s-->) freed
 *
 * CONNECTED begins when the transport has an address to connect to, or an
 * accepted socket; the handshake is a state of the transport.
 *
 * Writing. Bytes are queued and sent at the end of the loop's turn, by one
 * system call for all of them: the code activates the event 'flush', and
 * libevent runs it after those that are active already. If the kernel takes
 * less, the rest waits until the socket is writable.
 *
 * An accepted stream has no owner during its handshake and reports to its
 * listener. A listener may be freed before its streams.
 *
 * Callbacks may close the stream: the transport keeps its memory for the
 * callers that will use it again. on_lost is called only by the loop, never
 * within a function of this file's interface.
 *
 * libevent's resolver looks names up without blocking the loop. Each stream has
 * its own, which reads /etc/hosts and /etc/resolv.conf. The addresses found are
 * tried in turn. */

#include "io/stream.h"

#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/transport.h"

#define CONNECT_TIMEOUT (5 * WEIR_SECOND)
#define FLUSH_MAX (2 * WEIR_SECOND) /* for the rest of the queue, closing */
#define READ_SIZE (64 << 10)        /* bytes of one read */
#define READS_MAX 4 /* in a row, before other streams are served */

enum state { RESOLVING, CONNECTED, LOST, FLUSHING };

struct weir_stream {
    struct weir_transport transport; /* first: the policy's functions get it */
    struct weir_stream_handler handler;
    struct weir_listener *listener; /* that accepted it; NULL: none, or freed */
    struct evdns_base *dns;         /* owned, from the lookup on */
    struct evdns_getaddrinfo_request *lookup;
    struct evutil_addrinfo *found; /* owned: the addresses of the name */
    struct evutil_addrinfo *next;  /* the address to try next */
    struct event *flush;           /* active: to run at the end of this turn */
    enum state state;
    bool unclaimed; /* accepted, without an owner yet */
    bool above;     /* the queue was above the low mark */
    bool reported;  /* the loss */
    bool resolved;  /* the lookup has ended, and still uses the memory */
};

struct weir_listener {
    struct event_base *base;        /* borrowed */
    struct weir_acceptor *acceptor; /* owned */
    struct weir_listener_options options;
};

static struct weir_stream *stream_of(struct weir_transport *transport)
{
    return (struct weir_stream *)transport;
}

/* ---- Loss ---- */

static void report_evicted(const struct weir_stream *stream)
{
    const struct weir_listener *listener = stream->listener;
    if (!stream->unclaimed && listener && listener->options.on_evicted)
        listener->options.on_evicted(listener->options.context,
                                     stream->transport.peer,
                                     stream->transport.why);
}

/* The loop reports it, not the caller. */
static void lose_stream(struct weir_stream *stream, const char *why)
{
    if (stream->state == LOST || stream->transport.killed)
        return;
    weir_assert(stream->state != FLUSHING);
    stream->state = LOST;
    if (!stream->transport.why)
        stream->transport.why = why;
    if (stream->transport.evicted)
        report_evicted(stream);
    weir_transport_close(&stream->transport);
    event_active(stream->flush, EV_TIMEOUT, 1);
}

static void report_stream_lost(struct weir_stream *stream)
{
    const struct weir_listener *listener = stream->listener;
    const char *why = stream->transport.why;
    if (stream->reported || stream->transport.killed)
        return;
    stream->reported = true;
    if (!stream->unclaimed) {
        if (stream->handler.on_lost)
            stream->handler.on_lost(stream->handler.context, stream, why);
        return;
    }
    if (listener && listener->options.on_refused)
        listener->options.on_refused(listener->options.context,
                                     stream->transport.peer, why);
    weir_transport_kill(&stream->transport);
}

/* ---- Writing ---- */

static void end_flushing(struct weir_stream *stream)
{
    weir_assert(stream->state == FLUSHING);
    stream->state = LOST;
    weir_transport_close(&stream->transport);
    (void)weir_transport_leave(&stream->transport);
}

/* Whether all bytes of a closed stream are written, or can't be. */
static bool is_flushed(struct weir_transport *transport)
{
    weir_transport_flush(transport);
    return transport->why || (weir_transport_queued(transport) == 0 &&
                              weir_transport_end(transport));
}

static void flush_now(struct weir_transport *transport)
{
    struct weir_stream *stream = stream_of(transport);
    if (stream->state == FLUSHING) {
        if (is_flushed(transport))
            end_flushing(stream);
        return;
    }
    weir_transport_flush(transport);
    if (transport->why || !stream->above ||
        weir_transport_queued(transport) > WEIR_STREAM_LOW_MARK)
        return;
    stream->above = false;
    if (stream->handler.on_drain)
        stream->handler.on_drain(stream->handler.context, stream);
}

static void flush_step(struct weir_transport *transport)
{
    if (transport->state == WEIR_TRANSPORT_OPEN)
        flush_now(transport);
}

/* The end of the loop's turn: queued bytes are written, or a loss reported. */
static void on_stream_flush(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_stream *stream = context;
    struct weir_transport *transport = &stream->transport;
    weir_transport_enter(transport);
    if (stream->resolved) {
        stream->resolved = false;
        (void)weir_transport_leave(transport);
    }
    weir_transport_run(transport, flush_step);
    (void)weir_transport_leave(transport);
}

int weir_stream_write(struct weir_stream *stream, const void *bytes, size_t len)
{
    struct weir_transport *transport = &stream->transport;
    if (stream->state == LOST)
        return WEIR_ECLOSED;
    size_t queued = weir_transport_queued(transport);
    if (len > WEIR_STREAM_QUEUE_MAX - queued)
        return WEIR_EFULL;
    if (!weir_transport_queue(transport, bytes, len)) {
        lose_stream(stream, transport->why);
        return WEIR_ENOMEM;
    }
    stream->above |= queued + len > WEIR_STREAM_LOW_MARK;
    if (transport->state == WEIR_TRANSPORT_OPEN && !transport->stalled)
        event_active(stream->flush, EV_TIMEOUT, 1);
    return 0;
}

size_t weir_stream_queued(const struct weir_stream *stream)
{
    return weir_transport_queued(&stream->transport);
}

/* ---- Reading ---- */

/* Reads once and hands the bytes on; false: no more bytes now, or the stream is
 * closed. */
static bool read_once(struct weir_stream *stream)
{
    uint8_t bytes[READ_SIZE];
    size_t got = weir_transport_read(&stream->transport, bytes, sizeof bytes);
    if (got > 0 && stream->handler.on_bytes)
        stream->handler.on_bytes(stream->handler.context, stream, bytes, got);
    return got == sizeof bytes && stream->state == CONNECTED &&
           !stream->transport.killed;
}

static void on_stream_readable(struct weir_transport *transport)
{
    for (int i = 0; i < READS_MAX && read_once(stream_of(transport)); i++)
        continue;
}

void weir_stream_set_authenticated(struct weir_stream *stream)
{
    weir_transport_admit(&stream->transport);
}

/* ---- Connecting ---- */

static void on_stream_open(struct weir_transport *transport)
{
    struct weir_stream *stream = stream_of(transport);
    weir_assert(stream->state == CONNECTED);
    if (weir_transport_queued(transport) > 0)
        event_active(stream->flush, EV_TIMEOUT, 1);
    if (stream->unclaimed) {
        stream->unclaimed = false;
        stream->listener->options.on_accept(stream->listener->options.context,
                                            stream);
    } else if (stream->handler.on_open) {
        stream->handler.on_open(stream->handler.context, stream);
    }
}

static void connect_next(struct weir_stream *stream)
{
    stream->state = CONNECTED;
    do {
        const struct evutil_addrinfo *at = stream->next;
        stream->next = at->ai_next;
        weir_transport_connect(&stream->transport, at->ai_addr,
                               (socklen_t)at->ai_addrlen);
    } while (stream->transport.why && stream->next);
    if (stream->transport.why)
        lose_stream(stream, stream->transport.why);
}

static void on_stream_failed(struct weir_transport *transport)
{
    struct weir_stream *stream = stream_of(transport);
    if (transport->state == WEIR_TRANSPORT_CONNECTING && stream->next)
        connect_next(stream);
    else if (stream->state == FLUSHING)
        end_flushing(stream);
    else if (stream->state == LOST)
        report_stream_lost(stream);
    else
        lose_stream(stream, transport->why);
}

static void on_stream_late(struct weir_transport *transport)
{
    struct weir_stream *stream = stream_of(transport);
    if (stream->state == FLUSHING)
        end_flushing(stream);
    else if (stream->state == RESOLVING)
        lose_stream(stream, "the name was not found in time");
    else if (transport->state == WEIR_TRANSPORT_CONNECTING)
        lose_stream(stream, "no connection in time");
}

static void on_resolved(int error, struct evutil_addrinfo *found, void *context)
{
    struct weir_stream *stream = context;
    stream->lookup = NULL;
    stream->found = found;
    stream->next = found;
    if (stream->state == RESOLVING && !stream->transport.killed) {
        if (error != 0 || !found)
            lose_stream(stream, evutil_gai_strerror(error));
        else
            connect_next(stream);
    }
    /* It isn't freed within the resolver, which is freed with it. */
    stream->resolved = true;
    event_active(stream->flush, EV_TIMEOUT, 1);
}

static void resolve_name(struct weir_stream *stream,
                         const struct weir_address *address)
{
    stream->dns = evdns_base_new(stream->transport.base,
                                 EVDNS_BASE_INITIALIZE_NAMESERVERS |
                                     EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    if (!stream->dns) {
        lose_stream(stream,
                    "the name can't be looked up: no name server is known");
        return;
    }
    struct evutil_addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_protocol = IPPROTO_TCP,
    };
    char port[6];
    (void)evutil_snprintf(port, sizeof(port), "%u", address->port);
    /* The resolver may call back within this call, which then returns NULL. */
    weir_transport_enter(&stream->transport);
    stream->lookup = evdns_getaddrinfo(stream->dns, address->host, port, &hints,
                                       on_resolved, stream);
}

static void connect_numeric(struct weir_stream *stream,
                            const struct sockaddr_storage *address,
                            socklen_t len)
{
    stream->state = CONNECTED;
    weir_transport_connect(&stream->transport, (const struct sockaddr *)address,
                           len);
    if (stream->transport.why)
        lose_stream(stream, stream->transport.why);
}

/* ---- Life ---- */

static void on_stream_free(struct weir_transport *transport)
{
    struct weir_stream *stream = stream_of(transport);
    weir_assert(!stream->lookup && stream->state != FLUSHING);
    weir_transport_fini(transport);
    if (stream->flush)
        event_free(stream->flush);
    if (stream->found)
        evutil_freeaddrinfo(stream->found);
    if (stream->dns)
        evdns_base_free(stream->dns, 0);
    free(stream);
}

static const struct weir_transport_policy queued = {
    .on_open = on_stream_open,
    .on_readable = on_stream_readable,
    .on_writable = flush_now,
    .on_late = on_stream_late,
    .on_failed = on_stream_failed,
    .on_free = on_stream_free,
};

static struct weir_stream *stream_new(struct event_base *base)
{
    struct weir_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    weir_transport_init(&stream->transport, &queued, base);
    stream->flush = event_new(base, -1, 0, on_stream_flush, stream);
    if (stream->flush)
        return stream;
    weir_transport_kill(&stream->transport);
    return NULL;
}

struct weir_stream *weir_stream_connect_as(struct event_base *base,
                                           const struct weir_address *address,
                                           const char *host,
                                           struct weir_tls *tls,
                                           weir_duration timeout,
                                           const struct weir_stream_handler *h)
{
    struct weir_stream *stream = stream_new(base);
    if (!stream)
        return NULL;
    struct weir_transport *transport = &stream->transport;
    stream->handler = *h;
    if (tls)
        transport->tls = weir_tls_session_new(tls, host);
    weir_transport_arm(transport, timeout > 0 ? timeout : CONNECT_TIMEOUT);
    if ((tls && !transport->tls) || transport->why) {
        weir_transport_kill(transport);
        return NULL;
    }
    (void)evutil_snprintf(transport->peer, sizeof(transport->peer), "%s:%u",
                          address->host, address->port);
    struct sockaddr_storage numeric;
    socklen_t len;
    if (weir_address_numeric(address, &numeric, &len))
        connect_numeric(stream, &numeric, len);
    else
        resolve_name(stream, address);
    return stream;
}

struct weir_stream *weir_stream_connect(struct event_base *base,
                                        const struct weir_address *address,
                                        struct weir_tls *tls,
                                        weir_duration timeout,
                                        const struct weir_stream_handler *h)
{
    return weir_stream_connect_as(base, address, address->host, tls, timeout,
                                  h);
}

void weir_stream_set_handler(struct weir_stream *stream,
                             const struct weir_stream_handler *handler)
{
    stream->handler = *handler;
}

/* The transport keeps the stream until the rest is written. */
static void flush_rest(struct weir_stream *stream)
{
    struct weir_transport *transport = &stream->transport;
    weir_transport_enter(transport);
    if (is_flushed(transport)) {
        weir_transport_close(transport);
        (void)weir_transport_leave(transport);
        return;
    }
    stream->state = FLUSHING;
    transport->paused = true;
    weir_transport_arm(transport, FLUSH_MAX);
    weir_transport_watch(transport);
    if (transport->why)
        end_flushing(stream);
}

void weir_stream_close(struct weir_stream **stream, bool flush)
{
    struct weir_stream *self = *stream;
    if (!self)
        return;
    *stream = NULL;
    struct weir_transport *transport = &self->transport;
    weir_assert(!transport->killed && self->state != FLUSHING);
    weir_ration_leave(&transport->accepted.member);
    self->handler = (struct weir_stream_handler){ .context = NULL };
    if (self->lookup)
        evdns_getaddrinfo_cancel(self->lookup);
    if (flush && self->state == CONNECTED &&
        transport->state == WEIR_TRANSPORT_OPEN)
        flush_rest(self);
    else
        weir_transport_close(transport);
    weir_transport_kill(transport);
}

struct event_base *weir_stream_base(const struct weir_stream *stream)
{
    return stream->transport.base;
}

const char *weir_stream_peer(const struct weir_stream *stream)
{
    return stream->transport.peer;
}

bool weir_stream_is_refused(const struct weir_stream *stream)
{
    return stream->transport.tls && weir_tls_is_refused(stream->transport.tls);
}

bool weir_stream_peer_names(const struct weir_stream *stream,
                            struct weir_tls_peer *out)
{
    if (!stream->transport.tls)
        return false;
    weir_tls_session_names(stream->transport.tls, out);
    return true;
}

const char *weir_stream_peer_doubt(const struct weir_stream *stream,
                                   const struct weir_tls *now)
{
    return stream->transport.tls
               ? weir_tls_session_doubt(stream->transport.tls, now)
               : NULL;
}

/* ---- Listeners ---- */

static void on_listener_socket(void *context, int fd,
                               const struct sockaddr *peer)
{
    struct weir_listener *listener = context;
    struct weir_stream *stream = stream_new(listener->base);
    if (!stream) {
        close(fd);
        return;
    }
    stream->listener = listener;
    stream->state = CONNECTED;
    stream->unclaimed = true;
    if (!weir_transport_accept(&stream->transport, listener->acceptor, fd,
                               peer))
        weir_transport_kill(&stream->transport);
    else if (stream->transport.state == WEIR_TRANSPORT_OPEN)
        on_stream_open(&stream->transport);
}

int weir_listener_new(struct event_base *base,
                      const struct weir_listener_options *options,
                      struct weir_listener **out, struct weir_diag *diag)
{
    struct weir_listener *listener = calloc(1, sizeof(*listener));
    if (!listener)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    listener->base = base;
    listener->options = *options;
    const struct weir_acceptor_options acceptor = {
        .base = base,
        .place = { .address = options->address },
        .tls = options->tls,
        .max = options->max,
        .places = options->places ? options->places : (options->max + 1) / 2,
        .pauses = true,
        .on_socket = on_listener_socket,
        .context = listener,
        .on_short = options->on_short,
    };
    int error = weir_acceptor_new(&acceptor, &listener->acceptor, diag);
    if (error < 0) {
        free(listener);
        return error;
    }
    *out = listener;
    return 0;
}

uint16_t weir_listener_port(const struct weir_listener *listener)
{
    return weir_acceptor_address(listener->acceptor)->address.port;
}

static void doubt_handshake(void *context, void *connection)
{
    (void)context;
    struct weir_stream *stream = connection;
    if (stream->unclaimed)
        lose_stream(stream, WEIR_TLS_OUTDATED);
}

void weir_listener_doubt(struct weir_listener *listener)
{
    if (listener)
        weir_acceptor_each(listener->acceptor, doubt_handshake, NULL);
}

static void forget_listener(void *context, void *connection)
{
    (void)context;
    struct weir_stream *stream = connection;
    stream->listener = NULL;
    if (stream->unclaimed && !stream->transport.killed)
        weir_stream_close(&stream, false);
}

void weir_listener_free(struct weir_listener **listener)
{
    struct weir_listener *self = *listener;
    if (!self)
        return;
    *listener = NULL;
    weir_acceptor_each(self->acceptor, forget_listener, NULL);
    weir_acceptor_free(&self->acceptor);
    free(self);
}
