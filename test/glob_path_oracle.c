/* SPDX-License-Identifier: MIT
 * test/glob_path_oracle.c - matching paths by trying everything. */

#include "glob_path_oracle.h"

#include "core/quota/quota_text.h"

static struct weir_text from(struct weir_text text, size_t at)
{
    return (struct weir_text){ text.len > at ? text.p + at : NULL,
                               text.len - at };
}

static size_t read_character(struct weir_text text, uint32_t *out)
{
    size_t len = weir_utf8_next(text, out);
    if (len > 0)
        return len;
    *out = 0xFFFD;
    return 1;
}

/* Reads "x" or "\x" at '*at'. */
static uint32_t read_escaped(struct weir_text pattern, size_t *at)
{
    uint32_t character;
    *at += pattern.p[*at] == '\\';
    *at += read_character(from(pattern, *at), &character);
    return character;
}

/* True: the class at the start of 'pattern' has the character; '*end' is after
 * its bracket. */
static bool has(struct weir_text pattern, uint32_t character, size_t *end)
{
    size_t at = 1;
    bool negated = pattern.p[at] == '^';
    at += negated;
    bool found = false;
    do {
        uint32_t low = read_escaped(pattern, &at);
        uint32_t high = low;
        if (pattern.p[at] == '-') {
            at++;
            high = read_escaped(pattern, &at);
        }
        found |= low <= character && character <= high;
    } while (pattern.p[at] != ']');
    *end = at + 1;
    return found != negated;
}

bool oracle_path(struct weir_text pattern, struct weir_text name)
{
    if (pattern.len == 0)
        return name.len == 0;
    if (pattern.p[0] == '*')
        return oracle_path(from(pattern, 1), name) ||
               (name.len > 0 && name.p[0] != '/' &&
                oracle_path(pattern, from(name, 1)));
    if (name.len == 0)
        return false;
    uint32_t character;
    size_t len = read_character(name, &character);
    size_t end = 1;
    if (pattern.p[0] == '[')
        return has(pattern, character, &end) &&
               oracle_path(from(pattern, end), from(name, len));
    if (pattern.p[0] == '?')
        return character != '/' &&
               oracle_path(from(pattern, 1), from(name, len));
    end += pattern.p[0] == '\\';
    return pattern.p[end - 1] == name.p[0] &&
           oracle_path(from(pattern, end), from(name, 1));
}

bool oracle_path_is_plain(struct weir_text pattern, struct weir_text name)
{
    for (size_t i = 0; i < name.len; i++) {
        if ((unsigned char)name.p[i] >= 0x80)
            return false;
    }
    for (size_t at = 0; at < pattern.len; at++) {
        size_t end = 1;
        if (pattern.p[at] == '[' && has(from(pattern, at), '/', &end))
            return false;
        at += end - 1 + (pattern.p[at] == '\\');
    }
    return true;
}
