/* SPDX-License-Identifier: MIT
 * quota/long_name.c - the stored form of a long name.
 *
 * A limit for each value of a header must hold for values of any length, or a
 * client that sends a long one is not limited. It is not enough to keep the
 * beginning of a name: a template such as "user/ * /write" would not match a
 * name that was cut before "/write", and roots, which see stored names only,
 * would count it nowhere. So exactly the texts are cut that the template allows
 * to be anything.
 *
 * The hash is a cryptographic one because clients choose its input, and because
 * a secret seed would have to be the same in all processes of a fleet. 128 bits
 * are enough: an attacker gains nothing by two names of its own with one hash,
 * and a name with the hash of a given other one takes 2^128 tries.
 *
 * Rejected: a byte that given names may not contain, as the mark of the form
 * (names are any UTF-8, and were valid before); and the template's number in
 * the name (each edit of the template would be another bucket). */

#include "core/quota/long_name.h"

#include <string.h>

#include "core/base/sha256.h"
#include "core/quota/quota_text.h"

static bool is_hash(const char *digits)
{
    for (size_t i = 0; i < WEIR_NAME_HASH_DIGITS; i++) {
        char c = digits[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return true;
}

bool weir_name_is_cut(struct weir_text name)
{
    if (name.len < WEIR_STORED_LONG_MIN || name.len > WEIR_NAME_MAX)
        return false;
    const char *end = name.p + name.len - WEIR_NAME_HASH_DIGITS;
    const char *at = name.p;
    while (at < end && (at = memchr(at, '~', (size_t)(end - at))) != NULL) {
        if (is_hash(++at))
            return true;
    }
    return false;
}

void weir_long_name_hash(struct weir_text name, struct weir_name_hash *out_hash)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t hash[WEIR_SHA256_SIZE];
    char *out = out_hash->text;
    weir_sha256(name, hash);
    *out++ = '~';
    for (size_t i = 0; i < WEIR_NAME_HASH_DIGITS / 2; i++) {
        *out++ = digits[hash[i] >> 4];
        *out++ = digits[hash[i] & 15];
    }
}

static size_t cut_total(const struct weir_runs *runs, size_t most)
{
    size_t total = 0;
    for (uint32_t i = 0; i < runs->count; i++)
        total += runs->text[i].len < most ? runs->text[i].len : most;
    return total;
}

/* The largest length to which all runs can be cut so that they fit in 'room'
 * together. */
static size_t fit_runs(const struct weir_runs *runs, size_t room)
{
    size_t most = room;
    while (most > 0 && cut_total(runs, most) > room)
        most--;
    return most;
}

/* The bytes of a run that are kept: whole characters. */
static size_t kept_len(struct weir_text run, size_t most)
{
    if (run.len <= most)
        return run.len;
    size_t len = most;
    while (len > 0 && most - len < 3 && (run.p[len] & 0xc0) == 0x80)
        len--;
    return len;
}

/* The run behind which the hash stands: the last one that is cut, or the last
 * one. */
static uint32_t hash_place(const struct weir_runs *runs, size_t most)
{
    for (uint32_t i = runs->count; i-- > 0;) {
        if (runs->text[i].len > most)
            return i;
    }
    return runs->count - 1;
}

size_t weir_long_name_store(struct weir_text name,
                            const struct weir_name_hash *hash,
                            const struct weir_runs *runs, char *buf)
{
    const struct weir_runs whole = { { name }, 1 };
    runs = runs ? runs : &whole;
    weir_assert(weir_name_is_long(name));
    size_t fixed = name.len - cut_total(runs, name.len) + WEIR_NAME_HASH_LEN;
    if (fixed > WEIR_NAME_MAX || runs->count == 0)
        return 0;
    size_t most = fit_runs(runs, WEIR_NAME_MAX - fixed);
    uint32_t place = hash_place(runs, most);
    struct weir_out out = { buf, WEIR_NAME_MAX, 0 };
    const char *from = name.p;
    for (uint32_t i = 0; i < runs->count; i++) {
        struct weir_text run = runs->text[i];
        weir_out_text(&out, (struct weir_text){ from, (size_t)(run.p - from) });
        weir_out_text(&out, (struct weir_text){ run.p, kept_len(run, most) });
        if (i == place)
            weir_out_text(&out,
                          (struct weir_text){ hash->text, sizeof(hash->text) });
        from = run.p + run.len;
    }
    weir_out_text(
        &out, (struct weir_text){ from, (size_t)(name.p + name.len - from) });
    weir_assert(weir_name_is_cut((struct weir_text){ buf, out.len }));
    return out.len;
}

struct weir_text weir_name_kept(struct weir_text name, char *buf)
{
    struct weir_name_hash hash;
    if (!weir_name_is_long(name))
        return name;
    weir_long_name_hash(name, &hash);
    return (struct weir_text){ buf,
                               weir_long_name_store(name, &hash, NULL, buf) };
}

int weir_given_name_check(struct weir_text name, struct weir_diag *diag)
{
    if (name.len <= WEIR_NAME_MAX)
        return weir_name_check(name, diag);
    if (name.len > WEIR_GIVEN_NAME_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG,
                             "the name is over 65536 bytes");
    return weir_utf8_clean(name, "") == name.len
               ? 0
               : weir_diag_put(diag, WEIR_ENAME,
                               "the name isn't UTF-8, or holds a control "
                               "character");
}
