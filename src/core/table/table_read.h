/* SPDX-License-Identifier: MIT
 * table/table_read.h - a copy of a slot, and the marks that the sync reads. For
 * the files of the table and for checkers of one. */

#ifndef WEIR_TABLE_READ_H
#define WEIR_TABLE_READ_H

#include "core/table/table_layout.h"

/* Forces inlining, to keep values in registers: the compiler's heuristic counts
 * lines, not calls. */
#define INLINE static inline __attribute__((always_inline))

static inline int64_t weir_mini_get(weir_mini mini)
{
    return (int64_t)((uint64_t)(mini >> 6) << (mini & 63));
}

/* Rounds down. 'value' must not be negative. */
static inline weir_mini weir_mini_of(int64_t value)
{
    uint64_t v = (uint64_t)value;
    unsigned bits = v ? 64 - (unsigned)__builtin_clzll(v) : 0;
    unsigned shift = bits > 26 ? bits - 26 : 0;
    return (weir_mini)((v >> shift) << 6) | shift;
}

/* Rounds up. 'value' must be below 2^61. */
static inline weir_mini weir_mini_above(int64_t value)
{
    weir_mini mini = weir_mini_of(value);
    if (weir_mini_get(mini) == value)
        return mini;
    return weir_mini_of(weir_mini_get(mini) + ((int64_t)1 << (mini & 63)));
}

/* Sets of slots, a bit each. */
enum slot_bits {
    BITS_MARKED, /* changed since the last collect */
    BITS_HEARD,  /* a root's fill of it has come in its present life */
};
static_assert(BITS_HEARD + 1 == SLOT_BITS, "");
static inline uint64_t *weir_bits(const struct weir_table *t,
                                  enum slot_bits which)
{
    return (uint64_t *)weir_table_at(t, t->bits_at) +
           (uint64_t)which * t->bits_words;
}
static inline bool weir_bit_of(const struct weir_table *t, enum slot_bits which,
                               uint32_t slot)
{
    return weir_load(&weir_bits(t, which)[slot / 64]) >> (slot % 64) & 1;
}

/* For assertions of the writer lock's holder. Relaxed: no other thread changes
 * the word meanwhile. */
static inline bool weir_table_is_locked(const struct weir_table *t)
{
    return weir_load_relaxed(&t->writer) != 0;
}
/* The number of the process that owns the stripe; for the owning thread. */
static inline uint32_t weir_process_of(const struct weir_table *t,
                                       uint32_t stripe)
{
    if (stripe < t->commons)
        return stripe;
    return weir_load_relaxed(&weir_stripe(t, stripe)->owned) - 1;
}

/* A consistent copy of a link's parameters and state. */
struct slot_read {
    uint64_t base; /* as read: for the lift's CAS */
    uint64_t count;
    int64_t fill; /* may be negative */
    int64_t high;
    int64_t band;
    struct weir_leak leak;
    uint32_t flags; /* META_… */
};
void weir_slot_read_spare(const struct weir_table *t, uint32_t slot,
                          uint64_t elapsed, struct slot_read *out);

/* For kind concurrency the fill is the units in flight, on a scale of whole
 * units. */
static inline void weir_slot_read_inflight(const struct weir_table *t,
                                           uint32_t slot,
                                           struct slot_read *read)
{
    const struct inflight *inflight = weir_inflight(t, slot);
    /* Relaxed: an enter reads it again for its compare-and-swap. */
    read->count = weir_load_relaxed(&inflight->in_flight);
    read->fill = (int64_t)(read->count + weir_load_relaxed(&inflight->others));
}

/* 63-bit difference, sign-extended. */
static inline int64_t weir_fill_of(uint64_t count, uint64_t base,
                                   struct weir_leak leak, uint64_t elapsed)
{
    uint64_t in = (count << leak.frac) - weir_leaked(leak, elapsed);
    return (int64_t)((in << 1) + (base & ~(uint64_t)1)) >> 1;
}

INLINE void weir_slot_read(const struct weir_table *t, uint32_t slot,
                           uint64_t elapsed, struct slot_read *out)
{
    const struct hot *hot = weir_hot(t, slot);
    for (;;) {
        /* acquire: the fields below are read after it; pairs with the
         * release of meta in the switch. */
        uint32_t meta = weir_load_acquire(&hot->meta);
        uint64_t base = weir_load_acquire(&hot->base);
        if (WEIR_UNLIKELY(base & 1)) {
            weir_slot_read_spare(t, slot, elapsed, out);
            return;
        }
        uint64_t part = weir_load_relaxed(&hot->part);
        int64_t high = weir_load_relaxed(&hot->high);
        weir_mini band = weir_load_relaxed(&hot->band);
        uint64_t count = weir_load_relaxed(&hot->count);
        weir_fence_acquire();
        if (WEIR_UNLIKELY(weir_load_relaxed(&hot->meta) != meta ||
                          (meta & META_SEQ_ONE)))
            continue;
        out->base = base;
        out->count = count;
        out->leak = weir_meta_leak(meta, part);
        out->high = high;
        out->band = weir_mini_get(band);
        out->flags = meta & META_FLAGS;
        out->fill = weir_fill_of(count, base, out->leak, elapsed);
        if (WEIR_UNLIKELY(meta & META_INFLIGHT))
            weir_slot_read_inflight(t, slot, out);
        return;
    }
}
/* The bucket only counts: a fill that overflows is lifted as if it were
 * idle. */
static inline bool weir_slot_read_is_endless(const struct slot_read *read)
{
    return read->high == WEIR_SCALED_MAX;
}

/* Whether the slot has units in flight: then it must not be freed. If its
 * generation was not moved before, a permit may come after this. */
bool weir_slot_has_permits(const struct weir_table *t, uint32_t slot);

/* Sets the slot's dirty bit. Returns whether it wasn't set. */
bool weir_slot_mark(struct weir_table *t, uint32_t slot);
/* The slot's count came to 'count', near to 'stop': marks the slot, and
 * requests an early report when the count went over report_at. Returns 0 or
 * WEIR_OUTCOME_KICK. */
unsigned weir_slot_touch(struct weir_table *t, uint32_t slot, uint64_t count);

INLINE bool weir_slot_is_near(const struct hot *hot, uint64_t count)
{
    weir_mini report_within = weir_load(&hot->report_within);
    uint64_t stop = weir_load_relaxed(&hot->stop);
    return WEIR_UNLIKELY((int64_t)(stop - count) <=
                         weir_mini_get(report_within));
}
/* The slot's count is 'count' now: touches it if that is near. */
unsigned weir_slot_note(struct weir_table *t, uint32_t slot, uint64_t count);

INLINE unsigned weir_slot_add(struct weir_table *t, uint32_t slot,
                              uint64_t units)
{
    struct hot *hot = weir_hot(t, slot);
    uint64_t count = weir_fetch_add(&hot->count, units) + units;
    return weir_slot_is_near(hot, count) ? weir_slot_touch(t, slot, count) : 0;
}

/* Lifts a bucket that was empty, so that its fill is not below 0. */
void weir_slot_lift(struct weir_table *t, uint32_t slot, uint64_t elapsed);
INLINE bool weir_slot_lift_read(struct hot *hot, struct slot_read *read)
{
    return weir_cas(&hot->base, &read->base,
                    read->base - ((uint64_t)read->fill << 1));
}

#endif /* WEIR_TABLE_READ_H */
