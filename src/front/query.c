/* SPDX-License-Identifier: MIT
 * front/query.c - query parameters of a request.
 *
 * A value is decoded into the caller's memory; a value of the wrong form is
 * refused with a sentence that names its key. */

#include "front/query.h"

#include <string.h>

#include "core/quota/quota.h"
#include "front/uri.h"

#define VALUE_MAX 20

/* The decoded value of 'key', NUL-terminated. 1: there, 0: not there. */
static int query_value(struct weir_text query, const char *key,
                       char buf[VALUE_MAX + 1])
{
    struct weir_text text;
    if (!weir_uri_query(query, key, &text))
        return 0;
    int len = weir_uri_decode(text, true, buf, VALUE_MAX);
    buf[len < 0 ? 0 : len] = '\0';
    return 1;
}

int weir_query_flag(struct weir_text query, const char *key, bool *out,
                    struct weir_diag *diag)
{
    char value[VALUE_MAX + 1];
    if (!query_value(query, key, value))
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
    if (!query_value(query, key, value))
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
