/* SPDX-License-Identifier: MIT
 * io/grpc_frame.c - messages out of a stream of bytes.
 *
 * Theory of operation. HTTP/2 cuts the stream anywhere: within a head, within a
 * message, or after several messages. A message that lies whole in one piece is
 * handed out in place; only a cut one is gathered in a buffer. The buffer grows
 * with the bytes received, never by the announced length: a head of five bytes
 * must not allocate 4 MiB. */

#include "io/grpc_frame.h"

#include <string.h>

#include "core/quota/quota_text.h"
#include "io/h2.h"

#define KEEP_MAX (64u << 10) /* bytes of buffer kept for the next message */

void weir_grpc_head(uint8_t *head, size_t len)
{
    head[0] = 0;
    head[1] = (uint8_t)(len >> 24);
    head[2] = (uint8_t)(len >> 16);
    head[3] = (uint8_t)(len >> 8);
    head[4] = (uint8_t)len;
}

static size_t head_length(const uint8_t *head)
{
    return (size_t)head[1] << 24 | (size_t)head[2] << 16 |
           (size_t)head[3] << 8 | head[4];
}

static void take_bytes(struct weir_text *bytes, size_t len)
{
    weir_assert(len <= bytes->len);
    bytes->p += len;
    bytes->len -= len;
}

static enum weir_grpc_read read_frame_head(struct weir_grpc_reader *reader,
                                           struct weir_text *bytes, size_t max)
{
    size_t need = WEIR_GRPC_HEAD - reader->head_len;
    size_t len = bytes->len < need ? bytes->len : need;
    if (len > 0)
        memcpy(reader->head + reader->head_len, bytes->p, len);
    reader->head_len += len;
    if (len > 0)
        take_bytes(bytes, len);
    if (reader->head_len < WEIR_GRPC_HEAD)
        return WEIR_GRPC_MORE;
    if (reader->head[0] == 1)
        return WEIR_GRPC_COMPRESSED;
    if (reader->head[0] != 0)
        return WEIR_GRPC_BROKEN;
    return head_length(reader->head) > max ? WEIR_GRPC_TOO_BIG
                                           : WEIR_GRPC_MESSAGE;
}

static void next_message(struct weir_grpc_reader *reader)
{
    reader->head_len = 0;
    reader->body.len = 0;
}

enum weir_grpc_read weir_grpc_read(struct weir_grpc_reader *reader,
                                   struct weir_text *bytes, size_t max,
                                   struct weir_text *out_message)
{
    if (reader->head_len == 0 && reader->body.capacity > KEEP_MAX)
        weir_grpc_reader_fini(reader);
    if (reader->head_len < WEIR_GRPC_HEAD) {
        enum weir_grpc_read state = read_frame_head(reader, bytes, max);
        if (state != WEIR_GRPC_MESSAGE)
            return state;
    }
    size_t total = head_length(reader->head);
    weir_assert(reader->body.len <= total);
    size_t need = total - reader->body.len;
    if (reader->body.len == 0 && bytes->len >= need) {
        *out_message = (struct weir_text){ bytes->p, need };
        take_bytes(bytes, need);
        next_message(reader);
        return WEIR_GRPC_MESSAGE;
    }
    size_t len = bytes->len < need ? bytes->len : need;
    if (!weir_byte_queue_reserve(&reader->body, len))
        return WEIR_GRPC_NO_MEMORY;
    weir_byte_queue_append(&reader->body, bytes->p, len);
    if (len > 0)
        take_bytes(bytes, len);
    if (reader->body.len < total)
        return WEIR_GRPC_MORE;
    *out_message = (struct weir_text){ (const char *)reader->body.p, total };
    next_message(reader);
    return WEIR_GRPC_MESSAGE;
}

bool weir_grpc_is_partial(const struct weir_grpc_reader *reader)
{
    return reader->head_len > 0;
}

void weir_grpc_reader_fini(struct weir_grpc_reader *reader)
{
    weir_byte_queue_fini(&reader->body);
    *reader = (struct weir_grpc_reader){ .head_len = 0 };
}

size_t weir_grpc_escape(const char *text, char *buf, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t used = 0;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = c >= ' ' && c <= '~' && c != '%';
        if (size - used < (plain ? 1 : 3))
            break;
        if (plain) {
            buf[used++] = (char)c;
            continue;
        }
        buf[used++] = '%';
        buf[used++] = digits[c >> 4];
        buf[used++] = digits[c & 15];
    }
    return used;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

void weir_grpc_unescape(struct weir_text text, char *buf, size_t size)
{
    weir_assert(size > 0);
    size_t used = 0;
    for (size_t i = 0; i < text.len && used < size - 1; i++) {
        char c = text.p[i];
        if (c == '%' && text.len - i > 2) {
            int high = hex_value(text.p[i + 1]);
            int low = hex_value(text.p[i + 2]);
            if (high >= 0 && low >= 0) {
                c = (char)(high << 4 | low);
                i += 2;
            }
        }
        /* The result is a C string, so a NUL is replaced. */
        buf[used++] = c == '\0' ? '?' : c;
    }
    buf[used] = '\0';
}

bool weir_grpc_is_type(struct weir_text content_type)
{
    static const char type[] = "application/grpc";
    static const char proto[] = "+proto";
    struct weir_text left = content_type;
    if (left.len < sizeof(type) - 1 ||
        memcmp(left.p, type, sizeof(type) - 1) != 0)
        return false;
    take_bytes(&left, sizeof(type) - 1);
    if (left.len >= sizeof(proto) - 1 &&
        memcmp(left.p, proto, sizeof(proto) - 1) == 0)
        take_bytes(&left, sizeof(proto) - 1);
    return left.len == 0 || left.p[0] == ';';
}

int weir_grpc_number(struct weir_text text)
{
    uint64_t number;
    return text.len <= 3 && weir_number_parse(text, &number) ? (int)number : -1;
}

int weir_grpc_status_of_http(int http_status)
{
    switch (http_status) {
    case 400:
        return WEIR_GRPC_INTERNAL;
    case 401:
        return WEIR_GRPC_UNAUTHENTICATED;
    case 403:
        return WEIR_GRPC_PERMISSION_DENIED;
    case 404:
        return WEIR_GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return WEIR_GRPC_UNAVAILABLE;
    default:
        return WEIR_GRPC_UNKNOWN;
    }
}
