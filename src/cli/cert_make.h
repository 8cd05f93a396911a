/* SPDX-License-Identifier: MIT
 * cli/cert_make.h - certificates to try TLS with: a small authority and the
 * certificates that it signs. Keys are of the curve P-256, signatures of
 * SHA-256. */

#ifndef WEIR_CERT_MAKE_H
#define WEIR_CERT_MAKE_H

#include "core/base/base.h"

#define WEIR_CERT_NAME_MAX 64  /* bytes of a common name (X.520) */
#define WEIR_CERT_NAMES_MAX 16 /* of one server */
#define WEIR_CERT_DAYS_MAX 36500

enum weir_cert_kind { WEIR_CERT_CA, WEIR_CERT_SERVER, WEIR_CERT_CLIENT };

struct weir_cert_request {
    enum weir_cert_kind kind;
    /* The first is the common name. Of a server: the DNS names and addresses by
     * which clients call it. NUL-terminated; borrowed. */
    const char *const *names;
    size_t name_count;
    unsigned days;       /* 1 to WEIR_CERT_DAYS_MAX, from now on; not beyond
                          * the authority's end */
    const char *ca_cert; /* the signer's files; NULL for an authority */
    const char *ca_key;
};

/* Makes a key and its certificate and writes them to two files that must not
 * exist, both with mode 0600; on an error neither exists. 'out_until': the
 * certificate's end, as "2027-11-21"; holds 11 bytes. WEIR_EEXIST, WEIR_ENOENT,
 * WEIR_EINVAL, WEIR_ETLS, WEIR_ESYSTEM, with 'diag' filled. */
int weir_cert_make(const struct weir_cert_request *request, const char *cert,
                   const char *key, char *out_until, struct weir_diag *diag);

#endif /* WEIR_CERT_MAKE_H */
