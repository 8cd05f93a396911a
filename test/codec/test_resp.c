/* SPDX-License-Identifier: MIT
 * test/codec/test_resp.c - requests of Redis clients, and replies. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/resp.h"

/* The words with '|' between, or "more", or the error. */
static const char *decoded(const char *bytes, size_t len)
{
    static char said[WEIR_RESP_REQUEST_MAX];
    static struct weir_resp_request request;
    const char *error = "?";
    size_t used = SIZE_MAX;
    size_t at = 0;
    int whole = weir_resp_decode(bytes, len, &request, &used, &error);
    if (whole == 0)
        return "more";
    if (whole < 0)
        return error;
    assert_in_range(used, 1, len);
    said[0] = '\0';
    for (size_t i = 0; i < request.count; i++)
        at += (size_t)snprintf(said + at, sizeof said - at, "%s%.*s",
                               i > 0 ? "|" : "", (int)request.argument[i].len,
                               request.argument[i].p);
    return said;
}

static void a_request_is_whole_at_its_last_byte(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n",
        "*3\r\n$9\r\nWEIR.TAKE\r\n$4\r\ns3/a\r\n$1\r\n2\r\n",
        "*1\r\n$4\r\nPING\r\n",
        "*0\r\n",
        "*-1\r\n",
        "PING hi\r\n",
        "ECHO \"a b\"\n",
        "\r\n",
    };
    static const char *const words[] = {
        "PING|hi", "WEIR.TAKE|s3/a|2", "PING", "", "", "PING|hi", "ECHO|a b", ""
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(requests); i++) {
        size_t len = strlen(requests[i]);
        for (size_t part = 0; part < len; part++) {
            /* A block of its own, so that a read beyond its end is detected. */
            char *cut = malloc(part + 1);
            memcpy(cut, requests[i], part);
            assert_string_equal(decoded(cut, part), "more");
            free(cut);
        }
        assert_string_equal(decoded(requests[i], len), words[i]);
    }
}

static void of_two_the_first_is_decoded(void **state)
{
    (void)state;
    static const char two[] = "*1\r\n$1\r\na\r\n*1\r\n$1\r\nb\r\n";
    static struct weir_resp_request request;
    const char *error;
    size_t used;
    assert_int_equal(
        weir_resp_decode(two, sizeof two - 1, &request, &used, &error), 1);
    assert_int_equal(used, 11);
    assert_string_equal(decoded(two + used, sizeof two - 1 - used), "b");
}

static void what_is_none_is_said_as_redis_says_it(void **state)
{
    (void)state;
    static const char *const table[][2] = {
        { "*x\r\n", "Protocol error: invalid multibulk length" },
        { "*\r\n", "Protocol error: invalid multibulk length" },
        { "*00\r\n", "Protocol error: invalid multibulk length" },
        { "*01\r\n$1\r\na\r\n", "Protocol error: invalid multibulk length" },
        { "*001\r\n$1\r\na\r\n", "Protocol error: invalid multibulk length" },
        { "*-0\r\n", "Protocol error: invalid multibulk length" },
        { "*1\r\n$01\r\na\r\n", "Protocol error: invalid bulk length" },
        { "*65\r\n", "Protocol error: invalid multibulk length" },
        { "*9999999999999999999999",
          "Protocol error: invalid multibulk length" },
        { "*1\rx", "Protocol error: invalid multibulk length" },
        { "*1\r\n:1\r\n", "Protocol error: expected '$'" },
        { "*1\r\n$-1\r\n", "Protocol error: invalid bulk length" },
        { "*1\r\n$16385\r\n", "Protocol error: invalid bulk length" },
        { "*1\r\n$1x\r\n", "Protocol error: invalid bulk length" },
        { "*1\r\n$1\r\nab\r\n",
          "Protocol error: expected the end of a string" },
        { "ECHO \"a\r\n", "Protocol error: unbalanced quotes in request" },
        { "ECHO \"a\"b\r\n", "Protocol error: unbalanced quotes in request" },
        { "ECHO 'a\r\n", "Protocol error: unbalanced quotes in request" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(table); i++)
        assert_string_equal(decoded(table[i][0], strlen(table[i][0])),
                            table[i][1]);
}

/* Any web page can make a browser post to any port. */
static void a_request_of_http_is_none(void **state)
{
    (void)state;
    static const char *const table[] = {
        "POST / HTTP/1.1\r\nHost: a\r\n\r\nWEIR.TAKE drain 100\r\n",
        "POST /?'a=\"b HTTP/1.1\r\n",
        "post /\r\n",
        "GET /?WEIR.TAKE HTTP/1.0\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "Host: localhost:6379\r\n",
        "host:\r\n",
        "Content-Type: text/plain\r\n",
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(table); i++)
        assert_string_equal(decoded(table[i], strlen(table[i])),
                            "Protocol error: this port doesn't speak HTTP");
    assert_string_equal(decoded("ECHO HTTP/\r\n", 12), "ECHO|HTTP/");
}

static void bounds_hold(void **state)
{
    (void)state;
    static char bytes[2 * WEIR_RESP_REQUEST_MAX];
    memset(bytes, 'a', sizeof bytes);
    assert_string_equal(decoded(bytes, WEIR_RESP_INLINE_MAX - 1), "more");
    assert_string_equal(decoded(bytes, WEIR_RESP_INLINE_MAX),
                        "Protocol error: too big inline request");
    int len = sprintf(bytes, "*2\r\n$10000\r\n");
    memset(bytes + len, 'a', 10000);
    len += 10000;
    len += sprintf(bytes + len, "\r\n$10000\r\n");
    bytes[len] = 'a';
    assert_string_equal(decoded(bytes, WEIR_RESP_REQUEST_MAX), "more");
    assert_string_equal(decoded(bytes, WEIR_RESP_REQUEST_MAX + 1),
                        "Protocol error: too big request");
}

static void words_of_a_line_are_unquoted(void **state)
{
    (void)state;
    static const char *const table[][2] = {
        { "a  b\tc\r\n", "a|b|c" },
        { "\"a b\" c\n", "a b|c" },
        { "'a b' 'c\\'d'\n", "a b|c'd" },
        { "\"\\x41\\n\\\"\\\\\\q\"\n", "A\n\"\\q" },
        { "\"\\x4\"\n", "x4" },
        { "\"\" a\n", "|a" },
        { "a\"b c\"\n", "ab c" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(table); i++)
        assert_string_equal(decoded(table[i][0], strlen(table[i][0])),
                            table[i][1]);
}

static void numbers_are_64_bits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_one;
        int64_t value;
    } table[] = {
        { "0", true, 0 },
        { "-1", true, -1 },
        { "007", true, 7 },
        { "9223372036854775807", true, INT64_MAX },
        { "-9223372036854775808", true, INT64_MIN },
        { "9223372036854775808", false, 0 },
        { "-9223372036854775809", false, 0 },
        { "99999999999999999999", false, 0 },
        { "", false, 0 },
        { "-", false, 0 },
        { "+1", false, 0 },
        { "1 ", false, 0 },
        { "1.5", false, 0 },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(table); i++) {
        int64_t value = 42;
        assert_int_equal(weir_resp_number(weir_text_of(table[i].text), &value),
                         table[i].is_one);
        assert_int_equal(value, table[i].is_one ? table[i].value : 42);
    }
}

/* Every length of a number, with its neighbours, either sign; then read. */
static void numbers_are_written_as_printf_would(void **state)
{
    (void)state;
    int64_t of_ten = 1;
    for (int digits = 1; digits < 19; digits++) {
        for (int64_t off = -2; off <= 2; off++) {
            int64_t both[] = { of_ten + off, -of_ten + off, of_ten / 3 * 7,
                               INT64_MAX - of_ten, INT64_MIN + of_ten };
            for (size_t i = 0; i < WEIR_COUNT_OF(both); i++) {
                char bytes[64], wanted[64];
                struct weir_resp_out out = { .p = bytes, .size = sizeof bytes };
                int64_t read = 0;
                weir_resp_integer(&out, both[i]);
                int len = snprintf(wanted, sizeof wanted, ":%lld\r\n",
                                   (long long)both[i]);
                assert_int_equal(out.len, len);
                assert_memory_equal(bytes, wanted, len);
                struct weir_text text = { bytes + 1, out.len - 3 };
                assert_true(weir_resp_number(text, &read));
                assert_true(read == both[i]);
            }
        }
        of_ten *= 10;
    }
}

static void replies_are_bytes(void **state)
{
    (void)state;
    char buf[256];
    struct weir_resp_out out = { .p = buf, .size = sizeof buf, .protocol = 2 };
    static const char two[] = "*2\r\n:-12\r\n:9\r\n+OK\r\n-ERR a b\r\n"
                              "$2\r\nhi\r\n$0\r\n\r\n$-1\r\n*2\r\n";
    weir_resp_array(&out, 2);
    weir_resp_integer(&out, -12);
    weir_resp_integer(&out, 9);
    weir_resp_simple(&out, "OK");
    weir_resp_error(&out, "ERR a\nb");
    weir_resp_bulk(&out, WEIR_TEXT("hi"));
    weir_resp_bulk(&out, (struct weir_text){ NULL, 0 });
    weir_resp_null(&out);
    weir_resp_map(&out, 1);
    assert_int_equal(out.len, sizeof two - 1);
    assert_memory_equal(buf, two, out.len);
    out = (struct weir_resp_out){ .p = buf, .size = sizeof buf, .protocol = 3 };
    weir_resp_null(&out);
    weir_resp_map(&out, 1);
    weir_resp_integer(&out, INT64_MIN);
    assert_memory_equal(buf, "_\r\n%1\r\n:-9223372036854775808\r\n", out.len);
}

static void what_has_no_room_is_left_out(void **state)
{
    (void)state;
    char buf[8];
    struct weir_resp_out out = { .p = buf, .size = 7, .protocol = 2 };
    weir_resp_integer(&out, 12);
    weir_resp_integer(&out, 1);
    assert_true(out.full);
    assert_int_equal(out.len, 5);
    weir_resp_integer(&out, 1);
    assert_int_equal(out.len, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_whole_at_its_last_byte),
        cmocka_unit_test(of_two_the_first_is_decoded),
        cmocka_unit_test(what_is_none_is_said_as_redis_says_it),
        cmocka_unit_test(a_request_of_http_is_none),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(words_of_a_line_are_unquoted),
        cmocka_unit_test(numbers_are_64_bits),
        cmocka_unit_test(numbers_are_written_as_printf_would),
        cmocka_unit_test(replies_are_bytes),
        cmocka_unit_test(what_has_no_room_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
