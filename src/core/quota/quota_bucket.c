/* SPDX-License-Identifier: MIT
 * core/quota/quota_bucket.c - derives a quota's bucket and its bucket state
 * rule. Limiters, roots, stores and the lab all use it, so they agree on fill
 * and units.
 *
 * A bucket state draws no random numbers, so it has no band between a low and a
 * high burst: the table's hot bucket begins to refuse some at the low burst,
 * but a leaky bucket state lets all pass up to the high one. */

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
        weir_assert(units > 0 && units <= WEIR_SCALED_MAX);
        *out = (struct weir_bucket){ .low = units, .high = units };
        return;
    }
    uint64_t low, high;
    weir_quota_bursts(quota, &low, &high);
    weir_bucket_init(out, quota->limit.units, quota->limit.per, low, high);
    weir_assert(out->low <= out->high);
}

static void set_rule_window(const struct weir_quota *quota,
                            struct weir_algorithm_rule *out)
{
    struct weir_window window = weir_quota_window(quota);
    out->window = window.length;
    out->calendar = window.calendar;
    out->quantity = weir_quota_quantity(quota);
    out->count_limited = quota->count_limited;
}

static void put_buckets(const struct weir_quota *quota,
                        struct weir_algorithm_rule *out)
{
    struct weir_algorithm_rate rates[WEIR_BUCKETS_MAX];
    uint64_t low;
    uint64_t high;
    weir_quota_bursts(quota, &low, &high);
    rates[0] = (struct weir_algorithm_rate){ .units = quota->limit.units,
                                             .per = quota->limit.per,
                                             .burst = high };
    uint8_t count = 1;
    struct weir_text rest = quota->next_buckets;
    struct weir_next_bucket next;
    while (weir_next_bucket_parse(&rest, &next, NULL) > 0) {
        weir_assert(count < WEIR_BUCKETS_MAX);
        rates[count++] = (struct weir_algorithm_rate){
            .units = next.limit.units,
            .per = next.limit.per,
            .burst = next.burst,
            .spill = next.spill,
        };
    }
    weir_algorithm_buckets(out, rates, count);
}

/* A limit of 0 refuses, but still takes permits in flight back. */
static void put_permits(const struct weir_quota *quota,
                        struct weir_algorithm_rule *out)
{
    uint64_t limit = quota->limit.units;
    out->algorithm = WEIR_PERMITS;
    out->quantity = limit;
    out->window = quota->permit_timeout;
    out->entries = limit < WEIR_ALGORITHM_PERMITS_MAX
                       ? (uint32_t)limit
                       : WEIR_ALGORITHM_PERMITS_MAX;
    if (limit == 0)
        out->entries = 1;
    weir_assert(weir_algorithm_check(out));
}

void weir_quota_algorithm_rule(const struct weir_quota *quota,
                               int32_t utc_offset_s,
                               struct weir_algorithm_rule *out)
{
    *out = (struct weir_algorithm_rule){ .algorithm = WEIR_LEAKY,
                                         .buckets = 1,
                                         .initial = -1 };
    if (quota->kind == WEIR_CONCURRENCY && !quota->limit.unlimited) {
        put_permits(quota, out);
        return;
    }
    if (quota->limit.unlimited || quota->limit.units == 0) {
        weir_quota_bucket(quota, &out->bucket[0].bucket);
        return;
    }
    out->algorithm = quota->algorithm;
    if (!quota->initial.unset)
        out->initial =
            (int64_t)weir_burst_units(&quota->limit, &quota->initial);
    switch (quota->algorithm) {
    case WEIR_LEAKY:
    case WEIR_LEAKY_QUEUE:
    case WEIR_TOKEN_BUCKET:
    case WEIR_TOKEN_BUCKETS:
        put_buckets(quota, out);
        break;
    case WEIR_FIXED_WINDOW:
        set_rule_window(quota, out);
        out->utc_offset_s = utc_offset_s;
        break;
    case WEIR_SLIDING_LOG:
        set_rule_window(quota, out);
        out->entries = weir_quota_entries(quota);
        break;
    case WEIR_SLIDING_WINDOW:
        set_rule_window(quota, out);
        out->sub_windows = (uint8_t)quota->sub_windows;
        break;
    case WEIR_PERMITS:
        weir_assert(!"an algorithm is one of these");
    }
    weir_audit(weir_algorithm_check(out));
}
