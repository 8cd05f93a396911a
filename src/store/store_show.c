/* SPDX-License-Identifier: MIT
 * store/store_show.c - a store's URL without its password.
 *
 * libpq takes a password in three places:
 *
 *     postgres://USER:PASSWORD@HOST/DATABASE?password=PASSWORD
 *     postgres:host=HOST password='PASS WORD'
 *
 * A URL that libpq would refuse is shown too, in that error's message; in doubt
 * more is hidden than necessary. */

#include <string.h>

#include "core/quota/quota_text.h"
#include "store/store.h"

#define HIDDEN "***"

/* The end of a value of libpq's "key=value key='val ue'". */
static const char *value_end(const char *at)
{
    bool quoted = *at == '\'';
    at += quoted;
    while (*at) {
        if (*at == '\\' && at[1])
            at++;
        else if (quoted ? *at == '\'' : strchr(" \t\r\n", *at) != NULL)
            return at + quoted;
        at++;
    }
    return at;
}

/* Copies up to 'end'. */
static void copy_out(struct weir_out *out, const char *from, const char *end)
{
    weir_out_text(out, (struct weir_text){ from, (size_t)(end - from) });
}

/* "//USER:PASSWORD@…": copied up to the '@', without the password. */
static const char *hide_user(struct weir_out *out, const char *at)
{
    const char *host = strrchr(at, '@');
    if (!host)
        return at;
    const char *colon = memchr(at, ':', (size_t)(host - at));
    copy_out(out, at, colon ? colon : host);
    weir_out_string(out, colon ? ":" HIDDEN : "");
    return host;
}

/* Whether the key that ends at 'equals' is "password", or may be, written with
 * %-escapes. */
static bool is_secret(const char *start, const char *equals)
{
    static const char word[] = "password";
    while (equals > start && strchr(" \t\r\n", equals[-1]))
        equals--;
    const char *key = equals;
    while (key > start && !strchr(" \t\r\n?&", key[-1]))
        key--;
    size_t len = (size_t)(equals - key);
    return memchr(key, '%', len) ||
           (len >= strlen(word) &&
            memcmp(equals - strlen(word), word, strlen(word)) == 0);
}

static void hide_values(struct weir_out *out, const char *at, bool is_url)
{
    const char *start = at;
    for (;;) {
        const char *equals = strchr(at, '=');
        if (!equals)
            break;
        copy_out(out, at, equals + 1);
        at = equals + 1;
        if (!is_url)
            at += strspn(at, " \t\r\n");
        const char *end = is_url ? at + strcspn(at, "&") : value_end(at);
        if (is_secret(start, equals))
            weir_out_string(out, HIDDEN);
        else
            copy_out(out, at, end);
        at = end;
    }
    weir_out_string(out, at);
}

const char *weir_store_show(const char *url, char *buf)
{
    static const char scheme[] = "postgres";
    struct weir_out out = { buf, WEIR_STORE_SHOW_MAX - 1, 0 };
    const char *at = url;
    if (strncmp(url, scheme, strlen(scheme)) == 0 && strchr(url, ':')) {
        at = strchr(url, ':') + 1;
        copy_out(&out, url, at);
        bool is_url = strncmp(at, "//", 2) == 0;
        if (is_url)
            at = hide_user(&out, at);
        hide_values(&out, at, is_url);
    } else {
        weir_out_string(&out, at);
    }
    buf[out.len] = '\0';
    return buf;
}
