/* SPDX-License-Identifier: MIT
 * front/authorization.h - authorization: checks the credentials of the
 * listeners' peers, counts and logs refusals. One thread. */

#ifndef WEIR_AUTHORIZATION_H
#define WEIR_AUTHORIZATION_H

#include "front/credentials.h"
#include "front/log.h"
#include "io/tls.h"

/* How long a connection without an admitted credential may stand, if
 * credentials are in force: unauthenticated peers don't keep others out. */
#define WEIR_UNAUTHENTICATED_MAX (10 * WEIR_SECOND)

enum weir_api { WEIR_API_GRPC, WEIR_API_HTTP };
enum weir_refusal {
    WEIR_REFUSED_TLS,        /* no handshake: garbage, a certificate that
                              * wasn't signed or has ended, too slow */
    WEIR_REFUSED_CREDENTIAL, /* no known credential was shown */
    WEIR_REFUSED_ROLE,       /* known, without the role */
    WEIR_REFUSED_NAME,       /* the role 'take', but not for that quota */
};
#define WEIR_APIS 2
#define WEIR_REFUSALS 4
/* "grpc", "credential" …; static. */
const char *weir_api_name(enum weir_api api);
const char *weir_refusal_name(enum weir_refusal refusal);

/* All zero: every peer may do all. */
struct weir_authorization {
    const struct weir_credentials *credentials; /* borrowed; NULL: none are in
                                                 * force */
    const struct weir_tls *tls; /* borrowed; the listeners' certificate; NULL:
                                 * plain text */
    struct weir_log *log;       /* borrowed; NULL: none */
    /* The counters: */
    uint64_t refused[WEIR_APIS][WEIR_REFUSALS];
};

/* The peer of a request. */
struct weir_caller {
    enum weir_api api;
    const char *address;               /* "127.0.0.1:41234" */
    const struct weir_tls_peer *names; /* of its certificate; NULL: none */
    const char *authorization;         /* the header; "": none */
    const char *listener; /* its name in the log; NULL: the api's */
};

/* Whether a peer needs a credential at all. */
bool weir_authorization_is_required(
    const struct weir_authorization *authorizer);
/* Identifies the peer. WEIR_ECREDENTIAL, with 'diag' filled, counted and
 * logged. */
int weir_authorization_identify(struct weir_authorization *authorizer,
                                const struct weir_caller *caller,
                                struct weir_identity *out,
                                struct weir_diag *diag, weir_instant now);
/* Checks the role. WEIR_EDENIED, with 'diag' filled, counted and logged. */
int weir_authorization_admit(struct weir_authorization *authorizer,
                             const struct weir_caller *caller,
                             const struct weir_identity *identity,
                             enum weir_role role, struct weir_diag *diag,
                             weir_instant now);
/* Checks that 'caller' may take from the quota 'name'. As above. */
int weir_authorization_admit_name(struct weir_authorization *authorizer,
                                  const struct weir_caller *caller,
                                  const struct weir_identity *identity,
                                  struct weir_text name, struct weir_diag *diag,
                                  weir_instant now);
/* Counts and logs a refusal by the listener itself. */
void weir_authorization_note(struct weir_authorization *authorizer,
                             enum weir_api api, enum weir_refusal refusal,
                             const char *address, const char *why,
                             weir_instant now);

#endif /* WEIR_AUTHORIZATION_H */
