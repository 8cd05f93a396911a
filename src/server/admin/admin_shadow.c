/* SPDX-License-Identifier: MIT
 * server/admin/admin_shadow.c - the shadow set: a whole set of quotas that is
 * tried on live traffic before it is in force.
 *
 * In store, catalog and tables its quotas are ordinary ones whose names,
 * parents and overflow quotas begin with WEIR_SHADOW_PREFIX. Users don't see
 * the prefix: they write the names that the quotas will have in force, and say
 * ?shadow=1. So a name with the prefix is refused in every request.
 *
 * Promotion is one edit: every quota of the shadow set is put under its live
 * name, every other quota of the live set goes (WEIR_EDIT_REPLACE), and the
 * shadow set goes. It is one entry of the log, and one undo takes it back. */

#include <string.h>

#include "core/quota/quota_text.h"
#include "server/admin/admin_internal.h"

static int refuse_prefix(struct weir_text name, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_ENAME, "the name ",
                         weir_text_show(name, shown),
                         " begins with "
                         "\"" WEIR_SHADOW_PREFIX "\", as only those of the "
                         "shadow set do, which `weir quota import --shadow` "
                         "makes; choose another",
                         NULL);
}

int weir_shadow_refuse(const struct weir_quota *quota, struct weir_diag *diag)
{
    const struct weir_text names[] = { quota->name, quota->parent,
                                       quota->overflow };
    for (size_t i = 0; i < WEIR_COUNT_OF(names); i++)
        if (weir_name_is_shadow(names[i]))
            return refuse_prefix(names[i], diag);
    return 0;
}

/* "shadow:" + 'name' in 'buf' of WEIR_NAME_MAX bytes; absent stays absent. */
static int prefix(struct weir_text name, char *buf, struct weir_text *out,
                  struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    if (name.len > WEIR_SHADOW_NAME_MAX)
        return weir_diag_set(diag, WEIR_ENAME, "the name ",
                             weir_text_show(name, shown),
                             " is too long for the shadow set; there a name "
                             "has 248 bytes at most",
                             NULL);
    *out = name;
    if (name.len == 0)
        return 0;
    memcpy(buf, WEIR_SHADOW_PREFIX, WEIR_SHADOW_PREFIX_LEN);
    memcpy(buf + WEIR_SHADOW_PREFIX_LEN, name.p, name.len);
    *out = (struct weir_text){ buf, WEIR_SHADOW_PREFIX_LEN + name.len };
    weir_assert(out->len <= WEIR_NAME_MAX);
    return 0;
}

int weir_shadow_quota(const struct weir_quota *quota,
                      struct weir_shadow_texts *buf, struct weir_quota *out,
                      struct weir_diag *diag)
{
    struct weir_quota made = *quota;
    int error = prefix(quota->name, buf->name, &made.name, diag);
    if (error == 0)
        error = prefix(quota->parent, buf->parent, &made.parent, diag);
    if (error == 0)
        error = prefix(quota->overflow, buf->overflow, &made.overflow, diag);
    if (error == 0)
        *out = made;
    return error;
}

void weir_shadow_clean(struct weir_diag *diag)
{
    static const char shown[] = "'" WEIR_SHADOW_PREFIX;
    char *at = strstr(diag->text, shown);
    while (at) {
        char *rest = at + sizeof shown - 1;
        memmove(at + 1, rest, strlen(rest) + 1);
        at = strstr(at + 1, shown);
    }
}

struct weir_quota weir_shadow_live(const struct weir_quota *quota)
{
    struct weir_quota live = *quota;
    live.name = weir_name_live(quota->name);
    live.parent = weir_name_live(quota->parent);
    live.overflow = weir_name_live(quota->overflow);
    return live;
}
