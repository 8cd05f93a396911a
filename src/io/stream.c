/* SPDX-License-Identifier: MIT
 * io/stream.c - connections on a libevent loop, and the listeners that accept
 * them.
 *
 * Theory of operation. A stream is a socket, two events on it and a queue:
 *
 *     CONNECTING --writable--> (HANDSHAKE -->) OPEN --error, end--> LOST
 *          \---refused, time out-----/-----------------------------/
 *     any --close--> (FLUSHING --written, 2 s-->) freed
 *
 * Writing. Bytes are queued (an evbuffer) and sent at the end of the loop's
 * turn, by one sendmsg for all of them: the code activates the event 'flush',
 * and libevent runs it after those that are active already. If the kernel takes
 * less, the rest waits until the socket is writable.
 *
 * With TLS a session stands between stream and socket: reads take bytes from
 * it, and writes hand it the queue's front, a record at a time. The queue and
 * its bounds stay in plain text. An accepted stream has no owner during its
 * handshake; it is in the listener's list and reports to the listener.
 *
 * An accepted stream is a member of the listener's ration until its owner
 * declares it authenticated (io/ration.h). When its socket becomes readable,
 * the stream stops watching it, waits for its turn, reads once, and watches it
 * again.
 *
 * Callbacks may close the stream. Therefore a caller doesn't use the stream
 * after a callback, or 'busy' keeps its memory until the caller has checked
 * 'dead'. on_lost is called only by the loop, never within a function of this
 * file's interface.
 *
 * Listeners. An acceptor (io/accept.h) takes connections; a ration
 * (io/ration.h) bounds the cost of unauthenticated ones. At 'max' streams an
 * unauthenticated one is evicted, and the acceptor pauses until a stream ends.
 * A listener may be freed before its streams: they use it and its ration, so
 * its memory is freed with the last of them.
 *
 * Streams in their handshake are in a list, oldest first, so that they can be
 * ended when the TLS files are reloaded.
 *
 * Rejected: bufferevents. They write by writev(), which raises SIGPIPE, and a
 * library can't change the process's signals; they make sockets without
 * close-on-exec; and recv() into a buffer on the stack saves a copy.
 *
 * libevent's resolver looks names up without blocking the loop. Each stream has
 * its own, which reads /etc/hosts and /etc/resolv.conf. The addresses found are
 * tried in turn. */

#include "io/stream.h"

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

#include "io/clock.h"
#include "io/ration.h"

#define CONNECT_TIMEOUT (5 * WEIR_SECOND)
#define FLUSH_SECONDS 2      /* for the rest of the queue, when closing */
#define READ_SIZE (64 << 10) /* bytes of one read */
#define READS_MAX 4          /* in a row, before other streams are served */
#define PIECES_MAX 64        /* pieces of the queue in one write */
#define RECORD_SIZE 16384    /* bytes of the queue in one record of TLS */

enum state { RESOLVING, CONNECTING, HANDSHAKE, OPEN, LOST, FLUSHING };

struct weir_stream {
    struct event_base *base;
    struct weir_stream_handler handler;
    struct weir_listener *listener;   /* that accepted it; NULL: none */
    struct weir_tls_session *tls;     /* owned; NULL: plain text */
    TAILQ_ENTRY(weir_stream) among;   /* of its handshakes, while listed */
    struct weir_ration_member member; /* until the stream is authenticated */
    struct evdns_base *dns;           /* from the lookup until the stream is
                                       * freed */
    struct evdns_getaddrinfo_request *lookup;
    struct evutil_addrinfo *found; /* owned: the addresses of the name */
    struct evutil_addrinfo *next;  /* the address to try next */
    struct event *readable;
    struct event *writable;
    struct event *flush; /* active: to run at the end of this turn */
    struct event *timer;
    struct evbuffer *queue;
    enum state state;
    int fd;
    unsigned busy;      /* callers that will use the stream again */
    bool dead;          /* closed while 'busy', or to be freed */
    bool unclaimed;     /* accepted, without an owner yet */
    bool listed;        /* it is in the listener's list of handshakes */
    bool reads_first;   /* TLS can't write before it has read */
    bool writes_first;  /* … nor read before it has written */
    bool above;         /* the queue was above the low mark */
    const char *reason; /* of a loss that isn't reported yet */
    char peer[WEIR_PEER_MAX];
};

struct weir_listener {
    struct event_base *base;
    struct weir_acceptor *acceptor; /* owned; NULL: the listener is freed, its
                                     * streams still exist */
    struct weir_ration *ration;     /* owned */
    struct weir_listener_options options;
    size_t live; /* streams accepted and not ended */
    /* streams without an owner yet, oldest first */
    TAILQ_HEAD(, weir_stream) handshakes;
    uint16_t port;
};

static void on_stream_writable(evutil_socket_t fd, short what, void *context);
static void connect_next(struct weir_stream *stream);
static void shake_hands(struct weir_stream *stream);

/* ---- The listener of a stream ---- */

/* Frees a listener that its owner has freed, after its last stream. */
static void free_listener_if_unused(struct weir_listener *listener)
{
    if (listener->acceptor || listener->live > 0)
        return;
    weir_ration_free(&listener->ration);
    free(listener);
}

static void release_listener(struct weir_listener *listener)
{
    weir_assert(listener->live > 0);
    listener->live--;
    if (listener->acceptor && listener->live < listener->options.max)
        weir_acceptor_set_open(listener->acceptor, true);
    free_listener_if_unused(listener);
}

static void report_refused(struct weir_listener *listener, const char *peer,
                           const char *why)
{
    if (listener->acceptor && listener->options.on_refused)
        listener->options.on_refused(listener->options.context, peer, why);
}

static void report_evicted(struct weir_listener *listener, const char *peer,
                           const char *why)
{
    if (listener->acceptor && listener->options.on_evicted)
        listener->options.on_evicted(listener->options.context, peer, why);
}

static void leave_handshakes(struct weir_stream *stream)
{
    if (!stream->listed)
        return;
    stream->listed = false;
    TAILQ_REMOVE(&stream->listener->handshakes, stream, among);
}

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

static void destroy_stream(struct weir_stream *stream)
{
    weir_assert(stream->busy == 0 && !stream->listed);
    weir_ration_leave(&stream->member);
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
    weir_tls_session_free(&stream->tls);
    if (stream->listener)
        release_listener(stream->listener);
    free(stream);
}

/* Frees a dead stream. A cancelled lookup still calls back once. */
static void destroy_when_unused(struct weir_stream *stream)
{
    if (stream->busy == 0 && !stream->lookup && stream->state != FLUSHING)
        destroy_stream(stream);
}

/* Between enter_stream() and leave_stream() a handler may close the stream;
 * leave_stream() returns whether the stream still exists. */
static void enter_stream(struct weir_stream *stream)
{
    stream->busy++;
}

static bool leave_stream(struct weir_stream *stream)
{
    weir_assert(stream->busy > 0);
    stream->busy--;
    if (!stream->dead)
        return true;
    destroy_when_unused(stream);
    return false;
}

/* Discards unread input, so that closing doesn't reset the connection before
 * the peer has read our last bytes. */
static void drop_input(int fd)
{
    char bytes[4096];
    for (int i = 0; i < 64; i++) {
        if (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0)
            return;
    }
}

/* Ends our half; the peer may still have bytes of ours to read. */
static void shut_stream_down(struct weir_stream *stream)
{
    if (stream->fd < 0)
        return;
    (void)shutdown(stream->fd, SHUT_WR);
    drop_input(stream->fd);
}

/* Marks the stream as lost; the loop reports it, not the caller. */
static void lose_connection(struct weir_stream *stream, const char *why)
{
    if (stream->state == LOST || stream->dead)
        return;
    weir_assert(stream->state != FLUSHING);
    /* Our TLS alert already tells the peer the reason. */
    if (stream->state == HANDSHAKE)
        shut_stream_down(stream);
    leave_handshakes(stream);
    weir_ration_leave(&stream->member);
    stream->state = LOST;
    stream->reason = why;
    close_socket(stream);
    (void)event_del(stream->timer);
    event_active(stream->flush, EV_TIMEOUT, 1);
}

static void report_stream_lost(struct weir_stream *stream)
{
    const char *why = stream->reason;
    if (!why)
        return;
    stream->reason = NULL;
    if (stream->unclaimed) {
        stream->dead = true;
        report_refused(stream->listener, stream->peer, why);
        destroy_when_unused(stream);
        return;
    }
    if (stream->handler.on_lost)
        stream->handler.on_lost(stream->handler.context, stream, why);
}

/* ---- Writing ---- */

/* Writes the queue's front as TLS records. */
static const char *write_records(struct weir_stream *stream)
{
    stream->reads_first = false;
    for (;;) {
        size_t len = evbuffer_get_length(stream->queue);
        if (len == 0)
            return NULL;
        if (len > RECORD_SIZE)
            len = RECORD_SIZE;
        const void *bytes = evbuffer_pullup(stream->queue, (ssize_t)len);
        if (!bytes)
            return "no memory";
        size_t sent = 0;
        enum weir_tls_step step =
            weir_tls_write(stream->tls, bytes, len, &sent);
        if (step == WEIR_TLS_FAILED)
            return weir_tls_why(stream->tls);
        stream->reads_first = step == WEIR_TLS_READS;
        if (step != WEIR_TLS_DONE)
            return NULL;
        (void)evbuffer_drain(stream->queue, sent);
    }
}

/* Writes as much as the kernel takes. NULL, or the reason why it can't. */
static const char *write_some(struct weir_stream *stream)
{
    if (stream->tls)
        return write_records(stream);
    while (evbuffer_get_length(stream->queue) > 0) {
        struct evbuffer_iovec pieces[PIECES_MAX];
        int count = evbuffer_peek(stream->queue, -1, NULL, pieces, PIECES_MAX);
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
        ssize_t sent =
            sendmsg(stream->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? NULL
                                                           : strerror(errno);
        (void)evbuffer_drain(stream->queue, (size_t)sent);
    }
    return NULL;
}

static void end_flushing(struct weir_stream *stream)
{
    weir_assert(stream->dead);
    shut_stream_down(stream);
    stream->state = LOST;
    destroy_when_unused(stream);
}

/* Writes the rest of a closed stream; false: a part is still left. */
static bool flush_rest(struct weir_stream *stream)
{
    if (write_some(stream))
        return true;
    if (evbuffer_get_length(stream->queue) > 0)
        return false;
    return !stream->tls || weir_tls_end(stream->tls) != WEIR_TLS_WRITES;
}

static void flush_now(struct weir_stream *stream)
{
    if (stream->state == FLUSHING) {
        if (flush_rest(stream))
            end_flushing(stream);
        return;
    }
    const char *why = write_some(stream);
    if (why) {
        lose_connection(stream, why);
        return;
    }
    size_t left = evbuffer_get_length(stream->queue);
    if (left > 0 && !stream->reads_first)
        (void)event_add(stream->writable, NULL);
    else
        (void)event_del(stream->writable);
    if (stream->writes_first)
        event_active(stream->readable, EV_READ, 1);
    if (!stream->above || left > WEIR_STREAM_LOW_MARK)
        return;
    stream->above = false;
    if (stream->handler.on_drain)
        stream->handler.on_drain(stream->handler.context, stream);
}

static void on_stream_flush(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_stream *stream = context;
    if (stream->dead)
        destroy_when_unused(stream);
    else if (stream->state == LOST)
        report_stream_lost(stream);
    else if (stream->state == OPEN)
        flush_now(stream);
}

int weir_stream_write(struct weir_stream *stream, const void *bytes, size_t len)
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

static size_t read_records(struct weir_stream *stream, void *buf, size_t size)
{
    size_t got = 0;
    enum weir_tls_step step = weir_tls_read(stream->tls, buf, size, &got);
    stream->writes_first = step == WEIR_TLS_WRITES;
    if (stream->writes_first)
        (void)event_add(stream->writable, NULL);
    if (step == WEIR_TLS_FAILED)
        lose_connection(stream, weir_tls_why(stream->tls));
    return got;
}

/* Reads the bytes that are there, at most 'size'; 0: none now, or the stream is
 * lost. */
static size_t read_some(struct weir_stream *stream, void *buf, size_t size)
{
    if (stream->tls)
        return read_records(stream, buf, size);
    ssize_t got;
    do {
        got = recv(stream->fd, buf, size, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got > 0)
        return (size_t)got;
    if (got == 0)
        lose_connection(stream, "the peer closed the connection");
    else if (errno != EAGAIN && errno != EWOULDBLOCK)
        lose_connection(stream, strerror(errno));
    return 0;
}

/* Decrypted bytes may be left when the socket has none: the timer, which an
 * open stream doesn't use otherwise, reads them in the loop's next turn. */
static void look_at_stream_again(struct weir_stream *stream)
{
    if (!stream->tls)
        return;
    if (weir_tls_is_pending(stream->tls))
        (void)event_add(stream->timer, &(struct timeval){ .tv_sec = 0 });
    if (stream->reads_first)
        event_active(stream->flush, EV_TIMEOUT, 1);
}

/* Reads once and hands the bytes on; false: no more bytes now, or the stream is
 * gone. */
static bool read_once(struct weir_stream *stream, size_t size)
{
    uint8_t bytes[READ_SIZE];
    weir_assert(size <= sizeof(bytes));
    size_t got = read_some(stream, bytes, size);
    if (got == 0)
        return false;
    enter_stream(stream);
    if (stream->handler.on_bytes)
        stream->handler.on_bytes(stream->handler.context, stream, bytes, got);
    return leave_stream(stream) && stream->state == OPEN && got == size;
}

static void read_freely(struct weir_stream *stream)
{
    enter_stream(stream);
    for (int i = 0; i < READS_MAX && !stream->dead; i++)
        if (!read_once(stream, READ_SIZE))
            break;
    if (leave_stream(stream) && stream->state == OPEN)
        look_at_stream_again(stream);
}

/* A turn of an unauthenticated stream. */
static void on_stream_turn(void *context)
{
    struct weir_stream *stream = context;
    bool more = false;
    enter_stream(stream);
    if (stream->state == HANDSHAKE)
        shake_hands(stream);
    if (stream->state == OPEN && !stream->dead)
        more = read_once(stream, WEIR_RATION_READ);
    if (!leave_stream(stream) || stream->state == LOST)
        return;
    if (more && stream->member.ration)
        weir_ration_wait(&stream->member);
    else
        (void)event_add(stream->readable, NULL);
    if (stream->state == OPEN)
        look_at_stream_again(stream);
}

static void on_stream_evicted(void *context, const char *why)
{
    struct weir_stream *stream = context;
    if (!stream->unclaimed)
        report_evicted(stream->listener, stream->peer, why);
    lose_connection(stream, why);
}

static void on_stream_readable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_stream *stream = context;
    if (stream->member.ration) {
        (void)event_del(stream->readable);
        weir_ration_wait(&stream->member);
    } else if (stream->state == HANDSHAKE) {
        shake_hands(stream);
    } else {
        read_freely(stream);
    }
}

void weir_stream_set_authenticated(struct weir_stream *stream)
{
    if (!stream->member.ration)
        return;
    weir_ration_admit(&stream->member);
    if (stream->readable)
        (void)event_add(stream->readable, NULL);
    look_at_stream_again(stream);
}

/* ---- Connecting ---- */

static bool watch_stream(struct weir_stream *stream, int fd)
{
    int yes = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    stream->fd = fd;
    stream->readable = event_new(stream->base, fd, EV_READ | EV_PERSIST,
                                 on_stream_readable, stream);
    stream->writable = event_new(stream->base, fd, EV_WRITE | EV_PERSIST,
                                 on_stream_writable, stream);
    return stream->readable && stream->writable;
}

static void open_stream(struct weir_stream *stream)
{
    weir_assert(stream->state == CONNECTING || stream->state == HANDSHAKE);
    stream->state = OPEN;
    (void)event_del(stream->timer);
    (void)event_del(stream->writable);
    (void)event_add(stream->readable, NULL);
    if (evbuffer_get_length(stream->queue) > 0)
        event_active(stream->flush, EV_TIMEOUT, 1);
    look_at_stream_again(stream);
    if (stream->unclaimed) {
        stream->unclaimed = false;
        leave_handshakes(stream);
        stream->listener->options.on_accept(stream->listener->options.context,
                                            stream);
    } else if (stream->handler.on_open) {
        stream->handler.on_open(stream->handler.context, stream);
    }
}

/* Continues the handshake as far as possible. An accepted stream gets its
 * session in its first turn: sessions are large, and streams of a flood wait
 * long. */
static void shake_hands(struct weir_stream *stream)
{
    if (!stream->tls) {
        stream->tls = weir_tls_session_new(stream->listener->options.tls, NULL);
        if (!stream->tls) {
            lose_connection(stream, "no memory");
            return;
        }
        weir_tls_begin(stream->tls, stream->fd);
    }
    switch (weir_tls_handshake(stream->tls)) {
    case WEIR_TLS_DONE:
        open_stream(stream);
        return;
    case WEIR_TLS_READS:
        (void)event_del(stream->writable);
        return;
    case WEIR_TLS_WRITES:
        (void)event_add(stream->writable, NULL);
        return;
    case WEIR_TLS_FAILED:
        lose_connection(stream, weir_tls_why(stream->tls));
        return;
    }
}

/* The socket is connected. */
static void begin_handshake(struct weir_stream *stream)
{
    weir_assert(stream->state == CONNECTING && stream->tls);
    stream->state = HANDSHAKE;
    weir_tls_begin(stream->tls, stream->fd);
    (void)event_add(stream->readable, NULL);
    shake_hands(stream);
}

/* The address can't be reached. */
static void fail_address(struct weir_stream *stream, int error)
{
    close_socket(stream);
    if (stream->next)
        connect_next(stream);
    else
        lose_connection(stream, strerror(error));
}

static void on_stream_writable(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct weir_stream *stream = context;
    if (stream->state == HANDSHAKE) {
        shake_hands(stream);
        return;
    }
    if (stream->state != CONNECTING) {
        flush_now(stream);
        return;
    }
    int error = 0;
    socklen_t len = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (error != 0)
        fail_address(stream, error);
    else if (stream->tls)
        begin_handshake(stream);
    else
        open_stream(stream);
}

/* Begins to connect; an error is reported later. */
static void connect_stream(struct weir_stream *stream,
                           const struct sockaddr *address, socklen_t len)
{
    weir_assert(stream->fd < 0);
    stream->state = CONNECTING;
    weir_address_show(address, stream->peer);
    int fd = socket(address->sa_family,
                    SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        lose_connection(stream, strerror(errno));
        return;
    }
    if (!watch_stream(stream, fd)) {
        lose_connection(stream, "no memory");
        return;
    }
    int error = connect(fd, address, len) < 0 ? errno : 0;
    if (error != 0 && error != EINPROGRESS && error != EINTR)
        fail_address(stream, error);
    else
        (void)event_add(stream->writable, NULL);
}

static void connect_next(struct weir_stream *stream)
{
    const struct evutil_addrinfo *at = stream->next;
    stream->next = at->ai_next;
    connect_stream(stream, at->ai_addr, (socklen_t)at->ai_addrlen);
}

static void on_resolved(int error, struct evutil_addrinfo *found, void *context)
{
    struct weir_stream *stream = context;
    stream->lookup = NULL;
    stream->found = found;
    stream->next = found;
    if (stream->dead) {
        /* Not within the resolver, which is freed with the stream. */
        event_active(stream->flush, EV_TIMEOUT, 1);
        return;
    }
    /* The timeout may have come before. */
    if (stream->state != RESOLVING)
        return;
    if (error != 0 || !found)
        lose_connection(stream, evutil_gai_strerror(error));
    else
        connect_next(stream);
}

static void resolve_name(struct weir_stream *stream,
                         const struct weir_address *address)
{
    stream->state = RESOLVING;
    stream->dns =
        evdns_base_new(stream->base, EVDNS_BASE_INITIALIZE_NAMESERVERS |
                                         EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    if (!stream->dns) {
        lose_connection(stream,
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
    enter_stream(stream);
    stream->lookup = evdns_getaddrinfo(stream->dns, address->host, port, &hints,
                                       on_resolved, stream);
    (void)leave_stream(stream);
}

static void on_stream_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_stream *stream = context;
    if (stream->state == FLUSHING) {
        stream->state = LOST;
        destroy_when_unused(stream);
        return;
    }
    if (stream->state == OPEN) {
        on_stream_readable(stream->fd, EV_READ, stream);
        return;
    }
    static const char *const late[] = {
        [RESOLVING] = "the name was not found in time",
        [CONNECTING] = "no connection in time",
        [HANDSHAKE] = "no handshake in time: does the peer speak TLS?",
    };
    weir_assert(stream->state <= HANDSHAKE);
    lose_connection(stream, late[stream->state]);
}

/* ---- Calls by the owner ---- */

static struct weir_stream *stream_new(struct event_base *base)
{
    struct weir_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    stream->base = base;
    stream->fd = -1;
    stream->queue = evbuffer_new();
    stream->flush = event_new(base, -1, 0, on_stream_flush, stream);
    stream->timer = event_new(base, -1, 0, on_stream_timer, stream);
    if (stream->queue && stream->flush && stream->timer)
        return stream;
    destroy_stream(stream);
    return NULL;
}

struct weir_stream *weir_stream_connect(struct event_base *base,
                                        const struct weir_address *address,
                                        struct weir_tls *tls,
                                        weir_duration timeout,
                                        const struct weir_stream_handler *h)
{
    struct weir_stream *stream = stream_new(base);
    if (!stream)
        return NULL;
    stream->handler = *h;
    stream->tls = tls ? weir_tls_session_new(tls, address->host) : NULL;
    if (tls && !stream->tls) {
        destroy_stream(stream);
        return NULL;
    }
    struct timeval delay =
        weir_timeval_of(timeout > 0 ? timeout : CONNECT_TIMEOUT);
    (void)event_add(stream->timer, &delay);
    (void)evutil_snprintf(stream->peer, sizeof(stream->peer), "%s:%u",
                          address->host, address->port);
    struct sockaddr_storage numeric;
    socklen_t len;
    if (weir_address_numeric(address, &numeric, &len))
        connect_stream(stream, (struct sockaddr *)&numeric, len);
    else
        resolve_name(stream, address);
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
    weir_assert(!self->dead && self->state != FLUSHING);
    self->dead = true;
    leave_handshakes(self);
    weir_ration_leave(&self->member);
    self->handler = (struct weir_stream_handler){ .context = NULL };
    if (self->lookup)
        evdns_getaddrinfo_cancel(self->lookup);
    bool wants = flush && self->state == OPEN;
    if (wants && !flush_rest(self)) {
        struct timeval delay = { .tv_sec = FLUSH_SECONDS };
        self->state = FLUSHING;
        (void)event_del(self->readable);
        (void)event_add(self->writable, NULL);
        (void)event_add(self->timer, &delay);
        /* The timer's event keeps the stream until the rest is written. */
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

bool weir_stream_is_refused(const struct weir_stream *stream)
{
    return stream->tls && weir_tls_is_refused(stream->tls);
}

bool weir_stream_peer_names(const struct weir_stream *stream,
                            struct weir_tls_peer *out)
{
    if (!stream->tls)
        return false;
    weir_tls_session_names(stream->tls, out);
    return true;
}

const char *weir_stream_peer_doubt(const struct weir_stream *stream,
                                   const struct weir_tls *now)
{
    return stream->tls ? weir_tls_session_doubt(stream->tls, now) : NULL;
}

/* ---- Listeners ---- */

/* Makes a stream of a connected socket, which it owns from here on. Without TLS
 * it is open; else it is in the list of handshakes until it is open or lost.
 * NULL: no memory, the socket is closed. */
static struct weir_stream *new_accepted_stream(struct weir_listener *listener,
                                               int fd,
                                               const struct sockaddr *peer)
{
    struct weir_stream *stream = stream_new(listener->base);
    if (!stream) {
        close(fd);
        return NULL;
    }
    weir_address_show(peer, stream->peer);
    if (!watch_stream(stream, fd) || event_add(stream->readable, NULL) < 0) {
        destroy_stream(stream);
        return NULL;
    }
    weir_assert(listener->live > 0 && !stream->listed);
    stream->listener = listener;
    stream->state = OPEN;
    stream->member = (struct weir_ration_member){ .turn = on_stream_turn,
                                                  .evict = on_stream_evicted,
                                                  .context = stream };
    weir_ration_join(listener->ration, &stream->member, peer);
    if (!listener->options.tls)
        return stream;
    struct timeval delay = weir_timeval_of(WEIR_TLS_HANDSHAKE_MAX);
    (void)event_add(stream->timer, &delay);
    stream->unclaimed = stream->listed = true;
    TAILQ_INSERT_TAIL(&listener->handshakes, stream, among);
    /* Usually no bytes are there yet: the loop begins the handshake. */
    stream->state = HANDSHAKE;
    return stream;
}

static bool evict_stream(void *context)
{
    struct weir_listener *listener = context;
    return weir_ration_evict(listener->ration,
                             "no descriptor is left, and this connection was "
                             "the oldest without a credential of the "
                             "address with most of them");
}

static void on_listener_socket(void *context, int fd,
                               const struct sockaddr *peer)
{
    struct weir_listener *listener = context;
    weir_assert(listener->acceptor);
    listener->live++;
    if (listener->live >= listener->options.max) {
        (void)weir_ration_evict(listener->ration, "too many peers are "
                                                  "connected");
        weir_acceptor_set_open(listener->acceptor, false);
    }
    struct weir_stream *stream = new_accepted_stream(listener, fd, peer);
    if (!stream)
        release_listener(listener);
    else if (!listener->options.tls)
        listener->options.on_accept(listener->options.context, stream);
}

/* On success the listener owns 'fd'. */
static int start_listener(struct weir_listener *listener, int fd)
{
    const struct weir_listener_options *options = &listener->options;
    const struct weir_ration_options ration = {
        .base = listener->base,
        .places = options->places ? options->places : (options->max + 1) / 2,
    };
    const struct weir_acceptor_options acceptor = {
        .base = listener->base,
        .fd = fd,
        .on_socket = on_listener_socket,
        .make_room = evict_stream,
        .on_short = options->on_short,
        .context = listener,
    };
    listener->ration = weir_ration_new(&ration);
    return listener->ration ? weir_acceptor_new(&acceptor, &listener->acceptor)
                            : WEIR_ENOMEM;
}

int weir_listener_new(struct event_base *base,
                      const struct weir_listener_options *options,
                      struct weir_listener **out, struct weir_diag *diag)
{
    struct weir_listen_address place = { .address = options->address };
    int fd = weir_listen_address_listen(&place, diag);
    if (fd < 0)
        return fd;
    struct weir_listener *listener = calloc(1, sizeof(*listener));
    int error = listener ? 0 : WEIR_ENOMEM;
    if (error == 0) {
        listener->base = base;
        listener->options = *options;
        listener->port = place.address.port;
        TAILQ_INIT(&listener->handshakes);
        error = start_listener(listener, fd);
    }
    if (error < 0) {
        close(fd);
        if (listener)
            free_listener_if_unused(listener);
        return weir_diag_put(diag, error, NULL);
    }
    *out = listener;
    return 0;
}

uint16_t weir_listener_port(const struct weir_listener *listener)
{
    return listener->port;
}

void weir_listener_doubt(struct weir_listener *listener)
{
    while (listener && !TAILQ_EMPTY(&listener->handshakes)) {
        struct weir_stream *stream = TAILQ_FIRST(&listener->handshakes);
        weir_assert(stream->unclaimed && stream->state == HANDSHAKE);
        lose_connection(stream, WEIR_TLS_OUTDATED);
    }
}

void weir_listener_free(struct weir_listener **listener)
{
    struct weir_listener *self = *listener;
    if (!self)
        return;
    *listener = NULL;
    while (!TAILQ_EMPTY(&self->handshakes)) {
        struct weir_stream *stream = TAILQ_FIRST(&self->handshakes);
        weir_stream_close(&stream, false);
    }
    weir_acceptor_free(&self->acceptor);
    free_listener_if_unused(self);
}
