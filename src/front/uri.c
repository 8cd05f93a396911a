/* SPDX-License-Identifier: MIT
 * front/uri.c - percent-encoding, and query parameters.
 *
 * Names of quotas may contain any character but control characters, also
 * slashes, so that a path can't be split at its slashes after decoding: the
 * rest after "/v1/quotas/" is one name, decoded as a whole. That is why the
 * helpers of the HTTP library, which decode every path alike, aren't used: both
 * listeners share these. */

#include "front/uri.h"

#include <string.h>

struct weir_uri weir_uri_split(struct weir_text target)
{
    const char *mark = target.len ? memchr(target.p, '?', target.len) : NULL;
    if (!mark)
        return (struct weir_uri){ .path = target };
    size_t before = (size_t)(mark - target.p);
    return (struct weir_uri){
        .path = { target.p, before },
        .query = { mark + 1, target.len - before - 1 },
    };
}

static int value_of_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int weir_uri_decode(struct weir_text text, bool query, char *buf, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (len == size)
            return WEIR_ETOOBIG;
        char c = text.p[i];
        if (c == '+' && query)
            c = ' ';
        if (c == '%') {
            if (text.len - i < 3)
                return WEIR_ESYNTAX;
            int high = value_of_hex(text.p[i + 1]);
            int low = value_of_hex(text.p[i + 2]);
            if (high < 0 || low < 0)
                return WEIR_ESYNTAX;
            c = (char)(high << 4 | low);
            i += 2;
        }
        buf[len++] = c;
    }
    return (int)len;
}

static bool is_unreserved(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || (c != '\0' && strchr("-._~/", c));
}

int weir_uri_encode(struct weir_text text, char *buf, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];
        bool plain = is_unreserved((char)c);
        if (size - len < (plain ? 1u : 3u))
            return WEIR_ETOOBIG;
        if (plain) {
            buf[len++] = (char)c;
            continue;
        }
        buf[len++] = '%';
        buf[len++] = digits[c >> 4];
        buf[len++] = digits[c & 15];
    }
    return (int)len;
}

bool weir_uri_query(struct weir_text query, const char *key,
                    struct weir_text *out)
{
    size_t key_len = strlen(key);
    while (query.len > 0) {
        const char *and = memchr(query.p, '&', query.len);
        size_t len = and? (size_t)(and-query.p) : query.len;
        const char *is = memchr(query.p, '=', len);
        size_t name = is ? (size_t)(is - query.p) : len;
        if (name == key_len && memcmp(query.p, key, name) == 0) {
            size_t skip = is ? name + 1 : len;
            *out = (struct weir_text){ query.p + skip, len - skip };
            return true;
        }
        size_t step = and? len + 1 : len;
        query.p += step;
        query.len -= step;
    }
    return false;
}
