/* SPDX-License-Identifier: MIT
 * algorithm/bucket.h - a bucket of leaky.h in one word, without races: the sum
 * of the units that came in. A fill is a signed number on the bucket's
 * scale. */

#ifndef WEIR_BUCKET_H
#define WEIR_BUCKET_H

#include "core/algorithm/leaky.h"

/* Whether a bucket's parameters are within the bounds of leaky.h. */
static inline bool weir_bucket_check(const struct weir_bucket *bucket)
{
    return bucket->leak.frac <= WEIR_FRAC_MAX && bucket->leak.whole < 128 &&
           bucket->high >= -1 && bucket->high <= WEIR_SCALED_MAX;
}

/* The most that may be in a bucket: charges saturate here. */
static inline int64_t weir_bucket_top(const struct weir_bucket *bucket)
{
    int64_t high = bucket->high > 0 ? bucket->high : 0;
    int64_t top = high + (int64_t)(WEIR_DEBT_MAX << bucket->leak.frac);
    return top < WEIR_SCALED_MAX ? top : WEIR_SCALED_MAX;
}

/* The fill of a bucket with the sum 'in' and a clock that began at 0; below 0:
 * the units that have overflowed since it was empty. A fill above the most that
 * a bucket can hold means that the sums wrapped while it was idle, for years:
 * it counts as empty. */
static inline int64_t weir_bucket_fill(const struct weir_bucket *bucket,
                                       uint64_t in, weir_instant now)
{
    int64_t fill = (int64_t)(in - weir_leaked(bucket->leak, now));
    bool known = fill <= WEIR_SCALED_MAX && fill >= -WEIR_SCALED_MAX;
    return known ? fill : -WEIR_SCALED_MAX;
}

/* fill + scaled, saturated at the bucket's top. Neither is below
 * -WEIR_SCALED_MAX, and 'scaled' is at most WEIR_SCALED_MAX. */
static inline int64_t weir_bucket_add(const struct weir_bucket *bucket,
                                      int64_t fill, int64_t scaled)
{
    int64_t top = weir_bucket_top(bucket);
    if (fill >= top)
        return fill;
    return top - fill < scaled ? top : fill + scaled;
}

/* Units on a bucket's scale, saturated at the most that a bucket can hold. */
static inline int64_t weir_bucket_scaled(const struct weir_bucket *bucket,
                                         uint64_t units)
{
    uint64_t most = (uint64_t)WEIR_SCALED_MAX >> bucket->leak.frac;
    return (int64_t)((units < most ? units : most) << bucket->leak.frac);
}

/* Units, rounded up. */
static inline int64_t weir_bucket_units(const struct weir_bucket *bucket,
                                        int64_t scaled)
{
    unsigned frac = bucket->leak.frac;
    return (scaled + (((int64_t)1 << frac) - 1)) >> frac;
}

/* A fill of one bucket on another's scale, rounded up, at most the other's
 * top. */
static inline int64_t weir_bucket_carried(const struct weir_bucket *from,
                                          const struct weir_bucket *to,
                                          int64_t fill)
{
    unsigned down = WEIR_FRAC_MAX - to->leak.frac;
    weir_i128 fine =
        (weir_i128)fill * ((int64_t)1 << (WEIR_FRAC_MAX - from->leak.frac));
    weir_i128 scaled = (fine + (((int64_t)1 << down) - 1)) >> down;
    int64_t top = weir_bucket_top(to);
    return scaled < top ? (int64_t)scaled : top;
}

/* Whole units that still fit. */
static inline uint64_t weir_bucket_room(const struct weir_bucket *bucket,
                                        int64_t fill)
{
    if (fill >= bucket->high)
        return 0;
    return (uint64_t)(bucket->high - fill) >> bucket->leak.frac;
}

#endif /* WEIR_BUCKET_H */
