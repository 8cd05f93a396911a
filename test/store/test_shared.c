/* SPDX-License-Identifier: MIT
 * test_shared.c - the parts of a shared store that need no server: its URIs,
 * the secrets file, and a bucket state as a value. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "compare.h"
#include "shared_rules.h"
#include "store/shared_internal.h"
#include "store/shared_script.h"
#include "store/shared_state.h"

#define NOW (1700000000 * WEIR_SECOND)

static void test_uris_that_are_stores(void **state)
{
    (void)state;
    struct weir_shared_uri uri;
    assert_int_equal(
        weir_shared_uri_parse(WEIR_TEXT("redis://a.b:6379"), &uri, NULL), 0);
    assert_int_equal(uri.kind, WEIR_SHARED_REDIS);
    assert_string_equal(uri.server[0].host, "a.b");
    assert_int_equal(uri.database, 0);
    assert_int_equal(
        weir_shared_uri_parse(WEIR_TEXT("rediss://[::1]:1/15"), &uri, NULL), 0);
    assert_true(uri.tls);
    assert_string_equal(uri.server[0].host, "::1");
    assert_int_equal(uri.database, 15);
    assert_int_equal(
        weir_shared_uri_parse(WEIR_TEXT("redis://a:1/"), &uri, NULL), 0);
    assert_int_equal(
        weir_shared_uri_parse(WEIR_TEXT("memcached://a:1,b:2,c:3"), &uri, NULL),
        0);
    assert_int_equal(uri.count, 3);
    assert_int_equal(uri.server[2].port, 3);
    /* As many as a quota may name. */
    assert_int_equal(
        weir_shared_uri_parse(WEIR_TEXT("memcached://a:1,a:2,a:3,a:4,a:5,a:6,"
                                        "a:7,a:8,b:1,b:2,b:3,b:4,b:5,b:6,b:7,"
                                        "b:8"),
                              &uri, NULL),
        0);
    assert_int_equal(uri.count, WEIR_STORE_SERVERS_MAX);
}

static void test_uris_that_are_none(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        const char *says;
    } wrong[] = {
        { "", "redis://HOST:PORT" },
        { "http://a:1", "redis://HOST:PORT" },
        { "redis://", "port is missing" },
        { "redis://a", "port is missing" },
        { "redis://a:0", "1 to 65535" },
        { "redis://a:70000", "0 to 65535" },
        { "redis://a:1,b:2", "one server" },
        { "redis://a:1/x", "database's number" },
        { "redis://a:1/99999", "database's number" },
        { "redis://a:1/1/2", "database's number" },
        { "redis://:secret@a:1", "secrets file" },
        { "memcached://user:secret@a:1", "secrets file" },
        { "memcached://a:1/0", "nothing follows" },
        { "memcached://a:1,", "port is missing" },
        { "memcached://a:1,,b:2", "port is missing" },
        { "memcached://a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,"
          "b:1,b:2,b:3,b:4,b:5,b:6,b:7,b:8,c:9",
          "at most 16" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        struct weir_diag diag = { 0 };
        struct weir_shared_uri uri;
        int error =
            weir_shared_uri_parse(weir_text_of(wrong[i].uri), &uri, &diag);
        assert_true(error == WEIR_ESYNTAX || error == WEIR_EINVAL);
        if (!strstr(diag.text, wrong[i].says))
            fail_msg("%s: %s", wrong[i].uri, diag.text);
        assert_null(strstr(diag.text, "secret@"));
    }
}

/* ---- The secrets file ---- */

static int read_secret_of(const char *host, bool tls, const char *text,
                          mode_t mode, struct weir_shared_secret *out,
                          struct weir_diag *diag)
{
    char path[] = "/tmp/weir-secrets-XXXXXX";
    struct weir_address address = { .port = 6379 };
    strcpy(address.host, host);
    int fd = mkstemp(path);
    assert_compare(fd, >=, 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    fchmod(fd, mode);
    close(fd);
    int error = weir_shared_secret_read(path, &address, tls, out, diag);
    unlink(path);
    return error;
}

static int read_secret(const char *text, mode_t mode,
                       struct weir_shared_secret *out, struct weir_diag *diag)
{
    return read_secret_of("db", true, text, mode, out, diag);
}

static void test_secrets(void **state)
{
    (void)state;
    struct weir_shared_secret secret;
    struct weir_diag diag = { 0 };
    assert_int_equal(read_secret("# x\n\ndb:1 a b\n  db:6379\tme  it\r\n", 0600,
                                 &secret, &diag),
                     0);
    assert_string_equal(secret.user, "me");
    assert_string_equal(secret.password, "it");
    assert_int_equal(read_secret("db:6379 - it", 0400, &secret, &diag), 0);
    assert_string_equal(secret.user, "");
    assert_string_equal(secret.password, "it");
    assert_int_equal(read_secret("other:6379 - it\n", 0600, &secret, &diag), 0);
    assert_string_equal(secret.password, "");
}

/* Not even after an edit of the quota from rediss:// to redis://. */
static void test_no_password_in_plain_text(void **state)
{
    (void)state;
    static const struct {
        const char *host, *line;
        bool tls, given;
    } cases[] = {
        { "db", "db:6379 - hush", true, true },
        { "db", "db:6379 - hush", false, false },
        { "db", "rediss://db:6379 - hush", true, true },
        { "db", "rediss://db:6379 - hush", false, false },
        { "db", "redis://db:6379 - hush", true, true },
        { "db", "redis://db:6379 - hush", false, true },
        { "127.0.0.1", "127.0.0.1:6379 - hush", false, true },
        { "localhost", "localhost:6379 - hush", false, true },
        { "::1", "[::1]:6379 - hush", false, true },
        { "127.0.0.1", "rediss://127.0.0.1:6379 - hush", false, false },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(cases); i++) {
        struct weir_shared_secret secret = { .password = "" };
        struct weir_diag diag = { 0 };
        int error = read_secret_of(cases[i].host, cases[i].tls, cases[i].line,
                                   0600, &secret, &diag);
        assert_int_equal(error, cases[i].given ? 0 : WEIR_ECREDENTIAL);
        assert_string_equal(secret.password, cases[i].given ? "hush" : "");
        assert_null(strstr(diag.text, "hush"));
        if (error < 0)
            assert_non_null(strstr(diag.text, "over TLS only"));
    }
}

static void test_secrets_that_are_none(void **state)
{
    (void)state;
    char long_line[2048];
    memset(long_line, 'x', sizeof(long_line) - 1);
    long_line[sizeof(long_line) - 1] = '\0';
    const char *const wrong[] = { "db:6379 hush\n", "db hush hush\n",
                                  "db:6379 a hush c\n", long_line };
    struct weir_shared_secret secret = { .password = "untouched" };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        struct weir_diag diag = { 0 };
        assert_int_equal(read_secret(wrong[i], 0600, &secret, &diag),
                         WEIR_ECREDENTIAL);
        assert_int_equal(diag.line, 1);
        assert_null(strstr(diag.text, "hush"));
    }
    static const mode_t modes[] = { 0640, 0604, 0660, 0602 };
    for (size_t i = 0; i < WEIR_COUNT_OF(modes); i++) {
        struct weir_diag diag = { 0 };
        assert_int_equal(
            read_secret("db:6379 - it\n", modes[i], &secret, &diag),
            WEIR_ECREDENTIAL);
        assert_non_null(strstr(diag.text, "chmod 600"));
    }
    struct weir_address address = { .host = "db", .port = 6379 };
    struct weir_diag diag = { 0 };
    assert_int_equal(weir_shared_secret_read("/nowhere/at/all", &address, true,
                                             &secret, &diag),
                     WEIR_ECREDENTIAL);
    assert_string_equal(secret.password, "untouched");
}

/* ---- A bucket state as a value ---- */

static uint64_t bucket_state[WEIR_ALGORITHM_SIZE_MAX / 8];
static uint64_t again[WEIR_ALGORITHM_SIZE_MAX / 8];
static uint8_t value[WEIR_STATE_BYTES_MAX];

static size_t use_and_pack(const struct weir_algorithm_rule *rule)
{
    memset(bucket_state, 0, sizeof(bucket_state));
    for (uint64_t i = 0; i < 20; i++) {
        struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE,
                                          .weight = i % 4 };
        struct weir_algorithm_answer answer;
        weir_algorithm_step(rule, bucket_state, &ask, &answer,
                            NOW - (20 - i) * 7 * WEIR_MILLISECOND);
    }
    return weir_state_pack(rule, bucket_state, value);
}

static void test_a_value_is_the_bucket_state_again(void **state)
{
    (void)state;
    struct shared_rule rules[64];
    size_t count = shared_rules(rules, 64);
    for (size_t i = 0; i < count; i++) {
        size_t len = use_and_pack(&rules[i].rule);
        assert_int_equal(
            weir_state_unpack(&rules[i].rule, value, len, again, NOW), 0);
        assert_memory_equal(bucket_state, again,
                            weir_algorithm_size(&rules[i].rule));
    }
}

/* One bit is changed: the value is refused, or is a state that can be
 * stepped. */
static void test_values_with_a_wrong_bit(void **state)
{
    (void)state;
    struct shared_rule rules[64];
    size_t count = shared_rules(rules, 64);
    size_t refused = 0, taken = 0;
    for (size_t i = 0; i < count; i++) {
        const struct weir_algorithm_rule *rule = &rules[i].rule;
        size_t len = use_and_pack(rule);
        for (size_t bit = 0; bit < 8 * len && bit < 8000; bit++) {
            value[bit / 8] ^= (uint8_t)(1u << bit % 8);
            int error = weir_state_unpack(rule, value, len, again, NOW);
            struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE,
                                              .weight = 1 };
            struct weir_algorithm_answer answer;
            if (error == 0)
                weir_algorithm_step(rule, again, &ask, &answer, NOW);
            refused += error < 0;
            taken += error == 0;
            value[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t cut = 0; cut < len; cut++)
            assert_int_equal(weir_state_unpack(rule, value, cut, again, NOW),
                             WEIR_EPROTOCOL);
    }
    assert_compare(refused, >, 0);
    assert_compare(taken, >, 0);
}

static void test_replies_that_are_no_answers(void **state)
{
    (void)state;
    const int64_t good[] = { 1, 0, 0, -3, 5, -1, 0 };
    struct weir_algorithm_answer answer;
    assert_int_equal(weir_script_answer(good, 7, &answer), 0);
    assert_int_equal(answer.used, -3);
    assert_true(answer.retry_after == WEIR_NEVER);
    assert_int_equal(weir_script_answer(good, 6, &answer), WEIR_EPROTOCOL);
    static const struct {
        size_t at;
        int64_t value;
    } wrong[] = { { 0, 2 },  { 0, -1 }, { 1, 7 },  { 2, 4 },
                  { 2, -1 }, { 4, -1 }, { 5, -2 }, { 6, INT64_MIN } };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        int64_t bad[7];
        memcpy(bad, good, sizeof(bad));
        bad[wrong[i].at] = wrong[i].value;
        assert_int_equal(weir_script_answer(bad, 7, &answer), WEIR_EPROTOCOL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uris_that_are_stores),
        cmocka_unit_test(test_uris_that_are_none),
        cmocka_unit_test(test_secrets),
        cmocka_unit_test(test_no_password_in_plain_text),
        cmocka_unit_test(test_secrets_that_are_none),
        cmocka_unit_test(test_a_value_is_the_bucket_state_again),
        cmocka_unit_test(test_values_with_a_wrong_bit),
        cmocka_unit_test(test_replies_that_are_no_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
