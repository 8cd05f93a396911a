/* SPDX-License-Identifier: MIT
 * lab/truth.c - one bucket for a whole fleet; see truth.h.
 *
 * Limiters decide on root fills that are out of date. The truth is the
 * reference: the same bucket, to which every pass of every limiter is added at
 * its instant. It decides nothing. The ideal limiter decides on the same
 * requests in the same order, and its decisions have no effect: it has its own
 * draws, so that a fleet behaves the same with and without it.
 *
 * A name's chain follows the store, not a limiter's table: its quota or the
 * first template that matches, its parent (with captures put in), and so on up.
 * While an edit is being distributed, limiters still charge the former chain;
 * the truth doesn't.
 *
 * As in the product, a quota that is off is not charged, and one in mode shadow
 * is charged the units that would have passed.
 *
 * A pass is reported as a slot of a limiter's table. A slot's name doesn't
 * change during the slot's life, so each limiter has a column of (generation,
 * bucket), and a pass costs no look-up. */

#include "lab/truth.h"

#include <math.h>

#include "core/base/hash.h"
#include "core/base/index.h"
#include "core/quota/quota_bucket.h"
#include "io/clock.h"
#include "lab/memory.h"

/* The bucket of a slot of a limiter's table. */
struct entry {
    uint32_t generation;
    struct weir_truth_bucket *bucket;
};
struct column {
    struct entry *entries; /* owned */
    size_t capacity;
};

struct weir_truth {
    struct weir_fleet *fleet;
    bool ideal;
    enum weir_curve curve;
    struct weir_rng rng;                /* the ideal's */
    uint64_t epoch;                     /* of the store, at the last update of
                                         * the buckets */
    struct weir_truth_bucket **buckets; /* owned */
    size_t count, capacity;
    struct weir_index index;
    struct column *columns; /* owned; one for each limiter */
    size_t limiters;        /* columns */
};

/* ---- The set of buckets ---- */

static uint64_t elapsed_of(const struct weir_truth *truth)
{
    return weir_fleet_now(truth->fleet) - WEIR_WORLD_START;
}

static bool has_limit(const struct weir_truth_bucket *bucket)
{
    return bucket->bucket.high != WEIR_SCALED_MAX;
}

/* Fill of one of its two sums, scaled; never negative. */
static int64_t fill_of(const struct weir_truth_bucket *bucket, uint64_t *in,
                       uint64_t elapsed)
{
    uint64_t leaked = weir_leaked(bucket->bucket.leak, elapsed);
    if ((int64_t)(*in - leaked) < 0)
        *in = leaked;
    return (int64_t)(*in - leaked);
}

static double truth_units(const struct weir_truth_bucket *bucket,
                          int64_t scaled)
{
    return ldexp((double)scaled, -bucket->bucket.leak.frac);
}

static struct weir_truth_bucket *find_truth_bucket(
    const struct weir_truth *truth, struct weir_text name, uint64_t hash)
{
    size_t cursor = 0;
    uint32_t at;
    while (weir_index_find(&truth->index, hash, &cursor, &at)) {
        if (weir_text_equal(truth->buckets[at]->name, name))
            return truth->buckets[at];
    }
    return NULL;
}

static bool is_child_of(const struct weir_truth_bucket *from,
                        const struct weir_truth_bucket *to)
{
    for (unsigned i = 0; i < WEIR_DEPTH_MAX && from; i++) {
        if (from == to)
            return true;
        from = from->parent;
    }
    return from != NULL;
}

static struct weir_truth_bucket *root_quota(struct weir_truth *truth,
                                            struct weir_text name,
                                            unsigned depth);

/* As in table/table_rule.c: a cycle of patterns ends the chain. */
static struct weir_truth_bucket *truth_parent(
    struct weir_truth *truth, const struct weir_truth_bucket *bucket,
    const struct weir_captures *captures, unsigned depth)
{
    const struct weir_quota *quota = bucket->quota;
    if (!quota || quota->parent.len == 0 || depth + 1 >= WEIR_DEPTH_MAX)
        return NULL;
    char buf[WEIR_NAME_MAX];
    int len = weir_glob_expand(quota->parent, captures, buf);
    if (len <= 0)
        return NULL;
    struct weir_text name = { buf, (size_t)len };
    struct weir_truth_bucket *parent = root_quota(truth, name, depth + 1);
    return is_child_of(parent, bucket) ? NULL : parent;
}

/* Rate of 'units' each 'per' nanoseconds, a second. */
static double limit_per_second(const struct weir_limit *limit)
{
    return (double)limit->units * (double)WEIR_SECOND / (double)limit->per;
}

static uint64_t carried(uint64_t in, const struct weir_bucket *before,
                        const struct weir_bucket *after, uint64_t elapsed)
{
    int64_t fill = (int64_t)(in - weir_leaked(before->leak, elapsed));
    if (fill < 0 || before->high == WEIR_SCALED_MAX)
        fill = 0;
    unsigned from = before->leak.frac, to = after->leak.frac;
    fill = weir_fill_edited(weir_rescale_saturated(fill, from, to),
                            weir_rescale_saturated(before->high, from, to),
                            after->high);
    return weir_leaked(after->leak, elapsed) + (uint64_t)fill;
}

/* Takes over the quota that rules the name now. */
static void update_truth_rule(struct weir_truth *truth,
                              struct weir_truth_bucket *bucket, unsigned depth)
{
    struct weir_captures captures = { .count = 0 };
    const struct weir_quota *quota = weir_catalog_find(
        weir_fleet_catalog(truth->fleet), bucket->name, &captures);
    struct weir_bucket before = bucket->bucket;
    bucket->quota = quota;
    bucket->limit_per_s = bucket->low = bucket->high = NAN;
    if (quota)
        weir_quota_bucket(quota, &bucket->bucket);
    else
        weir_bucket_open(&bucket->bucket);
    if (has_limit(bucket)) {
        bucket->limit_per_s = limit_per_second(&quota->limit);
        bucket->low = fmax(0, truth_units(bucket, bucket->bucket.low));
        bucket->high = fmax(0, truth_units(bucket, bucket->bucket.high));
    }
    uint64_t elapsed = elapsed_of(truth);
    bucket->in = carried(bucket->in, &before, &bucket->bucket, elapsed);
    bucket->ideal_in =
        carried(bucket->ideal_in, &before, &bucket->bucket, elapsed);
    bucket->parent = NULL;
    bucket->parent = truth_parent(truth, bucket, &captures, depth);
}

static struct weir_truth_bucket *root_quota(struct weir_truth *truth,
                                            struct weir_text name,
                                            unsigned depth)
{
    uint64_t hash = weir_hash(name, 0);
    struct weir_truth_bucket *bucket = find_truth_bucket(truth, name, hash);
    if (bucket)
        return bucket;
    bucket = weir_must_zeroed(1, sizeof(*bucket));
    bucket->name = (struct weir_text){ weir_must_text(name), name.len };
    weir_bucket_open(&bucket->bucket);
    truth->buckets =
        weir_must_grow(truth->buckets, &truth->capacity, truth->count + 1,
                       sizeof(struct weir_truth_bucket *));
    int error = weir_index_add(&truth->index, &weir_mem_system, hash,
                               (uint32_t)truth->count);
    weir_assert(error == WEIR_OK);
    truth->buckets[truth->count++] = bucket;
    update_truth_rule(truth, bucket, depth);
    return bucket;
}

void weir_truth_edited(struct weir_truth *truth)
{
    weir_assert(weir_catalog_epoch(weir_fleet_catalog(truth->fleet)) >=
                truth->epoch);
    truth->epoch = weir_catalog_epoch(weir_fleet_catalog(truth->fleet));
    /* Former links must not be taken for a cycle. */
    size_t count = truth->count;
    for (size_t i = 0; i < count; i++)
        truth->buckets[i]->parent = NULL;
    /* New parents are appended, already with their rule. */
    for (size_t i = 0; i < count; i++)
        update_truth_rule(truth, truth->buckets[i], 0);
}

static void follow_store(struct weir_truth *truth)
{
    if (weir_catalog_epoch(weir_fleet_catalog(truth->fleet)) != truth->epoch)
        weir_truth_edited(truth);
}

struct weir_truth_bucket *weir_truth_use(struct weir_truth *truth,
                                         struct weir_text name)
{
    follow_store(truth);
    return root_quota(truth, name, 0);
}

struct weir_truth_bucket *weir_truth_at(struct weir_truth *truth, size_t index)
{
    return index < truth->count ? truth->buckets[index] : NULL;
}

bool weir_truth_is_of(const struct weir_truth_bucket *bucket,
                      struct weir_text name)
{
    return weir_text_equal(bucket->name, name) ||
           (bucket->quota && weir_text_equal(bucket->quota->name, name));
}

/* ---- Passes ---- */

static bool is_charged(const struct weir_truth_bucket *bucket)
{
    return bucket->quota && bucket->quota->mode != WEIR_OFF;
}

static int64_t scaled_weight(const struct weir_truth_bucket *bucket,
                             uint64_t weight)
{
    return (int64_t)(weight << bucket->bucket.leak.frac);
}

/* In limit-seconds; a limit of 0 has no excess. */
static double truth_over_high(const struct weir_truth_bucket *bucket,
                              double fill)
{
    return fill > bucket->high && bucket->limit_per_s > 0
               ? (fill - bucket->high) / bucket->limit_per_s
               : 0;
}

static void note_most(struct weir_truth_bucket *bucket, int64_t fill)
{
    double units = truth_units(bucket, fill);
    if (!has_limit(bucket) || units <= bucket->fill_most)
        return;
    bucket->fill_most = units;
    bucket->over_high_most =
        fmax(bucket->over_high_most, truth_over_high(bucket, units));
}

static void charge_truth(struct weir_truth_bucket *bucket, uint64_t weight,
                         uint64_t elapsed)
{
    bucket->passed += weight;
    if (!is_charged(bucket))
        return;
    int64_t fill = fill_of(bucket, &bucket->in, elapsed);
    int64_t more = scaled_weight(bucket, weight);
    int64_t high = bucket->bucket.high;
    if (bucket->quota->mode == WEIR_SHADOW && fill + more > high)
        return;
    int64_t most = high + scaled_weight(bucket, WEIR_DEBT_MAX);
    if (has_limit(bucket) && fill + more > most)
        more = most > fill ? most - fill : 0;
    bucket->in += (uint64_t)more;
    weir_assert(more >= 0);
    note_most(bucket, fill + more);
}

static void refund(struct weir_truth_bucket *bucket, uint64_t weight,
                   uint64_t elapsed)
{
    weir_assert(bucket->passed >= weight);
    bucket->passed -= weight;
    if (!is_charged(bucket))
        return;
    /* A partly leaked unit is given back whole. */
    int64_t fill = fill_of(bucket, &bucket->in, elapsed);
    int64_t one = scaled_weight(bucket, 1);
    int64_t there = (fill + one - 1) / one * one;
    int64_t back = scaled_weight(bucket, weight);
    bucket->in -= (uint64_t)(back < there ? back : there);
}

/* Room for 'need' zeroed items. */
static void *grown(void *array, size_t *capacity, size_t need, size_t size)
{
    size_t before = *capacity;
    array = weir_must_grow(array, capacity, need, size);
    if (*capacity > before)
        memset((char *)array + before * size, 0, (*capacity - before) * size);
    return array;
}

static struct weir_truth_bucket *truth_bucket_of(struct weir_truth *truth,
                                                 uint32_t limiter,
                                                 struct weir_ref ref)
{
    truth->columns = grown(truth->columns, &truth->limiters, limiter + 1,
                           sizeof(struct column));
    weir_assert(limiter < truth->limiters);
    struct column *column = &truth->columns[limiter];
    if (ref.slot < column->capacity &&
        column->entries[ref.slot].generation == ref.generation)
        return column->entries[ref.slot].bucket;
    column->entries = grown(column->entries, &column->capacity, ref.slot + 1,
                            sizeof(struct entry));
    char name[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(weir_fleet_table(truth->fleet, limiter),
                                 ref.slot, name);
    weir_assert(ref.slot < column->capacity);
    struct entry entry = {
        .generation = ref.generation,
        .bucket = root_quota(truth, (struct weir_text){ name, len }, 0),
    };
    column->entries[ref.slot] = entry;
    return entry.bucket;
}

static void truth_on_counted(void *context, uint32_t limiter,
                             struct weir_ref ref, int64_t weight)
{
    struct weir_truth *truth = context;
    follow_store(truth);
    uint64_t elapsed = elapsed_of(truth);
    struct weir_truth_bucket *bucket = truth_bucket_of(truth, limiter, ref);
    for (; bucket; bucket = bucket->parent) {
        if (weight >= 0)
            charge_truth(bucket, (uint64_t)weight, elapsed);
        else
            refund(bucket, (uint64_t)-weight, elapsed);
    }
}

/* A new table: its slots are other names'. */
static void truth_on_born(void *context, struct weir_node_place place)
{
    struct weir_truth *truth = context;
    if (place.root || place.index >= truth->limiters)
        return;
    struct column *column = &truth->columns[place.index];
    free(column->entries);
    *column = (struct column){ 0 };
}

void weir_truth_slipped(struct weir_truth_bucket *bucket, uint64_t weight)
{
    bucket->passed += weight;
}

void weir_truth_refused(struct weir_truth_bucket *bucket, uint64_t weight)
{
    for (; bucket; bucket = bucket->parent)
        bucket->refused += weight;
}

/* ---- The ideal limiter ---- */

static bool curve_refuses(enum weir_curve curve,
                          const struct weir_truth_bucket *bucket, int64_t fill,
                          uint64_t chance)
{
    int64_t low = bucket->bucket.low, band = bucket->bucket.high - low;
    if (curve == WEIR_CURVE_LINEAR)
        return weir_band_refuses(fill, low, band, chance);
    double part = (double)(fill - low) / (double)band;
    double probability = curve == WEIR_CURVE_QUADRATIC
                             ? part * part
                             : part * part * (3 - 2 * part);
    return probability > ldexp((double)chance, -64);
}

/* Whether this link would refuse. */
static bool ideal_refuses(struct weir_truth *truth,
                          struct weir_truth_bucket *bucket, uint64_t weight,
                          uint64_t chance, uint64_t elapsed)
{
    if (!is_charged(bucket) || !has_limit(bucket))
        return false;
    int64_t fill = fill_of(bucket, &bucket->ideal_in, elapsed);
    if (fill + scaled_weight(bucket, weight) > bucket->bucket.high)
        return true;
    return fill > bucket->bucket.low &&
           curve_refuses(truth->curve, bucket, fill, chance);
}

static void ideal_decide(struct weir_truth *truth,
                         struct weir_truth_bucket *leaf, uint64_t weight)
{
    uint64_t elapsed = elapsed_of(truth);
    uint64_t chance = weir_rng_next(&truth->rng);
    bool passes = true;
    uint32_t skip = 0, link = 1;
    for (struct weir_truth_bucket *b = leaf; b && passes; b = b->parent) {
        bool refuses = ideal_refuses(truth, b, weight, chance, elapsed);
        if (!is_charged(b) || refuses)
            skip |= link;
        if (refuses)
            passes = b->quota->mode == WEIR_SHADOW;
        link <<= 1;
    }
    for (struct weir_truth_bucket *b = leaf; b; b = b->parent) {
        if (passes && !(skip & 1))
            b->ideal_in += (uint64_t)scaled_weight(b, weight);
        *(passes ? &b->ideal_passed : &b->ideal_refused) += weight;
        skip >>= 1;
    }
}

void weir_truth_offered(struct weir_truth *truth,
                        struct weir_truth_bucket *bucket, uint64_t weight)
{
    follow_store(truth);
    for (struct weir_truth_bucket *b = bucket; b; b = b->parent)
        b->offered += weight;
    if (truth->ideal)
        ideal_decide(truth, bucket, weight);
}

/* ---- State ---- */

double weir_truth_fill(struct weir_truth *truth,
                       struct weir_truth_bucket *bucket)
{
    follow_store(truth);
    if (!has_limit(bucket))
        return 0;
    return truth_units(bucket, fill_of(bucket, &bucket->in, elapsed_of(truth)));
}

void weir_truth_forget_most(struct weir_truth *truth,
                            struct weir_truth_bucket *bucket)
{
    bucket->fill_most = weir_truth_fill(truth, bucket);
    bucket->over_high_most = truth_over_high(bucket, bucket->fill_most);
}

/* ---- Life ---- */

struct weir_truth *weir_truth_new(struct weir_fleet *fleet, bool ideal,
                                  enum weir_curve curve, uint64_t seed)
{
    struct weir_truth *truth = weir_must_zeroed(1, sizeof(*truth));
    truth->fleet = fleet;
    truth->ideal = ideal;
    truth->curve = curve;
    truth->rng.state = seed;
    const struct weir_fleet_watch watch = {
        .context = truth,
        .counted = truth_on_counted,
        .born = truth_on_born,
    };
    weir_fleet_watch(fleet, &watch);
    return truth;
}

void weir_truth_free(struct weir_truth *truth)
{
    if (!truth)
        return;
    for (size_t i = 0; i < truth->count; i++) {
        free((char *)truth->buckets[i]->name.p);
        free(truth->buckets[i]);
    }
    free(truth->buckets);
    for (size_t i = 0; i < truth->limiters; i++)
        free(truth->columns[i].entries);
    free(truth->columns);
    weir_index_fini(&truth->index, &weir_mem_system);
    free(truth);
}
