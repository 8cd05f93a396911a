/* SPDX-License-Identifier: MIT
 * front/authorization.c - authorization, the same for both listeners.
 *
 * Every refusal is counted, and logged within the limit of its kind of line. */

#include "front/authorization.h"

const char *weir_api_name(enum weir_api api)
{
    static const char *const names[WEIR_APIS] = {
        [WEIR_API_GRPC] = "grpc",
        [WEIR_API_HTTP] = "http",
    };
    weir_assert(api < WEIR_APIS);
    return names[api];
}

const char *weir_refusal_name(enum weir_refusal refusal)
{
    static const char *const names[WEIR_REFUSALS] = {
        [WEIR_REFUSED_TLS] = "tls",
        [WEIR_REFUSED_CREDENTIAL] = "credential",
        [WEIR_REFUSED_ROLE] = "role",
        [WEIR_REFUSED_NAME] = "name",
    };
    weir_assert(refusal < WEIR_REFUSALS);
    return names[refusal];
}

bool weir_authorization_is_required(const struct weir_authorization *authorizer)
{
    return authorizer->credentials != NULL;
}

static void note_caller(struct weir_authorization *authorizer,
                        const struct weir_caller *caller,
                        enum weir_refusal refusal, const char *why)
{
    enum weir_api api = caller->api;
    static const enum weir_log_kind kinds[WEIR_APIS][WEIR_REFUSALS] = {
        [WEIR_API_GRPC] = { [WEIR_REFUSED_TLS] = WEIR_LOG_GRPC_TLS,
                            [WEIR_REFUSED_CREDENTIAL] =
                                WEIR_LOG_GRPC_CREDENTIAL,
                            [WEIR_REFUSED_ROLE] = WEIR_LOG_GRPC_ROLE,
                            [WEIR_REFUSED_NAME] = WEIR_LOG_GRPC_NAME },
        [WEIR_API_HTTP] = { [WEIR_REFUSED_TLS] = WEIR_LOG_HTTP_TLS,
                            [WEIR_REFUSED_CREDENTIAL] =
                                WEIR_LOG_HTTP_CREDENTIAL,
                            [WEIR_REFUSED_ROLE] = WEIR_LOG_HTTP_ROLE,
                            [WEIR_REFUSED_NAME] = WEIR_LOG_HTTP_NAME },
    };
    weir_assert(api < WEIR_APIS && refusal < WEIR_REFUSALS);
    authorizer->refused[api][refusal]++;
    if (authorizer->log)
        weir_log_limited(authorizer->log, kinds[api][refusal], WEIR_LOG_WARNING,
                         "%s listener: %s refused (%s): %s",
                         caller->listener ? caller->listener
                                          : weir_api_name(api),
                         caller->address, weir_refusal_name(refusal), why);
}

void weir_authorization_note(struct weir_authorization *authorizer,
                             enum weir_api api, enum weir_refusal refusal,
                             const char *address, const char *why,
                             weir_instant now)
{
    (void)now; /* the log has a clock */
    const struct weir_caller caller = { .api = api, .address = address };
    note_caller(authorizer, &caller, refusal, why);
}

int weir_authorization_identify(struct weir_authorization *authorizer,
                                const struct weir_caller *caller,
                                struct weir_identity *out,
                                struct weir_diag *diag, weir_instant now)
{
    (void)now; /* the log has a clock */
    struct weir_diag why = { 0 };
    int error =
        weir_credentials_find(authorizer->credentials, caller->names,
                              weir_text_of(caller->authorization), out, &why);
    if (error == 0)
        return 0;
    if (error == WEIR_ENOMEM)
        return weir_diag_put(diag, error, why.text);
    note_caller(authorizer, caller, WEIR_REFUSED_CREDENTIAL, why.text);
    return weir_diag_put(diag, error, why.text);
}

int weir_authorization_admit(struct weir_authorization *authorizer,
                             const struct weir_caller *caller,
                             const struct weir_identity *identity,
                             enum weir_role role, struct weir_diag *diag,
                             weir_instant now)
{
    (void)now; /* the log has a clock */
    struct weir_diag why = { 0 };
    int error = weir_identity_check(identity, role, &why);
    if (error == 0)
        return 0;
    note_caller(authorizer, caller, WEIR_REFUSED_ROLE, why.text);
    return weir_diag_put(diag, error, why.text);
}

int weir_authorization_admit_name(struct weir_authorization *authorizer,
                                  const struct weir_caller *caller,
                                  const struct weir_identity *identity,
                                  struct weir_text name, struct weir_diag *diag,
                                  weir_instant now)
{
    (void)now; /* the log has a clock */
    struct weir_diag why = { 0 };
    int error = weir_identity_check_name(identity, name, &why);
    if (error == 0)
        return 0;
    note_caller(authorizer, caller, WEIR_REFUSED_NAME, why.text);
    return weir_diag_put(diag, error, why.text);
}
