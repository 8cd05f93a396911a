/* SPDX-License-Identifier: MIT
 * front/http_reply.c - headers, bodies, files of the page.
 *
 * A reply holds its additional headers as text in a block of fixed size: a
 * header needs no allocation. A value with a line end in it is left out, so no
 * value can inject a header. */

#include "front/http_reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/json_text.h"

/* Precision of numbers: seconds since the machine's start to a microsecond. */
#define FORM (JSON_COMPACT | JSON_REAL_PRECISION(12))

void weir_http_add_header(struct weir_http_reply *reply, const char *name,
                          const char *format, ...)
{
    char value[WEIR_HTTP_VALUE_MAX];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    if (len < 0 || len >= WEIR_HTTP_VALUE_MAX || strpbrk(value, "\r\n"))
        return;
    weir_assert(reply->headers_len < sizeof reply->headers);
    size_t room = sizeof reply->headers - reply->headers_len;
    len = snprintf(reply->headers + reply->headers_len, room, "%s: %s\r\n",
                   name, value);
    if (len > 0 && (size_t)len < room)
        reply->headers_len += (size_t)len;
    reply->headers[reply->headers_len] = '\0';
}

static bool has(const struct weir_http1_request *request, const char *name,
                const char *what)
{
    struct weir_text value;
    return weir_http1_header(request, name, &value) &&
           memmem(value.p, value.len, what, strlen(what)) != NULL;
}

void weir_http_reply_file(struct weir_http_reply *reply,
                          const struct weir_page_file *file,
                          const struct weir_http1_request *request)
{
    bool gzip = has(request, "Accept-Encoding", "gzip");
    reply->type = file->type;
    reply->cache = "no-cache";
    weir_http_add_header(reply, "ETag", "%s", file->etag);
    weir_http_add_header(reply, "Vary", "Accept-Encoding");
    if (has(request, "If-None-Match", file->etag)) {
        reply->status = 304;
        return;
    }
    weir_http_add_header(reply, "Content-Security-Policy", "%s",
                         WEIR_PAGE_POLICY);
    weir_http_add_header(reply, "Referrer-Policy", "no-referrer");
    if (gzip)
        weir_http_add_header(reply, "Content-Encoding", "gzip");
    reply->as_it_is = true;
    reply->bytes = (struct weir_text){
        .p = (const char *)(gzip ? file->gzip : file->plain),
        .len = gzip ? file->gzip_len : file->plain_len,
    };
}

static bool is_json(const struct weir_http_reply *reply)
{
    return reply->status != 304 &&
           (strcmp(reply->type, "application/json") == 0 ||
            strcmp(reply->type, "application/problem+json") == 0);
}

static void answer_without_memory(struct weir_http_reply *reply)
{
    json_decref(reply->json);
    reply->json = NULL;
    reply->status = 503;
    reply->type = "application/problem+json";
    reply->bytes = WEIR_TEXT(WEIR_JSON_ENOMEM);
}

struct weir_text weir_http_reply_body(struct weir_http_reply *reply)
{
    if (reply->json && !reply->text && !reply->bytes.p)
        reply->text = weir_json_print(reply->json, FORM);
    if (reply->text)
        return weir_text_of(reply->text);
    /* JSON that was not made or not printed: there was no memory. */
    if (!reply->bytes.p && is_json(reply))
        answer_without_memory(reply);
    return reply->bytes.p ? reply->bytes : WEIR_TEXT("");
}

size_t weir_http_reply_head(const struct weir_http_reply *reply, ptrdiff_t len,
                            bool keep, char *buf)
{
    char length[64] = "";
    if (len >= 0)
        snprintf(length, sizeof length, "Content-Length: %td\r\n", len);
    int size =
        snprintf(buf, WEIR_HTTP_HEAD_SIZE,
                 "HTTP/1.1 %d %s\r\n"
                 "Content-Type: %s\r\n"
                 "%sCache-Control: %s\r\n"
                 "X-Content-Type-Options: nosniff\r\n"
                 "%s%s\r\n",
                 reply->status, weir_http1_reason(reply->status), reply->type,
                 length, reply->cache ? reply->cache : "no-store",
                 reply->headers, keep ? "" : "Connection: close\r\n");
    weir_assert(size > 0 && size < WEIR_HTTP_HEAD_SIZE);
    return (size_t)size;
}

void weir_http_reply_fini(struct weir_http_reply *reply)
{
    json_decref(reply->json);
    free(reply->text);
    reply->json = NULL;
    reply->bytes = (struct weir_text){ NULL, 0 };
    reply->text = NULL;
}
