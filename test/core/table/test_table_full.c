/* SPDX-License-Identifier: MIT
 * test_table_full.c - four million names in as many slots.
 *
 * The index promises, with high probability, a place for every name that has a
 * slot; this test tries it with four million. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "table_maker.h"

static struct weir_text name_of(uint32_t i, char *buf, size_t size)
{
    int len =
        snprintf(buf, size, "%.*s%u", (int)(i % 17), "name/of/some/len", i);
    return (struct weir_text){ buf, (size_t)len };
}

/* Just below a power of two the buckets are fullest. */
static void fill_up(uint32_t slots, uint64_t seed)
{
    struct weir_table *t = made_table(slots, 2, seed);
    char buf[40];
    for (uint32_t i = 0; i < slots; i++) {
        struct weir_quota quota = made_quota_of("", NULL, 1000, 10);
        quota.name = name_of(i, buf, sizeof(buf));
        assert_int_equal(weir_table_put(t, &quota, MADE_AT), WEIR_OK);
    }
    assert_int_equal(weir_table_live(t), slots);
    for (uint32_t i = 0; i < slots; i++) {
        struct weir_ref ref;
        assert_true(weir_table_find(t, name_of(i, buf, sizeof(buf)), &ref));
        assert_int_equal(ref.slot, i);
    }
    free(t);
}

static void test_as_many_names_as_slots(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("as_many_names_as_slots");
    fill_up(1u << 22, weir_rng_next(&rng));
    fill_up(3u * (1u << 20) - 4, weir_rng_next(&rng));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_many_names_as_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
