/* SPDX-License-Identifier: MIT
 * front/http_reply.h - the reply to an HTTP request, and its bytes. */

#ifndef WEIR_HTTP_REPLY_H
#define WEIR_HTTP_REPLY_H

#include <jansson.h>

#include "codec/http1.h"
#include "front/page_file.h"

#define WEIR_HTTP_HEADERS_SIZE 4096 /* bytes of a reply's additional headers */
#define WEIR_HTTP_HEAD_SIZE (WEIR_HTTP_HEADERS_SIZE + 512) /* a whole head's */
#define WEIR_HTTP_VALUE_MAX 1024 /* bytes of a header's value, with the NUL */

struct weir_http_reply {
    int status;
    const char *type;       /* content type; static */
    const char *cache;      /* Cache-Control; static; NULL: no-store */
    json_t *json;           /* owned; NULL: the body is one of the next two */
    char *text;             /* malloc'ed, owned; NULL: the body is 'bytes' */
    struct weir_text bytes; /* borrowed until the reply is written */
    bool as_it_is;          /* without the final line end that other bodies
                             * get */
    char headers[WEIR_HTTP_HEADERS_SIZE]; /* complete lines with CRLF; "":
                                           * none */
    size_t headers_len;
};

/* Adds "name: …". A value of WEIR_HTTP_VALUE_MAX bytes or more, or with a line
 * end in it, is left out, and so is a header that doesn't fit. */
void weir_http_add_header(struct weir_http_reply *reply, const char *name,
                          const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes the reply a file of the page, in the form that 'request' accepts:
 * plain, compressed, or without a body (304). */
void weir_http_reply_file(struct weir_http_reply *reply,
                          const struct weir_page_file *file,
                          const struct weir_http1_request *request);

/* The bytes of the body, which live as long as the reply; 'json' is printed to
 * 'text'. If there is no memory for it, or was none for a part of 'json', the
 * reply becomes a problem with status 503: so the body comes before the
 * head. */
struct weir_text weir_http_reply_body(struct weir_http_reply *reply);
/* Writes the head to 'buf' of WEIR_HTTP_HEAD_SIZE bytes. 'len': bytes of the
 * body; negative: no Content-Length, and the end of the connection ends the
 * body. 'keep': the connection goes on. Returns the bytes written. */
size_t weir_http_reply_head(const struct weir_http_reply *reply, ptrdiff_t len,
                            bool keep, char *buf);
/* Frees what the reply owns. */
void weir_http_reply_fini(struct weir_http_reply *reply);

#endif /* WEIR_HTTP_REPLY_H */
