/* SPDX-License-Identifier: MIT
 * algorithm/leaky.h - the leaky bucket as a meter, in integers.
 *
 * The bucket is not a level with a time stamp: two words that must change
 * together can't be shared without a lock. It is two sums on one scale: the
 * units that came in, and those that could have leaked since an origin that all
 * buckets of a table have in common:
 *
 *     fill(now) = max(0, in - leak(now - origin))
 *
 * 'in' only grows by takes, so an atomic add is a take. Whenever the
 * difference is found negative the bucket has been empty, and 'in' is lifted
 * to leak(now - origin). Both sums are kept modulo 2^64: only their
 * difference has a meaning, and it stays small.
 *
 * The scale is 2^-frac units. Slow limits get fractions of a unit (1/day
 * with a burst of 1 lets the next request pass a whole day later, not at the
 * next multiple of a day), fast ones need none. The leak per nanosecond is a
 * fixed-point number of 8 + 64 bits, rounded up: over t nanoseconds it is
 * too high by less than t * 2^-64, below one 2^-frac of a unit for 584
 * years, and exact at every instant at which the exact value is a whole
 * number of the scale.
 *
 * Rejected: virtual time in one word (GCRA). Nanoseconds are too coarse
 * above 10^8 units a second, a change of the limit changes the meaning of
 * the word, and an idle bucket saves up its idle time for a burst.
 *
 * Source: J. Turner, "New directions in communications", IEEE
 * Communications Magazine 24(10), 1986 (the bucket); ITU-T I.371 annex A
 * (the continuous-state form). */

#ifndef WEIR_LEAKY_H
#define WEIR_LEAKY_H

#include "core/base/base.h"

#define WEIR_FRAC_MAX 20 /* bits of a unit's fraction, at most */

/* No bucket holds more than this, in scaled units: charges saturate. Leaves the
 * sign and two bits for races. */
#define WEIR_SCALED_MAX ((int64_t)1 << 61)

/* The leak rate in scaled units per nanosecond: whole + part/2^64. */
struct weir_leak {
    uint64_t part;
    uint8_t whole;
    uint8_t frac; /* the scale: 2^-frac units */
};

/* A bucket's parameters, scaled. 'high' < 0 refuses all; a bucket that
 * never refuses has 'high' = WEIR_SCALED_MAX. 0 <= low <= high otherwise. */
struct weir_bucket {
    struct weir_leak leak;
    int64_t low;
    int64_t high;
};

/* Makes the parameters for 'units' every 'per' nanoseconds (per > 0, at most
 * 100 units a nanosecond) and bursts in units (low <= high <= 2^50). */
void weir_bucket_init(struct weir_bucket *bucket, uint64_t units,
                      weir_duration per, uint64_t low, uint64_t high);
/* Parameters of a bucket that lets everything through, and of one that lets
 * nothing through. */
void weir_bucket_open(struct weir_bucket *bucket);
void weir_bucket_closed(struct weir_bucket *bucket);

/* The scaled units that leak in 'elapsed' nanoseconds, modulo 2^64. */
static inline uint64_t weir_leaked(struct weir_leak leak, uint64_t elapsed)
{
    return elapsed * leak.whole +
           (uint64_t)(((weir_u128)elapsed * leak.part) >> 64);
}

/* Nanoseconds until 'scaled' (> 0) has leaked, rounded up; WEIR_NEVER when
 * nothing leaks or it takes longer than 2^63 ns. Slow path. */
weir_duration weir_leak_time(struct weir_leak leak, int64_t scaled);
/* The same counted from an instant, exact to the nanosecond: the smallest d for
 * which weir_leaked(elapsed + d) - weir_leaked(elapsed) >= scaled. */
weir_duration weir_leak_wait(struct weir_leak leak, int64_t scaled,
                             uint64_t elapsed);

/* Whether a bucket at 'fill' in the band between low and high refuses, for a
 * 'chance' uniform over 64 bits: probability (fill - low) / (high - low). */
static inline bool weir_band_refuses(int64_t fill, int64_t low, int64_t band,
                                     uint64_t chance)
{
    int64_t drawn = (int64_t)(((weir_u128)(uint64_t)band * chance) >> 64);
    return fill - low > drawn;
}

/* From one scale to another; rounds towards more fill. */
static inline int64_t weir_rescale(int64_t scaled, unsigned from, unsigned to)
{
    weir_audit(from <= WEIR_FRAC_MAX && to <= WEIR_FRAC_MAX);
    if (to >= from)
        return (int64_t)((uint64_t)scaled << (to - from));
    int64_t half = ((int64_t)1 << (from - to)) - 1;
    return (scaled + half) >> (from - to);
}

/* The same for sums of any size: at most WEIR_SCALED_MAX. */
static inline int64_t weir_rescale_saturated(int64_t scaled, unsigned from,
                                             unsigned to)
{
    if (to > from && scaled > WEIR_SCALED_MAX >> (to - from))
        return WEIR_SCALED_MAX;
    return weir_rescale(scaled, from, to);
}

/* The fill after an edit, on the new scale. Of what is used, up to the 'high'
 * that was 'before', no more than the new 'high' is kept; a debt above the
 * former one stays. Raising 'high' changes nothing. */
static inline int64_t weir_fill_edited(int64_t fill, int64_t before,
                                       int64_t high)
{
    before = before > 0 ? before : 0;
    high = high > 0 ? high : 0;
    int64_t debt = fill > before ? fill - before : 0;
    int64_t used = fill - debt;
    return (used < high ? used : high) + debt;
}

#endif /* WEIR_LEAKY_H */
