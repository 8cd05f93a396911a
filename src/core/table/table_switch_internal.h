/* SPDX-License-Identifier: MIT
 * table/table_switch_internal.h - the parameters in force at a slot. */

#ifndef WEIR_TABLE_SWITCH_INTERNAL_H
#define WEIR_TABLE_SWITCH_INTERNAL_H

#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_read.h"

/* ---- table_switch.c ---- */
/* The fill that a bucket has under other parameters. */
enum weir_fill_carried {
    WEIR_FILL_EMPTY,  /* none: another quota */
    WEIR_FILL_KEPT,   /* the same units: a grant isn't an edit */
    WEIR_FILL_EDITED, /* weir_fill_edited() */
};
/* Under the lock: the switch. */
void weir_slot_switch(struct weir_table *t, uint32_t slot,
                      const struct weir_bucket *bucket, uint32_t flags,
                      enum weir_fill_carried carried, weir_instant now);
/* Under the lock, an edit: switches the slot to the bucket, or to the plan's
 * bucket state if it has one. 'empty': another quota. */
void weir_slot_measure(struct weir_table *t, uint32_t slot,
                       const struct weir_bucket *bucket, uint32_t flags,
                       const struct bucket_state_plan *plan, bool empty,
                       weir_instant now);
/* Under the lock: finishes the switch of a writer that was killed. */
void weir_table_mend_switch(struct weir_table *t);
/* Under the lock: new flags, same parameters. */
void weir_slot_set_flags(struct weir_table *t, uint32_t slot, uint32_t flags);
/* Under the lock; 'before' was its sharing. If it is no longer counted, clears
 * the units of other processes and the stop, and marks it so that the sync
 * drops the roots' values. */
void weir_slot_share(struct weir_table *t, uint32_t slot,
                     enum weir_sharing before);

/* ---- table_stale.c ---- */
/* The probability with which the bucket refuses now, in 1/255. */
uint8_t weir_slot_read_refusal(const struct slot_read *read);
/* Requests that passed by META_PASS or META_HOLD leave no debt: of 'weight'
 * units that were just counted, those above 'high' are removed from the bucket.
 * Units charged afterwards stay, as do a root's fills. */
void weir_slot_forgive(struct weir_table *t, uint32_t slot, uint64_t weight,
                       uint64_t elapsed);
/* The flags that a stale table adds to a slot. */
uint32_t weir_slot_stale_flags(const struct weir_table *t, uint32_t slot);

/* ---- table_lease.c ---- */
static inline double weir_frac_power(unsigned frac)
{
    return (double)((uint64_t)1 << frac);
}
/* Units a second. */
static inline double weir_leak_per_s(struct weir_leak leak)
{
    double scaled = (double)leak.whole + (double)leak.part / 0x1p64;
    return scaled * 1e9 / weir_frac_power(leak.frac);
}
/* Under the lock: the slot gets a quota with 'bucket'; 'before': its previous
 * sharing; 'another': an unrelated quota. Changes 'bucket' to the one to switch
 * to if its sharing is, or was, leased. */
void weir_slot_lease(struct weir_table *t, uint32_t slot,
                     enum weir_sharing before, bool another,
                     struct weir_bucket *bucket);
/* Under the lock: the last pin or child of the slot has gone. */
void weir_slot_unpinned(struct weir_table *t, uint32_t slot);
/* Under the lock: weir_table_lease_view(). */
void weir_slot_lease_view(const struct weir_table *t, uint32_t slot,
                          struct weir_lease_view *out);
/* Any thread: whether the slot keeps to a grant; writes the grant if so. */
bool weir_slot_granted(const struct weir_table *t, uint32_t slot,
                       double *out_granted);

#endif /* WEIR_TABLE_SWITCH_INTERNAL_H */
