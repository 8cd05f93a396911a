/* SPDX-License-Identifier: MIT
 * table/table_lock_internal.h - the locks of a table: they are tried, never
 * waited for. */

#ifndef WEIR_TABLE_LOCK_INTERNAL_H
#define WEIR_TABLE_LOCK_INTERNAL_H

#include "core/table/table_layout.h"

/* The parts of a lock's word; 0: free. */
#define LOCK_OWNER 0x3fffffffu
#define LOCK_AWAITED 0x40000000u
#define LOCK_OVERDUE 0x80000000u

/* ---- Any lock ---- */

/* Takes the lock for 'owner' (1 .. LOCK_OWNER), within WEIR_LOCK_SPINS spins,
 * or none if it is overdue. False: it is still taken, and 'mark' (LOCK_AWAITED,
 * LOCK_OVERDUE or 0) is set in its word. Lock-free. */
bool weir_lock_try_again(uint32_t *word, uint32_t owner, uint32_t mark);
static inline bool weir_lock_try(uint32_t *word, uint32_t owner, uint32_t mark)
{
    uint32_t free = 0;
    if (WEIR_LIKELY(weir_load_relaxed(word) == 0 &&
                    weir_cas(word, &free, owner)))
        return true;
    return weir_lock_try_again(word, owner, mark);
}
/* The same without spins or marks, for a caller that does without it. */
static inline bool weir_lock_try_once(uint32_t *word, uint32_t owner)
{
    uint32_t free = 0;
    return weir_load_relaxed(word) == 0 && weir_cas(word, &free, owner);
}
/* Returns whether the lock was awaited: then the process has to wake the
 * threads that sleep on weir_table_released(). Wait-free. */
static inline bool weir_lock_release(struct weir_table *t, uint32_t *word)
{
    /* The next holder sees this one's writes. */
    uint32_t found = weir_exchange(word, 0);
    weir_assert(found & LOCK_OWNER);
    if (WEIR_LIKELY(!(found & LOCK_AWAITED)))
        return false;
    (void)weir_fetch_add(&t->released, 1);
    return true;
}
/* Passes the lock on from a dead owner. False: it wasn't the owner. */
bool weir_lock_inherit(uint32_t *word, uint32_t from, uint32_t owner);
/* A caller has waited for it in vain; nothing if it is free. */
void weir_lock_set_overdue(uint32_t *word);

/* ---- The writer lock ---- */

bool weir_table_try_lock_as(struct weir_table *t, uint32_t process,
                            uint32_t mark);
/* The same for the sync, which comes again at its next turn. */
bool weir_table_try_lock(struct weir_table *t);
/* The same for a view: once. */
bool weir_table_try_lock_once(struct weir_table *t, uint32_t process);
void weir_table_unlock(struct weir_table *t);

#endif /* WEIR_TABLE_LOCK_INTERNAL_H */
