/* SPDX-License-Identifier: MIT
 * test_limiter_memory.c - the memory of a limiter that belongs to so many
 * slots. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/limiter.h"

#define SLOTS 3000

/* Counts how often each byte is listed. Returns the bytes of the ranges. */
static uint64_t list(const struct weir_limiter_options *options, uint32_t from,
                     uint32_t to, uint8_t *times, size_t size)
{
    struct weir_table_range ranges[WEIR_LIMITER_RANGES_MAX];
    uint32_t count = weir_limiter_ranges(options, from, to, ranges);
    uint64_t bytes = 0;
    assert_compare(count, <=, WEIR_LIMITER_RANGES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        assert_compare(ranges[i].at + ranges[i].bytes, <=, size);
        for (uint64_t at = 0; at < ranges[i].bytes; at++)
            times[ranges[i].at + at]++;
        bytes += ranges[i].bytes;
    }
    return bytes;
}

/* Whatever the steps, in the end each byte was committed, and once. */
static void each_byte_belongs_to_one_growth(void **state)
{
    (void)state;
    static const uint32_t steps[] = { 0, 1, 700, 701, 1024, SLOTS };
    static const struct weir_limiter_sink region = { 0 };
    for (uint32_t links = 0; links <= WEIR_ROOTS_MAX; links++) {
        struct weir_limiter_options options = {
            .slots = SLOTS,
            .links = links,
            .asks = 5,
            .leases = 7,
            .limits = 3,
            .region = links % 2 == 1 ? &region : NULL,
        };
        size_t size = weir_limiter_size(&options);
        uint8_t *times = calloc(size, 1);
        assert_non_null(times);
        for (uint32_t i = 1; i < WEIR_COUNT_OF(steps); i++)
            list(&options, steps[i - 1], steps[i], times, size);
        for (size_t at = 0; at < size; at++)
            if (times[at] != 1)
                fail_msg("byte %zu of %zu: %d times", at, size, times[at]);
        free(times);
    }
}

/* Most memory of a large limiter belongs to slots. */
static void a_few_slots_need_little(void **state)
{
    (void)state;
    struct weir_limiter_options options = { .slots = 1 << 20, .links = 3 };
    size_t size = weir_limiter_size(&options);
    uint8_t *times = calloc(size, 1);
    assert_non_null(times);
    assert_compare(list(&options, 0, 1024, times, size), <, size / 50);
    free(times);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_byte_belongs_to_one_growth),
        cmocka_unit_test(a_few_slots_need_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
