/* SPDX-License-Identifier: MIT
 * quota/limit_rate.c - limits as units a second, for lease pools.
 *
 * A limit is two integers; the capacity of a lease pool and of a Doorman file
 * is a double. From a limit to a double is one division, rounded once: num /
 * den is taken to 64 bits and a sticky one, which a conversion then rounds to
 * the nearest double.
 *
 *     units x 10^9 << s
 *     -----------------  =  1xxxxx…xxx|y  x 2^-s
 *           per
 *
 * The way back finds, of all limits that this division turns into 'rate', the
 * one that a person would have written: digits over a power of ten, if that
 * gives 'rate' again; else the simplest fraction of units over nanoseconds, by
 * the convergents of Euclid's algorithm. One of these always gives 'rate'
 * again, if the rate isn't below one unit in the longest period P: the last
 * convergent p/q with q <= P is off by less than 1 / (q x P), so relatively by
 * less than 1 / (p x P) <= 2^-54.8, and half of a double's last place is 2^-54
 * at least. */

#include "core/quota/quota.h"

#include <string.h>

/* num / den to the nearest double. 'num' > 0, 'den' 1 .. WEIR_PERIOD_MAX, so
 * that the quotient of 'num' shifted to the left end has 64 bits. */
static double divided(weir_u128 num, uint64_t den)
{
    int shift = 0;
    for (; !(num >> 127); shift++)
        num <<= 1;
    weir_u128 quotient = num / den;
    bool sticky = num % den != 0;
    for (; quotient >> 64; shift--) {
        sticky |= quotient & 1;
        quotient >>= 1;
    }
    uint64_t bits = (uint64_t)(1023 - shift) << 52; /* 2^-shift */
    double power;
    memcpy(&power, &bits, sizeof(power));
    return (double)((uint64_t)quotient | sticky) * power;
}

double weir_limit_rate(const struct weir_limit *limit)
{
    if (limit->unlimited)
        return (double)WEIR_LIMIT_MAX;
    if (limit->units == 0)
        return 0;
    weir_assert(limit->per > 0 && limit->per <= WEIR_PERIOD_MAX);
    return divided((weir_u128)limit->units * WEIR_SECOND, limit->per);
}

static uint64_t common_divisor_u64(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#define SECONDS_MAX 10000000u /* the largest power of ten in a period */
#define EXACT_MAX (1ull << 53)

/* As digits over a power of ten seconds. */
static bool as_decimal(double rate, struct weir_limit *out)
{
    for (uint32_t ten = 1; ten <= SECONDS_MAX; ten *= 10) {
        double scaled = rate * ten + 0.5;
        if (scaled >= (double)EXACT_MAX)
            return false;
        uint64_t units = (uint64_t)scaled;
        if ((double)units / ten != rate)
            continue;
        uint64_t divisor = common_divisor_u64(units, ten);
        *out = (struct weir_limit){ .units = units / divisor,
                                    .per = ten / divisor * WEIR_SECOND };
        return true;
    }
    return false;
}

/* As a fraction of units over nanoseconds: num / den is the rate's, exactly. */
static bool as_fraction(double rate, struct weir_limit *out)
{
    uint64_t bits;
    memcpy(&bits, &rate, sizeof(bits));
    /* 2^-25 < rate <= 2^37, so that 'den' has 107 bits at most */
    unsigned down = 1075 - (unsigned)(bits >> 52);
    weir_u128 num = (bits & (EXACT_MAX / 2 - 1)) | EXACT_MAX / 2;
    weir_u128 den = (weir_u128)WEIR_SECOND << down;
    weir_u128 p[2] = { 0, 1 }; /* the convergents before */
    weir_u128 q[2] = { 1, 0 };
    while (den > 0) {
        weir_u128 times = num / den;
        if (q[1] > 0 && times > (WEIR_PERIOD_MAX - q[0]) / q[1])
            return false;
        weir_u128 next_p = times * p[1] + p[0];
        weir_u128 next_q = times * q[1] + q[0];
        struct weir_limit limit = { .units = (uint64_t)next_p,
                                    .per = (weir_duration)next_q };
        if (weir_limit_rate(&limit) == rate) {
            *out = limit;
            return true;
        }
        p[0] = p[1], p[1] = next_p;
        q[0] = q[1], q[1] = next_q;
        weir_u128 rest = num % den;
        num = den;
        den = rest;
    }
    return false;
}

int weir_limit_of_rate(double rate, struct weir_limit *out)
{
    const struct weir_limit most = { .units = WEIR_LIMIT_MAX,
                                     .per = WEIR_SECOND };
    const struct weir_limit least = { .units = 1, .per = WEIR_PERIOD_MAX };
    const struct weir_limit none = { .per = WEIR_SECOND };
    if (!(rate >= 0) || rate - rate != 0) /* NaN; infinite */
        return WEIR_EINVAL;
    if (rate > (double)WEIR_LIMIT_MAX) {
        *out = most;
        return 1;
    }
    if (rate == 0) {
        *out = none;
        return 0;
    }
    if (rate < weir_limit_rate(&least)) {
        *out = rate * 2 < weir_limit_rate(&least) ? none : least;
        return 1;
    }
    if (!as_decimal(rate, out)) {
        bool found = as_fraction(rate, out);
        weir_assert(found); /* see above */
    }
    return 0;
}
