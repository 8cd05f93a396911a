/* SPDX-License-Identifier: MIT
 * io/h2.h - gRPC over HTTP/2 without sockets: bytes in, calls and messages
 * out; nghttp2 underneath. One object per connection, for both roles. The
 * owner feeds it the bytes that were read and writes the bytes that it hands
 * out. */

#ifndef WEIR_H2_H
#define WEIR_H2_H

#include "core/base/base.h"

#define WEIR_H2_STREAMS_MAX 128        /* open at once on a connection */
#define WEIR_H2_PATH_MAX 128           /* bytes of "/package.Service/Method" */
#define WEIR_H2_MESSAGE_MAX (4u << 20) /* bytes of one gRPC message */
#define WEIR_H2_OUT_MAX (16u << 20)    /* bytes queued for a slow peer */
/* Bytes of unfinished messages of all streams of a connection … */
#define WEIR_H2_IN_MAX (16u << 20)
#define WEIR_H2_OPEN_IN_MAX (64u << 10) /* … of an unauthenticated client */
/* Bytes of a header block: the headers' texts and 32 for each header. */
#define WEIR_H2_HEADERS_MAX 8192
/* Units of work for each byte fed; over it a connection is ended. */
#define WEIR_H2_WORK_FACTOR 32
#define WEIR_H2_TEXT_MAX 256          /* bytes of a status's message */
#define WEIR_H2_AUTHORIZATION_MAX 640 /* bytes of the header of that name */

/* gRPC status codes that this file sends, or derives from the end of a call. */
enum weir_grpc_status {
    WEIR_GRPC_OK = 0,
    WEIR_GRPC_CANCELLED = 1,
    WEIR_GRPC_UNKNOWN = 2,
    WEIR_GRPC_INVALID_ARGUMENT = 3,
    WEIR_GRPC_DEADLINE_EXCEEDED = 4,
    WEIR_GRPC_NOT_FOUND = 5,
    WEIR_GRPC_PERMISSION_DENIED = 7,
    WEIR_GRPC_RESOURCE_EXHAUSTED = 8,
    WEIR_GRPC_UNIMPLEMENTED = 12,
    WEIR_GRPC_INTERNAL = 13,
    WEIR_GRPC_UNAVAILABLE = 14,
    WEIR_GRPC_UNAUTHENTICATED = 16,
};

struct weir_h2;

/* Called from weir_h2_feed() and weir_h2_end(), never from the other calls;
 * may call weir_h2_send(), _finish(), _reset(), _call(); must not feed, take
 * output or free 'h2'. A stream's id is not reused on a connection. Each may
 * be NULL.
 *
 * A call that on_call accepted, or weir_h2_call() began, ends in one of two
 * ways: by weir_h2_finish() or weir_h2_reset(), after which the handler isn't
 * called for it again; or by on_close, called once, after which its id is
 * unknown. */
struct weir_h2_handler {
    void *context;
    /* server: a call began. 'authorization': the header of that name, "" if
     * there is none; borrowed, and wiped afterwards. (If it is too long or
     * comes twice, h2.c answers UNAUTHENTICATED itself.) Returns false to
     * answer UNIMPLEMENTED. */
    bool (*on_call)(void *context, struct weir_h2 *h2, int32_t stream,
                    const char *path, const char *authorization);
    /* a whole message arrived (borrowed) */
    void (*on_message)(void *context, struct weir_h2 *h2, int32_t stream,
                       const void *bytes, size_t len);
    /* server: the peer has sent all its messages (half-close) */
    void (*on_end)(void *context, struct weir_h2 *h2, int32_t stream);
    /* the call is over. Client: with the trailers' status. Both roles: with a
     * status of our own if the stream was reset or the session ended */
    void (*on_close)(void *context, struct weir_h2 *h2, int32_t stream,
                     int grpc_status, const char *message);
    /* server: a message is over the bound, and its rest isn't read. Returns
     * false, or it is NULL, to answer RESOURCE_EXHAUSTED; true: the handler has
     * ended the call */
    bool (*on_too_big)(void *context, struct weir_h2 *h2, int32_t stream);
};

struct weir_h2 *weir_h2_new(bool server, const struct weir_h2_handler *);
void weir_h2_free(struct weir_h2 **h2);

/* Feeds bytes read. 0 bytes are legal: feed them after the output was taken,
 * since writing can end calls too, and their on_close is called here. 0, or
 * WEIR_EPROTOCOL / WEIR_ENOMEM: write the output that is left, then close the
 * connection. */
int weir_h2_feed(struct weir_h2 *h2, const void *bytes, size_t len);

/* The connection is gone: calls on_close (WEIR_GRPC_UNAVAILABLE, 'why') for
 * every open call. */
void weir_h2_end(struct weir_h2 *h2, const char *why);

/* Bytes to write, or 0 when there are none. Borrowed until the next call. */
size_t weir_h2_output(struct weir_h2 *h2, const void **out_bytes);

/* Client: begins a call. 'authorization' is sent as the header of that name
 * ("Bearer …"; NULL: none) and never indexed in the connection's header table.
 * Returns the stream's id or WEIR_ECLOSED (the session is ending), WEIR_EFULL
 * (WEIR_H2_STREAMS_MAX), WEIR_EINVAL, WEIR_ENOMEM. */
int32_t weir_h2_call(struct weir_h2 *h2, const char *path,
                     const char *authority, const char *authorization);
/* Queues one message, framed here. 'last': half-close after it (client).
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
/* Server: the client is authenticated, or needn't be: its messages may take
 * WEIR_H2_IN_MAX bytes from now on instead of WEIR_H2_OPEN_IN_MAX. */
void weir_h2_set_authenticated(struct weir_h2 *h2);
/* Bytes queued and not yet handed out: for flow control. */
size_t weir_h2_queued(const struct weir_h2 *h2);
/* The bound that the peer broke, as a static text; NULL: none. */
const char *weir_h2_breach(const struct weir_h2 *h2);
/* The cost of the peer's bytes, in units: a byte is one, and a frame, a header
 * and a call have a price each; a call that ends with WEIR_GRPC_OK has none.
 * Never over WEIR_H2_WORK_FACTOR times the bytes fed and 256 Ki, except by the
 * cost of the feed that broke the bound. */
uint64_t weir_h2_work(const struct weir_h2 *h2);
/* No streams and no output left, or the session is over. */
bool weir_h2_idle(const struct weir_h2 *h2);
/* The session failed, or one side sent GOAWAY and the last stream is gone. */
bool weir_h2_is_over(const struct weir_h2 *h2);
/* Sends a PING, to notice a dead peer; _pong(): whether the last one was
 * answered. */
void weir_h2_ping(struct weir_h2 *h2);
bool weir_h2_pong(const struct weir_h2 *h2);

#endif /* WEIR_H2_H */
