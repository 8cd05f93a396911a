/* SPDX-License-Identifier: MIT
 * table/table_lock.c - the writer lock.
 *
 * One word in the header; held for microseconds to make an instance, pin, put,
 * drop or sweep. Decisions never take it, except a live slot's first request
 * that also goes to the shadow set. */

#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"

/* For callers that mustn't wait for a dead process. */
#define LOCK_TRIES 10000

static bool lock_once(struct weir_table *t, uint32_t process)
{
    uint64_t free = 0;
    return weir_load_relaxed(&t->writer) == 0 &&
           weir_cas(&t->writer, &free, process + 1);
}

void weir_table_lock_as(struct weir_table *t, uint32_t process)
{
    weir_assert(process < t->commons);
    while (!lock_once(t, process))
        weir_pause();
    weir_assert(weir_table_is_locked(t));
}

bool weir_table_try_lock_as(struct weir_table *t, uint32_t process)
{
    weir_assert(process < t->commons);
    for (int tries = 0; tries < LOCK_TRIES; tries++) {
        if (lock_once(t, process))
            return true;
        weir_pause();
    }
    return false;
}

void weir_table_lock(struct weir_table *t)
{
    weir_table_lock_as(t, 0);
}

void weir_table_unlock(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    /* release: the next holder sees this one's writes. */
    weir_store_release(&t->writer, 0);
}
