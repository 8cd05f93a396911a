/* SPDX-License-Identifier: MIT
 * io/tls_session.h - TLS on one socket, as streams use it. Nothing here blocks,
 * raises SIGPIPE or calls back. The loop's thread. */

#ifndef WEIR_TLS_SESSION_H
#define WEIR_TLS_SESSION_H

#include "io/tls.h"

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

#endif /* WEIR_TLS_SESSION_H */
