/* SPDX-License-Identifier: MIT
 * quota/name_set.c - a set of globs, one after the other in one block.
 *
 * A value without pointers: credentials are reloaded while links and
 * connections still use a set of the former ones. A block of 512 bytes is
 * copied in less time than a certificate's names are compared, and holds more
 * globs than a line of a file that people read. */

#include "core/quota/name_set.h"

#include <string.h>

#include "core/quota/glob.h"
#include "core/quota/quota.h"
#include "core/quota/quota_text.h"

#define GLOB_END '\n'

const struct weir_name_set weir_name_set_all = { .all = true };

int weir_name_set_add(struct weir_name_set *set, struct weir_text glob)
{
    weir_assert(weir_name_check(glob, NULL) == 0);
    if (glob.len + 1 > sizeof(set->globs) - set->len)
        return WEIR_ETOOBIG;
    memcpy(set->globs + set->len, glob.p, glob.len);
    set->globs[set->len + glob.len] = GLOB_END;
    set->len = (uint16_t)(set->len + glob.len + 1);
    weir_assert(set->len <= sizeof(set->globs));
    return WEIR_OK;
}

bool weir_name_set_equal(const struct weir_name_set *a,
                         const struct weir_name_set *b)
{
    return a->all == b->all && a->len == b->len &&
           memcmp(a->globs, b->globs, a->len) == 0;
}

bool weir_name_set_has(const struct weir_name_set *set, struct weir_text name)
{
    weir_assert(set->len <= sizeof(set->globs));
    struct weir_text rest = { set->globs, set->len };
    if (set->all)
        return true;
    name = weir_name_live(name);
    while (rest.len > 0) {
        struct weir_text glob = weir_text_cut(&rest, GLOB_END);
        weir_assert(rest.p);
        if (weir_glob_match(glob, name, NULL))
            return true;
    }
    return false;
}

int weir_name_set_check(const struct weir_name_set *set, const char *who,
                        struct weir_text name, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    if (weir_name_set_has(set, name))
        return WEIR_OK;
    return weir_diag_set(diag, WEIR_EDENIED, "the credential of ", who,
                         " may not take from ", weir_text_show(name, shown),
                         NULL);
}
