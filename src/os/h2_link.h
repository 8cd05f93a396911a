/* SPDX-License-Identifier: MIT
 * os/h2_link.h - the pump that joins a weir_stream and a weir_h2: a gRPC
 * connection on a libevent loop, in either role.
 *
 *     stream = weir_stream_connect(...) or the one from on_accept
 *     link = weir_h2_link_new(stream, server, &handler)
 *     h2 = weir_h2_link_h2(link)
 *     weir_h2_send(h2, ...); weir_h2_send(h2, ...);
 *     weir_h2_link_flush(link);          leaves when the loop's turn ends
 *     ...
 *     weir_h2_link_close(&link);
 *
 * Who owns what. weir_h2_link_new() takes the stream (also its handler: set
 * none of your own) and makes the h2; the link frees both. Who made the link
 * closes it, exactly once, in a callback or out of it. All functions and
 * callbacks run on the loop's thread.
 *
 * Order of callbacks. on_open (client: once connected; server: never), then
 * those of struct weir_h2_handler. Every call that began is closed by
 * exactly one on_close; when the connection is lost, first each open call
 * gets its on_close (WEIR_GRPC_UNAVAILABLE), then comes on_lost, once, and
 * nothing after it. After weir_h2_link_close() nothing comes at all, not
 * even on_close for the calls that were open.
 *
 * Calls may be begun and messages sent before on_open: they are kept until
 * the connection stands. */

#ifndef WEIR_H2_LINK_H
#define WEIR_H2_LINK_H

#include "os/stream.h"
#include "wire/h2.h"

#define WEIR_H2_LINK_SILENCE (5 * WEIR_SECOND)   /* then a PING is sent */
#define WEIR_H2_LINK_PATIENCE (10 * WEIR_SECOND) /* for anything at all */
#define WEIR_H2_LINK_LOW_MARK (256u << 10)       /* bytes, for on_drain */
#define WEIR_H2_LINK_HIGH_MARK (1u << 20)        /* bytes, for _is_full() */

struct weir_h2_link;

struct weir_h2_link_handler {
    void *context;                /* of the three below */
    struct weir_h2_handler calls; /* with its own context */
    /* Each may be NULL. */
    void (*on_open)(void *context, struct weir_h2_link *link);
    /* weir_h2_link_is_full() was true and what is queued has gone below
     * WEIR_H2_LINK_LOW_MARK */
    void (*on_drain)(void *context, struct weir_h2_link *link);
    /* 'why' for people. The link is still there: close it. */
    void (*on_lost)(void *context, struct weir_h2_link *link, const char *why);
};

/* NULL: no memory; the stream is closed then. The handler is copied. */
struct weir_h2_link *weir_h2_link_new(struct weir_stream *stream, bool server,
                                      const struct weir_h2_link_handler *);
/* The session, to send by; borrowed, lives as long as the link. */
struct weir_h2 *weir_h2_link_h2(const struct weir_h2_link *link);
/* Asks for what was queued on the h2 to be written when this turn of the
 * loop ends; any number of times a turn, at the cost of one write. Inside
 * the callbacks of weir_h2_handler it isn't needed. */
void weir_h2_link_flush(struct weir_h2_link *link);
/* Bytes queued, in the h2 and in the stream. */
size_t weir_h2_link_queued(const struct weir_h2_link *link);
/* Whether that is above WEIR_H2_LINK_HIGH_MARK: stop sending till on_drain. */
bool weir_h2_link_is_full(struct weir_h2_link *link);
/* "127.0.0.1:41234" of the peer. */
const char *weir_h2_link_peer(const struct weir_h2_link *link);
/* As weir_stream_set_authenticated(). */
void weir_h2_link_set_authenticated(struct weir_h2_link *link);
/* As weir_stream_is_refused(). */
bool weir_h2_link_is_refused(const struct weir_h2_link *link);
/* Who that is by its certificate: as weir_stream_peer_names(). */
bool weir_h2_link_peer_names(const struct weir_h2_link *link,
                             struct weir_tls_peer *out);
/* As weir_stream_peer_doubt(). */
const char *weir_h2_link_peer_doubt(const struct weir_h2_link *link,
                                    const struct weir_tls *now);
/* The connection has ended: on_lost comes next, or has come. */
bool weir_h2_link_is_lost(const struct weir_h2_link *link);
/* Says GOAWAY, writes what is queued (at most 2 s), closes. NULL is legal.
 * Whoever wishes to let calls end first says weir_h2_shutdown() and
 * weir_h2_link_flush(): on_lost comes when the last call has ended. */
void weir_h2_link_close(struct weir_h2_link **link);
/* Other times than above, for tests; both > 0. */
void weir_h2_link_set_ping(struct weir_h2_link *link, weir_duration silence,
                           weir_duration patience);

#endif /* WEIR_H2_LINK_H */
