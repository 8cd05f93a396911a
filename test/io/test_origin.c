/* SPDX-License-Identifier: MIT
 * test_origin.c - the requests that a browser may send, as a table. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "io/origin.h"

#define JSON "application/json"

static const struct weir_origin_own on_loopback = { .of_loopback = true };
static const struct weir_origin_own anywhere;
static const struct weir_origin_own over_tls = { .tls = true };
static const struct weir_origin_own behind_proxy = {
    .of_loopback = true,
    .public_origin = "https://weir.example",
};

/* ---- Host and Origin ---- */

static const struct {
    const struct weir_origin_own *own;
    const char *host, *origin;
    bool welcome;
} origins[] = {
    /* no browser, or a page of the listener's own */
    { &on_loopback, "127.0.0.1:7078", NULL, true },
    { &on_loopback, NULL, NULL, true },
    { &on_loopback, "127.0.0.1:7078", "http://127.0.0.1:7078", true },
    { &on_loopback, "localhost:7078", "http://localhost:7078", true },
    { &on_loopback, "LocalHost:7078", "HTTP://localhost:7078", true },
    { &on_loopback, "[::1]:7078", "http://[::1]:7078", true },
    { &on_loopback, "localhost", "http://localhost:80", true },
    { &anywhere, "root.example:7078", "http://root.example:7078", true },
    { &over_tls, "root.example", "https://root.example", true },
    { &over_tls, "root.example:443", "https://root.example", true },
    /* another program's page on the same host */
    { &on_loopback, "localhost:7078", "http://localhost:3000", false },
    { &on_loopback, "127.0.0.1:7078", "http://localhost:7078", false },
    { &on_loopback, "127.0.0.1:7078", "https://127.0.0.1:7078", false },
    { &over_tls, "localhost:7078", "http://localhost:7078", false },
    /* it only begins or ends like the allowed one */
    { &on_loopback, "127.0.0.1:7078", "http://127.0.0.1:7078.evil.example",
      false },
    { &on_loopback, "127.0.0.1:7078", "http://127.0.0.1:70780", false },
    { &on_loopback, "127.0.0.1:7078", "http://127.0.0.1:7078/", false },
    { &on_loopback, "127.0.0.1:7078", "http://127.0.0.1:7078 http://a", false },
    { &on_loopback, "127.0.0.1:7078", "http://a@127.0.0.1:7078", false },
    { &on_loopback, "127.0.0.1:7078", "xhttp://127.0.0.1:7078", false },
    { &on_loopback, "127.0.0.1:7078", "evil://127.0.0.1:7078", false },
    { &on_loopback, "127.0.0.1:7078", "null", false },
    { &on_loopback, "127.0.0.1:7078", "", false },
    { &anywhere, NULL, "http://root.example", false },
    /* a name that was made to resolve to loopback */
    { &on_loopback, "evil.example:7078", "http://evil.example:7078", false },
    { &on_loopback, "evil.example:7078", NULL, false },
    { &on_loopback, "127.0.0.1.evil.example", NULL, false },
    { &on_loopback, "127.0.0.1:7078.evil.example", NULL, false },
    { &on_loopback, "127.0.0.1:", NULL, false },
    { &on_loopback, "127.0.0.1:0", NULL, false },
    { &on_loopback, "127.0.0.1:99999", NULL, false },
    { &on_loopback, "[::1", NULL, false },
    { &on_loopback, "", NULL, false },
    /* behind a proxy, which forwards the Host or sets its own */
    { &behind_proxy, "weir.example", "https://weir.example", true },
    { &behind_proxy, "127.0.0.1:7078", "https://weir.example", true },
    { &behind_proxy, "127.0.0.1:7078", "https://weir.example:443", true },
    { &behind_proxy, "127.0.0.1:7078", "http://weir.example", false },
    { &behind_proxy, "evil.example", "https://weir.example", false },
    { &behind_proxy, "weir.example", "https://evil.example", false },
};

static void an_origin_is_compared_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEIR_COUNT_OF(origins); i++) {
        const struct weir_origin_request request = {
            .method = "GET",
            .host = origins[i].host,
            .origin = origins[i].origin,
        };
        bool welcome =
            weir_origin_check(origins[i].own, &request) == WEIR_ORIGIN_WELCOME;
        if (welcome != origins[i].welcome)
            fail_msg("expected Host %s, Origin %s to be %s",
                     request.host ? request.host : "(none)",
                     request.origin ? request.origin : "(none)",
                     origins[i].welcome ? "welcome" : "foreign");
    }
}

static void long_ones_are_foreign(void **state)
{
    (void)state;
    char host[1024];
    memset(host, 'a', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    char origin[1032];
    snprintf(origin, sizeof origin, "http://%s", host);
    const struct weir_origin_request request = { .method = "GET",
                                                 .host = host,
                                                 .origin = origin };
    assert_int_equal(weir_origin_check(&anywhere, &request),
                     WEIR_ORIGIN_FOREIGN);
}

/* ---- Requests that change something ---- */

static const struct {
    const char *method, *site, *type;
    enum weir_origin_verdict verdict;
} changes[] = {
    { "POST", NULL, JSON, WEIR_ORIGIN_WELCOME },
    { "POST", "same-origin", "Application/JSON; charset=utf-8",
      WEIR_ORIGIN_WELCOME },
    { "POST", "none", "application/yaml", WEIR_ORIGIN_WELCOME },
    { "POST", NULL, NULL, WEIR_ORIGIN_SIMPLE },
    { "POST", NULL, "", WEIR_ORIGIN_SIMPLE },
    { "POST", NULL, " text/plain", WEIR_ORIGIN_SIMPLE },
    { "POST", NULL, "text/plain;application/json", WEIR_ORIGIN_SIMPLE },
    { "POST", NULL, "text/plain, application/json", WEIR_ORIGIN_SIMPLE },
    { "POST", NULL, "Multipart/Form-Data; boundary=a", WEIR_ORIGIN_SIMPLE },
    { "POST", "same-origin", "application/x-www-form-urlencoded",
      WEIR_ORIGIN_SIMPLE },
    { "POST", "same-site", JSON, WEIR_ORIGIN_FOREIGN },
    { "POST", "cross-site", JSON, WEIR_ORIGIN_FOREIGN },
    { "PUT", NULL, "text/plain", WEIR_ORIGIN_SIMPLE },
    { "PATCH", "cross-site", JSON, WEIR_ORIGIN_FOREIGN },
    { "DELETE", NULL, NULL, WEIR_ORIGIN_WELCOME },
    { "DELETE", "cross-site", NULL, WEIR_ORIGIN_FOREIGN },
    { "get", NULL, NULL, WEIR_ORIGIN_SIMPLE },
    /* A link on another site's page opens this one's. */
    { "GET", "cross-site", NULL, WEIR_ORIGIN_WELCOME },
    { "HEAD", "cross-site", NULL, WEIR_ORIGIN_WELCOME },
};

static void a_change_says_what_it_is(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEIR_COUNT_OF(changes); i++) {
        const struct weir_origin_request request = {
            .method = changes[i].method,
            .host = "127.0.0.1:7078",
            .sec_fetch_site = changes[i].site,
            .content_type = changes[i].type,
        };
        enum weir_origin_verdict verdict =
            weir_origin_check(&on_loopback, &request);
        if (verdict != changes[i].verdict)
            fail_msg("expected %d of line %zu, got %d", changes[i].verdict, i,
                     verdict);
    }
}

/* ---- The option ---- */

static void a_public_origin_has_no_path(void **state)
{
    (void)state;
    static const char *const sound[] = { "https://weir.example",
                                         "http://weir.example:8080",
                                         "https://[2001:db8::1]" };
    static const char *const others[] = { "",
                                          "weir.example",
                                          "https://",
                                          "https://weir.example/",
                                          "https://weir.example/page",
                                          "ftp://weir.example",
                                          "https://a b" };
    struct weir_diag diag = { 0 };
    for (size_t i = 0; i < WEIR_COUNT_OF(sound); i++)
        assert_int_equal(weir_origin_parse(sound[i], &diag), 0);
    for (size_t i = 0; i < WEIR_COUNT_OF(others); i++) {
        assert_int_equal(weir_origin_parse(others[i], &diag), WEIR_EINVAL);
        assert_non_null(strstr(diag.text, "https://weir.example"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_origin_is_compared_whole),
        cmocka_unit_test(long_ones_are_foreign),
        cmocka_unit_test(a_change_says_what_it_is),
        cmocka_unit_test(a_public_origin_has_no_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
