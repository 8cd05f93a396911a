/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_row.c - any bytes as the fields of a stored quota: refused
 * with a reason, or a sound quota with a sound bucket state, which is the same
 * when it is written and read again. */

#include <stdlib.h>

#include "core/quota/quota_bucket.h"
#include "store/row.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_text fields = { (const char *)data, size };
    struct weir_quota quota;
    struct weir_quota again;
    struct weir_diag diag = { 0 };
    char written[WEIR_FIELDS_MAX];
    char scratch[WEIR_FIELDS_MAX];
    char *first = malloc(size + 1);
    if (!first)
        return 0;
    int error = weir_fields_read(WEIR_TEXT("a*"), fields, first, &quota, &diag);
    if (error < 0) {
        weir_assert(error == WEIR_ESTORE && diag.text[0] != '\0');
    } else {
        struct weir_text text = weir_fields_write(&quota, written);
        weir_assert(weir_fields_read(WEIR_TEXT("a*"), text, scratch, &again,
                                     &diag) == 0);
        weir_assert(weir_quota_equal(&quota, &again));
        struct weir_algorithm_rule rule;
        weir_quota_algorithm_rule(&quota, 3600, &rule);
        weir_assert(weir_algorithm_check(&rule));
    }
    free(first);
    return 0;
}
