/* SPDX-License-Identifier: MIT
 * test/server/test_serve_options.c - the command line of `weir serve`, and
 * Doorman's environment variables. */

#include "server/serve_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORDS 16

static struct weir_serve_options options;
static struct weir_diag diag;

/* The words after "weir serve --doorman-config f", up to NULL. */
static int parse(const char *const *words)
{
    char *argv[WORDS] = { (char *)"serve", (char *)"--doorman-config",
                          (char *)"f" };
    int argc = 3;
    for (; words[argc - 3]; argc++)
        argv[argc] = (char *)words[argc - 3];
    return weir_serve_options_parse(argc, argv, &options, &diag);
}

static const char *identity(const char *hostname)
{
    static char shown[WEIR_MASTER_MAX + 1];
    const char *const words[] = { "--hostname", hostname, NULL };
    assert_int_equal(parse(words), 0);
    weir_serve_identity(&options, 7077, shown);
    return shown;
}

/* Whichever of an option's names is used on the command line. */
static void test_the_command_line_wins(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *value;
        const char *option, *argument;
    } rows[] = {
        { "DOORMAN_PORT", "8080", "--listen", "127.0.0.1:9000" },
        { "DOORMAN_DEBUG_PORT", "8081", "--http", "127.0.0.1:9001" },
        { "DOORMAN_MASTER_ELECTION_LOCK", "lock", "--election", "none" },
        { "DOORMAN_MASTER_DELAY", "20s", "--election-ttl", "5s" },
        { "DOORMAN_ETCD_ENDPOINTS", "a:1,b:1", "--etcd-endpoints", "c:1" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++)
        setenv(rows[i].variable, rows[i].value, 1);
    const char *words[2 * WEIR_COUNT_OF(rows) + 1] = { NULL };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        words[2 * i] = rows[i].option;
        words[2 * i + 1] = rows[i].argument;
    }
    assert_int_equal(parse(words), 0);
    assert_int_equal(options.listen.port, 9000);
    assert_int_equal(options.http.port, 9001);
    assert_int_equal(options.election, WEIR_ELECTION_NONE);
    assert_int_equal(options.election_ttl, 5 * WEIR_SECOND);
    assert_int_equal(options.etcd_count, 1);

    const char *const none[] = { NULL };
    assert_int_equal(parse(none), 0);
    assert_int_equal(options.listen.port, 8080);
    assert_int_equal(options.http.port, 8081);
    assert_int_equal(options.election, WEIR_ELECTION_ETCD);
    assert_string_equal(options.election_key, "lock");
    assert_int_equal(options.election_ttl, 20 * WEIR_SECOND);
    assert_int_equal(options.etcd_count, 2);
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++)
        unsetenv(rows[i].variable);
}

static void test_certificates_of_the_command_line(void **state)
{
    (void)state;
    const char *const words[] = { "--tls-cert", "ours", "--tls-key", "ours",
                                  NULL };
    setenv("DOORMAN_CERT_FILE", "theirs", 1);
    setenv("DOORMAN_KEY_FILE", "theirs", 1);
    assert_int_equal(parse(words), 0);
    assert_string_equal(options.exposure.tls_cert, "ours");
    assert_string_equal(options.exposure.tls_key, "ours");
    unsetenv("DOORMAN_CERT_FILE");
    unsetenv("DOORMAN_KEY_FILE");
}

static void test_hostnames(void **state)
{
    (void)state;
    assert_string_equal(identity("a.example"), "a.example:7077");
    assert_string_equal(identity("[::1]"), "[::1]:7077");
    assert_string_equal(identity("::1"), "[::1]:7077");
    const char *const words[] = { "--hostname", "a:1", NULL };
    assert_int_equal(parse(words), WEIR_EINVAL);
}

/* It is a statement about all roots. */
static void test_alone(void **state)
{
    (void)state;
    static const char *const words[] = { "--alone", NULL };
    assert_int_equal(parse(words), 0);
    assert_true(options.alone);
    static const char *const elected[] = { "--alone", "--election", "file:lock",
                                           NULL };
    assert_int_equal(parse(elected), WEIR_EINVAL);
    assert_non_null(strstr(diag.text, "leave out --alone or --election"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_command_line_wins),
        cmocka_unit_test(test_certificates_of_the_command_line),
        cmocka_unit_test(test_hostnames),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
