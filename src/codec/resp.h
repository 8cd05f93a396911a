/* SPDX-License-Identifier: MIT
 * codec/resp.h - the server's half of the Redis protocol: reads requests,
 * writes replies (RESP2, RESP3 and inline commands). No sockets, no
 * allocation, no state between calls.
 *
 * Source: the protocol's specification, "Redis serialization protocol", and
 * redis-server 7's answers to malformed requests. */

#ifndef WEIR_RESP_H
#define WEIR_RESP_H

#include "core/base/base.h"

#define WEIR_RESP_REQUEST_MAX 16384u /* bytes */
#define WEIR_RESP_ARGUMENTS_MAX 64   /* with the command's name */
#define WEIR_RESP_INLINE_MAX 4096u   /* bytes of an inline command */

struct weir_resp_request {
    size_t count; /* 0: an empty request, which gets no reply */
    /* They point into the bytes decoded, or into 'words'. */
    struct weir_text argument[WEIR_RESP_ARGUMENTS_MAX];
    char words[WEIR_RESP_INLINE_MAX]; /* of an inline command, unquoted */
};

/* Decodes the request at the beginning of 'bytes'. 1: it is complete, and
 * '*out_used' bytes long. 0: more bytes are needed. -1: it is malformed;
 * '*out_error' is Redis's sentence ("Protocol error: …", static). */
int weir_resp_decode(const char *bytes, size_t len,
                     struct weir_resp_request *out, size_t *out_used,
                     const char **out_error);

/* Parses a number: an optional '-' and digits, within 64 bits. */
bool weir_resp_number(struct weir_text text, int64_t *out);

/* Replies, one after the other in a buffer of the caller's. A reply that
 * doesn't fit is left out, and 'full' is set. */
struct weir_resp_out {
    char *p; /* borrowed */
    size_t len, size;
    uint8_t protocol; /* 2 or 3 */
    bool full;
};
void weir_resp_integer(struct weir_resp_out *out, int64_t value);
void weir_resp_simple(struct weir_resp_out *out, const char *text);
/* "ERR …"; control characters are replaced by blanks. */
void weir_resp_error(struct weir_resp_out *out, const char *text);
void weir_resp_bulk(struct weir_resp_out *out, struct weir_text text);
void weir_resp_null(struct weir_resp_out *out);
/* 'count' replies follow; after a map's head, 'count' pairs. */
void weir_resp_array(struct weir_resp_out *out, size_t count);
void weir_resp_map(struct weir_resp_out *out, size_t count);

#endif /* WEIR_RESP_H */
