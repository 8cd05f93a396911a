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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_as_the_naive_one),
        cmocka_unit_test(hostile_patterns_end),
        cmocka_unit_test(matches_what_is_absent),
        cmocka_unit_test(expands_captures),
        cmocka_unit_test(expansion_is_bounded),
        cmocka_unit_test(the_one_that_says_more_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
