/* SPDX-License-Identifier: MIT
 * quota/glob.c - matching names against templates.
 *
 * Each glob takes the shortest run that lets the rest match, so the text
 * between two globs is simply searched for, left to right. Only the last glob
 * has no choice: the text after it must be at the end of the name.
 *
 *     pattern   s3_ * _put_ * _x          (pieces: "s3_" "_put_" "_x")
 *     name      s3_ a_b _put_ c_x _x
 *               |head   |first find  |tail, pinned to the end
 *
 * Trying each piece only at its first place is enough: a later place would
 * leave a shorter rest, and a match in the shorter rest is a match in the
 * longer one too. There is no backtracking, and the worst case is pattern x
 * name bytes compared (names have 255). A backtracking matcher would be
 * exponential in the number of globs unless it kept only the last one, which is
 * the same as this algorithm.
 *
 * Of templates that match the same name, the one with more literal bytes rules:
 * "api_user_*" before "api_*". Rejected: the template made first. A set that is
 * copied, promoted or undone would then rule differently from its original.
 *
 * Globs work on bytes. This is correct for UTF-8: no character's bytes occur
 * inside another's, so a literal piece is found only at characters. */

#include "core/quota/glob.h"

#include <string.h>

#include "core/quota/glob_path.h"
#include "core/quota/quota_text.h"

/* The bytes before the next glob, or all of them. */
static struct weir_text literal(struct weir_text pattern)
{
    return weir_text_cut(&pattern, '*');
}

/* The first offset of 'piece' in 'text'; text.len + 1 if there is none. */
static size_t find_piece(struct weir_text text, struct weir_text piece)
{
    for (size_t at = 0; at + piece.len <= text.len; at++) {
        if (weir_text_begins(weir_text_drop(text, at), piece))
            return at;
    }
    return text.len + 1;
}

static void keep_capture(struct weir_captures *captures, struct weir_text text)
{
    if (captures->count < WEIR_CAPTURES_MAX)
        captures->text[captures->count++] = text;
}

bool weir_glob_match(struct weir_text pattern, struct weir_text name,
                     struct weir_captures *captures)
{
    struct weir_captures found = { .count = 0 };
    struct weir_text piece = literal(pattern);
    if (!weir_text_begins(name, piece))
        return false;
    pattern = weir_text_drop(pattern, piece.len);
    name = weir_text_drop(name, piece.len);
    while (pattern.len > 0) {
        pattern = weir_text_drop(pattern, 1);
        piece = literal(pattern);
        bool last = piece.len == pattern.len;
        if (piece.len > name.len)
            return false;
        size_t at = last ? name.len - piece.len : find_piece(name, piece);
        if (at > name.len || !weir_text_begins(weir_text_drop(name, at), piece))
            return false;
        keep_capture(&found, (struct weir_text){ name.p, at });
        pattern = weir_text_drop(pattern, piece.len);
        name = weir_text_drop(name, at + piece.len);
    }
    if (name.len > 0)
        return false;
    if (captures)
        *captures = found;
    return true;
}

bool weir_template_match(enum weir_glob glob, struct weir_text pattern,
                         struct weir_text name, struct weir_captures *captures)
{
    if (glob != WEIR_GLOB_PATH)
        return weir_glob_match(pattern, name, captures);
    bool match = weir_glob_path_match(pattern, name);
    if (match && captures)
        captures->count = 0;
    return match;
}

int weir_glob_expand(struct weir_text pattern,
                     const struct weir_captures *captures, char *buf)
{
    char expanded[WEIR_NAME_MAX + 1];
    struct weir_out out = { expanded, sizeof(expanded), 0 };
    size_t at = 0;
    while (at < pattern.len) {
        struct weir_text piece = { pattern.p + at, 1 };
        bool capture = pattern.p[at] == '{' && at + 2 < pattern.len &&
                       pattern.p[at + 2] == '}';
        if (capture) {
            uint32_t index = (uint32_t)(unsigned char)pattern.p[at + 1] - '1';
            if (index >= captures->count)
                return WEIR_ENAME;
            piece = captures->text[index];
        }
        weir_out_text(&out, piece);
        at += capture ? 3 : 1;
    }
    if (out.len > WEIR_NAME_MAX)
        return WEIR_ENAME;
    if (out.len > 0)
        memcpy(buf, expanded, out.len);
    return (int)out.len;
}

static size_t literals_of(struct weir_text pattern)
{
    size_t count = 0;
    for (size_t i = 0; i < pattern.len; i++)
        count += pattern.p[i] != '*';
    return count;
}

int weir_glob_compare(struct weir_text a, struct weir_text b)
{
    size_t in_a = literals_of(a);
    size_t in_b = literals_of(b);
    if (in_a != in_b)
        return in_a > in_b ? -1 : 1;
    return weir_text_compare(a, b);
}
