/* SPDX-License-Identifier: MIT
 * table/table_switch.c - other parameters for a slot, while takes go on.
 *
 * Parameters and 'base' must change together, and a reader must never wait for
 * a writer that was killed. The lowest bit of 'base' tells where the parameters
 * are: 0: in the hot line; 1: in the table's one spare copy. The writer
 *
 *     1 fills the spare          2 CAS base -> new base, bit 1
 *     3 rewrites the hot line    4 CAS base -> same base, bit 0
 *
 * A writer killed after 2 leaves a sound slot; the next writer finishes 3 and 4
 * before it uses the spare. 'meta' has a sequence that is odd during 3: a
 * reader that saw bit 0 checks that meta has not changed meanwhile. */

#include "core/table/table_switch_internal.h"
#include "core/table/table_traits.h"

/* ---- The switch ---- */

static uint32_t meta_of(const struct weir_bucket *bucket, uint32_t flags)
{
    weir_assert((flags & ~META_FLAGS) == 0);
    weir_assert(bucket->leak.frac <= WEIR_FRAC_MAX);
    return flags | (uint32_t)bucket->leak.whole << META_WHOLE_SHIFT |
           (uint32_t)bucket->leak.frac << META_FRAC_SHIFT;
}

/* Steps 3 and 4. */
static void switch_finish(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->spare_slot == slot);
    weir_assert(!(t->spare_seq & 1));
    struct hot *hot = weir_hot(t, slot);
    /* Odd already, if the previous writer was killed within step 3. */
    uint32_t seq = (hot->meta & ~(META_SEQ_ONE - 1)) | META_SEQ_ONE;
    uint32_t old = hot->meta & (META_SEQ_ONE - 1);
    weir_store(&hot->meta, seq | old);
    weir_fence_release();
    weir_store_relaxed(&hot->part, t->spare_part);
    weir_store_relaxed(&hot->high, t->spare_high);
    weir_store_relaxed(&hot->band, t->spare_band);
    /* release: pairs with the acquire of meta in weir_slot_read(). */
    weir_store_release(&hot->meta, (seq + META_SEQ_ONE) | t->spare_meta);
    uint64_t base = weir_load(&hot->base);
    while (!weir_cas(&hot->base, &base, base & ~(uint64_t)1))
        continue;
    weir_assert(!(hot->meta & META_SEQ_ONE));
}

void weir_table_mend_switch(struct weir_table *t)
{
    uint32_t dead = t->spare_slot;
    if (dead != WEIR_SLOT_NONE && (weir_load(&weir_hot(t, dead)->base) & 1))
        switch_finish(t, dead);
}

static void spare_fill(struct weir_table *t, uint32_t slot,
                       const struct weir_bucket *bucket, uint32_t flags)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(bucket->low <= bucket->high);
    weir_table_mend_switch(t);
    /* Odd already, if the previous writer was killed in here. */
    weir_store(&t->spare_seq, t->spare_seq | 1);
    weir_fence_release();
    weir_store_relaxed(&t->spare_slot, slot);
    weir_store_relaxed(&t->spare_part, bucket->leak.part);
    weir_store_relaxed(&t->spare_high, bucket->high);
    weir_store_relaxed(&t->spare_band,
                       weir_mini_of(bucket->high - bucket->low));
    weir_store_relaxed(&t->spare_meta, meta_of(bucket, flags));
    /* release: pairs with the acquire of spare_seq in
     * weir_slot_read_spare(). */
    weir_store_release(&t->spare_seq, t->spare_seq + 1);
    weir_assert(!(t->spare_seq & 1));
}

/* The fill of the bucket that replaces the one that was read. */
static int64_t fill_of(const struct slot_read *read,
                       const struct weir_bucket *bucket,
                       enum weir_fill_carried carried)
{
    /* A bucket that never refuses doesn't leak: its fill means nothing. */
    if (carried == WEIR_FILL_EMPTY || read->fill <= 0 ||
        weir_slot_read_is_endless(read))
        return 0;
    unsigned from = read->leak.frac, to = bucket->leak.frac;
    int64_t fill = weir_rescale_saturated(read->fill, from, to);
    if (carried == WEIR_FILL_KEPT)
        return fill;
    int64_t before = weir_rescale_saturated(read->high, from, to);
    return weir_fill_edited(fill, before, bucket->high);
}

void weir_slot_switch(struct weir_table *t, uint32_t slot,
                      const struct weir_bucket *bucket, uint32_t flags,
                      enum weir_fill_carried carried, weir_instant now)
{
    weir_assert(slot < t->used);
    struct hot *hot = weir_hot(t, slot);
    uint64_t elapsed = weir_elapsed(t, now);
    uint64_t leaked = weir_leaked(bucket->leak, elapsed);
    spare_fill(t, slot, bucket, flags);
    for (;;) {
        struct slot_read read;
        weir_slot_read(t, slot, elapsed, &read);
        int64_t fill = fill_of(&read, bucket, carried);
        /* For kind concurrency, read.count has the units in flight. */
        uint64_t count = read.flags & META_INFLIGHT
                             ? weir_load_relaxed(&hot->count)
                             : read.count;
        uint64_t scaled =
            (uint64_t)fill + leaked - (count << bucket->leak.frac);
        if (weir_cas(&hot->base, &read.base, (scaled << 1) | 1))
            break;
    }
    switch_finish(t, slot);
}

void weir_slot_set_flags(struct weir_table *t, uint32_t slot, uint32_t flags)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert((flags & ~META_FLAGS) == 0);
    struct hot *hot = weir_hot(t, slot);
    weir_table_mend_switch(t);
    weir_store_release(&hot->meta, (hot->meta & ~META_FLAGS) | flags);
    weir_assert(!(hot->meta & META_SEQ_ONE));
}

/* ---- With a bucket state, another kind, another sharing ---- */

static void switch_parameters(struct weir_table *t, uint32_t slot,
                              const struct weir_bucket *bucket, uint32_t flags,
                              const struct bucket_state_plan *plan, bool empty,
                              weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    enum weir_fill_carried carried = empty ? WEIR_FILL_EMPTY : WEIR_FILL_EDITED;
    /* A lease that isn't granted yet is no limit of 0. */
    if (carried == WEIR_FILL_EDITED && bucket->high < 0 &&
        weir_sharing_of(weir_cold(t, slot)) == WEIR_LEASED)
        carried = WEIR_FILL_KEPT;
    if (plan->where != 0) {
        struct weir_bucket open;
        weir_bucket_open(&open);
        weir_bucket_state_follow(t, slot, plan, empty, now);
        weir_slot_switch(t, slot, &open, flags | plan->flags, carried, now);
        return;
    }
    /* In this order: units taken meanwhile from the bucket state may be counted
     * twice, but are never lost. */
    weir_slot_switch(t, slot, bucket, flags, carried, now);
    uint64_t units = weir_bucket_state_drop(t, slot, now);
    if (units > 0 && !empty && bucket->high != WEIR_SCALED_MAX)
        weir_table_add_others(t, slot, (int64_t)(units << bucket->leak.frac));
}

/* From now on the counts are of another kind, or of another life: none was
 * reported to a root yet, and the former marks are not valid. */
static void begin_kind(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    uint64_t count = weir_table_count(t, slot);
    struct hot *hot = weir_hot(t, slot);
    struct cold *cold = weir_cold(t, slot);
    weir_store_relaxed(&weir_inflight(t, slot)->others, 0);
    weir_store_relaxed(&cold->settled, count);
    weir_store_relaxed(&cold->report_at, count);
    weir_store(&hot->stop, count + WEIR_COUNT_FAR);
    weir_store(&hot->report_within, WEIR_MINI_FAR);
}

void weir_slot_measure(struct weir_table *t, uint32_t slot,
                       const struct weir_bucket *bucket, uint32_t flags,
                       const struct bucket_state_plan *plan, bool empty,
                       weir_instant now)
{
    weir_assert(weir_cold(t, slot)->state != WEIR_SLOT_FREE);
    weir_table_mend_switch(t);
    /* Units that a rate let through aren't in flight, nor the reverse. */
    bool flips = (weir_hot(t, slot)->meta ^ flags) & META_INFLIGHT;
    bool making = weir_cold(t, slot)->state == WEIR_SLOT_MAKING;
    switch_parameters(t, slot, bucket, flags, plan, empty || flips, now);
    if (flips || (making && (flags & META_INFLIGHT)))
        begin_kind(t, slot);
    /* The new kind and the units in flight are reported at once: roots may have
     * treated the quota as removed. */
    if (flips && !making)
        weir_slot_mark(t, slot);
}

void weir_slot_share(struct weir_table *t, uint32_t slot,
                     enum weir_sharing before)
{
    weir_assert(weir_table_is_locked(t));
    const struct cold *cold = weir_cold(t, slot);
    if (before != WEIR_COUNTED || weir_sharing_of(cold) == WEIR_COUNTED ||
        cold->state == WEIR_SLOT_MAKING)
        return;
    struct hot *hot = weir_hot(t, slot);
    if (hot->meta & META_INFLIGHT)
        weir_store_relaxed(&weir_inflight(t, slot)->others, 0);
    weir_store(&hot->stop, weir_table_count(t, slot) + WEIR_COUNT_FAR);
    weir_store(&hot->report_within, WEIR_MINI_FAR);
    weir_slot_mark(t, slot);
}
