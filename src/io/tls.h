/* SPDX-License-Identifier: MIT
 * io/tls.h - certificates: those that one side of TLS shows and those that it
 * trusts.
 *
 * A weir_tls is made from files and given to weir_listener_new() or
 * weir_stream_connect(); all streams made with it use the files as last read.
 * TLS 1.2 and 1.3, by OpenSSL 3; ALPN "h2" or "http/1.1", by the option. Of TLS
 * 1.2 only the suites of WEIR_TLS_SUITES. No renegotiation, no compression, no
 * session tickets across a reload.
 *
 * Validity. A certificate that has expired, or isn't valid yet, is refused when
 * its file is read, and so is one whose chain has such a certificate, and a
 * file of authorities without any that is valid. The system's authorities
 * aren't checked, nor is a certificate that is in use already: it may expire,
 * and the other files are reloaded beside it.
 *
 * Reloading. weir_tls_reload() reads all files into a new context, which
 * replaces the old one only if every part of it is sound: half-written files
 * change nothing. Open connections keep their old context;
 * weir_tls_session_doubt() tells whether the new one would still accept their
 * peers.
 *
 * All on the loop's thread. */

#ifndef WEIR_TLS_H
#define WEIR_TLS_H

#include "core/base/base.h"

#define WEIR_TLS_HANDSHAKE_MAX (5 * WEIR_SECOND) /* then it is ended */
#define WEIR_TLS_LATE "the handshake took too long: does the peer speak TLS?"
#define WEIR_TLS_OUTDATED \
    "its handshake goes by files that have been read anew since it began"
#define WEIR_TLS_NAME_MAX 255    /* bytes of a peer's name */
#define WEIR_TLS_NAMES_MAX 8     /* names read from a certificate */
#define WEIR_TLS_SYSTEM "system" /* as 'ca': the system's authorities */
/* Forward secrecy and authenticated encryption. All suites of TLS 1.3 have
 * both. */
#define WEIR_TLS_SUITES                                          \
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:" \
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:" \
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"

struct weir_tls;

struct weir_tls_options {
    bool server;
    const char *alpn; /* "h2" or "http/1.1"; static. NULL: none is offered or
                       * chosen */
    const char *ca;   /* PEM file of trusted certificates. Server: NULL: clients
                       * aren't asked for one. Client: never NULL;
                       * WEIR_TLS_SYSTEM: the system's authorities */
    const char *cert; /* PEM file, the chain; server: never NULL. Client: NULL,
                       * none is shown */
    const char *key;  /* PEM file, not encrypted; NULL if and only if 'cert'
                       * is */
    bool demand;      /* server: the handshake refuses a client without a
                       * certificate; needs 'ca' */
};

/* Reads the files. Paths are copied. WEIR_ETLS, WEIR_ENOENT, WEIR_EINVAL
 * ('diag': the file, the error, the remedy), WEIR_ENOMEM. */
int weir_tls_new(const struct weir_tls_options *options, struct weir_tls **out,
                 struct weir_diag *diag);
/* Streams that were made with it stay valid. NULL inside is legal. */
void weir_tls_free(struct weir_tls **tls);

/* Whether a file has another inode, size or time than when it was read, or the
 * day has come on which the certificate that the last reload refused is valid.
 * Cheap: call it every second. */
bool weir_tls_is_changed(const struct weir_tls *tls);
/* Reads all files again. On failure nothing changes, and weir_tls_is_changed()
 * is false until a file changes again or that day comes. */
int weir_tls_reload(struct weir_tls *tls, struct weir_diag *diag);

/* Seconds until the own certificate expires; negative: it has; INT64_MAX: there
 * is none. Wall clock. */
int64_t weir_tls_expires_in(const struct weir_tls *tls);

/* The identity of the peer, by a certificate that was verified. */
struct weir_tls_peer {
    size_t count; /* 0: it has shown none */
    /* the subject's common name, then its DNS names; NUL-terminated; names
     * that hold a NUL or are too long are left out */
    char name[WEIR_TLS_NAMES_MAX][WEIR_TLS_NAME_MAX + 1];
};

/* ---- Sessions ----
 *
 * TLS on one socket, as streams use it. Nothing here blocks, raises SIGPIPE or
 * calls back. */

struct weir_tls_session;

/* The result of a step. */
enum weir_tls_step {
    WEIR_TLS_DONE,
    WEIR_TLS_READS,  /* call again when the socket is readable */
    WEIR_TLS_WRITES, /* … or writable */
    WEIR_TLS_FAILED, /* failed or ended, permanently: weir_tls_why() */
};

/* Makes a session with the files as last read. 'host': the name or numeric
 * address for which the server's certificate must be (in a server: NULL). NULL:
 * no memory. */
struct weir_tls_session *weir_tls_session_new(struct weir_tls *tls,
                                              const char *host);
/* Sends nothing; NULL inside is legal. */
void weir_tls_session_free(struct weir_tls_session **session);
/* Sets the socket, non-blocking and connected; the caller keeps it. Call it
 * once. */
void weir_tls_begin(struct weir_tls_session *session, int fd);

enum weir_tls_step weir_tls_handshake(struct weir_tls_session *session);
/* Reads until 'buf' is full or no more bytes are there; DONE: '*out_len' > 0.
 * If the session ended after some bytes, the next call reports it. */
enum weir_tls_step weir_tls_read(struct weir_tls_session *session, void *buf,
                                 size_t size, size_t *out_len);
/* Whether weir_tls_read() has bytes or an error even if the socket never
 * becomes readable again. */
bool weir_tls_is_pending(const struct weir_tls_session *session);
/* Writes one record, 'len' > 0. After READS or WRITES call it with the same
 * bytes; more may follow them. */
enum weir_tls_step weir_tls_write(struct weir_tls_session *session,
                                  const void *bytes, size_t len,
                                  size_t *out_len);
/* Tells the peer that no more bytes will come (close_notify). */
enum weir_tls_step weir_tls_end(struct weir_tls_session *session);
/* The reason of a failure; lives as long as the session. */
const char *weir_tls_why(const struct weir_tls_session *session);

/* Whether one side refused the handshake. */
bool weir_tls_is_refused(const struct weir_tls_session *session);

void weir_tls_session_names(const struct weir_tls_session *session,
                            struct weir_tls_peer *out);

/* Checks whether the certificate that the peer showed is still valid: it hasn't
 * expired and, with 'now' (a server's), has an authority in the files as last
 * read. That takes some 0.1 ms per certificate; 'now' NULL checks only the
 * clock, which is cheap. An unfinished handshake uses the files of its
 * beginning: with 'now' it fails too, and the peer may connect again. NULL: it
 * is valid, or none was shown; else the reason for the peer, static. */
const char *weir_tls_session_doubt(const struct weir_tls_session *session,
                                   const struct weir_tls *now);

#endif /* WEIR_TLS_H */
