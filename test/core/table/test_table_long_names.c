/* SPDX-License-Identifier: MIT
 * test_table_long_names.c - names over 255 bytes: their template, order and
 * parents follow from the whole name, all tables store them alike, and no given
 * name reaches another one's bucket. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/quota/long_name.h"
#include "core/quota/quota_text.h"
#include "core/table/table_stored_name.h"
#include "table_calls.h"
#include "table_maker.h"

/* 'before', 'count' times 'a', 'behind'; a few live at once. */
static struct weir_text longer(const char *before, size_t count,
                               const char *behind)
{
    static char buf[16][WEIR_GIVEN_NAME_MAX + 64];
    static int turn;
    turn = (turn + 1) % 16;
    struct weir_out out = { buf[turn], sizeof buf[turn], 0 };
    weir_out_string(&out, before);
    memset(out.buf + out.len, 'a', count);
    out.len += count;
    weir_out_string(&out, behind);
    return (struct weir_text){ out.buf, out.len };
}

static void put(struct weir_table *t, const char *name, const char *parent,
                uint64_t burst)
{
    struct weir_quota quota = made_quota_of(name, parent, 1, burst);
    assert_int_equal(weir_table_put(t, &quota, MADE_AT), WEIR_OK);
}

static enum weir_resolved resolve(struct weir_table *t, struct weir_text name,
                                  struct weir_ref *out)
{
    return weir_table_resolve_given(t, 0, name, false, out, MADE_AT);
}

/* As libweir: found without the lock, else resolved. */
static bool take(struct weir_table *t, struct weir_text name)
{
    struct weir_stored_name stored;
    struct weir_ref ref;
    if (!weir_name_is_long(name) ||
        !weir_stored_name_find(t, name, &stored, &ref))
        assert_int_equal(resolve(t, name, &ref), WEIR_RESOLVED);
    return !(weir_table_take(t, 1, ref, 1, NULL, MADE_AT) &
             WEIR_OUTCOME_LIMITED);
}

static const char *name_of(struct weir_table *t, uint32_t slot)
{
    static char buf[8][WEIR_NAME_MAX + 1];
    static int turn;
    turn = (turn + 1) % 8;
    buf[turn][0] = '\0';
    if (slot != WEIR_SLOT_NONE)
        weir_table_name(t, slot, buf[turn]);
    return buf[turn];
}

static uint32_t slot_of(struct weir_table *t, struct weir_text name)
{
    struct weir_ref ref;
    assert_int_equal(resolve(t, name, &ref), WEIR_RESOLVED);
    return ref.slot;
}

static const char *parent_of(struct weir_table *t, struct weir_text name)
{
    return name_of(t, weir_parent(weir_hot(t, slot_of(t, name))));
}

static const char *template_of(struct weir_table *t, struct weir_text name)
{
    return name_of(t, weir_table_template_of(t, slot_of(t, name)));
}

static unsigned takes(struct weir_table *t, struct weir_text name)
{
    unsigned passed = 0;
    while (passed < 100 && take(t, name))
        passed++;
    return passed;
}

static void test_each_long_name_has_a_bucket(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    put(t, "user/*", NULL, 3);
    assert_int_equal(takes(t, longer("user/", 300, "x")), 3);
    assert_int_equal(takes(t, longer("user/", 300, "y")), 3);
    assert_int_equal(takes(t, longer("user/", 300, "x")), 0);
    assert_int_equal(takes(t, longer("user/", 65530, "x")), 3);
    made_audit(t);
    free(t);
}

/* Another process stores it alike, and so does one that has only the stored
 * name, as a root. */
static void test_all_tables_store_alike(void **state)
{
    (void)state;
    struct weir_table *t[2] = { made_table(64, 2, 1), made_table(64, 2, 77) };
    struct weir_text name = longer("user/", 300, "x");
    for (int i = 0; i < 2; i++)
        put(t[i], "user/*", NULL, 3);
    assert_string_equal(name_of(t[0], slot_of(t[0], name)),
                        name_of(t[1], slot_of(t[1], name)));
    struct weir_ref ref;
    struct weir_text stored = weir_text_of(name_of(t[0], slot_of(t[0], name)));
    assert_int_equal(weir_table_resolve(t[1], stored, false, &ref, MADE_AT),
                     WEIR_RESOLVED);
    assert_int_equal(ref.slot, slot_of(t[1], name));
    free(t[0]);
    free(t[1]);
}

static void test_no_name_reaches_anothers_bucket(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    put(t, "user/*", NULL, 3);
    struct weir_text name = longer("user/", 300, "x");
    uint32_t slot = slot_of(t, name);
    char forged[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(t, slot, forged);
    assert_int_equal(takes(t, (struct weir_text){ forged, len }), 3);
    assert_int_equal(takes(t, name), 3);
    assert_int_not_equal(slot_of(t, (struct weir_text){ forged, len }), slot);
    /* Not by a parent's name either. */
    put(t, "by/*", "{1}", 100);
    char child[WEIR_NAME_MAX + 4];
    int child_len = snprintf(child, sizeof child, "by/%s", forged);
    const char *parent =
        parent_of(t, (struct weir_text){ child, (size_t)child_len });
    assert_true(parent[0]);
    assert_string_not_equal(parent, forged);
    made_audit(t);
    free(t);
}

/* The bytes that the cut leaves out decide too. */
static void test_the_whole_name_is_ruled(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    put(t, "user/*", NULL, 3);
    put(t, "user/*/slow", NULL, 1);
    assert_string_equal(template_of(t, longer("user/", 300, "/slow")),
                        "user/*/slow");
    assert_string_equal(template_of(t, longer("user/", 300, "/slo")), "user/*");
    assert_int_equal(takes(t, longer("user/", 300, "/slow")), 1);
    struct weir_ref ref;
    assert_int_equal(resolve(t, longer("none/", 300, ""), &ref),
                     WEIR_RESOLVED_NONE);
    made_audit(t);
    free(t);
}

/* A parent of short name, one of long name, and the same by its own name. */
static void test_parents(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    put(t, "tenant/*/user/*", "tenant/{1}", 100);
    put(t, "tenant/*", NULL, 5);
    assert_string_equal(parent_of(t, longer("tenant/t/user/", 300, "")),
                        "tenant/t");
    struct weir_text tenant = longer("tenant/", 240, "");
    assert_string_equal(parent_of(t, longer("tenant/", 240, "/user/1")),
                        name_of(t, slot_of(t, tenant)));
    tenant = longer("tenant/", 300, "");
    struct weir_text user = longer("tenant/", 300, "/user/1");
    assert_string_equal(parent_of(t, user), name_of(t, slot_of(t, tenant)));
    assert_int_equal(takes(t, user), 5);
    assert_int_equal(takes(t, tenant), 0);
    /* A parent that has no stored form would not limit. */
    struct weir_ref ref;
    assert_int_equal(resolve(t, longer("tenant/", 5000, "/user/1"), &ref),
                     WEIR_RESOLVED_REFUSED);
    made_audit(t);
    free(t);
}

/* An edit of the template's parent reaches a long name at its next request,
 * by the whole name. */
static void test_an_edit_of_the_parent(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    struct weir_text user = longer("tenant/", 300, "/user/1");
    put(t, "tenant/*/user/*", "tenant/{1}", 100);
    put(t, "tenant/*", NULL, 50);
    assert_true(take(t, user));
    assert_string_equal(parent_of(t, user),
                        name_of(t, slot_of(t, longer("tenant/", 300, ""))));
    put(t, "plan/*", NULL, 7);
    put(t, "tenant/*/user/*", "plan/{1}", 100);
    assert_int_equal(takes(t, user), 7);
    assert_string_equal(parent_of(t, user),
                        name_of(t, slot_of(t, longer("plan/", 300, ""))));
    made_audit(t);
    free(t);
}

/* A new template before the one that ruled a name. */
static void test_an_edit_of_the_order(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    struct weir_text name = longer("user/", 300, "/slow");
    put(t, "user/*", NULL, 9);
    assert_int_equal(takes(t, name), 9);
    put(t, "user/*/slow", NULL, 2);
    assert_int_equal(takes(t, name), 2);
    weir_table_drop(t, WEIR_TEXT("user/*/slow"), MADE_AT);
    assert_string_equal(template_of(t, name), "user/*");
    assert_int_equal(takes(t, name), 0);
    weir_table_drop(t, WEIR_TEXT("user/*"), MADE_AT);
    struct weir_ref ref;
    assert_int_equal(resolve(t, name, &ref), WEIR_RESOLVED_NONE);
    made_audit(t);
    free(t);
}

/* The quota of exactly the stored name rules that one name. */
static void test_a_quota_of_one_long_name(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    struct weir_text name = longer("user/", 300, "/slow");
    put(t, "user/*", NULL, 9);
    put(t, name_of(t, slot_of(t, name)), NULL, 1);
    assert_int_equal(takes(t, name), 1);
    assert_int_equal(takes(t, longer("user/", 301, "/slow")), 9);
    made_audit(t);
    free(t);
}

static void test_names_that_contain_their_limit(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    assert_int_equal(takes(t, longer("throttle:4:30/60s:", 300, "x")), 4);
    assert_int_equal(takes(t, longer("throttle:4:30/60s:", 300, "y")), 4);
    made_audit(t);
    free(t);
}

/* A name that can't be stored faithfully is refused, and so limited. */
static void test_refused(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    struct weir_ref ref;
    put(t, "user/*", NULL, 9);
    assert_int_equal(
        resolve(t, longer("user/", WEIR_GIVEN_NAME_MAX - 5, ""), &ref),
        WEIR_RESOLVED);
    assert_int_equal(
        resolve(t, longer("user/", WEIR_GIVEN_NAME_MAX - 4, ""), &ref),
        WEIR_RESOLVED_REFUSED);
    /* The stored form would be ruled by the path's template. */
    struct weir_quota path = made_quota_of("p/*", NULL, 1, 2);
    path.glob = WEIR_GLOB_PATH;
    assert_int_equal(weir_table_put(t, &path, MADE_AT), WEIR_OK);
    put(t, "*", NULL, 9);
    assert_int_equal(resolve(t, longer("p/", 300, "/x"), &ref),
                     WEIR_RESOLVED_REFUSED);
    assert_int_equal(resolve(t, longer("p/b/", 300, "/x"), &ref),
                     WEIR_RESOLVED);
    made_audit(t);
    free(t);
}

static void test_handles(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    struct weir_text name = longer("user/", 300, "");
    struct weir_ref ref, again;
    put(t, "user/*", NULL, 3);
    assert_int_equal(weir_table_pin(t, name, &ref, MADE_AT), WEIR_RESOLVED);
    assert_int_equal(resolve(t, name, &again), WEIR_RESOLVED);
    assert_int_equal(ref.slot, again.slot);
    put(t, "user/*", NULL, 4);
    assert_true(weir_table_ref_lives(t, ref));
    weir_table_unpin(t, ref);
    made_audit(t);
    free(t);
}

/* The work of the search is bounded: by the name's length and the number of
 * templates that have to be searched for in it. */
static void test_a_search_that_takes_too_much(void **state)
{
    (void)state;
    struct weir_table *t = made_table(2048, 2, 1);
    struct weir_ref ref;
    char template[32];
    for (int i = 1; i <= 250; i++) {
        snprintf(template, sizeof template, "*needle%d*", i);
        put(t, template, NULL, 3);
    }
    assert_int_equal(resolve(t, longer("needl", 60000, ""), &ref),
                     WEIR_RESOLVED_REFUSED);
    struct weir_stored_name stored;
    assert_false(
        weir_stored_name_find(t, longer("needl", 60000, ""), &stored, &ref));
    assert_int_equal(stored.len, 0);
    /* Names of 1,000 bytes may be searched through for 262 templates. */
    assert_int_equal(resolve(t, longer("needl", 1000, ""), &ref),
                     WEIR_RESOLVED_NONE);
    /* Templates that differ at an end cost nothing, nor do those behind the
     * first that matches. */
    for (int i = 1; i <= 700; i++) {
        snprintf(template, sizeof template, "other%d/*/write", i);
        put(t, template, NULL, 3);
    }
    put(t, "shop/of/a/long/prefix/*", NULL, 3);
    struct weir_text name = longer("shop/of/a/long/prefix/", 65000, "");
    assert_string_equal(template_of(t, name), "shop/of/a/long/prefix/*");
    assert_int_equal(takes(t, name), 3);
    made_audit(t);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_long_name_has_a_bucket),
        cmocka_unit_test(test_all_tables_store_alike),
        cmocka_unit_test(test_no_name_reaches_anothers_bucket),
        cmocka_unit_test(test_the_whole_name_is_ruled),
        cmocka_unit_test(test_parents),
        cmocka_unit_test(test_an_edit_of_the_parent),
        cmocka_unit_test(test_an_edit_of_the_order),
        cmocka_unit_test(test_a_quota_of_one_long_name),
        cmocka_unit_test(test_names_that_contain_their_limit),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_handles),
        cmocka_unit_test(test_a_search_that_takes_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
