/* SPDX-License-Identifier: MIT
 * quota/quota_default.c - the defaults of a quota, and the bursts and leases in
 * force.
 *
 * Bursts are compared as they were entered if both are units or both are time,
 * otherwise in units of the limit; with limit 0 or unlimited the latter means
 * nothing and is left out. */

#include "core/quota/quota_internal.h"

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
        .scope = WEIR_SCOPE_PROCESS,
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
    weir_assert(!burst->unset);
    weir_u128 units = burst->amount;
    if (burst->in_time && limit->per > 0)
        units = (units * limit->units + limit->per - 1) / limit->per;
    return units < WEIR_BURST_MAX ? (uint64_t)units : WEIR_BURST_MAX;
}

bool weir_burst_is_above(const struct weir_limit *limit,
                         const struct weir_burst *a, const struct weir_burst *b)
{
    weir_assert(!a->unset && !b->unset);
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

/* ---- Leases: their times, and whether they are sound ----
 *
 * Unset times follow from the lease. It is renewed four times while it lasts,
 * so that three renewals in a row may be lost (Doorman's examples have the same
 * four: 60 s and 15 s), but at least every 15 s: the lease pool's data about
 * wants shouldn't be older only because leases are long. A new root learns for
 * one lease: after that, no lease holder can have units that the root hasn't
 * learned of.
 *
 * decay_factor is Doorman's (doc/design.md): each level below the topmost root
 * renews more often than the one above: with 0.5, a change at the top reaches
 * the bottom within twice the topmost interval, at any depth of the tree. It is
 * stored in billionths, to be the same number on every machine. */

#define REFRESH_DEFAULT_MAX (15 * WEIR_SECOND)
#define REFRESHES 4 /* in a lease */

weir_duration weir_quota_refresh(const struct weir_quota *quota, unsigned level)
{
    weir_duration refresh = quota->refresh;
    if (refresh == WEIR_DURATION_UNSET) {
        refresh = quota->lease / REFRESHES;
        if (refresh > REFRESH_DEFAULT_MAX)
            refresh = REFRESH_DEFAULT_MAX;
    }
    bool shrinks = quota->decay_factor < WEIR_DECAY_ONE;
    for (; shrinks && level > 0 && refresh > WEIR_REFRESH_MIN; level--)
        refresh = (weir_duration)((weir_u128)refresh * quota->decay_factor /
                                  WEIR_DECAY_ONE);
    return refresh > WEIR_REFRESH_MIN ? refresh : WEIR_REFRESH_MIN;
}

weir_duration weir_quota_learning(const struct weir_quota *quota)
{
    return quota->learning == WEIR_DURATION_UNSET ? quota->lease
                                                  : quota->learning;
}

double weir_quota_capacity(const struct weir_quota *quota)
{
    if (quota->kind == WEIR_CONCURRENCY && !quota->limit.unlimited)
        return (double)quota->limit.units;
    return weir_limit_rate(&quota->limit);
}

double weir_quota_safe(const struct weir_quota *quota)
{
    return quota->safe_capacity.per == 0
               ? -1
               : weir_limit_rate(&quota->safe_capacity);
}

static const char *capacity_fault(const struct weir_quota *quota)
{
    bool inflight = quota->kind == WEIR_CONCURRENCY;
    const struct weir_limit *safe = &quota->safe_capacity;
    if (quota->limit.unlimited && quota->share_algorithm != WEIR_SHARE_NONE)
        return "there is no share of limit=unlimited that could be leased; "
               "write a limit as limit=100/s, or share_algorithm=none";
    if (quota->limit.unlimited && inflight)
        return "there is no share of limit=unlimited that could be leased; "
               "write a limit as limit=40, or sharing=counted";
    if (inflight && (safe->units > 0 || safe->unlimited))
        return "safe_capacity of kind=concurrency is dynamic or 0; leave it "
               "out for the limit by the number of processes";
    if (safe->unlimited)
        return "safe_capacity can't be unlimited; write on_stale=pass for no "
               "limit when the lease has run out";
    if (safe->per > WEIR_PERIOD_MAX ||
        (weir_u128)safe->units * WEIR_SECOND >
            (weir_u128)WEIR_LIMIT_MAX * safe->per)
        return "safe_capacity may be 100G/s at most, in a period of 1 ns to "
               "366 days";
    return NULL;
}

static const char *lease_fault(const struct weir_quota *quota)
{
    if (quota->learning != WEIR_DURATION_UNSET &&
        quota->learning > WEIR_LEASE_MAX)
        return "learning may be 0s to 24 h; leave it out for as long as the "
               "lease";
    if (quota->decay_factor == 0 || quota->decay_factor > WEIR_DECAY_ONE)
        return "decay_factor may be above 0 and at most 1; write it as "
               "decay_factor=0.5";
    return capacity_fault(quota);
}

static int check_leased(const struct weir_quota *quota, struct weir_diag *diag)
{
    weir_assert(quota->sharing == WEIR_LEASED);
    if (quota->lease < WEIR_LEASE_MIN || quota->lease > WEIR_LEASE_MAX)
        return weir_quota_fault(
            "lease may be 1 s to 24 h; write it as lease=60s", diag);
    char lease[32];
    lease[weir_duration_format(quota->lease, lease, 31)] = '\0';
    if (quota->refresh < WEIR_REFRESH_MIN ||
        weir_quota_refresh(quota, 0) > quota->lease)
        return weir_diag_set(diag, WEIR_EQUOTA,
                             "refresh may be 100 ms up to the lease, which is ",
                             lease, "; write it as refresh=1s", NULL);
    return weir_quota_fault(lease_fault(quota), diag);
}

static const char *permits_fault(const struct weir_quota *quota)
{
    if (quota->permit_timeout < WEIR_PERMIT_TIMEOUT_MIN ||
        quota->permit_timeout > WEIR_PERMIT_TIMEOUT_MAX)
        return "permit_timeout may be 100 ms to 24 h; write it as "
               "permit_timeout=60s";
    if (quota->queue_max == 0 || quota->queue_max > WEIR_WAITERS_MAX)
        return "queue_max may be 1 to 1000000; write it as queue_max=100";
    return NULL;
}

int weir_quota_check_lease(const struct weir_quota *quota,
                           struct weir_diag *diag)
{
    int error = weir_quota_fault(permits_fault(quota), diag);
    if (error < 0 || quota->sharing != WEIR_LEASED)
        return error;
    return check_leased(quota, diag);
}
