/* SPDX-License-Identifier: MIT
 * codec/rls_name.c - the quota's name of a descriptor of Envoy's.
 *
 * Theory of operation. The name must be readable, since `weir top` shows it. It
 * must be the same in every process and version, since counts are kept by it.
 * And it must differ from every other descriptor's name, or a client could
 * spend another client's limit by its choice of a value. envoyproxy/ratelimit
 * joins keys and values by '_', so there ("a_b", "c") and ("a", "b_c") are one.
 *
 * Rejected: names without escapes and a rare separator (values may contain it),
 * and hashes alone (unreadable). Long values are cut because a name has a bound
 * and a value has none: a long cookie must not pass unlimited. Their hash has
 * no secret seed: a client that finds another value with the same 64 bits and
 * the same beginning shares that value's limit. */

#include "codec/rls_name.h"

#include "core/base/hash.h"
#include "core/quota/quota_text.h"

#define DIGITS 16
#define KEPT_MAX (WEIR_RLS_VALUE_MAX - 1 - DIGITS) /* of a cut value */

static void put_name_bytes(struct weir_rls_name *name, const char *p,
                           size_t len)
{
    weir_assert(name->len <= sizeof name->buf);
    if (len > sizeof name->buf - name->len) {
        name->too_long = true;
        return;
    }
    if (len > 0)
        memcpy(name->buf + name->len, p, len);
    name->len += len;
}

/* ---- Escapes ---- */

/* The ASCII bytes that are escaped, a bit each. */
struct special {
    uint64_t of[2]; /* for bytes 0 to 63, 64 to 127 */
};
#define BIT(c) (1ull << ((c)&63))
#define CONTROLS 0xffffffffull
#define LOW (CONTROLS | BIT('%') | BIT('/') | BIT('?'))
#define HIGH (BIT('[') | BIT('\\') | BIT('~') | BIT(0x7f))

static const struct special in_glob = { { LOW, HIGH } };
static const struct special in_value = { { LOW | BIT('*'), HIGH } };
static const struct special in_key = { { LOW | BIT('*') | BIT('='), HIGH } };

static bool is_plain_byte(unsigned char c, const struct special *special)
{
    return c < 0x80 && !(special->of[c >> 6] & BIT(c));
}

/* The number of leading bytes that need no escape. */
static size_t plain_run(struct weir_text text, const struct special *special)
{
    size_t len = 0;
    while (len < text.len && is_plain_byte((unsigned char)text.p[len], special))
        len++;
    return len;
}

static char digit(unsigned value)
{
    return "0123456789ABCDEF"[value & 15];
}

/* Writes the first character of 'text' into 'out', which has room for 12.
 * Returns the bytes of 'text' that it took. */
static size_t escape_name_part(struct weir_text text,
                               const struct special *special, char *out,
                               size_t *out_len)
{
    unsigned char c = (unsigned char)text.p[0];
    uint32_t character;
    size_t len = c < 0x80 ? 1 : weir_utf8_next(text, &character);
    bool plain =
        c < 0x80 ? is_plain_byte(c, special)
                 : len > 0 && weir_utf8_clean((struct weir_text){ text.p, len },
                                              "") == len;
    size_t used = len > 0 ? len : 1;
    *out_len = 0;
    for (size_t i = 0; i < used; i++) {
        unsigned char byte = (unsigned char)text.p[i];
        if (!plain) {
            out[(*out_len)++] = '%';
            out[(*out_len)++] = digit(byte >> 4);
        }
        out[(*out_len)++] = plain ? (char)byte : digit(byte);
    }
    return used;
}

static void put_key(struct weir_rls_name *name, struct weir_text key)
{
    char out[12];
    size_t len;
    size_t run = plain_run(key, &in_key);
    put_name_bytes(name, key.p, run);
    key = (struct weir_text){ key.p + run, key.len - run };
    while (key.len > 0 && !name->too_long) {
        size_t used = escape_name_part(key, &in_key, out, &len);
        put_name_bytes(name, out, len);
        key = (struct weir_text){ key.p + used, key.len - used };
    }
}

static void put_hash(struct weir_rls_name *name, struct weir_text value)
{
    uint64_t hash = weir_hash(value, 0);
    char out[1 + DIGITS];
    out[0] = '~';
    for (unsigned i = 0; i < DIGITS; i++)
        out[1 + i] = digit((unsigned)(hash >> (60 - 4 * i)));
    put_name_bytes(name, out, sizeof out);
}

/* A value over the bound keeps as many bytes as leave room for the hash. */
static void put_value(struct weir_rls_name *name, struct weir_text value,
                      bool glob)
{
    const struct special *special = glob ? &in_glob : &in_value;
    size_t run = plain_run(value, special);
    if (run == value.len && run <= WEIR_RLS_VALUE_MAX) {
        put_name_bytes(name, value.p, run);
        return;
    }
    char out[WEIR_RLS_VALUE_MAX + 12];
    struct weir_text left = value;
    size_t len = 0;
    size_t kept = 0;
    while (left.len > 0 && len <= WEIR_RLS_VALUE_MAX) {
        size_t add;
        size_t used = escape_name_part(left, special, out + len, &add);
        len += add;
        kept = len <= KEPT_MAX ? len : kept;
        left = (struct weir_text){ left.p + used, left.len - used };
    }
    if (len <= WEIR_RLS_VALUE_MAX) {
        put_name_bytes(name, out, len);
        return;
    }
    put_name_bytes(name, out, kept);
    put_hash(name, value);
}

/* ---- Names ---- */

void weir_rls_name_begin(struct weir_rls_name *name, struct weir_text domain)
{
    name->len = 0;
    name->too_long = false;
    put_name_bytes(name, WEIR_RLS_PREFIX, sizeof WEIR_RLS_PREFIX - 1);
    put_value(name, domain, false);
}

void weir_rls_name_add(struct weir_rls_name *name, struct weir_text key,
                       struct weir_text value, bool glob)
{
    put_name_bytes(name, "/", 1);
    put_key(name, key);
    put_name_bytes(name, "=", 1);
    put_value(name, value, glob);
}

void weir_rls_name_overflow(struct weir_rls_name *name)
{
    put_name_bytes(name, WEIR_RLS_OVERFLOW, sizeof(WEIR_RLS_OVERFLOW) - 1);
}
