/* SPDX-License-Identifier: MIT
 * test/codec/test_rls_json.c - Envoy's rate limit service in JSON: valid and
 * invalid requests, and the form of an answer. test/live/live_agent.py compares
 * it with protobuf's own JSON. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/rls_json.h"
#include "codec/rls_metadata.h"

#define ONE "\"descriptors\":[{\"entries\":[{\"key\":\"k\"}]}]"

static struct weir_rls_request request;

static int from_json(json_t *object, struct weir_diag *out_diag)
{
    static unsigned char memory[WEIR_RLS_ARENA_SIZE];
    struct weir_arena arena = { memory, sizeof memory, 0 };
    return weir_rls_from_json(object, &arena, &request, out_diag);
}

static struct weir_diag diag;

/* Returns the error; the object lives as long as the request is in use. */
static int read_text(const char *text, json_t **out)
{
    json_error_t why;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    assert_non_null(object);
    diag = (struct weir_diag){ 0 };
    int error = from_json(object, &diag);
    if (out)
        *out = object;
    else
        json_decref(object);
    return error;
}

static bool is(struct weir_text text, const char *other)
{
    return weir_text_equal(text, weir_text_of(other));
}

static void test_both_spellings(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"domain\":\"d\",\"hitsAddend\":3,\"descriptors\":[{\"entries\":["
        "{\"key\":\"a\",\"value\":\"1\"},{\"key\":\"b\"}],\"hitsAddend\":"
        "\"0\",\"limit\":{\"requestsPerUnit\":5,\"unit\":\"WEEK\"}},"
        "{\"entries\":[{\"key\":\"c\",\"value\":\"\"}],"
        "\"isNegativeHits\":true}]}",
        "{\"descriptors\":[{\"hits_addend\":0.0,\"entries\":["
        "{\"value\":\"1\",\"key\":\"a\"},{\"key\":\"b\",\"value\":null}],"
        "\"limit\":{\"requests_per_unit\":\"5\",\"unit\":7}},"
        "{\"entries\":[{\"key\":\"c\"}],\"is_negative_hits\":true,"
        "\"limit\":null}],\"hits_addend\":\"3\",\"domain\":\"d\"}",
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(texts); i++) {
        json_t *object;
        assert_int_equal(read_text(texts[i], &object), 0);
        assert_true(is(request.domain, "d"));
        assert_int_equal(request.hits, 3);
        assert_int_equal(request.count, 2);
        const struct weir_rls_descriptor *d = request.descriptors;
        assert_int_equal(d[0].entry_count, 2);
        assert_true(is(d[0].entries[0].key, "a"));
        assert_true(is(d[0].entries[0].value, "1"));
        assert_true(is(d[0].entries[1].key, "b"));
        assert_int_equal(d[0].entries[1].value.len, 0);
        assert_true(d[0].hits_given && d[0].hits == 0 && !d[0].negative);
        assert_true(d[0].override_given && d[0].override_unit == 7);
        assert_true(is(d[1].entries[0].key, "c"));
        assert_true(d[1].negative && !d[1].hits_given && !d[1].override_given);
        assert_int_equal(weir_rls_hits(&request, &d[1]), 3);
        json_decref(object);
    }
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        int error;
    } cases[] = {
        { "[]", "object", WEIR_ESYNTAX },
        { "{}", "rate limit domain must not be empty", WEIR_EINVAL },
        { "{\"domain\":\"\"," ONE "}", "domain must not be empty",
          WEIR_EINVAL },
        { "{\"domain\":\"d\"}", "descriptor list must not be empty",
          WEIR_EINVAL },
        { "{\"domain\":\"d\",\"descriptors\":[{}]}", "without entries",
          WEIR_EINVAL },
        { "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{}]}]}",
          "key is empty", WEIR_EINVAL },
        { "{\"domain\":\"d\",\"descriptors\":[null]}", "object", WEIR_ESYNTAX },
        { "{\"domain\":\"d\",\"descriptors\":{}}", "lists", WEIR_ESYNTAX },
        { "{\"domain\":7," ONE "}", "texts", WEIR_ESYNTAX },
        { "{\"domian\":\"d\"," ONE "}", "'domian'", WEIR_ESYNTAX },
        { "{\"domain\":\"d\"," ONE ",\"hitsAddend\":1,\"hits_addend\":1}",
          "twice", WEIR_ESYNTAX },
        { "{\"domain\":\"d\"," ONE ",\"hitsAddend\":-1}", "whole",
          WEIR_ESYNTAX },
        { "{\"domain\":\"d\"," ONE ",\"hitsAddend\":1.5}", "whole",
          WEIR_ESYNTAX },
        { "{\"domain\":\"d\"," ONE ",\"hitsAddend\":4294967296}", "range",
          WEIR_ESYNTAX },
        { "{\"domain\":\"d\"," ONE ",\"hitsAddend\":\"1x\"}", "whole",
          WEIR_ESYNTAX },
        { "{\"domain\":\"d\"," ONE ",\"hitsAddend\":\"-1\"}", "whole",
          WEIR_ESYNTAX },
        { "{\"domain\":\"d\"," ONE ",\"hitsAddend\":true}", "whole",
          WEIR_ESYNTAX },
        { "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\"}],"
          "\"hitsAddend\":\"18446744073709551616\"}]}",
          "range", WEIR_ESYNTAX },
        { "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\"}],"
          "\"isNegativeHits\":1}]}",
          "true or false", WEIR_ESYNTAX },
        { "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\"}],"
          "\"limit\":{}}]}",
          "unit", WEIR_EINVAL },
        { "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\"}],"
          "\"limit\":{\"unit\":99}}]}",
          "unit", WEIR_EINVAL },
        { "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\"}],"
          "\"limit\":{\"unit\":\"second\"}}]}",
          "unit", WEIR_EINVAL },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(cases); i++) {
        int error = read_text(cases[i].text, NULL);
        if (error != cases[i].error || !strstr(diag.text, cases[i].says))
            fail_msg("%s: %d, %s", cases[i].text, error, diag.text);
    }
}

/* A request with that many descriptors and that many entries in each. */
static int read_many(size_t descriptors, size_t entries)
{
    json_t *list = json_array();
    for (size_t i = 0; i < descriptors; i++) {
        json_t *of = json_array();
        for (size_t k = 0; k < entries; k++)
            json_array_append_new(of, json_pack("{s:s}", "key", "k"));
        json_array_append_new(list, json_pack("{s:o}", "entries", of));
    }
    json_t *object =
        json_pack("{s:s, s:o}", "domain", "d", "descriptors", list);
    diag = (struct weir_diag){ 0 };
    int error = from_json(object, &diag);
    json_decref(object);
    return error;
}

static void test_bounds(void **state)
{
    (void)state;
    assert_int_equal(read_many(1024, 8), 0);
    assert_int_equal(read_many(1, 8192), 0);
    assert_int_equal(read_many(1025, 1), WEIR_ETOOBIG);
    assert_int_equal(read_many(1, 8193), WEIR_ETOOBIG);
}

static void shows(const struct weir_rls_answer *answer, const char *expected)
{
    json_t *shown = weir_rls_to_json(answer, NULL);
    char *text = json_dumps(shown, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, expected);
    free(text);
    json_decref(shown);
}

static void test_answers(void **state)
{
    (void)state;
    const struct weir_rls_status statuses[] = {
        { .code = WEIR_RLS_OK },
        { .code = WEIR_RLS_OVER_LIMIT,
          .limit_given = true,
          .unit = WEIR_RLS_MINUTE,
          .requests_per_unit = 1,
          .name = WEIR_TEXT("cart"),
          .remaining = UINT32_MAX,
          .reset_given = true,
          .reset = 37 * WEIR_SECOND },
        { .code = WEIR_RLS_UNKNOWN,
          .limit_given = true,
          .reset_given = true,
          .reset = WEIR_SECOND + WEIR_MILLISECOND },
    };
    const struct weir_rls_header headers[] = { { WEIR_TEXT("Retry-After"),
                                                 WEIR_TEXT("37") } };
    struct weir_rls_answer answer = { .code = WEIR_RLS_OVER_LIMIT,
                                      .count = 3,
                                      .statuses = statuses,
                                      .headers = headers };
    shows(&answer,
          "{\"overallCode\":\"OVER_LIMIT\",\"statuses\":[{\"code\":\"OK\"},"
          "{\"code\":\"OVER_LIMIT\",\"currentLimit\":{\"name\":\"cart\","
          "\"requestsPerUnit\":1,\"unit\":\"MINUTE\"},"
          "\"durationUntilReset\":\"37s\",\"limitRemaining\":4294967295},"
          "{\"currentLimit\":{},\"durationUntilReset\":\"1.001000000s\"}]}");
    answer.code = WEIR_RLS_OK;
    answer.count = 1;
    answer.header_count = 1;
    shows(&answer, "{\"overallCode\":\"OK\",\"responseHeadersToAdd\":[{\"key\":"
                   "\"Retry-After\",\"value\":\"37\"}],\"statuses\":[{\"code\":"
                   "\"OK\"}]}");
}

/* An entry with a NUL is whole; nothing else of the memory is sent. */
static void test_metadata_of_any_bytes(void **state)
{
    (void)state;
    enum { KEY = 60, VALUE = 40 };
    char key[KEY];
    char value[VALUE];
    /* The allocator has such bytes at hand. */
    char *spent[8];
    for (size_t i = 0; i < WEIR_COUNT_OF(spent); i++)
        memset(spent[i] = malloc(KEY + 1 + VALUE), 'S', KEY + 1 + VALUE);
    for (size_t i = 0; i < WEIR_COUNT_OF(spent); i++)
        free(spent[i]);
    memset(key, 'k', KEY);
    memset(value, 'v', VALUE);
    key[30] = value[5] = '\0';
    struct weir_rls_entry entries[] = { { { key, KEY }, { value, VALUE } },
                                        { { "\xff", 1 }, { NULL, 0 } } };
    struct weir_rls_descriptor descriptor = { .entries = entries,
                                              .entry_count = 2 };
    const struct weir_rls_request asked = { .domain = WEIR_TEXT("d"),
                                            .descriptors = &descriptor,
                                            .count = 1 };
    json_t *made = weir_rls_metadata_new(&asked);
    assert_non_null(made);
    json_t *list = json_object_get(
        json_array_get(json_object_get(made, "descriptors"), 0), "entries");
    json_t *first = json_array_get(list, 0);
    assert_int_equal(json_string_length(first), KEY + 1 + VALUE);
    const char *text = json_string_value(first);
    assert_memory_equal(text, key, KEY);
    assert_int_equal(text[KEY], '=');
    assert_memory_equal(text + KEY + 1, value, VALUE);
    assert_string_equal(json_string_value(json_array_get(list, 1)), "");
    json_decref(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_spellings),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_metadata_of_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
