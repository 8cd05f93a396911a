/* SPDX-License-Identifier: MIT
 * test_client_tls.c - libweir over TLS: the credentials that it shows to a root
 * and the roots that it trusts, with files that change under it, and in
 * children of fork(). */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "certificate_maker.h"
#include "client_world.h"
#include "compare.h"

#define SECRET "a-token-that-nobody-may-read"

static struct maker_pki pki;

static const char *at(const char *name)
{
    return maker_pki_path(&pki, name);
}

static void put(const char *name, const char *text)
{
    maker_pki_put(&pki, name, text);
}

static void issue(const char *file, const char *name)
{
    struct maker_leaf leaf = { name, "DNS:localhost,IP:127.0.0.1" };
    maker_pki_issue(&pki, file, pki.ca, &leaf);
}

static int make_files(void **state)
{
    (void)state;
    maker_pki_init(&pki);
    issue("root", "root-1");
    issue("pay", "payments");
    put("token", SECRET "\nand a second line\n");
    return 0;
}

static int drop_files(void **state)
{
    (void)state;
    maker_pki_fini(&pki);
    return 0;
}

/* ---- Limiters ---- */

static struct weir_options options_for(const char *roots, struct seen *seen)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    memset(seen, 0, sizeof(*seen));
    pthread_mutex_init(&seen->mutex, NULL);
    options.roots = roots;
    options.threads_max = 4;
    options.on_event = seen_event;
    options.event_context = seen;
    options.tls_ca = at("ca.crt");
    options.tls_cert = at("pay.crt");
    options.tls_key = at("pay.key");
    options.token_file = at("token");
    return options;
}

static struct weir *open_with(const struct weir_options *options)
{
    struct weir *weir;
    assert_int_equal(weir_open(options, &weir), 0);
    return weir;
}

static bool is_shown(struct fake *fake, const char *wanted)
{
    char shown[600];
    fake_shown(fake, shown, sizeof(shown));
    return strcmp(shown, wanted) == 0;
}

static bool says(struct seen *seen, enum weir_event_type type,
                 const char *wanted)
{
    char text[192];
    seen_text(seen, type, text);
    return strstr(text, wanted);
}

static uint32_t roots_up(struct weir *weir)
{
    return limiter_status(weir).roots_up;
}

/* ---- Tests ---- */

static void credentials_are_shown(void **state)
{
    (void)state;
    struct fake *fake = fake_new_tls(VICE_NONE, pki.folder, "root");
    struct seen seen;
    struct weir_options options = options_for(fake_address(fake), &seen);
    struct weir *weir = open_with(&options);
    UNTIL(seen_count(&seen, WEIR_EVENT_ROOT_UP) == 1);
    assert_true(is_shown(fake, "payments|Bearer " SECRET));
    weir_close(weir);
    fake_free(fake);
}

/* To this host a token may go in plain text, as `weir serve --credentials`
 * accepts it there; to any other host it may not. */
static void token_in_plain_text(void **state)
{
    (void)state;
    struct fake *fake = fake_new(VICE_NONE);
    struct seen seen;
    struct weir_options options = options_for(fake_address(fake), &seen);
    options.tls_ca = options.tls_cert = options.tls_key = NULL;
    struct weir *weir = open_with(&options);
    UNTIL(seen_count(&seen, WEIR_EVENT_ROOT_UP) == 1);
    assert_true(is_shown(fake, "|Bearer " SECRET));
    weir_close(weir);
    options.roots = "127.0.0.1:1,192.0.2.1:7077";
    assert_int_equal(weir_open(&options, &weir), WEIR_EINVAL);
    assert_true(says(&seen, WEIR_EVENT_CREDENTIAL,
                     "a token isn't sent to 192.0.2.1 in plain text"));
    fake_free(fake);
}

static void expect_no_limiter(const struct weir_options *options,
                              struct seen *seen, int error, const char *text)
{
    struct weir *weir = NULL;
    unsigned before = seen_count(seen, WEIR_EVENT_CREDENTIAL);
    assert_int_equal(weir_open(options, &weir), error);
    assert_null(weir);
    assert_int_equal(seen_count(seen, WEIR_EVENT_CREDENTIAL), before + 1);
    assert_int_equal(weir_check(options), error);
    assert_int_equal(seen_count(seen, WEIR_EVENT_CREDENTIAL), before + 2);
    if (!says(seen, WEIR_EVENT_CREDENTIAL, text))
        fail_msg("'%s' doesn't say '%s'", seen->text[WEIR_EVENT_CREDENTIAL],
                 text);
    assert_false(says(seen, WEIR_EVENT_CREDENTIAL, "nobody-may-read"));
}

static void files_that_cannot_be_used(void **state)
{
    (void)state;
    struct seen seen;
    const struct weir_options good = options_for("127.0.0.1:1", &seen);
    struct weir_options bad = good;
    bad.tls_ca = at("nothing.crt");
    expect_no_limiter(&bad, &seen, WEIR_ETLS, "nothing.crt: it can't be read");
    bad.tls_ca = at("token");
    expect_no_limiter(&bad, &seen, WEIR_ETLS, "token: this is no whole PEM");
    bad = good;
    bad.tls_key = at("root.key");
    expect_no_limiter(&bad, &seen, WEIR_ETLS, "root.key: ");
    bad = good;
    bad.tls_key = NULL;
    expect_no_limiter(&bad, &seen, WEIR_EINVAL, "named together");
    bad = good;
    bad.tls_ca = NULL;
    expect_no_limiter(&bad, &seen, WEIR_EINVAL, "needs a CA to trust");
    bad = good;
    bad.token_file = at("nothing");
    expect_no_limiter(&bad, &seen, WEIR_ECREDENTIAL, "token can't be read");
    put("bad-token", "\n" SECRET "\n");
    bad.token_file = at("bad-token");
    expect_no_limiter(&bad, &seen, WEIR_ECREDENTIAL,
                      "its first line is no token");
    put("bad-token", SECRET " with blanks\n");
    expect_no_limiter(&bad, &seen, WEIR_ECREDENTIAL,
                      "its first line is no token");
    char long_token[600];
    memset(long_token, 'x', sizeof(long_token));
    long_token[sizeof(long_token) - 1] = '\0';
    put("bad-token", long_token);
    expect_no_limiter(&bad, &seen, WEIR_ECREDENTIAL, "at most 512 bytes");
}

/* Neither side of a mistake hangs: the event names the mistake. */
static void wrong_roots(void **state)
{
    (void)state;
    struct fake *safe = fake_new_tls(VICE_NONE, pki.folder, "root");
    struct fake *plain = fake_new(VICE_NONE);
    struct seen seen;
    struct weir_options options = options_for(fake_address(safe), &seen);
    options.tls_ca = at("other.crt");
    struct weir *weir = open_with(&options);
    UNTIL(says(&seen, WEIR_EVENT_ROOT_DOWN,
               "is from no authority that we "
               "trust"));
    weir_close(weir);
    options = options_for(fake_address(plain), &seen);
    weir = open_with(&options);
    UNTIL(says(&seen, WEIR_EVENT_ROOT_DOWN, "the peer doesn't speak TLS"));
    weir_close(weir);
    options = options_for(fake_address(safe), &seen);
    options.tls_ca = options.tls_cert = options.tls_key = NULL;
    weir = open_with(&options);
    UNTIL(says(&seen, WEIR_EVENT_ROOT_DOWN, "does it want TLS?"));
    weir_close(weir);
    fake_free(plain);
    fake_free(safe);
}

/* Each connection uses the files of that moment; unusable files are reported
 * once, and the last good content stays in force. */
static void files_change(void **state)
{
    (void)state;
    struct fake *fake = fake_new_tls(VICE_NONE, pki.folder, "root");
    struct seen seen;
    struct weir_options options = options_for(fake_address(fake), &seen);
    issue("live", "first");
    put("live-token", SECRET "-1\n");
    options.tls_cert = at("live.crt");
    options.tls_key = at("live.key");
    options.token_file = at("live-token");
    struct weir *weir = open_with(&options);
    UNTIL(is_shown(fake, "first|Bearer " SECRET "-1"));
    UNTIL(seen_count(&seen, WEIR_EVENT_ROOT_UP) == 1);

    issue("live", "second");
    put("live-token", SECRET "-2\n");
    fake_cut(fake);
    UNTIL(is_shown(fake, "second|Bearer " SECRET "-2"));
    UNTIL(seen_count(&seen, WEIR_EVENT_ROOT_UP) == 2);
    assert_int_equal(seen_count(&seen, WEIR_EVENT_CREDENTIAL), 0);

    put("live.crt", "-----BEGIN CERTIFICATE-----\nMIIB");
    put("live-token", SECRET "-3\n");
    fake_cut(fake);
    UNTIL(is_shown(fake, "second|Bearer " SECRET "-3"));
    UNTIL(seen_count(&seen, WEIR_EVENT_ROOT_UP) == 3);
    fake_cut(fake);
    UNTIL(seen_count(&seen, WEIR_EVENT_ROOT_UP) == 4);
    assert_int_equal(seen_count(&seen, WEIR_EVENT_CREDENTIAL), 1);
    assert_true(says(&seen, WEIR_EVENT_CREDENTIAL, "live.crt: this is no "));

    /* The token is the only credential: without it there is no root, until it
     * is back. */
    put("live-token", "");
    fake_cut(fake);
    UNTIL(says(&seen, WEIR_EVENT_ROOT_DOWN, "live-token: its first line"));
    assert_false(says(&seen, WEIR_EVENT_ROOT_DOWN, "nobody-may-read"));
    put("live-token", SECRET "-4\n");
    UNTIL(is_shown(fake, "second|Bearer " SECRET "-4"));
    weir_close(weir);
    fake_free(fake);
}

/* A child makes TLS sessions of its own, even if it was forked while its parent
 * was in the middle of a handshake, and leaves the parent's alone. */
static void children(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip();
#endif
    struct fake *flaps = fake_new_tls(VICE_FLAPS, pki.folder, "root");
    struct fake *fake = fake_new_tls(VICE_NONE, pki.folder, "root");
    struct seen seen;
    char roots[80];
    snprintf(roots, sizeof(roots), "%s,%s", fake_address(fake),
             fake_address(flaps));
    struct weir_options options = options_for(roots, &seen);
    options.on_event = NULL;
    struct weir *weir = open_with(&options);
    UNTIL(roots_up(weir) >= 1 && fake_accepted(fake) == 1);
    enum { CHILDREN = 20 };
    for (unsigned i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        assert_compare(child, >=, 0);
        if (child == 0) {
            patience_be_child();
            UNTIL(roots_up(weir) >= 1);
            _exit(0);
        }
        int status = STATUS_OF(child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_compare(fake_accepted(fake), <=, 1 + CHILDREN);
    assert_compare(roots_up(weir), >=, 1);
    weir_close(weir);
    fake_free(fake);
    fake_free(flaps);
}

/* Opened in one thread, closed in another: nothing of OpenSSL's is left behind
 * (a leak that the sanitizer would find). */
static void *close_it(void *weir)
{
    weir_close(weir);
    return NULL;
}

static void closed_by_another_thread(void **state)
{
    (void)state;
    struct fake *fake = fake_new_tls(VICE_NONE, pki.folder, "root");
    for (int i = 0; i < 5; i++) {
        struct seen seen;
        struct weir_options options = options_for(fake_address(fake), &seen);
        struct weir *weir = open_with(&options);
        UNTIL(seen_count(&seen, WEIR_EVENT_ROOT_UP) == 1);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, close_it, weir), 0);
        PATIENTLY(pthread_join(thread, NULL));
    }
    fake_free(fake);
}

int main(void)
{
    /* The library must not depend on a program's handling of SIGPIPE. */
    signal(SIGPIPE, SIG_DFL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(credentials_are_shown),
        cmocka_unit_test(token_in_plain_text),
        cmocka_unit_test(files_that_cannot_be_used),
        cmocka_unit_test(wrong_roots),
        cmocka_unit_test(files_change),
        cmocka_unit_test(children),
        cmocka_unit_test(closed_by_another_thread),
    };
    return cmocka_run_group_tests(tests, make_files, drop_files);
}
