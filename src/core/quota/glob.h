/* SPDX-License-Identifier: MIT
 * core/quota/glob.h - names of templates: '*' stands for any run of
 * characters, the empty one included; or, with glob=path, the rules of
 * glob_path.h. Pure. */

#ifndef WEIR_GLOB_H
#define WEIR_GLOB_H

#include "core/base/base.h"
#include "core/quota/quota.h"

/* The texts that the globs of a match matched, in order; they point into the
 * matched name. Captures past WEIR_CAPTURES_MAX aren't kept. */
struct weir_captures {
    struct weir_text text[WEIR_CAPTURES_MAX];
    uint32_t count;
};

/* Whether 'name' matches 'pattern' from end to end. Globs take the shortest
 * run that lets the rest match, left to right. 'captures' may be NULL.
 * O(pattern * name) at worst, no recursion. */
bool weir_glob_match(struct weir_text pattern, struct weir_text name,
                     struct weir_captures *captures);

/* Whether a template's name, of the kind 'glob', matches 'name'. As
 * weir_glob_match(); WEIR_GLOB_PATH captures nothing. */
bool weir_template_match(enum weir_glob glob, struct weir_text pattern,
                         struct weir_text name, struct weir_captures *captures);

/* Writes 'pattern' with {1}..{9} replaced by the captures. Returns the
 * length, or WEIR_ENAME when it is over WEIR_NAME_MAX or a capture that
 * doesn't exist is named. 'buf' holds WEIR_NAME_MAX bytes. */
int weir_glob_expand(struct weir_text pattern,
                     const struct weir_captures *captures, char *buf);

/* The order in which two templates of equal 'order' are tried: below 0: 'a'
 * first; above 0: 'b' first; 0 only for equal names. The one with more bytes
 * that aren't globs is first, then the lower in byte order. A prefix common to
 * both names doesn't change the result. */
int weir_glob_compare(struct weir_text a, struct weir_text b);

#endif /* WEIR_GLOB_H */
