/* SPDX-License-Identifier: MIT
 * core/algorithm/algorithm_row.c - two to four buckets in a row: if the first
 * can't pay, the next may, at a lower level.
 *
 * One bucket pays the whole weight, the first that can (RFC 2697, 2698 colour
 * whole packets). A bucket with a rate is a word as in algorithm_word.c, and
 * the first one's word is 0 only in a row that was never used. A bucket that
 * spills has no rate. Its word is its fill, and the overflow of the bucket
 * before it since the last charge drains it:
 *
 *     before:   in ----------|          leaked(now) - in > 0: overflowed,
 *     spill:    fill - overflowed       the rest of it goes to the next
 *
 * Therefore a row writes all its words whenever it writes one: overflow that
 * was used must be gone from the first word too.
 *
 * A charge that no bucket can pay becomes the first one's debt: as the last
 * one's, it would never delay requests served at level 0. */

#include "core/algorithm/algorithm_internal.h"

struct row {
    int64_t fill[WEIR_BUCKETS_MAX];
};

void weir_algorithm_buckets(struct weir_algorithm_rule *rule,
                            const struct weir_algorithm_rate *rates,
                            uint8_t count)
{
    weir_assert(count >= 1 && count <= WEIR_BUCKETS_MAX && !rates[0].spill);
    rule->buckets = count;
    for (uint8_t k = 0; k < count;) {
        uint8_t end = k + 1;
        uint64_t most = rates[k].burst;
        if (k == 0 && rule->initial > (int64_t)most)
            most = (uint64_t)rule->initial;
        for (; end < count && rates[end].spill; end++)
            most = rates[end].burst > most ? rates[end].burst : most;

        struct weir_bucket bucket;
        weir_bucket_init(&bucket, rates[k].units, rates[k].per, most, most);
        for (; k < end; k++) {
            bucket.high = (int64_t)(rates[k].burst << bucket.leak.frac);
            bucket.low = bucket.high;
            rule->bucket[k] = (struct weir_algorithm_bucket){
                .bucket = bucket,
                .spill = rates[k].spill,
            };
            bucket.leak.part = 0;
            bucket.leak.whole = 0;
        }
    }
}

static bool row_check(const struct weir_algorithm_rule *rule)
{
    if (rule->buckets < 2 || rule->buckets > WEIR_BUCKETS_MAX ||
        rule->bucket[0].spill)
        return false;
    for (unsigned k = 0; k < rule->buckets; k++) {
        const struct weir_bucket *bucket = &rule->bucket[k].bucket;
        if (!weir_bucket_check(bucket))
            return false;
        if (rule->bucket[k].spill &&
            bucket->leak.frac != rule->bucket[k - 1].bucket.leak.frac)
            return false;
    }
    return true;
}

static size_t buckets_size(const struct weir_algorithm_rule *rule)
{
    return rule->buckets * sizeof(uint64_t);
}

static void row_read(const struct weir_algorithm_rule *rule,
                     const uint64_t *words, struct row *out, weir_instant now)
{
    *out = (struct row){ .fill = { 0 } };
    if (words[0] == 0)
        return;
    int64_t over = 0;
    for (unsigned k = 0; k < rule->buckets; k++) {
        const struct weir_bucket *bucket = &rule->bucket[k].bucket;
        int64_t fill = rule->bucket[k].spill
                           ? (int64_t)words[k] - over
                           : weir_bucket_fill(bucket, words[k], now);
        out->fill[k] = fill > 0 ? fill : 0;
        over = fill < 0 ? -fill : 0;
        weir_audit(out->fill[k] <= WEIR_SCALED_MAX);
    }
}

static void row_write(const struct weir_algorithm_rule *rule, uint64_t *words,
                      const struct row *row, weir_instant now)
{
    for (unsigned k = 0; k < rule->buckets; k++) {
        weir_audit(row->fill[k] >= 0 && row->fill[k] <= WEIR_SCALED_MAX);
        words[k] = (uint64_t)row->fill[k];
        if (!rule->bucket[k].spill)
            words[k] += weir_leaked(rule->bucket[k].bucket.leak, now);
    }
    if (words[0] == 0)
        words[0] = 1;
    weir_audit(rule->algorithm == WEIR_TOKEN_BUCKETS && words[0] != 0);
}

/* A row refuses all if its first bucket is closed. */
static bool is_closed(const struct weir_algorithm_rule *rule)
{
    return rule->bucket[0].bucket.high < 0;
}

static int64_t scaled_weight(const struct weir_algorithm_rule *rule, unsigned k,
                             uint64_t weight)
{
    return (int64_t)(weight << rule->bucket[k].bucket.leak.frac);
}

/* Nanoseconds until bucket 'k' can pay, or WEIR_NEVER. */
static weir_duration row_wait(const struct weir_algorithm_rule *rule,
                              const struct row *row, unsigned k,
                              uint64_t weight, weir_instant now)
{
    weir_audit(k < rule->buckets);
    const struct weir_bucket *bucket = &rule->bucket[k].bucket;
    int64_t scaled = scaled_weight(rule, k, weight);
    if (bucket->high == WEIR_SCALED_MAX)
        return 0;
    if (scaled > bucket->high)
        return WEIR_NEVER;
    int64_t before = row->fill[k] + scaled - bucket->high;
    if (before <= 0)
        return 0;
    /* Overflow arrives only when all buckets before are full of tokens. */
    for (; rule->bucket[k].spill; k--)
        before += row->fill[k - 1];
    return weir_leak_wait(rule->bucket[k].bucket.leak, before, now);
}

/* The bucket that pays. If none can: 0, and a request that isn't a charge is
 * refused in 'out', with its retry time. */
static unsigned row_payer(const struct weir_algorithm_rule *rule,
                          const struct row *row,
                          const struct weir_algorithm_ask *ask,
                          struct weir_algorithm_answer *out, weir_instant now)
{
    weir_duration first = WEIR_NEVER;
    bool fits = false;
    unsigned count = is_closed(rule) ? 0 : rule->buckets;
    for (unsigned k = 0; k < count; k++) {
        weir_duration wait = row_wait(rule, row, k, ask->weight, now);
        if (wait == 0)
            return k;
        first = wait < first ? wait : first;
        fits |=
            scaled_weight(rule, k, ask->weight) <= rule->bucket[k].bucket.high;
    }
    if (ask->op == WEIR_ALGORITHM_CHARGE)
        return 0;
    out->passed = false;
    out->retry_after = first;
    out->never = !fits;
    return 0;
}

static void row_charge_to(const struct weir_algorithm_rule *rule,
                          struct row *row, unsigned k, uint64_t units)
{
    weir_audit(k < rule->buckets && row->fill[k] >= 0);
    const struct weir_bucket *bucket = &rule->bucket[k].bucket;
    row->fill[k] = weir_bucket_add(bucket, row->fill[k],
                                   weir_bucket_scaled(bucket, units));
}

/* Never below empty; the excess is not given to another bucket. Returns whether
 * any units were given back. */
static bool row_refund(const struct weir_algorithm_rule *rule, struct row *row,
                       const struct weir_algorithm_ask *ask)
{
    unsigned k = ask->level < rule->buckets ? ask->level : 0;
    int64_t scaled = scaled_weight(rule, k, ask->weight);
    int64_t back = row->fill[k] < scaled ? row->fill[k] : scaled;
    row->fill[k] -= back;
    weir_audit(back >= 0 && row->fill[k] >= 0);
    return back > 0;
}

/* The first bucket that can pay does. Returns whether a bucket has changed; a
 * peek changes none. */
static bool row_ask(const struct weir_algorithm_rule *rule, struct row *row,
                    const struct weir_algorithm_ask *ask,
                    struct weir_algorithm_answer *out, weir_instant now)
{
    unsigned payer = row_payer(rule, row, ask, out, now);
    out->level = (uint8_t)payer;
    if (!out->passed || ask->op == WEIR_ALGORITHM_PEEK || ask->weight == 0)
        return false;
    row_charge_to(rule, row, payer, ask->weight);
    return true;
}

static void row_answer(const struct weir_algorithm_rule *rule,
                       const struct row *row, struct weir_algorithm_answer *out)
{
    for (unsigned k = 0; k < rule->buckets; k++) {
        const struct weir_bucket *bucket = &rule->bucket[k].bucket;
        out->used += weir_bucket_units(bucket, row->fill[k]);
        out->remaining += weir_bucket_room(bucket, row->fill[k]);
    }
    if (is_closed(rule))
        out->remaining = 0;
}

static void row_step(const struct weir_algorithm_rule *rule, uint64_t *state,
                     const struct weir_algorithm_ask *ask,
                     struct weir_algorithm_answer *out, weir_instant now)
{
    struct row row;
    row_read(rule, state, &row, now);
    out->passed = true;
    bool changed = ask->op == WEIR_ALGORITHM_REFUND
                       ? row_refund(rule, &row, ask)
                       : row_ask(rule, &row, ask, out, now);
    if (changed)
        row_write(rule, state, &row, now);
    row_answer(rule, &row, out);
}

static void row_charge(const struct weir_algorithm_rule *rule, uint64_t *state,
                       uint64_t units, weir_instant now)
{
    struct row row;
    row_read(rule, state, &row, now);
    row_charge_to(rule, &row, 0, units);
    row_write(rule, state, &row, now);
}

static void row_carry(const struct weir_algorithm_rule *from,
                      const uint64_t *state,
                      const struct weir_algorithm_rule *to, uint64_t *to_state,
                      weir_instant now)
{
    struct row was;
    struct row row = { .fill = { 0 } };
    row_read(from, state, &was, now);
    unsigned both = from->buckets < to->buckets ? from->buckets : to->buckets;
    for (unsigned k = 0; k < both; k++)
        row.fill[k] = weir_bucket_carried(&from->bucket[k].bucket,
                                          &to->bucket[k].bucket, was.fill[k]);
    row_write(to, to_state, &row, now);
}

static weir_instant row_idle_at(const struct weir_algorithm_rule *rule,
                                const uint64_t *state, weir_instant now)
{
    struct row row;
    row_read(rule, state, &row, now);
    weir_duration last = 0;
    int64_t run = 0;
    const struct weir_leak *leak = NULL;
    for (unsigned k = 0; k < rule->buckets; k++) {
        bool spill = rule->bucket[k].spill;
        weir_assert(leak || !spill);
        leak = spill ? leak : &rule->bucket[k].bucket.leak;
        run = (spill ? run : 0) + row.fill[k];
        weir_duration rest = weir_leak_wait(*leak, run, now);
        last = rest > last ? rest : last;
    }
    return weir_after(now, last);
}

static bool row_sound(const struct weir_algorithm_rule *rule,
                      const uint64_t *state, weir_instant latest)
{
    (void)latest;
    for (unsigned k = 0; k < rule->buckets; k++)
        if (rule->bucket[k].spill && state[k] > (uint64_t)WEIR_SCALED_MAX)
            return false;
    return true;
}

const struct weir_algorithm_family weir_algorithm_row = {
    .check = row_check,
    .size = buckets_size,
    .sound = row_sound,
    .step = row_step,
    .charge = row_charge,
    .carry = row_carry,
    .idle_at = row_idle_at,
};
