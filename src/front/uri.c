/* SPDX-License-Identifier: MIT
 * front/uri.c - percent-encoding, and query parameters.
 *
 * A parameter is decoded into the caller's memory; a value of the wrong form is
 * refused with a sentence that names its key.
 *
 * Names of quotas may contain any character but control characters, also
 * slashes, so that a path can't be split at its slashes after decoding: the
 * rest after "/v1/quotas/" is one name, decoded as a whole. That is why the
 * helpers of the HTTP library, which decode every path alike, aren't used: both
 * listeners share these. */

#include "front/uri.h"

#include <openssl/crypto.h>
#include <string.h>

#include "core/quota/quota.h"

#define VALUE_MAX 20 /* bytes of a flag or a number */

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
            int high = OPENSSL_hexchar2int((unsigned char)text.p[i + 1]);
            int low = OPENSSL_hexchar2int((unsigned char)text.p[i + 2]);
            if (high < 0 || low < 0)
                return WEIR_ESYNTAX;
            c = (char)(high << 4 | low);
            i += 2;
        }
        buf[len++] = c;
    }
    weir_assert(len <= size && len <= text.len);
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
    weir_assert(len <= size && len >= text.len);
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

/* ---- Parameters ---- */

/* The decoded value of 'key', NUL-terminated; "" if it is too long. False:
 * without the key. */
static bool short_value(struct weir_text query, const char *key,
                        char buf[VALUE_MAX + 1])
{
    struct weir_text text;
    if (!weir_uri_query(query, key, &text))
        return false;
    int len = weir_uri_decode(text, true, buf, VALUE_MAX);
    buf[len < 0 ? 0 : len] = '\0';
    return true;
}

int weir_query_flag(struct weir_text query, const char *key, bool *out,
                    struct weir_diag *diag)
{
    char value[VALUE_MAX + 1];
    if (!short_value(query, key, value))
        return 0;
    bool on = strcmp(value, "1") == 0 || strcmp(value, "true") == 0;
    bool off = strcmp(value, "0") == 0 || strcmp(value, "false") == 0;
    if (!on && !off)
        return weir_diag_set(diag, WEIR_EINVAL, "write ?", key, "=1 or ?", key,
                             "=0", NULL);
    *out = on;
    return 0;
}

int weir_query_number(struct weir_text query, const char *key, size_t max,
                      size_t *out, struct weir_diag *diag)
{
    char value[VALUE_MAX + 1];
    if (!short_value(query, key, value))
        return 0;
    uint64_t number = 0;
    struct weir_text text = weir_text_of(value);
    if (weir_units_parse(text, &number, NULL) < 0 || number < 1 || number > max)
        return weir_diag_set(diag, WEIR_EINVAL, "?", key,
                             "= is a number "
                             "from 1 on, and not above the page's bound",
                             NULL);
    *out = (size_t)number;
    return 0;
}

int weir_query_name(struct weir_text query, const char *key, char *buf,
                    struct weir_text *out, struct weir_diag *diag)
{
    struct weir_text text;
    *out = (struct weir_text){ buf, 0 };
    if (!weir_uri_query(query, key, &text))
        return 0;
    int len = weir_uri_decode(text, true, buf, WEIR_NAME_MAX);
    if (len == WEIR_ESYNTAX)
        return weir_diag_set(diag, WEIR_EINVAL, "?", key,
                             "= has a '%' without two hexadecimal digits",
                             NULL);
    if (len < 0)
        return weir_diag_set(diag, WEIR_EINVAL, "?", key,
                             "= is longer than a name can be, 255 bytes", NULL);
    out->len = (size_t)len;
    return 0;
}
