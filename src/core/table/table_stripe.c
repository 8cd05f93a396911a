/* SPDX-License-Identifier: MIT
 * core/table/table_stripe.c - a thread's own memory: refusals, random draws.
 *
 * A refused request writes only to its thread's stripe. */

#include "core/table/table_stripe_internal.h"

#include "core/table/table_read.h"

/* ---- Owners ---- */

uint32_t weir_table_claim_stripe_as(struct weir_table *t, uint32_t process)
{
    weir_assert(process < t->commons);
    for (uint32_t i = t->commons; i < t->stripe_count; i++) {
        uint32_t free = 0;
        struct weir_stripe *stripe = weir_stripe(t, i);
        if (weir_load_relaxed(&stripe->owned) == 0 &&
            weir_cas(&stripe->owned, &free, process + 1)) {
            weir_store_relaxed(&stripe->used, 1);
            return i;
        }
    }
    return process;
}

uint32_t weir_table_claim_stripe(struct weir_table *t)
{
    return weir_table_claim_stripe_as(t, 0);
}

void weir_table_release_stripe(struct weir_table *t, uint32_t stripe)
{
    weir_assert(stripe < t->stripe_count);
    if (stripe < t->commons)
        return;
    /* release: the next owner continues from this one's counts. */
    weir_store_release(&weir_stripe(t, stripe)->owned, 0);
}

/* ---- Refusals ---- */

static void refusal_evict(struct weir_table *t, struct refusal *entry)
{
    uint32_t slot = entry->slot;
    uint64_t units = entry->units;
    /* First out of the entry, then into the slot: a sum read in between is too
     * low for a moment, never too high. */
    weir_store_relaxed(&entry->slot, WEIR_SLOT_NONE);
    /* release: a reader of a later 'units' sees that the slot was removed. */
    weir_fence_release();
    if (slot != WEIR_SLOT_NONE && units > 0) {
        weir_fetch_add(&weir_cold(t, slot)->refused, units);
        weir_slot_mark(t, slot);
    }
    weir_store_relaxed(&entry->units, 0);
}

__attribute__((noinline)) unsigned weir_stripe_refuse_slowly(
    struct weir_table *t, uint32_t stripe, uint32_t slot, uint64_t weight)
{
    if (stripe < t->commons) {
        weir_fetch_add(&weir_cold(t, slot)->refused, weight);
        weir_slot_mark(t, slot);
        return WEIR_OUTCOME_LIMITED;
    }
    struct refusal *entry =
        &weir_stripe(t, stripe)->refusals[slot % STRIPE_ENTRIES];
    refusal_evict(t, entry);
    weir_store_relaxed(&entry->units, weight);
    weir_store_release(&entry->slot, slot);
    weir_store_release(&entry->events, entry->events + 1);
    return WEIR_OUTCOME_LIMITED;
}

void weir_stripe_refuse_links(struct weir_table *t, uint32_t stripe,
                              const uint32_t *slots, uint32_t links,
                              uint64_t weight)
{
    for (uint32_t i = 0; links >> i != 0; i++)
        if (links >> i & 1)
            weir_stripe_refuse(t, stripe, slots[i], weight);
}

/* Refusals in stripes set no bits when they happen: entries that changed since
 * the last collect set them here. */
void weir_stripes_collect(struct weir_table *t, uint64_t *bits)
{
    uint32_t entries = t->slots < STRIPE_ENTRIES ? t->slots : STRIPE_ENTRIES;
    for (uint32_t i = t->commons; i < t->stripe_count; i++) {
        struct weir_stripe *stripe = weir_stripe(t, i);
        if (!weir_load_relaxed(&stripe->used))
            continue;
        for (uint32_t k = 0; k < entries; k++) {
            struct refusal *entry = &stripe->refusals[k];
            uint32_t events = weir_load_acquire(&entry->events);
            uint32_t slot = weir_load_relaxed(&entry->slot);
            if (slot >= t->slots || events == stripe->seen[k])
                continue;
            stripe->seen[k] = events;
            bits[slot / 64] |= (uint64_t)1 << (slot % 64);
        }
    }
}

/* Reads the slot before and after its units: the entry may be moving to another
 * slot. */
static uint64_t entry_units(const struct refusal *entry, uint32_t slot)
{
    if (weir_load_acquire(&entry->slot) != slot)
        return 0;
    uint64_t units = weir_load_relaxed(&entry->units);
    weir_fence_acquire();
    return weir_load_relaxed(&entry->slot) == slot ? units : 0;
}

uint64_t weir_table_refused(const struct weir_table *t, uint32_t slot)
{
    uint64_t sum = weir_load(&weir_cold(t, slot)->refused);
    for (uint32_t i = t->commons; i < t->stripe_count; i++)
        sum += entry_units(&weir_stripe(t, i)->refusals[slot % STRIPE_ENTRIES],
                           slot);
    return sum;
}

/* ---- Requests without a slot ---- */

/* A stripe that threads share needs the locked add; a stripe with one owner
 * doesn't. */
static void stripe_count(const struct weir_table *t, uint64_t *counter,
                         uint32_t stripe)
{
    if (stripe < t->commons)
        weir_fetch_add(counter, 1);
    else
        weir_store_relaxed(counter, *counter + 1);
}

void weir_table_count_unknown(struct weir_table *t, uint32_t stripe)
{
    stripe_count(t, &weir_stripe(t, stripe)->unknown, stripe);
}

void weir_table_count_overflow(struct weir_table *t, uint32_t stripe)
{
    stripe_count(t, &weir_stripe(t, stripe)->overflowed, stripe);
}

void weir_table_count_contended(struct weir_table *t, uint32_t stripe)
{
    stripe_count(t, &weir_stripe(t, stripe)->contended, stripe);
}

/* A handle's name may have no quota yet: counts the request as unknown. */
void weir_placeholder_count(struct weir_table *t, uint32_t stripe,
                            uint32_t slot)
{
    if (weir_load_acquire(&weir_cold(t, slot)->state) == WEIR_SLOT_PLACEHOLDER)
        weir_table_count_unknown(t, stripe);
}

uint64_t weir_table_unknown(const struct weir_table *t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->stripe_count; i++)
        sum += weir_load_relaxed(&weir_stripe(t, i)->unknown);
    return sum;
}

uint64_t weir_table_overflowed(const struct weir_table *t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->stripe_count; i++)
        sum += weir_load_relaxed(&weir_stripe(t, i)->overflowed);
    return sum;
}

uint64_t weir_table_contended(const struct weir_table *t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->stripe_count; i++)
        sum += weir_load_relaxed(&weir_stripe(t, i)->contended);
    return sum;
}

/* ---- Draws ---- */

/* Draws race on the shared stripe: a lost step is just as random. */
static uint64_t draw_chance(struct chance *from)
{
    uint64_t *state = &from->rng.state;
    struct weir_rng rng = { weir_load_relaxed(state) };
    uint64_t chance = weir_rng_next(&rng);
    weir_store_relaxed(state, rng.state);
    return chance;
}

/* The random number of a decision. Each run of 16 draws falls once into every
 * sixteenth of the range, in strides of 5 up or down from a place that is drawn
 * for the run. Each single draw is uniform, so no position in a pattern of
 * requests gives a caller an advantage. Of a few in a row, almost exactly the
 * right share passes: a quarter of the spread of independent draws over five, a
 * seventh over fifteen. Rejected: a random order of the sixteenths (twice that
 * spread), and one sequence without new starts (a caller that makes every 13th
 * request would pass for long and then be refused for long). */
uint64_t weir_stripe_draw_evenly(struct weir_table *t, uint32_t stripe,
                                 enum set set)
{
    struct chance *from = &weir_stripe(t, stripe)->chance[set];
    uint64_t chance = draw_chance(from);
    uint64_t *word = &from->run;
    uint64_t run = weir_load_relaxed(word);
    uint64_t place = run % 16;
    uint64_t stride = run & 16 ? 5 : 11;
    uint64_t sixteenth = (run >> 5) + place * stride;
    /* Relaxed, as for the generator: a lost step is a sixteenth drawn twice. */
    weir_store_relaxed(word, place < 15 ? run + 1 : chance & ~(uint64_t)15);
    return sixteenth << 60 | chance >> 4;
}

uint64_t weir_stripe_draw(struct weir_table *t, uint32_t stripe, enum set set)
{
    return draw_chance(&weir_stripe(t, stripe)->chance[set]);
}
