/* SPDX-License-Identifier: MIT
 * io/stream.h - sockets on a libevent loop: listeners and connections that hand
 * out bytes, in plain text or over TLS, with the same functions. */

#ifndef WEIR_STREAM_H
#define WEIR_STREAM_H

#include "core/base/base.h"
#include "io/accept.h"
#include "io/address.h"
#include "io/tls.h"

struct event_base;
struct weir_stream;
struct weir_listener;

/* The loop calls all of them; they may call any function on the stream, also
 * close it. */
struct weir_stream_handler {
    void *context;
    /* client: connected; with TLS also the peer's certificate is verified. Not
     * called for server streams, which begin connected and after their TLS
     * handshake. */
    void (*on_open)(void *context, struct weir_stream *stream);
    void (*on_bytes)(void *context, struct weir_stream *stream,
                     const void *bytes, size_t len);
    /* the queue fell below its low mark: more may be written */
    void (*on_drain)(void *context, struct weir_stream *stream);
    /* lost, refused or ended; 'why': a sentence. The stream still exists; close
     * it. */
    void (*on_lost)(void *context, struct weir_stream *stream, const char *why);
};

/* Connects. Never blocks and never fails at once: on_lost reports errors. NULL:
 * no memory. 'tls': a client's, NULL for plain text; may be freed at once. The
 * peer's certificate must be for the host of 'address'. 'timeout': for
 * connecting, the handshake included; 0: 5 s. */
struct weir_stream *weir_stream_connect(struct event_base *base,
                                        const struct weir_address *address,
                                        struct weir_tls *tls,
                                        weir_duration timeout,
                                        const struct weir_stream_handler *);
/* The same, but the peer's certificate must be for 'host'. */
struct weir_stream *weir_stream_connect_as(struct event_base *base,
                                           const struct weir_address *address,
                                           const char *host,
                                           struct weir_tls *tls,
                                           weir_duration timeout,
                                           const struct weir_stream_handler *);
void weir_stream_set_handler(struct weir_stream *stream,
                             const struct weir_stream_handler *handler);
#define WEIR_STREAM_QUEUE_MAX (16u << 20) /* bytes waiting to be written */
#define WEIR_STREAM_LOW_MARK (128u << 10) /* bytes, for on_drain */
/* Queues bytes (copied), to be sent when this turn of the loop ends or later.
 * WEIR_EFULL: the queue would exceed WEIR_STREAM_QUEUE_MAX; nothing was
 * queued. */
int weir_stream_write(struct weir_stream *stream, const void *bytes,
                      size_t len);
size_t weir_stream_queued(const struct weir_stream *stream);
/* Closes at once or, with 'flush', when the queue is written (at most 2 s). No
 * callback comes after it. The loop keeps the memory until the queue is written
 * and a name lookup has ended. */
void weir_stream_close(struct weir_stream **stream, bool flush);
/* The peer is authenticated, or needn't be: from now on its bytes are read as
 * they come. Until then the bytes of an accepted stream are read as the
 * listener's ration allows (io/ration.h). */
void weir_stream_set_authenticated(struct weir_stream *stream);
/* The stream's loop. */
struct event_base *weir_stream_base(const struct weir_stream *stream);
/* The peer's address, "127.0.0.1:41234". */
const char *weir_stream_peer(const struct weir_stream *stream);
/* For a lost stream: whether one side has refused the handshake, so that the
 * peer has received none of the bytes written. (Under TLS 1.3 a client may
 * learn that after on_open.) */
bool weir_stream_is_refused(const struct weir_stream *stream);
/* Whether the stream uses TLS; then '*out' has the names in the certificate
 * that the peer has shown (count 0: none). Call it when connected. */
bool weir_stream_peer_names(const struct weir_stream *stream,
                            struct weir_tls_peer *out);

/* As weir_tls_session_doubt(); NULL in plain text. */
const char *weir_stream_peer_doubt(const struct weir_stream *stream,
                                   const struct weir_tls *now);

typedef void weir_accept_fn(void *context, struct weir_stream *stream);
typedef void weir_refused_fn(void *context, const char *peer, const char *why);
struct weir_listener_options {
    struct weir_address address; /* numeric; port 0: any, see
                                  * weir_listener_port() */
    struct weir_tls *tls; /* a server's, which must outlive the listener; NULL:
                           * plain text */
    size_t max;           /* streams at once, > 0; at this number accepting
                           * pauses */
    size_t places;        /* unauthenticated ones among them; 0: half */
    /* A connection has come, after its handshake: the callee owns the new
     * stream. */
    weir_accept_fn *on_accept;
    /* A handshake failed; 'why': a sentence. May be NULL. */
    weir_refused_fn *on_refused;
    /* An unauthenticated stream was evicted for another; on_lost follows. May
     * be NULL. */
    weir_refused_fn *on_evicted;
    void *context; /* of all three callbacks */
    struct weir_accept_short on_short;
};
/* Listens. WEIR_EINVAL (no numeric address), WEIR_ESYSTEM, WEIR_ENOMEM.
 *
 * A stream is unauthenticated until weir_stream_set_authenticated(). If there
 * are more such streams than 'places', handshakes included, or no descriptor is
 * left, the oldest one of the address with most of them is evicted
 * (io/ration.h): peers that connect and send nothing can't keep other peers
 * out. */
int weir_listener_new(struct event_base *base,
                      const struct weir_listener_options *options,
                      struct weir_listener **out, struct weir_diag *diag);
uint16_t weir_listener_port(const struct weir_listener *listener);
/* The files of its 'tls' were reloaded: ends the handshakes that began with the
 * old files, as weir_tls_session_doubt() does. NULL is legal. */
void weir_listener_doubt(struct weir_listener *listener);
void weir_listener_free(struct weir_listener **listener);

#endif /* WEIR_STREAM_H */
