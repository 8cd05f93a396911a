/* SPDX-License-Identifier: MIT
 * wire/resp.h - the protocol of Redis, as a server has it: requests in,
 * replies out (RESP2, RESP3, and inline commands). No sockets, no memory of its
 * own, no state between calls.
 *
 * Source: the protocol's specification, "Redis serialization protocol", and
 * what redis-server 7 answers to what isn't it. */

#ifndef WEIR_RESP_H
#define WEIR_RESP_H

#include "base/base.h"

#define WEIR_RESP_REQUEST_MAX 16384u /* bytes */
#define WEIR_RESP_ARGUMENTS_MAX 64   /* the command's name included */
#define WEIR_RESP_INLINE_MAX 4096u   /* bytes of an inline command */

struct weir_resp_request {
    size_t count; /* 0: an empty one, that nobody answers */
    /* Point into the bytes decoded, or into 'words'. */
    struct weir_text argument[WEIR_RESP_ARGUMENTS_MAX];
    char words[WEIR_RESP_INLINE_MAX]; /* of an inline command, unquoted */
};

/* The request at the beginning of 'bytes'. 1: it is whole, and '*out_used'
 * bytes long. 0: more bytes are needed, and it may yet become one. -1: it is
 * none; '*out_error' says why, as Redis does ("Protocol error: …", static). */
int weir_resp_decode(const char *bytes, size_t len,
                     struct weir_resp_request *out, size_t *out_used,
                     const char **out_error);

/* The text as a number: an optional '-' and digits, within 64 bits. */
bool weir_resp_number(struct weir_text text, int64_t *out);

/* Replies, one after the other in a buffer of the caller's. What has no room is
 * left out, and 'full' says so. */
struct weir_resp_out {
    char *p; /* borrowed */
    size_t len, size;
    uint8_t protocol; /* 2 or 3 */
    bool full;
};
void weir_resp_integer(struct weir_resp_out *out, int64_t value);
void weir_resp_simple(struct weir_resp_out *out, const char *text);
/* "ERR …"; control characters become blanks. */
void weir_resp_error(struct weir_resp_out *out, const char *text);
void weir_resp_bulk(struct weir_resp_out *out, struct weir_text text);
void weir_resp_null(struct weir_resp_out *out);
/* 'count' replies follow; of a map, 'count' pairs. */
void weir_resp_array(struct weir_resp_out *out, size_t count);
void weir_resp_map(struct weir_resp_out *out, size_t count);

#endif /* WEIR_RESP_H */
