/* SPDX-License-Identifier: MIT
 * core/table/table_sync.c - the sync's reads and writes concurrent with takes.
 *
 * Everything here runs concurrently with takes on other threads and never stops
 * one. The sync never writes 'count'; it stores 'base', which the lift may also
 * move: the later write has more information. */

#include "core/table/table_layout.h"

#include <string.h>

/* ---- Changes since the last report ---- */

size_t weir_table_bits_words(const struct weir_table *t)
{
    return t->bits_words;
}

static void push_off(uint64_t *mark, uint64_t count)
{
    int64_t ahead = (int64_t)(weir_load_relaxed(mark) - count);
    if (ahead > (int64_t)(WEIR_COUNT_FAR / 2))
        weir_store_relaxed(mark, count + WEIR_COUNT_FAR);
}

static void rearm(struct weir_table *t, uint32_t word, uint64_t marked)
{
    while (marked) {
        unsigned bit = (unsigned)__builtin_ctzll(marked);
        marked &= marked - 1;
        uint32_t slot = word * 64 + bit;
        struct hot *hot = weir_hot(t, slot);
        uint64_t count = weir_table_count(t, slot);
        /* A stop that stands for "never" moves on with the count: 2^60
         * units of weight 2^32 are half a minute. */
        push_off(&weir_cold(t, slot)->report_at, count);
        push_off(&hot->stop, count);
        /* After the mark was cleared: see touch() in table_take.c. */
        weir_store(&hot->report_within, WEIR_MINI_FAR);
    }
}

/* Refusals in stripes set no bits when they happen: entries that changed since
 * the last collect set them here. */
static void collect_refusals(struct weir_table *t, uint64_t *bits)
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

void weir_table_collect(struct weir_table *t, uint64_t *bits)
{
    uint32_t words = (weir_table_used(t) + 63) / 64;
    for (uint32_t i = 0; i < words; i++) {
        uint64_t *word = &weir_bits(t)[i];
        if (weir_load_relaxed(word) == 0)
            continue;
        uint64_t marked = weir_exchange(word, 0);
        rearm(t, i, marked);
        bits[i] |= marked;
    }
    collect_refusals(t, bits);
}

uint64_t weir_table_count(const struct weir_table *t, uint32_t slot)
{
    /* Relaxed: a read concurrent with an edit counts as before or after it. */
    if (weir_load_relaxed(&weir_hot(t, slot)->meta) & META_INFLIGHT)
        return weir_load(&weir_inflight(t, slot)->in_flight);
    return weir_load(&weir_hot(t, slot)->count);
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

bool weir_table_urgent(struct weir_table *t)
{
    return weir_load_relaxed(&t->urgent) && weir_exchange(&t->urgent, 0);
}

bool weir_table_is_urgent(const struct weir_table *t)
{
    return weir_load_relaxed(&t->urgent) != 0;
}

void weir_table_set_reporting(struct weir_table *t, bool reporting)
{
    /* Relaxed: no other thread writes it. The store is sequentially consistent,
     * before the collect that follows: a take that still reads 'reporting' in
     * touch() has set its mark before that, so the collect finds it. */
    if (weir_load_relaxed(&t->reporting) != reporting)
        weir_store(&t->reporting, reporting);
}

static void view_locked(const struct weir_table *t, uint32_t slot,
                        struct weir_slot_view *out, weir_instant now)
{
    const struct cold *cold = weir_cold(t, slot);
    out->state = (enum weir_slot_state)cold->state;
    out->generation = weir_load_acquire(&weir_hot(t, slot)->generation);
    if (out->state == WEIR_SLOT_FREE || out->state == WEIR_SLOT_MAKING)
        return;
    struct look look;
    weir_slot_read(t, slot, weir_elapsed(t, now), &look);
    out->sharing = (enum weir_sharing)cold->sharing;
    out->on_stale = (enum weir_on_stale)cold->on_stale;
    out->created = cold->created;
    out->refs = cold->refs;
    out->count = look.count;
    out->fill = look.fill > 0 ? look.fill : 0;
    out->in =
        (look.count << look.leak.frac) + (uint64_t)((int64_t)look.base >> 1);
    out->bucket = (struct weir_bucket){ .leak = look.leak,
                                        .low = look.high - look.band,
                                        .high = look.high };
    out->unlimited = look.high == WEIR_SCALED_MAX;
    out->inflight = look.flags & META_INFLIGHT;
}

void weir_table_view(struct weir_table *t, uint32_t slot,
                     struct weir_slot_view *out, weir_instant now)
{
    memset(out, 0, sizeof(*out));
    weir_table_lock(t);
    view_locked(t, slot, out, now);
    weir_table_unlock(t);
}

/* ---- Values from the roots ---- */

void weir_table_set_slack(struct weir_table *t, uint32_t slot,
                          uint64_t report_at, uint64_t stop)
{
    /* The distance as 'report_within' can represent it, rounded up, so that
     * the report is never requested late. */
    int64_t distance = (int64_t)(stop - report_at);
    if (distance > 0)
        report_at = stop - (uint64_t)weir_mini_get(weir_mini_above(distance));
    weir_store_relaxed(&weir_cold(t, slot)->report_at, report_at);
    weir_store_release(&weir_hot(t, slot)->stop, stop);
    /* 'report_within' was a distance to the former stop: the next take sets it
     * again; at worst one mark too many. */
    weir_store(&weir_hot(t, slot)->report_within, WEIR_MINI_FAR);
}

void weir_table_lift_stops(struct weir_table *t)
{
    uint32_t used = weir_table_used(t);
    for (uint32_t slot = 0; slot < used; slot++) {
        uint64_t count = weir_table_count(t, slot);
        weir_table_set_slack(t, slot, count, count + WEIR_COUNT_FAR);
    }
}

void weir_table_pause_hold(struct weir_table *t, bool paused)
{
    t->hold_paused = paused;
}

bool weir_table_hold_is_paused(const struct weir_table *t)
{
    return t->hold_paused;
}

static void set_others(struct weir_table *t, uint32_t slot, int64_t units)
{
    uint64_t others = units > 0 ? (uint64_t)units : 0;
    weir_store_relaxed(&weir_inflight(t, slot)->others, others);
}

void weir_table_set_fill(struct weir_table *t, uint32_t slot, int64_t fill,
                         uint64_t count, weir_instant at)
{
    struct hot *hot = weir_hot(t, slot);
    uint64_t base = weir_load(&hot->base);
    for (;;) {
        struct look look;
        weir_slot_read(t, slot, 0, &look);
        if (look.flags & META_INFLIGHT) {
            set_others(t, slot, fill - (int64_t)count);
            return;
        }
        if (look.flags & META_OFF)
            return;
        uint64_t scaled = (uint64_t)fill +
                          weir_leaked(look.leak, weir_elapsed(t, at)) -
                          (count << look.leak.frac);
        base = look.base;
        if (weir_cas(&hot->base, &base, (scaled << 1) | (base & 1)))
            break;
    }
}

float weir_table_refusal(struct weir_table *t, uint32_t slot, weir_instant now)
{
    struct look look;
    weir_slot_read(t, slot, weir_elapsed(t, now), &look);
    return (float)weir_slot_read_refusal(&look) / 255;
}

void weir_table_set_hold(struct weir_table *t, uint32_t slot, float refusal)
{
    weir_assert(refusal >= 0 && refusal <= 1);
    if (weir_table_is_stale(t) || t->hold_paused)
        return;
    weir_store_relaxed(&weir_cold(t, slot)->hold,
                       (uint8_t)(refusal * 255 + 0.5f));
}

void weir_table_add_others(struct weir_table *t, uint32_t slot, int64_t scaled)
{
    weir_fetch_add(&weir_hot(t, slot)->base, (uint64_t)scaled << 1);
}

void weir_table_set_settled(struct weir_table *t, uint32_t slot, uint64_t count)
{
    weir_store_relaxed(&weir_cold(t, slot)->settled, count);
}

uint64_t weir_table_settled(const struct weir_table *t, uint32_t slot)
{
    return weir_load_relaxed(&weir_cold(t, slot)->settled);
}

/* ---- Counts of a region's limiters ---- */

bool weir_table_carry(struct weir_table *t, struct weir_ref ref, int64_t units,
                      uint64_t refused, weir_instant now)
{
    if (!weir_table_ref_lives(t, ref))
        return false;
    struct look look;
    uint64_t elapsed = weir_elapsed(t, now);
    weir_slot_read(t, ref.slot, elapsed, &look);
    if (look.fill < 0)
        weir_slot_lift(t, ref.slot, elapsed);
    uint64_t count =
        weir_fetch_add(&weir_hot(t, ref.slot)->count, (uint64_t)units);
    weir_slot_note(t, ref.slot, count + (uint64_t)units);
    if (units > 0 && (look.flags & (META_PASS | META_HOLD)))
        weir_slot_forgive(t, ref.slot, (uint64_t)units, elapsed);
    weir_fetch_add(&weir_cold(t, ref.slot)->refused, refused);
    weir_slot_mark(t, ref.slot);
    return true;
}

/* The sync decides whether the change, up or down, is worth a report. */
static void carry_in_flight(struct weir_table *t, uint32_t slot, uint64_t units)
{
    bool moves = weir_table_in_flight(t, slot) != units;
    weir_store(&weir_inflight(t, slot)->in_flight, units);
    weir_slot_mark(t, slot);
    if (moves)
        weir_store(&t->urgent, 1);
}

bool weir_table_carry_in_flight(struct weir_table *t, struct weir_ref ref,
                                uint64_t units, uint64_t refused)
{
    if (!weir_table_ref_lives(t, ref))
        return false;
    weir_fetch_add(&weir_cold(t, ref.slot)->refused, refused);
    carry_in_flight(t, ref.slot, units);
    return true;
}

void weir_table_uncarry_in_flight(struct weir_table *t, uint32_t slot)
{
    weir_assert(slot < t->slots);
    if (weir_slot_has_permits(t, slot))
        carry_in_flight(t, slot, 0);
}
