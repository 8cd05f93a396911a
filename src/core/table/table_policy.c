/* SPDX-License-Identifier: MIT
 * core/table/table_policy.c - a quota's limit, for responses that state it. */

#include "core/quota/quota_algorithm_rule.h"
#include "core/table/table_walk.h"

/* For a bucket state with a window or several buckets; false: another one, or
 * none. */
static bool window_policy(struct weir_table *t, uint32_t stripe, uint32_t slot,
                          struct weir_policy *out)
{
    const struct metering *of = weir_bucket_state_lock(t, slot, stripe);
    bool is_window = of && of->rule.window > 0;
    if (is_window)
        *out = (struct weir_policy){ .quantity = of->rule.quantity,
                                     .window = of->rule.window };
    bool is_buckets = of && !is_window && of->rule.buckets > 0;
    if (is_buckets) {
        const struct weir_bucket *first = &of->rule.bucket[0].bucket;
        *out = (struct weir_policy){
            .quantity = (uint64_t)first->high >> first->leak.frac,
            .window = weir_leak_time(first->leak, first->high),
        };
    }
    weir_bucket_state_unlock(t, slot);
    return is_window || is_buckets;
}

bool weir_table_policy(struct weir_table *table, uint32_t stripe,
                       struct weir_text name, struct weir_policy *out)
{
    struct weir_ref ref;
    struct look look;
    if (!weir_table_find(table, name, &ref))
        return false;
    weir_slot_read(table, ref.slot, 0, &look);
    if (look.flags & META_OFF)
        return false;
    if ((look.flags & (META_BUCKET_STATE | META_AWAY)) &&
        window_policy(table, stripe, ref.slot, out))
        return true;
    bool is_open =
        weir_slot_read_is_endless(&look) && !(look.flags & META_ADAPTIVE);
    if ((look.flags & META_AWAY) || is_open)
        return false;
    const struct weir_concurrency_gate *gate =
        look.flags & META_ADAPTIVE ? weir_slot_gate(table, ref.slot) : NULL;
    if (gate) {
        *out = (struct weir_policy){
            .concurrency = true,
            .quantity = (uint64_t)weir_concurrency_gate_limit(gate),
        };
        return true;
    }
    bool in_flight = look.flags & META_INFLIGHT;
    int64_t high = look.high > 0 ? look.high : 0;
    weir_duration window =
        in_flight || high == 0 ? 0 : weir_leak_time(look.leak, high);
    *out = (struct weir_policy){
        .concurrency = in_flight,
        .quantity = (uint64_t)high >> look.leak.frac,
        .window = window == WEIR_NEVER ? 0 : window,
    };
    return true;
}
