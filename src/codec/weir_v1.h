/* SPDX-License-Identifier: MIT
 * codec/weir_v1.h - weir.v1 on the wire: messages to bytes and back.
 *
 * The bytes are one protobuf message, `weir.v1.ToRoot` or `weir.v1.ToLimiter`
 * (proto/weir.proto), without the gRPC frame. */

#ifndef WEIR_WEIR_V1_H
#define WEIR_WEIR_V1_H

#include "codec/arena.h"
#include "core/counted/message.h"

/* Bytes of an arena that fits any message within the bounds of message.h: the
 * rows of a full report, or those of full wants, which are few more: the bins
 * of their windows come on top. */
#define WEIR_DECODE_ARENA_SIZE                                     \
    (2 * WEIR_ARENA_ALIGN +                                        \
     WEIR_REPORT_COUNTS_MAX * sizeof(struct weir_count) +          \
     WEIR_REPORT_ANNOUNCES_MAX * sizeof(struct weir_announce) +    \
     WEIR_WINDOWS_MAX *                                            \
         (sizeof(struct weir_want_window) + 2 * WEIR_ARENA_ALIGN + \
          WEIR_WINDOW_BINS * sizeof(struct weir_latency_count)))

/* The bytes 'message' takes. */
size_t weir_v1_size(const struct weir_message *message);

/* Encodes into 'buf' of 'size' bytes (>= weir_v1_size()). Returns the bytes
 * written, 0 if it didn't fit. */
size_t weir_v1_encode(const struct weir_message *message, void *buf,
                      size_t size);

/* Decodes into 'arena', which is set back first. Everything is checked: types,
 * bounds of message.h, names are clean UTF-8 of 1..255 bytes without NUL, slots
 * ascending, enumerations known, quotas pass weir_quota_check(). Texts point
 * into 'bytes' or 'arena', arrays into 'arena': both must outlive 'out'.
 * 'to_root': the expected direction. Returns 0, WEIR_ESYNTAX, WEIR_ETOOBIG or
 * WEIR_EPROTOCOL. */
int weir_v1_decode(const void *bytes, size_t len, bool to_root,
                   struct weir_arena *arena, struct weir_message *out);

/* ---- weir.v1.Root.Call: the administration API without HTTP ---- */

/* The paths of the two methods. */
#define WEIR_V1_LINK "/weir.v1.Root/Link"
#define WEIR_V1_CALL "/weir.v1.Root/Call"
#define WEIR_V1_METHOD_MAX 16 /* bytes of an HTTP method */
#define WEIR_V1_URL_MAX 2048  /* bytes of a path with its query */

struct weir_call_request {
    struct weir_text method; /* such as "GET" */
    struct weir_text path;   /* such as "/v1/quotas?glob=a*" */
    struct weir_text body;   /* JSON, may be empty */
};
struct weir_call_reply {
    uint32_t status;       /* as in HTTP, 100 .. 599 */
    struct weir_text body; /* JSON, may be empty */
};

/* Sizes and bytes as above: an encoder returns 0 if the bytes didn't fit. */
size_t weir_v1_request_size(const struct weir_call_request *request);
size_t weir_v1_request_encode(const struct weir_call_request *request,
                              void *buf, size_t size);
size_t weir_v1_reply_size(const struct weir_call_reply *reply);
size_t weir_v1_reply_encode(const struct weir_call_reply *reply, void *buf,
                            size_t size);
/* Texts point into 'bytes'. Method and path are printable ASCII without
 * spaces, within their bounds. Returns 0, WEIR_ESYNTAX, WEIR_ETOOBIG or
 * WEIR_EPROTOCOL. */
int weir_v1_request_decode(const void *bytes, size_t len,
                           struct weir_call_request *out);
int weir_v1_reply_decode(const void *bytes, size_t len,
                         struct weir_call_reply *out);

#endif /* WEIR_WEIR_V1_H */
