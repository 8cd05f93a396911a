/* SPDX-License-Identifier: MIT
 * io/conn.c - sockets that are read, answered and written in one turn.
 *
 * Theory of operation. io/stream.c queues bytes for each connection and writes
 * them at the end of the loop's turn, which suits messages between limiters and
 * roots. Here a hundred thousand small requests a second come from many
 * connections, each answered from memory in less time than a system call. A
 * turn is therefore: one read into a buffer that all connections share, the
 * answers into another, one write. A connection has its own memory only for
 * the rest of a turn: the beginning of a request ('pending'), or the end of an
 * answer that the peer didn't take (the transport's queue). Ten thousand idle
 * connections are ten thousand small structs.
 *
 *     open ----- a rest is left ----> stalled: not read until it is sent
 *      |  <---- the rest is sent ----    |
 *      |                                 | (30 s: gone)
 *      +-- its owner ends it, all sent --> ending: read and dropped, 2 s
 *
 * A connection is busy while its callee owes an answer, and isn't read: the
 * peer's next requests wait in the socket. A dead peer is noticed when the
 * answer is written.
 *
 * A walk over all connections checks timeouts once a second: cheaper than a
 * timer each, and exact to a second.
 *
 * The transport frees a connection after its turn, so the callee may end the
 * connection and go on using it. */

#include "io/conn.h"

#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/transport.h"

#define IN_SIZE (WEIR_CONN_PAUSED_MAX + WEIR_CONN_READ)
#define OUT_SIZE (64u << 10)

struct weir_conn {
    struct weir_transport transport; /* first: the policy's functions get it */
    struct weir_conn_server *server; /* borrowed */
    char *pending;                   /* owned; NULL: nothing */
    size_t pending_len;
    size_t lingered; /* bytes read since our half ended */
    weir_instant since, heard, stalled_at;
    weir_instant request_at; /* an incomplete request began; 0: there is none */
    size_t request_len;      /* its bytes */
    bool known;
    bool quiet;  /* its peer may be silent for any time */
    bool probed; /* the kernel's keep-alive probes are on */
    bool awaits; /* the callee has consumed a part of a request */
    bool busy;   /* the callee owes an answer */
    bool woken;  /* on_bytes is to be called without bytes */
    bool ended;  /* by the listener */
};

struct weir_conn_server {
    struct weir_conn_options options;
    struct weir_acceptor *acceptor; /* owned */
    struct event *look;             /* owned */
    struct weir_conn *current; /* the connection that 'out' has answers for */
    size_t out_len;
    char in[IN_SIZE];
    char out[OUT_SIZE];
};

static struct weir_conn *conn_of(struct weir_transport *transport)
{
    return (struct weir_conn *)transport;
}

static size_t header_size(void)
{
    return (sizeof(struct weir_conn) + 15) / 16 * 16;
}

/* ---- Out ---- */

static void flush_conn(struct weir_conn *conn)
{
    struct weir_conn_server *server = conn->server;
    size_t len = server->out_len;
    server->out_len = 0;
    weir_transport_send(&conn->transport, server->out, len);
}

void weir_conn_write(struct weir_conn *conn, const void *bytes, size_t len)
{
    struct weir_conn_server *server = conn->server;
    const char *from = bytes;
    weir_assert(server->current == conn);
    while (len > OUT_SIZE - server->out_len) {
        size_t fits = OUT_SIZE - server->out_len;
        memcpy(server->out + server->out_len, from, fits);
        server->out_len = OUT_SIZE;
        flush_conn(conn);
        from += fits;
        len -= fits;
    }
    weir_assert(len <= OUT_SIZE - server->out_len);
    memcpy(server->out + server->out_len, from, len);
    server->out_len += len;
}

static bool is_stalled(const struct weir_conn *conn)
{
    return weir_transport_queued(&conn->transport) > 0;
}

/* Whether more may be written. */
static bool is_writable(const struct weir_conn *conn)
{
    return !conn->ended && !conn->transport.why && !is_stalled(conn);
}

bool weir_conn_is_open(const struct weir_conn *conn)
{
    return is_writable(conn) && !conn->busy;
}

/* Our half has ended, and every byte is sent. */
static bool is_shut(const struct weir_conn *conn)
{
    return conn->transport.ended;
}

/* A connection that is shut is still read, up to a bound: closing it with
 * unread input would reset it, and lose its last answer. */
static bool is_read(const struct weir_conn *conn)
{
    return !is_stalled(conn) && !conn->busy &&
           conn->lingered <= WEIR_CONN_LINGER_BYTES;
}

void weir_conn_wake(struct weir_conn *conn)
{
    conn->woken = true;
    /* A stalled connection has its turn when its rest is sent. */
    if (conn->server->current != conn && !is_stalled(conn) && !conn->ended)
        weir_transport_wake(&conn->transport);
}

void weir_conn_end(struct weir_conn *conn)
{
    conn->ended = true;
    if (conn->server->current != conn)
        weir_transport_wake(&conn->transport);
}

/* Only the kernel can tell whether a peer that may be silent still exists: a
 * host that loses its power closes nothing. */
static void set_probes(struct weir_conn *conn)
{
    const int fd = conn->transport.fd;
    conn->probed = true;
    const int on = 1;
    const int idle = WEIR_CONN_PROBE_AFTER;
    const int every = WEIR_CONN_PROBE_EVERY;
    const int count = WEIR_CONN_PROBES;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

void weir_conn_set_quiet(struct weir_conn *conn, bool quiet)
{
    if (quiet && !conn->probed && !conn->server->options.place.path[0])
        set_probes(conn);
    conn->quiet = quiet;
}

void weir_conn_set_known(struct weir_conn *conn, bool known)
{
    if (conn->known == known)
        return;
    conn->known = known;
    if (known)
        weir_transport_admit(&conn->transport);
    else
        conn->since = weir_clock_now();
}

void weir_conn_set_awaits(struct weir_conn *conn, bool awaits)
{
    conn->awaits = awaits;
}

void weir_conn_set_busy(struct weir_conn *conn, bool busy)
{
    conn->busy = busy;
    conn->transport.paused = !is_read(conn);
    if (conn->server->current != conn)
        weir_transport_watch(&conn->transport);
}

void *weir_conn_state(struct weir_conn *conn)
{
    return (char *)conn + header_size();
}

const char *weir_conn_peer(const struct weir_conn *conn)
{
    return conn->transport.peer;
}

void weir_conn_peer_names(const struct weir_conn *conn,
                          struct weir_tls_peer *out)
{
    out->count = 0;
    if (conn->transport.tls)
        weir_tls_session_names(conn->transport.tls, out);
}

/* ---- End ---- */

static void release_conn(struct weir_conn *conn)
{
    const struct weir_conn_options *options = &conn->server->options;
    weir_assert(!conn->transport.killed);
    if (options->on_gone)
        options->on_gone(options->context, conn);
    weir_transport_close(&conn->transport);
    weir_transport_kill(&conn->transport);
}

static void on_conn_free(struct weir_transport *transport)
{
    struct weir_conn *conn = conn_of(transport);
    weir_transport_fini(transport);
    free(conn->pending);
    free(conn);
}

static void report_refused(const struct weir_conn *conn, const char *why)
{
    const struct weir_conn_tls *tls = &conn->server->options.tls;
    if (tls->on_refused)
        tls->on_refused(tls->context, conn->transport.peer, why,
                        weir_clock_now());
}

static void on_conn_failed(struct weir_transport *transport)
{
    struct weir_conn *conn = conn_of(transport);
    if (transport->killed)
        return;
    if (transport->state == WEIR_TRANSPORT_SHAKING)
        report_refused(conn, transport->why);
    release_conn(conn);
}

/* ---- A turn ---- */

/* Keeps the bytes that weren't consumed in the connection's own memory. */
static bool keep_pending(struct weir_conn *conn, const char *bytes, size_t len)
{
    if (len == 0) {
        free(conn->pending);
        conn->pending = NULL;
        conn->pending_len = 0;
        return true;
    }
    char *pending =
        len == conn->pending_len ? conn->pending : realloc(conn->pending, len);
    if (!pending)
        return false;
    memcpy(pending, bytes, len);
    conn->pending = pending;
    conn->pending_len = len;
    return true;
}

/* Fills server->in with the held bytes and new ones. */
static size_t take_in(struct weir_conn *conn, bool reads)
{
    struct weir_conn_server *server = conn->server;
    size_t len = conn->pending_len;
    if (len > 0)
        memcpy(server->in, conn->pending, len);
    if (reads)
        len += weir_transport_read(&conn->transport, server->in + len,
                                   WEIR_CONN_READ);
    return len;
}

/* Notes when an incomplete request has begun, and how much of it has come. */
static void note_request(struct weir_conn *conn, size_t came, bool is_new,
                         weir_instant now)
{
    bool incomplete = conn->awaits || conn->pending_len > 0;
    if (!incomplete || !is_read(conn)) {
        conn->request_at = 0;
    } else if (is_new || conn->request_at == 0) {
        conn->request_at = now;
        conn->request_len = 0;
    } else {
        conn->request_len += came;
    }
}

/* Lets the listener answer all complete requests. */
static void answer_bytes(struct weir_conn *conn, size_t len, weir_instant now)
{
    struct weir_conn_server *server = conn->server;
    size_t used = 0;
    size_t came = len - conn->pending_len;
    bool awaited = conn->awaits;
    if (conn->woken && is_writable(conn)) {
        conn->woken = false;
        (void)server->options.on_bytes(server->options.context, conn,
                                       server->in, 0, now);
    }
    while (used < len && weir_conn_is_open(conn)) {
        size_t consumed = server->options.on_bytes(
            server->options.context, conn, server->in + used, len - used, now);
        if (consumed == 0)
            break;
        weir_assert(consumed <= len - used);
        used += consumed;
    }
    flush_conn(conn);
    if (weir_conn_is_open(conn) && len - used > WEIR_CONN_PAUSED_MAX)
        weir_transport_fail(&conn->transport, "the request is too long");
    else if (!keep_pending(conn, server->in + used, len - used))
        weir_transport_fail(&conn->transport, "no memory for the request");
    note_request(conn, came, used > 0 && !(awaited && conn->awaits), now);
}

/* Closes our half after the listener has ended the connection and every byte is
 * sent. Later bytes of the peer are read and ignored. */
static void shut(struct weir_conn *conn, weir_instant now)
{
    weir_assert(conn->ended && !is_stalled(conn) && !is_shut(conn));
    conn->since = now;
    (void)keep_pending(conn, NULL, 0);
    conn->stalled_at = weir_transport_end(&conn->transport) ? 0 : now;
}

static void receive_and_serve(struct weir_conn *conn, bool reads)
{
    struct weir_transport *transport = &conn->transport;
    size_t len = take_in(conn, reads);
    if (transport->why)
        return;
    if (is_shut(conn)) {
        conn->lingered += len;
        return;
    }
    weir_instant now = weir_clock_now();
    conn->heard = now;
    if (!conn->ended)
        answer_bytes(conn, len, now);
    if (transport->why)
        return;
    if (is_stalled(conn) && conn->stalled_at == 0)
        conn->stalled_at = now;
    else if (conn->ended && !is_stalled(conn))
        shut(conn, now);
}

static void take_conn_turn(struct weir_conn *conn, bool reads)
{
    struct weir_conn_server *server = conn->server;
    weir_assert(!server->current);
    server->current = conn;
    receive_and_serve(conn, reads);
    server->out_len = 0;
    server->current = NULL;
    conn->transport.paused = !is_read(conn);
}

static void on_conn_readable(struct weir_transport *transport)
{
    struct weir_conn *conn = conn_of(transport);
    take_conn_turn(conn, is_read(conn));
}

static void on_conn_writable(struct weir_transport *transport)
{
    struct weir_conn *conn = conn_of(transport);
    size_t before = weir_transport_queued(transport);
    weir_transport_flush(transport);
    size_t left = weir_transport_queued(transport);
    if (left < before)
        conn->stalled_at = weir_clock_now();
    if (left > 0 || transport->why)
        return;
    conn->stalled_at = 0;
    take_conn_turn(conn, false);
}

/* ---- Beginning ---- */

static const struct weir_transport_policy in_turn = {
    .on_readable = on_conn_readable,
    .on_writable = on_conn_writable,
    .on_failed = on_conn_failed,
    .on_free = on_conn_free,
};

static void on_conn_socket(void *context, int fd, const struct sockaddr *peer)
{
    struct weir_conn_server *server = context;
    struct weir_conn *conn =
        calloc(1, header_size() + server->options.state_size);
    if (!conn) {
        close(fd);
        return;
    }
    int on = 1;
    if (!server->options.place.path[0])
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    conn->server = server;
    conn->since = conn->heard = weir_clock_now();
    weir_transport_init(&conn->transport, &in_turn, server->options.base);
    if (!weir_transport_accept(&conn->transport, server->acceptor, fd, peer))
        weir_transport_kill(&conn->transport);
}

/* ---- The check of each second ---- */

/* Whether the peer is unauthenticated for too long. */
static bool is_unauthenticated(const struct weir_conn *conn, weir_instant now)
{
    weir_duration most = conn->server->options.unauthenticated_max;
    return most && !conn->known && !conn->busy && now - conn->since > most;
}

/* Whether the rest of a request comes too slowly. */
static bool is_request_slow(const struct weir_conn *conn, weir_instant now)
{
    weir_duration grace = conn->server->options.rate_grace;
    weir_instant from =
        weir_after(conn->request_at, grace ? grace : WEIR_CONN_RATE_GRACE);
    return conn->request_at && !conn->transport.accepted.member.ration &&
           now > from &&
           conn->request_len < (now - from) / WEIR_SECOND * WEIR_CONN_RATE_MIN;
}

static bool is_conn_over(const struct weir_conn *conn, weir_instant now)
{
    weir_duration silence = conn->server->options.silence_max;
    if (is_shut(conn))
        return now - conn->since > WEIR_CONN_LINGER_MAX;
    if (conn->stalled_at)
        return now - conn->stalled_at > WEIR_CONN_SLOW_MAX;
    if (is_request_slow(conn, now))
        return true;
    return silence && !conn->quiet && !conn->busy &&
           now - conn->heard > silence;
}

static void sweep_conn(void *context, void *connection)
{
    const weir_instant now = *(const weir_instant *)context;
    struct weir_conn *conn = connection;
    const struct weir_conn_options *options = &conn->server->options;
    /* The transport bounds the handshake. */
    if (conn->transport.state != WEIR_TRANSPORT_OPEN)
        return;
    const char *why = conn->transport.tls && !conn->ended
                          ? weir_tls_session_doubt(conn->transport.tls, NULL)
                          : NULL;
    if (why) {
        report_refused(conn, why);
        release_conn(conn);
    } else if (!is_shut(conn) && is_unauthenticated(conn, now)) {
        if (options->on_unknown)
            options->on_unknown(options->context, conn, now);
        release_conn(conn);
    } else if (is_conn_over(conn, now))
        release_conn(conn);
}

static void on_sweep(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_conn_server *server = context;
    weir_instant now = weir_clock_now();
    weir_acceptor_each(server->acceptor, sweep_conn, &now);
}

/* ---- The server ---- */

static int start_conn_server(struct weir_conn_server *server,
                             struct weir_diag *diag)
{
    const struct timeval second = { .tv_sec = 1 };
    const struct weir_conn_options *options = &server->options;
    size_t places = options->unknown_max           ? options->unknown_max
                    : options->unauthenticated_max ? (options->max + 1) / 2
                                                   : options->max;
    const struct weir_acceptor_options acceptor = {
        .base = options->base,
        .place = options->place,
        .tls = options->tls.tls,
        .max = options->max,
        .places = places,
        .crowded = options->crowded,
        .on_socket = on_conn_socket,
        .context = server,
        .on_short = options->on_short,
    };
    server->look = event_new(options->base, -1, EV_PERSIST, on_sweep, server);
    if (!server->look || event_add(server->look, &second) < 0)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    return weir_acceptor_new(&acceptor, &server->acceptor, diag);
}

int weir_conn_server_new(const struct weir_conn_options *options,
                         struct weir_conn_server **out, struct weir_diag *diag)
{
    weir_assert(options->max > 0 && options->on_bytes);
    struct weir_conn_server *server = malloc(sizeof *server);
    if (!server)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    memset(server, 0, offsetof(struct weir_conn_server, in));
    server->options = *options;
    int error = start_conn_server(server, diag);
    if (error < 0) {
        weir_conn_server_free(&server);
        return error;
    }
    *out = server;
    return 0;
}

const struct weir_listen_address *weir_conn_server_address(
    const struct weir_conn_server *server)
{
    return weir_acceptor_address(server->acceptor);
}

struct weir_acceptor_view weir_conn_server_look(
    const struct weir_conn_server *server)
{
    return weir_acceptor_look(server->acceptor);
}

void weir_conn_server_stop(struct weir_conn_server *server)
{
    weir_acceptor_stop(server->acceptor);
}

struct each {
    void (*fn)(void *context, struct weir_conn *conn);
    void *context;
};

static void call_each(void *context, void *connection)
{
    const struct each *each = context;
    each->fn(each->context, connection);
}

void weir_conn_server_each(struct weir_conn_server *server,
                           void (*fn)(void *context, struct weir_conn *conn),
                           void *context)
{
    struct each each = { fn, context };
    weir_acceptor_each(server->acceptor, call_each, &each);
}

static void doubt_conn(void *context, struct weir_conn *conn)
{
    const char *why = conn->transport.tls && !conn->ended
                          ? weir_tls_session_doubt(conn->transport.tls, context)
                          : NULL;
    if (!why)
        return;
    if (conn->transport.state == WEIR_TRANSPORT_SHAKING) {
        weir_transport_fail(&conn->transport, why);
        return;
    }
    report_refused(conn, why);
    weir_conn_end(conn);
}

void weir_conn_server_doubt(struct weir_conn_server *server)
{
    struct weir_tls *tls = weir_acceptor_tls(server->acceptor);
    if (tls)
        weir_conn_server_each(server, doubt_conn, tls);
}

static void release_each(void *context, struct weir_conn *conn)
{
    (void)context;
    release_conn(conn);
}

void weir_conn_server_free(struct weir_conn_server **server)
{
    struct weir_conn_server *self = *server;
    if (!self)
        return;
    *server = NULL;
    weir_assert(!self->current);
    if (self->acceptor)
        weir_conn_server_each(self, release_each, NULL);
    weir_acceptor_free(&self->acceptor);
    if (self->look)
        event_free(self->look);
    free(self);
}
