/* SPDX-License-Identifier: MIT
 * io/h2_link.h - joins a weir_stream and a weir_h2: a gRPC connection on a
 * libevent loop, in either role.
 *
 *     stream = weir_stream_connect(...) or the one from on_accept
 *     link = weir_h2_link_new(stream, server, &handler)
 *     h2 = weir_h2_link_h2(link)
 *     weir_h2_send(h2, ...); weir_h2_send(h2, ...);
 *     weir_h2_link_flush(link);          leaves when the loop's turn ends
 *     ...
 *     weir_h2_link_close(&link);
 *
 * Ownership. weir_h2_link_new() takes the stream (also its handler: set none of
 * your own) and makes the h2; the link frees both. The maker of the link closes
 * it, exactly once, within a callback or outside. All functions and callbacks
 * run on the loop's thread.
 *
 * Order of callbacks. on_open (client: once connected; server: never), then
 * those of struct weir_h2_handler. Every call that began has exactly one
 * on_close. When the connection is lost, each open call first gets its on_close
 * (WEIR_GRPC_UNAVAILABLE), then on_lost comes once, and no callback after it.
 * After weir_h2_link_close() no callback comes, not even on_close for the calls
 * that were open.
 *
 * Calls may be begun and messages sent before on_open: they are kept until the
 * connection is open. */

#ifndef WEIR_H2_LINK_H
#define WEIR_H2_LINK_H

#include "io/h2.h"
#include "io/stream.h"

#define WEIR_H2_LINK_SILENCE (5 * WEIR_SECOND)   /* after it a PING is sent */
#define WEIR_H2_LINK_PATIENCE (10 * WEIR_SECOND) /* after it, for any byte */
#define WEIR_H2_LINK_LOW_MARK (256u << 10)       /* bytes, for on_drain */
#define WEIR_H2_LINK_HIGH_MARK (1u << 20)        /* bytes, for _is_full() */

struct weir_h2_link;

struct weir_h2_link_handler {
    void *context;                /* of the three below */
    struct weir_h2_handler calls; /* with its own context */
    /* Each may be NULL. */
    void (*on_open)(void *context, struct weir_h2_link *link);
    /* weir_h2_link_is_full() was true, and the queued bytes have fallen below
     * WEIR_H2_LINK_LOW_MARK */
    void (*on_drain)(void *context, struct weir_h2_link *link);
    /* 'why': a sentence. The link still exists: close it. */
    void (*on_lost)(void *context, struct weir_h2_link *link, const char *why);
};

/* NULL: no memory; the stream is closed then. The handler is copied. */
struct weir_h2_link *weir_h2_link_new(struct weir_stream *stream, bool server,
                                      const struct weir_h2_link_handler *);
/* The session for sending; borrowed, lives as long as the link. */
struct weir_h2 *weir_h2_link_h2(const struct weir_h2_link *link);
/* Writes the h2's queue when this turn of the loop ends. Several calls in a
 * turn cost one write. Not needed inside the callbacks of weir_h2_handler. */
void weir_h2_link_flush(struct weir_h2_link *link);
/* Bytes queued, in the h2 and in the stream. */
size_t weir_h2_link_queued(const struct weir_h2_link *link);
/* Whether these are above WEIR_H2_LINK_HIGH_MARK: stop sending until
 * on_drain. */
bool weir_h2_link_is_full(struct weir_h2_link *link);
/* The peer's address, "127.0.0.1:41234". */
const char *weir_h2_link_peer(const struct weir_h2_link *link);
/* As weir_stream_set_authenticated(). */
void weir_h2_link_set_authenticated(struct weir_h2_link *link);
/* As weir_stream_is_refused(). */
bool weir_h2_link_is_refused(const struct weir_h2_link *link);
/* The peer's names, by its certificate: as weir_stream_peer_names(). */
bool weir_h2_link_peer_names(const struct weir_h2_link *link,
                             struct weir_tls_peer *out);
/* As weir_stream_peer_doubt(). */
const char *weir_h2_link_peer_doubt(const struct weir_h2_link *link,
                                    const struct weir_tls *now);
/* The connection has ended: on_lost will come, or has come. */
bool weir_h2_link_is_lost(const struct weir_h2_link *link);
/* Sends GOAWAY, writes the queue (at most 2 s), closes. NULL is legal. To let
 * calls end first, call weir_h2_shutdown() and weir_h2_link_flush(): on_lost
 * comes when the last call has ended. */
void weir_h2_link_close(struct weir_h2_link **link);
/* Sets other times than those above, for tests; both > 0. */
void weir_h2_link_set_ping(struct weir_h2_link *link, weir_duration silence,
                           weir_duration patience);

#endif /* WEIR_H2_LINK_H */
