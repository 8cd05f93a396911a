/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_rlqs.c - any bytes as a report of Envoy's buckets. In an
 * accepted report, protobuf-c finds the same. Weir refuses more: reports above
 * its bounds, buckets that have no sound id (WEIR_EINVAL), a field that comes
 * twice, and varints of over 64 bits. */

#include "rls_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char memory[WEIR_RLQS_ARENA_SIZE];
    struct weir_arena arena = { memory, sizeof memory, 0 };
    struct weir_rlqs_reports reports;
    struct weir_diag diag = { 0 };
    if (weir_rlqs_decode(data, size, &arena, &reports, &diag) < 0) {
        weir_assert(diag.text[0] != '\0');
        return 0;
    }
    weir_assert(oracle_rlqs(data, size, &reports));
    for (size_t i = 0; i < reports.count; i++) {
        const struct weir_rlqs_usage *usage = &reports.usages[i];
        for (size_t k = 1; k < usage->pair_count; k++)
            weir_assert(weir_text_compare(usage->pairs[k - 1].key,
                                          usage->pairs[k].key) < 0);
    }
    return 0;
}
