/* SPDX-License-Identifier: MIT
 * test/codec/test_http1.c - requests of HTTP/1.1, and bytes that only look like
 * one. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/http1.h"

static struct weir_http1_request request;
static size_t used;

static int decode(const char *bytes)
{
    /* A block of its own, so that a read beyond its end is detected. */
    size_t len = strlen(bytes);
    static char *block;
    free(block);
    block = malloc(len + 1);
    memcpy(block, bytes, len);
    used = 0;
    int status = weir_http1_head(block, len, &request, &used);
    if (bytes[0] == '\0') {
        free(block);
        block = NULL;
    }
    return status;
}

static bool is(struct weir_text text, const char *of)
{
    return weir_text_equal(text, weir_text_of(of));
}

static void a_request_is_taken_apart(void **state)
{
    (void)state;
    struct weir_text value;
    assert_int_equal(decode("POST /v1/take?a=b HTTP/1.1\r\n"
                            "Host: localhost\r\n"
                            "X-Empty:\r\n"
                            "content-length: \t5 \r\n"
                            "\r\nhelloGET"),
                     1);
    assert_true(is(request.method, "POST"));
    assert_true(is(request.target, "/v1/take?a=b"));
    assert_int_equal(request.content_length, 5);
    assert_true(request.keep);
    assert_true(weir_http1_header(&request, "HOST", &value));
    assert_true(is(value, "localhost"));
    assert_true(weir_http1_header(&request, "x-empty", &value));
    assert_int_equal(value.len, 0);
    assert_false(weir_http1_header(&request, "x", &value));
    assert_int_equal(used, strlen("POST /v1/take?a=b HTTP/1.1\r\n"
                                  "Host: localhost\r\nX-Empty:\r\n"
                                  "content-length: \t5 \r\n\r\n"));
}

static void it_is_whole_at_its_last_byte(void **state)
{
    (void)state;
    static const char whole[] = "\r\nPUT / HTTP/1.1\r\nHost: a\r\n"
                                "Content-Length: 3\r\n\r\n";
    char cut[sizeof whole];
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        memcpy(cut, whole, len);
        cut[len] = '\0';
        assert_int_equal(decode(cut), 0);
    }
    assert_int_equal(decode(whole), 1);
    assert_int_equal(used, sizeof whole - 1);
}

static void connections_are_kept_as_the_request_says(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        bool keep;
    } table[] = {
        { "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true },
        { "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false },
        { "GET / HTTP/1.1\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n", true },
        { "GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, Close\r\n\r\n", false },
        { "GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n", true },
        { "GET / HTTP/1.0\r\n\r\n", false },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(table); i++) {
        assert_int_equal(decode(table[i].bytes), 1);
        assert_int_equal(request.keep, table[i].keep);
    }
}

static void a_body_may_be_announced(void **state)
{
    (void)state;
    assert_int_equal(decode("PUT / HTTP/1.1\r\nHost: a\r\n"
                            "Expect: 100-continue\r\n"
                            "Content-Length: 3\r\n\r\n"),
                     1);
    assert_true(request.expects);
    assert_int_equal(request.content_length, 3);
    /* A client of HTTP/1.0 doesn't know status 100. */
    assert_int_equal(decode("PUT / HTTP/1.0\r\nExpect: 100-continue\r\n"
                            "Content-Length: 3\r\n\r\n"),
                     1);
    assert_false(request.expects);
}

static void what_two_could_read_differently_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int status;
    } table[] = {
        { "GET / HTTP/1.1\r\n\r\n", -400 },
        { "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", -400 },
        { "GET / HTTP/1.1\nHost: a\r\n\r\n", -400 },
        /* Refused at once: such a request would never end. */
        { "GET / HTTP/1.1\nHost: a\n\n", -400 },
        { "GET / HTTP/1.1\r\nHost: a\n", -400 },
        { "\nGET / HTTP/1.1\r\n", -400 },
        { "GET / HTTP/1.1\r\nHost : a\r\n\r\n", -400 },
        { "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", -400 },
        { "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", -400 },
        { "GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n", -400 },
        { "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", -400 },
        { "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", -400 },
        { "GET a HTTP/1.1\r\nHost: a\r\n\r\n", -400 },
        { "GET *a HTTP/1.1\r\nHost: a\r\n\r\n", -400 },
        { "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", -400 },
        { "GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", -400 },
        { "GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n", -400 },
        { "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", -400 },
        { "GET / HTTP/2.0\r\nHost: a\r\n\r\n", -505 },
        { "GET / HTTP/1.1x\r\nHost: a\r\n\r\n", -400 },
        { "GET /\r\n\r\n", -400 },
        { "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
          "Content-Length: 1\r\n\r\na",
          -400 },
        { "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
          "Content-Length: 2\r\n\r\na",
          -400 },
        { "P / HTTP/1.1\r\nHost: a\r\nContent-Length: +12\r\n\r\na", -400 },
        { "P / HTTP/1.1\r\nHost: a\r\nContent-Length : 1\r\n\r\na", -400 },
        { "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\na", -400 },
        { "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\na", -400 },
        { "P / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\na", -400 },
        { "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741825\r\n\r\n",
          -413 },
        { "P / HTTP/1.1\r\nHost: a\r\n"
          "Content-Length: 99999999999999999999999\r\n\r\n",
          -413 },
        { "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
          "Content-Length: 1\r\n\r\n",
          -411 },
        { "P / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
          "Transfer-Encoding: chunked\r\n\r\n",
          -411 },
        { "P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", -501 },
        { "P / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n", -400 },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(table); i++)
        if (decode(table[i].bytes) != table[i].status)
            fail_msg("%s", table[i].bytes);
}

static void bounds_hold(void **state)
{
    (void)state;
    static char bytes[2 * WEIR_HTTP1_HEAD_MAX] = "GET /";
    memset(bytes + 5, 'a', sizeof bytes - 6);
    bytes[WEIR_HTTP1_HEAD_MAX - 1] = '\0';
    assert_int_equal(decode(bytes), 0);
    bytes[WEIR_HTTP1_HEAD_MAX - 1] = 'a';
    assert_int_equal(decode(bytes), -431);
    strcpy(bytes + WEIR_HTTP1_TARGET_MAX + 100, " HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(decode(bytes), -414);
    strcpy(bytes, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 1; i < WEIR_HTTP1_HEADERS_MAX; i++)
        strcat(bytes, "a: b\r\n");
    char *end = bytes + strlen(bytes);
    strcpy(end, "\r\n");
    assert_int_equal(decode(bytes), 1);
    strcpy(end, "a: b\r\n\r\n");
    assert_int_equal(decode(bytes), -431);
}

static int clear(void **state)
{
    (void)state;
    (void)decode("");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_taken_apart),
        cmocka_unit_test(it_is_whole_at_its_last_byte),
        cmocka_unit_test(connections_are_kept_as_the_request_says),
        cmocka_unit_test(a_body_may_be_announced),
        cmocka_unit_test(what_two_could_read_differently_is_refused),
        cmocka_unit_test(bounds_hold),
    };
    return cmocka_run_group_tests(tests, NULL, clear);
}
