/* SPDX-License-Identifier: MIT
 * io/conn.c - sockets that are read, answered and written in one turn.
 *
 * Theory of operation. io/stream.c gives each connection its own buffers and
 * writes at the end of the loop's turn, which suits messages between limiters
 * and roots. Here a hundred thousand small requests a second come from many
 * connections, each answered from memory in less time than a system call. A
 * turn is therefore: one recv() into a buffer that all connections share, the
 * answers into another, one send(). A connection has its own memory only for
 * the rest of a turn: the beginning of a request ('pending'), or the end of an
 * answer that the peer didn't take ('rest'). Ten thousand idle connections are
 * ten thousand small structs. Over TLS (io/tls.h) a session, with one
 * record each way, replaces recv() and send(), and its handshake comes first.
 *
 *    (shaking, 5 s)
 *      |
 *     open ----- a rest is left ----> stalled: not read until it is sent
 *      |  <---- the rest is sent ----    |
 *      |                                 | (30 s: gone)
 *      +-- its owner ends it, all sent, shut --> ending: read and dropped, 2 s
 *
 * A connection is busy while its callee owes an answer, and isn't read: the
 * peer's next requests wait in the socket. A dead peer is noticed when the
 * answer is written.
 *
 * A walk over all connections checks timeouts once a second: cheaper than a
 * timer each, and exact to a second.
 *
 * A connection of an unauthenticated peer is a member of the server's ration
 * (io/ration.h): its socket isn't watched while it waits for its turn, and each
 * wait gives one turn. With an authenticated peer it has a turn whenever bytes
 * are there.
 *
 * Only the end of a turn frees a connection in its turn, so the callee may end
 * the connection and go on using it. */

#include "io/conn.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/accept.h"
#include "io/clock.h"
#include "io/ration.h"
#include "io/tls.h"

#define IN_SIZE (WEIR_CONN_PAUSED_MAX + WEIR_CONN_READ)
#define OUT_SIZE (64u << 10)

struct weir_conn {
    struct weir_conn *next, **self;
    struct weir_conn_server *server;  /* borrowed */
    struct event *read, *write;       /* owned; 'write' only once needed */
    char *pending, *rest;             /* owned; NULL: nothing */
    struct weir_tls_session *tls;     /* owned; NULL: plain text */
    struct event *again;              /* owned; over TLS: reads decrypted
                                       * bytes */
    struct weir_ration_member member; /* until its peer is authenticated */
    size_t pending_len, rest_len, rest_sent;
    size_t lingered; /* bytes read since 'shut' */
    weir_instant since, heard, stalled_at;
    int fd;
    bool shaking; /* in the TLS handshake */
    bool known;
    bool quiet;  /* its peer may be silent for any time */
    bool probed; /* the kernel's keep-alive probes are on */
    bool busy;   /* the callee owes an answer */
    bool woken;  /* on_bytes is to be called without bytes */
    bool ended;  /* by the listener */
    bool shut;   /* … and every byte is sent */
    bool broken; /* no byte can be sent */
    bool in_turn;
};

struct weir_conn_server {
    struct weir_conn_options options;
    struct weir_acceptor *acceptor; /* owned; NULL: stopped */
    struct weir_ration *ration;     /* owned */
    struct event *look;             /* owned */
    struct weir_conn *first;
    struct weir_conn *current; /* the connection that 'out' has answers for */
    size_t count;
    struct weir_conn_counts counts;
    size_t out_len;
    char in[IN_SIZE];
    char out[OUT_SIZE];
};

static size_t header_size(void)
{
    return (sizeof(struct weir_conn) + 15) / 16 * 16;
}

/* ---- Out ---- */

static size_t send_sealed(struct weir_conn *conn, const char *bytes, size_t len)
{
    enum weir_tls_step step = WEIR_TLS_DONE;
    size_t sent = 0;
    while (sent < len && step == WEIR_TLS_DONE) {
        size_t some = 0;
        step = weir_tls_write(conn->tls, bytes + sent, len - sent, &some);
        sent += some;
    }
    conn->broken |= step == WEIR_TLS_FAILED;
    return sent;
}

/* Sends as many bytes as the socket takes; 0: none now. */
static size_t send_some(struct weir_conn *conn, const char *bytes, size_t len)
{
    if (conn->tls)
        return send_sealed(conn, bytes, len);
    ssize_t sent = send(conn->fd, bytes, len, MSG_NOSIGNAL);
    if (sent >= 0)
        return (size_t)sent;
    if (errno != EAGAIN && errno != EINTR)
        conn->broken = true;
    return 0;
}

static void keep_rest(struct weir_conn *conn, const char *bytes, size_t len)
{
    if (conn->broken)
        return;
    char *grown = realloc(conn->rest, conn->rest_len + len);
    if (!grown) {
        conn->broken = true;
        return;
    }
    memcpy(grown + conn->rest_len, bytes, len);
    conn->rest = grown;
    conn->rest_len += len;
}

static void flush_conn(struct weir_conn *conn)
{
    struct weir_conn_server *server = conn->server;
    size_t len = server->out_len;
    server->out_len = 0;
    if (len == 0 || conn->broken)
        return;
    size_t sent = conn->rest ? 0 : send_some(conn, server->out, len);
    if (sent < len)
        keep_rest(conn, server->out + sent, len - sent);
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

/* Whether more may be written. */
static bool is_writable(const struct weir_conn *conn)
{
    return !conn->ended && !conn->broken && !conn->rest;
}

bool weir_conn_is_open(const struct weir_conn *conn)
{
    return is_writable(conn) && !conn->busy;
}

/* A connection that is shut is still read, up to a bound: closing it with
 * unread input would reset it, and lose its last answer. */
static bool is_read(const struct weir_conn *conn)
{
    return !conn->rest && !conn->busy &&
           conn->lingered <= WEIR_CONN_LINGER_BYTES;
}

static void watch_conn(struct weir_conn *conn)
{
    if (!is_read(conn))
        (void)event_del(conn->read);
    else if (event_add(conn->read, NULL) < 0)
        conn->broken = true;
}

void weir_conn_wake(struct weir_conn *conn)
{
    conn->woken = true;
    /* A stalled connection has its turn when its rest is sent. */
    if (!conn->in_turn && conn->rest_len == 0 && !conn->ended)
        event_active(conn->read, EV_READ, 0);
}

void weir_conn_end(struct weir_conn *conn)
{
    conn->ended = true;
    if (!conn->in_turn)
        event_active(conn->read, EV_READ, 0);
}

/* Only the kernel can tell whether a peer that may be silent still exists: a
 * host that loses its power closes nothing. */
static void set_probes(struct weir_conn *conn)
{
    conn->probed = true;
    const int on = 1;
    const int idle = WEIR_CONN_PROBE_AFTER;
    const int every = WEIR_CONN_PROBE_EVERY;
    const int count = WEIR_CONN_PROBES;
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_KEEPINTVL, &every,
                     sizeof every);
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(conn->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
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
    if (!known) {
        conn->since = weir_clock_now();
        return;
    }
    if (!conn->member.ration)
        return;
    weir_ration_admit(&conn->member);
    watch_conn(conn);
}

void weir_conn_set_busy(struct weir_conn *conn, bool busy)
{
    conn->busy = busy;
    watch_conn(conn);
}

void *weir_conn_state(struct weir_conn *conn)
{
    return (char *)conn + header_size();
}

void weir_conn_peer(const struct weir_conn *conn, char *buf)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    char host[46];
    char port[8];
    snprintf(buf, WEIR_PEER_MAX, "unix");
    if (getpeername(conn->fd, (struct sockaddr *)&at, &len) < 0 ||
        at.ss_family == AF_UNIX)
        return;
    if (getnameinfo((struct sockaddr *)&at, len, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(buf, WEIR_PEER_MAX, "%s:%s", host, port);
}

void weir_conn_peer_names(const struct weir_conn *conn,
                          struct weir_tls_peer *out)
{
    out->count = 0;
    if (conn->tls)
        weir_tls_session_names(conn->tls, out);
}

/* ---- Beginning and end ---- */

static void release_conn(struct weir_conn *conn)
{
    weir_assert(!conn->in_turn && conn->server->count > 0);
    struct weir_conn_server *server = conn->server;
    if (server->options.on_gone)
        server->options.on_gone(server->options.context, conn);
    weir_ration_leave(&conn->member);
    *conn->self = conn->next;
    if (conn->next)
        conn->next->self = conn->self;
    server->count--;
    event_free(conn->read);
    if (conn->write)
        event_free(conn->write);
    if (conn->again)
        event_free(conn->again);
    weir_tls_session_free(&conn->tls);
    close(conn->fd);
    free(conn->pending);
    free(conn->rest);
    free(conn);
}

static void take_conn_turn(struct weir_conn *conn, bool reads);

static void on_conn_readable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_conn *conn = context;
    if (conn->member.ration) {
        (void)event_del(conn->read);
        weir_ration_wait(&conn->member);
        return;
    }
    take_conn_turn(conn, is_read(conn));
}

/* A turn of a connection with an unauthenticated peer. */
static void on_conn_turn(void *context)
{
    struct weir_conn *conn = context;
    watch_conn(conn);
    take_conn_turn(conn, is_read(conn));
}

static void report_refused(struct weir_conn *conn, const char *why,
                           weir_instant now)
{
    const struct weir_conn_tls *tls = &conn->server->options.tls;
    char address[WEIR_PEER_MAX];
    weir_conn_peer(conn, address);
    if (tls->on_refused)
        tls->on_refused(tls->context, address, why, now);
}

static void on_conn_evicted(void *context, const char *why)
{
    struct weir_conn *conn = context;
    weir_assert(!conn->in_turn);
    conn->server->counts.crowded++;
    if (conn->shaking)
        report_refused(conn, why, weir_clock_now());
    release_conn(conn);
}

/* False: no memory. */
static bool prepare_conn(struct weir_conn *conn)
{
    const struct weir_conn_options *options = &conn->server->options;
    conn->shaking = options->tls.tls != NULL;
    conn->read = event_new(options->base, conn->fd, EV_READ | EV_PERSIST,
                           on_conn_readable, conn);
    return conn->read && event_add(conn->read, NULL) == 0;
}

/* On success the connection owns 'fd'. */
static struct weir_conn *begin_conn(struct weir_conn_server *server, int fd,
                                    const struct sockaddr *peer)
{
    size_t size = header_size() + server->options.state_size;
    struct weir_conn *conn = calloc(1, size);
    if (!conn)
        return NULL;
    *conn = (struct weir_conn){ .server = server, .fd = fd };
    conn->since = conn->heard = weir_clock_now();
    if (!prepare_conn(conn)) {
        if (conn->read)
            event_free(conn->read);
        free(conn);
        return NULL;
    }
    conn->member = (struct weir_ration_member){ .turn = on_conn_turn,
                                                .evict = on_conn_evicted,
                                                .context = conn };
    weir_ration_join(server->ration, &conn->member, peer);
    conn->next = server->first;
    conn->self = &server->first;
    if (conn->next)
        conn->next->self = &conn->next;
    server->first = conn;
    server->count++;
    server->counts.opened++;
    return conn;
}

static void refuse_socket(struct weir_conn_server *server, int fd)
{
    server->counts.crowded++;
    if (!server->options.tls.tls)
        (void)!send(fd, server->options.crowded.p, server->options.crowded.len,
                    MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void on_conn_socket(void *context, int fd, const struct sockaddr *peer)
{
    struct weir_conn_server *server = context;
    int on = 1;
    if (!server->options.place.path[0])
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (server->count >= server->options.max &&
        !weir_ration_evict(server->ration, "too many peers are connected"))
        refuse_socket(server, fd);
    else if (!begin_conn(server, fd, peer))
        close(fd);
}

static bool evict_for_descriptor(void *context)
{
    struct weir_conn_server *server = context;
    return weir_ration_evict(server->ration, "no descriptor is left");
}

/* ---- A turn ---- */

static void on_conn_writable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_conn *conn = context;
    if (conn->shaking) {
        take_conn_turn(conn, true);
        return;
    }
    size_t left = conn->rest_len - conn->rest_sent;
    size_t sent = send_some(conn, conn->rest + conn->rest_sent, left);
    weir_assert(sent <= left);
    conn->rest_sent += sent;
    if (sent > 0)
        conn->stalled_at = weir_clock_now();
    if (conn->rest_sent < conn->rest_len && !conn->broken) {
        event_add(conn->write, NULL);
        return;
    }
    free(conn->rest);
    conn->rest = NULL;
    conn->rest_len = conn->rest_sent = 0;
    conn->stalled_at = 0;
    watch_conn(conn);
    take_conn_turn(conn, false);
}

static bool await_writable(struct weir_conn *conn)
{
    if (!conn->write)
        conn->write = event_new(conn->server->options.base, conn->fd, EV_WRITE,
                                on_conn_writable, conn);
    conn->broken |= !conn->write || event_add(conn->write, NULL) < 0;
    return !conn->broken;
}

/* Stops reading until the rest is sent. */
static void stall(struct weir_conn *conn, weir_instant now)
{
    if (!await_writable(conn))
        return;
    event_del(conn->read);
    weir_assert(conn->rest_len > conn->rest_sent);
    conn->stalled_at = now;
}

/* A connection gets its session in its first turn: sessions are large, and
 * connections of a flood wait long. */
static bool begin_tls(struct weir_conn *conn)
{
    const struct weir_conn_options *options = &conn->server->options;
    conn->tls = weir_tls_session_new(options->tls.tls, NULL);
    conn->again = event_new(options->base, -1, 0, on_conn_readable, conn);
    if (!conn->tls || !conn->again)
        return false;
    weir_tls_begin(conn->tls, conn->fd);
    return true;
}

/* The next step of the handshake. False: it has failed. */
static bool shake(struct weir_conn *conn)
{
    if (!conn->tls && !begin_tls(conn))
        return false;
    switch (weir_tls_handshake(conn->tls)) {
    case WEIR_TLS_DONE:
        conn->shaking = false;
        return true;
    case WEIR_TLS_READS:
        return true;
    case WEIR_TLS_WRITES:
        return await_writable(conn);
    case WEIR_TLS_FAILED:
        break;
    }
    report_refused(conn, weir_tls_why(conn->tls), weir_clock_now());
    return false;
}

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

/* Reads bytes and returns their number; 0: none now, -1: the peer has gone. */
static ssize_t receive_bytes(struct weir_conn *conn, char *buf)
{
    size_t size = conn->member.ration ? WEIR_RATION_READ : WEIR_CONN_READ;
    size_t len = 0;
    if (!conn->tls) {
        ssize_t got = recv(conn->fd, buf, size, 0);
        if (got > 0)
            return got;
        return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    }
    switch (weir_tls_read(conn->tls, buf, size, &len)) {
    case WEIR_TLS_DONE:
        return (ssize_t)len;
    case WEIR_TLS_READS:
    case WEIR_TLS_WRITES:
        return 0;
    case WEIR_TLS_FAILED:
        break;
    }
    return -1;
}

/* Fills server->in with the held bytes and new ones; false: the peer has
 * gone. */
static bool take_in(struct weir_conn *conn, bool reads, size_t *out_len)
{
    struct weir_conn_server *server = conn->server;
    size_t len = conn->pending_len;
    if (len > 0)
        memcpy(server->in, conn->pending, len);
    *out_len = len;
    if (!reads)
        return true;
    ssize_t got = receive_bytes(conn, server->in + len);
    if (got > 0)
        *out_len = len + (size_t)got;
    return got >= 0;
}

/* Lets the listener answer all complete requests. False: the connection
 * ends. */
static bool answer_bytes(struct weir_conn *conn, size_t len, weir_instant now)
{
    struct weir_conn_server *server = conn->server;
    size_t used = 0;
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
        return false;
    return keep_pending(conn, server->in + used, len - used);
}

/* Closes our half after the listener has ended the connection and every byte is
 * sent. Later bytes of the peer are read and ignored. */
static void shut(struct weir_conn *conn, weir_instant now)
{
    weir_assert(conn->ended && !conn->rest && !conn->shut);
    conn->shut = true;
    conn->since = now;
    (void)keep_pending(conn, NULL, 0);
    if (conn->tls)
        (void)weir_tls_end(conn->tls);
    if (shutdown(conn->fd, SHUT_WR) < 0)
        conn->broken = true;
}

static bool receive_and_serve(struct weir_conn *conn, bool reads)
{
    size_t len;
    if (conn->shaking && (conn->ended || !shake(conn)))
        return false;
    if (conn->shaking)
        return true;
    if (!take_in(conn, reads, &len))
        return false;
    if (conn->shut) {
        conn->lingered += len;
        if (!is_read(conn))
            event_del(conn->read);
        return true;
    }
    weir_instant now = weir_clock_now();
    conn->heard = now;
    if (!conn->ended && !answer_bytes(conn, len, now))
        return false;
    if (conn->rest && conn->stalled_at == 0)
        stall(conn, now);
    else if (conn->ended && !conn->rest)
        shut(conn, now);
    return !conn->broken;
}

/* Reads decrypted bytes after other connections had their turn. If this event
 * were active at once, it would be the loop's next, and a peer that never stops
 * sending would block all others. */
static void look_at_tls_again(struct weir_conn *conn)
{
    const struct timeval soon = { .tv_sec = 0 };
    if (conn->tls && !conn->shaking && is_read(conn) &&
        weir_tls_is_pending(conn->tls))
        (void)event_add(conn->again, &soon);
}

static void take_conn_turn(struct weir_conn *conn, bool reads)
{
    weir_assert(!conn->in_turn && !conn->server->current);
    conn->in_turn = true;
    conn->server->current = conn;
    bool goes_on = receive_and_serve(conn, reads);
    conn->server->out_len = 0;
    conn->server->current = NULL;
    conn->in_turn = false;
    if (goes_on)
        look_at_tls_again(conn);
    else
        release_conn(conn);
}

/* ---- The check of each second ---- */

/* Whether the peer is unauthenticated for too long. */
static bool is_unauthenticated(const struct weir_conn *conn, weir_instant now)
{
    weir_duration most = conn->server->options.unauthenticated_max;
    return most && !conn->known && !conn->busy && now - conn->since > most;
}

static bool is_conn_over(const struct weir_conn *conn, weir_instant now)
{
    weir_duration silence = conn->server->options.silence_max;
    if (conn->shut)
        return now - conn->since > WEIR_CONN_LINGER_MAX;
    if (conn->stalled_at)
        return now - conn->stalled_at > WEIR_CONN_SLOW_MAX;
    return silence && !conn->quiet && !conn->busy &&
           now - conn->heard > silence;
}

static void sweep_conn(struct weir_conn *conn, weir_instant now)
{
    const struct weir_conn_options *options = &conn->server->options;
    const char *why = NULL;
    if (conn->shaking && now - conn->since > WEIR_TLS_HANDSHAKE_MAX)
        why = "the handshake took too long";
    else if (conn->tls && !conn->shaking && !conn->ended)
        why = weir_tls_session_doubt(conn->tls, NULL);
    if (why) {
        report_refused(conn, why, now);
        release_conn(conn);
    } else if (!conn->shaking && !conn->shut && is_unauthenticated(conn, now)) {
        if (options->on_unknown)
            options->on_unknown(options->context, conn, now);
        release_conn(conn);
    } else if (!conn->shaking && is_conn_over(conn, now))
        release_conn(conn);
}

static void on_sweep(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_conn_server *server = context;
    weir_instant now = weir_clock_now();
    struct weir_conn *next;
    for (struct weir_conn *conn = server->first; conn; conn = next) {
        next = conn->next;
        sweep_conn(conn, now);
    }
}

/* ---- The server ---- */

/* On success the server owns 'fd'. */
static int start_conn_server(struct weir_conn_server *server, int fd)
{
    const struct timeval second = { .tv_sec = 1 };
    const struct weir_conn_options *options = &server->options;
    size_t places = options->unknown_max           ? options->unknown_max
                    : options->unauthenticated_max ? (options->max + 1) / 2
                                                   : options->max;
    const struct weir_ration_options ration = {
        .base = options->base,
        .places = places,
    };
    const struct weir_acceptor_options acceptor = {
        .base = options->base,
        .fd = fd,
        .on_socket = on_conn_socket,
        .make_room = evict_for_descriptor,
        .on_short = options->on_short,
        .context = server,
    };
    server->ration = weir_ration_new(&ration);
    server->look = event_new(options->base, -1, EV_PERSIST, on_sweep, server);
    if (!server->ration || !server->look ||
        event_add(server->look, &second) < 0)
        return WEIR_ENOMEM;
    return weir_acceptor_new(&acceptor, &server->acceptor);
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
    if (options->place.path[0])
        server->options.tls.tls = NULL;
    int fd = weir_listen_address_listen(&server->options.place, diag);
    if (fd < 0) {
        free(server);
        return fd;
    }
    int error = start_conn_server(server, fd);
    if (error < 0) {
        close(fd);
        weir_listen_address_leave(&server->options.place);
        weir_conn_server_free(&server);
        return weir_diag_put(diag, error, NULL);
    }
    *out = server;
    return 0;
}

const struct weir_listen_address *weir_conn_server_address(
    const struct weir_conn_server *server)
{
    return &server->options.place;
}

size_t weir_conn_server_count(const struct weir_conn_server *server)
{
    return server->count;
}

struct weir_conn_counts weir_conn_server_counts(
    const struct weir_conn_server *server)
{
    return server->counts;
}

void weir_conn_server_stop(struct weir_conn_server *server)
{
    if (!server->acceptor)
        return;
    weir_acceptor_free(&server->acceptor);
    weir_listen_address_leave(&server->options.place);
}

void weir_conn_server_each(struct weir_conn_server *server,
                           void (*fn)(void *context, struct weir_conn *conn),
                           void *context)
{
    for (struct weir_conn *conn = server->first; conn; conn = conn->next)
        fn(context, conn);
}

static void doubt_conn(void *context, struct weir_conn *conn)
{
    const char *why = conn->tls && !conn->ended
                          ? weir_tls_session_doubt(conn->tls, context)
                          : NULL;
    if (!why)
        return;
    report_refused(conn, why, weir_clock_now());
    weir_conn_end(conn);
}

void weir_conn_server_doubt(struct weir_conn_server *server)
{
    if (server->options.tls.tls)
        weir_conn_server_each(server, doubt_conn, server->options.tls.tls);
}

void weir_conn_server_free(struct weir_conn_server **server)
{
    struct weir_conn_server *self = *server;
    if (!self)
        return;
    *server = NULL;
    while (self->first)
        release_conn(self->first);
    weir_conn_server_stop(self);
    weir_ration_free(&self->ration);
    if (self->look)
        event_free(self->look);
    free(self);
}
