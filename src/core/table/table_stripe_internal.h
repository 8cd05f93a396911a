/* SPDX-License-Identifier: MIT
 * core/table/table_stripe_internal.h - a thread's own memory: refusals and
 * draws. */

#ifndef WEIR_TABLE_STRIPE_INTERNAL_H
#define WEIR_TABLE_STRIPE_INTERNAL_H

#include "core/table/table_read.h"

/* Counts refused units of a slot. Returns WEIR_OUTCOME_LIMITED. The second one
 * is for a slot without an entry in the stripe. */
unsigned weir_stripe_refuse_slowly(struct weir_table *t, uint32_t stripe,
                                   uint32_t slot, uint64_t weight);
INLINE unsigned weir_stripe_refuse(struct weir_table *t, uint32_t stripe,
                                   uint32_t slot, uint64_t weight)
{
    struct refusal *entry =
        &weir_stripe(t, stripe)->refusals[slot % STRIPE_ENTRIES];
    /* Entries of a shared stripe have no slot. */
    if (WEIR_UNLIKELY(entry->slot != slot))
        return weir_stripe_refuse_slowly(t, stripe, slot, weight);
    weir_store_relaxed(&entry->units, entry->units + weight);
    /* release: the sync that sees the event reads these units. */
    weir_store_release(&entry->events, entry->events + 1);
    return WEIR_OUTCOME_LIMITED;
}
/* The same for each of 'slots' that has its bit in 'links'. */
void weir_stripe_refuse_links(struct weir_table *t, uint32_t stripe,
                              const uint32_t *slots, uint32_t links,
                              uint64_t weight);
/* The sync: sets the bits of slots with refusals since the last call. */
void weir_stripes_collect(struct weir_table *t, uint64_t *bits);
/* Counts the request as unknown if the slot is a placeholder. */
void weir_placeholder_count(struct weir_table *t, uint32_t stripe,
                            uint32_t slot);

/* Draws from the stripe's stream of a set: independently, or so that draws in a
 * row are spread evenly. */
uint64_t weir_stripe_draw(struct weir_table *t, uint32_t stripe, enum set set);
uint64_t weir_stripe_draw_evenly(struct weir_table *t, uint32_t stripe,
                                 enum set set);

#endif /* WEIR_TABLE_STRIPE_INTERNAL_H */
