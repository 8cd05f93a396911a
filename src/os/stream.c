/* SPDX-License-Identifier: MIT
 * os/stream.c - connections on a libevent loop.
 *
 * Theory of operation. A stream is a socket, two events on it and a queue:
 *
 *     CONNECTING --writable--> OPEN --error, end, time--> LOST
 *          \---refused, time out----------------------/
 *     any --close--> (FLUSHING --written, 2 s-->) freed
 *
 * Writing. Bytes are queued (an evbuffer) and leave at the end of the loop's
 * turn, by one sendmsg for all that was queued in it: 'flush' is an event
 * that is made active by hand, and libevent runs it after those that are
 * active already. If the kernel takes less, the rest waits for writability.
 *
 * Callbacks may close the stream. So each is the last thing that its caller
 * does with it, or 'busy' holds the memory until the caller has seen 'dead'.
 * on_lost never comes out of a function of ours, only out of the loop.
 *
 * Not bufferevents: they write by writev(), which raises SIGPIPE in a process
 * that isn't ours to change; they make a socket without close-on-exec; and
 * reading by recv() into the loop's stack saves a copy.
 *
 * Names are looked up by libevent's resolver, which has the loop wait for the
 * answer; it reads /etc/hosts and /etc/resolv.conf anew each time, and goes
 * with the stream. The addresses found are tried in turn. */

#include "os/stream.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/stream_private.h"

#define CONNECT_TIMEOUT (5 * WEIR_SECOND)
#define FLUSH_SECONDS 2      /* for the rest, when closing */
#define READ_SIZE (64 << 10) /* bytes read at once */
#define READS_MAX 4          /* in a row, before others have their turn */
#define PIECES_MAX 64        /* of the queue in one write */

enum state { RESOLVING, CONNECTING, OPEN, LOST, FLUSHING };

struct weir_stream {
    struct event_base *base;
    struct weir_stream_handler handler;
    struct weir_listener *listener; /* that accepted it, or NULL */
    struct evdns_base *dns;         /* while looking up, and till the end */
    struct evdns_getaddrinfo_request *lookup;
    struct evutil_addrinfo *found; /* owned: what the name stands for */
    struct evutil_addrinfo *next;  /* the one to try next */
    struct event *readable;
    struct event *writable;
    struct event *flush; /* active: at the end of this turn */
    struct event *timer;
    struct evbuffer *queue;
    enum state state;
    int fd;
    unsigned busy;      /* callers that will look at it again */
    bool dead;          /* closed meanwhile */
    bool above;         /* the queue was above the low mark */
    const char *reason; /* of the loss that is still to be told */
    char peer[WEIR_PEER_MAX];
};

static void on_readable(evutil_socket_t fd, short what, void *context);
static void on_writable(evutil_socket_t fd, short what, void *context);
static void connect_next(struct weir_stream *stream);

/* ---- Making and unmaking ---- */

static void close_socket(struct weir_stream *stream)
{
    if (stream->readable)
        event_free(stream->readable);
    if (stream->writable)
        event_free(stream->writable);
    stream->readable = NULL;
    stream->writable = NULL;
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
}

static void destroy(struct weir_stream *stream)
{
    close_socket(stream);
    if (stream->flush)
        event_free(stream->flush);
    if (stream->timer)
        event_free(stream->timer);
    if (stream->queue)
        evbuffer_free(stream->queue);
    if (stream->found)
        evutil_freeaddrinfo(stream->found);
    if (stream->dns)
        evdns_base_free(stream->dns, 0);
    if (stream->listener)
        weir_listener_release(stream->listener);
    free(stream);
}

/* Of a dead stream. A cancelled lookup still calls back once. */
static void destroy_when_unused(struct weir_stream *stream)
{
    if (stream->busy == 0 && !stream->lookup && stream->state != FLUSHING)
        destroy(stream);
}

/* Between the two the handler may close the stream; leave() says whether it
 * is still there. */
static void enter(struct weir_stream *stream)
{
    stream->busy++;
}

static bool leave(struct weir_stream *stream)
{
    stream->busy--;
    if (!stream->dead)
        return true;
    destroy_when_unused(stream);
    return false;
}

/* The loss is told by the loop, not by who found it. */
static void lose(struct weir_stream *stream, const char *why)
{
    if (stream->state == LOST || stream->dead)
        return;
    stream->state = LOST;
    stream->reason = why;
    close_socket(stream);
    (void)event_del(stream->timer);
    event_active(stream->flush, EV_TIMEOUT, 1);
}

static void tell_lost(struct weir_stream *stream)
{
    const char *why = stream->reason;
    if (!why)
        return;
    stream->reason = NULL;
    if (stream->handler.on_lost)
        stream->handler.on_lost(stream->handler.context, stream, why);
}

/* ---- Writing ---- */

/* Writes what the kernel takes: 0, or errno. */
static int write_some(struct weir_stream *stream)
{
    while (evbuffer_get_length(stream->queue) > 0) {
        struct evbuffer_iovec pieces[PIECES_MAX];
        int count = evbuffer_peek(stream->queue, -1, NULL, pieces,
                                  PIECES_MAX);
        if (count > PIECES_MAX)
            count = PIECES_MAX;
        struct iovec vector[PIECES_MAX];
        for (int i = 0; i < count; i++) {
            vector[i].iov_base = pieces[i].iov_base;
            vector[i].iov_len = pieces[i].iov_len;
        }
        struct msghdr message = {
            .msg_iov = vector,
            .msg_iovlen = (size_t)count,
        };
        ssize_t sent = sendmsg(stream->fd, &message,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
        (void)evbuffer_drain(stream->queue, (size_t)sent);
    }
    return 0;
}

/* Reads and drops what has come, so that closing doesn't reset what was
 * just written. */
static void drop_input(int fd)
{
    char bytes[4096];
    for (int i = 0; i < 64; i++) {
        if (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0)
            return;
    }
}

static void end_flushing(struct weir_stream *stream)
{
    if (stream->fd >= 0) {
        (void)shutdown(stream->fd, SHUT_WR);
        drop_input(stream->fd);
    }
    stream->state = LOST;
    destroy_when_unused(stream);
}

static void flush_now(struct weir_stream *stream)
{
    int error = write_some(stream);
    size_t left = evbuffer_get_length(stream->queue);
    if (stream->state == FLUSHING) {
        if (error != 0 || left == 0)
            end_flushing(stream);
        return;
    }
    if (error != 0) {
        lose(stream, strerror(error));
        return;
    }
    if (left > 0)
        (void)event_add(stream->writable, NULL);
    else
        (void)event_del(stream->writable);
    if (!stream->above || left > WEIR_STREAM_LOW_MARK)
        return;
    stream->above = false;
    if (stream->handler.on_drain)
        stream->handler.on_drain(stream->handler.context, stream);
}

static void on_flush(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_stream *stream = context;
    if (stream->dead)
        destroy_when_unused(stream);
    else if (stream->state == LOST)
        tell_lost(stream);
    else if (stream->state == OPEN)
        flush_now(stream);
}

int weir_stream_write(struct weir_stream *stream, const void *bytes,
                      size_t len)
{
    if (stream->state == LOST)
        return WEIR_ECLOSED;
    size_t queued = evbuffer_get_length(stream->queue);
    if (len > WEIR_STREAM_QUEUE_MAX - queued)
        return WEIR_EFULL;
    if (len > 0 && evbuffer_add(stream->queue, bytes, len) < 0)
        return WEIR_ENOMEM;
    stream->above |= queued + len > WEIR_STREAM_LOW_MARK;
    if (stream->state == OPEN)
        event_active(stream->flush, EV_TIMEOUT, 1);
    return 0;
}

size_t weir_stream_queued(const struct weir_stream *stream)
{
    return evbuffer_get_length(stream->queue);
}

/* ---- Reading ---- */

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct weir_stream *stream = context;
    uint8_t bytes[READ_SIZE];
    for (int i = 0; i < READS_MAX; i++) {
        ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (got <= 0) {
            lose(stream, got < 0 ? strerror(errno)
                                 : "the peer closed the connection");
            return;
        }
        enter(stream);
        if (stream->handler.on_bytes)
            stream->handler.on_bytes(stream->handler.context, stream, bytes,
                                     (size_t)got);
        if (!leave(stream) || stream->state != OPEN)
            return;
        if ((size_t)got < sizeof(bytes))
            return;
    }
}

/* ---- Connecting ---- */

static bool watch(struct weir_stream *stream, int fd)
{
    int yes = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    stream->fd = fd;
    stream->readable = event_new(stream->base, fd, EV_READ | EV_PERSIST,
                                 on_readable, stream);
    stream->writable = event_new(stream->base, fd, EV_WRITE | EV_PERSIST,
                                 on_writable, stream);
    return stream->readable && stream->writable;
}

static void open_stream(struct weir_stream *stream)
{
    stream->state = OPEN;
    (void)event_del(stream->timer);
    (void)event_del(stream->writable);
    (void)event_add(stream->readable, NULL);
    if (evbuffer_get_length(stream->queue) > 0)
        event_active(stream->flush, EV_TIMEOUT, 1);
    if (stream->handler.on_open)
        stream->handler.on_open(stream->handler.context, stream);
}

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct weir_stream *stream = context;
    if (stream->state != CONNECTING) {
        flush_now(stream);
        return;
    }
    int error = 0;
    socklen_t len = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (error == 0) {
        open_stream(stream);
        return;
    }
    close_socket(stream);
    if (stream->next)
        connect_next(stream);
    else
        lose(stream, strerror(error));
}

/* Begins to connect; an error is told later. */
static void connect_to(struct weir_stream *stream,
                       const struct sockaddr *address, socklen_t len)
{
    stream->state = CONNECTING;
    weir_address_show(address, stream->peer);
    int fd = socket(address->sa_family,
                    SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        lose(stream, strerror(errno));
        return;
    }
    if (!watch(stream, fd)) {
        lose(stream, "no memory");
        return;
    }
    int error = connect(fd, address, len) < 0 ? errno : 0;
    if (error != 0 && error != EINPROGRESS && error != EINTR) {
        close_socket(stream);
        if (stream->next)
            connect_next(stream);
        else
            lose(stream, strerror(error));
        return;
    }
    (void)event_add(stream->writable, NULL);
}

static void connect_next(struct weir_stream *stream)
{
    const struct evutil_addrinfo *at = stream->next;
    stream->next = at->ai_next;
    connect_to(stream, at->ai_addr, (socklen_t)at->ai_addrlen);
}

static void on_resolved(int error, struct evutil_addrinfo *found,
                        void *context)
{
    struct weir_stream *stream = context;
    stream->lookup = NULL;
    stream->found = found;
    stream->next = found;
    if (stream->dead) {
        /* Not from within the resolver that goes with it. */
        event_active(stream->flush, EV_TIMEOUT, 1);
        return;
    }
    /* The time may have run out before. */
    if (stream->state != RESOLVING)
        return;
    if (error != 0 || !found)
        lose(stream, evutil_gai_strerror(error));
    else
        connect_next(stream);
}

static void resolve(struct weir_stream *stream,
                    const struct weir_address *address)
{
    stream->state = RESOLVING;
    stream->dns = evdns_base_new(stream->base,
                                 EVDNS_BASE_INITIALIZE_NAMESERVERS |
                                     EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    if (!stream->dns) {
        lose(stream, "the name can't be looked up: no name server is known");
        return;
    }
    struct evutil_addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_protocol = IPPROTO_TCP,
    };
    char port[6];
    (void)evutil_snprintf(port, sizeof(port), "%u", address->port);
    /* It may call back at once, and then it returns NULL. */
    enter(stream);
    stream->lookup = evdns_getaddrinfo(stream->dns, address->host, port,
                                       &hints, on_resolved, stream);
    (void)leave(stream);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_stream *stream = context;
    if (stream->state == FLUSHING) {
        stream->state = LOST;
        destroy_when_unused(stream);
        return;
    }
    lose(stream, stream->state == RESOLVING
                     ? "the name was not found in time"
                     : "no connection in time");
}

/* ---- What the owner asks for ---- */

static struct weir_stream *stream_new(struct event_base *base)
{
    struct weir_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    stream->base = base;
    stream->fd = -1;
    stream->queue = evbuffer_new();
    stream->flush = event_new(base, -1, 0, on_flush, stream);
    stream->timer = event_new(base, -1, 0, on_timer, stream);
    if (stream->queue && stream->flush && stream->timer)
        return stream;
    destroy(stream);
    return NULL;
}

static struct timeval timeval_of(weir_duration duration)
{
    return (struct timeval){
        .tv_sec = (time_t)(duration / WEIR_SECOND),
        .tv_usec = (suseconds_t)(duration % WEIR_SECOND / 1000),
    };
}

struct weir_stream *weir_stream_connect(struct event_base *base,
                                        const struct weir_address *address,
                                        struct weir_tls *tls,
                                        weir_duration timeout,
                                        const struct weir_stream_handler *h)
{
    weir_assert(!tls);
    struct weir_stream *stream = stream_new(base);
    if (!stream)
        return NULL;
    stream->handler = *h;
    struct timeval delay = timeval_of(timeout > 0 ? timeout
                                                  : CONNECT_TIMEOUT);
    (void)event_add(stream->timer, &delay);
    (void)evutil_snprintf(stream->peer, sizeof(stream->peer), "%s:%u",
                          address->host, address->port);
    struct sockaddr_storage numeric;
    socklen_t len;
    if (weir_address_numeric(address, &numeric, &len))
        connect_to(stream, (struct sockaddr *)&numeric, len);
    else
        resolve(stream, address);
    return stream;
}

struct weir_stream *weir_stream_accepted(struct event_base *base, int fd,
                                         const struct sockaddr *peer,
                                         struct weir_listener *listener)
{
    struct weir_stream *stream = stream_new(base);
    if (!stream) {
        close(fd);
        return NULL;
    }
    weir_address_show(peer, stream->peer);
    if (!watch(stream, fd) || event_add(stream->readable, NULL) < 0) {
        destroy(stream);
        return NULL;
    }
    stream->listener = listener;
    stream->state = OPEN;
    return stream;
}

void weir_stream_set_handler(struct weir_stream *stream,
                             const struct weir_stream_handler *handler)
{
    stream->handler = *handler;
}

void weir_stream_close(struct weir_stream **stream, bool flush)
{
    struct weir_stream *self = *stream;
    if (!self)
        return;
    *stream = NULL;
    self->dead = true;
    self->handler = (struct weir_stream_handler){ .context = NULL };
    if (self->lookup)
        evdns_getaddrinfo_cancel(self->lookup);
    bool wants = flush && self->state == OPEN;
    if (wants && write_some(self) == 0 &&
        evbuffer_get_length(self->queue) > 0) {
        struct timeval delay = { .tv_sec = FLUSH_SECONDS };
        self->state = FLUSHING;
        (void)event_del(self->readable);
        (void)event_add(self->writable, NULL);
        (void)event_add(self->timer, &delay);
        /* Held by the timer until the rest is written. */
        return;
    }
    if (wants)
        end_flushing(self);
    else
        destroy_when_unused(self);
}

struct event_base *weir_stream_base(const struct weir_stream *stream)
{
    return stream->base;
}

const char *weir_stream_peer(const struct weir_stream *stream)
{
    return stream->peer;
}

bool weir_stream_peer_names(const struct weir_stream *stream,
                            struct weir_tls_peer *out)
{
    (void)stream;
    (void)out;
    return false;
}

void weir_address_show(const struct sockaddr *address, char *buf)
{
    char host[INET6_ADDRSTRLEN] = "?";
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    unsigned port = 0;
    bool is_v6 = address->sa_family == AF_INET6;
    if (is_v6) {
        memcpy(&v6, address, sizeof(v6));
        port = ntohs(v6.sin6_port);
        (void)evutil_inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
    } else if (address->sa_family == AF_INET) {
        memcpy(&v4, address, sizeof(v4));
        port = ntohs(v4.sin_port);
        (void)evutil_inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
    }
    (void)evutil_snprintf(buf, WEIR_PEER_MAX, is_v6 ? "[%s]:%u" : "%s:%u",
                          host, port);
}
