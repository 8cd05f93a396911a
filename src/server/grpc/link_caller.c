/* SPDX-License-Identifier: MIT
 * server/grpc/link_caller.c - authorization (front/authorization.h) of the
 * peer of a gRPC connection, by the connection and the call. */

#include "server/grpc/link_caller.h"

#include "core/base/hash.h"
#include "io/clock.h"

int weir_link_identify(struct weir_authorization *authorizer,
                       struct weir_h2_link *link, const char *authorization,
                       struct weir_identity *out, struct weir_diag *diag)
{
    struct weir_tls_peer names;
    bool has_names = weir_h2_link_peer_names(link, &names);
    struct weir_caller caller = { .api = WEIR_API_GRPC,
                                  .address = weir_h2_link_peer(link),
                                  .names = has_names ? &names : NULL,
                                  .authorization = authorization };
    return weir_authorization_identify(authorizer, &caller, out, diag,
                                       weir_clock_now());
}

int weir_link_admit(struct weir_authorization *authorizer,
                    struct weir_h2_link *link,
                    const struct weir_identity *identity, enum weir_role role,
                    struct weir_diag *diag)
{
    struct weir_caller caller = { .api = WEIR_API_GRPC,
                                  .address = weir_h2_link_peer(link),
                                  .authorization = "" };
    return weir_authorization_admit(authorizer, &caller, identity, role, diag,
                                    weir_clock_now());
}

int weir_link_status(int error)
{
    return error == WEIR_EDENIED ? WEIR_GRPC_PERMISSION_DENIED
                                 : WEIR_GRPC_UNAUTHENTICATED;
}

void weir_link_note_denied(struct weir_authorization *authorizer,
                           struct weir_h2_link *link,
                           const struct weir_identity *identity,
                           struct weir_text name, weir_instant now)
{
    struct weir_caller caller = { .api = WEIR_API_GRPC,
                                  .address = weir_h2_link_peer(link),
                                  .authorization = "" };
    (void)weir_authorization_admit_name(authorizer, &caller, identity, name,
                                        NULL, now);
}

struct weir_root_names weir_link_names(
    const struct weir_identity *identity, void *context,
    void (*denied)(void *context, struct weir_text name, weir_instant now))
{
    return (struct weir_root_names){
        .set = &identity->take,
        .owner = weir_hash(weir_text_of(identity->who), 0),
        .context = context,
        .denied = denied,
    };
}
