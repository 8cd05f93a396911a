/* SPDX-License-Identifier: MIT
 * table/table_lease.c - slots that keep to a grant.
 *
 * A leased quota decides by a bucket like any other, but the leak is this
 * process's granted part of the quota's limit, and the bursts are the same part
 * of the quota's. A grant is switched in as an edit is: takes never wait, and
 * the fill stays in units. For each such slot the table stores the whole
 * quota's bucket, so that a grant and an edit each find the other's part.
 *
 *     none -- leased, was counted --> kept ---- grant --> granted
 *          -- leased, else ---------> closed -- grant --> granted
 *     kept, granted -- given up ----> closed
 *     granted -- counted --> parting -- root's fill, or given up --> none
 *
 * closed: nothing was granted yet, or all was given back: nothing passes.
 *
 * kept: it was counted until now, and goes on so until a first grant. The
 * bucket was the fleet's and becomes this process's alone, so the fill is cut
 * down with the limit.
 *
 * parting: it is counted again, but this process doesn't know the fleet's fill
 * yet: it keeps to its grant until a root sends the fill.
 *
 * A limit in units a second needs no rational number: 2^-64 of a scaled unit a
 * nanosecond is finer than the precision of a double, from 10^-3 to 10^11 a
 * second. Units in flight don't leak: for a quota of kind concurrency the limit
 * is the whole units of the grant, at once. Permits beyond a lower grant stay
 * in flight, and the caller that lowered it counts them afterwards. For this
 * reason an enter that has added its units checks again whether they still fit,
 * in sequentially consistent order: it adds, then reads the limit; a switch
 * stores the limit, then its caller reads the units in flight. From counted to
 * leased no permit is let in until there is a grant, even if only of the units
 * in flight.
 *
 * The bursts of all shares add up to the quota's, except that each share has at
 * least one unit: otherwise a small share would never let anything pass.
 *
 * A closed bucket still leaks as the whole quota does, so that an unused
 * instance becomes empty and can be evicted. A bucket with a grant of 0 doesn't
 * leak, because it may be granted more at once. */

#include <math.h>
#include <string.h>

#include "core/quota/quota_bucket.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_permit.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_switch_internal.h"
#include "core/table/table_traits.h"

/* A leak is below 2^7 scaled units a nanosecond (leaky.c). */
#define SCALED_PER_S_MAX (128e9)
/* Bursts of a quota without limit, in seconds of the grant. */
#define LOW_S 1.0
#define HIGH_S 1.5

/* ---- Real numbers ---- */

/* ceil(value * 2^shift / 10^9), for a value >= 0 and a result below 2^72. */
static weir_u128 per_ns(double value, int shift)
{
    weir_assert(value >= 0);
    weir_assert(shift >= 0);
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    int exponent = (int)(bits >> 52);
    uint64_t mantissa = bits & (((uint64_t)1 << 52) - 1);
    if (exponent > 0)
        mantissa |= (uint64_t)1 << 52;
    else
        exponent = 1;
    int up = exponent - 1075 + shift;
    weir_u128 scaled = mantissa;
    if (up >= 0)
        scaled <<= up;
    else
        scaled = up > -64 ? (scaled >> -up) + 1 : 1;
    return mantissa == 0 ? 0 : (scaled + 999999999) / 1000000000;
}

/* The finest scale on which both the leak and the burst fit. */
static unsigned frac_of(double per_s, double high)
{
    weir_assert(per_s > 0);
    weir_assert(high >= 0);
    unsigned frac = WEIR_FRAC_MAX;
    double most = high + (double)WEIR_DEBT_MAX + (double)WEIR_WEIGHT_MAX;
    while (frac > 0 && (per_s * weir_frac_power(frac) >= SCALED_PER_S_MAX ||
                        most * weir_frac_power(frac) > (double)WEIR_SCALED_MAX))
        frac--;
    return frac;
}

void weir_bucket_of_rate(struct weir_bucket *bucket, double per_s, double low,
                         double high)
{
    weir_assert(per_s >= 0 && low >= 0 && low <= high);
    if (per_s == 0) {
        weir_bucket_closed(bucket);
        return;
    }
    if (per_s > (double)WEIR_LIMIT_MAX || high > (double)WEIR_BURST_MAX) {
        weir_bucket_open(bucket);
        return;
    }
    unsigned frac = frac_of(per_s, high);
    weir_u128 leak = per_ns(per_s, (int)frac + 64);
    *bucket = (struct weir_bucket){
        .leak = { .part = (uint64_t)leak,
                  .whole = (uint8_t)(leak >> 64),
                  .frac = (uint8_t)frac },
        .low = (int64_t)(low * weir_frac_power(frac)),
        .high = (int64_t)(high * weir_frac_power(frac)),
    };
}

/* ---- The bucket in force ---- */

/* Doubles that any thread reads. Relaxed: a reader concurrent with a change
 * gets the old or the new value. */
static double load_double(const uint64_t *word)
{
    uint64_t bits = weir_load_relaxed(word);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void store_double(uint64_t *word, double value)
{
    weir_assert(value >= 0);
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    weir_store_relaxed(word, bits);
}

static double at_least_unit(double units)
{
    return units > 1 ? units : 1;
}

/* The part of 'whole' in the proportion of 'granted' to its limit. */
static void scaled_bucket(const struct weir_bucket *whole, double granted,
                          struct weir_bucket *out)
{
    weir_assert(granted >= 0);
    double low = LOW_S * granted;
    double high = HIGH_S * granted;
    if (whole->high < 0) {
        weir_bucket_closed(out);
        return;
    }
    if (whole->high != WEIR_SCALED_MAX) {
        double part = granted / weir_leak_per_s(whole->leak);
        low = (double)whole->low / weir_frac_power(whole->leak.frac) * part;
        high = (double)whole->high / weir_frac_power(whole->leak.frac) * part;
    }
    weir_bucket_of_rate(out, granted, at_least_unit(low), at_least_unit(high));
    weir_assert(out->low <= out->high);
}

/* A rate leaks, unless it never refuses or always does. */
static bool is_inflight(const struct weir_bucket *whole)
{
    return whole->leak.part == 0 && whole->leak.whole == 0 &&
           whole->high >= 0 && whole->high != WEIR_SCALED_MAX;
}

/* A sum of shares is right to some 10^-15 of itself. */
#define ROUNDING 1e-12

static void inflight_bucket(const struct weir_bucket *whole, double granted,
                            struct weir_bucket *out)
{
    weir_assert(granted >= 0);
    if (granted > (double)WEIR_LIMIT_MAX) {
        weir_bucket_open(out);
        return;
    }
    *out = *whole;
    out->low = out->high = (int64_t)(granted * (1 + ROUNDING));
    weir_assert(out->low <= out->high);
}

static void closed_bucket(const struct weir_bucket *whole,
                          struct weir_bucket *out)
{
    *out = *whole;
    out->low = out->high = -1;
    weir_assert(out->high < 0);
}

static void bucket_in_force(const struct leased *leased,
                            struct weir_bucket *out)
{
    bool inflight = is_inflight(&leased->whole);
    switch ((enum weir_leasing)leased->state) {
    case WEIR_LEASING_KEPT:
        if (inflight) {
            inflight_bucket(&leased->whole, 0, out);
            return;
        }
        *out = leased->whole;
        return;
    case WEIR_LEASING_NONE:
        *out = leased->whole;
        return;
    case WEIR_LEASING_CLOSED:
        closed_bucket(&leased->whole, out);
        return;
    case WEIR_LEASING_GRANTED:
    case WEIR_LEASING_PARTING:
        break;
    }
    if (inflight)
        inflight_bucket(&leased->whole, load_double(&leased->granted), out);
    else
        scaled_bucket(&leased->whole, load_double(&leased->granted), out);
}

/* ---- Quotas come and change ---- */

static void set_leasing(struct leased *leased, enum weir_leasing state)
{
    enum weir_leasing before = (enum weir_leasing)leased->state;
    weir_assert(state != WEIR_LEASING_KEPT || before == WEIR_LEASING_NONE ||
                before == WEIR_LEASING_KEPT);
    weir_assert(state != WEIR_LEASING_GRANTED || before != WEIR_LEASING_NONE);
    weir_assert(state != WEIR_LEASING_PARTING ||
                before == WEIR_LEASING_GRANTED ||
                before == WEIR_LEASING_PARTING);
    /* Relaxed: the node reads it from time to time. */
    weir_store_relaxed(&leased->state, (uint32_t)state);
}

static enum weir_leasing next_state(enum weir_leasing state,
                                    enum weir_sharing before,
                                    enum weir_sharing sharing, bool another)
{
    bool goes = state == WEIR_LEASING_GRANTED || state == WEIR_LEASING_PARTING;
    if (sharing == WEIR_LEASED) {
        if (another)
            return WEIR_LEASING_CLOSED;
        if (goes)
            return WEIR_LEASING_GRANTED;
        if (state == WEIR_LEASING_NONE && before == WEIR_COUNTED)
            return WEIR_LEASING_KEPT;
        return state == WEIR_LEASING_NONE ? WEIR_LEASING_CLOSED : state;
    }
    if (sharing == WEIR_COUNTED && goes && !another)
        return WEIR_LEASING_PARTING;
    return WEIR_LEASING_NONE;
}

static_assert(WEIR_SHADOW_PREFIX_LEN <= NAME_HEAD, "the head contains it");

/* The shadow set has no leases: its leased quotas are local. The slot may not
 * be live yet. */
static bool is_shadow_name(const struct weir_table *t, uint32_t slot)
{
    const struct name *name = weir_name(t, slot);
    size_t len = name->len < NAME_HEAD ? name->len : NAME_HEAD;
    return weir_name_is_shadow((struct weir_text){ name->head, len });
}

void weir_slot_lease(struct weir_table *t, uint32_t slot,
                     enum weir_sharing before, bool another,
                     struct weir_bucket *bucket)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(slot < t->slots);
    enum weir_sharing sharing = weir_sharing_of(weir_cold(t, slot));
    if (sharing != WEIR_LEASED && !weir_load_relaxed(&t->leased))
        return;
    if (is_shadow_name(t, slot))
        return;
    struct leased *leased = weir_leased(t, slot);
    if (sharing != WEIR_LEASED && leased->state == WEIR_LEASING_NONE)
        return;
    weir_store_relaxed(&t->leased, 1);
    leased->whole = *bucket;
    set_leasing(leased, next_state((enum weir_leasing)leased->state, before,
                                   sharing, another));
    if (leased->state == WEIR_LEASING_CLOSED)
        store_double(&leased->granted, 0);
    bucket_in_force(leased, bucket);
}

/* ---- The sync ---- */

static void switch_to(struct weir_table *t, uint32_t slot,
                      const struct weir_bucket *bucket, weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_table_mend_switch(t);
    uint32_t flags = weir_hot(t, slot)->meta & META_FLAGS;
    weir_slot_switch(t, slot, bucket, flags, WEIR_FILL_KEPT, now);
}

/* The fleet's fill becomes this process's part of it. */
static void cut_fill(struct weir_table *t, uint32_t slot, double part,
                     weir_instant now)
{
    struct slot_read read;
    weir_slot_read(t, slot, weir_elapsed(t, now), &read);
    bool cuts = part < 1; /* a NaN, of a limit of 0, doesn't */
    if (read.fill <= 0 || !cuts || weir_slot_read_is_endless(&read))
        return;
    int64_t gone = read.fill - (int64_t)((double)read.fill * part);
    weir_table_add_others(t, slot, -gone);
}

/* The reverse: as if all others had filled their parts as this one. */
static void grow_fill(struct weir_table *t, uint32_t slot,
                      const struct leased *leased, weir_instant now)
{
    weir_assert(leased->state == WEIR_LEASING_PARTING);
    struct slot_read read;
    double granted = load_double(&leased->granted);
    double limit = weir_leak_per_s(leased->whole.leak);
    weir_slot_read(t, slot, weir_elapsed(t, now), &read);
    if (read.fill <= 0 || granted <= 0 || granted >= limit)
        return;
    double whole = (double)read.fill / granted * limit;
    double most = (double)WEIR_SCALED_MAX / 4;
    weir_table_add_others(t, slot,
                          (int64_t)(whole < most ? whole : most) - read.fill);
}

static bool has_lease(const struct weir_table *t, uint32_t slot)
{
    return slot < t->slots && weir_load_relaxed(&t->leased) &&
           weir_leased(t, slot)->state != WEIR_LEASING_NONE;
}

bool weir_table_set_lease(struct weir_table *t, uint32_t slot, double granted,
                          uint64_t cut, weir_instant now)
{
    weir_assert(granted >= 0);
    if (!weir_table_try_lock(t))
        return false;
    bool done = true;
    if (weir_slot_is_of_fleet(t, slot)) {
        done = weir_slot_give(t, slot, granted, cut, now);
    } else if (has_lease(t, slot)) {
        struct leased *leased = weir_leased(t, slot);
        struct weir_bucket bucket;
        if (leased->state == WEIR_LEASING_KEPT)
            cut_fill(t, slot, granted / weir_leak_per_s(leased->whole.leak),
                     now);
        if (leased->state != WEIR_LEASING_PARTING)
            set_leasing(leased, WEIR_LEASING_GRANTED);
        store_double(&leased->granted, granted);
        bucket_in_force(leased, &bucket);
        switch_to(t, slot, &bucket, now);
    }
    weir_table_unlock(t);
    return done;
}

bool weir_table_end_lease(struct weir_table *t, uint32_t slot, weir_instant now)
{
    double granted;
    if (!weir_table_try_lock(t))
        return false;
    bool done = true;
    if (weir_slot_is_of_fleet(t, slot)) {
        if (weir_slot_given(t, slot, &granted))
            done = weir_slot_give(
                t, slot, weir_smaller(granted, WEIR_GIVEN_FIRST), 0, now);
    } else if (has_lease(t, slot)) {
        struct leased *leased = weir_leased(t, slot);
        struct weir_bucket bucket;
        bool parting = leased->state == WEIR_LEASING_PARTING;
        if (parting)
            grow_fill(t, slot, leased, now);
        else
            store_double(&leased->granted, 0);
        set_leasing(leased, parting ? WEIR_LEASING_NONE : WEIR_LEASING_CLOSED);
        bucket_in_force(leased, &bucket);
        switch_to(t, slot, &bucket, now);
    }
    weir_table_unlock(t);
    return done;
}

bool weir_slot_granted(const struct weir_table *t, uint32_t slot,
                       double *out_granted)
{
    enum weir_leasing leasing = weir_table_leasing(t, slot);
    if (leasing == WEIR_LEASING_NONE || leasing == WEIR_LEASING_KEPT)
        return false;
    *out_granted = load_double(&weir_leased(t, slot)->granted);
    return true;
}

enum weir_leasing weir_table_leasing(const struct weir_table *t, uint32_t slot)
{
    double granted;
    if (weir_slot_is_of_fleet(t, slot))
        return weir_slot_given(t, slot, &granted) ? WEIR_LEASING_GRANTED
                                                  : WEIR_LEASING_CLOSED;
    if (!weir_load_relaxed(&t->leased))
        return WEIR_LEASING_NONE;
    return (enum weir_leasing)weir_load_relaxed(&weir_leased(t, slot)->state);
}

/* ---- Wants ---- */

unsigned weir_table_want(struct weir_table *t, struct weir_ref ref,
                         double wants)
{
    weir_assert(wants >= 0);
    if (!weir_table_ref_lives(t, ref))
        return WEIR_OUTCOME_STALE_REF;
    struct leased *leased = weir_leased(t, ref.slot);
    store_double(&leased->wanted, wants);
    /* release: a reader that sees the generation sees the value. */
    weir_store_release(&leased->wanted_by, ref.generation);
    weir_slot_mark(t, ref.slot);
    return weir_exchange(&t->urgent, 1) ? 0 : WEIR_OUTCOME_KICK;
}

bool weir_table_wanted(struct weir_table *t, uint32_t slot, double *out_wants)
{
    const struct leased *leased = weir_leased(t, slot);
    /* acquire: pairs with the release in weir_table_want(). */
    uint32_t by = weir_load_acquire(&leased->wanted_by);
    if (by == 0 || by != weir_load(&weir_hot(t, slot)->generation))
        return false;
    *out_wants = load_double(&leased->wanted);
    return true;
}

void weir_slot_unpinned(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(weir_cold(t, slot)->refs == 0);
    struct leased *leased = weir_leased(t, slot);
    /* Relaxed: no thread sets wants while the handle is being closed. */
    if (weir_load_relaxed(&leased->wanted_by) != 0)
        weir_store_relaxed(&leased->wanted_by, 0);
    bool unpinned = weir_table_leasing(t, slot) != WEIR_LEASING_NONE;
    weir_trait_set(weir_cold(t, slot), TRAIT_UNPINNED, unpinned);
}

bool weir_table_was_unpinned(struct weir_table *t, uint32_t slot)
{
    weir_assert(slot < t->slots);
    struct cold *cold = weir_cold(t, slot);
    if (!weir_table_try_lock(t))
        return false;
    bool unpinned = weir_trait_get(cold, TRAIT_UNPINNED);
    weir_trait_set(cold, TRAIT_UNPINNED, false);
    weir_table_unlock(t);
    return unpinned;
}

static void fleet_view(const struct weir_table *t, uint32_t slot,
                       struct weir_lease_view *out)
{
    bool given = weir_slot_given(t, slot, &out->granted);
    out->leasing = given ? WEIR_LEASING_GRANTED : WEIR_LEASING_CLOSED;
    out->adaptive = true;
    out->inflight = true;
    out->in_flight = weir_table_in_flight(t, slot);
    /* Relaxed: of a moment ago. */
    out->awaited = weir_load_relaxed(&weir_inflight(t, slot)->awaited);
    out->entered = weir_load_relaxed(&weir_hot(t, slot)->count);
    out->limit = INFINITY;
    out->burst = UINT64_MAX;
}

void weir_slot_lease_view(const struct weir_table *t, uint32_t slot,
                          struct weir_lease_view *out)
{
    const struct leased *leased = weir_leased(t, slot);
    *out = (struct weir_lease_view){ .leasing = WEIR_LEASING_NONE };
    if (weir_slot_is_of_fleet(t, slot)) {
        fleet_view(t, slot, out);
    } else if (has_lease(t, slot)) {
        bool bounded = leased->whole.high != WEIR_SCALED_MAX;
        bool closed = leased->whole.high < 0;
        out->leasing = (enum weir_leasing)leased->state;
        out->granted = load_double(&leased->granted);
        out->priority = leased->priority;
        out->inflight = weir_hot(t, slot)->meta & META_INFLIGHT;
        out->in_flight = weir_table_in_flight(t, slot);
        out->awaited = weir_load_relaxed(&weir_inflight(t, slot)->awaited);
        out->entered = weir_load_relaxed(&weir_hot(t, slot)->count);
        out->limit = bounded ? weir_leak_per_s(leased->whole.leak) : INFINITY;
        out->burst = bounded && !closed ? (uint64_t)leased->whole.high >>
                                              leased->whole.leak.frac
                                        : UINT64_MAX;
        if (is_inflight(&leased->whole))
            out->limit = (double)leased->whole.high;
        if (closed) {
            out->limit = 0;
            out->burst = 0;
        }
    }
}

void weir_table_lease_view(struct weir_table *t, uint32_t slot,
                           struct weir_lease_view *out)
{
    bool locked = weir_table_try_lock(t);
    weir_slot_lease_view(t, slot, out);
    if (locked)
        weir_table_unlock(t);
}
