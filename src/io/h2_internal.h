/* SPDX-License-Identifier: MIT
 * io/h2_internal.h - the state of a gRPC session and its streams. */

#ifndef WEIR_H2_INTERNAL_H
#define WEIR_H2_INTERNAL_H

#include <nghttp2/nghttp2.h>

#include "io/grpc_frame.h"
#include "io/h2.h"

#define WEIR_H2_RECENT 64 /* streams found without a search */

struct stream {
    struct stream *next, **self; /* 'self': the pointer that points to this
                                  * one */
    int32_t id;
    bool began;    /* the handler knows the stream */
    bool over;     /* the handler isn't called for it again */
    bool answered; /* server: the response's headers are submitted */
    bool ending;   /* our half ends after 'out' */
    /* of the peer's headers */
    char path[WEIR_H2_PATH_MAX + 1];
    char text[WEIR_H2_TEXT_MAX]; /* grpc-message, either way */
    bool is_post;
    bool is_grpc; /* by its content-type */
    bool has_te;
    bool path_too_long;
    bool bad_authorization; /* too long, or a second one */
    char *authorization;    /* owned; NULL: none; gone after on_call */
    bool encoded;           /* grpc-encoding other than identity */
    int http_status;
    int grpc_status; /* sent or received; -1: none */
    struct weir_grpc_reader in;
    struct weir_byte_queue out;
};

struct weir_h2 {
    nghttp2_session *session; /* in 'blocks'; not used once 'failed' */
    struct block *blocks;     /* owned; h2_memory.c */
    struct weir_h2_handler handler;
    bool server;
    bool feeding; /* handlers may be called */
    bool pong;
    bool goaway;        /* one side sent GOAWAY */
    int failed;         /* the enum weir_error that ended the session */
    const char *breach; /* the bound that was broken, as text; NULL: none */
    size_t block;       /* bytes of the header block, decoded so far */
    uint64_t fed;       /* bytes */
    uint64_t work;      /* units */
    struct stream *streams;
    struct stream *recent[WEIR_H2_RECENT]; /* by id; NULL, or one of
                                            * 'streams' */
    struct stream *closed;                 /* on_close not called yet */
    size_t stream_count;
    size_t queued;  /* bytes in the streams' queues */
    size_t partial; /* bytes in the streams' readers … */
    size_t in_max;  /* … and their bound */
    struct weir_byte_queue out;
};

/* NULL: no stream has that id. */
struct stream *weir_h2_find_stream(struct weir_h2 *h2, int32_t id);
/* NULL: WEIR_H2_STREAMS_MAX streams are open, or no memory. */
struct stream *weir_h2_new_stream(struct weir_h2 *h2, int32_t id);
/* The allocator of the session. An allocation that fails sets 'failed'. */
nghttp2_mem weir_h2_memory(struct weir_h2 *h2);
/* Frees all that it has allocated, and so the session. */
void weir_h2_free_memory(struct weir_h2 *h2);
/* Overwrites and frees the credential, so that no secret stays in memory longer
 * than needed. */
void weir_h2_wipe_authorization(struct stream *stream);
/* Takes the stream out of the list; the caller frees it. */
void weir_h2_unlink_stream(struct weir_h2 *h2, struct stream *stream);

#endif /* WEIR_H2_INTERNAL_H */
