/* SPDX-License-Identifier: MIT
 * core/quota/quota_bucket.c - limiters and roots derive a quota's bucket in
 * the same way, so that they agree on its fill. */

#include "core/quota/quota_bucket.h"

void weir_quota_bucket(const struct weir_quota *quota, struct weir_bucket *out)
{
    if (quota->limit.unlimited) {
        weir_bucket_open(out);
        return;
    }
    if (quota->limit.units == 0) {
        weir_bucket_closed(out);
        return;
    }
    if (quota->kind == WEIR_CONCURRENCY) {
        int64_t units = (int64_t)quota->limit.units;
        *out = (struct weir_bucket){ .low = units, .high = units };
        return;
    }
    uint64_t low, high;
    weir_quota_bursts(quota, &low, &high);
    weir_bucket_init(out, quota->limit.units, quota->limit.per, low, high);
    weir_assert(out->low <= out->high);
}
