/* SPDX-License-Identifier: MIT
 * test_h2.c - two sessions back to back, their bytes cut at random; and a
 * raw client that breaks the rules of HTTP/2 and gRPC one by one. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "core/base/rng.h"
#include "io/h2.h"
#include "seed.h"

/* The events that one side saw, and its behaviour. */
struct side {
    struct weir_h2 *h2;
    bool echo;   /* sends every message back */
    bool finish; /* when the peer ends */
    bool reset;  /* at the first message */
    unsigned calls;
    unsigned messages;
    unsigned ends;
    unsigned closes;
    size_t bytes;
    uint64_t digest;
    int status;
    char text[300];
    char path[WEIR_H2_PATH_MAX + 1];
    char authorization[WEIR_H2_AUTHORIZATION_MAX + 1];
    int sent; /* the last result of weir_h2_send() */
};

static struct weir_rng rng;

static uint64_t mix(uint64_t digest, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < len; i++)
        digest = (digest ^ p[i]) * 0x100000001b3ull;
    return weir_rng_mix(digest + len);
}

static bool on_call(void *context, struct weir_h2 *h2, int32_t stream,
                    const char *path, const char *authorization)
{
    (void)h2;
    (void)stream;
    struct side *side = context;
    side->calls++;
    snprintf(side->authorization, sizeof(side->authorization), "%s",
             authorization);
    strcpy(side->path, path);
    return strcmp(path, "/weir.v1.Root/No") != 0;
}

static void on_message(void *context, struct weir_h2 *h2, int32_t stream,
                       const void *bytes, size_t len)
{
    struct side *side = context;
    side->messages++;
    side->bytes += len;
    side->digest = mix(side->digest, bytes, len);
    if (side->reset)
        weir_h2_reset(h2, stream);
    if (side->echo)
        side->sent = weir_h2_send(h2, stream, bytes, len, false);
}

static void on_end(void *context, struct weir_h2 *h2, int32_t stream)
{
    struct side *side = context;
    side->ends++;
    if (side->finish)
        assert_int_equal(weir_h2_finish(h2, stream, WEIR_GRPC_OK, NULL), 0);
}

static void on_close(void *context, struct weir_h2 *h2, int32_t stream,
                     int status, const char *message)
{
    struct side *side = context;
    assert_int_equal(weir_h2_send(h2, stream, "", 0, false), WEIR_ENOENT);
    side->closes++;
    side->status = status;
    snprintf(side->text, sizeof(side->text), "%s", message);
}

static void side_init(struct side *side, bool server)
{
    struct weir_h2_handler handler = { side, on_call, on_message, on_end,
                                       on_close };
    side->h2 = weir_h2_new(server, &handler);
    assert_non_null(side->h2);
}

/* Carries the output of 'from' to 'to' in random pieces; true: there was
 * any. */
static bool carry(struct side *from, struct side *to, int *out_error)
{
    const void *bytes;
    size_t len = weir_h2_output(from->h2, &bytes);
    if (len == 0)
        return false;
    const uint8_t *p = bytes;
    while (len > 0) {
        size_t most = weir_rng_below(&rng, 2) ? 20 : len;
        size_t piece = 1 + weir_rng_below(&rng, most < len ? most : len);
        uint8_t *copy = malloc(piece);
        memcpy(copy, p, piece);
        int error = weir_h2_feed(to->h2, copy, piece);
        free(copy);
        if (error < 0)
            *out_error = error;
        p += piece;
        len -= piece;
    }
    int error = weir_h2_feed(from->h2, NULL, 0);
    if (error < 0)
        *out_error = error;
    return true;
}

static int pump(struct side *a, struct side *b)
{
    int error = 0;
    for (int i = 0; i < 100000; i++) {
        bool moved = carry(a, b, &error);
        moved |= carry(b, a, &error);
        if (!moved)
            return error;
    }
    fail_msg("the two never come to rest");
    return 0;
}

struct pair {
    struct side client;
    struct side server;
};

static void pair_init(struct pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    side_init(&pair->client, false);
    side_init(&pair->server, true);
    weir_h2_set_authenticated(pair->server.h2);
}

static void pair_fini(struct pair *pair)
{
    weir_h2_free(&pair->client.h2);
    weir_h2_free(&pair->server.h2);
    weir_h2_free(&pair->server.h2);
}

#define LINK "/weir.v1.Root/Link"

static int32_t call(struct weir_h2 *h2)
{
    return weir_h2_call(h2, LINK, "x", NULL);
}

static void test_echo_in_random_pieces(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    pair.server.echo = true;
    pair.server.finish = true;
    enum { STREAMS = 20, MESSAGES = 30 };
    static uint8_t bytes[100000];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)weir_rng_next(&rng);
    int32_t ids[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        ids[i] = call(pair.client.h2);
    for (int m = 0; m < MESSAGES; m++) {
        for (int i = 0; i < STREAMS; i++) {
            size_t len = weir_rng_below(&rng, 10) ? weir_rng_below(&rng, 200)
                                                  : sizeof(bytes);
            assert_int_equal(weir_h2_send(pair.client.h2, ids[i], bytes, len,
                                          m == MESSAGES - 1),
                             0);
        }
        assert_int_equal(pump(&pair.client, &pair.server), 0);
    }
    assert_int_equal(pair.server.calls, STREAMS);
    assert_string_equal(pair.server.path, LINK);
    assert_int_equal(pair.server.ends, STREAMS);
    assert_int_equal(pair.server.messages, STREAMS * MESSAGES);
    assert_int_equal(pair.client.messages, STREAMS * MESSAGES);
    assert_int_equal(pair.client.bytes, pair.server.bytes);
    assert_int_equal(pair.client.closes, STREAMS);
    assert_int_equal(pair.client.status, WEIR_GRPC_OK);
    assert_int_equal(pair.server.closes, 0);
    assert_true(weir_h2_idle(pair.client.h2));
    assert_true(weir_h2_idle(pair.server.h2));
    assert_int_equal(weir_h2_queued(pair.server.h2), 0);
    pair_fini(&pair);
}

/* One stream keeps the order and every byte of the messages. */
static void test_order(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    pair.server.echo = true;
    int32_t id = call(pair.client.h2);
    uint64_t digest = 0;
    for (int i = 0; i < 200; i++) {
        uint8_t bytes[5000];
        size_t len = weir_rng_below(&rng, sizeof(bytes));
        memset(bytes, i, len);
        digest = mix(digest, bytes, len);
        assert_int_equal(weir_h2_send(pair.client.h2, id, bytes, len, false),
                         0);
        if (i % 7 == 0)
            assert_int_equal(pump(&pair.client, &pair.server), 0);
    }
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    assert_true(pair.server.digest == digest);
    assert_true(pair.client.digest == digest);
    pair_fini(&pair);
}

static void test_refusals_and_statuses(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    int32_t id = weir_h2_call(pair.client.h2, "/weir.v1.Root/No", "x", NULL);
    assert_compare(id, >, 0);
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    assert_int_equal(pair.client.status, WEIR_GRPC_UNIMPLEMENTED);
    assert_string_equal(pair.client.text, "no such method");
    assert_int_equal(pair.server.closes, 0);

    /* A status before the client's end, with a message that needs escapes. */
    id = call(pair.client.h2);
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    assert_int_equal(weir_h2_send(pair.server.h2, id, "abc", 3, false), 0);
    assert_int_equal(weir_h2_finish(pair.server.h2, id,
                                    WEIR_GRPC_RESOURCE_EXHAUSTED,
                                    "100% \xc3\xbc\n"),
                     0);
    assert_int_equal(weir_h2_finish(pair.server.h2, id, 0, NULL), WEIR_ENOENT);
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    assert_int_equal(pair.client.messages, 1);
    assert_int_equal(pair.client.closes, 2);
    assert_int_equal(pair.client.status, WEIR_GRPC_RESOURCE_EXHAUSTED);
    assert_string_equal(pair.client.text, "100% \xc3\xbc\n");
    assert_true(weir_h2_idle(pair.client.h2));
    assert_true(weir_h2_idle(pair.server.h2));
    assert_int_equal(weir_h2_call(pair.client.h2, "x", "x", NULL), WEIR_EINVAL);
    assert_int_equal(call(pair.server.h2), WEIR_EINVAL);
    pair_fini(&pair);
}

/* A call's authorization arrives whole, with each call anew, and stays out of
 * the tables that header compression keeps. */
static void test_authorization(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    static char longest[WEIR_H2_AUTHORIZATION_MAX + 2];
    memset(longest, 'a', WEIR_H2_AUTHORIZATION_MAX + 1);
    struct weir_h2 *client = pair.client.h2;
    assert_int_equal(weir_h2_call(client, LINK, "x", longest), WEIR_EINVAL);
    assert_int_equal(weir_h2_call(client, LINK, "x", "a\nb"), WEIR_EINVAL);
    longest[WEIR_H2_AUTHORIZATION_MAX] = '\0';
    const char *shown[] = { "Bearer one", "Bearer one", NULL, longest };
    size_t cost[4];
    for (size_t i = 0; i < WEIR_COUNT_OF(shown); i++) {
        assert_compare(weir_h2_call(client, LINK, "x", shown[i]), >, 0);
        const void *bytes;
        cost[i] = weir_h2_output(client, &bytes);
        assert_int_equal(weir_h2_feed(pair.server.h2, bytes, cost[i]), 0);
        assert_string_equal(pair.server.authorization,
                            shown[i] ? shown[i] : "");
    }
    /* The second time it costs its bytes again: it was not stored. (Huffman
     * codes make of 10 bytes no fewer than 6.) */
    assert_compare(cost[1], >=, cost[2] + 6);
    pair_fini(&pair);
}

static void test_resets(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    /* before it has left, */
    int32_t id = call(pair.client.h2);
    weir_h2_reset(pair.client.h2, id);
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    assert_int_equal(pair.server.calls, 0);
    assert_int_equal(pair.client.closes, 0);
    /* by the client, */
    id = call(pair.client.h2);
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    weir_h2_reset(pair.client.h2, id);
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    assert_int_equal(pair.server.closes, 1);
    assert_int_equal(pair.server.status, WEIR_GRPC_CANCELLED);
    assert_int_equal(pair.client.closes, 0);
    /* by the server, within a callback, */
    pair.server.reset = true;
    id = call(pair.client.h2);
    assert_int_equal(weir_h2_send(pair.client.h2, id, "ab", 2, false), 0);
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    assert_int_equal(pair.client.closes, 1);
    assert_int_equal(pair.server.closes, 1);
    assert_true(weir_h2_idle(pair.client.h2));
    assert_true(weir_h2_idle(pair.server.h2));
    /* and by the end of the transport. */
    id = call(pair.client.h2);
    weir_h2_end(pair.client.h2, "gone");
    assert_int_equal(pair.client.closes, 2);
    assert_int_equal(pair.client.status, WEIR_GRPC_UNAVAILABLE);
    assert_string_equal(pair.client.text, "gone");
    assert_int_equal(call(pair.client.h2), WEIR_ECLOSED);
    assert_true(weir_h2_is_over(pair.client.h2));
    pair_fini(&pair);
}

static void test_bounds(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    int32_t id = 0;
    for (int i = 0; i < WEIR_H2_STREAMS_MAX; i++)
        assert_compare((id = call(pair.client.h2)), >, 0);
    assert_int_equal(call(pair.client.h2), WEIR_EFULL);
    static uint8_t big[WEIR_H2_MESSAGE_MAX + 1];
    assert_int_equal(weir_h2_send(pair.client.h2, id, big, sizeof(big), false),
                     WEIR_ETOOBIG);
    int error = 0;
    unsigned sent = 0;
    while ((error = weir_h2_send(pair.client.h2, id, big, sizeof(big) - 1,
                                 false)) == 0)
        sent++;
    assert_int_equal(error, WEIR_EFULL);
    assert_int_equal(sent, 3);
    assert_compare(weir_h2_queued(pair.client.h2), <=, WEIR_H2_OUT_MAX);
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    assert_int_equal(pair.server.messages, sent);
    pair_fini(&pair);
}

static void test_ping_and_shutdown(void **state)
{
    (void)state;
    struct pair pair;
    pair_init(&pair);
    pair.server.finish = true;
    assert_true(weir_h2_pong(pair.client.h2));
    weir_h2_ping(pair.client.h2);
    assert_false(weir_h2_pong(pair.client.h2));
    int32_t id = call(pair.client.h2);
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    assert_true(weir_h2_pong(pair.client.h2));
    /* The open call ends in good order, and no other begins. */
    weir_h2_shutdown(pair.server.h2);
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    assert_int_equal(call(pair.client.h2), WEIR_ECLOSED);
    assert_false(weir_h2_is_over(pair.client.h2));
    assert_int_equal(weir_h2_send(pair.client.h2, id, "a", 1, true), 0);
    assert_int_equal(pump(&pair.client, &pair.server), 0);
    assert_int_equal(pair.client.status, WEIR_GRPC_OK);
    assert_int_equal(pair.client.closes, 1);
    assert_true(weir_h2_is_over(pair.client.h2));
    assert_true(weir_h2_is_over(pair.server.h2));
    pair_fini(&pair);
}

static void test_garbage(void **state)
{
    (void)state;
    static const char http1[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n"
                                 "Content-Length: 0\r\n\r\n";
    struct pair pair;
    pair_init(&pair);
    assert_int_equal(weir_h2_feed(pair.server.h2, http1, sizeof(http1) - 1),
                     WEIR_EPROTOCOL);
    assert_int_equal(weir_h2_feed(pair.server.h2, "", 0), WEIR_EPROTOCOL);
    int32_t id = call(pair.client.h2);
    assert_int_equal(weir_h2_feed(pair.client.h2, answer, sizeof(answer) - 1),
                     WEIR_EPROTOCOL);
    assert_int_equal(call(pair.client.h2), WEIR_ECLOSED);
    weir_h2_end(pair.client.h2, "x");
    assert_int_equal(pair.client.closes, 1);
    assert_int_equal(weir_h2_send(pair.client.h2, id, "", 0, false),
                     WEIR_ENOENT);
    pair_fini(&pair);
}

/* ---- A raw client ---- */

struct raw {
    nghttp2_session *session;
    struct side server;
    int http_status;
    int grpc_status;
    unsigned closed;
    const uint8_t *body; /* of the request: gRPC frames */
    size_t body_len;
};

static int raw_header(nghttp2_session *session, const nghttp2_frame *frame,
                      const uint8_t *name, size_t name_len,
                      const uint8_t *value, size_t len, uint8_t flags,
                      void *context)
{
    (void)session;
    (void)frame;
    (void)flags;
    struct raw *raw = context;
    char text[8] = "";
    memcpy(text, value, len < 7 ? len : 7);
    if (name_len == 7 && memcmp(name, ":status", 7) == 0)
        raw->http_status = atoi(text);
    if (name_len == 11 && memcmp(name, "grpc-status", 11) == 0)
        raw->grpc_status = atoi(text);
    return 0;
}

static int raw_close(nghttp2_session *session, int32_t id, uint32_t error,
                     void *context)
{
    (void)session;
    (void)id;
    (void)error;
    ((struct raw *)context)->closed++;
    return 0;
}

static ssize_t raw_body(nghttp2_session *session, int32_t id, uint8_t *buf,
                        size_t length, uint32_t *flags,
                        nghttp2_data_source *source, void *context)
{
    (void)session;
    (void)id;
    (void)source;
    struct raw *raw = context;
    size_t len = raw->body_len < length ? raw->body_len : length;
    memcpy(buf, raw->body, len);
    raw->body += len;
    raw->body_len -= len;
    if (raw->body_len == 0)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)len;
}

static void raw_init(struct raw *raw)
{
    memset(raw, 0, sizeof(*raw));
    side_init(&raw->server, true);
    weir_h2_set_authenticated(raw->server.h2);
    nghttp2_session_callbacks *callbacks;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, raw_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks,
                                                           raw_close);
    nghttp2_session_client_new(&raw->session, callbacks, raw);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(raw->session, 0, NULL, 0);
}

static void raw_fini(struct raw *raw)
{
    nghttp2_session_del(raw->session);
    weir_h2_free(&raw->server.h2);
}

/* Until both are idle; returns the last result of the server's feed. */
static int raw_pump(struct raw *raw, bool listen)
{
    int error = 0;
    for (bool moved = true; moved;) {
        moved = false;
        const uint8_t *bytes;
        ssize_t len = nghttp2_session_mem_send(raw->session, &bytes);
        if (len > 0) {
            error = weir_h2_feed(raw->server.h2, bytes, (size_t)len);
            moved = true;
        }
        const void *output;
        size_t out = listen ? weir_h2_output(raw->server.h2, &output) : 0;
        if (out > 0) {
            nghttp2_session_mem_recv(raw->session, output, out);
            error = weir_h2_feed(raw->server.h2, NULL, 0);
            moved = true;
        }
        if (error < 0)
            return error;
    }
    return error;
}

static nghttp2_nv nv(const char *name, const char *value)
{
    return (nghttp2_nv){ (uint8_t *)name, (uint8_t *)value, strlen(name),
                         strlen(value), 0 };
}

/* A request with one header changed ('name' NULL: none) or left out
 * ('value' NULL). */
static void raw_request(struct raw *raw, const char *name, const char *value,
                        const void *body, size_t len)
{
    nghttp2_nv pairs[7] = {
        nv(":method", "POST"), nv(":scheme", "http"),
        nv(":path", LINK),     nv(":authority", "x"),
        nv("te", "trailers"),  nv("content-type", "application/grpc"),
    };
    size_t count = 6;
    bool known = false;
    for (size_t i = 0; name && i < 6; i++) {
        if (strcmp((const char *)pairs[i].name, name) != 0)
            continue;
        pairs[i] = value ? nv(name, value) : pairs[--count];
        known = true;
    }
    if (name && !known)
        pairs[count++] = nv(name, value);
    raw->body = body;
    raw->body_len = len;
    raw->http_status = 0;
    raw->grpc_status = -1;
    nghttp2_data_provider provider = { .read_callback = raw_body };
    assert_true(nghttp2_submit_request(raw->session, NULL, pairs, count,
                                       &provider, NULL) > 0);
}

static void expect(const char *name, const char *value, const void *body,
                   size_t len, int http_status, int grpc_status)
{
    struct raw raw;
    raw_init(&raw);
    raw.server.echo = true;
    raw.server.finish = true;
    raw_request(&raw, name, value, body, len);
    assert_int_equal(raw_pump(&raw, true), 0);
    assert_int_equal(raw.http_status, http_status);
    assert_int_equal(raw.grpc_status, grpc_status);
    assert_int_equal(raw.closed, 1);
    assert_true(weir_h2_idle(raw.server.h2));
    raw_fini(&raw);
}

static void test_rules_of_grpc(void **state)
{
    (void)state;
    static const uint8_t hi[] = { 0, 0, 0, 0, 2, 'h', 'i' };
    static const uint8_t squeezed[] = { 1, 0, 0, 0, 2, 'h', 'i' };
    static const uint8_t odd[] = { 7, 0, 0, 0, 2, 'h', 'i' };
    static const uint8_t huge[] = { 0, 0, 64, 0, 1, 'h', 'i' };
    static char path[WEIR_H2_PATH_MAX + 10];
    static char header[WEIR_H2_AUTHORIZATION_MAX + 10];
    memset(path, '/', sizeof(path) - 1);
    memset(header, 'x', sizeof(header) - 1);
    expect(NULL, NULL, hi, sizeof(hi), 200, WEIR_GRPC_OK);
    expect(NULL, NULL, hi, 0, 200, WEIR_GRPC_OK);
    expect("content-type", "application/grpc+proto", hi, 7, 200, 0);
    expect("content-type", "application/grpc;a=b", hi, 7, 200, 0);
    expect("content-type", "application/grpc+json", hi, 7, 415, -1);
    expect("content-type", "application/grpcx", hi, 7, 415, -1);
    expect("content-type", "text/html", hi, 7, 415, -1);
    expect(":method", "GET", hi, 7, 405, -1);
    expect("content-type", NULL, hi, 7, 415, -1);
    expect("te", NULL, hi, 7, 200, WEIR_GRPC_INTERNAL);
    expect("te", "deflate", hi, 7, 0, -1); /* reset by nghttp2 */
    expect("grpc-encoding", "identity", hi, 7, 200, WEIR_GRPC_OK);
    expect("grpc-encoding", "gzip", squeezed, 7, 200, WEIR_GRPC_UNIMPLEMENTED);
    expect(":path", path, hi, 7, 200, WEIR_GRPC_UNIMPLEMENTED);
    expect(":path", "/weir.v1.Root/No", hi, 7, 200, WEIR_GRPC_UNIMPLEMENTED);
    header[WEIR_H2_AUTHORIZATION_MAX] = '\0';
    expect("authorization", header, hi, 7, 200, WEIR_GRPC_OK);
    header[WEIR_H2_AUTHORIZATION_MAX] = 'x';
    header[WEIR_H2_AUTHORIZATION_MAX + 1] = '\0';
    expect("authorization", header, hi, 7, 200, WEIR_GRPC_UNAUTHENTICATED);
    expect(NULL, NULL, squeezed, 7, 200, WEIR_GRPC_INTERNAL);
    expect(NULL, NULL, odd, 7, 200, WEIR_GRPC_INTERNAL);
    expect(NULL, NULL, huge, 7, 200, WEIR_GRPC_RESOURCE_EXHAUSTED);
    expect(NULL, NULL, hi, 6, 200, WEIR_GRPC_INTERNAL);
    expect(NULL, NULL, hi, 3, 200, WEIR_GRPC_INTERNAL);
}

static void test_breach_is_told_once(void **state)
{
    (void)state;
    static const uint8_t bytes[] = { 0, 0, 0, 0, 1, 'a', 1, 0, 0, 0, 0 };
    struct raw raw;
    raw_init(&raw);
    raw_request(&raw, NULL, NULL, bytes, sizeof(bytes));
    assert_int_equal(raw_pump(&raw, true), 0);
    assert_int_equal(raw.server.messages, 1);
    assert_int_equal(raw.server.closes, 1);
    assert_int_equal(raw.server.ends, 0);
    assert_int_equal(raw.grpc_status, WEIR_GRPC_INTERNAL);
    raw_fini(&raw);
}

static void test_floods(void **state)
{
    (void)state;
    /* PINGs of a peer that doesn't read the answers */
    struct raw raw;
    raw_init(&raw);
    int error = 0;
    for (int i = 0; i < 20000 && error == 0; i++) {
        nghttp2_submit_ping(raw.session, 0, NULL);
        error = raw_pump(&raw, false);
    }
    assert_int_equal(error, WEIR_EPROTOCOL);
    assert_compare(weir_h2_queued(raw.server.h2), <, 200000);
    raw_fini(&raw);

    /* calls that are reset as soon as they are made */
    raw_init(&raw);
    error = 0;
    static const uint8_t none[1];
    for (int i = 0; i < 20000 && error == 0; i++) {
        raw_request(&raw, NULL, NULL, none, 0);
        error = raw_pump(&raw, true);
        if (error == 0)
            nghttp2_submit_rst_stream(raw.session, 0, 2 * i + 1,
                                      NGHTTP2_CANCEL);
    }
    printf("rapid resets: the session ended after %u calls\n",
           raw.server.calls);
    assert_int_equal(error, WEIR_EPROTOCOL);
    assert_compare(raw.server.calls, <, 5000);
    raw_fini(&raw);
}

/* ---- Much work of few bytes ---- */

/* Bytes that an attacker prepared. */
struct blob {
    uint8_t bytes[80 << 10];
    size_t len;
};

static void put(struct blob *blob, const void *bytes, size_t len)
{
    assert_true(len <= sizeof(blob->bytes) - blob->len);
    if (len > 0)
        memcpy(blob->bytes + blob->len, bytes, len);
    blob->len += len;
}

static void put_frame(struct blob *blob, uint8_t type, uint8_t flags,
                      uint32_t stream, const void *payload, size_t len)
{
    const uint8_t head[9] = { (uint8_t)(len >> 16),
                              (uint8_t)(len >> 8),
                              (uint8_t)len,
                              type,
                              flags,
                              0,
                              (uint8_t)(stream >> 16),
                              (uint8_t)(stream >> 8),
                              (uint8_t)stream };
    put(blob, head, sizeof(head));
    put(blob, payload, len);
}

static void begin_raw(struct blob *blob)
{
    blob->len = 0;
    put(blob, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    put_frame(blob, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
}

enum { END_STREAM = 1, END_HEADERS = 4 };

/* POST over http, "/x", te and content-type as gRPC requires. */
static const char post[] = "\x83\x86\x44\x02/x\x41\x01x"
                           "\x00\x02te\x08trailers"
                           "\x0f\x10\x10"
                           "application/grpc";

/* The session ends in the feed that caused it, by GOAWAY with
 * ENHANCE_YOUR_CALM. */
static void expect_calm(struct weir_h2 *h2, const char *says)
{
    assert_non_null(weir_h2_breach(h2));
    assert_non_null(strstr(weir_h2_breach(h2), says));
    const void *bytes;
    size_t len = weir_h2_output(h2, &bytes);
    const uint8_t *end = (const uint8_t *)bytes + len;
    assert_true(len >= 17);
    assert_int_equal(end[-14], NGHTTP2_GOAWAY);
    assert_int_equal(end[-1], NGHTTP2_ENHANCE_YOUR_CALM);
}

/* A header of 4,000 bytes in HPACK's table, and 12,000 references to it of a
 * byte each: 48 MB decoded. */
static void test_hpack_bomb(void **state)
{
    (void)state;
    static struct blob blob;
    static uint8_t block[16000];
    struct side server = { 0 };
    side_init(&server, true);
    begin_raw(&blob);
    /* literal with indexing, "a", a length of 4,000 by 127 + 3,873 */
    const uint8_t first[] = {
        0x82, 0x86, 0x84, 0x40, 1, 'a', 0x7f, 0xa1, 0x1e
    };
    memcpy(block, first, sizeof(first));
    memset(block + sizeof(first), 'x', 4000);
    put_frame(&blob, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 1, block,
              sizeof(first) + 4000);
    assert_int_equal(weir_h2_feed(server.h2, blob.bytes, blob.len), 0);
    uint64_t before = weir_h2_work(server.h2);
    blob.len = 0;
    memset(block, 0x80 | 62, 12000);
    put_frame(&blob, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 3, block,
              12000);
    assert_int_equal(weir_h2_feed(server.h2, blob.bytes, blob.len),
                     WEIR_EPROTOCOL);
    expect_calm(server.h2, "headers are over 8192 bytes");
    assert_compare(weir_h2_work(server.h2) - before, <,
                   2 * WEIR_H2_HEADERS_MAX + blob.len + 4096);
    weir_h2_free(&server.h2);
}

/* A call, and the same one by HPACK's table, which a client may keep that
 * acknowledges any setting (the gRPC in Go of 2016). It calls ten thousand
 * times, with few bytes, and is answered. */
static void test_a_client_repeats_its_call(void **state)
{
    (void)state;
    static struct blob blob;
    static const uint8_t message[] = { 0, 0, 0, 0, 2, 'h', 'i' };
    static const char first[] = "\x83\x86\x44\x02/x\x41\x01x"
                                "\x40\x02te\x08trailers"
                                "\x5f\x10"
                                "application/grpc";
    static const uint8_t again[] = { 0x83,      0x86,      0x80 | 65,
                                     0x80 | 64, 0x80 | 63, 0x80 | 62 };
    struct side server = { .finish = true };
    side_init(&server, true);
    begin_raw(&blob);
    put_frame(&blob, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
    put_frame(&blob, NGHTTP2_HEADERS, END_HEADERS, 1, first, sizeof(first) - 1);
    for (uint32_t stream = 1; stream < 20000; stream += 2) {
        if (stream > 1)
            put_frame(&blob, NGHTTP2_HEADERS, END_HEADERS, stream, again,
                      sizeof(again));
        put_frame(&blob, NGHTTP2_DATA, END_STREAM, stream, message,
                  sizeof(message));
        const void *bytes;
        if (weir_h2_feed(server.h2, blob.bytes, blob.len) < 0)
            fail_msg("stream %u: %s", stream, weir_h2_breach(server.h2));
        while (weir_h2_output(server.h2, &bytes) > 0)
            continue;
        blob.len = 0;
    }
    assert_int_equal(server.calls, 10000);
    assert_int_equal(server.messages, 10000);
    weir_h2_free(&server.h2);
}

/* The same on a stream that isn't read any more, and in trailers: the block has
 * a bound everywhere. */
static void test_hpack_bomb_on_a_dead_stream(void **state)
{
    (void)state;
    static struct blob blob;
    static uint8_t block[16000];
    struct side server = { 0 };
    side_init(&server, true);
    begin_raw(&blob);
    static const uint8_t get[] = { 0x82, 0x86, 0x84, 0x41, 1, 'x' };
    put_frame(&blob, NGHTTP2_HEADERS, END_HEADERS, 1, get, sizeof(get));
    assert_int_equal(weir_h2_feed(server.h2, blob.bytes, blob.len), 0);
    blob.len = 0;
    /* accept-encoding: gzip, deflate is one byte of the static table */
    memset(block, 0x80 | 16, 12000);
    put_frame(&blob, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 1, block,
              12000);
    (void)weir_h2_feed(server.h2, blob.bytes, blob.len);
    assert_compare(weir_h2_work(server.h2), <,
                   3 * WEIR_H2_HEADERS_MAX + blob.len + 4096);
    weir_h2_free(&server.h2);
}

/* One frame over and over, of each type: whether the session ends or not, the
 * work is within its multiple of the bytes. */
enum flooded { CONNECTION, NEW_STREAMS, OPEN_STREAM };

static void flood(const char *name, uint8_t type, uint8_t flags,
                  enum flooded where, const void *payload, size_t len)
{
    static struct blob blob;
    struct side server = { 0 };
    side_init(&server, true);
    server.finish = true;
    begin_raw(&blob);
    if (where == OPEN_STREAM)
        put_frame(&blob, NGHTTP2_HEADERS, END_HEADERS, 1, post,
                  sizeof(post) - 1);
    size_t fed = 0;
    uint32_t stream = where == CONNECTION ? 0 : 1;
    int error = 0;
    for (int round = 0; round < 200 && error == 0; round++) {
        while (blob.len + 9 + len < sizeof(blob.bytes) - 100) {
            put_frame(&blob, type, flags, stream, payload, len);
            stream += where == NEW_STREAMS ? 2 : 0;
        }
        fed += blob.len;
        error = weir_h2_feed(server.h2, blob.bytes, blob.len);
        const void *bytes;
        while (weir_h2_output(server.h2, &bytes) > 0)
            continue;
        blob.len = 0;
    }
    uint64_t work = weir_h2_work(server.h2);
    printf("%s: %zu bytes, %llu units, %s\n", name, fed,
           (unsigned long long)work,
           weir_h2_breach(server.h2) ? weir_h2_breach(server.h2)
                                     : weir_strerror(error));
    assert_compare(work, >=, fed);
    /* A feed of 80 KB is decoded before its breach counts. */
    assert_compare(work, <=, (uint64_t)WEIR_H2_WORK_FACTOR * fed + (1 << 20));
    weir_h2_free(&server.h2);
}

static void test_work_of_each_frame(void **state)
{
    (void)state;
    static const uint8_t eight[8];
    static const uint8_t one[4] = { 0, 0, 0, 1 };
    static const uint8_t setting[6] = { 0, 3, 0, 0, 0, 1 };
    static const uint8_t priority[5] = { 0, 0, 0, 0, 1 };
    static const uint8_t get[] = { 0x82, 0x86, 0x84, 0x41, 1, 'x' };
    flood("PING", NGHTTP2_PING, 0, CONNECTION, eight, 8);
    flood("PING, answered", NGHTTP2_PING, 1, CONNECTION, eight, 8);
    flood("SETTINGS", NGHTTP2_SETTINGS, 0, CONNECTION, setting, 6);
    flood("WINDOW_UPDATE", NGHTTP2_WINDOW_UPDATE, 0, CONNECTION, one, 4);
    flood("PRIORITY", NGHTTP2_PRIORITY, 0, NEW_STREAMS, priority, 5);
    flood("RST_STREAM", NGHTTP2_RST_STREAM, 0, NEW_STREAMS, one, 4);
    flood("WINDOW_UPDATE, stream", NGHTTP2_WINDOW_UPDATE, 0, OPEN_STREAM, one,
          4);
    flood("DATA", NGHTTP2_DATA, 0, OPEN_STREAM, NULL, 0);
    flood("DATA of a byte", NGHTTP2_DATA, 0, OPEN_STREAM, "", 1);
    flood("unknown", 0x77, 0, CONNECTION, NULL, 0);
    flood("HEADERS", NGHTTP2_HEADERS, END_STREAM | END_HEADERS, NEW_STREAMS,
          get, sizeof(get));
    flood("HEADERS, open", NGHTTP2_HEADERS, END_HEADERS, NEW_STREAMS, get,
          sizeof(get));
    flood("HEADERS, unended", NGHTTP2_HEADERS, 0, NEW_STREAMS, get,
          sizeof(get));
}

/* CONTINUATION without end, each of no bytes or of one header. */
static void test_endless_continuation(void **state)
{
    (void)state;
    static struct blob blob;
    static const uint8_t get[] = { 0x82, 0x86, 0x84, 0x41, 1, 'x' };
    for (size_t len = 0; len < 2; len++) {
        struct side server = { 0 };
        side_init(&server, true);
        begin_raw(&blob);
        put_frame(&blob, NGHTTP2_HEADERS, END_STREAM, 1, get, sizeof(get));
        int error = 0;
        unsigned rounds = 0;
        for (; rounds < 1000 && error == 0; rounds++) {
            while (blob.len < sizeof(blob.bytes) - 100)
                put_frame(&blob, NGHTTP2_CONTINUATION, 0, 1, "\x90", len);
            error = weir_h2_feed(server.h2, blob.bytes, blob.len);
            blob.len = 0;
        }
        printf("CONTINUATION of %zu bytes: ended after %u feeds\n", len,
               rounds);
        assert_int_equal(error, WEIR_EPROTOCOL);
        assert_compare(rounds, <, 10);
        weir_h2_free(&server.h2);
    }
}

/* Unfinished messages of all streams together. */
static void test_unfinished_messages(void **state)
{
    (void)state;
    struct raw raw;
    raw_init(&raw);
    unsigned refused = 0;
    for (int i = 0; i < 8; i++) {
        static uint8_t part[5 + WEIR_H2_MESSAGE_MAX - 1];
        part[1] = 0;
        part[2] = 64;
        raw_request(&raw, NULL, NULL, part, sizeof(part));
        assert_int_equal(raw_pump(&raw, true), 0);
        refused += raw.grpc_status == WEIR_GRPC_INTERNAL;
    }
    /* Each call was ended within its message: none of the messages is kept. */
    assert_int_equal(refused, 8);
    raw_fini(&raw);
}

/* A client that isn't authenticated has less room, for all calls together: a
 * call that exceeds it ends. */
static void test_unfinished_before_authentication(void **state)
{
    (void)state;
    static uint8_t part[WEIR_H2_OPEN_IN_MAX / 2];
    for (int authenticated = 0; authenticated <= 1; authenticated++) {
        struct pair pair = { .client = { .h2 = NULL } };
        side_init(&pair.client, false);
        side_init(&pair.server, true);
        if (authenticated)
            weir_h2_set_authenticated(pair.server.h2);
        for (int i = 0; i < 3; i++) {
            int32_t id = call(pair.client.h2);
            assert_compare(id, >, 0);
            assert_int_equal(
                weir_h2_send(pair.client.h2, id, part, sizeof part, false), 0);
        }
        assert_int_equal(pump(&pair.client, &pair.server), 0);
        assert_int_equal(pair.client.closes, 0);
        static uint8_t whole[2 * WEIR_H2_OPEN_IN_MAX];
        assert_int_equal(weir_h2_send(pair.client.h2, call(pair.client.h2),
                                      whole, sizeof whole, false),
                         0);
        assert_int_equal(pump(&pair.client, &pair.server), 0);
        assert_int_equal(pair.client.closes, !authenticated);
        if (!authenticated)
            assert_int_equal(pair.client.status, WEIR_GRPC_RESOURCE_EXHAUSTED);
        pair_fini(&pair);
    }
}

int main(void)
{
    rng = made_seed("h2");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_echo_in_random_pieces),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_refusals_and_statuses),
        cmocka_unit_test(test_authorization),
        cmocka_unit_test(test_resets),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_ping_and_shutdown),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_rules_of_grpc),
        cmocka_unit_test(test_breach_is_told_once),
        cmocka_unit_test(test_floods),
        cmocka_unit_test(test_unfinished_messages),
        cmocka_unit_test(test_unfinished_before_authentication),
        cmocka_unit_test(test_hpack_bomb),
        cmocka_unit_test(test_hpack_bomb_on_a_dead_stream),
        cmocka_unit_test(test_a_client_repeats_its_call),
        cmocka_unit_test(test_work_of_each_frame),
        cmocka_unit_test(test_endless_continuation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
