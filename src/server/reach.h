/* SPDX-License-Identifier: MIT
 * server/reach.h - who can reach a listener, and what keeps strangers out: the
 * options of certificates and credentials, of `weir serve` and the doors of
 * `weir agent` alike, and which of them an address needs.
 *
 * An address that isn't loopback needs TLS and credentials. A path needs
 * neither: who may connect there is a matter of its folder. */

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
    const char *credentials; /* NULL: everybody may do all */
    bool insecure;           /* strangers may reach all the same */
};

/* Whether the options go together. WEIR_EINVAL: 'diag' names what is missing.
 */
int weir_reach_check(const struct weir_reach *reach, struct weir_diag *diag);
/* Whether a listener may stand there. WEIR_EINVAL: strangers can reach it, and
 * 'diag' names the option that is missing; 'option' is the listener's. */
int weir_reach_check_place(const struct weir_reach *reach, const char *option,
                           const struct weir_place *place,
                           struct weir_diag *diag);
/* What a listener shows: NULL where there is no certificate. 'alpn' and errors
 * as of weir_tls_new(). */
int weir_reach_tls(const struct weir_reach *reach, const char *alpn,
                   struct weir_tls **out, struct weir_diag *diag);
/* Says so in the log if credentials name certificates that nobody is asked for.
 * 'credentials' may be NULL. */
void weir_reach_warn_of_names(const struct weir_reach *reach,
                              const struct weir_credentials *credentials,
                              const struct weir_log *log);

#endif /* WEIR_REACH_H */
