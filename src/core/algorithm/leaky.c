/* SPDX-License-Identifier: MIT
 * core/algorithm/leaky.c - a bucket's parameters, and the slow computations.
 *
 * The scale is chosen once, when the parameters are made, from two bounds:
 *
 *   - the leak must fit 8 + 64 bits: below 2^8 scaled units a nanosecond;
 *     held to 2^7 here, so that a year of idling (2^54.8 ns) stays within
 *     2^62 and the signed difference of the sums keeps its sign;
 *   - the high burst and the debt above it must stay below WEIR_SCALED_MAX. */

#include "core/algorithm/leaky.h"

/* The largest frac for which units * 2^frac / per stays below 2^7. */
static unsigned frac_of_rate(uint64_t units, weir_duration per)
{
    unsigned frac = WEIR_FRAC_MAX;
    while (frac > 0 && ((weir_u128)units << frac) >= ((weir_u128)per << 7))
        frac--;
    return frac;
}

static unsigned frac_of_burst(uint64_t high)
{
    unsigned frac = WEIR_FRAC_MAX;
    weir_u128 most = (weir_u128)high + WEIR_DEBT_MAX + WEIR_WEIGHT_MAX;
    while (frac > 0 && (most << frac) > (weir_u128)WEIR_SCALED_MAX)
        frac--;
    return frac;
}

void weir_bucket_init(struct weir_bucket *bucket, uint64_t units,
                      weir_duration per, uint64_t low, uint64_t high)
{
    weir_assert(per > 0 && low <= high);
    weir_assert((weir_u128)units <= (weir_u128)per * 100);
    unsigned by_rate = frac_of_rate(units, per);
    unsigned by_burst = frac_of_burst(high);
    unsigned frac = by_rate < by_burst ? by_rate : by_burst;

    weir_u128 scaled = (weir_u128)units << frac;
    uint64_t whole = (uint64_t)(scaled / per);
    weir_u128 rest = (scaled % per) << 64;
    weir_u128 part = (rest + per - 1) / per;
    if (part >> 64) {
        whole++;
        part = 0;
    }
    weir_assert(whole <= UINT8_MAX);
    *bucket = (struct weir_bucket){
        .leak = { .part = (uint64_t)part,
                  .whole = (uint8_t)whole,
                  .frac = (uint8_t)frac },
        .low = (int64_t)(low << frac),
        .high = (int64_t)(high << frac),
    };
    weir_assert(bucket->low >= 0 && bucket->low <= bucket->high &&
                bucket->high <= WEIR_SCALED_MAX);
}

void weir_bucket_open(struct weir_bucket *bucket)
{
    *bucket = (struct weir_bucket){
        .low = WEIR_SCALED_MAX,
        .high = WEIR_SCALED_MAX,
    };
}

void weir_bucket_closed(struct weir_bucket *bucket)
{
    *bucket = (struct weir_bucket){ .low = -1, .high = -1 };
}

/* Nanoseconds until 'wanted', in 2^-64 of a scaled unit, has leaked. */
static weir_duration time_to_leak(struct weir_leak leak, weir_u128 wanted)
{
    weir_u128 rate = ((weir_u128)leak.whole << 64) | leak.part;
    if (rate == 0)
        return WEIR_NEVER;
    weir_u128 time = wanted / rate + (wanted % rate != 0);
    return time > INT64_MAX ? WEIR_NEVER : (weir_duration)time;
}

weir_duration weir_leak_time(struct weir_leak leak, int64_t scaled)
{
    if (scaled <= 0)
        return 0;
    return time_to_leak(leak, (weir_u128)(uint64_t)scaled << 64);
}

weir_duration weir_leak_wait(struct weir_leak leak, int64_t scaled,
                             uint64_t elapsed)
{
    if (scaled <= 0)
        return 0;
    /* The part of the next scaled unit that has leaked already. */
    uint64_t begun = elapsed * leak.part;
    return time_to_leak(leak, ((weir_u128)(uint64_t)scaled << 64) - begun);
}
