/* SPDX-License-Identifier: MIT
 * fuzz_throttle_name.c - the quota that is read out of a name is sound, and
 * writes the same name. */

#include <stdint.h>
#include <string.h>

#include "core/quota/throttle_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char buf[WEIR_NAME_MAX];
    struct weir_quota quota;
    struct weir_diag diag;
    struct weir_text name = { (const char *)data, size };
    if (weir_name_check(name, &diag) < 0 ||
        !weir_throttle_name_read(name, &quota))
        return 0;
    quota.name = WEIR_TEXT("a"); /* the key may hold braces */
    weir_assert(weir_quota_check(&quota, &diag) == 0);
    struct weir_throttle_rule rule = { quota.high_burst.amount,
                                       quota.limit.units,
                                       quota.limit.per / WEIR_SECOND };
    /* The numbers end at the third ':'. */
    const char *key = name.p;
    for (int colons = 0; colons < 3; key++)
        colons += *key == ':';
    size_t before = (size_t)(key - name.p);
    size_t len = weir_throttle_name_write(
        &rule, (struct weir_text){ key, size - before }, buf, sizeof buf);
    weir_assert(len == size && memcmp(buf, data, size) == 0);
    return 0;
}
