/* SPDX-License-Identifier: MIT
 * test/codec/test_quota_json.c - quotas as JSON objects. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/quota_json.h"
#include "quota_maker.h"

static int read_text(const char *text, json_t **out_object,
                     struct weir_quota *quota, struct weir_diag *diag)
{
    *out_object = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_non_null(*out_object);
    return weir_quota_from_json(*out_object, quota, diag);
}

static void shows_every_field(void **state)
{
    (void)state;
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT("a");
    quota.limit = (struct weir_limit){ 100, WEIR_SECOND, false };
    quota.labels = WEIR_TEXT("team=web");
    quota.id = 7;
    json_t *object = weir_quota_to_json(&quota);
    char *text = json_dumps(object, JSON_COMPACT);
    assert_string_equal(
        text, "{\"name\":\"a\",\"parent\":\"\",\"kind\":\"rate\",\"limit\":"
              "\"100/s\",\"low_burst\":\"1s\",\"high_burst\":\"1.5s\","
              "\"max_debt\":\"1min\","
              "\"algorithm\":\"leaky\",\"sharing\":\"counted\",\"mode\":"
              "\"enforce\",\"on_stale\":\"pass\",\"order\":0,\"glob\":\"name\","
              "\"overflow\":\"\","
              "\"description\":\"\",\"labels\":{\"team\":\"web\"},\"id\":7,"
              "\"epoch\":0,\"created\":0}");
    free(text);
    json_decref(object);
}

static void changes_only_what_is_given(void **state)
{
    (void)state;
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT("a");
    quota.mode = WEIR_SHADOW;
    quota.limit = (struct weir_limit){ 5, WEIR_SECOND, false };
    json_t *object;
    assert_int_equal(read_text("{\"limit\": null, \"low_burst\": 100,"
                               " \"order\": 4, \"id\": 9,"
                               " \"labels\": {\"b\": \"x,\", \"a\": \"\"}}",
                               &object, &quota, NULL),
                     0);
    assert_true(quota.limit.unlimited);
    assert_int_equal(quota.mode, WEIR_SHADOW);
    assert_int_equal(quota.low_burst.amount, 100);
    assert_false(quota.low_burst.unset);
    assert_true(quota.high_burst.unset);
    assert_int_equal(quota.order, 4);
    assert_int_equal(quota.id, 9);
    assert_true(weir_text_equal(quota.labels, WEIR_TEXT("a=\nb=x,")));
    json_decref(object);
}

static void refuse(const char *text, int wanted, const char *sentence)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    struct weir_diag diag = { 0 };
    json_t *object;
    int error = read_text(text, &object, &quota, &diag);
    if (error != wanted || !strstr(diag.text, sentence))
        fail_msg("%s gave %d: %s", text, error, diag.text);
    assert_true(quota.limit.unlimited);
    assert_int_equal(quota.mode, WEIR_ENFORCE);
    json_decref(object);
}

static void refuses_the_rest(void **state)
{
    (void)state;
    refuse("[]", WEIR_ESYNTAX, "JSON object");
    refuse("{\"mode\": \"off\", \"limt\": 1}", WEIR_ENOENT, "'limit'");
    refuse("{\"limit\": \"100/\"}", WEIR_EQUOTA, "period after '/' is missing");
    refuse("{\"limit\": -1}", WEIR_EQUOTA, "negative");
    refuse("{\"limit\": 1.5}", WEIR_ESYNTAX, "must be a string");
    refuse("{\"limit\": true}", WEIR_ESYNTAX, "must be a string");
    refuse("{\"limit\": [\"1/s\"]}", WEIR_ESYNTAX, "must be a string");
    refuse("{\"name\": 17}", WEIR_ESYNTAX, "must be a string");
    refuse("{\"order\": \"1\"}", WEIR_ESYNTAX, "a whole number");
    refuse("{\"order\": -1}", WEIR_EQUOTA, "negative");
    refuse("{\"priority\": 1.5}", WEIR_ESYNTAX, "a whole number");
    refuse("{\"order\": 4294967296}", WEIR_EQUOTA, "4294967295");
    refuse("{\"id\": \"7\"}", WEIR_ESYNTAX, "a whole number");
    refuse("{\"epoch\": -7}", WEIR_ESYNTAX, "a whole number");
    refuse("{\"labels\": {\"a\": 1}}", WEIR_ESYNTAX, "object of strings");
    refuse("{\"labels\": [1]}", WEIR_ESYNTAX, "object of strings");
    refuse("{\"labels\": {\"a b\": \"\"}}", WEIR_EQUOTA, "A-Z");
    refuse("{\"labels\": {\"a=b\": \"\"}}", WEIR_EQUOTA, "A-Z");
    refuse("{\"labels\": {\"a\": \"x\\ny=1\"}}", WEIR_EQUOTA, "line feed");
}

static void a_nul_is_seen(void **state)
{
    (void)state;
    struct weir_quota quota;
    weir_quota_init(&quota);
    json_t *object;
    assert_int_equal(
        read_text("{\"name\": \"a\\u0000b\"}", &object, &quota, NULL), 0);
    assert_int_equal(quota.name.len, 3);
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_ENAME);
    json_decref(object);
}

static void a_quota_is_read_back(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("json");
    static struct made_quota made;
    for (unsigned i = 0; i < 3000; i++) {
        make_quota(&rng, i, &made);
        made.quota.id = weir_rng_next(&rng) >> 1;
        made.quota.epoch = i;
        json_t *shown = weir_quota_to_json(&made.quota);
        char *text = json_dumps(shown, 0);
        json_t *object;
        struct weir_quota back;
        weir_quota_init(&back);
        assert_int_equal(read_text(text, &object, &back, NULL), 0);
        struct weir_diag diag = { .text = "" };
        if (weir_quota_check(&back, &diag) < 0)
            fail_msg("%s: %s", text, diag.text);
        /* an unset field comes back with its value in force, and looks the
         * same */
        json_t *again = weir_quota_to_json(&back);
        if (!json_equal(shown, again))
            fail_msg("%s", text);
        assert_int_equal(back.id, made.quota.id);
        assert_int_equal(back.epoch, made.quota.epoch);
        free(text);
        json_decref(again);
        json_decref(object);
        json_decref(shown);
    }
}

static void a_priority_may_be_negative(void **state)
{
    (void)state;
    struct weir_quota quota;
    weir_quota_init(&quota);
    json_t *object;
    assert_int_equal(read_text("{\"sharing\": \"leased\", \"priority\":"
                               " -9223372036854775808}",
                               &object, &quota, NULL),
                     0);
    assert_true(quota.priority == INT64_MIN);
    json_t *shown = weir_quota_to_json(&quota);
    json_int_t got = json_integer_value(json_object_get(shown, "priority"));
    assert_true(got == INT64_MIN);
    json_decref(shown);
    json_decref(object);
}

static void a_flag_is_true_or_false(void **state)
{
    (void)state;
    struct weir_quota quota;
    weir_quota_init(&quota);
    json_t *object;
    struct weir_diag diag;
    assert_int_equal(read_text("{\"algorithm\": \"sliding_log\","
                               " \"count_limited\": true, \"limit\": "
                               "\"7/min\", \"max_entries\": 5}",
                               &object, &quota, NULL),
                     0);
    assert_true(quota.count_limited);
    assert_int_equal(quota.max_entries, 5);
    json_t *shown = weir_quota_to_json(&quota);
    assert_true(json_is_true(json_object_get(shown, "count_limited")));
    assert_string_equal(json_string_value(json_object_get(shown, "window")),
                        "1min");
    /* fields without meaning for a sliding log are absent */
    assert_null(json_object_get(shown, "high_burst"));
    assert_null(json_object_get(shown, "tz"));
    assert_null(json_object_get(shown, "store"));
    json_decref(shown);
    json_decref(object);
    assert_int_equal(
        read_text("{\"count_limited\": 1}", &object, &quota, &diag),
        WEIR_ESYNTAX);
    assert_non_null(strstr(diag.text, "must be true or false"));
    json_decref(object);
}

/* Each number of its own member. */
static void test_numbers_are_shown(void **state)
{
    (void)state;
    static const char *const fields[] = { "sub_windows", "max_entries",
                                          "queue_max" };
    for (size_t i = 0; i < WEIR_COUNT_OF(fields); i++) {
        struct weir_quota quota;
        char shown[WEIR_FIELD_VALUE_MAX];
        weir_quota_init(&quota);
        assert_int_equal(weir_quota_set(&quota, weir_text_of(fields[i]),
                                        WEIR_TEXT("11"), NULL),
                         0);
        size_t len = weir_quota_get(&quota, fields[i], shown, sizeof(shown));
        assert_true(
            weir_text_equal((struct weir_text){ shown, len }, WEIR_TEXT("11")));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows_every_field),
        cmocka_unit_test(changes_only_what_is_given),
        cmocka_unit_test(refuses_the_rest),
        cmocka_unit_test(a_nul_is_seen),
        cmocka_unit_test(a_quota_is_read_back),
        cmocka_unit_test(a_flag_is_true_or_false),
        cmocka_unit_test(a_priority_may_be_negative),
        cmocka_unit_test(test_numbers_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
