/* SPDX-License-Identifier: MIT
 * core/table/table_sync.c - the sync's reads and writes concurrent with takes.
 *
 * Everything here runs concurrently with takes on other threads and never stops
 * one. The sync never writes 'count'; it stores 'base', which the lift may also
 * move: the later write has more information. */

#include "core/table/table_sync.h"

#include <string.h>

#include "core/table/table_permit.h"
#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_stripe_internal.h"
#include "core/table/table_switch_internal.h"

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
    weir_assert((int64_t)(weir_load_relaxed(mark) - count) <=
                (int64_t)WEIR_COUNT_FAR);
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
        /* After the mark was cleared: see weir_slot_touch(). */
        weir_store(&hot->report_within, WEIR_MINI_FAR);
    }
}

void weir_table_collect(struct weir_table *t, uint64_t *bits)
{
    uint32_t words = (weir_table_used(t) + 63) / 64;
    for (uint32_t i = 0; i < words; i++) {
        uint64_t *word = &weir_bits(t, BITS_MARKED)[i];
        if (weir_load_relaxed(word) == 0)
            continue;
        uint64_t marked = weir_exchange(word, 0);
        rearm(t, i, marked);
        bits[i] |= marked;
    }
    weir_stripes_collect(t, bits);
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
     * weir_slot_touch() has set its mark before that, so the collect finds
     * it. */
    if (weir_load_relaxed(&t->reporting) != reporting)
        weir_store(&t->reporting, reporting);
}

/* ---- Values from the roots ---- */

void weir_table_set_slack(struct weir_table *t, uint32_t slot,
                          uint64_t report_at, uint64_t stop)
{
    weir_assert(slot < t->slots);
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

static void set_others(struct weir_table *t, uint32_t slot, int64_t units)
{
    weir_assert(slot < t->slots);
    uint64_t others = units > 0 ? (uint64_t)units : 0;
    weir_store_relaxed(&weir_inflight(t, slot)->others, others);
}

void weir_table_set_fill(struct weir_table *t, uint32_t slot, int64_t fill,
                         uint64_t count, weir_instant at)
{
    weir_assert(slot < t->slots);
    struct hot *hot = weir_hot(t, slot);
    uint64_t elapsed = weir_elapsed(t, at);
    for (;;) {
        struct slot_read read;
        weir_slot_read(t, slot, elapsed, &read);
        if (read.flags & META_INFLIGHT) {
            set_others(t, slot, fill - (int64_t)count);
            return;
        }
        if (read.flags & META_OFF)
            return;
        uint64_t scaled = (uint64_t)fill + weir_leaked(read.leak, elapsed) -
                          (count << read.leak.frac);
        /* Empty stays empty, also for a caller whose clock is behind 'at'. */
        if (read.fill <= 0 &&
            weir_fill_of(read.count, scaled << 1, read.leak, elapsed) <= 0)
            return;
        uint64_t base = read.base;
        if (weir_cas(&hot->base, &base, (scaled << 1) | (base & 1)))
            return;
    }
}

void weir_table_set_settled(struct weir_table *t, uint32_t slot, uint64_t count)
{
    weir_assert(slot < t->slots);
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
    struct slot_read read;
    uint64_t elapsed = weir_elapsed(t, now);
    weir_slot_read(t, ref.slot, elapsed, &read);
    if (read.fill < 0)
        weir_slot_lift(t, ref.slot, elapsed);
    uint64_t count =
        weir_fetch_add(&weir_hot(t, ref.slot)->count, (uint64_t)units);
    weir_slot_note(t, ref.slot, count + (uint64_t)units);
    if (units > 0 && (read.flags & (META_PASS | META_HOLD)))
        weir_slot_forgive(t, ref.slot, (uint64_t)units, elapsed);
    weir_fetch_add(&weir_cold(t, ref.slot)->refused, refused);
    weir_slot_mark(t, ref.slot);
    return true;
}

/* The sync decides whether the change, up or down, is worth a report. */
static void set_in_flight(struct weir_table *t, uint32_t slot, uint64_t units)
{
    weir_assert(slot < t->slots);
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
    set_in_flight(t, ref.slot, units);
    return true;
}

void weir_table_uncarry_in_flight(struct weir_table *t, uint32_t slot)
{
    weir_assert(slot < t->slots);
    if (weir_slot_has_permits(t, slot))
        set_in_flight(t, slot, 0);
}
