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
 * and hashes alone (unreadable). */

#include "codec/rls_name.h"

#include "core/quota/long_name.h"
#include "core/quota/quota_text.h"

/* '~' and 96 bits of a hash: fewer than a long name's, so that no name has
 * that form by its keys. */
#define CUT_HASH_LEN (1 + 24)

static void put_name_bytes(struct weir_rls_name *name, const char *p,
                           size_t len)
{
    weir_assert(name->len <= name->size);
    if (name->too_long || len > name->size - name->len) {
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

static void put_escaped(struct weir_rls_name *name, struct weir_text text,
                        const struct special *special)
{
    while (text.len > 0 && !name->too_long) {
        char out[12];
        size_t len;
        size_t run = plain_run(text, special);
        put_name_bytes(name, text.p, run);
        text = weir_text_drop(text, run);
        if (text.len == 0)
            return;
        size_t used = escape_name_part(text, special, out, &len);
        put_name_bytes(name, out, len);
        text = weir_text_drop(text, used);
    }
}

/* ---- Long keys ---- */

/* The bytes that the text takes when it is escaped; the count ends above
 * WEIR_RLS_WORD_MAX. */
static size_t escaped_len(struct weir_text text, const struct special *special)
{
    size_t len = 0;
    while (text.len > 0 && len <= WEIR_RLS_WORD_MAX) {
        char out[12];
        size_t part;
        size_t used = escape_name_part(text, special, out, &part);
        len += part;
        text = weir_text_drop(text, used);
    }
    return len;
}

static bool is_long_word(struct weir_text word, const struct special *special)
{
    return word.len > WEIR_RLS_WORD_MAX ||
           (word.len > WEIR_RLS_WORD_MAX / 3 &&
            escaped_len(word, special) > WEIR_RLS_WORD_MAX);
}

bool weir_rls_name_is_cut(struct weir_text word)
{
    return is_long_word(word, &in_key);
}

/* A key or a domain. */
static void put_word(struct weir_rls_name *name, struct weir_text word,
                     const struct special *special)
{
    if (!is_long_word(word, special)) {
        put_escaped(name, word, special);
        return;
    }
    struct weir_name_hash hash;
    size_t room = WEIR_RLS_WORD_MAX - CUT_HASH_LEN;
    weir_long_name_hash(word, &hash);
    for (struct weir_text rest = word;;) {
        char out[12];
        size_t len;
        size_t used = escape_name_part(rest, special, out, &len);
        if (len > room)
            break;
        put_name_bytes(name, out, len);
        room -= len;
        rest = weir_text_drop(rest, used);
    }
    put_name_bytes(name, hash.text, CUT_HASH_LEN);
}

/* ---- Names ---- */

void weir_rls_name_begin(struct weir_rls_name *name, char *buf, size_t size,
                         struct weir_text domain)
{
    *name = (struct weir_rls_name){ .buf = buf, .size = size };
    put_name_bytes(name, WEIR_RLS_PREFIX, sizeof WEIR_RLS_PREFIX - 1);
    put_word(name, domain, &in_value);
}

void weir_rls_name_add(struct weir_rls_name *name, struct weir_text key,
                       struct weir_text value, bool glob)
{
    put_name_bytes(name, "/", 1);
    put_word(name, key, &in_key);
    put_name_bytes(name, "=", 1);
    if (weir_rls_name_is_cut(key) && weir_text_equal(key, value))
        put_name_bytes(name, "~", 1);
    else
        put_escaped(name, value, glob ? &in_glob : &in_value);
}

void weir_rls_name_overflow(struct weir_rls_name *name)
{
    put_name_bytes(name, WEIR_RLS_OVERFLOW, sizeof(WEIR_RLS_OVERFLOW) - 1);
}
