/* SPDX-License-Identifier: MIT
 * os/talk.c - sockets that are read, answered and written in one turn.
 *
 * Theory of operation. os/stream.c gives each connection its own buffers and
 * writes at the end of the loop's turn, which suits messages between limiters
 * and roots. Here a hundred thousand small requests a second come from many
 * connections, each answered from memory in less time than a system call. A
 * turn is therefore: one recv() into a buffer that all connections share, the
 * answers into another, one send(). A connection has its own memory only for
 * the rest of a turn: the beginning of a request ('held'), or the end of an
 * answer that the peer didn't take ('rest'). Ten thousand idle connections are
 * ten thousand small structs. Over TLS (os/tls_session.h) a session, with one
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
 * (os/ration.h): its socket isn't watched while it waits for its turn, and each
 * wait gives one turn. With an authenticated peer it has a turn whenever bytes
 * are there.
 *
 * Only the end of a turn frees a connection in its turn, so the callee may end
 * the connection and go on using it. */

#include "os/talk.h"

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

#include "os/accept.h"
#include "os/clock.h"
#include "os/ration.h"
#include "os/tls_session.h"

#define IN_SIZE (WEIR_TALK_HELD_MAX + WEIR_TALK_READ)
#define OUT_SIZE (64u << 10)

struct weir_talk {
    struct weir_talk *next, **self;
    struct weir_talk_server *server;  /* borrowed */
    struct event *read, *write;       /* owned; 'write' only once needed */
    char *held, *rest;                /* owned; NULL: nothing */
    struct weir_tls_session *tls;     /* owned; NULL: plain text */
    struct event *again;              /* owned; over TLS: reads decrypted
                                       * bytes */
    struct weir_ration_member member; /* until its peer is authenticated */
    size_t held_len, rest_len, rest_sent;
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

struct weir_talk_server {
    struct weir_talk_options options;
    struct weir_acceptor *acceptor; /* owned; NULL: stopped */
    struct weir_ration *ration;     /* owned */
    struct event *look;             /* owned */
    struct weir_talk *first;
    struct weir_talk *current; /* the connection that 'out' has answers for */
    size_t count;
    struct weir_talk_counts counts;
    size_t out_len;
    char in[IN_SIZE];
    char out[OUT_SIZE];
};

static size_t header_size(void)
{
    return (sizeof(struct weir_talk) + 15) / 16 * 16;
}

/* ---- Out ---- */

static size_t send_sealed(struct weir_talk *talk, const char *bytes, size_t len)
{
    enum weir_tls_step step = WEIR_TLS_DONE;
    size_t sent = 0;
    while (sent < len && step == WEIR_TLS_DONE) {
        size_t some = 0;
        step = weir_tls_write(talk->tls, bytes + sent, len - sent, &some);
        sent += some;
    }
    talk->broken |= step == WEIR_TLS_FAILED;
    return sent;
}

/* Sends as many bytes as the socket takes; 0: none now. */
static size_t send_some(struct weir_talk *talk, const char *bytes, size_t len)
{
    if (talk->tls)
        return send_sealed(talk, bytes, len);
    ssize_t sent = send(talk->fd, bytes, len, MSG_NOSIGNAL);
    if (sent >= 0)
        return (size_t)sent;
    if (errno != EAGAIN && errno != EINTR)
        talk->broken = true;
    return 0;
}

static void keep_rest(struct weir_talk *talk, const char *bytes, size_t len)
{
    if (talk->broken)
        return;
    char *grown = realloc(talk->rest, talk->rest_len + len);
    if (!grown) {
        talk->broken = true;
        return;
    }
    memcpy(grown + talk->rest_len, bytes, len);
    talk->rest = grown;
    talk->rest_len += len;
}

static void flush(struct weir_talk *talk)
{
    struct weir_talk_server *server = talk->server;
    size_t len = server->out_len;
    server->out_len = 0;
    if (len == 0 || talk->broken)
        return;
    size_t sent = talk->rest ? 0 : send_some(talk, server->out, len);
    if (sent < len)
        keep_rest(talk, server->out + sent, len - sent);
}

void weir_talk_write(struct weir_talk *talk, const void *bytes, size_t len)
{
    struct weir_talk_server *server = talk->server;
    const char *from = bytes;
    weir_assert(server->current == talk);
    while (len > OUT_SIZE - server->out_len) {
        size_t fits = OUT_SIZE - server->out_len;
        memcpy(server->out + server->out_len, from, fits);
        server->out_len = OUT_SIZE;
        flush(talk);
        from += fits;
        len -= fits;
    }
    memcpy(server->out + server->out_len, from, len);
    server->out_len += len;
}

/* Whether more may be written. */
static bool is_writable(const struct weir_talk *talk)
{
    return !talk->ended && !talk->broken && !talk->rest;
}

bool weir_talk_is_open(const struct weir_talk *talk)
{
    return is_writable(talk) && !talk->busy;
}

/* A connection that is shut is still read, up to a bound: closing it with
 * unread input would reset it, and lose its last answer. */
static bool is_read(const struct weir_talk *talk)
{
    return !talk->rest && !talk->busy &&
           talk->lingered <= WEIR_TALK_LINGER_BYTES;
}

static void watch(struct weir_talk *talk)
{
    if (!is_read(talk))
        (void)event_del(talk->read);
    else if (event_add(talk->read, NULL) < 0)
        talk->broken = true;
}

void weir_talk_wake(struct weir_talk *talk)
{
    talk->woken = true;
    /* A stalled connection has its turn when its rest is sent. */
    if (!talk->in_turn && talk->rest_len == 0 && !talk->ended)
        event_active(talk->read, EV_READ, 0);
}

void weir_talk_end(struct weir_talk *talk)
{
    talk->ended = true;
    if (!talk->in_turn)
        event_active(talk->read, EV_READ, 0);
}

/* Only the kernel can tell whether a peer that may be silent still exists: a
 * host that loses its power closes nothing. */
static void probe(struct weir_talk *talk)
{
    talk->probed = true;
    const int on = 1;
    const int idle = WEIR_TALK_PROBE_AFTER;
    const int every = WEIR_TALK_PROBE_EVERY;
    const int count = WEIR_TALK_PROBES;
    (void)setsockopt(talk->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(talk->fd, IPPROTO_TCP, TCP_KEEPINTVL, &every,
                     sizeof every);
    (void)setsockopt(talk->fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(talk->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

void weir_talk_set_quiet(struct weir_talk *talk, bool quiet)
{
    if (quiet && !talk->probed && !talk->server->options.place.path[0])
        probe(talk);
    talk->quiet = quiet;
}

void weir_talk_set_known(struct weir_talk *talk, bool known)
{
    if (talk->known == known)
        return;
    talk->known = known;
    if (!known) {
        talk->since = weir_clock_now();
        return;
    }
    if (!talk->member.ration)
        return;
    weir_ration_admit(&talk->member);
    watch(talk);
}

void weir_talk_set_busy(struct weir_talk *talk, bool busy)
{
    talk->busy = busy;
    watch(talk);
}

void *weir_talk_state(struct weir_talk *talk)
{
    return (char *)talk + header_size();
}

void weir_talk_peer(const struct weir_talk *talk, char *buf)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    char host[46];
    char port[8];
    snprintf(buf, 64, "unix");
    if (getpeername(talk->fd, (struct sockaddr *)&at, &len) < 0 ||
        at.ss_family == AF_UNIX)
        return;
    if (getnameinfo((struct sockaddr *)&at, len, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(buf, 64, "%s:%s", host, port);
}

void weir_talk_peer_names(const struct weir_talk *talk,
                          struct weir_tls_peer *out)
{
    out->count = 0;
    if (talk->tls)
        weir_tls_session_names(talk->tls, out);
}

/* ---- Beginning and end ---- */

static void let_go(struct weir_talk *talk)
{
    struct weir_talk_server *server = talk->server;
    if (server->options.on_gone)
        server->options.on_gone(server->options.context, talk);
    weir_ration_leave(&talk->member);
    *talk->self = talk->next;
    if (talk->next)
        talk->next->self = talk->self;
    server->count--;
    event_free(talk->read);
    if (talk->write)
        event_free(talk->write);
    if (talk->again)
        event_free(talk->again);
    weir_tls_session_free(&talk->tls);
    close(talk->fd);
    free(talk->held);
    free(talk->rest);
    free(talk);
}

static void take_turn(struct weir_talk *talk, bool reads);

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_talk *talk = context;
    if (talk->member.ration) {
        (void)event_del(talk->read);
        weir_ration_wait(&talk->member);
        return;
    }
    take_turn(talk, is_read(talk));
}

/* A turn of a connection with an unauthenticated peer. */
static void on_turn(void *context)
{
    struct weir_talk *talk = context;
    watch(talk);
    take_turn(talk, is_read(talk));
}

static void tell_refused(struct weir_talk *talk, const char *why,
                         weir_instant now)
{
    const struct weir_talk_tls *tls = &talk->server->options.tls;
    char address[64];
    weir_talk_peer(talk, address);
    if (tls->on_refused)
        tls->on_refused(tls->context, address, why, now);
}

static void on_evicted(void *context, const char *why)
{
    struct weir_talk *talk = context;
    weir_assert(!talk->in_turn);
    talk->server->counts.crowded++;
    if (talk->shaking)
        tell_refused(talk, why, weir_clock_now());
    let_go(talk);
}

/* False: no memory. */
static bool prepare(struct weir_talk *talk)
{
    const struct weir_talk_options *options = &talk->server->options;
    talk->shaking = options->tls.tls != NULL;
    talk->read = event_new(options->base, talk->fd, EV_READ | EV_PERSIST,
                           on_readable, talk);
    return talk->read && event_add(talk->read, NULL) == 0;
}

/* On success the connection owns 'fd'. */
static struct weir_talk *begin(struct weir_talk_server *server, int fd,
                               const struct sockaddr *peer)
{
    size_t size = header_size() + server->options.state_size;
    struct weir_talk *talk = calloc(1, size);
    if (!talk)
        return NULL;
    *talk = (struct weir_talk){ .server = server, .fd = fd };
    talk->since = talk->heard = weir_clock_now();
    if (!prepare(talk)) {
        if (talk->read)
            event_free(talk->read);
        free(talk);
        return NULL;
    }
    talk->member = (struct weir_ration_member){ .turn = on_turn,
                                                .evict = on_evicted,
                                                .context = talk };
    weir_ration_join(server->ration, &talk->member, peer);
    talk->next = server->first;
    talk->self = &server->first;
    if (talk->next)
        talk->next->self = &talk->next;
    server->first = talk;
    server->count++;
    server->counts.opened++;
    return talk;
}

static void refuse(struct weir_talk_server *server, int fd)
{
    server->counts.crowded++;
    if (!server->options.tls.tls)
        (void)!send(fd, server->options.crowded.p, server->options.crowded.len,
                    MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void on_socket(void *context, int fd, const struct sockaddr *peer)
{
    struct weir_talk_server *server = context;
    int on = 1;
    if (!server->options.place.path[0])
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (server->count >= server->options.max &&
        !weir_ration_evict(server->ration, "too many peers are connected"))
        refuse(server, fd);
    else if (!begin(server, fd, peer))
        close(fd);
}

static bool make_room(void *context)
{
    struct weir_talk_server *server = context;
    return weir_ration_evict(server->ration, "no descriptor is left");
}

/* ---- A turn ---- */

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_talk *talk = context;
    if (talk->shaking) {
        take_turn(talk, true);
        return;
    }
    size_t left = talk->rest_len - talk->rest_sent;
    size_t sent = send_some(talk, talk->rest + talk->rest_sent, left);
    talk->rest_sent += sent;
    if (sent > 0)
        talk->stalled_at = weir_clock_now();
    if (talk->rest_sent < talk->rest_len && !talk->broken) {
        event_add(talk->write, NULL);
        return;
    }
    free(talk->rest);
    talk->rest = NULL;
    talk->rest_len = talk->rest_sent = 0;
    talk->stalled_at = 0;
    watch(talk);
    take_turn(talk, false);
}

static bool await_writable(struct weir_talk *talk)
{
    if (!talk->write)
        talk->write = event_new(talk->server->options.base, talk->fd, EV_WRITE,
                                on_writable, talk);
    talk->broken |= !talk->write || event_add(talk->write, NULL) < 0;
    return !talk->broken;
}

/* Stops reading until the rest is sent. */
static void stall(struct weir_talk *talk, weir_instant now)
{
    if (!await_writable(talk))
        return;
    event_del(talk->read);
    talk->stalled_at = now;
}

/* A connection gets its session in its first turn: sessions are large, and
 * connections of a flood wait long. */
static bool begin_tls(struct weir_talk *talk)
{
    const struct weir_talk_options *options = &talk->server->options;
    talk->tls = weir_tls_session_new(options->tls.tls, NULL);
    talk->again = event_new(options->base, -1, 0, on_readable, talk);
    if (!talk->tls || !talk->again)
        return false;
    weir_tls_begin(talk->tls, talk->fd);
    return true;
}

/* The next step of the handshake. False: it has failed. */
static bool shake(struct weir_talk *talk)
{
    if (!talk->tls && !begin_tls(talk))
        return false;
    switch (weir_tls_handshake(talk->tls)) {
    case WEIR_TLS_DONE:
        talk->shaking = false;
        return true;
    case WEIR_TLS_READS:
        return true;
    case WEIR_TLS_WRITES:
        return await_writable(talk);
    case WEIR_TLS_FAILED:
        break;
    }
    tell_refused(talk, weir_tls_why(talk->tls), weir_clock_now());
    return false;
}

/* Keeps the bytes that weren't consumed in the connection's own memory. */
static bool hold(struct weir_talk *talk, const char *bytes, size_t len)
{
    if (len == 0) {
        free(talk->held);
        talk->held = NULL;
        talk->held_len = 0;
        return true;
    }
    char *held = len == talk->held_len ? talk->held : realloc(talk->held, len);
    if (!held)
        return false;
    memcpy(held, bytes, len);
    talk->held = held;
    talk->held_len = len;
    return true;
}

/* Reads bytes and returns their number; 0: none now, -1: the peer has gone. */
static ssize_t receive(struct weir_talk *talk, char *buf)
{
    size_t size = talk->member.ration ? WEIR_RATION_READ : WEIR_TALK_READ;
    size_t len = 0;
    if (!talk->tls) {
        ssize_t got = recv(talk->fd, buf, size, 0);
        if (got > 0)
            return got;
        return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    }
    switch (weir_tls_read(talk->tls, buf, size, &len)) {
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
static bool take_in(struct weir_talk *talk, bool reads, size_t *out_len)
{
    struct weir_talk_server *server = talk->server;
    size_t len = talk->held_len;
    if (len > 0)
        memcpy(server->in, talk->held, len);
    *out_len = len;
    if (!reads)
        return true;
    ssize_t got = receive(talk, server->in + len);
    if (got > 0)
        *out_len = len + (size_t)got;
    return got >= 0;
}

/* Lets the listener answer all complete requests. False: the connection
 * ends. */
static bool answer(struct weir_talk *talk, size_t len, weir_instant now)
{
    struct weir_talk_server *server = talk->server;
    size_t used = 0;
    if (talk->woken && is_writable(talk)) {
        talk->woken = false;
        (void)server->options.on_bytes(server->options.context, talk,
                                       server->in, 0, now);
    }
    while (used < len && weir_talk_is_open(talk)) {
        size_t consumed = server->options.on_bytes(
            server->options.context, talk, server->in + used, len - used, now);
        if (consumed == 0)
            break;
        used += consumed;
    }
    flush(talk);
    if (weir_talk_is_open(talk) && len - used > WEIR_TALK_HELD_MAX)
        return false;
    return hold(talk, server->in + used, len - used);
}

/* Closes our half after the listener has ended the connection and every byte is
 * sent. Later bytes of the peer are read and ignored. */
static void shut(struct weir_talk *talk, weir_instant now)
{
    talk->shut = true;
    talk->since = now;
    (void)hold(talk, NULL, 0);
    if (talk->tls)
        (void)weir_tls_end(talk->tls);
    if (shutdown(talk->fd, SHUT_WR) < 0)
        talk->broken = true;
}

static bool turn(struct weir_talk *talk, bool reads)
{
    size_t len;
    if (talk->shaking && (talk->ended || !shake(talk)))
        return false;
    if (talk->shaking)
        return true;
    if (!take_in(talk, reads, &len))
        return false;
    if (talk->shut) {
        talk->lingered += len;
        if (!is_read(talk))
            event_del(talk->read);
        return true;
    }
    weir_instant now = weir_clock_now();
    talk->heard = now;
    if (!talk->ended && !answer(talk, len, now))
        return false;
    if (talk->rest && talk->stalled_at == 0)
        stall(talk, now);
    else if (talk->ended && !talk->rest)
        shut(talk, now);
    return !talk->broken;
}

/* Reads decrypted bytes after other connections had their turn. If this event
 * were active at once, it would be the loop's next, and a peer that never stops
 * sending would block all others. */
static void look_again(struct weir_talk *talk)
{
    const struct timeval soon = { .tv_sec = 0 };
    if (talk->tls && !talk->shaking && is_read(talk) &&
        weir_tls_is_pending(talk->tls))
        (void)event_add(talk->again, &soon);
}

static void take_turn(struct weir_talk *talk, bool reads)
{
    talk->in_turn = true;
    talk->server->current = talk;
    bool goes_on = turn(talk, reads);
    talk->server->out_len = 0;
    talk->server->current = NULL;
    talk->in_turn = false;
    if (goes_on)
        look_again(talk);
    else
        let_go(talk);
}

/* ---- The check of each second ---- */

/* Whether the peer is unauthenticated for too long. */
static bool is_unknown(const struct weir_talk *talk, weir_instant now)
{
    weir_duration most = talk->server->options.stranger_max;
    return most && !talk->known && !talk->busy && now - talk->since > most;
}

static bool is_over(const struct weir_talk *talk, weir_instant now)
{
    weir_duration silence = talk->server->options.silence_max;
    if (talk->shut)
        return now - talk->since > WEIR_TALK_LINGER_MAX;
    if (talk->stalled_at)
        return now - talk->stalled_at > WEIR_TALK_SLOW_MAX;
    return silence && !talk->quiet && !talk->busy &&
           now - talk->heard > silence;
}

static void look_at(struct weir_talk *talk, weir_instant now)
{
    const struct weir_talk_options *options = &talk->server->options;
    const char *why = NULL;
    if (talk->shaking && now - talk->since > WEIR_TLS_HANDSHAKE_MAX)
        why = "the handshake took too long";
    else if (talk->tls && !talk->shaking && !talk->ended)
        why = weir_tls_session_doubt(talk->tls, NULL);
    if (why) {
        tell_refused(talk, why, now);
        let_go(talk);
    } else if (!talk->shaking && !talk->shut && is_unknown(talk, now)) {
        if (options->on_unknown)
            options->on_unknown(options->context, talk, now);
        let_go(talk);
    } else if (!talk->shaking && is_over(talk, now))
        let_go(talk);
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_talk_server *server = context;
    weir_instant now = weir_clock_now();
    struct weir_talk *next;
    for (struct weir_talk *talk = server->first; talk; talk = next) {
        next = talk->next;
        look_at(talk, now);
    }
}

/* ---- The server ---- */

/* On success the server owns 'fd'. */
static int start(struct weir_talk_server *server, int fd)
{
    const struct timeval second = { .tv_sec = 1 };
    const struct weir_talk_options *options = &server->options;
    size_t places = options->unknown_max    ? options->unknown_max
                    : options->stranger_max ? (options->max + 1) / 2
                                            : options->max;
    const struct weir_ration_options ration = {
        .base = options->base,
        .places = places,
    };
    const struct weir_acceptor_options acceptor = {
        .base = options->base,
        .fd = fd,
        .on_socket = on_socket,
        .make_room = make_room,
        .on_short = options->on_short,
        .context = server,
    };
    server->ration = weir_ration_new(&ration);
    server->look = event_new(options->base, -1, EV_PERSIST, on_look, server);
    if (!server->ration || !server->look ||
        event_add(server->look, &second) < 0)
        return WEIR_ENOMEM;
    return weir_acceptor_new(&acceptor, &server->acceptor);
}

int weir_talk_server_new(const struct weir_talk_options *options,
                         struct weir_talk_server **out, struct weir_diag *diag)
{
    weir_assert(options->max > 0 && options->on_bytes);
    struct weir_talk_server *server = malloc(sizeof *server);
    if (!server)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    memset(server, 0, offsetof(struct weir_talk_server, in));
    server->options = *options;
    if (options->place.path[0])
        server->options.tls.tls = NULL;
    int fd = weir_place_listen(&server->options.place, diag);
    if (fd < 0) {
        free(server);
        return fd;
    }
    int error = start(server, fd);
    if (error < 0) {
        close(fd);
        weir_place_leave(&server->options.place);
        weir_talk_server_free(&server);
        return weir_diag_set(diag, error, weir_strerror(error), NULL);
    }
    *out = server;
    return 0;
}

const struct weir_place *weir_talk_server_place(
    const struct weir_talk_server *server)
{
    return &server->options.place;
}

size_t weir_talk_server_count(const struct weir_talk_server *server)
{
    return server->count;
}

struct weir_talk_counts weir_talk_server_counts(
    const struct weir_talk_server *server)
{
    return server->counts;
}

void weir_talk_server_stop(struct weir_talk_server *server)
{
    if (!server->acceptor)
        return;
    weir_acceptor_free(&server->acceptor);
    weir_place_leave(&server->options.place);
}

void weir_talk_server_each(struct weir_talk_server *server,
                           void (*fn)(void *context, struct weir_talk *talk),
                           void *context)
{
    for (struct weir_talk *talk = server->first; talk; talk = talk->next)
        fn(context, talk);
}

static void doubt(void *context, struct weir_talk *talk)
{
    const char *why = talk->tls && !talk->ended
                          ? weir_tls_session_doubt(talk->tls, context)
                          : NULL;
    if (!why)
        return;
    tell_refused(talk, why, weir_clock_now());
    weir_talk_end(talk);
}

void weir_talk_server_doubt(struct weir_talk_server *server)
{
    if (server->options.tls.tls)
        weir_talk_server_each(server, doubt, server->options.tls.tls);
}

void weir_talk_server_free(struct weir_talk_server **server)
{
    struct weir_talk_server *self = *server;
    if (!self)
        return;
    *server = NULL;
    while (self->first)
        let_go(self->first);
    weir_talk_server_stop(self);
    weir_ration_free(&self->ration);
    if (self->look)
        event_free(self->look);
    free(self);
}
