/* SPDX-License-Identifier: MIT
 * table/table_sweep.c - the clock hand, which passes all slots from time to
 * time. */

#include "core/table/table_inflight_internal.h"
#include "core/table/table_read.h"
#include "core/table/table_shadow_internal.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_sync.h"

/* Slots swept each time the lock is taken: some microseconds. */
#define SWEEP_HOLD 32

/* Whether it is an instance that found no room for its bucket state. */
static bool lacks_bucket_state(const struct weir_table *t, uint32_t slot)
{
    const struct cold *cold = weir_cold(t, slot);
    return t->rules_made && cold->state == WEIR_SLOT_INSTANCE &&
           cold->rule != WEIR_SLOT_NONE &&
           weir_bucket_state(t, slot)->where == 0 &&
           weir_bucket_state(t, cold->rule)->where != 0;
}

/* Whether it is an instance that found no room for its parent when its template
 * was edited. A chain that ends because it is too long, or a cycle, looks the
 * same; there are few. */
static bool lacks_parent(const struct weir_table *t, uint32_t slot)
{
    const struct cold *cold = weir_cold(t, slot);
    return cold->state == WEIR_SLOT_INSTANCE && cold->rule != WEIR_SLOT_NONE &&
           weir_parent(weir_hot(t, slot)) == WEIR_SLOT_NONE &&
           weir_cold(t, cold->rule)->aux_len > 0;
}

/* Under the lock: the hand moves on by some slots. */
static uint32_t sweep_some(struct weir_table *t, uint32_t count,
                           weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    uint64_t behind =
        weir_elapsed(t, weir_before(now, WEIR_TABLE_SWEEP_BEHIND));
    uint32_t freed = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = t->hand = t->hand + 1 < t->used ? t->hand + 1 : 0;
        if (weir_cold(t, slot)->state > WEIR_SLOT_MAKING)
            weir_slot_lift(t, slot, behind);
        if (lacks_bucket_state(t, slot) || lacks_parent(t, slot) ||
            weir_slot_wants_gate_slot(t, slot))
            weir_slot_rule(t, slot, now);
        if (weir_table_is_crowded(t))
            freed += weir_slot_evict(t, slot, now);
    }
    weir_assert(freed <= count);
    return freed;
}

uint32_t weir_table_sweep(struct weir_table *t, uint32_t count,
                          weir_instant now)
{
    uint32_t used = weir_table_used(t);
    uint32_t freed = 0;
    if (count > used)
        count = used;
    weir_slots_rule(t, now);
    for (uint32_t done = 0; done < count; done += SWEEP_HOLD) {
        uint32_t some = count - done < SWEEP_HOLD ? count - done : SWEEP_HOLD;
        if (!weir_table_try_lock(t))
            break;
        freed += sweep_some(t, some, now);
        t->barren_till = 0;
        weir_table_unlock(t);
    }
    if (freed > 0)
        weir_shadow_freed(t);
    return freed;
}
