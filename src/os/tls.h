/* SPDX-License-Identifier: MIT
 * os/tls.h - certificates: what one side of TLS shows and whom it trusts.
 *
 * A weir_tls is made from files and given to weir_listener_new() or
 * weir_stream_connect(); all streams made with it go by the files as they were
 * last read. TLS 1.2 and 1.3, by OpenSSL 3; ALPN "h2" or "http/1.1", by the
 * option. No renegotiation, no compression, no session tickets across a
 * reload.
 *
 * Reading again. weir_tls_reload() reads all files into a fresh context and
 * puts that in the place of the old one only if every part of it is sound:
 * half-written files change nothing. Connections that stand keep what they
 * began with; whether their peers would still be let in can be asked.
 *
 * All on the loop's thread. */

#ifndef WEIR_TLS_H
#define WEIR_TLS_H

#include "base/base.h"

#define WEIR_TLS_HANDSHAKE_MAX (5 * WEIR_SECOND) /* then it is dropped */
#define WEIR_TLS_OUTDATED \
    "its handshake goes by files that have been read anew since it began"
#define WEIR_TLS_NAME_MAX 255    /* bytes of a peer's name */
#define WEIR_TLS_NAMES_MAX 8     /* names looked at */
#define WEIR_TLS_SYSTEM "system" /* as 'ca': the system's */

struct weir_tls;

struct weir_tls_options {
    bool server;
    const char *alpn; /* "h2" or "http/1.1"; static. NULL: none is offered, or
                       * chosen */
    const char *ca;   /* PEM file: whose certificates are trusted. Server:
                       * NULL, clients aren't asked for one. Client: never
                       * NULL; WEIR_TLS_SYSTEM: the system's authorities */
    const char *cert; /* PEM file, the chain; server: never NULL. Client: NULL,
                       * none is shown */
    const char *key;  /* PEM file, not encrypted; NULL exactly when 'cert'
                       * is */
    bool demand;      /* server: who shows no certificate is refused in the
                       * handshake; needs 'ca' */
};

/* Reads the files. Paths are copied. WEIR_ETLS, WEIR_ENOENT, WEIR_EINVAL
 * ('diag': which file, what is wrong with it, what to do), WEIR_ENOMEM. */
int weir_tls_new(const struct weir_tls_options *options, struct weir_tls **out,
                 struct weir_diag *diag);
/* Streams that were made with it live on. NULL inside is legal. */
void weir_tls_free(struct weir_tls **tls);

/* Whether a file has another inode, size or time than when it was read: cheap,
 * meant to be asked every second. */
bool weir_tls_is_changed(const struct weir_tls *tls);
/* Reads all files again; on failure everything stays as it was, and
 * weir_tls_is_changed() keeps quiet until a file changes again. */
int weir_tls_reload(struct weir_tls *tls, struct weir_diag *diag);

/* Seconds until the certificate shown ends; negative: it has; INT64_MAX: none
 * is shown. Wall clock. */
int64_t weir_tls_expires_in(const struct weir_tls *tls);

/* Who is at the other end, by a certificate that was verified. */
struct weir_tls_peer {
    size_t count; /* 0: it showed none */
    /* the subject's common name, then its DNS names; NUL-terminated; names
     * that hold a NUL or are too long are left out */
    char name[WEIR_TLS_NAMES_MAX][WEIR_TLS_NAME_MAX + 1];
};

#endif /* WEIR_TLS_H */
