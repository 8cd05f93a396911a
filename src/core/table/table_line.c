/* SPDX-License-Identifier: MIT
 * table/table_line.c - slots at which callers wait to enter.
 *
 * The waiters are threads that sleep elsewhere (libweir/libweir_waiting.c). The
 * table has only one word per slot about them, beside the units in flight:
 *
 *     lanes = bits, one for each class with a waiter
 *
 * and, for leases, the number of units that the waiters want.
 *
 * A waiter sets its lane first and then tries once more; a leave gives its
 * units back first and then reads the word. Both are sequentially consistent:
 * either the waiter finds the free units, or the leave finds the waiter.
 *
 * No caller overtakes. Units that are given back are free for a moment, until
 * they are handed to the next waiter; meanwhile the word keeps other callers
 * out. Callers of another class may use the guaranteed part of their class,
 * which no waiter is waiting for, and no more.
 *
 * Without classes there is one lane, the last.
 *
 * Rejected: passing the units in flight directly from one caller to the next.
 * They belong to a class, a chain and a life of a gate's counter, and the next
 * waiter has others. */

#include "core/table/table_inflight_internal.h"
#include "core/table/table_read.h"

#include <assert.h>

#define QUEUE_BITS 2
static_assert(WEIR_WAIT_QUEUE_LANES == WEIR_CONCURRENCY_GATE_CLASSES_MAX + 1,
              "a lane per class, one for none");

static uint32_t packed(const struct weir_quota *quota)
{
    weir_assert(quota->queue_max <= UINT32_MAX >> QUEUE_BITS);
    weir_assert((uint32_t)quota->queue < 1u << QUEUE_BITS);
    return quota->queue_max << QUEUE_BITS | (uint32_t)quota->queue;
}

void weir_slot_queue(struct weir_table *t, uint32_t slot,
                     const struct weir_quota *quota)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(slot < t->slots);
    /* Pages stay untouched if no quota of this kind needs them. */
    if (quota->kind == WEIR_CONCURRENCY)
        weir_store_relaxed(&weir_inflight(t, slot)->queue, packed(quota));
}

void weir_slot_queue_as(struct weir_table *t, uint32_t slot, uint32_t template)
{
    weir_assert(weir_table_is_locked(t));
    struct slot_read read;
    weir_slot_read(t, template, 0, &read);
    if (read.flags & META_INFLIGHT)
        weir_store_relaxed(&weir_inflight(t, slot)->queue,
                           weir_inflight(t, template)->queue);
}

void weir_table_queue(const struct weir_table *t, uint32_t slot,
                      enum weir_wait_queue_order *out_order, uint32_t *out_max)
{
    /* Relaxed: the order may have changed since. */
    uint32_t queue = weir_load_relaxed(&weir_inflight(t, slot)->queue);
    struct weir_quota fresh;
    weir_quota_init(&fresh);
    if (queue == 0)
        queue = packed(&fresh);
    *out_order = (enum weir_wait_queue_order)(queue & ((1u << QUEUE_BITS) - 1));
    *out_max = queue >> QUEUE_BITS;
}

void weir_table_set_line(struct weir_table *t, uint32_t slot, uint32_t lanes,
                         uint64_t units)
{
    weir_assert(slot < t->slots);
    weir_assert(lanes >> WEIR_WAIT_QUEUE_LANES == 0);
    struct inflight *inflight = weir_inflight(t, slot);
    /* Relaxed: a figure that is read from time to time. */
    weir_store_relaxed(&inflight->awaited, units);
    if (weir_load_relaxed(&inflight->lanes) == lanes)
        return;
    /* Pairs with the read of 'lanes' by a leave, in weir_table_leave_as(). The
     * fence: a gate's units are read by relaxed loads. */
    weir_store(&inflight->lanes, lanes);
    weir_fence();
}

bool weir_table_is_awaited(const struct weir_table *t, uint32_t slot)
{
    return weir_load(&weir_inflight(t, slot)->lanes) != 0;
}

weir_instant weir_table_line_due(const struct weir_table *t, uint32_t slot,
                                 weir_instant now)
{
    const struct weir_concurrency_gate *gate = weir_slot_gate(t, slot);
    return gate ? weir_concurrency_gate_due(gate, now) : WEIR_NEVER;
}

uint32_t weir_table_inflights(const struct weir_table *t, struct weir_ref ref,
                              uint32_t *out_slots)
{
    uint32_t slot = ref.slot;
    uint32_t count = 0;
    for (uint32_t links = 0; slot != WEIR_SLOT_NONE && links < WEIR_DEPTH_MAX;
         links++) {
        struct slot_read read;
        weir_slot_read(t, slot, 0, &read);
        if ((read.flags & META_INFLIGHT) && !(read.flags & META_OFF))
            out_slots[count++] = slot;
        slot = weir_parent(weir_hot(t, slot));
    }
    return weir_table_ref_lives(t, ref) ? count : 0;
}

bool weir_table_has_link(const struct weir_table *t, struct weir_ref ref,
                         uint32_t slot)
{
    uint32_t link = ref.slot;
    for (uint32_t links = 0; link != WEIR_SLOT_NONE && links < WEIR_DEPTH_MAX;
         links++) {
        if (link == slot)
            return true;
        link = weir_parent(weir_hot(t, link));
    }
    return false;
}
