/* SPDX-License-Identifier: MIT
 * algorithm/algorithm_internal.h - shared by the families of algorithms, and
 * by the queue. */

#ifndef WEIR_ALGORITHM_INTERNAL_H
#define WEIR_ALGORITHM_INTERNAL_H

#include "core/algorithm/algorithm.h"

/* A family of algorithms: implements algorithm.h, for a sound rule. 'state'
 * has the words that size() counts. */
struct weir_algorithm_family {
    bool (*check)(const struct weir_algorithm_rule *rule);
    size_t (*size)(const struct weir_algorithm_rule *rule);
    bool (*sound)(const struct weir_algorithm_rule *rule, const uint64_t *state,
                  weir_instant latest);
    void (*step)(const struct weir_algorithm_rule *rule, uint64_t *state,
                 const struct weir_algorithm_ask *ask,
                 struct weir_algorithm_answer *out, weir_instant now);
    /* Adds any number of units to any state; saturates. */
    void (*charge)(const struct weir_algorithm_rule *rule, uint64_t *state,
                   uint64_t units, weir_instant now);
    /* weir_algorithm_carry() for two rules of the same algorithm. 'state' isn't
     * zero; 'to_state' is. */
    void (*carry)(const struct weir_algorithm_rule *from, const uint64_t *state,
                  const struct weir_algorithm_rule *to, uint64_t *to_state,
                  weir_instant now);
    weir_instant (*idle_at)(const struct weir_algorithm_rule *rule,
                            const uint64_t *state, weir_instant now);
};

extern const struct weir_algorithm_family weir_algorithm_word; /* one bucket */
extern const struct weir_algorithm_family weir_algorithm_row;  /* two to four */
extern const struct weir_algorithm_family weir_algorithm_fixed;
extern const struct weir_algorithm_family weir_algorithm_log;
extern const struct weir_algorithm_family weir_algorithm_sliding;
extern const struct weir_algorithm_family weir_algorithm_permits;

/* ---- A bucket of leaky.h in one word, without races: the sum of the units
 * that came in. A fill is a signed number on the bucket's scale. ---- */

/* Whether a bucket's parameters are within the bounds of leaky.h. */
static inline bool weir_bucket_check(const struct weir_bucket *bucket)
{
    return bucket->leak.frac <= WEIR_FRAC_MAX && bucket->leak.whole < 128 &&
           bucket->high >= -1 && bucket->high <= WEIR_SCALED_MAX;
}

/* The most that may be in a bucket: charges saturate here. */
static inline int64_t weir_bucket_top(const struct weir_bucket *bucket)
{
    weir_audit(weir_bucket_check(bucket));
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
    weir_audit(fill >= -WEIR_SCALED_MAX && scaled >= -WEIR_SCALED_MAX &&
               scaled <= WEIR_SCALED_MAX);
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
    weir_audit(weir_bucket_check(from) && weir_bucket_check(to));
    unsigned down = WEIR_FRAC_MAX - to->leak.frac;
    weir_i128 fine =
        (weir_i128)fill * ((int64_t)1 << (WEIR_FRAC_MAX - from->leak.frac));
    weir_i128 scaled = (fine + (((int64_t)1 << down) - 1)) >> down;
    int64_t top = weir_bucket_top(to);
    /* Units above the burst may be more than fit on a finer scale. */
    if (scaled < -WEIR_SCALED_MAX)
        return -WEIR_SCALED_MAX;
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

/* ---- Windows and the log ---- */

/* Whether 'weight' more units pass beside 'used'. */
static inline bool weir_quantity_passes(const struct weir_algorithm_rule *rule,
                                        uint64_t used, uint64_t weight)
{
    uint64_t quantity = rule->quantity;
    return quantity > 0 && weight <= quantity && used <= quantity - weight;
}

/* Whether this request's weight is counted. */
static inline bool weir_algorithm_counts(const struct weir_algorithm_rule *rule,
                                         const struct weir_algorithm_ask *ask,
                                         bool passed)
{
    if (ask->op == WEIR_ALGORITHM_CHARGE)
        return true;
    if (ask->op == WEIR_ALGORITHM_PEEK || ask->op == WEIR_ALGORITHM_REFUND)
        return false;
    return passed || rule->count_limited;
}

/* Whether a window can hold this many units: charges saturate there. */
static inline bool weir_quantity_holds(const struct weir_algorithm_rule *rule,
                                       uint64_t units)
{
    return units <= rule->quantity + WEIR_DEBT_MAX;
}

/* The part of 'units' that can be added to 'used' before it saturates. */
static inline uint64_t weir_quantity_adds(
    const struct weir_algorithm_rule *rule, uint64_t used, uint64_t units)
{
    weir_audit(rule->quantity <= WEIR_ALGORITHM_QUANTITY_MAX);
    uint64_t top = rule->quantity + WEIR_DEBT_MAX;
    if (used >= top)
        return 0;
    return units < top - used ? units : top - used;
}

/* Fills the answer for a state with 'used' units in it now. The caller sets
 * 'retry_after' if the request didn't pass and 'never' is false. */
static inline void weir_quantity_answer(const struct weir_algorithm_rule *rule,
                                        const struct weir_algorithm_ask *ask,
                                        bool passed, uint64_t used,
                                        struct weir_algorithm_answer *out)
{
    weir_audit(used <= INT64_MAX);
    uint64_t quantity = rule->quantity;
    bool asked =
        ask->op != WEIR_ALGORITHM_CHARGE && ask->op != WEIR_ALGORITHM_REFUND;
    out->passed = passed || !asked;
    out->never = !out->passed && (quantity == 0 || ask->weight > quantity);
    out->used = (int64_t)used;
    out->remaining = used < quantity ? quantity - used : 0;
    out->retry_after = out->never ? WEIR_NEVER : 0;
}

#endif /* WEIR_ALGORITHM_INTERNAL_H */
