/* SPDX-License-Identifier: MIT
 * test_tls_rules.c - which cipher suites both ends of TLS accept, and on which
 * days they use a certificate. The other end is plain OpenSSL without any rule
 * of its own, on a pair of sockets. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "certificate_maker.h"
#include "compare.h"
#include "day_shift.h"
#include "io/tls.h"
#include "patience.h"

#define DAY 86400l
#define BOTH "DNS:localhost,IP:127.0.0.1"

/* ---- Certificates, made once ---- */

static struct maker_pki pki;

static const char *at(const char *name)
{
    return maker_pki_path(&pki, name);
}

static void issue(const char *file, struct maker_leaf leaf)
{
    maker_pki_issue(&pki, file, pki.ca, &leaf);
}

static int make_certificates(void **state)
{
    (void)state;
    maker_pki_init(&pki);
    issue("ec", (struct maker_leaf){ "root-1", BOTH });
    issue("rsa", (struct maker_leaf){ "root-1", BOTH, .rsa = true });
    issue("old", (struct maker_leaf){ "root-1", BOTH, -9, -2 });
    issue("new", (struct maker_leaf){ "root-1", BOTH, 2, 9 });
    return 0;
}

static int drop_certificates(void **state)
{
    (void)state;
    maker_pki_fini(&pki);
    return 0;
}

static struct weir_tls_options options_of(bool server, const char *who)
{
    static char cert[160];
    static char key[160];
    snprintf(cert, sizeof(cert), "%s/%s.crt", pki.folder, who ? who : "");
    snprintf(key, sizeof(key), "%s/%s.key", pki.folder, who ? who : "");
    return (struct weir_tls_options){
        .server = server,
        .ca = server ? NULL : at("ca.crt"),
        .cert = who ? cert : NULL,
        .key = who ? key : NULL,
    };
}

static struct weir_tls *load(bool server, const char *who)
{
    struct weir_tls_options options = options_of(server, who);
    struct weir_diag diag = { .text = "" };
    struct weir_tls *tls = NULL;
    if (weir_tls_new(&options, &tls, &diag) < 0)
        fail_msg("%s", diag.text);
    return tls;
}

/* ---- A handshake with an end that has no rules ---- */

struct rules {
    const char *suites; /* of TLS 1.2 and older */
    const char *suites_1_3;
    int version; /* the only one */
};

static SSL_CTX *make_peer(bool server, const char *who,
                          const struct rules *rules)
{
    SSL_CTX *peer =
        SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    assert_non_null(peer);
    SSL_CTX_set_security_level(peer, 0);
    SSL_CTX_set_min_proto_version(peer, rules->version);
    SSL_CTX_set_max_proto_version(peer, rules->version);
    if (rules->suites)
        assert_int_equal(SSL_CTX_set_cipher_list(peer, rules->suites), 1);
    if (rules->suites_1_3)
        assert_int_equal(SSL_CTX_set_ciphersuites(peer, rules->suites_1_3), 1);
    SSL_CTX_set_dh_auto(peer, 1);
    if (!server)
        return peer;
    struct weir_tls_options files = options_of(true, who);
    assert_int_equal(SSL_CTX_use_certificate_chain_file(peer, files.cert), 1);
    assert_int_equal(
        SSL_CTX_use_PrivateKey_file(peer, files.key, SSL_FILETYPE_PEM), 1);
    return peer;
}

/* Turns both ends until ours is done or has failed. */
static bool shake(struct weir_tls_session *session, SSL *peer)
{
    enum weir_tls_step step = WEIR_TLS_READS;
    bool over = false;
    while (STILL(step == WEIR_TLS_READS || step == WEIR_TLS_WRITES)) {
        int result = over ? 1 : SSL_do_handshake(peer);
        over = result == 1;
        if (result != 1 && SSL_get_error(peer, result) == SSL_ERROR_SSL)
            shutdown(SSL_get_fd(peer), SHUT_WR);
        ERR_clear_error();
        step = weir_tls_handshake(session);
    }
    return step == WEIR_TLS_DONE;
}

/* Whether 'tls', a server's or a client's, agrees with such a peer. A peer that
 * is a server shows the certificate 'who'. */
static bool agrees(struct weir_tls *tls, bool server, const char *who,
                   const struct rules *rules)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
                     0);
    SSL_CTX *context = make_peer(!server, who, rules);
    SSL *peer = SSL_new(context);
    assert_non_null(peer);
    SSL_set_fd(peer, fds[1]);
    if (server)
        SSL_set_connect_state(peer);
    else
        SSL_set_accept_state(peer);
    struct weir_tls_session *session =
        weir_tls_session_new(tls, server ? NULL : "127.0.0.1");
    assert_non_null(session);
    weir_tls_begin(session, fds[0]);
    bool agreed = shake(session, peer);
    weir_tls_session_free(&session);
    SSL_free(peer);
    SSL_CTX_free(context);
    close(fds[0]);
    close(fds[1]);
    return agreed;
}

/* ---- Suites ---- */

static const char *const listed[] = {
    "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305",
};

static bool is_listed(const char *name)
{
    for (size_t i = 0; i < sizeof(listed) / sizeof(listed[0]); i++)
        if (strcmp(listed[i], name) == 0)
            return true;
    return false;
}

/* Tries one suite, with keys of both kinds; returns the number of handshakes
 * that went otherwise than the list says. */
static unsigned try_suite(const SSL_CIPHER *suite, bool server,
                          struct weir_tls *const tls[2])
{
    static const char *const keys[] = { "ec", "rsa" };
    static const int kinds[] = { NID_auth_ecdsa, NID_auth_rsa };
    unsigned wrong = 0;
    for (size_t i = 0; i < 2; i++) {
        const char *name = SSL_CIPHER_get_name(suite);
        struct rules rules = { name, NULL, TLS1_2_VERSION };
        bool wanted =
            is_listed(name) && SSL_CIPHER_get_auth_nid(suite) == kinds[i];
        bool got = agrees(tls[i], server, keys[i], &rules);
        if (got != wanted)
            print_error("%s, key %s: our %s %s it\n", name, keys[i],
                        server ? "server" : "client",
                        got ? "accepts" : "refuses");
        wrong += got != wanted;
    }
    return wrong;
}

/* All that OpenSSL has, also those that it has switched off. */
static void try_all_suites(bool server)
{
    struct weir_tls *tls[2] = {
        load(server, server ? "ec" : NULL),
        load(server, server ? "rsa" : NULL),
    };
    SSL_CTX *all = SSL_CTX_new(TLS_method());
    SSL_CTX_set_security_level(all, 0);
    SSL_CTX_set_max_proto_version(all, TLS1_2_VERSION);
    assert_int_equal(SSL_CTX_set_cipher_list(all, "ALL:COMPLEMENTOFALL"), 1);
    SSL *one = SSL_new(all);
    STACK_OF(SSL_CIPHER) *suites = SSL_get_ciphers(one);
    unsigned wrong = 0;
    unsigned tried = 0;
    for (int i = 0; i < sk_SSL_CIPHER_num(suites); i++) {
        const SSL_CIPHER *suite = sk_SSL_CIPHER_value(suites, i);
        if (strcmp(SSL_CIPHER_get_version(suite), "TLSv1.3") == 0)
            continue;
        wrong += try_suite(suite, server, tls);
        tried++;
    }
    assert_compare(tried, >, 100);
    assert_int_equal(wrong, 0);
    SSL_free(one);
    SSL_CTX_free(all);
    weir_tls_free(&tls[0]);
    weir_tls_free(&tls[1]);
}

static void test_suites_of_a_server(void **state)
{
    (void)state;
    try_all_suites(true);
}

static void test_suites_of_a_client(void **state)
{
    (void)state;
    try_all_suites(false);
}

static void test_versions(void **state)
{
    (void)state;
    static const char *const newest[] = { "TLS_AES_128_GCM_SHA256",
                                          "TLS_AES_256_GCM_SHA384",
                                          "TLS_CHACHA20_POLY1305_SHA256" };
    for (int server = 0; server < 2; server++) {
        struct weir_tls *tls = load(server, server ? "ec" : NULL);
        for (size_t i = 0; i < 3; i++)
            assert_true(
                agrees(tls, server, "ec",
                       &(struct rules){ NULL, newest[i], TLS1_3_VERSION }));
        for (int version = TLS1_VERSION; version <= TLS1_1_VERSION; version++)
            assert_false(agrees(
                tls, server, "ec",
                &(struct rules){ "ALL:COMPLEMENTOFALL", NULL, version }));
        weir_tls_free(&tls);
    }
}

/* ---- Days ---- */

static void expect_refusal(struct weir_tls_options options, const char *file,
                           const char *text)
{
    struct weir_diag diag = { .text = "" };
    struct weir_tls *tls = NULL;
    assert_int_equal(weir_tls_new(&options, &tls, &diag), WEIR_ETLS);
    assert_null(tls);
    if (!strstr(diag.text, file) || !strstr(diag.text, text))
        fail_msg("'%s' doesn't say '%s'", diag.text, text);
}

/* The day from today, as the sentences write it. */
static const char *show_day(int days)
{
    static char text[32];
    time_t then = time(NULL) + days * DAY;
    strftime(text, sizeof(text), "%Y-%m-%d ", gmtime(&then));
    return text;
}

static void test_refused_at_the_start(void **state)
{
    (void)state;
    for (int server = 0; server < 2; server++) {
        struct weir_tls_options options = options_of(server, "new");
        expect_refusal(options,
                       "new.crt: the certificate of 'root-1' isn't "
                       "valid before ",
                       show_day(2));
        expect_refusal(options, "new.crt", "correct the clock");
        options = options_of(server, "old");
        expect_refusal(options,
                       "old.crt: the certificate of 'root-1' expired "
                       "at ",
                       show_day(-2));
        expect_refusal(options, "old.crt", "renew it");
    }
    /* Each is sound on its own day. */
    shift_days(-5);
    struct weir_tls *tls = load(true, "old");
    weir_tls_free(&tls);
    shift_days(5);
    tls = load(true, "new");
    weir_tls_free(&tls);
    shift_days(0);
}

/* Writes the certificates of both into one file. */
static void join(const char *first, const char *second, const char *to)
{
    const char *from[] = { first, second };
    char text[8192];
    size_t len = 0;
    for (size_t i = 0; i < 2; i++) {
        FILE *file = fopen(at(from[i]), "r");
        assert_non_null(file);
        len += fread(text + len, 1, sizeof(text) - 1 - len, file);
        fclose(file);
    }
    text[len] = '\0';
    maker_pki_put(&pki, to, text);
}

static void test_chains_and_authorities(void **state)
{
    (void)state;
    /* A chain is as good as each of its certificates. */
    join("ec.crt", "old.crt", "chain.crt");
    struct weir_tls_options options = options_of(true, "ec");
    options.cert = at("chain.crt");
    expect_refusal(options, "chain.crt", "expired at ");
    /* Of several authorities one that is valid now is enough. */
    options = options_of(false, NULL);
    options.ca = at("old.crt");
    expect_refusal(options, "old.crt", "expired at ");
    join("old.crt", "ca.crt", "rotated.crt");
    options.ca = at("rotated.crt");
    struct weir_tls *tls = NULL;
    assert_int_equal(weir_tls_new(&options, &tls, NULL), 0);
    weir_tls_free(&tls);
    join("old.crt", "new.crt", "none.crt");
    options.ca = at("none.crt");
    expect_refusal(options, "none.crt", "valid");
}

/* Puts the certificate and key of 'who' where 'to' has them. */
static void replace(const char *who, const char *to)
{
    static const char *const ends[] = { "crt", "key" };
    for (size_t i = 0; i < 2; i++) {
        char from[32];
        char into[32];
        snprintf(from, sizeof(from), "%s.%s", who, ends[i]);
        snprintf(into, sizeof(into), "%s.%s", to, ends[i]);
        maker_pki_put(&pki, "nothing", "");
        join(from, "nothing", into);
    }
}

static void test_reload(void **state)
{
    (void)state;
    replace("ec", "used");
    struct weir_tls *tls = load(true, "used");
    int64_t left = weir_tls_expires_in(tls);
    /* Refused, the former one stays; it isn't tried each second … */
    replace("new", "used");
    struct weir_diag diag = { .text = "" };
    assert_true(weir_tls_is_changed(tls));
    assert_int_equal(weir_tls_reload(tls, &diag), WEIR_ETLS);
    assert_non_null(strstr(diag.text, "isn't valid before "));
    assert_compare(weir_tls_expires_in(tls), >=, left - 60);
    assert_false(weir_tls_is_changed(tls));
    /* … but is taken as soon as it is valid. */
    shift_seconds(2 * DAY - 120);
    assert_false(weir_tls_is_changed(tls));
    shift_seconds(2 * DAY + 1);
    assert_true(weir_tls_is_changed(tls));
    assert_int_equal(weir_tls_reload(tls, &diag), 0);
    assert_false(weir_tls_is_changed(tls));
    assert_compare(weir_tls_expires_in(tls), <=, 7 * DAY);
    /* A certificate that has expired in use keeps no other file from being
     * read. */
    shift_days(10);
    assert_compare(weir_tls_expires_in(tls), <, 0);
    assert_int_equal(weir_tls_reload(tls, &diag), 0);
    shift_days(0);
    replace("old", "used");
    assert_int_equal(weir_tls_reload(tls, &diag), WEIR_ETLS);
    assert_non_null(strstr(diag.text, "expired at "));
    weir_tls_free(&tls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suites_of_a_server),
        cmocka_unit_test(test_suites_of_a_client),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_refused_at_the_start),
        cmocka_unit_test(test_chains_and_authorities),
        cmocka_unit_test(test_reload),
    };
    return cmocka_run_group_tests(tests, make_certificates, drop_certificates);
}
