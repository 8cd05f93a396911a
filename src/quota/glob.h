/* SPDX-License-Identifier: MIT
 * quota/glob.h - names of templates: '*' stands for any run of characters,
 * the empty one included; or, with glob=path, what glob_path.h says. Pure. */

#ifndef WEIR_GLOB_H
#define WEIR_GLOB_H

#include "base/base.h"
#include "quota/quota.h"

/* What the globs of a match stood for, in order; texts point into the name
 * that was matched. Captures past WEIR_CAPTURES_MAX aren't kept. */
struct weir_captures {
    struct weir_text text[WEIR_CAPTURES_MAX];
    uint32_t count;
};

/* Whether 'name' matches 'pattern' from end to end. Globs take the shortest
 * run that lets the rest match, left to right. 'captures' may be NULL.
 * O(pattern * name) at worst, no recursion. */
bool weir_glob_match(struct weir_text pattern, struct weir_text name,
                     struct weir_captures *captures);

/* Whether a template's name, whose kind of glob is 'glob', matches 'name'. As
 * weir_glob_match(); WEIR_GLOB_PATH captures nothing. */
bool weir_template_match(enum weir_glob glob, struct weir_text pattern,
                         struct weir_text name, struct weir_captures *captures);

/* Writes 'pattern' with {1}..{9} replaced by the captures. Returns the
 * length, or WEIR_ENAME when it is over WEIR_NAME_MAX or a capture that
 * doesn't exist is named. 'buf' holds WEIR_NAME_MAX bytes. */
int weir_glob_expand(struct weir_text pattern,
                     const struct weir_captures *captures, char *buf);

/* Which of two templates of equal 'order' is tried first: below 0 for 'a',
 * above for 'b', 0 only for equal ones. The one with more bytes that aren't
 * globs, then the lower in byte order. The same whatever both names are
 * prefixed with. */
int weir_glob_compare(struct weir_text a, struct weir_text b);

#endif /* WEIR_GLOB_H */
