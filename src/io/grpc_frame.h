/* SPDX-License-Identifier: MIT
 * io/grpc_frame.h - gRPC's frame around a message: a flag, four bytes of
 * length, the message. Only h2.c uses it. */

#ifndef WEIR_GRPC_FRAME_H
#define WEIR_GRPC_FRAME_H

#include "io/byte_queue.h"

#define WEIR_GRPC_HEAD 5 /* bytes before a message */

/* Zeroed: nothing read yet. */
struct weir_grpc_reader {
    uint8_t head[WEIR_GRPC_HEAD];
    size_t head_len;
    struct weir_byte_queue body; /* a message that comes in pieces */
};

enum weir_grpc_read {
    WEIR_GRPC_MORE,       /* all bytes were taken, no message is complete */
    WEIR_GRPC_MESSAGE,    /* 'out_…' has one; call again with the rest */
    WEIR_GRPC_COMPRESSED, /* the flag is set, but we offered no compression */
    WEIR_GRPC_BROKEN,     /* a flag other than 0 and 1 */
    WEIR_GRPC_TOO_BIG,    /* longer than 'max' */
    WEIR_GRPC_NO_MEMORY,
};

/* Takes the bytes that it needs from '*bytes'. The message is borrowed until
 * the next call; a message that came whole lies in '*bytes'. */
enum weir_grpc_read weir_grpc_read(struct weir_grpc_reader *reader,
                                   struct weir_text *bytes, size_t max,
                                   struct weir_text *out_message);
/* Whether a message has begun and not ended. */
bool weir_grpc_is_partial(const struct weir_grpc_reader *reader);
void weir_grpc_reader_fini(struct weir_grpc_reader *reader);

/* Writes WEIR_GRPC_HEAD bytes. */
void weir_grpc_head(uint8_t *head, size_t len);

/* `grpc-message`: percent-encoded. The encoder writes at most 'size' bytes
 * and returns how many; the decoder writes at most size - 1 and a NUL. */
size_t weir_grpc_escape(const char *text, char *buf, size_t size);
void weir_grpc_unescape(struct weir_text text, char *buf, size_t size);

/* "application/grpc", with "+proto" and parameters or without. */
bool weir_grpc_is_type(struct weir_text content_type);
/* A decimal number of at most three digits; -1 for anything else. */
int weir_grpc_number(struct weir_text text);
/* The gRPC status that an HTTP status stands for if no grpc-status came. */
int weir_grpc_status_of_http(int http_status);

#endif /* WEIR_GRPC_FRAME_H */
