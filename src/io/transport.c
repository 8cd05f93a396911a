/* SPDX-License-Identifier: MIT
 * io/transport.c - a socket, plain or TLS, and the steps that it needs next.
 *
 * Theory of operation.
 *
 *     NONE --connect--> CONNECTING --.
 *      '------accept------------------+--> (SHAKING -->) OPEN --close--> NONE
 *
 * The socket is watched for reading unless the policy has paused or the
 * connection waits for a turn of its ration, and for writing only while a step
 * waits for that: connecting, a write that the socket didn't take whole, or a
 * step of TLS that must write before it goes on. weir_transport_watch() derives
 * both from the state; it costs no system call if nothing has changed.
 *
 * Unsent bytes are one piece of memory, which grows by doubling and is freed
 * when all is sent: an idle connection holds none. TLS takes them as records.
 *
 * Decrypted bytes may be left when the socket has none. The timer, which an
 * open transport doesn't use otherwise, reads them after other connections had
 * their turn: if the event were active at once, it would be the loop's next,
 * and a peer that never stops sending would block all others.
 *
 * An accepted transport gets its TLS session in its first turn: sessions are
 * large, and connections of a flood wait long for their turn.
 *
 * Rejected: bufferevents. They write by writev(), which raises SIGPIPE, and a
 * library can't change the process's signals; they make sockets without
 * close-on-exec; and they have buffers of their own, which a connection that is
 * answered in its turn doesn't need. */

#include "io/transport.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"

#define NO_MEMORY "no memory is left for the connection"
#define PEER_CLOSED "the peer closed the connection"

/* ---- Life ---- */

void weir_transport_init(struct weir_transport *transport,
                         const struct weir_transport_policy *policy,
                         struct event_base *base)
{
    *transport = (struct weir_transport){
        .policy = policy,
        .base = base,
        .fd = -1,
    };
}

static void drop_event(struct event **event)
{
    if (*event)
        event_free(*event);
    *event = NULL;
}

/* Ends our half. Discards unread input, so that closing doesn't reset the
 * connection before the peer has read our last bytes. */
static void shut_socket(int fd)
{
    char bytes[4096];
    (void)shutdown(fd, SHUT_WR);
    for (int i = 0; i < 64; i++) {
        if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0)
            return;
    }
}

static void close_socket(struct weir_transport *transport)
{
    drop_event(&transport->readable);
    drop_event(&transport->writable);
    transport->reads = transport->writes = false;
    if (transport->fd < 0)
        return;
    /* Our last bytes: a TLS alert with the reason of a failed handshake, or
     * those before the end. */
    if (transport->state == WEIR_TRANSPORT_SHAKING ||
        (transport->ended && !transport->why))
        shut_socket(transport->fd);
    close(transport->fd);
    transport->fd = -1;
    transport->state = WEIR_TRANSPORT_NONE;
}

void weir_transport_close(struct weir_transport *transport)
{
    weir_ration_leave(&transport->accepted.member);
    drop_event(&transport->timer);
    close_socket(transport);
}

void weir_transport_fini(struct weir_transport *transport)
{
    weir_assert(transport->users == 0);
    weir_transport_close(transport);
    weir_byte_queue_fini(&transport->queue);
    weir_tls_session_free(&transport->tls);
    weir_acceptor_leave(&transport->accepted);
}

void weir_transport_enter(struct weir_transport *transport)
{
    transport->users++;
}

bool weir_transport_leave(struct weir_transport *transport)
{
    weir_assert(transport->users > 0);
    transport->users--;
    if (!transport->killed)
        return true;
    if (transport->users == 0)
        transport->policy->on_free(transport);
    return false;
}

void weir_transport_kill(struct weir_transport *transport)
{
    weir_transport_enter(transport);
    transport->killed = true;
    (void)weir_transport_leave(transport);
}

/* ---- Events ---- */

static void on_socket_readable(evutil_socket_t fd, short what, void *context);
static void on_socket_writable(evutil_socket_t fd, short what, void *context);

void weir_transport_fail(struct weir_transport *transport, const char *why)
{
    weir_assert(why);
    if (transport->why)
        return;
    transport->why = why;
    if (transport->users == 0)
        weir_transport_wake(transport);
}

void weir_transport_wake(struct weir_transport *transport)
{
    if (transport->readable)
        event_active(transport->readable, EV_READ, 0);
}

static void set_watch(struct weir_transport *transport, struct event *event,
                      bool *is_on, bool wanted)
{
    if (wanted && (!event || event_add(event, NULL) < 0)) {
        weir_transport_fail(transport, NO_MEMORY);
        return;
    }
    if (!wanted)
        (void)event_del(event);
    *is_on = wanted;
}

void weir_transport_watch(struct weir_transport *transport)
{
    if (transport->fd < 0)
        return;
    bool connecting = transport->state == WEIR_TRANSPORT_CONNECTING;
    bool reads = !connecting && !transport->accepted.member.waits &&
                 (!transport->paused || transport->reads_first);
    bool writes = connecting || transport->writes_first ||
                  (transport->stalled && !transport->reads_first);
    if (reads != transport->reads)
        set_watch(transport, transport->readable, &transport->reads, reads);
    if (writes == transport->writes)
        return;
    if (!transport->writable)
        transport->writable =
            event_new(transport->base, transport->fd, EV_WRITE | EV_PERSIST,
                      on_socket_writable, transport);
    set_watch(transport, transport->writable, &transport->writes, writes);
}

/* Takes the socket, which it owns also on failure. False: no memory. */
static bool take_socket(struct weir_transport *transport, int fd)
{
    weir_assert(transport->fd < 0 && !transport->readable);
    transport->fd = fd;
    transport->readable = event_new(transport->base, fd, EV_READ | EV_PERSIST,
                                    on_socket_readable, transport);
    return transport->readable != NULL;
}

void weir_transport_run(struct weir_transport *transport,
                        void (*step)(struct weir_transport *transport))
{
    weir_transport_enter(transport);
    if (!transport->why)
        step(transport);
    if (!transport->why)
        weir_transport_watch(transport);
    if (transport->why)
        transport->policy->on_failed(transport);
    (void)weir_transport_leave(transport);
}

/* ---- Handshake ---- */

static void open_transport(struct weir_transport *transport)
{
    transport->state = WEIR_TRANSPORT_OPEN;
    if (transport->timer)
        (void)event_del(transport->timer);
    if (transport->policy->on_open)
        transport->policy->on_open(transport);
}

/* Continues the handshake as far as possible. */
static void shake_hands(struct weir_transport *transport)
{
    if (!transport->tls) {
        struct weir_tls *tls = weir_acceptor_tls(transport->accepted.acceptor);
        transport->tls = weir_tls_session_new(tls, NULL);
        if (!transport->tls) {
            weir_transport_fail(transport, NO_MEMORY);
            return;
        }
        weir_tls_begin(transport->tls, transport->fd);
    }
    enum weir_tls_step step = weir_tls_handshake(transport->tls);
    transport->writes_first = step == WEIR_TLS_WRITES;
    if (step == WEIR_TLS_DONE)
        open_transport(transport);
    else if (step == WEIR_TLS_FAILED)
        weir_transport_fail(transport, weir_tls_why(transport->tls));
}

/* Whether the policy may be called for an event of the open socket. */
static bool is_served(const struct weir_transport *transport)
{
    return transport->state == WEIR_TRANSPORT_OPEN && !transport->why;
}

/* ---- Readable ---- */

static void read_step(struct weir_transport *transport)
{
    if (transport->state == WEIR_TRANSPORT_SHAKING)
        shake_hands(transport);
    if (transport->reads_first && is_served(transport))
        transport->policy->on_writable(transport);
    if (!is_served(transport) || transport->killed)
        return;
    transport->policy->on_readable(transport);
    if (transport->tls && !transport->paused && is_served(transport) &&
        weir_tls_is_pending(transport->tls))
        weir_transport_arm(transport, 0);
}

static void wait_for_turn(struct weir_transport *transport)
{
    weir_ration_wait(&transport->accepted.member);
}

static void on_socket_readable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_transport *transport = context;
    weir_transport_run(transport, transport->accepted.member.ration
                                      ? wait_for_turn
                                      : read_step);
}

static void on_ration_turn(void *context)
{
    weir_transport_run(context, read_step);
}

static void on_ration_evicts(void *context, const char *why)
{
    struct weir_transport *transport = context;
    weir_assert(transport->users == 0);
    /* Not by the loop: its descriptor may be the one that is missing. */
    weir_transport_enter(transport);
    weir_transport_fail(transport, why);
    transport->evicted = true;
    transport->policy->on_failed(transport);
    (void)weir_transport_leave(transport);
}

void weir_transport_admit(struct weir_transport *transport)
{
    weir_ration_admit(&transport->accepted.member);
    if (transport->users == 0)
        weir_transport_watch(transport);
}

/* ---- Timer ---- */

static void late_step(struct weir_transport *transport)
{
    if (transport->state == WEIR_TRANSPORT_SHAKING)
        weir_transport_fail(transport, WEIR_TLS_LATE);
    else
        transport->policy->on_late(transport);
}

static void on_transport_timer(evutil_socket_t fd, short what, void *context)
{
    struct weir_transport *transport = context;
    if (transport->state == WEIR_TRANSPORT_OPEN && !transport->killed)
        on_socket_readable(fd, what, context);
    else
        weir_transport_run(transport, late_step);
}

void weir_transport_arm(struct weir_transport *transport, weir_duration delay)
{
    struct timeval in = weir_timeval_of(delay);
    if (!transport->timer)
        transport->timer =
            event_new(transport->base, -1, 0, on_transport_timer, transport);
    if (!transport->timer || event_add(transport->timer, &in) < 0)
        weir_transport_fail(transport, NO_MEMORY);
}

/* ---- Writable ---- */

static void finish_connecting(struct weir_transport *transport)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(transport->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (error != 0) {
        weir_transport_fail(transport, strerror(error));
    } else if (transport->tls) {
        transport->state = WEIR_TRANSPORT_SHAKING;
        weir_tls_begin(transport->tls, transport->fd);
        shake_hands(transport);
    } else {
        open_transport(transport);
    }
}

static void write_step(struct weir_transport *transport)
{
    bool reads = transport->writes_first;
    if (transport->state == WEIR_TRANSPORT_CONNECTING)
        finish_connecting(transport);
    else if (transport->state == WEIR_TRANSPORT_SHAKING)
        shake_hands(transport);
    else
        transport->policy->on_writable(transport);
    /* TLS has bytes for which the socket doesn't become readable again. */
    if (reads && is_served(transport))
        weir_transport_wake(transport);
}

static void on_socket_writable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    weir_transport_run(context, write_step);
}

/* ---- Begin ---- */

bool weir_transport_accept(struct weir_transport *transport,
                           struct weir_acceptor *acceptor, int fd,
                           const struct sockaddr *peer)
{
    bool has_tls = weir_acceptor_tls(acceptor) != NULL;
    weir_address_show(peer, transport->peer);
    if (!take_socket(transport, fd))
        return false;
    transport->state = has_tls ? WEIR_TRANSPORT_SHAKING : WEIR_TRANSPORT_OPEN;
    if (has_tls)
        weir_transport_arm(transport, WEIR_TLS_HANDSHAKE_MAX);
    weir_transport_watch(transport);
    if (transport->why)
        return false;
    transport->accepted.member = (struct weir_ration_member){
        .turn = on_ration_turn,
        .evict = on_ration_evicts,
        .context = transport,
    };
    weir_acceptor_join(acceptor, &transport->accepted, peer);
    return true;
}

static void begin_connecting(struct weir_transport *transport,
                             const struct sockaddr *address, socklen_t len)
{
    weir_address_show(address, transport->peer);
    int fd = socket(address->sa_family,
                    SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        weir_transport_fail(transport, strerror(errno));
        return;
    }
    if (!take_socket(transport, fd)) {
        weir_transport_fail(transport, NO_MEMORY);
        return;
    }
    transport->state = WEIR_TRANSPORT_CONNECTING;
    int error = connect(fd, address, len) < 0 ? errno : 0;
    if (error != 0 && error != EINPROGRESS && error != EINTR)
        weir_transport_fail(transport, strerror(error));
    else
        weir_transport_watch(transport);
}

void weir_transport_connect(struct weir_transport *transport,
                            const struct sockaddr *address, socklen_t len)
{
    close_socket(transport);
    transport->why = NULL;
    weir_transport_enter(transport);
    begin_connecting(transport, address, len);
    (void)weir_transport_leave(transport);
}

/* ---- Bytes in ---- */

static bool is_again(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static size_t read_records(struct weir_transport *transport, void *buf,
                           size_t size)
{
    size_t got = 0;
    enum weir_tls_step step = weir_tls_read(transport->tls, buf, size, &got);
    transport->writes_first = step == WEIR_TLS_WRITES;
    if (step == WEIR_TLS_FAILED)
        weir_transport_fail(transport, weir_tls_why(transport->tls));
    return got;
}

size_t weir_transport_read(struct weir_transport *transport, void *buf,
                           size_t size)
{
    weir_assert(transport->state == WEIR_TRANSPORT_OPEN && size > 0);
    if (transport->accepted.member.ration && size > WEIR_RATION_READ)
        size = WEIR_RATION_READ;
    if (transport->tls)
        return read_records(transport, buf, size);
    ssize_t got = recv(transport->fd, buf, size, MSG_DONTWAIT);
    if (got > 0)
        return (size_t)got;
    if (got == 0)
        weir_transport_fail(transport, PEER_CLOSED);
    else if (!is_again(errno))
        weir_transport_fail(transport, strerror(errno));
    return 0;
}

/* ---- Bytes out ---- */

static size_t write_records(struct weir_transport *transport, const char *bytes,
                            size_t len)
{
    enum weir_tls_step step = WEIR_TLS_DONE;
    size_t sent = 0;
    while (sent < len && step == WEIR_TLS_DONE) {
        size_t some = 0;
        step = weir_tls_write(transport->tls, bytes + sent, len - sent, &some);
        sent += some;
    }
    transport->reads_first = step == WEIR_TLS_READS;
    if (step == WEIR_TLS_FAILED)
        weir_transport_fail(transport, weir_tls_why(transport->tls));
    return sent;
}

/* Sends as many bytes as the socket takes. */
static size_t send_some(struct weir_transport *transport, const char *bytes,
                        size_t len)
{
    if (transport->tls)
        return write_records(transport, bytes, len);
    ssize_t sent = send(transport->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return (size_t)sent;
    if (!is_again(errno))
        weir_transport_fail(transport, strerror(errno));
    return 0;
}

bool weir_transport_queue(struct weir_transport *transport, const void *bytes,
                          size_t len)
{
    if (!weir_byte_queue_reserve(&transport->queue, len)) {
        weir_transport_fail(transport, NO_MEMORY);
        return false;
    }
    weir_byte_queue_append(&transport->queue, bytes, len);
    return true;
}

void weir_transport_send(struct weir_transport *transport, const void *bytes,
                         size_t len)
{
    size_t sent = 0;
    if (transport->why || len == 0)
        return;
    if (weir_transport_queued(transport) == 0)
        sent = send_some(transport, bytes, len);
    if (transport->why || sent == len)
        return;
    transport->stalled = true;
    (void)weir_transport_queue(transport, (const char *)bytes + sent,
                               len - sent);
}

void weir_transport_flush(struct weir_transport *transport)
{
    struct weir_byte_queue *queue = &transport->queue;
    size_t left = weir_byte_queue_left(queue);
    if (transport->why)
        return;
    weir_assert(transport->state == WEIR_TRANSPORT_OPEN);
    size_t sent = 0;
    if (left > 0)
        sent = send_some(transport, (const char *)queue->p + queue->head, left);
    transport->stalled = sent < left;
    weir_byte_queue_take(queue, sent);
    if (sent == left)
        weir_byte_queue_fini(queue);
}

bool weir_transport_end(struct weir_transport *transport)
{
    weir_assert(transport->state == WEIR_TRANSPORT_OPEN);
    transport->stalled =
        transport->tls && weir_tls_end(transport->tls) == WEIR_TLS_WRITES;
    if (transport->stalled)
        return false;
    transport->ended = true;
    if (shutdown(transport->fd, SHUT_WR) < 0)
        weir_transport_fail(transport, strerror(errno));
    return true;
}
