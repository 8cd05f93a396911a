/* SPDX-License-Identifier: MIT
 * test/server/test_grpc_api.c - the gRPC listener and peers that behave or
 * misbehave: one loop, a socket of loopback, no store. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <event2/event.h>

#include "codec/weir_v1.h"
#include "compare.h"
#include "credentials_maker.h"
#include "io/clock.h"
#include "io/h2_link.h"
#include "patience.h"
#include "server/grpc/grpc_api.h"

struct fixture {
    struct event_base *base;
    struct weir_log log;
    struct weir_root *root;
    struct weir_admin *admin;
    struct weir_authorization authorizer;
    struct weir_root_loop *loop;
    struct weir_grpc_api *api;
    struct weir_address address;
};

/* A peer with one call. */
struct peer {
    struct weir_h2_link *link;
    int32_t call;
    bool closed;
    bool lost;
    int status;
    size_t messages;
    size_t bytes;                /* of replies' bodies */
    uint32_t http;               /* of the last reply */
    enum weir_message_type last; /* of the link */
    bool of_call;
};

static void on_message(void *context, struct weir_h2 *h2, int32_t stream,
                       const void *bytes, size_t len)
{
    (void)h2;
    (void)stream;
    struct peer *peer = context;
    peer->messages++;
    if (peer->of_call) {
        struct weir_call_reply reply;
        assert_int_equal(weir_v1_reply_decode(bytes, len, &reply), 0);
        peer->http = reply.status;
        peer->bytes += reply.body.len;
        return;
    }
    struct weir_arena arena = { malloc(1 << 20), 1 << 20, 0 };
    struct weir_message message;
    assert_int_equal(weir_v1_decode(bytes, len, false, &arena, &message), 0);
    peer->last = message.type;
    free(arena.base);
}

static void on_close(void *context, struct weir_h2 *h2, int32_t stream,
                     int grpc_status, const char *message)
{
    (void)h2;
    (void)stream;
    (void)message;
    struct peer *peer = context;
    peer->closed = true;
    peer->status = grpc_status;
}

static void on_lost(void *context, struct weir_h2_link *link, const char *why)
{
    (void)link;
    (void)why;
    struct peer *peer = context;
    peer->lost = true;
}

static void begin_as(struct fixture *f, struct peer *peer, const char *path,
                     const char *authorization)
{
    *peer = (struct peer){ .of_call = strcmp(path, WEIR_V1_LINK) != 0 };
    struct weir_h2_link_handler handler = {
        .context = peer,
        .calls = { .context = peer,
                   .on_message = on_message,
                   .on_close = on_close },
        .on_lost = on_lost,
    };
    struct weir_stream_handler none = { 0 };
    struct weir_stream *stream =
        weir_stream_connect(f->base, &f->address, NULL, 0, &none);
    peer->link = weir_h2_link_new(stream, false, &handler);
    assert_non_null(peer->link);
    peer->call =
        weir_h2_call(weir_h2_link_h2(peer->link), path, "test", authorization);
    assert_compare(peer->call, >, 0);
    weir_h2_link_flush(peer->link);
}

static void begin(struct fixture *f, struct peer *peer, const char *path)
{
    begin_as(f, peer, path, NULL);
}

static void send_bytes(struct peer *peer, const void *bytes, size_t len,
                       bool last)
{
    assert_int_equal(
        weir_h2_send(weir_h2_link_h2(peer->link), peer->call, bytes, len, last),
        0);
    weir_h2_link_flush(peer->link);
}

static void send_call(struct peer *peer, const char *method, const char *path,
                      struct weir_text body, bool last)
{
    struct weir_call_request request = { weir_text_of(method),
                                         weir_text_of(path), body };
    size_t size = weir_v1_request_size(&request);
    void *bytes = malloc(size);
    assert_int_equal(weir_v1_request_encode(&request, bytes, size), size);
    send_bytes(peer, bytes, size, last);
    free(bytes);
}

static void send_hello_of(struct peer *peer, uint64_t session)
{
    struct weir_message hello = {
        .type = WEIR_MESSAGE_HELLO,
        .session = session,
        .hello = { .protocol = WEIR_PROTOCOL,
                   .incarnation = { 1 },
                   .name = WEIR_TEXT("test") },
    };
    unsigned char bytes[256];
    size_t len = weir_v1_encode(&hello, bytes, sizeof bytes);
    assert_compare(len, >, 0);
    send_bytes(peer, bytes, len, false);
}

static void send_hello(struct peer *peer)
{
    send_hello_of(peer, 5);
}

static void turn(struct fixture *f)
{
    /* The loop always has the listener, and returns for due events. */
    assert_int_equal(event_base_loop(f->base, EVLOOP_ONCE), 0);
}

#define RUN_UNTIL(F, DONE)     \
    do {                       \
        while (STILL(!(DONE))) \
            turn(F);           \
    } while (0)

static void add_quotas(struct weir_root *root, uint64_t count)
{
    struct weir_store_id id = { .uuid = { 1 } };
    weir_instant now = weir_clock_now();
    assert_int_equal(weir_root_store(root, &id, count, 0, now), 0);
    char text[WEIR_DESCRIPTION_MAX];
    memset(text, 'x', sizeof text);
    for (uint64_t i = 1; i <= count; i++) {
        struct weir_change change = { .removed = false };
        char name[32];
        int len = snprintf(name, sizeof name, "q%06llu", (unsigned long long)i);
        weir_quota_init(&change.quota);
        change.quota.name = (struct weir_text){ name, (size_t)len };
        change.quota.description = (struct weir_text){ text, sizeof text };
        change.quota.id = change.quota.epoch = change.quota.created = i;
        assert_int_equal(weir_root_apply(root, &change, now), 0);
    }
    weir_root_settle(root, now);
}

static int make_of(void **state, size_t connections_max)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->base = event_base_new();
    f->log.level = WEIR_LOG_ERROR;
    struct weir_root_options root = {
        .mem = weir_mem_system,
        .name = WEIR_TEXT("test"),
        .peers_max = WEIR_PEERS_MAX,
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = WEIR_SECOND },
    };
    f->root = weir_root_new(&root, weir_clock_now());
    add_quotas(f->root, 20000);
    struct weir_admin_options admin = { .root = f->root,
                                        .name = root.name,
                                        .started = weir_clock_now() };
    f->admin = weir_admin_new(&admin);
    const struct weir_root_loop_options loop = { .base = f->base,
                                                 .root = f->root,
                                                 .log = &f->log };
    f->loop = weir_root_loop_new(&loop);
    struct weir_grpc_api_options options = { .base = f->base,
                                             .root = f->root,
                                             .loop = f->loop,
                                             .admin = f->admin,
                                             .log = &f->log,
                                             .authorizer = &f->authorizer,
                                             .connections_max =
                                                 connections_max };
    struct weir_diag diag = { 0 };
    assert_int_equal(
        weir_address_parse(WEIR_TEXT("127.0.0.1:0"), &options.address, &diag),
        0);
    assert_int_equal(weir_grpc_api_new(&options, &f->api, &diag), 0);
    f->address = options.address;
    f->address.port = weir_grpc_api_port(f->api);
    *state = f;
    return 0;
}

static int make(void **state)
{
    return make_of(state, 0);
}

#define FEW 8

static int make_small(void **state)
{
    return make_of(state, FEW);
}

static int clean(void **state)
{
    struct fixture *f = *state;
    weir_admin_free(&f->admin);
    weir_grpc_api_free(&f->api);
    weir_root_loop_free(&f->loop);
    /* Replies being written end by themselves. */
    PATIENTLY(event_base_dispatch(f->base));
    weir_root_free(f->root);
    event_base_free(f->base);
    free(f);
    return 0;
}

static uint32_t connected(struct fixture *f)
{
    struct weir_root_stats stats;
    weir_root_stats(f->root, &stats);
    return stats.limiters_connected;
}

static void test_a_limiter_comes_and_goes(void **state)
{
    struct fixture *f = *state;
    struct peer peer;
    begin(f, &peer, WEIR_V1_LINK);
    send_hello(&peer);
    RUN_UNTIL(f, peer.last == WEIR_MESSAGE_QUOTAS);
    assert_int_equal(connected(f), 1);
    /* All of them arrive, though the socket was full in between. */
    RUN_UNTIL(f, peer.messages >= 1 + 20000 / WEIR_QUOTAS_MAX);
    weir_h2_link_close(&peer.link);
    RUN_UNTIL(f, connected(f) == 0);
}

static void test_garbage_on_a_link(void **state)
{
    struct fixture *f = *state;
    struct peer peer;
    begin(f, &peer, WEIR_V1_LINK);
    send_bytes(&peer, "\xff\xff\xff garbage", 11, false);
    RUN_UNTIL(f, peer.closed);
    assert_int_equal(peer.status, WEIR_GRPC_INVALID_ARGUMENT);
    assert_int_equal(connected(f), 0);
    weir_h2_link_close(&peer.link);
    /* A report before any hello is an error, too. */
    begin(f, &peer, WEIR_V1_LINK);
    struct weir_message report = { .type = WEIR_MESSAGE_REPORT,
                                   .session = 9,
                                   .report = { .number = 7 } };
    unsigned char bytes[256];
    size_t len = weir_v1_encode(&report, bytes, sizeof bytes);
    send_bytes(&peer, bytes, len, true);
    RUN_UNTIL(f, peer.closed);
    weir_h2_link_close(&peer.link);
}

static void test_no_such_method(void **state)
{
    struct fixture *f = *state;
    struct peer peer;
    begin(f, &peer, "/weir.v1.Root/Nothing");
    RUN_UNTIL(f, peer.closed);
    assert_int_equal(peer.status, WEIR_GRPC_UNIMPLEMENTED);
    weir_h2_link_close(&peer.link);
}

static void test_calls(void **state)
{
    struct fixture *f = *state;
    struct peer peer;
    begin(f, &peer, WEIR_V1_CALL);
    send_call(&peer, "GET", "/healthz", (struct weir_text){ "", 0 }, true);
    RUN_UNTIL(f, peer.closed);
    assert_int_equal(peer.status, WEIR_GRPC_OK);
    assert_int_equal(peer.http, 200);
    weir_h2_link_close(&peer.link);

    begin(f, &peer, WEIR_V1_CALL);
    send_bytes(&peer, "\x08\x01garbage", 9, true);
    RUN_UNTIL(f, peer.closed);
    assert_int_equal(peer.status, WEIR_GRPC_INVALID_ARGUMENT);
    weir_h2_link_close(&peer.link);

    begin(f, &peer, WEIR_V1_CALL);
    assert_int_equal(
        weir_h2_send(weir_h2_link_h2(peer.link), peer.call, "", 0, true), 0);
    weir_h2_link_flush(peer.link);
    RUN_UNTIL(f, peer.closed);
    assert_int_not_equal(peer.status, WEIR_GRPC_OK);
    weir_h2_link_close(&peer.link);
}

static void test_a_long_answer_comes_in_parts(void **state)
{
    struct fixture *f = *state;
    struct peer peer;
    begin(f, &peer, WEIR_V1_CALL);
    send_call(&peer, "GET", "/v1/quotas:export", (struct weir_text){ "", 0 },
              true);
    RUN_UNTIL(f, peer.closed);
    assert_int_equal(peer.status, WEIR_GRPC_OK);
    assert_int_equal(peer.http, 200);
    assert_compare(peer.messages, >, 5);
    assert_compare(peer.bytes, >, 10000u * WEIR_DESCRIPTION_MAX);
    weir_h2_link_close(&peer.link);
}

static void test_a_body_in_parts_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct peer peer;
    size_t size = 1 << 20;
    char *part = malloc(size);
    memset(part, ' ', size);
    begin(f, &peer, WEIR_V1_CALL);
    for (size_t i = 0; i < 70 && !peer.closed; i++) {
        send_call(&peer, "POST", "/v1/quotas:import",
                  (struct weir_text){ part, size }, false);
        RUN_UNTIL(f, peer.closed || !weir_h2_link_is_full(peer.link));
    }
    RUN_UNTIL(f, peer.closed);
    assert_int_equal(peer.status, WEIR_GRPC_RESOURCE_EXHAUSTED);
    weir_h2_link_close(&peer.link);
    free(part);
}

/* A request to a route without a body is refused with one of 64 MiB. */
static void test_a_body_is_bounded_by_its_route(void **state)
{
    struct fixture *f = *state;
    struct peer peer;
    size_t size = 1 << 20;
    char *part = malloc(size);
    memset(part, ' ', size);
    begin(f, &peer, WEIR_V1_CALL);
    for (size_t i = 0; i < 3 && !peer.closed; i++) {
        send_call(&peer, "GET", "/healthz", (struct weir_text){ part, size },
                  false);
        RUN_UNTIL(f, peer.closed || !weir_h2_link_is_full(peer.link));
    }
    RUN_UNTIL(f, peer.closed);
    assert_int_equal(peer.status, WEIR_GRPC_RESOURCE_EXHAUSTED);
    weir_h2_link_close(&peer.link);
    free(part);
}

/* ---- Credentials of peers ---- */

#define TOKEN "Bearer a-token-that-is-long-enough"

static struct weir_credentials *credentials(const char *text)
{
    struct weir_credentials *made;
    struct weir_diag diag = { 0 };
    assert_int_equal(credentials_make(weir_text_of(text), &made, &diag), 0);
    return made;
}

static void test_a_link_ends_with_its_role(void **state)
{
    struct fixture *f = *state;
    const uint64_t *refused = f->authorizer.refused[WEIR_API_GRPC];
    struct weir_credentials *before =
        credentials("take token x a-token-that-is-long-enough\n");
    struct weir_credentials *less =
        credentials("read token x a-token-that-is-long-enough\n");
    struct weir_credentials *none =
        credentials("take token y another-token-of-that-length\n");
    const struct weir_credentials *after[] = { less, none };
    int status[] = { WEIR_GRPC_PERMISSION_DENIED, WEIR_GRPC_UNAUTHENTICATED };
    for (int i = 0; i < 2; i++) {
        struct peer peer;
        f->authorizer.credentials = before;
        begin_as(f, &peer, WEIR_V1_LINK, TOKEN);
        send_hello_of(&peer, (uint64_t)i + 1);
        RUN_UNTIL(f, peer.messages > 0);
        weir_grpc_api_recheck(f->api);
        assert_false(peer.closed);
        f->authorizer.credentials = after[i];
        weir_grpc_api_recheck(f->api);
        RUN_UNTIL(f, peer.closed);
        assert_int_equal(peer.status, status[i]);
        weir_h2_link_close(&peer.link);
    }
    assert_int_equal(refused[WEIR_REFUSED_ROLE], 1);
    assert_int_equal(refused[WEIR_REFUSED_CREDENTIAL], 1);
    weir_credentials_free(&before);
    weir_credentials_free(&less);
    weir_credentials_free(&none);
}

/* The headers, and perhaps a part of the request, arrive at the server. */
static void begin_read(struct fixture *f, struct peer *peer, bool in_parts)
{
    struct weir_text empty = { "", 0 };
    begin_as(f, peer, WEIR_V1_CALL, TOKEN);
    if (in_parts)
        send_call(peer, "GET", "/v1/status", empty, false);
    weir_h2_ping(weir_h2_link_h2(peer->link));
    weir_h2_link_flush(peer->link);
    RUN_UNTIL(f, weir_h2_pong(weir_h2_link_h2(peer->link)));
    assert_false(peer->closed);
}

/* The headers of a call arrive before the credentials are reloaded, the end of
 * its request after. */
static void test_a_call_goes_by_the_credentials_of_its_request(void **state)
{
    static const struct {
        const char *credentials;
        int status;
        enum weir_refusal refusal;
    } after[] = {
        { "read,edit token x a-token-that-is-long-enough\n", WEIR_GRPC_OK, 0 },
        { "take token x a-token-that-is-long-enough\n",
          WEIR_GRPC_PERMISSION_DENIED, WEIR_REFUSED_ROLE },
        { "read token y another-token-of-that-length\n",
          WEIR_GRPC_UNAUTHENTICATED, WEIR_REFUSED_CREDENTIAL },
    };
    struct fixture *f = *state;
    const uint64_t *refused = f->authorizer.refused[WEIR_API_GRPC];
    struct weir_credentials *before =
        credentials("read token x a-token-that-is-long-enough\n");
    for (size_t i = 0; i < 2 * WEIR_COUNT_OF(after); i++) {
        struct peer peer;
        f->authorizer.credentials = before;
        begin_read(f, &peer, i % 2 == 1);
        struct weir_credentials *now = credentials(after[i / 2].credentials);
        f->authorizer.credentials = now;
        weir_grpc_api_recheck(f->api);
        send_call(&peer, "GET", "/v1/status", (struct weir_text){ "", 0 },
                  true);
        RUN_UNTIL(f, peer.closed);
        assert_int_equal(peer.status, after[i / 2].status);
        assert_int_equal(peer.http,
                         after[i / 2].status == WEIR_GRPC_OK ? 200 : 0);
        if (after[i / 2].status != WEIR_GRPC_OK)
            assert_int_equal(refused[after[i / 2].refusal], 1 + i % 2);
        weir_h2_link_close(&peer.link);
        weir_credentials_free(&now);
    }
    f->authorizer.credentials = NULL;
    weir_credentials_free(&before);
}

/* The oldest of too many peers without a credential makes room; an
 * authenticated one stays. */
static void test_strangers_make_room(void **state)
{
    struct fixture *f = *state;
    struct weir_credentials *known =
        credentials("take token x a-token-that-is-long-enough\n");
    f->authorizer.credentials = known;
    struct peer limiter;
    begin_as(f, &limiter, WEIR_V1_LINK, TOKEN);
    send_hello(&limiter);
    RUN_UNTIL(f, limiter.messages > 0);
    struct peer strangers[3 * FEW];
    for (int i = 0; i < 3 * FEW; i++) {
        begin(f, &strangers[i], i % 2 ? WEIR_V1_LINK : "/no/method");
        RUN_UNTIL(f, strangers[i].closed);
        assert_int_equal(strangers[i].status, WEIR_GRPC_UNAUTHENTICATED);
    }
    RUN_UNTIL(f, strangers[3 * FEW - FEW / 2 - 1].lost);
    for (int i = 0; i < 3 * FEW; i++)
        assert_int_equal(strangers[i].lost, i < 3 * FEW - FEW / 2);
    assert_false(limiter.closed || limiter.lost);
    assert_int_equal(
        f->authorizer.refused[WEIR_API_GRPC][WEIR_REFUSED_CREDENTIAL],
        3 * FEW + 3 * FEW - FEW / 2);
    for (int i = 0; i < 3 * FEW; i++)
        weir_h2_link_close(&strangers[i].link);
    weir_h2_link_close(&limiter.link);
    weir_credentials_free(&known);
    f->authorizer.credentials = NULL;
}

static void test_stop_tells_everybody(void **state)
{
    struct fixture *f = *state;
    struct peer peer;
    begin(f, &peer, WEIR_V1_LINK);
    send_hello(&peer);
    RUN_UNTIL(f, peer.messages > 0);
    weir_grpc_api_stop(f->api);
    weir_grpc_api_free(&f->api);
    RUN_UNTIL(f, peer.closed);
    assert_int_equal(peer.status, WEIR_GRPC_UNAVAILABLE);
    weir_h2_link_close(&peer.link);
}

#define WITH_DOOR(TEST) cmocka_unit_test_setup_teardown(TEST, make, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DOOR(test_a_limiter_comes_and_goes),
        WITH_DOOR(test_garbage_on_a_link),
        WITH_DOOR(test_no_such_method),
        WITH_DOOR(test_calls),
        WITH_DOOR(test_a_long_answer_comes_in_parts),
        WITH_DOOR(test_a_body_in_parts_is_bounded),
        WITH_DOOR(test_a_body_is_bounded_by_its_route),
        WITH_DOOR(test_a_link_ends_with_its_role),
        WITH_DOOR(test_a_call_goes_by_the_credentials_of_its_request),
        cmocka_unit_test_setup_teardown(test_strangers_make_room, make_small,
                                        clean),
        WITH_DOOR(test_stop_tells_everybody),
    };
    return cmocka_run_group_tests_name("gRPC door", tests, NULL, NULL);
}
