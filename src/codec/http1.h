/* SPDX-License-Identifier: MIT
 * codec/http1.h - the heads of requests of HTTP/1.0 and 1.1 (RFC 9110, RFC
 * 9112), from bytes in memory. No sockets, no allocation, no state between
 * calls.
 *
 * A head says how many bytes of body follow, so that the caller can decide
 * whether to read them.
 *
 * Strict where two readers could disagree about where a request ends: line ends
 * are CRLF, a length has only digits and comes once, no folded headers, no
 * blank before a colon. A target is a path or '*' in visible ASCII (of a
 * CONNECT: any). Chunked bodies are refused (411). */

#ifndef WEIR_HTTP1_H
#define WEIR_HTTP1_H

#include "core/base/base.h"

#define WEIR_HTTP1_HEAD_MAX 16384u   /* bytes, with the empty line */
#define WEIR_HTTP1_TARGET_MAX 12288u /* bytes, with the query */
#define WEIR_HTTP1_HEADERS_MAX 64    /* lines */
#define WEIR_HTTP1_LENGTH_MAX \
    (1u << 30) /* bytes of a body; the caller has a bound of its own */

struct weir_http1_header {
    struct weir_text name, value; /* value without blanks around it */
};

/* Texts point into the bytes decoded. */
struct weir_http1_request {
    struct weir_text method, target;
    size_t content_length; /* bytes of body behind the head */
    bool keep;             /* another request may follow on the connection */
    bool expects;          /* Expect: 100-continue; the client sends the body
                            * after a 100 response */
    size_t header_count;
    struct weir_http1_header header[WEIR_HTTP1_HEADERS_MAX];
};

/* Decodes the head at the beginning of 'bytes'. 1: it is complete, and
 * '*out_used' bytes long with its empty line. 0: more bytes are needed. Else
 * the negative HTTP status to refuse it with (-400, -411, -413, -414, -431,
 * -501, -505); the start of the next request is then unknown. */
int weir_http1_head(const char *bytes, size_t len,
                    struct weir_http1_request *out, size_t *out_used);
/* The value of the first header of that name, in upper or lower case; false:
 * there is none. */
bool weir_http1_header(const struct weir_http1_request *request,
                       const char *name, struct weir_text *out);
/* "Not Found" …; static. */
const char *weir_http1_reason(int status);

#endif /* WEIR_HTTP1_H */
