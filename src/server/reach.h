/* SPDX-License-Identifier: MIT
 * server/reach.h - exposure: the options of certificates and credentials, of
 * `weir serve` and the protocols of `weir agent` alike, and which of them a
 * listen address needs.
 *
 * An address that isn't loopback needs TLS and credentials. A path needs
 * neither: the permissions of its folder decide which users may connect. */

#ifndef WEIR_REACH_H
#define WEIR_REACH_H

#include "os/place.h"
#include "server/credentials.h"
#include "server/log.h"

struct weir_reach {
    const char *prefix; /* of the three options of TLS: "--tls-"; static */
    /* Files; borrowed. */
    const char *tls_cert; /* NULL, as 'tls_key': plain text */
    const char *tls_key;
    const char *tls_ca;      /* NULL: clients show no certificate */
    const char *credentials; /* NULL: every client may do all */
    bool insecure;           /* other hosts may reach it all the same */
};

/* Whether the options go together. WEIR_EINVAL: 'diag' names the missing
 * one. */
int weir_reach_check(const struct weir_reach *reach, struct weir_diag *diag);
/* Whether a listener may use the address. WEIR_EINVAL: other hosts can reach
 * it, and 'diag' names the missing option; 'option' is the listener's. */
int weir_reach_check_place(const struct weir_reach *reach, const char *option,
                           const struct weir_place *place,
                           struct weir_diag *diag);
/* The listener's certificate: NULL without one. 'alpn' and errors as of
 * weir_tls_new(). */
int weir_reach_tls(const struct weir_reach *reach, const char *alpn,
                   struct weir_tls **out, struct weir_diag *diag);
/* Logs a warning if credentials name certificates but clients aren't asked for
 * any. 'credentials' may be NULL. */
void weir_reach_warn_of_names(const struct weir_reach *reach,
                              const struct weir_credentials *credentials,
                              const struct weir_log *log);

#endif /* WEIR_REACH_H */
