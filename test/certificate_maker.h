/* SPDX-License-Identifier: MIT
 * certificate_maker.h - authorities and certificates for tests, made when they
 * run: no key is ever committed. Asserts that every step succeeds. */

#ifndef WEIR_CERTIFICATE_MAKER_H
#define WEIR_CERTIFICATE_MAKER_H

#include <stdbool.h>

struct maker_ca;

struct maker_ca *maker_ca_new(const char *name);
void maker_ca_free(struct maker_ca *ca);
/* Its certificate, in PEM; renamed into its place. */
void maker_ca_write(const struct maker_ca *ca, const char *path);

struct maker_leaf {
    const char *name;        /* common name; NULL: none */
    const char *also;        /* "DNS:localhost,IP:127.0.0.1"; NULL: none */
    int first_day, last_day; /* from today; last_day 0: 30 */
    const char *usage;       /* "serverAuth"; NULL: any */
    bool rsa;                /* a key of RSA, 2,048 bits; else of P-256 */
};
/* Signs a fresh key; each file is renamed into its place. */
void maker_issue(const struct maker_ca *ca, const struct maker_leaf *leaf,
                 const char *cert_path, const char *key_path);
/* A key without a certificate; 'phrase': encrypted with it; NULL: plain. */
void maker_key_write(const char *path, const char *phrase);

/* ---- A folder of its own with two authorities ---- */

struct maker_pki {
    char folder[64];
    struct maker_ca *ca;    /* trusted by the test: "ca.crt" */
    struct maker_ca *other; /* not trusted: "other.crt" */
};

void maker_pki_init(struct maker_pki *pki);
/* Removes the folder, with everything in it. */
void maker_pki_fini(struct maker_pki *pki);
/* The path of a file in it; the last 32 stay valid. */
const char *maker_pki_path(const struct maker_pki *pki, const char *name);
/* Signed by 'ca': NAME.crt and NAME.key. */
void maker_pki_issue(const struct maker_pki *pki, const char *name,
                     const struct maker_ca *ca, const struct maker_leaf *leaf);
/* A file with that content, renamed into its place. */
void maker_pki_put(const struct maker_pki *pki, const char *name,
                   const char *text);

#endif /* WEIR_CERTIFICATE_MAKER_H */
