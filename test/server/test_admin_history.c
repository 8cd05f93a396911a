/* SPDX-License-Identifier: MIT
 * test/server/test_admin_history.c - the administration: edits of many quotas
 * at once. The log and undo, removals, the shadow set and its promotion. */

#include <stdio.h>
#include <string.h>

#include "admin_house.h"

/* ---- The log ---- */

static const char *entry(struct house *house, size_t i, const char *key,
                         const char *field)
{
    json_t *list = json_object_get(house->json, "entries");
    json_t *value = json_object_get(json_array_get(list, i), key);
    if (field)
        value = json_object_get(value, field);
    const char *text = json_string_value(value);
    return text ? text : "";
}

static size_t entries(struct house *house)
{
    return json_array_size(json_object_get(house->json, "entries"));
}

static void test_who_did_what_and_undo(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 200, "GET", "/v1/log", NULL);
    assert_int_equal(entries(h), 0);
    h->identity = "ann";
    must(h, 201, "PUT", "/v1/quotas/a", "{\"limit\": \"5/s\"}");
    h->identity = "bob";
    must(h, 200, "PATCH", "/v1/quotas/a", "{\"limit\": \"6/s\"}");
    h->identity = NULL;
    must(h, 201, "PUT", "/v1/quotas/b", "{}");
    must(h, 200, "DELETE", "/v1/quotas/b", NULL);

    must(h, 200, "GET", "/v1/log?max=3", NULL);
    assert_int_equal(entries(h), 3);
    assert_int_equal(number(h, "next"), 2);
    assert_string_equal(entry(h, 0, "name", NULL), "b");
    assert_string_equal(entry(h, 0, "identity", NULL), "anonymous");
    assert_string_equal(entry(h, 2, "identity", NULL), "bob");
    assert_string_equal(entry(h, 2, "before", "limit"), "5/s");
    assert_string_equal(entry(h, 2, "after", "limit"), "6/s");
    must(h, 200, "GET", "/v1/log?below=2", NULL);
    assert_int_equal(entries(h), 1);
    assert_int_equal(number(h, "next"), 0);
    must(h, 200, "GET", "/v1/log?quota=b", NULL);
    assert_int_equal(entries(h), 2);

    refused(h, "WEIR_ECHANGED", "bob", "POST", "/v1/undo", "{\"epoch\": 1}");
    refused(h, "WEIR_ENOENT", "99", "POST", "/v1/undo", "{\"epoch\": 99}");
    refused(h, "WEIR_EINVAL", "epoch", "POST", "/v1/undo", "{\"epoch\": 0}");
    h->identity = "eve";
    must(h, 200, "POST", "/v1/undo", "{\"epoch\": 2}");
    assert_int_equal(number(h, "undone"), 2);
    assert_int_equal(number(h, "epoch"), 5);
    must(h, 200, "GET", "/v1/quotas/a", NULL);
    assert_string_equal(member(h, "limit"), "5/s");
    must(h, 200, "GET", "/v1/log?max=1", NULL);
    assert_string_equal(entry(h, 0, "identity", NULL), "eve");
    refused(h, "WEIR_EINVAL", "max", "GET", "/v1/log?max=1001", NULL);
}

/* ---- The shadow set ---- */

#define SHADOW_SET                                             \
    "{\"quotas\": [{\"name\": \"site\", \"limit\": \"20/s\"}," \
    "{\"name\": \"new/*\", \"parent\": \"site\"}]}"

static size_t listed(struct house *house, const char *target)
{
    must(house, 200, "GET", target, NULL);
    return json_array_size(json_object_get(house->json, "quotas"));
}

static void test_a_shadow_set_is_beside_the_live_one(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    must(h, 201, "PUT", "/v1/quotas/site", "{\"limit\": \"10/s\"}");
    must(h, 201, "PUT", "/v1/quotas/zoo", "{}");
    must(h, 200, "POST", "/v1/quotas:import?shadow=1", SHADOW_SET);
    assert_int_equal(number(h, "created"), 2);
    assert_int_equal(listed(h, "/v1/quotas"), 2);
    assert_int_equal(number(h, "total"), 2);
    assert_int_equal(listed(h, "/v1/quotas?limit=1"), 1);
    assert_string_equal(member(h, "next"), "site");
    assert_int_equal(listed(h, "/v1/quotas?limit=1&after=site"), 1);
    assert_string_equal(member(h, "next"), "");
    assert_int_equal(listed(h, "/v1/quotas:export"), 2);
    assert_int_equal(listed(h, "/v1/quotas?shadow=1&limit=1"), 1);
    assert_string_equal(member(h, "next"), "new/*");
    assert_int_equal(listed(h, "/v1/quotas?shadow=1&after=new/*"), 1);
    assert_int_equal(listed(h, "/v1/quotas?shadow=1&match=new*"), 1);
    must(h, 200, "GET", "/v1/quotas/new/*?shadow=1", NULL);
    assert_string_equal(member(h, "parent"), "site");
    must(h, 200, "GET", "/v1/quotas/site?shadow=1", NULL);
    assert_string_equal(member(h, "limit"), "20/s");
    /* Another file replaces it; the live set is as it was. */
    must(h, 200, "POST", "/v1/quotas:import?shadow=1",
         "[{\"name\": \"site\", \"limit\": \"30/s\"}]");
    assert_int_equal(number(h, "changed"), 1);
    assert_int_equal(number(h, "removed"), 1);
    assert_int_equal(listed(h, "/v1/quotas"), 2);
    /* Parts of one set. */
    must(h, 200, "POST", "/v1/quotas:import?shadow=1&add=1",
         "[{\"name\": \"part\", \"parent\": \"site\"}]");
    assert_int_equal(number(h, "created"), 1);
    assert_int_equal(number(h, "removed"), 0);
    assert_int_equal(listed(h, "/v1/quotas?shadow=1"), 2);
    must(h, 200, "POST", "/v1/quotas:import?shadow=1",
         "[{\"name\": \"site\", \"limit\": \"30/s\"}]");
    /* Nor does a live import touch the shadow set. */
    must(h, 200, "POST", "/v1/quotas:import?replace=1",
         "[{\"name\": \"site\", \"limit\": \"11/s\"}]");
    assert_int_equal(number(h, "removed"), 1);
    assert_int_equal(listed(h, "/v1/quotas?shadow=1"), 1);
    must(h, 200, "POST", "/v1/shadow:discard", NULL);
    assert_int_equal(number(h, "removed"), 1);
    assert_int_equal(listed(h, "/v1/quotas?shadow=1"), 0);
    assert_int_equal(listed(h, "/v1/quotas"), 1);
}

static void test_promotion_is_one_edit(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    refused(h, "WEIR_ENOENT", "no shadow set", "POST", "/v1/shadow:promote",
            NULL);
    must(h, 201, "PUT", "/v1/quotas/site", "{\"limit\": \"10/s\"}");
    must(h, 201, "PUT", "/v1/quotas/old", "{\"parent\": \"site\"}");
    must(h, 200, "POST", "/v1/quotas:import?shadow=1", SHADOW_SET);
    must(h, 200, "POST", "/v1/shadow:promote", NULL);
    assert_int_equal(number(h, "created"), 1);
    assert_int_equal(number(h, "changed"), 1);
    assert_int_equal(number(h, "removed"), 1);
    json_int_t epoch = number(h, "epoch");
    assert_int_equal(listed(h, "/v1/quotas?shadow=1"), 0);
    assert_int_equal(listed(h, "/v1/quotas"), 2);
    must(h, 200, "GET", "/v1/quotas/new/*", NULL);
    assert_string_equal(member(h, "parent"), "site");

    char body[64];
    snprintf(body, sizeof body, "{\"epoch\": %lld}", (long long)epoch);
    must(h, 200, "POST", "/v1/undo", body);
    must(h, 200, "GET", "/v1/quotas/old", NULL);
    must(h, 200, "GET", "/v1/quotas/site", NULL);
    assert_string_equal(member(h, "limit"), "10/s");
    assert_int_equal(listed(h, "/v1/quotas?shadow=1"), 2);
    must(h, 200, "GET", "/v1/log?quota=new/*&shadow=1", NULL);
    assert_int_equal(entries(h), 3); /* made, promoted, undone */
}

/* The live name of the template that applies to 'name' in the root's
 * catalog. */
static void ruler(struct house *h, const char *name, char *buf)
{
    const struct weir_quota *quota =
        weir_catalog_find(weir_root_catalog(h->root), weir_text_of(name), NULL);
    assert_non_null(quota);
    struct weir_text live = weir_name_live(quota->name);
    memcpy(buf, live.p, live.len);
    buf[live.len] = '\0';
}

/* The same template applies to a name in the shadow set and once that set is
 * live; after an undo the earlier one does, for any order in which they were
 * made. */
static void test_promote_and_undo_keep_the_order_of_templates(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    char live[WEIR_NAME_MAX + 1];
    char shadow[WEIR_NAME_MAX + 1];
    char now[WEIR_NAME_MAX + 1];
    must(h, 201, "PUT", "/v1/quotas/a%2F*", "{\"limit\": \"1/s\"}");
    must(h, 201, "PUT", "/v1/quotas/*%2Fb", "{\"limit\": \"2/s\"}");
    ruler(h, "a/b", live);
    must(h, 200, "POST", "/v1/quotas:import?shadow=1",
         "[{\"name\": \"a*b\"}, {\"name\": \"a/*\"},"
         " {\"name\": \"*/b*\"}]");
    ruler(h, "shadow:a/b", shadow);
    must(h, 200, "POST", "/v1/shadow:promote", NULL);
    ruler(h, "a/b", now);
    assert_string_equal(now, shadow);
    char body[64];
    snprintf(body, sizeof body, "{\"epoch\": %lld}",
             (long long)number(h, "epoch"));
    must(h, 200, "POST", "/v1/undo", body);
    ruler(h, "a/b", now);
    assert_string_equal(now, live);
    ruler(h, "shadow:a/b", now);
    assert_string_equal(now, shadow);
}

static void test_removals_are_one_edit(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    static const char path[] = "/v1/quotas:remove";
    must(h, 201, "PUT", "/v1/quotas/a", "{}");
    must(h, 201, "PUT", "/v1/quotas/b", "{\"parent\": \"a\"}");
    must(h, 201, "PUT", "/v1/quotas/c", "{\"parent\": \"b\"}");
    refused(h, "WEIR_ECHILDREN", "'c'", "POST", path,
            "{\"names\": [\"a\", \"b\"]}");
    refused(h, "WEIR_ENOENT", "'d'", "POST", path,
            "{\"names\": [\"d\", \"c\"]}");
    refused(h, "WEIR_EEXIST", "twice", "POST", path,
            "{\"names\": [\"c\", \"c\"]}");
    refused(h, "WEIR_ENAME", "shadow set", "POST", path,
            "{\"names\": [\"shadow:c\"]}");
    refused(h, "WEIR_EINVAL", "names", "POST", path, "{\"names\": [1]}");
    refused(h, "WEIR_EINVAL", "names", "POST", path, "[\"c\"]");
    assert_int_equal(listed(h, "/v1/quotas"), 3);
    must(h, 200, "POST", path, "{\"names\": [\"a\", \"c\", \"b\"]}");
    assert_int_equal(number(h, "removed"), 3);
    assert_int_equal(number(h, "epoch"), 6);
    assert_int_equal(listed(h, "/v1/quotas"), 0);
    must(h, 200, "POST", "/v1/undo", "{\"epoch\": 5}");
    assert_int_equal(listed(h, "/v1/quotas"), 3);
}

static void test_a_reset_is_an_edit(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    static const char path[] = "/v1/quotas:reset";
    must(h, 201, "PUT", "/v1/quotas/a", "{\"limit\": \"10/s\"}");
    must(h, 201, "PUT", "/v1/quotas/t%2F*", "{\"limit\": \"5/s\"}");
    must(h, 201, "PUT", "/v1/quotas/p",
         "{\"limit\": \"5\", \"kind\": \"concurrency\"}");
    must(h, 201, "PUT", "/v1/quotas/l",
         "{\"limit\": \"5/s\", \"sharing\": \"leased\"}");
    must(h, 201, "PUT", "/v1/quotas/r",
         "{\"limit\": \"5/s\", \"sharing\": \"exact\","
         " \"store\": \"redis://h:1\"}");
    refused(h, "WEIR_ENOENT", "no quota 'd'", "POST", path,
            "{\"names\": [\"a\", \"d\"]}");
    refused(h, "WEIR_EQUOTA", "'t/*' rules it", "POST", path,
            "{\"names\": [\"t/3\"]}");
    refused(h, "WEIR_EQUOTA", "no bucket", "POST", path,
            "{\"names\": [\"p\"]}");
    refused(h, "WEIR_EQUOTA", "leased", "POST", path, "{\"names\": [\"l\"]}");
    refused(h, "WEIR_EQUOTA", "its key", "POST", path, "{\"names\": [\"r\"]}");
    refused(h, "WEIR_EINVAL", "names", "POST", path, "{\"names\": []}");
    refused(h, "WEIR_EEXIST", "twice", "POST", path,
            "{\"names\": [\"a\", \"a\"]}");
    must(h, 200, "POST", path, "{\"names\": [\"t/*\", \"a\"]}");
    assert_int_equal(number(h, "reset"), 2);
    assert_int_equal(number(h, "epoch"), 7);
    must(h, 200, "GET", "/v1/quotas/a", NULL);
    assert_int_equal(number(h, "created"), number(h, "epoch"));
    assert_string_equal(member(h, "limit"), "10/s");
    must(h, 200, "GET", "/v1/log?quota=a", NULL);
    json_t *entry = json_array_get(json_object_get(h->json, "entries"), 0);
    assert_true(json_is_true(json_object_get(entry, "reset")));
    refused(h, "WEIR_EINVAL", "nothing to undo", "POST", "/v1/undo",
            "{\"epoch\": 7}");
}

static void test_names_of_the_shadow_set_are_refused(void **state)
{
    struct house *h = &((struct fixture *)*state)->house;
    static const char path[] = "/v1/quotas/shadow:x";
    refused(h, "WEIR_ENAME", "shadow set", "PUT", path, "{}");
    refused(h, "WEIR_ENAME", "shadow set", "PATCH", path, "{}");
    refused(h, "WEIR_ENAME", "shadow set", "DELETE", path, NULL);
    refused(h, "WEIR_ENAME", "shadow set", "GET", path, NULL);
    refused(h, "WEIR_ENAME", "shadow set", "PUT", "/v1/quotas/x",
            "{\"parent\": \"shadow:x\"}");
    refused(h, "WEIR_ENAME", "shadow set", "POST", "/v1/quotas:import",
            "[{\"name\": \"shadow:x\"}]");
    refused(h, "WEIR_EINVAL", "discard", "POST", "/v1/quotas:import?shadow=1",
            "[]");
    refused(h, "WEIR_EPARENT", "the parent 'top' doesn't", "POST",
            "/v1/quotas:import?shadow=1",
            "[{\"name\": \"x\", \"parent\": \"top\"}]");
    char body[WEIR_NAME_MAX + 32];
    snprintf(body, sizeof body, "[{\"name\": \"%0249d\"}]", 7);
    refused(h, "WEIR_ENAME", "248", "POST", "/v1/quotas:import?shadow=1", body);
    must(h, 200, "POST", "/v1/quotas:import", body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HOUSE(test_who_did_what_and_undo),
        WITH_HOUSE(test_a_shadow_set_is_beside_the_live_one),
        WITH_HOUSE(test_promotion_is_one_edit),
        WITH_HOUSE(test_removals_are_one_edit),
        WITH_HOUSE(test_a_reset_is_an_edit),
        WITH_HOUSE(test_promote_and_undo_keep_the_order_of_templates),
        WITH_HOUSE(test_names_of_the_shadow_set_are_refused),
    };
    return cmocka_run_group_tests_name("admin history", tests, NULL, NULL);
}
