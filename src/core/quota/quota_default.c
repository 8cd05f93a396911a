/* SPDX-License-Identifier: MIT
 * quota/quota_default.c - the defaults of a quota, and the bursts in force.
 *
 * Bursts are compared as they were entered if both are units or both are time,
 * otherwise in units of the limit; with limit 0 or unlimited the latter means
 * nothing and is left out. */

#include "core/quota/quota.h"

#define DEADLINE_DEFAULT (20 * WEIR_MILLISECOND)
#define SUB_WINDOWS_DEFAULT 4
#define LEASE_DEFAULT (60 * WEIR_SECOND)
#define PERMIT_TIMEOUT_DEFAULT (60 * WEIR_SECOND)
#define QUEUE_MAX_DEFAULT 1000
#define MAX_DEBT_DEFAULT (60 * WEIR_SECOND)
#define TARGET_DEFAULT (200 * WEIR_MILLISECOND)

static const struct weir_burst low_default = { WEIR_SECOND, true, false };
static const struct weir_burst high_default = { 3 * WEIR_SECOND / 2, true,
                                                false };

void weir_quota_init(struct weir_quota *quota)
{
    *quota = (struct weir_quota){
        .kind = WEIR_RATE,
        .limit = { .per = WEIR_SECOND, .unlimited = true },
        .low_burst = { .in_time = true, .unset = true },
        .high_burst = { .in_time = true, .unset = true },
        .algorithm = WEIR_LEAKY,
        .sharing = WEIR_COUNTED,
        .mode = WEIR_ENFORCE,
        .on_stale = WEIR_STALE_PASS,
        .window = { .length = WEIR_SECOND, .unset = true },
        .initial = { .unset = true },
        .deadline = DEADLINE_DEFAULT,
        .sub_windows = SUB_WINDOWS_DEFAULT,
        .lease = LEASE_DEFAULT,
        .refresh = WEIR_DURATION_UNSET,
        .learning = WEIR_DURATION_UNSET,
        .permit_timeout = PERMIT_TIMEOUT_DEFAULT,
        .max_debt = MAX_DEBT_DEFAULT,
        .target = TARGET_DEFAULT,
        .controller = WEIR_CONTROLLER_TARGET,
        .decay_factor = WEIR_DECAY_ONE,
        .share_algorithm = WEIR_SHARE_FAIR,
        .queue = WEIR_WAIT_QUEUE_FIFO,
        .queue_max = QUEUE_MAX_DEFAULT,
        .glob = WEIR_GLOB_NAME,
    };
}

uint64_t weir_burst_units(const struct weir_limit *limit,
                          const struct weir_burst *burst)
{
    weir_u128 units = burst->amount;
    if (burst->in_time && limit->per > 0)
        units = (units * limit->units + limit->per - 1) / limit->per;
    return units < WEIR_BURST_MAX ? (uint64_t)units : WEIR_BURST_MAX;
}

bool weir_burst_is_above(const struct weir_limit *limit,
                         const struct weir_burst *a, const struct weir_burst *b)
{
    if (a->in_time == b->in_time)
        return a->amount > b->amount;
    if (limit->unlimited || limit->units == 0)
        return false;
    return weir_burst_units(limit, a) > weir_burst_units(limit, b);
}

void weir_quota_effective(const struct weir_quota *quota,
                          struct weir_burst *out_low,
                          struct weir_burst *out_high)
{
    struct weir_burst low = quota->low_burst;
    struct weir_burst high = quota->high_burst;
    if (low.unset)
        low = low_default;
    if (high.unset)
        high = high_default;
    if (quota->high_burst.unset &&
        weir_burst_is_above(&quota->limit, &low, &high))
        high = low;
    if (quota->low_burst.unset &&
        weir_burst_is_above(&quota->limit, &low, &high))
        low = high;
    if (quota->algorithm != WEIR_LEAKY)
        low = high;
    *out_low = low;
    *out_high = high;
    weir_assert(!out_low->unset && !out_high->unset);
}

void weir_quota_bursts(const struct weir_quota *quota, uint64_t *out_low,
                       uint64_t *out_high)
{
    struct weir_burst low;
    struct weir_burst high;
    weir_quota_effective(quota, &low, &high);
    uint64_t high_units = weir_burst_units(&quota->limit, &high);
    uint64_t low_units = weir_burst_units(&quota->limit, &low);
    if (high_units == 0)
        high_units = 1;
    *out_low = low_units < high_units ? low_units : high_units;
    *out_high = high_units;
    weir_assert(*out_low <= *out_high && *out_high > 0);
}
