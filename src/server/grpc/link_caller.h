/* SPDX-License-Identifier: MIT
 * server/grpc/link_caller.h - authorization (front/authorization.h) of the
 * peer of a gRPC connection: its identity, its roles, the quotas that it may
 * take from. One thread. */

#ifndef WEIR_LINK_CALLER_H
#define WEIR_LINK_CALLER_H

#include "core/node/root.h"
#include "front/authorization.h"
#include "io/h2_link.h"

/* As weir_authorization_identify(), by the connection's certificate and a
 * call's header 'authorization' ("": none). */
int weir_link_identify(struct weir_authorization *authorizer,
                       struct weir_h2_link *link, const char *authorization,
                       struct weir_identity *out, struct weir_diag *diag);
/* As weir_authorization_admit(). */
int weir_link_admit(struct weir_authorization *authorizer,
                    struct weir_h2_link *link,
                    const struct weir_identity *identity, enum weir_role role,
                    struct weir_diag *diag);
/* The gRPC status for an error of these two. */
int weir_link_status(int error);
/* Counts and logs that the peer named a quota from which it may not take. */
void weir_link_note_denied(struct weir_authorization *authorizer,
                           struct weir_h2_link *link,
                           const struct weir_identity *identity,
                           struct weir_text name, weir_instant now);
/* The peer's names, for its root; borrows 'identity'. */
struct weir_root_names weir_link_names(
    const struct weir_identity *identity, void *context,
    void (*denied)(void *context, struct weir_text name, weir_instant now));

#endif /* WEIR_LINK_CALLER_H */
