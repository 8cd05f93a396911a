/* SPDX-License-Identifier: MIT
 * test_tls.c - streams, listeners and links over TLS on 127.0.0.1, with
 * authorities and certificates that are made here. No sleeps: each test runs
 * its loop until its condition holds, or a guard of 20 s fails it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "certificate_maker.h"
#include "compare.h"
#include "day_shift.h"
#include "io/clock.h"
#include "io/h2_link.h"
#include "patience.h"

#define ENDS_MAX 256

/* ---- Certificates, made once ---- */

static struct maker_pki pki;

static const char *at(const char *name)
{
    return maker_pki_path(&pki, name);
}

static void issue(const char *file, const struct maker_ca *ca,
                  struct maker_leaf leaf)
{
    maker_pki_issue(&pki, file, ca, &leaf);
}

#define BOTH "DNS:localhost,IP:127.0.0.1"

static int make_certificates(void **state)
{
    (void)state;
    maker_pki_init(&pki);
    issue("root", pki.ca, (struct maker_leaf){ "root-1", BOTH });
    issue("root-other", pki.other, (struct maker_leaf){ "root-1", BOTH });
    issue("root-old", pki.ca, (struct maker_leaf){ "root-1", BOTH, -9, -2 });
    issue("root-new", pki.ca, (struct maker_leaf){ "root-1", BOTH, 2, 9 });
    issue("root-name", pki.ca,
          (struct maker_leaf){ "127.0.0.1", "DNS:localhost" });
    issue("root-ip", pki.ca,
          (struct maker_leaf){ "localhost", "IP:127.0.0.1" });
    issue("root-use", pki.ca,
          (struct maker_leaf){ "root-1", BOTH, .usage = "clientAuth" });
    issue("pay", pki.ca,
          (struct maker_leaf){ "payments-7", "DNS:pay.example,IP:10.0.0.1" });
    issue("pay-other", pki.other, (struct maker_leaf){ "payments-7" });
    issue("pay-old", pki.ca, (struct maker_leaf){ "payments-7", NULL, -9, -2 });
    issue("pay-use", pki.ca,
          (struct maker_leaf){ "payments-7", .usage = "serverAuth" });
    return 0;
}

static int drop_certificates(void **state)
{
    (void)state;
    maker_pki_fini(&pki);
    return 0;
}

/* ---- The stage ---- */

struct world;

struct end {
    struct world *world;
    struct weir_stream *stream;
    unsigned opened, lost, drained;
    size_t bytes;
    uint64_t digest;
    char why[200];
    struct weir_tls_peer names;
    bool has_tls;
    bool refused;
    bool close_on_bytes;
};

struct world {
    struct event_base *base;
    struct weir_tls *server_tls, *client_tls;
    struct weir_listener *listener;
    struct weir_address address;
    struct end client; /* used by most tests */
    struct end accepted[ENDS_MAX];
    unsigned count;
    unsigned refused;
    char refusal[200];
};

static void on_open(void *context, struct weir_stream *stream)
{
    struct end *end = context;
    end->opened++;
    end->has_tls = weir_stream_peer_names(stream, &end->names);
}

static uint64_t mix(uint64_t digest, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        digest = (digest ^ bytes[i]) * 0x100000001b3ull;
    return digest;
}

static void on_bytes(void *context, struct weir_stream *stream,
                     const void *bytes, size_t len)
{
    (void)stream;
    struct end *end = context;
    end->bytes += len;
    end->digest = mix(end->digest, bytes, len);
    if (end->close_on_bytes)
        weir_stream_close(&end->stream, false);
}

static void on_drain(void *context, struct weir_stream *stream)
{
    (void)stream;
    ((struct end *)context)->drained++;
}

static void on_lost(void *context, struct weir_stream *stream, const char *why)
{
    struct end *end = context;
    end->lost++;
    end->refused = weir_stream_is_refused(stream);
    snprintf(end->why, sizeof(end->why), "%s", why);
    weir_stream_close(&end->stream, false);
}

static struct weir_stream_handler handler_of(struct end *end)
{
    return (struct weir_stream_handler){ end, on_open, on_bytes, on_drain,
                                         on_lost };
}

static void on_accept(void *context, struct weir_stream *stream)
{
    struct world *world = context;
    assert_compare(world->count, <, ENDS_MAX);
    struct end *end = &world->accepted[world->count++];
    *end = (struct end){ .world = world, .stream = stream };
    end->has_tls = weir_stream_peer_names(stream, &end->names);
    struct weir_stream_handler handler = handler_of(end);
    weir_stream_set_handler(stream, &handler);
}

static void on_refused(void *context, const char *peer, const char *why)
{
    struct world *world = context;
    assert_true(strncmp(peer, "127.0.0.1:", 10) == 0);
    world->refused++;
    snprintf(world->refusal, sizeof(world->refusal), "%s", why);
}

/* Turns the world's loop until the counter is there. */
#define WAIT_FOR(WORLD, COUNTER, WANTED)                 \
    do {                                                 \
        while (STILL_BELOW(COUNTER, WANTED))             \
            event_base_loop((WORLD)->base, EVLOOP_ONCE); \
    } while (0)

/* Or until the end is lost. */
static bool wait_bytes(struct world *world, const struct end *end,
                       size_t wanted)
{
    while (STILL(end->bytes < wanted && !end->lost))
        event_base_loop(world->base, EVLOOP_ONCE);
    return end->bytes >= wanted;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = text ? strlen(text) : 0;
    return len >= strlen(end) && strcmp(text + len - strlen(end), end) == 0;
}

/* "root" is root.crt and root.key. They are read on a day on which they are
 * valid, "-old" in the past and "-new" in the future: later it would be
 * refused. */
static struct weir_tls *load(bool server, const char *ca, const char *who,
                             bool demand)
{
    char cert[32];
    char key[32];
    struct weir_diag diag = { .text = "" };
    snprintf(cert, sizeof(cert), "%s.crt", who ? who : "");
    snprintf(key, sizeof(key), "%s.key", who ? who : "");
    struct weir_tls_options options = {
        .server = server,
        .alpn = "h2",
        .ca = ca ? at(ca) : NULL,
        .cert = who ? at(cert) : NULL,
        .key = who ? at(key) : NULL,
        .demand = demand,
    };
    struct weir_tls *tls = NULL;
    shift_days(ends_with(who, "-old") ? -5 : ends_with(who, "-new") ? 5 : 0);
    if (weir_tls_new(&options, &tls, &diag) < 0)
        fail_msg("%s", diag.text);
    shift_days(0);
    return tls;
}

/* Takes ownership of both; 'server' NULL: plain text. */
static void world_init(struct world *world, struct weir_tls *server,
                       struct weir_tls *client, size_t max)
{
    memset(world, 0, sizeof(*world));
    world->base = event_base_new();
    world->server_tls = server;
    world->client_tls = client;
    world->client.world = world;
    struct weir_listener_options options = {
        .address = { .host = "127.0.0.1" },
        .tls = server,
        .max = max,
        .on_accept = on_accept,
        .on_refused = on_refused,
        .context = world,
    };
    assert_int_equal(
        weir_listener_new(world->base, &options, &world->listener, NULL), 0);
    world->address = options.address;
    world->address.port = weir_listener_port(world->listener);
}

static void world_fini(struct world *world)
{
    weir_stream_close(&world->client.stream, false);
    for (unsigned i = 0; i < world->count; i++)
        weir_stream_close(&world->accepted[i].stream, false);
    weir_listener_free(&world->listener);
    weir_tls_free(&world->server_tls);
    weir_tls_free(&world->client_tls);
    PATIENTLY(event_base_dispatch(world->base));
    event_base_free(world->base);
}

static void open_end(struct world *world, struct end *end, struct weir_tls *tls)
{
    end->world = world;
    struct weir_stream_handler handler = handler_of(end);
    end->stream =
        weir_stream_connect(world->base, &world->address, tls, 0, &handler);
    assert_non_null(end->stream);
}

static void meet(struct world *world)
{
    unsigned before = world->count;
    open_end(world, &world->client, world->client_tls);
    WAIT_FOR(world, world->client.opened, 1);
    WAIT_FOR(world, world->count, before + 1);
}

static void say(struct end *end, const char *text)
{
    assert_int_equal(weir_stream_write(end->stream, text, strlen(text)), 0);
}

/* ---- Files ---- */

static void expect_refusal(struct weir_tls_options options, int error,
                           const char *text)
{
    struct weir_diag diag = { .text = "" };
    struct weir_tls *tls = NULL;
    assert_int_equal(weir_tls_new(&options, &tls, &diag), error);
    assert_null(tls);
    if (!strstr(diag.text, text))
        fail_msg("'%s' doesn't say '%s'", diag.text, text);
}

/* The first half of a file, as a reader that is too early finds it. */
static void halve(const char *from, const char *to)
{
    static char text[8192];
    FILE *file = fopen(at(from), "r");
    size_t len = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[len / 2] = '\0';
    maker_pki_put(&pki, to, text);
}

static void test_files_that_cannot_be_used(void **state)
{
    (void)state;
    struct weir_tls_options good = { true,           "h2",           NULL,
                                     at("root.crt"), at("root.key"), false };
    struct weir_tls_options bad = good;
    bad.cert = at("nothing.crt");
    expect_refusal(bad, WEIR_ENOENT, "nothing.crt: it can't be read: No such");
    maker_pki_put(&pki, "empty.crt", "");
    bad.cert = at("empty.crt");
    expect_refusal(bad, WEIR_ETLS, "empty.crt: this is no whole PEM file");
    halve("root.crt", "half.crt");
    bad.cert = at("half.crt");
    expect_refusal(bad, WEIR_ETLS, "half.crt: this is no whole PEM file");
    bad = good;
    bad.key = at("pay.key");
    expect_refusal(bad, WEIR_ETLS, "pay.key: ");
    maker_key_write(at("locked.key"), "a phrase");
    bad.key = at("locked.key");
    expect_refusal(bad, WEIR_ETLS, "locked.key: the key is encrypted");
    halve("root.key", "half.key");
    bad.key = at("half.key");
    expect_refusal(bad, WEIR_ETLS, "half.key: this is no PEM file");
    bad = good;
    bad.ca = at("root.key");
    expect_refusal(bad, WEIR_ETLS, "root.key: this is no whole PEM file");
}

static void test_options_that_contradict(void **state)
{
    (void)state;
    struct weir_tls_options bad = { true,           "h2", NULL,
                                    at("root.crt"), NULL, false };
    expect_refusal(bad, WEIR_EINVAL, "named together");
    bad.cert = NULL;
    expect_refusal(bad, WEIR_EINVAL, "a server of TLS needs a certificate");
    bad.server = false;
    expect_refusal(bad, WEIR_EINVAL, "needs a CA to trust");
    bad = (struct weir_tls_options){ true,           "h2",           NULL,
                                     at("root.crt"), at("root.key"), true };
    expect_refusal(bad, WEIR_EINVAL, "need an authority");
}

static void test_the_systems_authorities(void **state)
{
    (void)state;
    struct weir_tls_options options = { .alpn = "h2", .ca = WEIR_TLS_SYSTEM };
    struct weir_tls *client;
    assert_int_equal(weir_tls_new(&options, &client, NULL), 0);
    assert_false(weir_tls_is_changed(client));
    assert_true(weir_tls_expires_in(client) == INT64_MAX);
    struct world world;
    world_init(&world, load(true, NULL, "root", false), client, 10);
    open_end(&world, &world.client, client);
    WAIT_FOR(&world, world.client.lost, 1);
    assert_string_equal(world.client.why, "the peer's certificate is from no "
                                          "authority that we trust");
    world_fini(&world);
}

/* ---- Which peers are accepted ---- */

static void test_bytes_and_names(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, load(true, "ca.crt", "root", true),
               load(false, "ca.crt", "pay", false), 10);
    meet(&world);
    struct end *server = &world.accepted[0];
    assert_true(server->has_tls && world.client.has_tls);
    assert_int_equal(server->names.count, 2);
    assert_string_equal(server->names.name[0], "payments-7");
    assert_string_equal(server->names.name[1], "pay.example");
    assert_int_equal(world.client.names.count, 2);
    assert_string_equal(world.client.names.name[0], "root-1");
    assert_string_equal(world.client.names.name[1], "localhost");
    say(&world.client, "hello");
    assert_true(wait_bytes(&world, server, 5));
    say(server, "welcome");
    assert_true(wait_bytes(&world, &world.client, 7));
    assert_true(world.client.digest == mix(0, (const uint8_t *)"welcome", 7));
    int64_t left = weir_tls_expires_in(world.server_tls);
    assert_compare(left, >, 29 * 86400);
    assert_compare(left, <=, 30 * 86400);
    assert_int_equal(world.refused, 0);
    world_fini(&world);
}

/* Plain streams have no names. If none is demanded, a client may have no
 * certificate, whether it is asked for one or not. */
static void test_nameless_peers(void **state)
{
    (void)state;
    const char *cas[] = { NULL, "ca.crt" };
    for (size_t i = 0; i < 2; i++) {
        struct world world;
        world_init(&world, load(true, cas[i], "root", false),
                   load(false, "ca.crt", NULL, false), 10);
        meet(&world);
        assert_true(world.accepted[0].has_tls);
        assert_int_equal(world.accepted[0].names.count, 0);
        world_fini(&world);
    }
    struct world world;
    world_init(&world, NULL, NULL, 10);
    meet(&world);
    assert_false(world.client.has_tls || world.accepted[0].has_tls);
    world_fini(&world);
}

struct wrong {
    const char *server, *server_ca;
    const char *client, *client_ca;
    const char *host;
    bool demand;
    const char *client_says, *server_says;
};

#define UNTRUSTED "the peer's certificate is from no authority that we trust"
#define EXPIRED "the peer's certificate has expired"
#define REFUSES "the peer refuses our certificate"

static const struct wrong wrongs[] = {
    { "root-other", NULL, NULL, "ca.crt", "127.0.0.1", false, UNTRUSTED,
      REFUSES ": it doesn't know its authority" },
    { "root-old", NULL, NULL, "ca.crt", "127.0.0.1", false, EXPIRED,
      REFUSES ": it has expired" },
    { "root-new", NULL, NULL, "ca.crt", "127.0.0.1", false,
      "the peer's certificate isn't valid yet: are the clocks right?",
      REFUSES },
    { "root-name", NULL, NULL, "ca.crt", "127.0.0.1", false,
      "the peer's certificate isn't for 127.0.0.1", REFUSES },
    { "root-ip", NULL, NULL, "ca.crt", "localhost", false,
      "the peer's certificate isn't for localhost", REFUSES },
    { "root-use", NULL, NULL, "ca.crt", "127.0.0.1", false,
      "the peer's certificate is for another purpose",
      REFUSES ": it is for another purpose" },
    { "root", "ca.crt", NULL, "ca.crt", "127.0.0.1", true,
      "the peer wants a certificate of ours: none is named",
      "the peer shows no certificate, and must" },
    { "root", "ca.crt", "pay-other", "ca.crt", "127.0.0.1", false,
      REFUSES ": it doesn't know its authority", UNTRUSTED },
    { "root", "ca.crt", "pay-old", "ca.crt", "127.0.0.1", false,
      REFUSES ": it has expired", EXPIRED },
    { "root", "ca.crt", "pay-use", "ca.crt", "127.0.0.1", false,
      REFUSES ": it is for another purpose",
      "the peer's certificate is for another purpose" },
};

/* Each wrong credential is refused with a sentence on both sides, and nothing
 * comes through. The client sends bytes at once and tries again: whether its
 * bytes or the refusal come first must make no difference. */
static void test_wrong_credentials(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEIR_COUNT_OF(wrongs); i++) {
        const struct wrong *w = &wrongs[i];
        struct world world;
        world_init(&world, load(true, w->server_ca, w->server, w->demand),
                   load(false, w->client_ca, w->client, false), 10);
        strcpy(world.address.host, w->host);
        for (unsigned n = 1; n <= 20; n++) {
            world.client = (struct end){ .world = &world };
            open_end(&world, &world.client, world.client_tls);
            say(&world.client, "let me in");
            WAIT_FOR(&world, world.client.lost, 1);
            WAIT_FOR(&world, world.refused, n);
            assert_true(world.client.refused);
            assert_string_equal(world.client.why, w->client_says);
            assert_string_equal(world.refusal, w->server_says);
        }
        assert_int_equal(world.count, 0);
        assert_int_equal(world.refused, 20);
        world_fini(&world);
    }
}

static void test_names_of_hosts(void **state)
{
    (void)state;
    static const char *const good[][2] = { { "root", "localhost" },
                                           { "root", "127.0.0.1" },
                                           { "root-name", "localhost" },
                                           { "root-ip", "127.0.0.1" } };
    for (size_t i = 0; i < WEIR_COUNT_OF(good); i++) {
        struct world world;
        world_init(&world, load(true, NULL, good[i][0], false),
                   load(false, "ca.crt", NULL, false), 10);
        strcpy(world.address.host, good[i][1]);
        meet(&world);
        world_fini(&world);
    }
}

static void test_another_protocol(void **state)
{
    (void)state;
    struct weir_tls_options options = { true,           "http/1.1",     NULL,
                                        at("root.crt"), at("root.key"), false };
    struct weir_tls *server;
    assert_int_equal(weir_tls_new(&options, &server, NULL), 0);
    struct world world;
    world_init(&world, server, load(false, "ca.crt", NULL, false), 10);
    open_end(&world, &world.client, world.client_tls);
    WAIT_FOR(&world, world.client.lost, 1);
    assert_string_equal(world.client.why,
                        "the peer speaks another protocol on this port");
    world_fini(&world);
}

/* ---- Peers without TLS ---- */

/* A peer that speaks another protocol, or too little, or half a hello, gets at
 * most an alert, and is never reported to an owner. */
static void test_plain_text_to_a_tls_port(void **state)
{
    (void)state;
    static const char *const said[] = {
        "GET /v1/quotas HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\x16\x03\x01\xff\xff garbage that is called a hello",
        "\x15\x03\x03\x01\x02\x02\x28 an alert, and more",
    };
    struct world world;
    world_init(&world, load(true, NULL, "root", false), NULL, 10);
    for (unsigned i = 0; i < WEIR_COUNT_OF(said); i++) {
        world.client = (struct end){ .world = &world };
        open_end(&world, &world.client, NULL);
        say(&world.client, said[i]);
        WAIT_FOR(&world, world.client.lost, 1);
        WAIT_FOR(&world, world.refused, i + 1);
        assert_compare(world.client.bytes, <=, 7);
    }
    assert_int_equal(world.count, 0);
    world_fini(&world);
}

static void test_gone_in_the_handshake(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, load(true, NULL, "root", false),
               load(false, "ca.crt", NULL, false), 10);
    /* A whole client that closes as soon as it is connected, before it has
     * received anything, and one that has sent half a hello. */
    open_end(&world, &world.client, NULL);
    say(&world.client, "\x16\x03\x01");
    WAIT_FOR(&world, world.client.opened, 1);
    weir_stream_close(&world.client.stream, true);
    WAIT_FOR(&world, world.refused, 1);
    assert_string_equal(world.refusal, "the peer closed the connection in the "
                                       "handshake: does it speak TLS?");
    open_end(&world, &world.client, world.client_tls);
    weir_stream_close(&world.client.stream, true);
    event_base_loop(world.base, EVLOOP_NONBLOCK);
    world_fini(&world);
}

static void test_tls_to_a_plain_port(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, NULL, load(false, "ca.crt", NULL, false), 10);
    open_end(&world, &world.client, world.client_tls);
    WAIT_FOR(&world, world.count, 1);
    assert_true(wait_bytes(&world, &world.accepted[0], 50));
    say(&world.accepted[0], "HTTP/1.1 400 Bad Request\r\n\r\n");
    WAIT_FOR(&world, world.client.lost, 1);
    assert_string_equal(world.client.why, "the peer doesn't speak TLS here");
    assert_int_equal(world.client.opened, 0);
    world_fini(&world);
}

/* A silent peer is dropped in time, and many of them keep no other out: they
 * get half of the places at most. */
static void test_silent_peers(void **state)
{
    (void)state;
    struct world world;
    static struct end silent[40];
    world_init(&world, load(true, NULL, "root", false),
               load(false, "ca.crt", NULL, false), 10);
    for (unsigned i = 0; i < WEIR_COUNT_OF(silent); i++) {
        silent[i] = (struct end){ .world = &world };
        open_end(&world, &silent[i], NULL);
    }
    meet(&world);
    say(&world.client, "hello");
    assert_true(wait_bytes(&world, &world.accepted[0], 5));
    weir_instant begun = weir_clock_now();
    for (unsigned i = 0; i < WEIR_COUNT_OF(silent); i++)
        WAIT_FOR(&world, silent[i].lost, 1);
    assert_compare(weir_clock_now() - begun, >, WEIR_TLS_HANDSHAKE_MAX / 2);
    WAIT_FOR(&world, world.refused, WEIR_COUNT_OF(silent));
    assert_string_equal(world.refusal,
                        "the handshake took too long: does the peer "
                        "speak TLS?");
    assert_int_equal(world.count, 1);
    assert_int_equal(world.client.lost, 0);
    world_fini(&world);
}

/* A listener that is freed frees its handshakes, and leaves the others. */
static void test_listener_freed(void **state)
{
    (void)state;
    struct world world;
    struct end silent = { .world = &world };
    world_init(&world, load(true, NULL, "root", false),
               load(false, "ca.crt", NULL, false), 10);
    meet(&world);
    open_end(&world, &silent, NULL);
    say(&silent, "x");
    WAIT_FOR(&world, silent.opened, 1);
    event_base_loop(world.base, EVLOOP_NONBLOCK);
    weir_listener_free(&world.listener);
    weir_tls_free(&world.server_tls);
    weir_tls_free(&world.client_tls);
    WAIT_FOR(&world, silent.lost, 1);
    say(&world.client, "hello");
    assert_true(wait_bytes(&world, &world.accepted[0], 5));
    assert_int_equal(world.refused, 0);
    world_fini(&world);
}

/* ---- Many and much ---- */

static void test_200_connections(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    struct world world;
    static struct end ends[COUNT];
    world_init(&world, load(true, "ca.crt", "root", true),
               load(false, "ca.crt", "pay", false), 2 * COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        ends[i] = (struct end){ .world = &world };
        open_end(&world, &ends[i], world.client_tls);
        say(&ends[i], "hello");
    }
    WAIT_FOR(&world, world.count, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_true(wait_bytes(&world, &world.accepted[i], 5));
        say(&world.accepted[i], "welcome");
    }
    for (unsigned i = 0; i < COUNT; i++) {
        assert_true(wait_bytes(&world, &ends[i], 7));
        weir_stream_close(&ends[i].stream, true);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        WAIT_FOR(&world, world.accepted[i].lost, 1);
        assert_string_equal(world.accepted[i].why,
                            "the peer closed the connection");
    }
    assert_int_equal(world.refused, 0);
    world_fini(&world);
}

/* The queue's bound holds over TLS, and all accepted bytes arrive, in both
 * directions at once. */
static void test_bounds_and_order(void **state)
{
    (void)state;
    enum { CHUNK = 1 << 20 };
    static uint8_t chunk[CHUNK];
    struct world world;
    world_init(&world, load(true, NULL, "root", false),
               load(false, "ca.crt", NULL, false), 10);
    meet(&world);
    struct end *ends[2] = { &world.client, &world.accepted[0] };
    uint64_t digest = 0;
    for (size_t i = 0; i < CHUNK; i++)
        chunk[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; i < WEIR_STREAM_QUEUE_MAX / CHUNK; i++) {
        digest = mix(digest, chunk, CHUNK);
        for (int e = 0; e < 2; e++)
            assert_int_equal(weir_stream_write(ends[e]->stream, chunk, CHUNK),
                             0);
    }
    for (int e = 0; e < 2; e++) {
        assert_int_equal(weir_stream_write(ends[e]->stream, "x", 1),
                         WEIR_EFULL);
        assert_int_equal(weir_stream_queued(ends[e]->stream),
                         WEIR_STREAM_QUEUE_MAX);
    }
    for (int e = 0; e < 2; e++) {
        assert_true(wait_bytes(&world, ends[e], WEIR_STREAM_QUEUE_MAX));
        assert_true(ends[e]->digest == digest);
        assert_int_equal(ends[e]->bytes, WEIR_STREAM_QUEUE_MAX);
        WAIT_FOR(&world, ends[e]->drained, 1);
        /* Its own last bytes may still be on their way. */
        while (STILL(weir_stream_queued(ends[e]->stream) > 0))
            event_base_loop(world.base, EVLOOP_ONCE);
    }
    world_fini(&world);
}

/* The bytes queued in a closing stream reach the other end, which then gets an
 * orderly end. */
static void test_flush(void **state)
{
    (void)state;
    enum { SIZE = 8 << 20 };
    static uint8_t bytes[SIZE];
    struct world world;
    world_init(&world, load(true, NULL, "root", false),
               load(false, "ca.crt", NULL, false), 10);
    meet(&world);
    memset(bytes, 7, SIZE);
    assert_int_equal(weir_stream_write(world.client.stream, bytes, SIZE), 0);
    weir_stream_close(&world.client.stream, true);
    WAIT_FOR(&world, world.accepted[0].lost, 1);
    assert_int_equal(world.accepted[0].bytes, SIZE);
    assert_string_equal(world.accepted[0].why,
                        "the peer closed the connection");
    world_fini(&world);
}

static void test_closed_in_a_callback(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, load(true, NULL, "root", false),
               load(false, "ca.crt", NULL, false), 10);
    meet(&world);
    world.accepted[0].close_on_bytes = true;
    static uint8_t much[1 << 20];
    assert_int_equal(weir_stream_write(world.client.stream, much, sizeof(much)),
                     0);
    WAIT_FOR(&world, world.client.lost, 1);
    assert_null(world.accepted[0].stream);
    world_fini(&world);
}

/* ---- Reading again ---- */

/* The common name on a fresh connection. */
static const char *shown_now(struct world *world, struct end *end)
{
    *end = (struct end){ .world = world };
    open_end(world, end, world->client_tls);
    WAIT_FOR(world, end->opened, 1);
    return end->names.name[0];
}

static void copy(const char *from, const char *to)
{
    static char text[8192];
    FILE *file = fopen(at(from), "r");
    size_t len = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[len] = '\0';
    maker_pki_put(&pki, to, text);
}

static void test_reload(void **state)
{
    (void)state;
    struct world world;
    struct end later, last;
    struct weir_diag diag;
    issue("live", pki.ca, (struct maker_leaf){ "first", BOTH });
    world_init(&world, load(true, NULL, "live", false),
               load(false, "ca.crt", NULL, false), 10);
    meet(&world);
    assert_string_equal(world.client.names.name[0], "first");
    assert_false(weir_tls_is_changed(world.server_tls));

    /* A half written certificate, and one without its key yet: each changes
     * nothing, and is reported once. */
    issue("next", pki.ca, (struct maker_leaf){ "second", BOTH });
    halve("next.crt", "live.crt");
    assert_true(weir_tls_is_changed(world.server_tls));
    assert_int_equal(weir_tls_reload(world.server_tls, &diag), WEIR_ETLS);
    assert_non_null(strstr(diag.text, "live.crt"));
    assert_false(weir_tls_is_changed(world.server_tls));
    copy("next.crt", "live.crt");
    assert_true(weir_tls_is_changed(world.server_tls));
    assert_int_equal(weir_tls_reload(world.server_tls, &diag), WEIR_ETLS);
    assert_non_null(strstr(diag.text, "live.key"));
    unlink(at("live.key"));
    assert_true(weir_tls_is_changed(world.server_tls));
    assert_int_equal(weir_tls_reload(world.server_tls, &diag), WEIR_ENOENT);
    assert_string_equal(shown_now(&world, &later), "first");

    copy("next.key", "live.key");
    assert_true(weir_tls_is_changed(world.server_tls));
    assert_int_equal(weir_tls_reload(world.server_tls, &diag), 0);
    assert_false(weir_tls_is_changed(world.server_tls));
    assert_string_equal(shown_now(&world, &last), "second");

    /* Connections that began with the old certificate go on. */
    say(&world.client, "hello");
    assert_true(wait_bytes(&world, &world.accepted[0], 5));
    say(&world.accepted[0], "hello");
    assert_true(wait_bytes(&world, &world.client, 5));
    assert_int_equal(world.client.lost + later.lost + last.lost, 0);
    weir_stream_close(&later.stream, false);
    weir_stream_close(&last.stream, false);
    world_fini(&world);
}

/* ---- Links ---- */

struct conn {
    struct weir_h2_link *client, *server;
    unsigned messages, lost;
    char why[200];
    struct weir_tls *tls;
};

static bool conn_call(void *context, struct weir_h2 *h2, int32_t stream,
                      const char *path, const char *authorization)
{
    (void)context;
    (void)h2;
    (void)stream;
    (void)path;
    return strcmp(authorization, "Bearer it-is-me") == 0;
}

static void conn_echo(void *context, struct weir_h2 *h2, int32_t stream,
                      const void *bytes, size_t len)
{
    (void)context;
    assert_int_equal(weir_h2_send(h2, stream, bytes, len, false), 0);
}

static void conn_hear(void *context, struct weir_h2 *h2, int32_t stream,
                      const void *bytes, size_t len)
{
    (void)h2;
    (void)stream;
    (void)bytes;
    struct conn *conn = context;
    assert_int_equal(len, 100000);
    conn->messages++;
}

static void conn_lost(void *context, struct weir_h2_link *link, const char *why)
{
    (void)link;
    struct conn *conn = context;
    conn->lost++;
    snprintf(conn->why, sizeof(conn->why), "%s", why);
}

static void conn_accept(void *context, struct weir_stream *stream)
{
    struct conn *conn = context;
    struct weir_h2_link_handler handler = {
        .context = conn,
        .calls = { .context = conn,
                   .on_call = conn_call,
                   .on_message = conn_echo },
    };
    weir_h2_link_close(&conn->server);
    conn->server = weir_h2_link_new(stream, true, &handler);
    weir_h2_link_set_authenticated(conn->server);
}

static void conn_to(struct conn *conn, struct event_base *base,
                    struct weir_listener *listener, struct weir_tls *tls)
{
    struct weir_address address = { "127.0.0.1", weir_listener_port(listener) };
    struct weir_h2_link_handler handler = {
        .context = conn,
        .calls = { .context = conn, .on_message = conn_hear },
        .on_lost = conn_lost,
    };
    struct weir_stream *stream = weir_stream_connect(
        base, &address, tls, 0, &(struct weir_stream_handler){ 0 });
    conn->client = weir_h2_link_new(stream, false, &handler);
    struct weir_h2 *h2 = weir_h2_link_h2(conn->client);
    int32_t call = weir_h2_call(h2, "/x", "x", "Bearer it-is-me");
    static uint8_t bytes[100000];
    for (int i = 0; i < 10; i++)
        assert_int_equal(weir_h2_send(h2, call, bytes, sizeof(bytes), false),
                         0);
}

static void run_until(struct event_base *base, const unsigned *counter,
                      unsigned wanted)
{
    while (STILL_BELOW(*counter, wanted))
        event_base_loop(base, EVLOOP_ONCE);
}

static void conn_once(struct weir_tls *server, struct weir_tls *client,
                      const char *why)
{
    struct event_base *base = event_base_new();
    struct conn conn = { .messages = 0 };
    struct weir_listener_options options = {
        .address = { .host = "127.0.0.1" },
        .tls = server,
        .max = 10,
        .on_accept = conn_accept,
        .context = &conn,
    };
    struct weir_listener *listener;
    assert_int_equal(weir_listener_new(base, &options, &listener, NULL), 0);
    conn_to(&conn, base, listener, client);
    run_until(base, why ? &conn.lost : &conn.messages, why ? 1 : 10);
    if (why)
        assert_string_equal(conn.why, why);
    struct weir_tls_peer names;
    if (!why) {
        assert_true(weir_h2_link_peer_names(conn.server, &names));
        assert_string_equal(names.name[0], "payments-7");
    }
    weir_h2_link_close(&conn.client);
    weir_h2_link_close(&conn.server);
    weir_listener_free(&listener);
    PATIENTLY(event_base_dispatch(base));
    event_base_free(base);
}

static void test_links(void **state)
{
    (void)state;
    struct weir_tls *server = load(true, "ca.crt", "root", true);
    struct weir_tls *client = load(false, "ca.crt", "pay", false);
    conn_once(server, client, NULL);
    conn_once(server, NULL,
              "the peer hung up before it sent a byte: does "
              "it want TLS?");
    conn_once(NULL, client, "the peer doesn't speak TLS here");
    weir_tls_free(&server);
    weir_tls_free(&client);
}

int main(void)
{
    /* A write to a closed socket must raise no signal in a process that uses
     * the library: it would end this one. */
    signal(SIGPIPE, SIG_DFL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_that_cannot_be_used),
        cmocka_unit_test(test_options_that_contradict),
        cmocka_unit_test(test_the_systems_authorities),
        cmocka_unit_test(test_bytes_and_names),
        cmocka_unit_test(test_nameless_peers),
        cmocka_unit_test(test_wrong_credentials),
        cmocka_unit_test(test_names_of_hosts),
        cmocka_unit_test(test_another_protocol),
        cmocka_unit_test(test_plain_text_to_a_tls_port),
        cmocka_unit_test(test_gone_in_the_handshake),
        cmocka_unit_test(test_tls_to_a_plain_port),
        cmocka_unit_test(test_silent_peers),
        cmocka_unit_test(test_listener_freed),
        cmocka_unit_test(test_200_connections),
        cmocka_unit_test(test_bounds_and_order),
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_closed_in_a_callback),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_links),
    };
    return cmocka_run_group_tests(tests, make_certificates, drop_certificates);
}
