/* SPDX-License-Identifier: MIT
 * front/exposure.h - exposure: the options of certificates and credentials, of
 * `weir serve` and the protocols of `weir agent` alike, and which of them a
 * listen address needs.
 *
 * An address that isn't loopback, also ":PORT" (all), needs TLS and
 * credentials. A path needs
 * neither: the permissions of its folder decide which users may connect. */

#ifndef WEIR_EXPOSURE_H
#define WEIR_EXPOSURE_H

#include "front/credentials.h"
#include "front/log.h"
#include "io/address.h"
#include "io/tls.h"

struct weir_exposure {
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
int weir_exposure_check(const struct weir_exposure *exposure,
                        struct weir_diag *diag);
/* Whether a listener may use the address. WEIR_EINVAL: other hosts can reach
 * it, and 'diag' names the missing option; 'option' is the listener's. */
int weir_exposure_check_place(const struct weir_exposure *exposure,
                              const char *option,
                              const struct weir_listen_address *place,
                              struct weir_diag *diag);
/* The listener's certificate: NULL without one. 'alpn' and errors as of
 * weir_tls_new(). */
int weir_exposure_tls(const struct weir_exposure *exposure, const char *alpn,
                      struct weir_tls **out, struct weir_diag *diag);
/* Logs a warning if credentials name certificates but clients aren't asked for
 * any. 'credentials' may be NULL. */
void weir_exposure_warn_of_names(const struct weir_exposure *exposure,
                                 const struct weir_credentials *credentials,
                                 const struct weir_log *log);

/* Reads the credentials again if their file has changed, or 'always', and logs
 * that. True: they are others now, and peers are to be checked again.
 * 'credentials' may be NULL. */
bool weir_exposure_reload(const struct weir_exposure *exposure,
                          struct weir_credentials *credentials, bool always,
                          const struct weir_log *log);

#endif /* WEIR_EXPOSURE_H */
