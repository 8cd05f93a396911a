/* SPDX-License-Identifier: MIT
 * test_address.c - addresses as people write them, to connect to and to listen
 * at. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "io/address.h"

static void test_no_host_is_loopback_or_all(void **state)
{
    (void)state;
    struct weir_address to;
    struct weir_listen_address at;
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    assert_int_equal(weir_address_parse(WEIR_TEXT(":7077"), &to, NULL), 0);
    assert_true(weir_address_is_loopback(&to));
    assert_int_equal(weir_listen_address_parse(WEIR_TEXT(":7077"), &at, NULL),
                     0);
    assert_false(weir_listen_address_is_local(&at));
    weir_listen_address_show(&at, shown);
    assert_string_equal(shown, ":7077");
}

/* Roots: by host and port, or by a service's name without a port. */
static void test_roots(void **state)
{
    (void)state;
    static const struct {
        const char *text, *certified;
        bool service;
    } rows[] = {
        { "weir.example:7077", "weir.example", false },
        { "127.0.0.1:1", "127.0.0.1", false },
        { "_weir._tcp.weir.example", "weir.example", true },
        { "_WEIR._Tcp.x", "x", true },
        { "_weir._udp.x:7077", "_weir._udp.x", false },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        struct weir_address root;
        struct weir_diag diag = { 0 };
        char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
        assert_int_equal(
            weir_root_address_parse(weir_text_of(rows[i].text), &root, &diag),
            0);
        assert_int_equal(weir_address_is_service(&root), rows[i].service);
        assert_string_equal(weir_address_certified(&root), rows[i].certified);
        weir_address_text(&root, shown);
        assert_string_equal(shown, rows[i].text);
    }
}

static void test_what_no_root_is(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } rows[] = {
        { "_weir._tcp.x:7077", "has no port" },
        { "_weir._tcp.x:", "has no port" },
        { "_weir._tcp.", "_weir._tcp.NAME" },
        { "_weir._tcp.a b", "_weir._tcp.NAME" },
        { "_weir._udp.x", "port is missing" },
        { "weir.example", "port is missing" },
        { "weir.example:0", "from 1 to" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        struct weir_address root = { .port = 5 };
        struct weir_diag diag = { 0 };
        assert_int_equal(
            weir_root_address_parse(weir_text_of(rows[i].text), &root, &diag),
            WEIR_ESYNTAX);
        assert_non_null(strstr(diag.text, rows[i].why));
        assert_int_equal(root.port, 5);
    }
    char big[300];
    memset(big, 'x', sizeof big);
    memcpy(big, "_weir._tcp.", 11);
    struct weir_address root;
    assert_int_equal(
        weir_root_address_parse((struct weir_text){ big, 256 }, &root, NULL),
        WEIR_ESYNTAX);
    assert_int_equal(
        weir_root_address_parse((struct weir_text){ big, 255 }, &root, NULL),
        0);
}

static bool connects(int family, uint16_t port)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
                               .sin6_port = htons(port),
                               .sin6_addr = in6addr_loopback };
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(family, SOCK_STREAM, 0);
    if (fd < 0)
        return false;
    int done = family == AF_INET
                   ? connect(fd, (struct sockaddr *)&v4, sizeof v4)
                   : connect(fd, (struct sockaddr *)&v6, sizeof v6);
    close(fd);
    return done == 0;
}

/* A peer of a socket for both, as it is shown: by its IPv4 address. */
static void test_all_takes_both(void **state)
{
    (void)state;
    struct weir_listen_address at;
    struct weir_diag diag = { 0 };
    int fd6 = socket(AF_INET6, SOCK_STREAM, 0);
    assert_int_equal(weir_listen_address_parse(WEIR_TEXT(":0"), &at, NULL), 0);
    int fd = weir_listen_address_listen(&at, &diag);
    assert_true(fd >= 0);
    assert_true(at.address.port > 0);
    assert_true(connects(AF_INET, at.address.port));
    struct sockaddr_storage peer = { .ss_family = AF_UNSPEC };
    socklen_t len = sizeof peer;
    int accepted = accept(fd, (struct sockaddr *)&peer, &len);
    assert_true(accepted >= 0);
    weir_address_unmap(&peer);
    char shown[WEIR_PEER_MAX];
    weir_address_show((struct sockaddr *)&peer, shown);
    assert_memory_equal(shown, "127.0.0.1:", 10);
    /* A host without IPv6 has no such socket. */
    if (fd6 >= 0)
        assert_true(connects(AF_INET6, at.address.port));
    close(fd6);
    close(accepted);
    close(fd);
}

static void test_only_mapped_addresses_change(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } rows[] = { { "::ffff:10.1.2.3", "10.1.2.3:77" },
                 { "::ffff:0.0.0.0", "0.0.0.0:77" },
                 { "::1", "[::1]:77" },
                 { "::10.1.2.3", "[::10.1.2.3]:77" },
                 { "64:ff9b::a01:203", "[64:ff9b::a01:203]:77" } };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
                                   .sin6_port = htons(77) };
        struct sockaddr_storage at = { 0 };
        char shown[WEIR_PEER_MAX];
        assert_int_equal(inet_pton(AF_INET6, rows[i].in, &v6.sin6_addr), 1);
        memcpy(&at, &v6, sizeof v6);
        weir_address_unmap(&at);
        weir_address_show((struct sockaddr *)&at, shown);
        assert_string_equal(shown, rows[i].out);
    }
}

static void test_syntax(void **state)
{
    (void)state;
    static const char *const bad[] = { "",       ":",      "7077",
                                       "a b:1",  ":65536", "[::1:77",
                                       "::1:77", "[a]:77", "unix:" };
    struct weir_listen_address at;
    for (size_t i = 0; i < WEIR_COUNT_OF(bad); i++)
        assert_int_equal(
            weir_listen_address_parse(weir_text_of(bad[i]), &at, NULL),
            WEIR_ESYNTAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_host_is_loopback_or_all),
        cmocka_unit_test(test_roots),
        cmocka_unit_test(test_what_no_root_is),
        cmocka_unit_test(test_all_takes_both),
        cmocka_unit_test(test_only_mapped_addresses_change),
        cmocka_unit_test(test_syntax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
