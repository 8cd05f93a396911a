/* SPDX-License-Identifier: MIT
 * test/core/quota/test_glob.c - globs compared with a matcher that tries
 * everything. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "quota_maker.h"

/* Shortest run first, left to right, by trial: the specification. */
static bool naive(struct weir_text pattern, struct weir_text name,
                  struct weir_captures *captures)
{
    if (pattern.len == 0)
        return name.len == 0;
    struct weir_text rest = { pattern.p + 1, pattern.len - 1 };
    if (pattern.p[0] != '*') {
        if (name.len == 0 || name.p[0] != pattern.p[0])
            return false;
        return naive(rest, (struct weir_text){ name.p + 1, name.len - 1 },
                     captures);
    }
    uint32_t mine = captures->count++;
    for (size_t len = 0; len <= name.len; len++) {
        captures->text[mine] = (struct weir_text){ name.p, len };
        captures->count = mine + 1;
        if (naive(rest, (struct weir_text){ name.p + len, name.len - len },
                  captures))
            return true;
    }
    return false;
}

static void matches_as_the_naive_one(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("globs");
    int matched = 0;
    for (int i = 0; i < 300000; i++) {
        char pattern[10];
        char name[14];
        struct weir_text p = { pattern, weir_rng_below(&rng, 10) };
        struct weir_text n = { name, weir_rng_below(&rng, 14) };
        for (size_t k = 0; k < p.len; k++)
            pattern[k] = "ab**"[weir_rng_below(&rng, 4)];
        for (size_t k = 0; k < n.len; k++)
            name[k] = "ab"[weir_rng_below(&rng, 2)];
        struct weir_captures expected = { .count = 0 };
        struct weir_captures got = { .count = 0 };
        bool want = naive(p, n, &expected);
        assert_int_equal(weir_glob_match(p, n, &got), want);
        if (!want)
            continue;
        matched++;
        assert_int_equal(got.count, expected.count);
        for (uint32_t k = 0; k < got.count; k++)
            assert_true(weir_text_equal(got.text[k], expected.text[k]));
    }
    assert_compare(matched, >, 1000);
}

static void hostile_patterns_end(void **state)
{
    (void)state;
    char pattern[255];
    char name[255];
    memset(name, 'a', sizeof(name));
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = i % 2 ? 'a' : '*';
    pattern[253] = 'b';
    assert_false(weir_glob_match((struct weir_text){ pattern, 255 },
                                 (struct weir_text){ name, 255 }, NULL));
}

/* A value that is missing in a message: no bytes, and NULL. */
static void matches_what_is_absent(void **state)
{
    (void)state;
    const struct weir_text absent = { NULL, 0 };
    assert_true(weir_glob_match(WEIR_TEXT("*"), absent, NULL));
    assert_true(weir_glob_match(absent, absent, NULL));
    assert_false(weir_glob_match(WEIR_TEXT("*a"), absent, NULL));
    assert_false(weir_glob_match(WEIR_TEXT("a*"), absent, NULL));
    assert_false(weir_glob_match(absent, WEIR_TEXT("a"), NULL));
}

static void expands_captures(void **state)
{
    (void)state;
    struct weir_captures captures;
    assert_true(weir_glob_match(WEIR_TEXT("s3_*_put_*"),
                                WEIR_TEXT("s3_media_put_x_y"), &captures));
    assert_int_equal(captures.count, 2);
    char buf[WEIR_NAME_MAX];
    int len = weir_glob_expand(WEIR_TEXT("{2}/{1}{"), &captures, buf);
    assert_int_equal(len, 10);
    assert_memory_equal(buf, "x_y/media{", 10);
    assert_int_equal(weir_glob_expand(WEIR_TEXT("{3}"), &captures, buf),
                     WEIR_ENAME);
    assert_int_equal(weir_glob_expand(WEIR_TEXT("{0}"), &captures, buf),
                     WEIR_ENAME);
}

static void expansion_is_bounded(void **state)
{
    (void)state;
    char name[255];
    memset(name, 'a', sizeof(name));
    struct weir_captures captures;
    struct weir_text whole = { name, sizeof(name) };
    assert_true(weir_glob_match(WEIR_TEXT("*"), whole, &captures));
    char buf[WEIR_NAME_MAX];
    assert_int_equal(weir_glob_expand(WEIR_TEXT("{1}"), &captures, buf), 255);
    assert_int_equal(weir_glob_expand(WEIR_TEXT("{1}x"), &captures, buf),
                     WEIR_ENAME);
}

/* The more specific glob comes first, in both sets alike; no two different
 * globs have the same place. */
static void the_one_that_says_more_comes_first(void **state)
{
    (void)state;
    static const char *const sorted[] = {
        "api/user/*", "api/*/x", "*/*/**abc", "a*/b", "ab*/", "a*", "*", "**",
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(sorted); i++) {
        for (size_t k = 0; k < WEIR_COUNT_OF(sorted); k++) {
            char a[32], b[32];
            snprintf(a, sizeof a, "shadow:%s", sorted[i]);
            snprintf(b, sizeof b, "shadow:%s", sorted[k]);
            int order = weir_glob_compare(weir_text_of(sorted[i]),
                                          weir_text_of(sorted[k]));
            int shadow = weir_glob_compare(weir_text_of(a), weir_text_of(b));
            assert_int_equal(order < 0, i < k);
            assert_int_equal(order == 0, i == k);
            assert_int_equal(shadow < 0, i < k);
        }
    }
}

/* ---- Counted work ---- */

#define LONG_MAX 65536u

static char long_buf[LONG_MAX];

/* 'unit', again and again, up to 'len' bytes. */
static struct weir_text repeated(const char *unit, size_t len)
{
    size_t unit_len = strlen(unit);
    assert_compare(len, <=, LONG_MAX);
    for (size_t i = 0; i < len; i++)
        long_buf[i] = unit[i % unit_len];
    return (struct weir_text){ long_buf, len };
}

/* The units that a search takes; the name doesn't match. */
static size_t work_of(enum weir_glob glob, struct weir_text pattern,
                      struct weir_text name)
{
    struct weir_runs runs;
    size_t work = SIZE_MAX;
    assert_false(weir_template_runs_within(glob, pattern, name, &runs, &work));
    return SIZE_MAX - work;
}

/* Whatever a piece of up to 64 bytes repeats: a byte of the name is read
 * once. */
static void a_search_reads_each_byte_once(void **state)
{
    (void)state;
    char worst[66];
    memset(worst, 'a', sizeof worst);
    worst[0] = worst[65] = '*';
    worst[64] = 'b';
    struct weir_text name = repeated("needl", 60000);
    assert_int_equal(work_of(WEIR_GLOB_NAME, WEIR_TEXT("*needle1*"), name),
                     name.len);
    name = repeated("a", LONG_MAX);
    assert_int_equal(work_of(WEIR_GLOB_NAME,
                             (struct weir_text){ worst, sizeof worst }, name),
                     name.len);
    /* All pieces together. */
    assert_compare(
        work_of(WEIR_GLOB_NAME, WEIR_TEXT("*aaaa*aa*aaaaaa*ab*"), name), <=,
        name.len);
}

/* A longer one is compared behind its first 64 bytes, which is counted. */
static void a_long_piece_is_counted(void **state)
{
    (void)state;
    char pattern[WEIR_NAME_MAX];
    struct weir_text whole = { pattern, sizeof pattern };
    struct weir_runs runs;
    memset(pattern, 'a', sizeof pattern);
    pattern[0] = pattern[sizeof pattern - 1] = '*';
    struct weir_text name = repeated("a", LONG_MAX);
    size_t work = 1000;
    assert_true(
        weir_template_runs_within(WEIR_GLOB_NAME, whole, name, &runs, &work));
    assert_int_equal(runs.text[0].len, 0);
    assert_int_equal(work, 1000 - 253);
    pattern[sizeof pattern - 2] = 'b';
    assert_compare(work_of(WEIR_GLOB_NAME, whole, name), >,
                   (size_t)100 * LONG_MAX);
    long_buf[LONG_MAX - 1] = 'b';
    assert_true(weir_glob_match(whole, name, NULL));
    long_buf[LONG_MAX - 1] = 'a';
}

/* Most templates differ from a name in their first or last piece. */
static void the_ends_are_compared_first(void **state)
{
    (void)state;
    struct weir_text name = repeated("needl", 60000);
    static const char *const patterns[] = { "shop/*needle*", "n*needle*/write",
                                            "*/write", "needl*x",
                                            "needlneedle*" };
    for (size_t i = 0; i < WEIR_COUNT_OF(patterns); i++)
        assert_int_equal(
            work_of(WEIR_GLOB_NAME, weir_text_of(patterns[i]), name), 0);
    /* The ends may not overlap. */
    assert_false(weir_glob_match(WEIR_TEXT("aba*ba"), WEIR_TEXT("aba"), NULL));
    assert_false(weir_glob_match(WEIR_TEXT("a*b*b"), WEIR_TEXT("ab"), NULL));
    assert_true(weir_glob_match(WEIR_TEXT("a*b*b"), WEIR_TEXT("abb"), NULL));
}

static void a_search_ends_with_its_work(void **state)
{
    (void)state;
    struct weir_runs runs;
    struct weir_text name = repeated("needl", 60000);
    static const enum weir_glob globs[] = { WEIR_GLOB_NAME, WEIR_GLOB_PATH };
    for (size_t i = 0; i < WEIR_COUNT_OF(globs); i++) {
        size_t work = 30000;
        assert_false(weir_template_runs_within(globs[i], WEIR_TEXT("*needle*"),
                                               name, &runs, &work));
        assert_int_equal(work, 0);
    }
    size_t left = 30000;
    assert_true(weir_template_runs_within(WEIR_GLOB_NAME, WEIR_TEXT("*eedln*"),
                                          name, &runs, &left));
    assert_int_equal(runs.text[0].len, 1);
    assert_int_equal(left, 30000 - 6);
    /* A path's pieces may be compared at each place. */
    size_t work = work_of(WEIR_GLOB_PATH, WEIR_TEXT("*?????????????????x"),
                          repeated("a", LONG_MAX));
    assert_compare(work, >, (size_t)17 * LONG_MAX);
}

/* Pieces that repeat themselves, found at their first place. */
static void a_piece_is_found_at_its_first_place(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("pieces");
    int found = 0;
    for (int i = 0; i < 100000; i++) {
        char pattern[100] = "*";
        char name[160];
        bool long_one = weir_rng_below(&rng, 8) == 0;
        size_t len = long_one ? 60 + weir_rng_below(&rng, 30)
                              : 1 + weir_rng_below(&rng, 12);
        struct weir_text n = { name, weir_rng_below(&rng, sizeof name) };
        for (size_t k = 0; k < len; k++)
            pattern[1 + k] = "aab"[weir_rng_below(&rng, 3)];
        pattern[1 + len] = '*';
        for (size_t k = 0; k < n.len; k++)
            name[k] = "aab"[weir_rng_below(&rng, 3)];
        if (long_one && n.len > len)
            memcpy(name + weir_rng_below(&rng, n.len - len + 1), pattern + 1,
                   len);
        size_t first = 0;
        while (first + len <= n.len &&
               memcmp(name + first, pattern + 1, len) != 0)
            first++;
        struct weir_captures got;
        bool match =
            weir_glob_match((struct weir_text){ pattern, len + 2 }, n, &got);
        assert_int_equal(match, first + len <= n.len);
        if (match)
            assert_int_equal(got.text[0].len, first);
        found += match;
    }
    assert_compare(found, >, 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_as_the_naive_one),
        cmocka_unit_test(hostile_patterns_end),
        cmocka_unit_test(matches_what_is_absent),
        cmocka_unit_test(expands_captures),
        cmocka_unit_test(expansion_is_bounded),
        cmocka_unit_test(the_one_that_says_more_comes_first),
        cmocka_unit_test(a_search_reads_each_byte_once),
        cmocka_unit_test(a_long_piece_is_counted),
        cmocka_unit_test(the_ends_are_compared_first),
        cmocka_unit_test(a_search_ends_with_its_work),
        cmocka_unit_test(a_piece_is_found_at_its_first_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
