/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_http1.c - any bytes as requests of HTTP/1.1: each head lies
 * within them, and without its last byte it is incomplete. In an accepted head,
 * llhttp (strict) finds the same method, target, headers and body length, ends
 * the head at the same byte, and keeps the connection if Weir does.
 *
 * Weir refuses more:
 *  - a body in chunks, and any other Transfer-Encoding (411, 501);
 *  - heads above its bounds (413, 414, 431), versions but 1.0 and 1.1 (505);
 *  - a line that ends in LF alone, and a folded header;
 *  - HTTP/1.1 without a Host, and more than one Host;
 *  - an Expect that isn't 100-continue.
 *  - a target that is neither a path nor '*' (but for CONNECT).
 * It closes the connection after a request of HTTP/1.0, even if that says
 * keep-alive, and after a 'close' with a tab behind it. llhttp refuses more in
 * these cases:
 *  - it has a list of methods, where Weir's callers answer 501;
 *  - CONNECT, PRI and SOURCE have targets and versions of their own;
 *  - a tab behind the digits of a length, which RFC 9110 allows. */

#include <string.h>
#include <strings.h>

#include <llhttp.h>

#include "codec/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The parts that llhttp has found in a head. */
struct theirs {
    const struct weir_http1_request *ours;
    size_t target_len; /* bytes so far, as the next two */
    size_t header;
    size_t name_len, value_len;
    bool is_whole;
};

/* Whether the bytes are the next of 'text', after 'at' of them. */
static bool is_next(struct weir_text text, size_t at, const char *bytes,
                    size_t len)
{
    return at + len <= text.len && memcmp(text.p + at, bytes, len) == 0;
}

static int on_url(llhttp_t *parser, const char *at, size_t len)
{
    struct theirs *theirs = parser->data;
    weir_assert(is_next(theirs->ours->target, theirs->target_len, at, len));
    theirs->target_len += len;
    return 0;
}

static int on_field(llhttp_t *parser, const char *at, size_t len)
{
    struct theirs *theirs = parser->data;
    weir_assert(theirs->header < theirs->ours->header_count);
    weir_assert(is_next(theirs->ours->header[theirs->header].name,
                        theirs->name_len, at, len));
    theirs->name_len += len;
    return 0;
}

/* llhttp leaves the blanks behind a value to its caller. */
static int on_value(llhttp_t *parser, const char *at, size_t len)
{
    struct theirs *theirs = parser->data;
    struct weir_text value = theirs->ours->header[theirs->header].value;
    size_t left = value.len - theirs->value_len;
    size_t own = len < left ? len : left;
    weir_assert(is_next(value, theirs->value_len, at, own));
    for (size_t i = own; i < len; i++)
        weir_assert(at[i] == ' ' || at[i] == '\t');
    theirs->value_len += own;
    return 0;
}

static int on_value_complete(llhttp_t *parser)
{
    struct theirs *theirs = parser->data;
    const struct weir_http1_header *ours =
        &theirs->ours->header[theirs->header++];
    weir_assert(theirs->name_len == ours->name.len &&
                theirs->value_len == ours->value.len);
    theirs->name_len = theirs->value_len = 0;
    return 0;
}

static int on_headers_complete(llhttp_t *parser)
{
    struct theirs *theirs = parser->data;
    const struct weir_http1_request *ours = theirs->ours;
    const char *method = llhttp_method_name((llhttp_method_t)parser->method);
    bool keep = llhttp_should_keep_alive(parser);
    weir_assert(weir_text_equal(ours->method, weir_text_of(method)));
    weir_assert(theirs->target_len == ours->target.len);
    weir_assert(theirs->header == ours->header_count);
    weir_assert((parser->flags & F_CHUNKED) == 0);
    weir_assert(
        ours->content_length ==
        (parser->flags & F_CONTENT_LENGTH ? parser->content_length : 0));
    weir_assert(parser->http_major == 1);
    weir_assert(!ours->keep || (keep && parser->http_minor == 1));
    theirs->is_whole = true;
    return HPE_PAUSED;
}

/* Whether llhttp knows the method, as one with a usual target. */
static bool is_known(struct weir_text method)
{
    static const char *const others[] = { "CONNECT", "PRI", "SOURCE" };
    for (size_t i = 0; i < WEIR_COUNT_OF(others); i++)
        if (weir_text_equal(method, weir_text_of(others[i])))
            return false;
    for (int i = HTTP_DELETE; i <= HTTP_SOURCE; i++) {
        const char *name = llhttp_method_name((llhttp_method_t)i);
        if (weir_text_equal(method, weir_text_of(name)))
            return true;
    }
    return false;
}

static void compare_head(const struct weir_http1_request *ours,
                         const char *bytes, size_t len)
{
    static const llhttp_settings_t settings = {
        .on_url = on_url,
        .on_header_field = on_field,
        .on_header_value = on_value,
        .on_header_value_complete = on_value_complete,
        .on_headers_complete = on_headers_complete,
    };
    struct theirs theirs = { .ours = ours };
    llhttp_t parser;
    llhttp_init(&parser, HTTP_REQUEST, &settings);
    parser.data = &theirs;
    llhttp_errno_t error = llhttp_execute(&parser, bytes, len - 1);
    if (error == HPE_INVALID_CONTENT_LENGTH &&
        *llhttp_get_error_pos(&parser) == '\t')
        return;
    weir_assert(error == HPE_OK && !theirs.is_whole);
    error = llhttp_execute(&parser, bytes + len - 1, 1);
    weir_assert(theirs.is_whole);
}

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
        struct weir_http1_request request, cut;
        size_t used = 0;
        int whole = weir_http1_head(bytes + at, size - at, &request, &used);
        if (whole <= 0)
            return 0;
        weir_assert(used > 0 && used <= size - at);
        weir_assert(used <= 2 + WEIR_HTTP1_HEAD_MAX);
        weir_assert(request.content_length <= WEIR_HTTP1_LENGTH_MAX);
        check_inside(&request, bytes + at, used);
        size_t ignored;
        weir_assert(weir_http1_head(bytes + at, used - 1, &cut, &ignored) == 0);
        if (is_known(request.method))
            compare_head(&request, bytes + at, used);
        at += used;
        if (request.content_length > size - at)
            return 0;
        at += request.content_length;
    }
    return 0;
}
