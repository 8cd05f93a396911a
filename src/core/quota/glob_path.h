/* SPDX-License-Identifier: MIT
 * core/quota/glob_path.h - globs of paths, by the rules of Go's filepath.Match
 * on Unix (https://pkg.go.dev/path/filepath#Match, Go 1.16 and later): those
 * of a Doorman file, and of quotas with 'glob=path'. Pure.
 *
 *     *        any run of characters without '/', the empty one included
 *     ?        one character, not '/'
 *     [a-z]    one character of a class, '/' too if it is in it
 *     [^a-z]   one character that isn't
 *     \c       the character c, in a class too
 *     c        itself; so are ']', '!' and, outside a class, '-'
 *
 * A pattern matches a name from end to end. In a class '-' and ']' stand for
 * themselves only behind a backslash. */

#ifndef WEIR_GLOB_PATH_H
#define WEIR_GLOB_PATH_H

#include "core/base/base.h"

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

#endif /* WEIR_GLOB_PATH_H */
