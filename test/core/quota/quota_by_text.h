/* SPDX-License-Identifier: MIT
 * test/core/quota/quota_by_text.h - quotas as "field=value;field=value": built,
 * refused with a sentence, accepted. */

#ifndef WEIR_QUOTA_BY_TEXT_H
#define WEIR_QUOTA_BY_TEXT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/quota/quota.h"

/* Sets "field=value;field=value" on a fresh quota and checks it. */
static inline int build(const char *text, struct weir_quota *out,
                        struct weir_diag *diag)
{
    weir_quota_init(out);
    while (*text) {
        size_t len = strcspn(text, ";");
        const char *equals = strchr(text, '=');
        struct weir_text field = { text, (size_t)(equals - text) };
        struct weir_text value = { equals + 1, len - field.len - 1 };
        int error = weir_quota_set(out, field, value, diag);
        if (error < 0)
            return error;
        text += text[len] ? len + 1 : len;
    }
    return weir_quota_check(out, diag);
}

static inline void refuse(const char *text, int wanted, const char *sentence)
{
    struct weir_quota quota;
    struct weir_diag diag = { 0 };
    int error = build(text, &quota, &diag);
    if (error != wanted || !strstr(diag.text, sentence))
        fail_msg("'%s' gave %d: %s", text, error, diag.text);
}

static inline void accept(const char *text)
{
    struct weir_quota quota;
    struct weir_diag diag = { 0 };
    if (build(text, &quota, &diag) < 0)
        fail_msg("'%s' gave: %s", text, diag.text);
}

#endif /* WEIR_QUOTA_BY_TEXT_H */
