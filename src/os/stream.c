/* SPDX-License-Identifier: MIT
 * os/stream.c - connections on a libevent loop.
 *
 * Theory of operation. A stream is a socket, two events on it and a queue:
 *
 *     CONNECTING --writable--> (HANDSHAKE -->) OPEN --error, end--> LOST
 *          \---refused, time out-----/-----------------------------/
 *     any --close--> (FLUSHING --written, 2 s-->) freed
 *
 * Writing. Bytes are queued (an evbuffer) and leave at the end of the loop's
 * turn, by one sendmsg for all that was queued in it: 'flush' is an event
 * that is made active by hand, and libevent runs it after those that are
 * active already. If the kernel takes less, the rest waits for writability.
 *
 * TLS is a session beside the socket: who reads asks it for bytes and not the
 * socket, who writes hands it the queue's front, a record at a time. The queue
 * stays in plain text, and so do its bounds. A stream that was accepted has no
 * owner during its handshake; it is in the listener's list and reports to
 * that.
 *
 * A stream that was accepted is a member of the listener's ration until its
 * owner calls it authenticated (os/ration.h): when its socket is readable the
 * socket is no longer watched, the stream waits for its turn, reads once, and
 * is watched again.
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
#include "os/tls_session.h"

#define CONNECT_TIMEOUT (5 * WEIR_SECOND)
#define FLUSH_SECONDS 2      /* for the rest, when closing */
#define READ_SIZE (64 << 10) /* bytes read at once */
#define READS_MAX 4          /* in a row, before others have their turn */
#define PIECES_MAX 64        /* of the queue in one write */
#define RECORD_SIZE 16384    /* bytes of the queue in one record of TLS */

enum state { RESOLVING, CONNECTING, HANDSHAKE, OPEN, LOST, FLUSHING };

struct weir_stream {
    struct event_base *base;
    struct weir_stream_handler handler;
    struct weir_listener *listener;    /* that accepted it, or NULL */
    struct weir_tls_session *tls;      /* owned; NULL: plain text */
    struct weir_stream *older, *newer; /* among the listener's handshakes */
    struct weir_ration_member member;  /* until it is authenticated */
    struct evdns_base *dns;            /* while looking up, and till the end */
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
    bool unclaimed;     /* accepted, and no owner knows of it */
    bool listed;        /* among the listener's handshakes */
    bool reads_first;   /* TLS can't write before it has read */
    bool writes_first;  /* … nor read before it has written */
    bool above;         /* the queue was above the low mark */
    const char *reason; /* of the loss that is still to be told */
    char peer[WEIR_PEER_MAX];
};

static void on_readable(evutil_socket_t fd, short what, void *context);
static void on_writable(evutil_socket_t fd, short what, void *context);
static void connect_next(struct weir_stream *stream);
static void shake_hands(struct weir_stream *stream);

/* ---- Handshakes of a listener ---- */

static void join_handshakes(struct weir_stream *stream)
{
    struct weir_handshakes *all = weir_listener_handshakes(stream->listener);
    stream->listed = true;
    stream->older = all->newest;
    *(all->newest ? &all->newest->newer : &all->oldest) = stream;
    all->newest = stream;
}

static void leave_handshakes(struct weir_stream *stream)
{
    if (!stream->listed)
        return;
    struct weir_handshakes *all = weir_listener_handshakes(stream->listener);
    stream->listed = false;
    *(stream->older ? &stream->older->newer : &all->oldest) = stream->newer;
    *(stream->newer ? &stream->newer->older : &all->newest) = stream->older;
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

static void destroy(struct weir_stream *stream)
{
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

/* Of a peer that may still have something to read from us. */
static void part(struct weir_stream *stream)
{
    if (stream->fd < 0)
        return;
    (void)shutdown(stream->fd, SHUT_WR);
    drop_input(stream->fd);
}

/* The loss is told by the loop, not by who found it. */
static void lose(struct weir_stream *stream, const char *why)
{
    if (stream->state == LOST || stream->dead)
        return;
    /* An alert says to the peer what we know. */
    if (stream->state == HANDSHAKE)
        part(stream);
    leave_handshakes(stream);
    weir_ration_leave(&stream->member);
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
    if (stream->unclaimed) {
        stream->dead = true;
        weir_listener_refuse(stream->listener, stream->peer, why);
        destroy_when_unused(stream);
        return;
    }
    if (stream->handler.on_lost)
        stream->handler.on_lost(stream->handler.context, stream, why);
}

/* ---- Writing ---- */

/* The queue's front as records of TLS. */
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

/* Writes what the kernel takes: NULL, or why it can't. */
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
    part(stream);
    stream->state = LOST;
    destroy_when_unused(stream);
}

/* Writes the rest of a closed stream; false: there is still some. */
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
        lose(stream, why);
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
        lose(stream, weir_tls_why(stream->tls));
    return got;
}

/* What there is, at most 'size' bytes; 0: nothing now, or it is lost. */
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
        lose(stream, "the peer closed the connection");
    else if (errno != EAGAIN && errno != EWOULDBLOCK)
        lose(stream, strerror(errno));
    return 0;
}

/* What TLS holds back beside what the socket says: to be read in the loop's
 * next turn, by the timer, which an open stream has no other use for. */
static void look_again(struct weir_stream *stream)
{
    if (!stream->tls)
        return;
    if (weir_tls_is_pending(stream->tls))
        (void)event_add(stream->timer, &(struct timeval){ .tv_sec = 0 });
    if (stream->reads_first)
        event_active(stream->flush, EV_TIMEOUT, 1);
}

/* Reads once and hands the bytes on; false: nothing more is there now, or the
 * stream is gone. */
static bool read_once(struct weir_stream *stream, size_t size)
{
    uint8_t bytes[READ_SIZE];
    weir_assert(size <= sizeof(bytes));
    size_t got = read_some(stream, bytes, size);
    if (got == 0)
        return false;
    enter(stream);
    if (stream->handler.on_bytes)
        stream->handler.on_bytes(stream->handler.context, stream, bytes, got);
    return leave(stream) && stream->state == OPEN && got == size;
}

static void read_freely(struct weir_stream *stream)
{
    enter(stream);
    for (int i = 0; i < READS_MAX && !stream->dead; i++)
        if (!read_once(stream, READ_SIZE))
            break;
    if (leave(stream) && stream->state == OPEN)
        look_again(stream);
}

/* The turn of a stream that isn't authenticated. */
static void on_turn(void *context)
{
    struct weir_stream *stream = context;
    bool more = false;
    enter(stream);
    if (stream->state == HANDSHAKE)
        shake_hands(stream);
    if (stream->state == OPEN && !stream->dead)
        more = read_once(stream, WEIR_RATION_READ);
    if (!leave(stream) || stream->state == LOST)
        return;
    if (more && stream->member.ration)
        weir_ration_wait(&stream->member);
    else
        (void)event_add(stream->readable, NULL);
    if (stream->state == OPEN)
        look_again(stream);
}

static void on_evicted(void *context, const char *why)
{
    struct weir_stream *stream = context;
    if (!stream->unclaimed)
        weir_listener_evicted(stream->listener, stream->peer, why);
    lose(stream, why);
}

static void on_readable(evutil_socket_t fd, short what, void *context)
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
    look_again(stream);
}

/* ---- Connecting ---- */

static bool watch(struct weir_stream *stream, int fd)
{
    int yes = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    stream->fd = fd;
    stream->readable =
        event_new(stream->base, fd, EV_READ | EV_PERSIST, on_readable, stream);
    stream->writable =
        event_new(stream->base, fd, EV_WRITE | EV_PERSIST, on_writable, stream);
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
    look_again(stream);
    if (stream->unclaimed) {
        stream->unclaimed = false;
        leave_handshakes(stream);
        weir_listener_open(stream->listener, stream);
    } else if (stream->handler.on_open) {
        stream->handler.on_open(stream->handler.context, stream);
    }
}

static bool secure(struct weir_stream *stream, struct weir_tls *tls,
                   const char *host)
{
    stream->tls = weir_tls_session_new(tls, host);
    return stream->tls;
}

/* Goes on with the handshake as far as it goes. An accepted stream has its
 * session from its first turn on: sessions are large, and streams of a flood
 * wait long. */
static void shake_hands(struct weir_stream *stream)
{
    if (!stream->tls) {
        if (!secure(stream, weir_listener_tls(stream->listener), NULL)) {
            lose(stream, "no memory");
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
        lose(stream, weir_tls_why(stream->tls));
        return;
    }
}

/* The socket is connected. */
static void begin_handshake(struct weir_stream *stream)
{
    stream->state = HANDSHAKE;
    weir_tls_begin(stream->tls, stream->fd);
    (void)event_add(stream->readable, NULL);
    shake_hands(stream);
}

static void on_writable(evutil_socket_t fd, short what, void *context)
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
    if (error == 0 && stream->tls) {
        begin_handshake(stream);
        return;
    }
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

static void on_resolved(int error, struct evutil_addrinfo *found, void *context)
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
    stream->dns =
        evdns_base_new(stream->base, EVDNS_BASE_INITIALIZE_NAMESERVERS |
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
    stream->lookup = evdns_getaddrinfo(stream->dns, address->host, port, &hints,
                                       on_resolved, stream);
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
    if (stream->state == OPEN) {
        on_readable(stream->fd, EV_READ, stream);
        return;
    }
    static const char *const late[] = {
        [RESOLVING] = "the name was not found in time",
        [CONNECTING] = "no connection in time",
        [HANDSHAKE] = "no handshake in time: does the peer speak TLS?",
    };
    weir_assert(stream->state <= HANDSHAKE);
    lose(stream, late[stream->state]);
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
    struct weir_stream *stream = stream_new(base);
    if (!stream)
        return NULL;
    stream->handler = *h;
    if (tls && !secure(stream, tls, address->host)) {
        destroy(stream);
        return NULL;
    }
    struct timeval delay = timeval_of(timeout > 0 ? timeout : CONNECT_TIMEOUT);
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
                                         struct weir_tls *tls,
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
    stream->member = (struct weir_ration_member){ .turn = on_turn,
                                                  .evict = on_evicted,
                                                  .context = stream };
    weir_ration_join(weir_listener_ration(listener), &stream->member, peer);
    if (!tls)
        return stream;
    struct timeval delay = timeval_of(WEIR_TLS_HANDSHAKE_MAX);
    (void)event_add(stream->timer, &delay);
    stream->unclaimed = true;
    join_handshakes(stream);
    /* Nothing to read yet, as a rule: the loop begins it. */
    stream->state = HANDSHAKE;
    return stream;
}

void weir_stream_give_up(struct weir_stream *stream, const char *why)
{
    weir_assert(stream->unclaimed);
    lose(stream, why);
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
    (void)evutil_snprintf(buf, WEIR_PEER_MAX, is_v6 ? "[%s]:%u" : "%s:%u", host,
                          port);
}
