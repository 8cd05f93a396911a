/* SPDX-License-Identifier: MIT
 * algorithm/algorithm_word.c - one bucket in one word: leaky, token bucket,
 * queue.
 *
 * The word is 'in', the sum of all units that came in, on the scale of the leak
 * since the clock's 0 (core/algorithm/leaky.h has the arithmetic). 0: nothing
 * ever came in; a sum that happens to be 0 is stored as 1, one scaled unit
 * fuller.
 *
 *     leaky          passes if fill + weight <= burst
 *     token_bucket   the same seen from above: tokens = burst - fill
 *     leaky_queue    passes if fill == 0: no request is before it. A reserve
 *                    may have up to 'burst' units before it and waits
 *
 * A token bucket's 'initial' below the burst is a first fill of burst -
 * initial, which begins to leak at the first step of any kind. Units above the
 * burst are a fill below 0. They neither grow nor shrink with time, so they
 * can't be a difference of sums. Only such a rule keeps its word shifted left
 * by one bit, and the lowest bit tells the two forms apart:
 *
 *     ... in, modulo 2^63 ... | 0       fill = in - leaked
 *     ... units above, scaled | 1       fill = -units
 *
 * Rejected: GCRA's instant in the word, as leaky.h explains. There, units above
 * the burst would also be lost as time passes. */

#include "core/algorithm/algorithm_internal.h"

static int64_t initial_fill(const struct weir_algorithm_rule *rule)
{
    const struct weir_bucket *bucket = &rule->bucket[0].bucket;
    if (rule->algorithm != WEIR_TOKEN_BUCKET || rule->initial < 0 ||
        bucket->high < 0 || bucket->high == WEIR_SCALED_MAX)
        return 0;
    return bucket->high -
           (int64_t)((uint64_t)rule->initial << bucket->leak.frac);
}

/* Below 0: units above the burst. */
static int64_t word_fill(const struct weir_algorithm_rule *rule, uint64_t word,
                         weir_instant now)
{
    weir_audit(rule->buckets == 1);
    const struct weir_bucket *bucket = &rule->bucket[0].bucket;
    int64_t first = initial_fill(rule);
    if (word == 0)
        return first;
    int64_t fill;
    if (first >= 0)
        fill = weir_bucket_fill(bucket, word, now);
    else if (word & 1)
        return -(int64_t)(word >> 1);
    else
        fill = (int64_t)(word - (weir_leaked(bucket->leak, now) << 1)) >> 1;
    return fill > 0 && fill <= WEIR_SCALED_MAX ? fill : 0;
}

static uint64_t word_of(const struct weir_algorithm_rule *rule, int64_t fill,
                        weir_instant now)
{
    weir_audit(fill >= 0 || fill >= initial_fill(rule));
    weir_audit(fill <= WEIR_SCALED_MAX);
    if (fill < 0)
        return (uint64_t)-fill << 1 | 1;
    uint64_t in =
        weir_leaked(rule->bucket[0].bucket.leak, now) + (uint64_t)fill;
    bool shifted = initial_fill(rule) < 0;
    uint64_t word = shifted ? in << 1 : in;
    if (word != 0)
        return word;
    return shifted ? 2 : 1;
}

/* Nanoseconds until 'scaled' more units may pass, or WEIR_NEVER. */
static weir_duration wait_for_room(const struct weir_algorithm_rule *rule,
                                   int64_t fill, int64_t scaled,
                                   weir_instant now)
{
    const struct weir_bucket *bucket = &rule->bucket[0].bucket;
    if (bucket->high == WEIR_SCALED_MAX)
        return 0;
    bool queue = rule->algorithm == WEIR_LEAKY_QUEUE;
    /* Scaled units that must leak first. */
    int64_t before = queue ? fill : fill + scaled - bucket->high;
    if (scaled > bucket->high && (queue || before > 0))
        return WEIR_NEVER;
    return weir_leak_wait(bucket->leak, before, now);
}

/* The highest fill at which a reserve is accepted, itself not counted. */
static int64_t reserve_bound(const struct weir_algorithm_rule *rule,
                             int64_t scaled)
{
    const struct weir_bucket *bucket = &rule->bucket[0].bucket;
    if (rule->algorithm == WEIR_LEAKY_QUEUE)
        return bucket->high;
    return weir_bucket_top(bucket) - scaled;
}

/* Whether the request may be charged now; if not, sets 'retry_after'. */
static bool word_asks(const struct weir_algorithm_rule *rule,
                      const struct weir_algorithm_ask *ask, int64_t fill,
                      int64_t scaled, struct weir_algorithm_answer *out,
                      weir_instant now)
{
    weir_duration turn = wait_for_room(rule, fill, scaled, now);
    if (turn == 0)
        return true;
    out->retry_after = turn;
    out->never = scaled > rule->bucket[0].bucket.high;
    if (ask->op != WEIR_ALGORITHM_RESERVE || turn == WEIR_NEVER)
        return false;

    weir_duration room = weir_leak_wait(
        rule->bucket[0].bucket.leak, fill - reserve_bound(rule, scaled), now);
    weir_duration late = turn > ask->wait_max ? turn - ask->wait_max : 0;
    out->retry_after = late > room ? late : room;
    if (out->retry_after > 0)
        return false;
    out->wait = turn;
    return true;
}

static int64_t word_refund(const struct weir_algorithm_rule *rule, int64_t fill,
                           int64_t scaled)
{
    int64_t empty = fill < 0 ? initial_fill(rule) : 0;
    weir_audit(empty <= fill);
    return fill - empty < scaled ? empty : fill - scaled;
}

static uint64_t word_room(const struct weir_algorithm_rule *rule, int64_t fill)
{
    if (rule->algorithm == WEIR_LEAKY_QUEUE && fill > 0)
        return 0;
    return weir_bucket_room(&rule->bucket[0].bucket, fill);
}

static void word_step(const struct weir_algorithm_rule *rule, uint64_t *state,
                      const struct weir_algorithm_ask *ask,
                      struct weir_algorithm_answer *out, weir_instant now)
{
    const struct weir_bucket *bucket = &rule->bucket[0].bucket;
    int64_t fill = word_fill(rule, *state, now);
    int64_t scaled = (int64_t)(ask->weight << bucket->leak.frac);
    int64_t after = fill;
    out->passed = true;
    switch (ask->op) {
    case WEIR_ALGORITHM_TAKE:
    case WEIR_ALGORITHM_RESERVE:
        out->passed = word_asks(rule, ask, fill, scaled, out, now);
        if (out->passed)
            after = weir_bucket_add(bucket, fill, scaled);
        break;
    case WEIR_ALGORITHM_PEEK:
        out->passed = word_asks(rule, ask, fill, scaled, out, now);
        break;
    case WEIR_ALGORITHM_CHARGE:
        after = weir_bucket_add(bucket, fill, scaled);
        break;
    case WEIR_ALGORITHM_REFUND:
        after = word_refund(rule, fill, scaled);
        break;
    }
    bool begins = *state == 0 && fill > 0;
    weir_audit(ask->op == WEIR_ALGORITHM_REFUND ? after <= fill
                                                : after >= fill);
    if (after != fill || begins)
        *state = word_of(rule, after, now);
    out->used = weir_bucket_units(bucket, after);
    out->remaining = word_room(rule, after);
}

static void word_charge(const struct weir_algorithm_rule *rule, uint64_t *state,
                        uint64_t units, weir_instant now)
{
    weir_assert(rule->buckets == 1);
    const struct weir_bucket *bucket = &rule->bucket[0].bucket;
    int64_t scaled = weir_bucket_scaled(bucket, units);
    *state = word_of(rule, weir_bucket_add(bucket, 0, scaled), now);
}

static void word_carry(const struct weir_algorithm_rule *from,
                       const uint64_t *state,
                       const struct weir_algorithm_rule *to, uint64_t *to_state,
                       weir_instant now)
{
    weir_assert(to->buckets == 1);
    const struct weir_bucket *bucket = &to->bucket[0].bucket;
    int64_t least = initial_fill(to) < 0 ? initial_fill(to) : 0;
    int64_t fill = weir_bucket_carried(&from->bucket[0].bucket, bucket,
                                       word_fill(from, *state, now));
    *to_state = word_of(to, fill < least ? least : fill, now);
}

static weir_instant word_idle_at(const struct weir_algorithm_rule *rule,
                                 const uint64_t *state, weir_instant now)
{
    if (initial_fill(rule) != 0)
        return WEIR_NEVER;
    weir_duration rest = weir_leak_wait(rule->bucket[0].bucket.leak,
                                        word_fill(rule, *state, now), now);
    return weir_after(now, rest);
}

static bool word_check(const struct weir_algorithm_rule *rule)
{
    const struct weir_bucket *bucket = &rule->bucket[0].bucket;
    if (rule->buckets != 1 || rule->bucket[0].spill ||
        !weir_bucket_check(bucket))
        return false;
    return rule->algorithm != WEIR_TOKEN_BUCKET ||
           rule->initial <= WEIR_SCALED_MAX >> bucket->leak.frac;
}

static size_t word_size(const struct weir_algorithm_rule *rule)
{
    (void)rule;
    return sizeof(uint64_t);
}

/* Any sum is possible; units above the burst are at most those of 'initial'. */
static bool word_sound(const struct weir_algorithm_rule *rule,
                       const uint64_t *state, weir_instant latest)
{
    (void)latest;
    int64_t first = initial_fill(rule);
    return first >= 0 || !(*state & 1) || *state >> 1 <= (uint64_t)-first;
}

const struct weir_algorithm_family weir_algorithm_word = {
    .check = word_check,
    .size = word_size,
    .sound = word_sound,
    .step = word_step,
    .charge = word_charge,
    .carry = word_carry,
    .idle_at = word_idle_at,
};
