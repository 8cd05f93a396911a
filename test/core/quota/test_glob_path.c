/* SPDX-License-Identifier: MIT
 * test/core/quota/test_glob_path.c - globs of paths: observed results of Go's
 * filepath.Match, and a matcher that tries everything. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/quota/glob.h"
#include "glob_path_oracle.h"
#include "quota_maker.h"

#define ROUNDS 300000

struct row {
    const char *pattern, *name;
    bool match;
};

static void check_row(const struct row *row)
{
    struct weir_text pattern = weir_text_of(row->pattern);
    struct weir_text name = weir_text_of(row->name);
    if (weir_glob_path_check(pattern, NULL) != 0)
        fail_msg("'%s' is sound", row->pattern);
    if (weir_glob_path_match(pattern, name) != row->match)
        fail_msg("'%s' and '%s'", row->pattern, row->name);
}

static void matches_as_doormans_table(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "*", "foo", true },
        { "*", "", true },
        { "*", "a/b", false },
        { "a*", "abc", true },
        { "a*c", "abc", true },
        { "a*", "a/b", false },
        { "?", "a", true },
        { "?", "/", false },
        { "?", "\xC3\xBC", true },
        { "a?c", "abc", true },
        { "*.prod", "db.prod", true },
        { "**", "abc", true },
        { "*/*", "a/b", true },
        { "[a-c]x", "bx", true },
        { "[^a]x", "bx", true },
        { "[!a]x", "bx", false },
        { "[!a]x", "!x", true },
        { "[^a]x", "/x", true },
        { "\\*", "*", true },
        { "\\*", "a", false },
        { "[z-a]", "b", false },
        { "db/*", "db/x", true },
        { "db/*/r", "db/x/r", true },
        { "", "", true },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++)
        check_row(&rows[i]);
}

static void matches_from_end_to_end(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "", "a", false },
        { "a", "", false },
        { "abc", "abcd", false },
        { "abcd", "abc", false },
        { "*abc", "ababc", true },
        { "a*b*c", "axbxbc", true },
        { "a*b*c", "axbx", false },
        { "*/b", "a/c/b", false },
        { "a]b", "a]b", true },
        { "a-b!", "a-b!", true },
        { "[\\]\\-]*", "-x", true },
        { "[\\]\\-]*", "]x", true },
        { "[*]a", "*a", true },
        { "[*]a", "xa", false },
        { "[a-c\xC3\xA0-\xC3\xBC]", "\xC3\xA9", true },
        { "[^\xC3\xA9]", "\xC3\xA9", false },
        { "\xC3\xA9*", "\xC3\xA9", true },
        { "\\\xC3\xA9", "\xC3\xA9", true },
        /* A byte that isn't UTF-8 is one character. */
        { "?", "\xFF", true },
        { "[^a]", "\xFF", true },
        { "??", "\xE2\x82", true },
        /* As in Go: a star's run is never lengthened again, and it grows by
         * bytes. */
        { "*[^a]*b", "x/yb", false },
        { "*??", "\xE2\x82\xAC", true },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++)
        check_row(&rows[i]);
}

static void names_what_is_broken(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "[*-]", "[]a]", "[-]",   "[x-]",    "[a-b-c]", "[",
        "a[",   "a\\",  "[^",    "[^]",     "[a",      "[a-",
        "[\\",  "[\\]", "[a-\\", "[\xFF]",  "[]",      "[a-\xFF]",
        "x*[]", "*\\",  "[[]*[", "[a]*b\\",
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(bad); i++) {
        struct weir_diag diag = { .line = 7 };
        struct weir_text pattern = weir_text_of(bad[i]);
        if (weir_glob_path_check(pattern, &diag) != WEIR_ESYNTAX)
            fail_msg("'%s' isn't sound", bad[i]);
        assert_string_equal(diag.text, "syntax error in pattern");
        assert_int_equal(diag.line, 7);
        assert_false(weir_glob_path_match(pattern, pattern));
        assert_false(weir_glob_path_match(pattern, WEIR_TEXT("")));
    }
}

static struct weir_text make(struct weir_rng *rng, char *buf, size_t max,
                             const char *letters)
{
    struct weir_text text = { buf, weir_rng_below(rng, max + 1) };
    for (size_t i = 0; i < text.len; i++)
        buf[i] = letters[weir_rng_below(rng, strlen(letters))];
    return text;
}

static void matches_as_the_naive_one(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("globs of paths");
    unsigned sound = 0;
    unsigned matched = 0;
    unsigned plain = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char pattern_buf[12];
        char name_buf[10];
        struct weir_text pattern =
            make(&rng, pattern_buf, 12, "aab/***??[]]^-\\\xC3\xA9");
        struct weir_text name = make(&rng, name_buf, 10, "aaabb/-]\xC3\xA9");
        if (weir_glob_path_check(pattern, NULL) < 0)
            continue;
        bool got = weir_glob_path_match(pattern, name);
        bool wanted = oracle_path(pattern, name);
        bool exact = oracle_path_is_plain(pattern, name);
        if (got > wanted || (exact && got != wanted))
            fail_msg("'%.*s' and '%.*s': %d", (int)pattern.len, pattern.p,
                     (int)name.len, name.p, got);
        sound++;
        matched += got;
        plain += exact;
    }
    printf("%u sound, %u matched, %u judged exactly\n", sound, matched, plain);
    assert_compare(matched, >, 1000);
    assert_compare(plain, >, 1000);
}

static void hostile_patterns_end(void **state)
{
    (void)state;
    char pattern[4096];
    char name[4096];
    memset(name, 'a', sizeof(name));
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = i % 2 ? 'a' : '*';
    pattern[sizeof(pattern) - 1] = 'b';
    struct weir_text p = { pattern, sizeof(pattern) };
    struct weir_text n = { name, sizeof(name) };
    assert_false(weir_glob_path_match(p, n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_as_doormans_table),
        cmocka_unit_test(matches_from_end_to_end),
        cmocka_unit_test(names_what_is_broken),
        cmocka_unit_test(matches_as_the_naive_one),
        cmocka_unit_test(hostile_patterns_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
