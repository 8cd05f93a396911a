/* SPDX-License-Identifier: MIT
 * test/core/quota/test_name_set.c - the set of names that several globs
 * permit. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "core/quota/name_set.h"
#include "core/quota/quota.h"

static bool has(const struct weir_name_set *set, const char *name)
{
    return weir_name_set_has(set, weir_text_of(name));
}

static void nothing_and_everything(void **state)
{
    (void)state;
    struct weir_name_set none = { .all = false };
    assert_false(has(&none, "a"));
    assert_true(has(&weir_name_set_all, "a"));
    assert_true(has(&weir_name_set_all, "shadow:a"));
}

static void globs_add_up(void **state)
{
    (void)state;
    struct weir_name_set set = { .all = false };
    assert_int_equal(weir_name_set_add(&set, WEIR_TEXT("team-a/*")), 0);
    assert_int_equal(weir_name_set_add(&set, WEIR_TEXT("shared")), 0);
    struct weir_name_set other = set;
    assert_true(has(&set, "team-a/x"));
    assert_true(has(&set, "team-a/x/y"));
    assert_true(has(&set, "team-a/"));
    assert_true(has(&set, "shared"));
    assert_false(has(&set, "team-a"));
    assert_false(has(&set, "team-ab/x"));
    assert_false(has(&set, "team-b/x"));
    assert_false(has(&set, "shared/x"));
    assert_false(has(&set, "throttle:1:1/1s:a/x"));
    assert_int_equal(weir_name_set_add(&set, WEIR_TEXT("throttle:*:a/*")), 0);
    assert_true(has(&set, "throttle:1:1/1s:a/x"));
    assert_false(has(&set, "throttle:1:1/1s:b/x"));
    assert_true(has(&set, "shared"));
    assert_true(weir_name_set_equal(&set, &set));
    assert_false(weir_name_set_equal(&set, &other));
    assert_false(weir_name_set_equal(&set, &weir_name_set_all));
}

/* A shadow quota's counts have a name of their own at the roots. */
static void the_shadow_of_a_name_is_as_the_name(void **state)
{
    (void)state;
    struct weir_name_set set = { .all = false };
    assert_int_equal(weir_name_set_add(&set, WEIR_TEXT("team-a/*")), 0);
    assert_true(has(&set, "shadow:team-a/x"));
    assert_false(has(&set, "shadow:team-b/x"));
    assert_false(has(&set, "shadow:shadow:team-a/x"));
}

static void there_is_a_bound(void **state)
{
    (void)state;
    char glob[WEIR_NAME_MAX];
    struct weir_name_set set = { .all = false };
    memset(glob, 'x', sizeof glob);
    struct weir_text longest = { glob, sizeof glob };
    assert_int_equal(weir_name_set_add(&set, longest), 0);
    assert_int_equal(weir_name_set_add(&set, longest), 0);
    assert_int_equal(set.len, WEIR_NAME_SET_BYTES_MAX);
    assert_int_equal(weir_name_set_add(&set, WEIR_TEXT("a")), WEIR_ETOOBIG);
    assert_false(has(&set, "a"));
    assert_true(weir_name_set_has(&set, longest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_and_everything),
        cmocka_unit_test(globs_add_up),
        cmocka_unit_test(the_shadow_of_a_name_is_as_the_name),
        cmocka_unit_test(there_is_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
