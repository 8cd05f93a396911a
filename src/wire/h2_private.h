/* SPDX-License-Identifier: MIT
 * wire/h2_private.h - the state of a session of gRPC, and its streams. */

#ifndef WEIR_H2_PRIVATE_H
#define WEIR_H2_PRIVATE_H

#include <nghttp2/nghttp2.h>

#include "wire/byte_queue.h"
#include "wire/grpc_frame.h"
#include "wire/h2.h"

#define WEIR_H2_RECENT 64 /* streams that are found at once */

struct stream {
    struct stream *next, **self; /* the pointer to this one */
    int32_t id;
    bool began;    /* the handler knows of it */
    bool over;     /* nothing more is told to the handler */
    bool answered; /* server: the response's headers are on their way */
    bool ending;   /* after 'out' comes the end of our half */
    /* of the peer's headers */
    char path[WEIR_H2_PATH_MAX + 1];
    char text[WEIR_H2_TEXT_MAX]; /* grpc-message, either way */
    bool is_post;
    bool is_grpc; /* content-type */
    bool has_te;
    bool path_too_long;
    bool bad_authorization; /* too long, or a second one */
    char *authorization;    /* owned; NULL: none; gone after on_call */
    bool encoded;           /* grpc-encoding other than identity */
    int http_status;
    int grpc_status; /* either way; -1: none */
    struct weir_grpc_reader in;
    struct weir_byte_queue out;
};

struct weir_h2 {
    nghttp2_session *session;
    struct weir_h2_handler handler;
    bool server;
    bool feeding; /* handlers may be called */
    bool pong;
    bool goaway;        /* one side said so */
    int failed;         /* enum weir_error of the session's end */
    const char *breach; /* of a bound, for people; NULL: none */
    size_t block;       /* bytes of the header block, decoded so far */
    uint64_t fed;       /* bytes */
    uint64_t work;      /* units */
    struct stream *streams;
    struct stream *recent[WEIR_H2_RECENT]; /* by id; NULL, or one of those */
    struct stream *closed; /* whose on_close is still to be told */
    size_t stream_count;
    size_t queued;  /* bytes in the streams' queues */
    size_t partial; /* bytes in the streams' readers … */
    size_t in_max;  /* … and their bound */
    struct weir_byte_queue out;
};

/* NULL: there is none of that id. */
struct stream *weir_h2_find_stream(struct weir_h2 *h2, int32_t id);
/* NULL: there are WEIR_H2_STREAMS_MAX, or no memory. */
struct stream *weir_h2_new_stream(struct weir_h2 *h2, int32_t id);
/* Overwrites and frees the credential: no secret stays in memory longer than
 * it is needed. */
void weir_h2_wipe_authorization(struct stream *stream);
/* Out of the list; the caller frees it. */
void weir_h2_unlink_stream(struct weir_h2 *h2, struct stream *stream);

#endif /* WEIR_H2_PRIVATE_H */
