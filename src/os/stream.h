/* SPDX-License-Identifier: MIT
 * os/stream.h - sockets on a libevent loop: listeners and connections that
 * hand out bytes. TLS comes in here later (bufferevent_openssl). */

#ifndef WEIR_STREAM_H
#define WEIR_STREAM_H

#include "base/base.h"

struct event_base;
struct weir_stream;
struct weir_listener;

/* "HOST:PORT", "[V6]:PORT" or ":PORT" (loopback). Names are resolved when
 * connecting. */
struct weir_address {
    char host[256];
    uint16_t port;
};
int weir_address_parse(struct weir_text text, struct weir_address *out,
                       struct weir_diag *diag);
/* Whether it names the loopback range only (127/8, ::1, localhost). */
bool weir_address_is_loopback(const struct weir_address *address);

/* All called from the loop; may call any function on the stream, the closing
 * one included. */
struct weir_stream_handler {
    void *context;
    /* client: connected. Server streams are born connected. */
    void (*on_open)(void *context, struct weir_stream *stream);
    void (*on_bytes)(void *context, struct weir_stream *stream,
                     const void *bytes, size_t len);
    /* the queue went below its low mark: more may be written */
    void (*on_drain)(void *context, struct weir_stream *stream);
    /* lost, refused or ended: 'why' for people. The stream is still there;
     * close it. */
    void (*on_lost)(void *context, struct weir_stream *stream,
                    const char *why);
};

/* Connects. Never blocks, never fails at once: errors come by on_lost. NULL:
 * no memory. 'timeout': for connecting; 0: 5 s. */
struct weir_stream *weir_stream_connect(struct event_base *base,
                                        const struct weir_address *address,
                                        weir_duration timeout,
                                        const struct weir_stream_handler *);
void weir_stream_set_handler(struct weir_stream *stream,
                             const struct weir_stream_handler *handler);
#define WEIR_STREAM_QUEUE_MAX (16u << 20) /* bytes waiting to be written */
#define WEIR_STREAM_LOW_MARK (128u << 10) /* bytes, for on_drain */
/* Queues bytes (copied), to leave when this turn of the loop ends or later.
 * WEIR_EFULL: the queue would be over WEIR_STREAM_QUEUE_MAX; nothing of it
 * was queued. */
int weir_stream_write(struct weir_stream *stream, const void *bytes,
                      size_t len);
size_t weir_stream_queued(const struct weir_stream *stream);
/* Closes, now or once the queue is written ('flush', at most 2 s). No
 * callback comes after it. What isn't written yet, or a name being looked
 * up, lives on in the loop until it is done with. */
void weir_stream_close(struct weir_stream **stream, bool flush);
/* The loop it lives on. */
struct event_base *weir_stream_base(const struct weir_stream *stream);
/* "127.0.0.1:41234" of the peer. */
const char *weir_stream_peer(const struct weir_stream *stream);

/* Listens; each accepted connection goes to 'on_accept' with its fresh
 * stream (owned by the callee). Port 0: any, see weir_listener_port().
 * At most 'max' streams at once; past that, accepting pauses. */
typedef void weir_accept_fn(void *context, struct weir_stream *stream);
int weir_listener_new(struct event_base *base,
                      const struct weir_address *address, size_t max,
                      weir_accept_fn *on_accept, void *context,
                      struct weir_listener **out, struct weir_diag *diag);
uint16_t weir_listener_port(const struct weir_listener *listener);
void weir_listener_free(struct weir_listener **listener);

#endif /* WEIR_STREAM_H */
