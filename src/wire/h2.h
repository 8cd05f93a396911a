/* SPDX-License-Identifier: MIT
 * wire/h2.h - gRPC over HTTP/2 without sockets: bytes in, calls and messages
 * out; nghttp2 underneath. One object a connection, both roles. The owner
 * pumps it: feed what was read, write what it hands out. */

#ifndef WEIR_H2_H
#define WEIR_H2_H

#include "base/base.h"

#define WEIR_H2_STREAMS_MAX 128        /* at once on a connection */
#define WEIR_H2_PATH_MAX 128           /* bytes of "/package.Service/Method" */
#define WEIR_H2_MESSAGE_MAX (4u << 20) /* bytes of one gRPC message */
#define WEIR_H2_OUT_MAX (16u << 20)    /* bytes queued for a slow peer */

/* gRPC status codes that we send. */
enum weir_grpc_status {
    WEIR_GRPC_OK = 0,
    WEIR_GRPC_INVALID_ARGUMENT = 3,
    WEIR_GRPC_DEADLINE_EXCEEDED = 4,
    WEIR_GRPC_RESOURCE_EXHAUSTED = 8,
    WEIR_GRPC_UNIMPLEMENTED = 12,
    WEIR_GRPC_INTERNAL = 13,
    WEIR_GRPC_UNAVAILABLE = 14,
    WEIR_GRPC_UNAUTHENTICATED = 16,
};

struct weir_h2;

/* Called from weir_h2_feed(), never from the other calls; may call
 * weir_h2_send(), _finish(), _call(); must not free 'h2'. A stream's id is
 * not reused on a connection. */
struct weir_h2_handler {
    void *context;
    /* server: a call began. Returns false to answer UNIMPLEMENTED. */
    bool (*on_call)(void *context, struct weir_h2 *h2, int32_t stream,
                    const char *path);
    /* a whole message arrived (borrowed) */
    void (*on_message)(void *context, struct weir_h2 *h2, int32_t stream,
                       const void *bytes, size_t len);
    /* server: the peer has sent all (half-close) */
    void (*on_end)(void *context, struct weir_h2 *h2, int32_t stream);
    /* the call is over: client: with the status of the trailers; both: with
     * a status of our own when the stream was reset or the session ended */
    void (*on_close)(void *context, struct weir_h2 *h2, int32_t stream,
                     int grpc_status, const char *message);
};

struct weir_h2 *weir_h2_new(bool server, const struct weir_h2_handler *);
void weir_h2_free(struct weir_h2 **h2);

/* Feeds bytes read. 0, or WEIR_EPROTOCOL / WEIR_ETOOBIG: the connection is
 * to be closed (after writing what is still handed out). */
int weir_h2_feed(struct weir_h2 *h2, const void *bytes, size_t len);

/* Bytes to write, or 0 when there are none. Borrowed until the next call. */
size_t weir_h2_output(struct weir_h2 *h2, const void **out_bytes);

/* Client: begins a call; returns its stream id or a negative error. */
int32_t weir_h2_call(struct weir_h2 *h2, const char *path,
                     const char *authority);
/* Queues one message (framed here). 'last': half-close after it (client).
 * WEIR_ENOENT: no such stream; WEIR_ETOOBIG; WEIR_EFULL: over
 * WEIR_H2_OUT_MAX. */
int weir_h2_send(struct weir_h2 *h2, int32_t stream, const void *bytes,
                 size_t len, bool last);
/* Server: ends a call with a status and a message (may be NULL). */
int weir_h2_finish(struct weir_h2 *h2, int32_t stream, int grpc_status,
                   const char *message);
/* Abandons a stream. */
void weir_h2_reset(struct weir_h2 *h2, int32_t stream);
/* Begins a graceful end: GOAWAY, no new calls. */
void weir_h2_shutdown(struct weir_h2 *h2);
/* Bytes queued and not yet handed out: for flow control. */
size_t weir_h2_queued(const struct weir_h2 *h2);
/* No streams, nothing to write, or the session is over. */
bool weir_h2_idle(const struct weir_h2 *h2);
/* PING, to notice a dead peer; true once the last ping was answered. */
void weir_h2_ping(struct weir_h2 *h2);
bool weir_h2_pong(const struct weir_h2 *h2);

#endif /* WEIR_H2_H */
