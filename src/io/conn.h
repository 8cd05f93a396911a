/* SPDX-License-Identifier: MIT
 * io/conn.h - connections for requests that are mostly answered at once, from
 * this process's memory.
 *
 * A conn_server listens and owns the connections. One function receives the
 * requests and answers by weir_conn_write() before it returns. A later answer
 * is written in a turn that weir_conn_wake() requests; until then
 * weir_conn_set_busy() keeps the next requests waiting. All on the loop's
 * thread. */

#ifndef WEIR_CONN_H
#define WEIR_CONN_H

#include "io/accept.h"
#include "io/address.h"
#include "io/tls.h"

#define WEIR_CONN_READ (64u << 10)        /* bytes of one read */
#define WEIR_CONN_PAUSED_MAX (128u << 10) /* bytes of an incomplete request */
/* A connection ends if its peer takes no byte of an answer for so long. */
#define WEIR_CONN_SLOW_MAX (30 * WEIR_SECOND)
/* … or if the rest of a request comes more slowly than that, on average from
 * so long after its first bytes on. For peers that are authenticated;
 * unauthenticated_max bounds the others. If that is 0, a peer that never
 * completes its first request is ended only when another one needs its
 * place. */
#define WEIR_CONN_RATE_MIN 500 /* bytes a second */
#define WEIR_CONN_RATE_GRACE (20 * WEIR_SECOND)
/* How long a connection that we have ended is still read, without answers:
 * closing it with unread input would reset it, and lose its last answer. */
#define WEIR_CONN_LINGER_MAX (2 * WEIR_SECOND)
#define WEIR_CONN_LINGER_BYTES (1u << 20) /* bytes read meanwhile at most */
/* A peer that may be silent is probed by the kernel after so many seconds of
 * silence, then every so many; it is dead after so many probes without an
 * answer: two minutes in all. */
#define WEIR_CONN_PROBE_AFTER 60
#define WEIR_CONN_PROBE_EVERY 15
#define WEIR_CONN_PROBES 4

struct weir_conn;
struct weir_conn_server;

/* TLS for all connections; zeroed: plain text. */
struct weir_conn_tls {
    struct weir_tls *tls; /* a server's, which must outlive all connections;
                           * borrowed */
    /* A handshake failed, or took longer than WEIR_TLS_HANDSHAKE_MAX, or the
     * certificate shown isn't valid any more; NULL: not reported. 'address' as
     * of weir_conn_peer(), 'why': a sentence. */
    void (*on_refused)(void *context, const char *address, const char *why,
                       weir_instant now);
    void *context; /* of on_refused */
};

struct weir_conn_options {
    struct event_base *base; /* borrowed */
    struct weir_listen_address place;
    struct weir_conn_tls tls; /* ignored at a path, which only this host
                               * reaches: plain text */
    struct weir_accept_short on_short;
    size_t max; /* connections at once, > 0 */
    /* sent to one more connection before it is ended, if the peers of all
     * others are authenticated (not sent over TLS); static */
    struct weir_text crowded;
    weir_duration silence_max; /* longest silence; 0: unlimited */
    /* longest time without authentication, from the beginning; 0: unlimited */
    weir_duration unauthenticated_max;
    weir_duration rate_grace; /* 0: WEIR_CONN_RATE_GRACE */
    /* connections of unauthenticated peers. Over it the oldest one of the
     * address with most of them is evicted. 0: half of all with
     * 'unauthenticated_max', all without */
    size_t unknown_max;
    size_t state_size; /* bytes of the listener's state in each connection */
    void *context;
    /* Bytes are there: all that have come and weren't consumed. Returns the
     * number consumed. It is called again with the rest when more have come, or
     * when the bytes written could be sent. A request that is still incomplete
     * at WEIR_CONN_PAUSED_MAX bytes ends its connection. Between two requests
     * the callee checks weir_conn_is_open(). */
    size_t (*on_bytes)(void *context, struct weir_conn *conn, const char *bytes,
                       size_t len, weir_instant now);
    /* A connection was ended because its peer was unauthenticated for
     * unauthenticated_max; NULL: not reported. */
    void (*on_unknown)(void *context, const struct weir_conn *conn,
                       weir_instant now);
    /* The connection is about to be freed, for any reason; NULL: not
     * reported. */
    void (*on_gone)(void *context, struct weir_conn *conn);
};

/* Listens. WEIR_EINVAL, WEIR_ESYSTEM (as weir_listen_address_listen()),
 * WEIR_ENOMEM, with 'diag' filled. */
int weir_conn_server_new(const struct weir_conn_options *options,
                         struct weir_conn_server **out, struct weir_diag *diag);
/* The listen address, with the port in use. */
const struct weir_listen_address *weir_conn_server_address(
    const struct weir_conn_server *server);
struct weir_acceptor_view weir_conn_server_look(
    const struct weir_conn_server *server);
/* Stops listening; connections go on. */
void weir_conn_server_stop(struct weir_conn_server *server);
/* The files of 'tls' were reloaded: ends connections whose client certificates
 * aren't valid by them any more. (A certificate that expires ends its
 * connection without this call.) */
void weir_conn_server_doubt(struct weir_conn_server *server);
/* Calls 'fn' for each connection; it may end that one. */
void weir_conn_server_each(struct weir_conn_server *server,
                           void (*fn)(void *context, struct weir_conn *conn),
                           void *context);
/* Ends all connections; unsent bytes are lost. NULL inside is legal. */
void weir_conn_server_free(struct weir_conn_server **server);

/* The listener's 'state_size' bytes, zero at first, 16-byte aligned. */
void *weir_conn_state(struct weir_conn *conn);
/* The peer's address, "127.0.0.1:41234", "[::1]:41234", or "unix" at a
 * path. */
const char *weir_conn_peer(const struct weir_conn *conn);
/* The peer's names by its certificate; count 0: it has shown none. */
void weir_conn_peer_names(const struct weir_conn *conn,
                          struct weir_tls_peer *out);
/* Answers; bytes are copied. Bytes that the peer doesn't read are kept, and no
 * further request is served (weir_conn_is_open()), so they are at most one
 * request's answer more. */
void weir_conn_write(struct weir_conn *conn, const void *bytes, size_t len);
/* Whether another request would be answered now: the connection isn't ended or
 * busy, and its peer takes the answers. */
bool weir_conn_is_open(const struct weir_conn *conn);
/* 'known': the peer is authenticated or, if no credentials are in force, has
 * made a request that would need one. Until then its bytes are read as the
 * server's ration allows, and it may be evicted (io/ration.h). If it is no
 * longer known, unauthenticated_max begins again. */
void weir_conn_set_known(struct weir_conn *conn, bool known);
/* 'awaits': the bytes consumed so far are part of a request whose rest is to
 * come; WEIR_CONN_RATE_MIN holds for it as for bytes that aren't consumed. */
void weir_conn_set_awaits(struct weir_conn *conn, bool awaits);
/* 'busy': an answer comes later. Nothing is read until the connection is no
 * longer busy, however long that takes. */
void weir_conn_set_busy(struct weir_conn *conn, bool busy);
/* The peer may be silent for any time, whatever silence_max is, as long as its
 * host answers the kernel's probes. */
void weir_conn_set_quiet(struct weir_conn *conn, bool quiet);
/* Requests a call of on_bytes with no bytes, soon and even if busy, to write
 * bytes that answer no request. */
void weir_conn_wake(struct weir_conn *conn);
/* Ends the connection once all written bytes are sent. Later bytes of the peer
 * are ignored. */
void weir_conn_end(struct weir_conn *conn);

#endif /* WEIR_CONN_H */
