/* SPDX-License-Identifier: MIT
 * os/tls_session.h - TLS on one socket: what streams know of it. Nothing here
 * blocks, raises SIGPIPE or calls back. The loop's thread. */

#ifndef WEIR_TLS_SESSION_H
#define WEIR_TLS_SESSION_H

#include "os/tls.h"

struct weir_tls_session;

/* How a step ended. */
enum weir_tls_step {
    WEIR_TLS_DONE,
    WEIR_TLS_READS,  /* go on when the socket can be read */
    WEIR_TLS_WRITES, /* … or written */
    WEIR_TLS_FAILED, /* or ended: weir_tls_why(); for good */
};

/* By the files as they were last read; 'host': whose certificate a client
 * wants to see, a name or a numeric address (server: NULL). NULL: no memory.
 */
struct weir_tls_session *weir_tls_session_new(struct weir_tls *tls,
                                              const char *host);
/* Says nothing; NULL inside is legal. */
void weir_tls_session_free(struct weir_tls_session **session);
/* The socket, non-blocking and connected; it stays the caller's. Once. */
void weir_tls_begin(struct weir_tls_session *session, int fd);

enum weir_tls_step weir_tls_handshake(struct weir_tls_session *session);
/* Reads until 'buf' is full or nothing more is there; DONE: '*out_len' > 0.
 * What ended it after some bytes is said by the next call. */
enum weir_tls_step weir_tls_read(struct weir_tls_session *session, void *buf,
                                 size_t size, size_t *out_len);
/* Whether weir_tls_read() has something to say although the socket may never
 * be readable again. */
bool weir_tls_is_pending(const struct weir_tls_session *session);
/* Writes one record, 'len' > 0. After READS or WRITES it is to be called with
 * the same bytes, and may be with more behind them. */
enum weir_tls_step weir_tls_write(struct weir_tls_session *session,
                                  const void *bytes, size_t len,
                                  size_t *out_len);
/* Tells the peer that nothing more will come (close_notify). */
enum weir_tls_step weir_tls_end(struct weir_tls_session *session);
/* For people; lives as long as the session. */
const char *weir_tls_why(const struct weir_tls_session *session);

/* Whether one side refused the handshake. */
bool weir_tls_is_refused(const struct weir_tls_session *session);

void weir_tls_session_names(const struct weir_tls_session *session,
                            struct weir_tls_peer *out);

/* Checks that the certificate that the peer showed is still good: it hasn't
 * ended by the clock and, with 'now' (a server's; NULL: the clock alone, which
 * is cheap), has an authority in the files as they were last read, some 0.1 ms
 * each certificate. A handshake that isn't over goes by the files of its
 * beginning: with 'now' it fails, too, and the peer may begin again. NULL: it
 * is good, or none was shown; else the reason, for the peer, static. */
const char *weir_tls_session_doubt(const struct weir_tls_session *session,
                                   const struct weir_tls *now);

#endif /* WEIR_TLS_SESSION_H */
