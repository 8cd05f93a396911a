/* SPDX-License-Identifier: MIT
 * quota/name_set.h - a set of names of quotas, given by globs: the quotas that
 * a credential may take from. A plain value, copied by assignment; all zeros:
 * the empty set. Pure. */

#ifndef WEIR_NAME_SET_H
#define WEIR_NAME_SET_H

#include "core/base/base.h"

#define WEIR_NAME_SET_BYTES_MAX 512 /* of all globs, and one byte for each */

struct weir_name_set {
    bool all; /* every name; 'globs' is ignored then */
    uint16_t len;
    char globs[WEIR_NAME_SET_BYTES_MAX]; /* each ends in a newline, which no
                                          * name holds */
};
/* Every name. */
extern const struct weir_name_set weir_name_set_all;

/* Adds the names that match 'glob', as weir_glob_match(): '*' is any run of
 * characters, a '/' too. 'glob' must be a name (weir_name_check()). 0, or
 * WEIR_ETOOBIG: there is no room; nothing has changed. */
int weir_name_set_add(struct weir_name_set *set, struct weir_text glob);
/* Whether both have the same globs in the same order. */
bool weir_name_set_equal(const struct weir_name_set *a,
                         const struct weir_name_set *b);
/* A name of the shadow set is in it if the name without the prefix is. */
bool weir_name_set_has(const struct weir_name_set *set, struct weir_text name);

/* As weir_name_set_has(): 0, or WEIR_EDENIED with a sentence in 'diag' that
 * names the credential's owner, 'who'. */
int weir_name_set_check(const struct weir_name_set *set, const char *who,
                        struct weir_text name, struct weir_diag *diag);

#endif /* WEIR_NAME_SET_H */
