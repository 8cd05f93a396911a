/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_http1.c - any bytes as requests of HTTP/1.1: each head lies
 * within them, and without its last byte it is incomplete. */

#include "codec/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_inside(struct weir_text text, const char *bytes, size_t len)
{
    return text.len == 0 ||
           (text.p >= bytes && text.p + text.len <= bytes + len);
}

static void check_inside(const struct weir_http1_request *request,
                         const char *bytes, size_t len)
{
    weir_assert(request->header_count <= WEIR_HTTP1_HEADERS_MAX);
    weir_assert(is_inside(request->method, bytes, len) &&
                is_inside(request->target, bytes, len));
    for (size_t i = 0; i < request->header_count; i++)
        weir_assert(is_inside(request->header[i].name, bytes, len) &&
                    is_inside(request->header[i].value, bytes, len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    size_t at = 0;
    while (at < size) {
        struct weir_http1_request request;
        size_t used = 0;
        int whole = weir_http1_head(bytes + at, size - at, &request, &used);
        if (whole <= 0)
            return 0;
        weir_assert(used > 0 && used <= size - at);
        weir_assert(used <= 2 + WEIR_HTTP1_HEAD_MAX);
        weir_assert(request.content_length <= WEIR_HTTP1_LENGTH_MAX);
        check_inside(&request, bytes + at, used);
        size_t length = request.content_length;
        size_t ignored;
        weir_assert(weir_http1_head(bytes + at, used - 1, &request, &ignored) ==
                    0);
        at += used;
        if (length > size - at)
            return 0;
        at += length;
    }
    return 0;
}
