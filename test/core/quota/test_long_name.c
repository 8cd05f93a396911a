/* SPDX-License-Identifier: MIT
 * test_long_name.c - the stored form of long names: what is kept, what differs,
 * and that the template that matches a name matches its stored form too. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/quota/long_name.h"
#include "core/quota/quota_text.h"
#include "seed.h"

/* 'pattern' NULL: no template. */
static struct weir_text store(enum weir_glob glob, const char *pattern,
                              struct weir_text name)
{
    static char buf[WEIR_NAME_MAX];
    struct weir_runs runs;
    struct weir_name_hash hash;
    weir_long_name_hash(name, &hash);
    if (pattern)
        assert_true(
            weir_template_runs(glob, weir_text_of(pattern), name, &runs));
    return (struct weir_text){
        buf, weir_long_name_store(name, &hash, pattern ? &runs : NULL, buf)
    };
}

/* 'before', 'count' times 'fill', 'behind'. */
static struct weir_text longer(const char *before, size_t count,
                               const char *fill, const char *behind)
{
    static char buf[8][4096];
    static int turn;
    turn = (turn + 1) % 8;
    struct weir_out out = { buf[turn], sizeof buf[turn], 0 };
    weir_out_string(&out, before);
    for (size_t i = 0; i < count; i++)
        weir_out_string(&out, fill);
    weir_out_string(&out, behind);
    return (struct weir_text){ out.buf, out.len };
}

static void test_form(void **state)
{
    (void)state;
    struct weir_text name = longer("user/", 300, "a", "");
    struct weir_text stored = store(WEIR_GLOB_NAME, NULL, name);
    assert_int_equal(stored.len, WEIR_NAME_MAX);
    /* printf 'user/%0300d' 0 | tr 0 a | sha256sum | head -c 32 */
    assert_memory_equal(stored.p, name.p, 222);
    assert_int_equal(stored.p[222], '~');
    assert_memory_equal(stored.p + 223, "eecd37a20d65984e4c37b3ca19e77939", 32);
    assert_false(weir_name_is_long(longer("user/", 250, "a", "")));
    assert_true(weir_name_is_long(longer("user/", 251, "a", "")));
    assert_true(weir_name_is_cut(stored));
    assert_true(weir_name_is_long(stored));
}

/* A given name in the stored form is stored under another name. */
static void test_a_stored_form_is_hashed_again(void **state)
{
    (void)state;
    char copy[WEIR_NAME_MAX];
    struct weir_text name = longer("user/", 300, "a", "");
    struct weir_text stored = store(WEIR_GLOB_NAME, "user/*", name);
    memcpy(copy, stored.p, stored.len);
    struct weir_text forged = { copy, stored.len };
    assert_false(
        weir_text_equal(store(WEIR_GLOB_NAME, "user/*", forged), forged));
    /* Upper-case digits, too few of them, or a short name: an ordinary name. */
    assert_true(weir_name_is_long(
        longer("", 120, "a", "~0123456789abcdef0123456789abcdef")));
    assert_false(weir_name_is_long(
        longer("", 120, "a", "~0123456789abcdef0123456789abcdeF")));
    assert_false(weir_name_is_long(
        longer("", 120, "a", "~0123456789abcdef0123456789abcde")));
    assert_false(
        weir_name_is_long(WEIR_TEXT("a~0123456789abcdef0123456789abcdef")));
}

static void test_names_differ_in_one_byte(void **state)
{
    (void)state;
    char one[WEIR_NAME_MAX];
    struct weir_text a =
        store(WEIR_GLOB_NAME, "user/*", longer("user/", 400, "a", "x"));
    memcpy(one, a.p, a.len);
    struct weir_text b =
        store(WEIR_GLOB_NAME, "user/*", longer("user/", 400, "a", "y"));
    assert_int_equal(a.len, b.len);
    assert_int_not_equal(memcmp(one, b.p, b.len), 0);
}

/* The ends of names that templates name are kept, and short texts whole. */
static void test_templates_match_what_is_stored(void **state)
{
    (void)state;
    struct weir_text name =
        longer("envoy/shop/path=", 300, "b", "/user=ann/slow");
    struct weir_text stored =
        store(WEIR_GLOB_PATH, "envoy/shop/path=*/user=*/slow", name);
    assert_true(weir_template_match(WEIR_GLOB_PATH,
                                    WEIR_TEXT("envoy/shop/path=*/user=*/slow"),
                                    stored, NULL));
    assert_memory_equal(stored.p + stored.len - 14, "/user=ann/slow", 14);
    name = longer("", 150, "ä", "-of-a-tenant");
    stored = store(WEIR_GLOB_NAME, "*-of-*", name);
    assert_true(
        weir_template_match(WEIR_GLOB_NAME, WEIR_TEXT("*-of-*"), stored, NULL));
    assert_int_equal(weir_name_check(stored, NULL), 0);
}

/* A template that is nearly as long as a name leaves no room. */
static void test_no_room(void **state)
{
    (void)state;
    struct weir_text pattern = longer("", 222, "a", "*");
    char text[WEIR_NAME_MAX + 1] = "";
    memcpy(text, pattern.p, pattern.len);
    assert_int_equal(store(WEIR_GLOB_NAME, text, longer("", 300, "a", "")).len,
                     WEIR_NAME_MAX);
    pattern = longer("", 223, "a", "*");
    memcpy(text, pattern.p, pattern.len);
    assert_int_equal(store(WEIR_GLOB_NAME, text, longer("", 300, "a", "")).len,
                     0);
}

static void test_check(void **state)
{
    (void)state;
    struct weir_diag diag;
    static char bytes[WEIR_GIVEN_NAME_MAX + 1];
    memset(bytes, 'a', sizeof bytes);
    struct weir_text name = { bytes, WEIR_GIVEN_NAME_MAX };
    assert_int_equal(weir_given_name_check(name, &diag), 0);
    name.len++;
    assert_int_equal(weir_given_name_check(name, &diag), WEIR_ETOOBIG);
    name.len--;
    bytes[WEIR_GIVEN_NAME_MAX - 1] = (char)0xc3; /* half an 'ä' */
    assert_int_equal(weir_given_name_check(name, &diag), WEIR_ENAME);
}

static const char *const pieces[] = { "a",  "b/", "ä",  "€", "/",
                                      "~f", "0",  "yz", "*" };

static size_t put_random(struct weir_rng *rng, struct weir_out *out, size_t max)
{
    size_t from = out->len;
    size_t len = weir_rng_below(rng, max);
    while (out->len - from < len)
        weir_out_string(out,
                        pieces[weir_rng_below(rng, WEIR_COUNT_OF(pieces) - 1)]);
    return out->len - from;
}

/* A name that is made of a pattern: the pattern matches it, and its stored
 * form, which is sound, is no longer than a name, and has the mark. */
static void test_random_names(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("names");
    static char pattern_buf[256], name_buf[8192];
    size_t stored_some = 0;
    for (int round = 0; round < 20000; round++) {
        struct weir_out pattern = { pattern_buf, 120, 0 };
        struct weir_out name = { name_buf, sizeof name_buf, 0 };
        for (size_t i = 0, n = 1 + weir_rng_below(&rng, 5); i < n; i++) {
            size_t from = pattern.len;
            put_random(&rng, &pattern, 20);
            weir_out_text(&name, (struct weir_text){ pattern.buf + from,
                                                     pattern.len - from });
            weir_out_string(&pattern, "*");
            put_random(&rng, &name, 300);
        }
        struct weir_text given = { name.buf, name.len };
        struct weir_text glob = { pattern.buf, pattern.len };
        struct weir_runs runs;
        char buf[WEIR_NAME_MAX];
        if (!weir_name_is_long(given) ||
            !weir_template_runs(WEIR_GLOB_NAME, glob, given, &runs))
            continue;
        struct weir_name_hash hash;
        weir_long_name_hash(given, &hash);
        struct weir_text stored = { buf, weir_long_name_store(given, &hash,
                                                              &runs, buf) };
        assert_true(stored.len > 0);
        assert_int_equal(weir_name_check(stored, NULL), 0);
        assert_true(weir_name_is_cut(stored));
        assert_true(weir_template_match(WEIR_GLOB_NAME, glob, stored, NULL));
        stored_some++;
    }
    assert_true(stored_some > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_a_stored_form_is_hashed_again),
        cmocka_unit_test(test_names_differ_in_one_byte),
        cmocka_unit_test(test_templates_match_what_is_stored),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_random_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
