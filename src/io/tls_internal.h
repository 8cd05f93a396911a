/* SPDX-License-Identifier: MIT
 * io/tls_internal.h - the interface between the TLS files. */

#ifndef WEIR_TLS_INTERNAL_H
#define WEIR_TLS_INTERNAL_H

#include <openssl/ssl.h>

#include "io/tls.h"

/* The contents of the files, read at one time. Reference-counted, since
 * connections outlive a reload and the weir_tls itself. */
struct weir_tls_context {
    unsigned users;
    OSSL_LIB_CTX *library; /* owned; NULL: the process's */
    SSL_CTX *ssl;          /* owned */
};

struct weir_tls_context *weir_tls_context_of(const struct weir_tls *tls);
/* Drops a reference; NULL is legal. */
void weir_tls_context_drop(struct weir_tls_context *context);

/* The reason why a handshake, a read or a write failed: a static sentence, or
 * one in 'buf'. 'host': as in weir_tls_session_new(). Empties OpenSSL's queue
 * of errors. */
const char *weir_tls_explain(const SSL *ssl, const char *host, char *buf,
                             size_t size);
/* The names in the peer's verified certificate. */
void weir_tls_names_of(const SSL *ssl, struct weir_tls_peer *out);

/* weir_tls_session_doubt() for an OpenSSL session. */
const char *weir_tls_doubt(const SSL *ssl, const struct weir_tls *now);

#endif /* WEIR_TLS_INTERNAL_H */
