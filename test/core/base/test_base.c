/* SPDX-License-Identifier: MIT
 * test_base.c - texts, explanations, growing arrays, chance, hashes, errors.
 *
 * All other modules rely on these, so their edges are tested: absent texts, an
 * explanation longer than its buffer, an allocator that fails. */

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/base/hash.h"
#include "core/base/rng.h"
#include "mem_maker.h"

static void test_texts_compare_as_bytes(void **state)
{
    (void)state;
    struct weir_text absent = weir_text_of(NULL);
    assert_int_equal(absent.len, 0);
    assert_true(weir_text_equal(absent, WEIR_TEXT("")));
    assert_true(weir_text_equal(weir_text_of("s3"), WEIR_TEXT("s3")));
    assert_false(weir_text_equal(WEIR_TEXT("s3"), WEIR_TEXT("s4")));
    assert_false(weir_text_equal(WEIR_TEXT("s3"), WEIR_TEXT("s3/")));

    assert_int_equal(weir_text_compare(WEIR_TEXT("a"), WEIR_TEXT("a")), 0);
    assert_int_equal(weir_text_compare(absent, WEIR_TEXT("")), 0);
    assert_compare(weir_text_compare(WEIR_TEXT("a"), WEIR_TEXT("ab")), <, 0);
    assert_compare(weir_text_compare(WEIR_TEXT("b"), WEIR_TEXT("ab")), >, 0);
    assert_compare(weir_text_compare(WEIR_TEXT("\xc3"), WEIR_TEXT("z")), >, 0);
    assert_compare(weir_text_compare(absent, WEIR_TEXT("a")), <, 0);
}

static void test_diag_joins_its_pieces(void **state)
{
    (void)state;
    struct weir_diag diag = { .line = 3 };
    int error = weir_diag_set(&diag, WEIR_EPARENT, "no quota '", "site",
                              "': create it first", NULL);
    assert_int_equal(error, WEIR_EPARENT);
    assert_string_equal(diag.text, "no quota 'site': create it first");
    assert_int_equal(diag.line, 3);

    weir_diag_set(&diag, WEIR_EINVAL, NULL);
    assert_string_equal(diag.text, "");
}

static void test_diag_may_be_absent(void **state)
{
    (void)state;
    assert_int_equal(weir_diag_set(NULL, WEIR_EFULL, "x", NULL), WEIR_EFULL);
}

static void test_diag_is_cut_at_its_end(void **state)
{
    (void)state;
    struct {
        struct weir_diag diag;
        char after[8];
    } place = { .after = "guard" };
    char piece[WEIR_DIAG_MAX - 10];
    memset(piece, 'a', sizeof(piece));
    piece[sizeof(piece) - 1] = '\0';

    weir_diag_set(&place.diag, -1, piece, piece, "b", NULL);
    assert_int_equal(strlen(place.diag.text), WEIR_DIAG_MAX - 1);
    assert_int_equal(place.diag.text[WEIR_DIAG_MAX - 2], 'a');
    assert_string_equal(place.after, "guard");
}

static void test_array_grows_and_keeps_its_items(void **state)
{
    (void)state;
    struct scarce scarce = { .left = INT_MAX };
    struct weir_mem mem = scarce_mem(&scarce);
    uint32_t *items = NULL;
    size_t capacity = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        items = weir_mem_grow(&mem, items, sizeof(*items), &capacity, i + 1);
        assert_non_null(items);
        assert_compare(capacity, >, i);
        assert_int_equal(items[i], 0);
        items[i] = i * 7;
    }
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(items[i], i * 7);
    assert_int_equal(scarce.bytes, capacity * sizeof(*items));
    scarce_free(&scarce, items, capacity * sizeof(*items));
    assert_int_equal(scarce.bytes, 0);
}

static void test_array_that_cannot_grow_is_as_before(void **state)
{
    (void)state;
    struct scarce scarce = { .left = INT_MAX };
    struct weir_mem mem = scarce_mem(&scarce);
    size_t capacity = 0;
    /* None is wanted: that isn't a lack of memory. */
    char *items = weir_mem_grow(&mem, NULL, 1, &capacity, 0);
    assert_non_null(items);
    items = weir_mem_grow(&mem, items, 1, &capacity, 3);
    assert_non_null(items);
    memcpy(items, "abc", 3);
    size_t before = capacity;

    scarce.left = 0;
    assert_null(weir_mem_grow(&mem, items, 1, &capacity, before + 1));
    scarce.left = INT_MAX;
    assert_null(weir_mem_grow(&mem, items, 1 << 20, &capacity, SIZE_MAX));
    assert_int_equal(capacity, before);
    assert_memory_equal(items, "abc", 3);
    assert_ptr_equal(weir_mem_grow(&mem, items, 1, &capacity, before), items);
    scarce_free(&scarce, items, capacity);
}

static void test_chance_is_its_seed(void **state)
{
    (void)state;
    struct weir_rng one = { 42 };
    struct weir_rng two = { 42 };
    struct weir_rng other = { 43 };
    uint64_t first = weir_rng_next(&one);
    assert_true(first == weir_rng_next(&two));
    assert_true(first != weir_rng_next(&other));
    /* The published first value of SplitMix64 from 0. */
    assert_true(weir_rng_next(&(struct weir_rng){ 0 }) ==
                0xe220a8397b1dcdafull);
}

static void test_chance_keeps_to_its_range(void **state)
{
    (void)state;
    struct weir_rng rng = { 7 };
    size_t seen[6] = { 0 };
    double sum = 0;
    for (int i = 0; i < 60000; i++) {
        uint64_t face = weir_rng_below(&rng, 6);
        assert_compare(face, <, 6);
        seen[face]++;
        double unit = weir_rng_unit(&rng);
        assert_compare(unit, >=, 0);
        assert_compare(unit, <, 1);
        sum += unit;
    }
    for (size_t face = 0; face < 6; face++)
        assert_in_range(seen[face], 9500, 10500);
    assert_compare(sum, >, 29500);
    assert_compare(sum, <, 30500);
    assert_true(weir_rng_below(&rng, 1) == 0);
}

static void test_hash_depends_on_text_and_seed(void **state)
{
    (void)state;
    uint64_t hash = weir_hash(WEIR_TEXT("s3/put"), 1);
    assert_true(hash == weir_hash(weir_text_of("s3/put"), 1));
    assert_true(hash != weir_hash(WEIR_TEXT("s3/put"), 2));
    assert_true(hash != weir_hash(WEIR_TEXT("s3/get"), 1));
}

static void test_each_error_has_its_own_sentence(void **state)
{
    (void)state;
    for (int error = WEIR_OK; error >= WEIR_ETABLE; error--) {
        const char *text = weir_strerror(error);
        assert_non_null(text);
        assert_compare(strlen(text), >, 0);
        for (int other = error + 1; other <= WEIR_OK; other++)
            assert_string_not_equal(text, weir_strerror(other));
    }
}

/* A limiter's memory and that of a region's root have different options. */
static void test_too_little_memory_names_the_options(void **state)
{
    (void)state;
    assert_non_null(strstr(weir_strerror(WEIR_ENOMEM), "memory_max"));
    assert_non_null(strstr(weir_strerror(WEIR_ENOMEM), "--slots"));
}

static void test_strange_errors_have_a_text_too(void **state)
{
    (void)state;
    assert_non_null(weir_strerror(WEIR_ETABLE - 1));
    assert_non_null(weir_strerror(1));
    assert_non_null(weir_strerror(INT32_MIN));
    assert_non_null(weir_strerror(INT32_MAX));
}

static void test_an_error_has_a_sentence(void **state)
{
    (void)state;
    struct weir_diag diag = { .text = "before" };
    assert_int_equal(weir_diag_put(&diag, WEIR_EFULL, "no seat"), WEIR_EFULL);
    assert_string_equal(diag.text, "no seat");
    assert_int_equal(weir_diag_put(&diag, WEIR_ENOMEM, NULL), WEIR_ENOMEM);
    assert_string_equal(diag.text, weir_strerror(WEIR_ENOMEM));
    assert_int_equal(weir_diag_put(NULL, WEIR_ENOMEM, NULL), WEIR_ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_error_has_a_sentence),
        cmocka_unit_test(test_texts_compare_as_bytes),
        cmocka_unit_test(test_diag_joins_its_pieces),
        cmocka_unit_test(test_diag_may_be_absent),
        cmocka_unit_test(test_diag_is_cut_at_its_end),
        cmocka_unit_test(test_array_grows_and_keeps_its_items),
        cmocka_unit_test(test_array_that_cannot_grow_is_as_before),
        cmocka_unit_test(test_chance_is_its_seed),
        cmocka_unit_test(test_chance_keeps_to_its_range),
        cmocka_unit_test(test_hash_depends_on_text_and_seed),
        cmocka_unit_test(test_each_error_has_its_own_sentence),
        cmocka_unit_test(test_too_little_memory_names_the_options),
        cmocka_unit_test(test_strange_errors_have_a_text_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
