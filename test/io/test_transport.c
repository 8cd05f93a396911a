/* SPDX-License-Identifier: MIT
 * test_transport.c - the connection layer against a naive model.
 *
 * A history is a listener, plain or TLS, queued (io/stream.h) or in turn
 * (io/conn.h), and peers with sockets of their own that send and read random
 * parts of their bytes, stop, close and reset in a random order. The model of a
 * connection is two strings: the bytes that one side has written, and those
 * that the other side should get. At each instant the bytes received are a
 * prefix of them; at the end of a history they are equal, unless a peer was
 * cut off for a reason of the history.
 *
 * In every fourth history allocations fail at random: of Weir (by the linker's
 * --wrap), of libevent and of OpenSSL. Then connections end early, and no byte
 * is wrong. In every fourth the listener is too small for the peers.
 *
 * Bounds of time (2 s to flush, 5 s for a handshake) aren't tested here: a
 * history that took longer than a second, on a machine that is too busy, is
 * only checked for prefixes. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "certificate_maker.h"
#include "compare.h"
#include "io/byte_queue.h"
#include "io/clock.h"
#include "io/conn.h"
#include "io/stream.h"
#include "patience.h"
#include "seed.h"

#define HISTORIES 400
#define STEPS 150
#define PEERS_MAX 6
#define OVER (1 * WEIR_SECOND) /* a history that took longer isn't exact */

/* ---- Allocations that fail ---- */

static uint64_t failing; /* one allocation in so many fails; 0: none */
static struct weir_rng fate;

static bool is_failing(void)
{
    return failing > 0 && weir_rng_below(&fate, failing) == 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *__wrap_malloc(size_t size)
{
    return is_failing() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return is_failing() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return is_failing() ? NULL : __real_realloc(old, size);
}

static void *openssl_malloc(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    return __wrap_malloc(size);
}

static void *openssl_realloc(void *old, size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    return __wrap_realloc(old, size);
}

static void openssl_free(void *old, const char *file, int line)
{
    (void)file;
    (void)line;
    free(old);
}

/* ---- The stage ---- */

/* Requests of the in-turn listener: kind, length of the payload, times that the
 * payload is answered. */
enum kind { ECHO, LATE, LAST, KINDS };
struct head {
    uint8_t kind, times;
    uint16_t len;
};

struct peer {
    struct world *world;
    unsigned index;
    int fd; /* -1: closed */
    struct weir_tls_session *tls;
    bool shaken, stuck;          /* … in a step of TLS */
    bool cut;                    /* it needn't get all: it has broken off */
    bool ended;                  /* it has got the end */
    bool last;                   /* it has sent the last request */
    struct weir_byte_queue out;  /* to send */
    struct weir_byte_queue want; /* to receive */
    size_t sent, got;
    /* The other side, if it is queued. */
    struct weir_stream *stream;
    size_t received; /* by the stream */
    bool closed;     /* the stream was, and its bytes flushed */
};

/* State of an in-turn connection. */
struct visit {
    bool late;
    struct head head;
    uint8_t payload[4096];
};

struct world {
    struct weir_rng rng;
    struct event_base *base;
    struct weir_tls *server_tls, *client_tls; /* borrowed; NULL: plain */
    struct weir_listener *listener;           /* one of both */
    struct weir_conn_server *server;
    uint16_t port;
    bool exact;
    unsigned count;
    struct peer peers[PEERS_MAX];
};

static struct maker_pki pki;
static struct weir_tls *tls_of[2]; /* of the server, of a client */

static size_t below(struct world *world, size_t limit)
{
    return (size_t)weir_rng_below(&world->rng, limit);
}

static bool one_in(struct world *world, size_t n)
{
    return below(world, n) == 0;
}

/* The byte at a place of the bytes that a peer sends or gets. */
static uint8_t byte_at(unsigned peer, size_t at)
{
    return (uint8_t)(at * 31 + (at >> 8) + peer * 7);
}

static void put(struct weir_byte_queue *queue, const void *bytes, size_t len)
{
    assert_true(weir_byte_queue_reserve(queue, len));
    weir_byte_queue_append(queue, bytes, len);
}

static void put_pattern(struct weir_byte_queue *queue, unsigned peer,
                        size_t from, size_t len)
{
    assert_true(weir_byte_queue_reserve(queue, len));
    for (size_t i = 0; i < len; i++) {
        uint8_t byte = byte_at(peer, from + i);
        weir_byte_queue_append(queue, &byte, 1);
    }
}

/* ---- The in-turn side ---- */

static void answer(struct weir_conn *conn, const struct head *head,
                   const void *payload)
{
    for (unsigned i = 0; i < head->times; i++)
        weir_conn_write(conn, payload, head->len);
    if (head->kind == LAST)
        weir_conn_end(conn);
}

static size_t on_requests(void *context, struct weir_conn *conn,
                          const char *bytes, size_t len, weir_instant now)
{
    (void)now;
    struct world *world = context;
    struct visit *visit = weir_conn_state(conn);
    struct head head;
    if (len == 0) {
        if (visit->late) {
            visit->late = false;
            answer(conn, &visit->head, visit->payload);
            weir_conn_set_busy(conn, false);
        }
        return 0;
    }
    assert_true(weir_conn_is_open(conn) && !visit->late);
    if (len < sizeof head)
        return 0;
    memcpy(&head, bytes, sizeof head);
    if (len - sizeof head < head.len)
        return 0;
    if (one_in(world, 3))
        weir_conn_set_known(conn, true);
    if (head.kind == LATE) {
        visit->late = true;
        visit->head = head;
        memcpy(visit->payload, bytes + sizeof head, head.len);
        weir_conn_set_busy(conn, true);
    } else {
        answer(conn, &head, bytes + sizeof head);
    }
    return sizeof head + head.len;
}

static void wake_late(void *context, struct weir_conn *conn)
{
    const struct visit *visit = weir_conn_state(conn);
    if (visit->late && one_in(context, 2))
        weir_conn_wake(conn);
}

/* ---- The queued side ---- */

static void on_stream_bytes(void *context, struct weir_stream *stream,
                            const void *bytes, size_t len)
{
    struct peer *peer = context;
    const uint8_t *from = bytes;
    for (size_t i = 0; i < len; i++)
        assert_int_equal(from[i], byte_at(peer->index, peer->received + i));
    peer->received += len;
    assert_compare(peer->received, <=, peer->sent);
    if (one_in(peer->world, 3))
        weir_stream_set_authenticated(stream);
}

static void on_stream_lost(void *context, struct weir_stream *stream,
                           const char *why)
{
    struct peer *peer = context;
    assert_ptr_equal(peer->stream, stream);
    assert_compare(strlen(why), >, 0);
    assert_true(peer->cut || !peer->world->exact);
    peer->cut = true;
    weir_stream_close(&peer->stream, false);
}

/* The first byte of a peer names it; it isn't part of the pattern. */
static void on_first_bytes(void *context, struct weir_stream *stream,
                           const void *bytes, size_t len)
{
    struct world *world = context;
    const uint8_t *from = bytes;
    assert_compare(from[0], <, world->count);
    struct peer *peer = &world->peers[from[0]];
    assert_null(peer->stream);
    peer->stream = stream;
    const struct weir_stream_handler handler = { .context = peer,
                                                 .on_bytes = on_stream_bytes,
                                                 .on_lost = on_stream_lost };
    weir_stream_set_handler(stream, &handler);
    if (len > 1)
        on_stream_bytes(peer, stream, from + 1, len - 1);
}

static void on_nameless_lost(void *context, struct weir_stream *stream,
                             const char *why)
{
    (void)context;
    (void)why;
    weir_stream_close(&stream, false);
}

static void on_stream_accepted(void *context, struct weir_stream *stream)
{
    const struct weir_stream_handler handler = { .context = context,
                                                 .on_bytes = on_first_bytes,
                                                 .on_lost = on_nameless_lost };
    weir_stream_set_handler(stream, &handler);
}

static void write_stream(struct world *world, struct peer *peer, uint64_t fails)
{
    size_t len = 1 + below(world, one_in(world, 4) ? 400000 : 3000);
    struct weir_byte_queue bytes = { .p = NULL };
    if (!peer->stream)
        return;
    put_pattern(&bytes, peer->index, peer->want.len, len);
    size_t queued = weir_stream_queued(peer->stream);
    failing = fails;
    int error = weir_stream_write(peer->stream, bytes.p, len);
    failing = 0;
    if (error == 0) {
        put(&peer->want, bytes.p, len);
        assert_int_equal(weir_stream_queued(peer->stream), queued + len);
    } else {
        assert_true(peer->cut || !world->exact);
    }
    weir_byte_queue_fini(&bytes);
}

static void close_stream(struct world *world, struct peer *peer)
{
    bool flush = !one_in(world, 3);
    bool is_quiet = peer->received == peer->sent &&
                    weir_byte_queue_left(&peer->out) == 0;
    if (!peer->stream || (!is_quiet && !one_in(world, 20)))
        return;
    if (one_in(world, 2))
        write_stream(world, peer, 0);
    /* Bytes that the peer sends from here on may reset its connection. */
    peer->cut |= !flush || !is_quiet;
    peer->closed = true;
    weir_stream_close(&peer->stream, flush);
}

/* ---- Peers ---- */

static void leave_peer(struct peer *peer, bool reset)
{
    const struct linger now = { .l_onoff = 1 };
    if (peer->fd < 0)
        return;
    if (reset)
        setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    weir_tls_session_free(&peer->tls);
    close(peer->fd);
    peer->fd = -1;
}

static void begin_peer(struct world *world)
{
    const int small = 4096;
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons(world->port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    if (world->count == PEERS_MAX)
        return;
    struct peer *peer = &world->peers[world->count];
    *peer = (struct peer){ .world = world, .index = world->count++ };
    peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (one_in(world, 2))
        setsockopt(peer->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    /* The kernel accepts it, even if the listener doesn't. */
    assert_int_equal(connect(peer->fd, (struct sockaddr *)&at, sizeof at), 0);
    peer->shaken = !world->client_tls;
    if (world->client_tls) {
        peer->tls = weir_tls_session_new(world->client_tls, "127.0.0.1");
        weir_tls_begin(peer->tls, peer->fd);
    }
    if (world->listener)
        put(&peer->out, &(uint8_t){ (uint8_t)peer->index }, 1);
}

/* More bytes to send. */
static void compose(struct world *world, struct peer *peer)
{
    if (peer->last || peer->closed)
        return;
    if (world->listener) {
        size_t len = 1 + below(world, one_in(world, 4) ? 200000 : 2000);
        put_pattern(&peer->out, peer->index, peer->sent, len);
        peer->sent += len;
        return;
    }
    struct head head = {
        .kind = one_in(world, 40)  ? LAST
                : one_in(world, 5) ? LATE
                                   : ECHO,
        .times = (uint8_t)below(world, one_in(world, 10) ? 100 : 3),
        .len = (uint16_t)below(world, one_in(world, 5) ? 4096 : 40),
    };
    struct weir_byte_queue payload = { .p = NULL };
    put_pattern(&payload, peer->index, peer->want.len, head.len);
    put(&peer->out, &head, sizeof head);
    put(&peer->out, payload.p, head.len);
    for (unsigned i = 0; i < head.times; i++)
        put(&peer->want, payload.p, head.len);
    weir_byte_queue_fini(&payload);
    peer->last = head.kind == LAST;
}

static void shake_peer(struct peer *peer)
{
    enum weir_tls_step step = weir_tls_handshake(peer->tls);
    peer->shaken = step == WEIR_TLS_DONE;
    if (step != WEIR_TLS_FAILED)
        return;
    assert_true(peer->cut || !peer->world->exact);
    leave_peer(peer, false);
}

static void send_some(struct peer *peer, size_t most)
{
    struct weir_byte_queue *out = &peer->out;
    size_t len = weir_byte_queue_left(out);
    if (peer->fd < 0 || !peer->shaken || len == 0)
        return;
    /* TLS repeats a record that the socket didn't take, with more bytes. */
    if (len > most && !peer->stuck)
        len = most;
    size_t sent = 0;
    if (peer->tls) {
        enum weir_tls_step step =
            weir_tls_write(peer->tls, out->p + out->head, len, &sent);
        peer->stuck = step == WEIR_TLS_READS || step == WEIR_TLS_WRITES;
    } else {
        ssize_t done = send(peer->fd, out->p + out->head, len,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        sent = done > 0 ? (size_t)done : 0;
    }
    weir_byte_queue_take(out, sent);
}

static ssize_t receive(struct peer *peer, void *buf, size_t most)
{
    size_t got = 0;
    if (!peer->tls) {
        ssize_t len = recv(peer->fd, buf, most, MSG_DONTWAIT);
        return len < 0 && errno == EAGAIN ? -2 : len;
    }
    switch (weir_tls_read(peer->tls, buf, most, &got)) {
    case WEIR_TLS_DONE:
        return (ssize_t)got;
    case WEIR_TLS_READS:
    case WEIR_TLS_WRITES:
        return -2;
    case WEIR_TLS_FAILED:
        break;
    }
    return 0;
}

static void read_some(struct peer *peer, size_t most)
{
    static uint8_t bytes[65536];
    if (peer->fd < 0)
        return;
    if (!peer->shaken) {
        shake_peer(peer);
        return;
    }
    ssize_t got = receive(peer, bytes, most < sizeof bytes ? most : 65536);
    if (got == -2)
        return;
    if (got <= 0) {
        peer->ended = true;
        leave_peer(peer, false);
        return;
    }
    assert_compare((size_t)got, <=, peer->want.len - peer->got);
    assert_memory_equal(bytes, peer->want.p + peer->got, (size_t)got);
    peer->got += (size_t)got;
}

/* ---- Histories ---- */

/* The files of TLS were read anew. */
static void end_handshakes(struct world *world)
{
    if (!world->listener || !world->server_tls)
        return;
    for (unsigned i = 0; i < world->count; i++)
        world->peers[i].cut |= !world->peers[i].stream;
    weir_listener_doubt(world->listener);
}

static void turn(struct world *world, uint64_t fails)
{
    failing = fails;
    event_base_loop(world->base, EVLOOP_NONBLOCK);
    failing = 0;
}

static void do_one(struct world *world, uint64_t fails)
{
    struct peer *peer = &world->peers[below(world, world->count)];
    switch (below(world, 12)) {
    case 0:
        begin_peer(world);
        break;
    case 1:
    case 2:
        compose(world, peer);
        break;
    case 3:
    case 4:
        send_some(peer, 1 + below(world, one_in(world, 3) ? 70000 : 30));
        break;
    case 5:
    case 6:
        read_some(peer, 1 + below(world, one_in(world, 3) ? 70000 : 30));
        break;
    case 7:
        if (world->listener)
            write_stream(world, peer, fails);
        else
            weir_conn_server_each(world->server, wake_late, world);
        break;
    case 8:
        if (one_in(world, 20)) {
            peer->cut = true;
            leave_peer(peer, one_in(world, 2));
        } else if (one_in(world, 4)) {
            close_stream(world, peer);
        } else if (one_in(world, 20)) {
            end_handshakes(world);
        }
        break;
    default:
        turn(world, fails);
    }
}

/* Whether all bytes have come that must. */
static bool is_satisfied(const struct peer *peer)
{
    if (peer->cut)
        return true;
    if (peer->got < peer->want.len)
        return peer->ended;
    if (peer->last || peer->closed)
        return peer->ended;
    return weir_byte_queue_left(&peer->out) == 0 &&
           (!peer->world->listener || peer->received == peer->sent);
}

static bool are_satisfied(const struct world *world)
{
    for (unsigned i = 0; i < world->count; i++)
        if (!is_satisfied(&world->peers[i]))
            return false;
    return true;
}

/* All that was begun comes to its end. */
static void finish(struct world *world)
{
    while (STILL(!are_satisfied(world))) {
        for (unsigned i = 0; i < world->count; i++) {
            struct peer *peer = &world->peers[i];
            send_some(peer, 65536);
            read_some(peer, 65536);
        }
        if (world->server)
            weir_conn_server_each(world->server, wake_late, world);
        turn(world, 0);
    }
}

/* Gives the sockets of the listener small buffers, so that they take only parts
 * of what is written; accepted sockets inherit those of the listening one. */
static void shrink_buffers(void)
{
    const int small = 4096;
    for (int fd = 3; fd < 64; fd++) {
        int listens = 0;
        socklen_t len = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 &&
            listens)
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    }
}

static void begin_world(struct world *world, bool queued, size_t max)
{
    struct weir_address address = { .host = "127.0.0.1" };
    world->base = event_base_new();
    if (queued) {
        const struct weir_listener_options options = {
            .address = address,
            .tls = world->server_tls,
            .max = max,
            .places = max,
            .on_accept = on_stream_accepted,
            .context = world,
        };
        assert_int_equal(
            weir_listener_new(world->base, &options, &world->listener, NULL),
            0);
        world->port = weir_listener_port(world->listener);
        return;
    }
    const struct weir_conn_options options = {
        .base = world->base,
        .place = { .address = address },
        .tls = { .tls = world->server_tls },
        .max = max,
        .state_size = sizeof(struct visit),
        .context = world,
        .on_bytes = on_requests,
    };
    assert_int_equal(weir_conn_server_new(&options, &world->server, NULL), 0);
    world->port = weir_conn_server_address(world->server)->address.port;
}

static void end_world(struct world *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        struct peer *peer = &world->peers[i];
        peer->cut = true;
        leave_peer(peer, false);
        weir_stream_close(&peer->stream, false);
        weir_byte_queue_fini(&peer->out);
        weir_byte_queue_fini(&peer->want);
    }
    weir_listener_free(&world->listener);
    weir_conn_server_free(&world->server);
    /* No event is left. */
    PATIENTLY(event_base_dispatch(world->base));
    event_base_free(world->base);
}

/* The first histories have all shapes without failures: OpenSSL makes parts of
 * itself when they are first used, and doesn't try again if that fails. */
static bool run_history(struct weir_rng *rng, uint64_t number)
{
    struct world world = { .rng = { weir_rng_next(rng) } };
    unsigned shape = (unsigned)(number < 4 ? number : below(&world, 16));
    bool small = (shape & 12) == 4;
    bool fails = (shape & 12) == 8;
    fate = (struct weir_rng){ weir_rng_next(rng) };
    world.exact = !small && !fails;
    world.server_tls = shape & 1 ? tls_of[0] : NULL;
    world.client_tls = shape & 1 ? tls_of[1] : NULL;
    begin_world(&world, shape & 2, small ? 2 : 64);
    if (one_in(&world, 2))
        shrink_buffers();
    weir_instant since = weir_clock_now();
    begin_peer(&world);
    for (unsigned i = 0; i < STEPS; i++)
        do_one(&world, fails ? 1 + below(&world, 200) : 0);
    if (world.exact)
        finish(&world);
    bool exact = world.exact && weir_clock_now() - since < OVER;
    for (unsigned i = 0; i < world.count && exact; i++)
        if (!world.peers[i].cut)
            assert_int_equal(world.peers[i].got, world.peers[i].want.len);
    end_world(&world);
    return exact;
}

static void test_histories(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("the connection layer");
    uint64_t histories = from_environment("WEIR_HISTORIES", HISTORIES);
    uint64_t exact = 0;
    for (uint64_t i = 0; i < histories; i++)
        exact += run_history(&rng, i);
    printf("%llu histories, %llu exact\n", (unsigned long long)histories,
           (unsigned long long)exact);
}

static int make_certificates(void **state)
{
    (void)state;
    const struct maker_leaf leaf = { "root-1", "IP:127.0.0.1" };
    maker_pki_init(&pki);
    maker_pki_issue(&pki, "root", pki.ca, &leaf);
    const struct weir_tls_options server = {
        .server = true,
        .cert = maker_pki_path(&pki, "root.crt"),
        .key = maker_pki_path(&pki, "root.key"),
    };
    const struct weir_tls_options client = {
        .ca = maker_pki_path(&pki, "ca.crt"),
    };
    return weir_tls_new(&server, &tls_of[0], NULL) |
           weir_tls_new(&client, &tls_of[1], NULL);
}

static int drop_certificates(void **state)
{
    (void)state;
    weir_tls_free(&tls_of[0]);
    weir_tls_free(&tls_of[1]);
    maker_pki_fini(&pki);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
    };
    assert_int_equal(
        CRYPTO_set_mem_functions(openssl_malloc, openssl_realloc, openssl_free),
        1);
    event_set_mem_functions(__wrap_malloc, __wrap_realloc, free);
    return cmocka_run_group_tests(tests, make_certificates, drop_certificates);
}
