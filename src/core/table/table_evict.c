/* SPDX-License-Identifier: MIT
 * table/table_evict.c - idle slots make room for new names. */

#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_grow_internal.h"
#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"

/* Whether the slot is not needed now; '*out_count' is its count then. A
 * placeholder is idle as soon as it has no references: one that was resolved
 * and never pinned. */
static bool is_slot_idle(struct weir_table *t, uint32_t slot,
                         uint64_t *out_count, weir_instant now)
{
    const struct cold *cold = weir_cold(t, slot);
    bool idles = cold->state == WEIR_SLOT_INSTANCE ||
                 cold->state == WEIR_SLOT_PLACEHOLDER;
    if (!idles || cold->refs > 0)
        return false;
    if (weir_bit_of(t, BITS_MARKED, slot))
        return false;
    struct slot_read read;
    *out_count = weir_load(&weir_hot(t, slot)->count);
    weir_slot_read(t, slot, weir_elapsed(t, now), &read);
    bool empty = read.fill <= 0 || weir_slot_read_is_endless(&read) ||
                 (read.flags & META_INFLIGHT);
    return empty && !weir_slot_has_permits(t, slot) &&
           read.count == weir_load_relaxed(&cold->settled);
}

/* Frees an instance that is not needed. The generation moves before the count
 * is read for the last time (table_slots.c). If a take came in between, the
 * slot lives on under another generation: the old one can't be restored,
 * because a thread may have seen the even one in between. */
static bool evict_seized(struct weir_table *t, uint32_t slot, uint64_t count,
                         weir_instant now)
{
    struct hot *hot = weir_hot(t, slot);
    weir_assert(hot->generation & 1);
    if (!weir_bucket_state_is_idle(t, slot, now))
        return false;
    weir_store(&hot->generation, hot->generation + 1);
    if (weir_load(&hot->count) != count || weir_slot_has_permits(t, slot)) {
        weir_slot_publish(t, slot);
        return false;
    }
    weir_slot_free(t, slot);
    return true;
}

bool weir_slot_evict(struct weir_table *t, uint32_t slot, weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(slot < t->used);
    uint64_t count;
    if (!is_slot_idle(t, slot, &count, now) ||
        !weir_bucket_state_seize(t, slot))
        return false;
    bool freed = evict_seized(t, slot, count, now);
    weir_bucket_state_unseize(t, slot);
    return freed;
}

uint32_t weir_table_evict(struct weir_table *t, uint32_t looks, uint32_t wanted,
                          weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    uint32_t freed = 0;
    for (uint32_t i = 0; i < looks && i < t->used && freed < wanted; i++) {
        t->hand = t->hand + 1 < t->used ? t->hand + 1 : 0;
        freed += weir_slot_evict(t, t->hand, now);
    }
    weir_assert(freed <= wanted);
    return freed;
}

/* Whether a growth comes before a search for idle slots. */
static bool grows_first(const struct weir_table *t)
{
    return weir_table_can_grow(t) &&
           weir_table_committed(t) < WEIR_TABLE_IDLE_SLOTS;
}

/* After one failed search there is none for a while, until the sweep has
 * passed: otherwise each name of a flood would hold the lock for some hundred
 * slots. */
uint32_t weir_slot_make(struct weir_table *t, struct weir_text name,
                        weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(name.len > 0 && name.len <= WEIR_NAME_MAX);
    uint32_t slot = weir_slot_take(t, name);
    if (slot == WEIR_SLOT_NONE && !grows_first(t) && now >= t->barren_till) {
        if (weir_table_evict(t, EVICT_LOOK_MAX, 1, now) > 0)
            slot = weir_slot_take(t, name);
        else
            t->barren_till = now + BARREN;
    }
    if (slot == WEIR_SLOT_NONE)
        weir_table_note_short(t);
    return slot;
}

bool weir_table_is_crowded(const struct weir_table *t)
{
    uint32_t slots = weir_table_committed(t);
    uint32_t most = weir_load_relaxed(&t->committed_max);
    if (slots < WEIR_TABLE_IDLE_SLOTS)
        slots = most < WEIR_TABLE_IDLE_SLOTS ? most : WEIR_TABLE_IDLE_SLOTS;
    uint32_t live = weir_table_live(t);
    return live >= slots || slots - live < slots / 8 + 1;
}
