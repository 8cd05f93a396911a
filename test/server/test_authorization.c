/* SPDX-License-Identifier: MIT
 * test/server/test_authorization.c - the role that a request needs, and the
 * counts of peers without it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "credentials_maker.h"
#include "front/authorization.h"
#include "server/admin/admin.h"

static unsigned role(const char *method, const char *target)
{
    struct weir_admin_request request = { .method = weir_text_of(method),
                                          .target = weir_text_of(target) };
    return weir_admin_role(&request);
}

static void every_request_needs_a_role(void **state)
{
    (void)state;
    static const struct {
        const char *method, *target;
        unsigned role;
    } requests[] = {
        { "GET", "/healthz", 0 },
        { "GET", "/readyz?verbose=1", 0 },
        { "GET", "/metrics", WEIR_ROLE_READ },
        { "GET", "/v1", WEIR_ROLE_READ },
        { "GET", "/v1/quotas", WEIR_ROLE_READ },
        { "GET", "/v1/quotas/a/b", WEIR_ROLE_READ },
        { "PUT", "/v1/quotas/a/b", WEIR_ROLE_EDIT },
        { "PATCH", "/v1/quotas/a", WEIR_ROLE_EDIT },
        { "DELETE", "/v1/quotas/a", WEIR_ROLE_EDIT },
        { "POST", "/v1/quotas:import", WEIR_ROLE_EDIT },
        /* A missing or misspelled path doesn't avoid the check. */
        { "GET", "/healthz/", WEIR_ROLE_READ },
        { "GET", "/HEALTHZ", WEIR_ROLE_READ },
        { "GET", "//healthz", WEIR_ROLE_READ },
        { "GET", "/v1/quotas/../../healthz", WEIR_ROLE_READ },
        { "GET", "", WEIR_ROLE_READ },
        { "POST", "/healthz", WEIR_ROLE_EDIT },
        { "get", "/healthz", WEIR_ROLE_EDIT },
        { "", "", WEIR_ROLE_EDIT },
        { "TRACE", "/v1/quotas", WEIR_ROLE_EDIT },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(requests); i++)
        assert_int_equal(role(requests[i].method, requests[i].target),
                         requests[i].role);
}

static void refusals_are_counted_by_door_and_reason(void **state)
{
    (void)state;
    struct weir_credentials *credentials;
    struct weir_diag diag = { 0 };
    const char *file = "read token ann correct-horse-battery-staple\n";
    assert_int_equal(credentials_make(weir_text_of(file), &credentials, &diag),
                     0);
    struct weir_authorization authorizer = { .credentials = credentials };
    assert_true(weir_authorization_is_required(&authorizer));
    struct weir_tls_peer names = { .count = 1, .name = { "ann" } };
    struct weir_caller caller = { .api = WEIR_API_HTTP,
                                  .address = "192.0.2.1:4321",
                                  .names = &names,
                                  .authorization = "" };
    struct weir_identity ann;
    assert_int_equal(
        weir_authorization_identify(&authorizer, &caller, &ann, &diag, 1),
        WEIR_ECREDENTIAL);
    assert_int_equal(authorizer.refused[WEIR_API_HTTP][WEIR_REFUSED_CREDENTIAL],
                     1);

    caller.api = WEIR_API_GRPC;
    caller.authorization = "Bearer correct-horse-battery-staple";
    assert_int_equal(
        weir_authorization_identify(&authorizer, &caller, &ann, &diag, 2), 0);
    assert_int_equal(weir_authorization_admit(&authorizer, &caller, &ann,
                                              WEIR_ROLE_READ, &diag, 3),
                     0);
    assert_int_equal(weir_authorization_admit(&authorizer, &caller, &ann,
                                              WEIR_ROLE_TAKE, &diag, 4),
                     WEIR_EDENIED);
    weir_authorization_note(&authorizer, WEIR_API_GRPC, WEIR_REFUSED_TLS,
                            "somebody", "garbage", 5);
    assert_int_equal(authorizer.refused[WEIR_API_GRPC][WEIR_REFUSED_TLS], 1);
    assert_int_equal(authorizer.refused[WEIR_API_GRPC][WEIR_REFUSED_ROLE], 1);
    assert_int_equal(authorizer.refused[WEIR_API_GRPC][WEIR_REFUSED_CREDENTIAL],
                     0);
    assert_int_equal(authorizer.refused[WEIR_API_HTTP][WEIR_REFUSED_ROLE], 0);
    weir_credentials_free(&credentials);
}

static void names_are_refused_for_their_own_reason(void **state)
{
    (void)state;
    struct weir_credentials *credentials;
    struct weir_diag diag = { 0 };
    const char *file = "take:a/* token ann correct-horse-battery-staple\n";
    assert_int_equal(credentials_make(weir_text_of(file), &credentials, &diag),
                     0);
    struct weir_authorization authorizer = { .credentials = credentials };
    struct weir_caller caller = {
        .api = WEIR_API_GRPC,
        .address = "192.0.2.1:4321",
        .authorization = "Bearer correct-horse-battery-staple",
    };
    struct weir_identity ann;
    assert_int_equal(
        weir_authorization_identify(&authorizer, &caller, &ann, &diag, 1), 0);
    assert_int_equal(weir_authorization_admit(&authorizer, &caller, &ann,
                                              WEIR_ROLE_TAKE, &diag, 1),
                     0);
    assert_int_equal(weir_authorization_admit_name(&authorizer, &caller, &ann,
                                                   WEIR_TEXT("a/x"), &diag, 1),
                     0);
    assert_int_equal(authorizer.refused[WEIR_API_GRPC][WEIR_REFUSED_NAME], 0);
    assert_int_equal(weir_authorization_admit_name(&authorizer, &caller, &ann,
                                                   WEIR_TEXT("b/x"), &diag, 1),
                     WEIR_EDENIED);
    assert_string_equal(diag.text,
                        "the credential of ann may not take from 'b/x'");
    assert_int_equal(authorizer.refused[WEIR_API_GRPC][WEIR_REFUSED_NAME], 1);
    assert_int_equal(authorizer.refused[WEIR_API_GRPC][WEIR_REFUSED_ROLE], 0);
    assert_string_equal(weir_refusal_name(WEIR_REFUSED_NAME), "name");
    weir_credentials_free(&credentials);
}

static void no_credentials_let_every_peer_in(void **state)
{
    (void)state;
    struct weir_authorization authorizer = { 0 };
    struct weir_caller caller = { .authorization = "" };
    struct weir_identity identity;
    assert_false(weir_authorization_is_required(&authorizer));
    assert_int_equal(
        weir_authorization_identify(&authorizer, &caller, &identity, NULL, 1),
        0);
    assert_string_equal(identity.name, WEIR_IDENTITY_ANONYMOUS);
    assert_int_equal(weir_authorization_admit(&authorizer, &caller, &identity,
                                              WEIR_ROLE_ROOT, NULL, 1),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_needs_a_role),
        cmocka_unit_test(names_are_refused_for_their_own_reason),
        cmocka_unit_test(refusals_are_counted_by_door_and_reason),
        cmocka_unit_test(no_credentials_let_every_peer_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
