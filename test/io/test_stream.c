/* SPDX-License-Identifier: MIT
 * test_stream.c - addresses, streams, listeners and gRPC links over 127.0.0.1,
 * on ports that the kernel chooses. No sleeps: each test runs its loop until
 * its condition holds. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compare.h"
#include "io/clock.h"
#include "io/daemon.h"
#include "io/h2_link.h"
#include "patience.h"

struct world {
    struct event_base *base;
    struct weir_listener *listener;
    struct weir_address address;
    struct weir_stream *client;
    struct weir_stream *server;
    struct weir_h2_link *client_link;
    struct weir_h2_link *server_link;
    bool with_links;
    bool close_on_bytes;
    unsigned accepted;
    unsigned opened;
    unsigned lost;
    unsigned drained;
    unsigned closes;
    unsigned messages;
    size_t bytes;
    int status;
    char why[200];
};

/* Turns the world's loop until the counter is there. */
#define WAIT_FOR(WORLD, COUNTER, WANTED)                 \
    do {                                                 \
        while (STILL_BELOW(COUNTER, WANTED))             \
            event_base_loop((WORLD)->base, EVLOOP_ONCE); \
    } while (0)

/* ---- Handlers ---- */

static void on_open(void *context, struct weir_stream *stream)
{
    (void)stream;
    ((struct world *)context)->opened++;
}

static void on_bytes(void *context, struct weir_stream *stream,
                     const void *bytes, size_t len)
{
    (void)bytes;
    struct world *world = context;
    world->bytes += len;
    world->messages++;
    if (!world->close_on_bytes)
        return;
    if (stream == world->server)
        weir_stream_close(&world->server, false);
}

static void on_drain(void *context, struct weir_stream *stream)
{
    (void)stream;
    ((struct world *)context)->drained++;
}

static void on_lost(void *context, struct weir_stream *stream, const char *why)
{
    struct world *world = context;
    world->lost++;
    snprintf(world->why, sizeof(world->why), "%s", why);
    if (stream == world->client)
        weir_stream_close(&world->client, false);
    else
        weir_stream_close(&world->server, false);
}

static struct weir_stream_handler stream_handler(struct world *world)
{
    return (struct weir_stream_handler){ world, on_open, on_bytes, on_drain,
                                         on_lost };
}

static bool on_call(void *context, struct weir_h2 *h2, int32_t stream,
                    const char *path, const char *authorization)
{
    (void)authorization;
    (void)context;
    (void)h2;
    (void)stream;
    return strcmp(path, "/echo") == 0;
}

static void on_server_message(void *context, struct weir_h2 *h2, int32_t stream,
                              const void *bytes, size_t len)
{
    (void)context;
    assert_int_equal(weir_h2_send(h2, stream, bytes, len, false), 0);
}

static void on_client_message(void *context, struct weir_h2 *h2, int32_t stream,
                              const void *bytes, size_t len)
{
    (void)h2;
    (void)stream;
    (void)bytes;
    struct world *world = context;
    world->messages++;
    world->bytes += len;
    if (world->close_on_bytes)
        weir_h2_link_close(&world->client_link);
}

static void on_end(void *context, struct weir_h2 *h2, int32_t stream)
{
    (void)context;
    assert_int_equal(weir_h2_finish(h2, stream, WEIR_GRPC_OK, NULL), 0);
}

static void on_close(void *context, struct weir_h2 *h2, int32_t stream,
                     int status, const char *message)
{
    (void)h2;
    (void)stream;
    (void)message;
    struct world *world = context;
    world->closes++;
    world->status = status;
}

static void on_link_open(void *context, struct weir_h2_link *link)
{
    (void)link;
    ((struct world *)context)->opened++;
}

static void on_link_lost(void *context, struct weir_h2_link *link,
                         const char *why)
{
    struct world *world = context;
    if (link == world->server_link) {
        weir_h2_link_close(&world->server_link);
        return;
    }
    world->lost++;
    snprintf(world->why, sizeof(world->why), "%s", why);
    weir_h2_link_close(&world->client_link);
}

static void accept_link(struct world *world, struct weir_stream *stream)
{
    struct weir_h2_link_handler handler = {
        .context = world,
        .calls = { .context = world,
                   .on_call = on_call,
                   .on_message = on_server_message,
                   .on_end = on_end },
        .on_lost = on_link_lost,
    };
    world->server_link = weir_h2_link_new(stream, true, &handler);
    assert_non_null(world->server_link);
    weir_h2_link_set_authenticated(world->server_link);
}

static void on_accept(void *context, struct weir_stream *stream)
{
    struct world *world = context;
    world->accepted++;
    if (world->with_links) {
        accept_link(world, stream);
        return;
    }
    struct weir_stream_handler handler = stream_handler(world);
    weir_stream_set_handler(stream, &handler);
    world->server = stream;
}

/* ---- The stage ---- */

static void world_init(struct world *world, size_t max)
{
    memset(world, 0, sizeof(*world));
    world->base = event_base_new();
    assert_int_equal(
        weir_address_parse(WEIR_TEXT("127.0.0.1:0"), &world->address, NULL), 0);
    struct weir_listener_options options = {
        .address = world->address,
        .max = max,
        .on_accept = on_accept,
        .context = world,
    };
    assert_int_equal(
        weir_listener_new(world->base, &options, &world->listener, NULL), 0);
    world->address.port = weir_listener_port(world->listener);
}

static void world_fini(struct world *world)
{
    weir_h2_link_close(&world->client_link);
    weir_h2_link_close(&world->server_link);
    weir_stream_close(&world->client, false);
    weir_stream_close(&world->server, false);
    weir_listener_free(&world->listener);
    PATIENTLY(event_base_dispatch(world->base));
    event_base_free(world->base);
}

static void connect_stream(struct world *world)
{
    struct weir_stream_handler handler = stream_handler(world);
    world->client =
        weir_stream_connect(world->base, &world->address, NULL, 0, &handler);
    assert_non_null(world->client);
}

static void connect_link(struct world *world)
{
    struct weir_h2_link_handler handler = {
        .context = world,
        .calls = { .context = world,
                   .on_message = on_client_message,
                   .on_close = on_close },
        .on_open = on_link_open,
        .on_lost = on_link_lost,
    };
    world->with_links = true;
    struct weir_stream_handler none = { .context = NULL };
    struct weir_stream *stream =
        weir_stream_connect(world->base, &world->address, NULL, 0, &none);
    world->client_link = weir_h2_link_new(stream, false, &handler);
    assert_non_null(world->client_link);
}

/* ---- Tests ---- */

static void test_addresses(void **state)
{
    (void)state;
    struct weir_address address = { .port = 5 };
    struct weir_diag diag;
    assert_int_equal(weir_address_parse(WEIR_TEXT("[::1]:80"), &address, &diag),
                     0);
    assert_string_equal(address.host, "::1");
    assert_int_equal(address.port, 80);
    assert_true(weir_address_is_loopback(&address));
    assert_int_equal(weir_address_parse(WEIR_TEXT(":7077"), &address, &diag),
                     0);
    assert_string_equal(address.host, "127.0.0.1");
    assert_int_equal(
        weir_address_parse(WEIR_TEXT("LocalHost:1"), &address, &diag), 0);
    assert_true(weir_address_is_loopback(&address));
    assert_int_equal(
        weir_address_parse(WEIR_TEXT("10.0.0.1:1"), &address, &diag), 0);
    assert_false(weir_address_is_loopback(&address));
    static const char *const bad[] = { "",      "host",  "host:",  "host:99999",
                                       "a b:1", "[x]:1", "::1:80", "h:-1" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        diag.text[0] = '\0';
        assert_int_equal(
            weir_address_parse(weir_text_of(bad[i]), &address, &diag),
            WEIR_ESYNTAX);
        assert_compare(strlen(diag.text), >, 0);
    }
    assert_string_equal(address.host, "10.0.0.1");
}

/* The address of a peer, and its host, as logs and readers of streams are
 * named. */
static void test_peers(void **state)
{
    (void)state;
    static const struct {
        const char *address, *shown, *host;
    } rows[] = {
        { "127.0.0.1:41234", "127.0.0.1:41234", "127.0.0.1" },
        { "[::1]:41234", "[::1]:41234", "::1" },
        { "[2001:db8::7]:80", "[2001:db8::7]:80", "2001:db8::7" },
        { NULL, "unix", "unix" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        struct weir_address address;
        struct sockaddr_storage at = { .ss_family = AF_UNIX };
        socklen_t len;
        char shown[WEIR_PEER_MAX];
        if (rows[i].address) {
            assert_int_equal(weir_address_parse(weir_text_of(rows[i].address),
                                                &address, NULL),
                             0);
            assert_true(weir_address_numeric(&address, &at, &len));
        }
        weir_address_show((struct sockaddr *)&at, shown);
        assert_string_equal(shown, rows[i].shown);
        struct weir_text host = weir_address_shown_host(shown);
        assert_true(weir_text_equal(host, weir_text_of(rows[i].host)));
    }
}

static void test_bytes_arrive(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    connect_stream(&world);
    static char big[3 << 20];
    assert_int_equal(weir_stream_write(world.client, "early", 5), 0);
    assert_int_equal(weir_stream_write(world.client, big, sizeof(big)), 0);
    WAIT_FOR(&world, world.opened, 1);
    while (STILL(world.bytes < sizeof(big) + 5))
        event_base_loop(world.base, EVLOOP_ONCE);
    assert_int_equal(world.bytes, sizeof(big) + 5);
    WAIT_FOR(&world, world.drained, 1);
    assert_int_equal(weir_stream_queued(world.client), 0);
    assert_non_null(strstr(weir_stream_peer(world.server), "127.0.0.1:"));
    /* Queued bytes leave before the end. */
    size_t before = world.bytes;
    assert_int_equal(weir_stream_write(world.client, big, sizeof(big)), 0);
    weir_stream_close(&world.client, true);
    WAIT_FOR(&world, world.lost, 1);
    assert_int_equal(world.bytes - before, sizeof(big));
    world_fini(&world);
}

static void test_queue_bound(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    connect_stream(&world);
    static char big[1 << 20];
    int error = 0;
    for (int i = 0; i < 16 && error == 0; i++)
        error = weir_stream_write(world.client, big, sizeof(big));
    assert_int_equal(error, 0);
    assert_int_equal(weir_stream_write(world.client, "x", 1), WEIR_EFULL);
    assert_int_equal(weir_stream_queued(world.client), WEIR_STREAM_QUEUE_MAX);
    world_fini(&world);
}

static void test_refused_and_unknown(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    weir_listener_free(&world.listener);
    connect_stream(&world);
    assert_int_equal(world.lost, 0);
    WAIT_FOR(&world, world.lost, 1);
    assert_string_equal(world.why, "Connection refused");
    assert_null(world.client);
    /* A name is looked up by the loop; closing ends the wait. */
    strcpy(world.address.host, "no-such-host.invalid");
    connect_stream(&world);
    weir_stream_close(&world.client, false);
    world_fini(&world);
}

static void test_closing_in_callbacks(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    world.close_on_bytes = true;
    connect_stream(&world);
    assert_int_equal(weir_stream_write(world.client, "x", 1), 0);
    WAIT_FOR(&world, world.lost, 1);
    assert_null(world.client);
    assert_null(world.server);
    world_fini(&world);
}

static void test_at_most_max(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 1);
    connect_stream(&world);
    WAIT_FOR(&world, world.accepted, 1);
    struct weir_stream *first = world.client;
    struct weir_stream *held = world.server;
    connect_stream(&world);
    /* The kernel completes the connection; the listener doesn't accept it while
     * one is there. */
    WAIT_FOR(&world, world.opened, 2);
    event_base_loop(world.base, EVLOOP_NONBLOCK);
    assert_int_equal(world.accepted, 1);
    weir_stream_close(&held, false);
    WAIT_FOR(&world, world.accepted, 2);
    weir_stream_close(&first, false);
    /* The listener is freed before its streams. */
    weir_listener_free(&world.listener);
    world_fini(&world);
}

static void test_close_on_exec(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    connect_stream(&world);
    WAIT_FOR(&world, world.accepted, 1);
    unsigned sockets = 0;
    for (int fd = 3; fd < 100; fd++) {
        int flags = fcntl(fd, F_GETFD);
        char path[64], target[64] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t len = flags < 0 ? -1 : readlink(path, target, 63);
        if (len <= 0 || strncmp(target, "socket:", 7) != 0)
            continue;
        int domain;
        socklen_t size = sizeof(domain);
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 ||
            domain != AF_INET)
            continue;
        sockets++;
        assert_true(flags & FD_CLOEXEC);
    }
    assert_compare(sockets, >=, 3);
    world_fini(&world);
}

static void test_link_echo(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    connect_link(&world);
    struct weir_h2 *h2 = weir_h2_link_h2(world.client_link);
    /* before the connection is up */
    int32_t id = weir_h2_call(h2, "/echo", "x", NULL);
    assert_compare(id, >, 0);
    static char big[1 << 20];
    for (int i = 0; i < 8; i++)
        assert_int_equal(weir_h2_send(h2, id, big, sizeof(big), i == 7), 0);
    assert_true(weir_h2_link_is_full(world.client_link));
    weir_h2_link_flush(world.client_link);
    weir_h2_link_flush(world.client_link);
    WAIT_FOR(&world, world.closes, 1);
    assert_int_equal(world.status, WEIR_GRPC_OK);
    assert_int_equal(world.messages, 8);
    assert_int_equal(world.bytes, 8 * sizeof(big));
    assert_int_equal(world.opened, 1);
    /* The root ends in good order: the client is notified. */
    weir_h2_shutdown(weir_h2_link_h2(world.server_link));
    weir_h2_link_flush(world.server_link);
    WAIT_FOR(&world, world.lost, 1);
    assert_null(world.client_link);
    world_fini(&world);
}

static void test_link_lost_closes_calls(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    connect_link(&world);
    struct weir_h2 *h2 = weir_h2_link_h2(world.client_link);
    assert_compare(weir_h2_call(h2, "/echo", "x", NULL), >, 0);
    assert_compare(weir_h2_call(h2, "/echo", "x", NULL), >, 0);
    weir_h2_link_flush(world.client_link);
    WAIT_FOR(&world, world.accepted, 1);
    weir_h2_link_close(&world.server_link);
    WAIT_FOR(&world, world.lost, 1);
    assert_int_equal(world.closes, 2);
    assert_int_equal(world.status, WEIR_GRPC_UNAVAILABLE);
    world_fini(&world);
}

static void test_link_closed_in_a_callback(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    connect_link(&world);
    world.close_on_bytes = true;
    struct weir_h2 *h2 = weir_h2_link_h2(world.client_link);
    int32_t id = weir_h2_call(h2, "/echo", "x", NULL);
    assert_int_equal(weir_h2_send(h2, id, "a", 1, false), 0);
    assert_int_equal(weir_h2_send(h2, id, "b", 1, false), 0);
    weir_h2_link_flush(world.client_link);
    WAIT_FOR(&world, world.messages, 1);
    assert_null(world.client_link);
    assert_int_equal(world.closes, 0);
    assert_int_equal(world.lost, 0);
    world_fini(&world);
}

/* A peer that takes bytes and sends nothing. */
static void test_link_silence(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    connect_link(&world);
    world.with_links = false;
    weir_h2_link_set_ping(world.client_link, 10 * WEIR_MILLISECOND,
                          20 * WEIR_MILLISECOND);
    WAIT_FOR(&world, world.lost, 1);
    assert_string_equal(world.why, "the peer doesn't answer");
    world_fini(&world);
}

/* Both send only PINGs and their answers, and stay connected. */
static void test_link_pings(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    connect_link(&world);
    weir_h2_link_set_ping(world.client_link, 5 * WEIR_MILLISECOND,
                          20 * WEIR_SECOND);
    WAIT_FOR(&world, world.accepted, 1);
    const struct weir_h2 *h2 = weir_h2_link_h2(world.client_link);
    unsigned asked = 0;
    bool before = true;
    while (STILL_BELOW(asked, 5)) {
        event_base_loop(world.base, EVLOOP_ONCE);
        bool pong = weir_h2_pong(h2);
        asked += pong && !before;
        before = pong;
    }
    assert_int_equal(world.lost, 0);
    world_fini(&world);
}

static void test_link_to_http1(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    connect_link(&world);
    world.with_links = false;
    WAIT_FOR(&world, world.accepted, 1);
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    weir_stream_write(world.server, answer, sizeof(answer) - 1);
    WAIT_FOR(&world, world.lost, 1);
    assert_non_null(strstr(world.why, "is this the gRPC port?"));
    world_fini(&world);
}

static void on_signal(void *context, enum weir_signal signal)
{
    unsigned *counters = context;
    counters[signal]++;
}

static void test_signals_and_files(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 10);
    unsigned counters[2] = { 0 };
    struct weir_signals *signals =
        weir_signals_new(world.base, on_signal, counters);
    assert_non_null(signals);
    raise(SIGHUP);
    WAIT_FOR(&world, counters[WEIR_SIGNAL_RELOAD], 1);
    raise(SIGTERM);
    WAIT_FOR(&world, counters[WEIR_SIGNAL_STOP], 1);
    raise(SIGPIPE);
    weir_signals_free(&signals);
    assert_null(signals);
    assert_int_equal(weir_files_spare(1), 1);
    assert_compare(weir_files_spare(1000000000), <, 1000000000);
    world_fini(&world);
}

static void test_entropy(void **state)
{
    (void)state;
    uint64_t a[2] = { 0 }, b[2] = { 0 };
    weir_entropy(a, sizeof(a));
    weir_entropy(b, sizeof(b));
    assert_true(memcmp(a, b, sizeof(a)) != 0);
    weir_instant first = weir_clock_now();
    assert_compare(first, >, 0);
    assert_compare(weir_clock_now(), >=, first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_bytes_arrive),
        cmocka_unit_test(test_queue_bound),
        cmocka_unit_test(test_refused_and_unknown),
        cmocka_unit_test(test_closing_in_callbacks),
        cmocka_unit_test(test_at_most_max),
        cmocka_unit_test(test_close_on_exec),
        cmocka_unit_test(test_link_echo),
        cmocka_unit_test(test_link_lost_closes_calls),
        cmocka_unit_test(test_link_closed_in_a_callback),
        cmocka_unit_test(test_link_silence),
        cmocka_unit_test(test_link_pings),
        cmocka_unit_test(test_link_to_http1),
        cmocka_unit_test(test_signals_and_files),
        cmocka_unit_test(test_entropy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
