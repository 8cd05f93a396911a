/* SPDX-License-Identifier: MIT
 * codec/http1.c - a request line and headers.
 *
 * Theory of operation. Each call begins at the first byte: a whole head is
 * decoded at once, and nothing is remembered of an incomplete one. Only the
 * search for the head's end is repeated, and the head has a bound.
 *
 * Why not libevent's evhttp: it accepts differing lengths, signs, folded lines
 * and blanks before a colon, reads a whole body before it asks the handler,
 * doesn't bound its connections, and a connection costs as much as a hundred
 * decisions.
 *
 * Source: RFC 9110 (methods, fields), RFC 9112 (messages; section 6.3 on
 * lengths, 11.2 on request smuggling). */

#include "codec/http1.h"

#include <string.h>
#include <strings.h>

static bool is_token_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_http_token(struct weir_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!is_token_byte(text.p[i]))
            return false;
    return text.len > 0;
}

/* Visible bytes, blanks, tabs and bytes that aren't ASCII. */
static bool is_value(struct weir_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if ((c < ' ' && c != '\t') || c == 127)
            return false;
    }
    return true;
}

/* A path with its query, or '*', in visible ASCII. A CONNECT, which nothing
 * answers, names a host. A target that begins with a scheme is for proxies: it
 * would make the Host header a second opinion. */
static bool is_target(struct weir_text method, struct weir_text target)
{
    for (size_t i = 0; i < target.len; i++)
        if (target.p[i] <= ' ' || target.p[i] > '~')
            return false;
    return target.len > 0 &&
           (target.p[0] == '/' || weir_text_equal(target, WEIR_TEXT("*")) ||
            weir_text_equal(method, WEIR_TEXT("CONNECT")));
}

static struct weir_text trim(struct weir_text text)
{
    while (text.len > 0 && (text.p[0] == ' ' || text.p[0] == '\t')) {
        text.p++;
        text.len--;
    }
    while (text.len > 0 &&
           (text.p[text.len - 1] == ' ' || text.p[text.len - 1] == '\t'))
        text.len--;
    return text;
}

static bool is_head_word(struct weir_text text, const char *word)
{
    return text.len == strlen(word) && strncasecmp(text.p, word, text.len) == 0;
}

/* The next line of '*rest', without its CRLF; false: the line isn't
 * complete. */
static bool next_head_line(struct weir_text *rest, struct weir_text *out)
{
    const char *end = memchr(rest->p, '\n', rest->len);
    if (!end || end == rest->p || end[-1] != '\r')
        return false;
    size_t len = (size_t)(end - rest->p);
    *out = (struct weir_text){ rest->p, len - 1 };
    rest->p += len + 1;
    rest->len -= len + 1;
    return true;
}

/* The text up to the next blank, which is skipped. */
static struct weir_text cut_head_word(struct weir_text *line)
{
    const char *blank = memchr(line->p, ' ', line->len);
    size_t len = blank ? (size_t)(blank - line->p) : line->len;
    struct weir_text word = { line->p, len };
    line->p += blank ? len + 1 : len;
    line->len -= blank ? len + 1 : len;
    return word;
}

static int decode_first(struct weir_text line, struct weir_http1_request *out)
{
    out->method = cut_head_word(&line);
    out->target = cut_head_word(&line);
    if (!is_http_token(out->method) || !is_target(out->method, out->target))
        return -400;
    if (out->target.len > WEIR_HTTP1_TARGET_MAX)
        return -414;
    if (line.len != 8 || memcmp(line.p, "HTTP/", 5) != 0)
        return -400;
    out->keep = memcmp(line.p, "HTTP/1.1", 8) == 0;
    return out->keep || memcmp(line.p, "HTTP/1.0", 8) == 0 ? 0 : -505;
}

static int decode_header(struct weir_text line, struct weir_http1_request *out)
{
    const char *colon = memchr(line.p, ':', line.len);
    if (out->header_count == WEIR_HTTP1_HEADERS_MAX)
        return -431;
    if (!colon)
        return -400;
    size_t len = (size_t)(colon - line.p);
    struct weir_http1_header header = {
        .name = { line.p, len },
        .value = trim((struct weir_text){ colon + 1, line.len - len - 1 }),
    };
    if (!is_http_token(header.name) || !is_value(header.value))
        return -400;
    out->header[out->header_count++] = header;
    return 0;
}

static int decode_length(struct weir_text value, size_t *out)
{
    size_t length = 0;
    if (value.len == 0)
        return -400;
    for (size_t i = 0; i < value.len; i++) {
        if (value.p[i] < '0' || value.p[i] > '9')
            return -400;
        length = length * 10 + (size_t)(value.p[i] - '0');
        if (length > WEIR_HTTP1_LENGTH_MAX)
            return -413;
    }
    *out = length;
    return 0;
}

/* Whether a list of words, such as Connection's value, holds this word. */
static bool has_word(struct weir_text list, const char *word)
{
    while (list.len > 0) {
        const char *comma = memchr(list.p, ',', list.len);
        size_t len = comma ? (size_t)(comma - list.p) : list.len;
        if (is_head_word(trim((struct weir_text){ list.p, len }), word))
            return true;
        len += comma != NULL;
        list.p += len;
        list.len -= len;
    }
    return false;
}

/* Counts of the headers that may come only once. */
struct seen {
    unsigned lengths, hosts;
};

/* Applies a header that is about the message itself. */
static int note_header(const struct weir_http1_header *header,
                       struct weir_http1_request *out, struct seen *seen)
{
    struct weir_text value = header->value;
    if (is_head_word(header->name, "Transfer-Encoding"))
        return is_head_word(value, "chunked") ? -411 : -501;
    if (is_head_word(header->name, "Expect")) {
        out->expects = is_head_word(value, "100-continue");
        return out->expects ? 0 : -400;
    }
    if (is_head_word(header->name, "Connection")) {
        /* An HTTP/1.0 connection isn't kept open. */
        out->keep = out->keep && !has_word(value, "close");
        return 0;
    }
    seen->hosts += is_head_word(header->name, "Host");
    if (!is_head_word(header->name, "Content-Length"))
        return 0;
    return seen->lengths++ > 0 ? -400
                               : decode_length(value, &out->content_length);
}

static int decode_head(struct weir_text head, struct weir_http1_request *out)
{
    struct weir_text line;
    struct seen seen = { .lengths = 0 };
    if (!next_head_line(&head, &line))
        return -400;
    int status = decode_first(line, out);
    bool is_new = out->keep;
    while (status == 0) {
        if (!next_head_line(&head, &line))
            return -400;
        if (line.len == 0)
            break;
        status = decode_header(line, out);
        if (status == 0)
            status =
                note_header(&out->header[out->header_count - 1], out, &seen);
    }
    if (status == 0 && (seen.hosts > 1 || (is_new && seen.hosts == 0)))
        return -400;
    out->expects = out->expects && is_new; /* RFC 9110, 10.1.1 */
    return status;
}

/* Bytes of the head, with its empty line; 0: it is incomplete; -400: a line
 * ends without CR, which later bytes can't mend. */
static int find_head_size(const char *bytes, size_t len)
{
    size_t most = len < WEIR_HTTP1_HEAD_MAX ? len : WEIR_HTTP1_HEAD_MAX;
    const char *at = bytes;
    for (;;) {
        const char *end = memchr(at, '\n', most - (size_t)(at - bytes));
        if (!end)
            return 0;
        if (end == bytes || end[-1] != '\r')
            return -400;
        size_t left = most - (size_t)(end + 1 - bytes);
        if (left >= 2 && end[1] == '\r' && end[2] == '\n')
            return (int)(end + 3 - bytes);
        at = end + 1;
    }
}

int weir_http1_head(const char *bytes, size_t len,
                    struct weir_http1_request *out, size_t *out_used)
{
    out->header_count = out->content_length = 0;
    out->keep = out->expects = false;
    /* Old clients send an empty line before a request. */
    size_t skipped = len >= 2 && memcmp(bytes, "\r\n", 2) == 0 ? 2 : 0;
    int size = find_head_size(bytes + skipped, len - skipped);
    if (size < 0)
        return size;
    if (size == 0)
        return len - skipped >= WEIR_HTTP1_HEAD_MAX ? -431 : 0;
    int status =
        decode_head((struct weir_text){ bytes + skipped, (size_t)size }, out);
    if (status < 0)
        return status;
    *out_used = skipped + (size_t)size;
    return 1;
}

bool weir_http1_header(const struct weir_http1_request *request,
                       const char *name, struct weir_text *out)
{
    for (size_t i = 0; i < request->header_count; i++) {
        if (!is_head_word(request->header[i].name, name))
            continue;
        *out = request->header[i].value;
        return true;
    }
    return false;
}

const char *weir_http1_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        { 200, "OK" },
        { 201, "Created" },
        { 304, "Not Modified" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 409, "Conflict" },
        { 411, "Length Required" },
        { 413, "Content Too Large" },
        { 414, "URI Too Long" },
        { 415, "Unsupported Media Type" },
        { 422, "Unprocessable Content" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 503, "Service Unavailable" },
        { 505, "HTTP Version Not Supported" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Unknown";
}
