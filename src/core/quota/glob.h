/* SPDX-License-Identifier: MIT
 * core/quota/glob.h - names of templates: '*' stands for any run of
 * characters, the empty one included; or, with glob=path, the rules of globs of
 * paths below. Pure. */

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

/* The texts that the stars of a match matched, in order: as captures, but of
 * globs of both kinds. Texts past WEIR_RUNS_MAX aren't kept. */
#define WEIR_RUNS_MAX 32
struct weir_runs {
    struct weir_text text[WEIR_RUNS_MAX];
    uint32_t count;
};

/* The captures among the runs of a match of that kind. */
void weir_runs_captures(enum weir_glob glob, const struct weir_runs *runs,
                        struct weir_captures *out);

/* Whether 'name' matches 'pattern' from end to end. Globs take the shortest
 * run that lets the rest match, left to right. 'captures' may be NULL.
 * O(pattern * name) at worst, no recursion; O(pattern + name) if no piece
 * between two globs has more than 64 bytes. */
bool weir_glob_match(struct weir_text pattern, struct weir_text name,
                     struct weir_captures *captures);

/* Whether a template's name, of the kind 'glob', matches 'name'. As
 * weir_glob_match(); WEIR_GLOB_PATH captures nothing. */
bool weir_template_match(enum weir_glob glob, struct weir_text pattern,
                         struct weir_text name, struct weir_captures *captures);
/* The same, for the runs, which are written in any case. */
bool weir_template_runs(enum weir_glob glob, struct weir_text pattern,
                        struct weir_text name, struct weir_runs *runs);
/* The same with at most '*work' units of work, from which the units that the
 * search took are subtracted. 0 left: the work was too much, and false doesn't
 * say that the name doesn't match. A byte of the name that is searched for a
 * literal piece is one unit, and a byte of the piece behind its 64th that is
 * compared is another; the first and the last piece take none. WEIR_GLOB_PATH
 * takes a unit for each place in the name, and four for each byte of the
 * pattern that is compared there. */
bool weir_template_runs_within(enum weir_glob glob, struct weir_text pattern,
                               struct weir_text name, struct weir_runs *runs,
                               size_t *work);

/* Writes 'pattern' with {1}..{9} replaced by the captures. Returns the
 * length, or WEIR_ENAME when it is over WEIR_NAME_MAX or a capture that
 * doesn't exist is named. 'buf' holds WEIR_NAME_MAX bytes. */
int weir_glob_expand(struct weir_text pattern,
                     const struct weir_captures *captures, char *buf);
/* The same in 'buf' of 'size' bytes, which are the bound; WEIR_ETOOBIG: it is
 * over them. */
int weir_glob_expand_in(struct weir_text pattern,
                        const struct weir_captures *captures, char *buf,
                        size_t size);

/* The order in which two templates of equal 'order' are tried: below 0: 'a'
 * first; above 0: 'b' first; 0 only for equal names. The one with more bytes
 * that aren't globs is first, then the lower in byte order. A prefix common to
 * both names doesn't change the result. */
int weir_glob_compare(struct weir_text a, struct weir_text b);

/* ---- Globs of paths, by the rules of Go's filepath.Match on Unix
 * (https://pkg.go.dev/path/filepath#Match, Go 1.16 and later): those of a
 * Doorman file, and of quotas with 'glob=path'.
 *
 *     *        any run of characters without '/', the empty one included
 *     ?        one character, not '/'
 *     [a-z]    one character of a class, '/' too if it is in it
 *     [^a-z]   one character that isn't
 *     \c       the character c, in a class too
 *     c        itself; so are ']', '!' and, outside a class, '-'
 *
 * A pattern matches a name from end to end. In a class '-' and ']' stand for
 * themselves only behind a backslash. ---- */

/* 0, or WEIR_ESYNTAX with the sentence of the original, "syntax error in
 * pattern": a class that doesn't end or is empty, a range without an end, a
 * backslash with nothing behind it, broken UTF-8 in a class. The empty pattern
 * is sound. The whole pattern is checked, as by Go's path.Match; filepath.Match
 * stops at the first mismatch with a name, so it accepts a pattern that is
 * broken behind that place and never matches. 'diag' may be NULL. */
int weir_glob_path_check(struct weir_text pattern, struct weir_diag *diag);

/* Whether 'name' matches. A pattern that weir_glob_path_check() refuses
 * matches nothing. Any bytes may be given; a byte of 'name' that isn't UTF-8
 * is one character, U+FFFD. O(pattern * name) at worst, no recursion. */
bool weir_glob_path_match(struct weir_text pattern, struct weir_text name);

#endif /* WEIR_GLOB_H */
