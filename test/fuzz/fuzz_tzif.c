/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_tzif.c - any bytes as the file of a time zone: refused, or a
 * span that holds the instant. */

#include <string.h>

#include "codec/tzif.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t instants[] = { -2000000000, 0, 1711846800, 7258118400,
                                        INT64_MAX };
    for (size_t i = 0; i < WEIR_COUNT_OF(instants); i++) {
        struct weir_tzif_span span;
        if (weir_tzif_at(data, size, instants[i], &span) == 0)
            weir_assert(span.offset_s >= -26 * 3600 &&
                        span.offset_s <= 26 * 3600);
    }
    return 0;
}
