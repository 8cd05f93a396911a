/* SPDX-License-Identifier: MIT
 * table/table_lock.c - the locks of a table, for none of which a thread waits
 * here.
 *
 * There are two kinds: the writer lock, and the lock of each bucket state. A
 * lock is one word, so that a reaper can see the owner:
 *
 *     0                free
 *     LOCK_OWNER       bits: the owner (table_reap.c)
 *     LOCK_AWAITED     bit: a caller waits for its release
 *     LOCK_OVERDUE     bit: a caller has waited for as long as it may
 *
 * Each is held for microseconds, but its thread may lose its processor, or be
 * stopped, meanwhile. So a caller spins LOCK_SPINS times. Then it gives up, and
 * undoes what it has done. A caller that wants to try again sets LOCK_AWAITED
 * before it returns; the process (libweir/libweir_contended.c) then sleeps on
 * the word t->released, which the release moves, until its own deadline. Every
 * wait is thus in one place, outside of the core, with one bound.
 *
 * No wake-up is lost: the caller reads t->released before it tries, and the bit
 * and the release change the same word. Either the exchange of the release
 * finds the bit and moves t->released, or the swap that sets the bit fails.
 *
 * A caller that gives up for good sets LOCK_OVERDUE. Until the release, callers
 * that find it don't wait at all: a stopped process costs the others one wait
 * for each lock that it has, not one for each request.
 *
 * Rejected: a release by a load and a store, without the exchange. It saves
 * some nanoseconds, and loses wake-ups. Rejected: a robust mutex (table_reap.c
 * says why). */

#include "core/table/table_lock_internal.h"

#include "core/table/table_read.h"

bool weir_lock_try_again(uint32_t *word, uint32_t owner, uint32_t mark)
{
    weir_assert(owner > 0 && (owner & ~LOCK_OWNER) == 0);
    for (int spins = 0;; spins++) {
        uint32_t found = weir_load_relaxed(word);
        if (found == 0 && weir_cas(word, &found, owner))
            return true;
        if (spins < WEIR_LOCK_SPINS && !(found & LOCK_OVERDUE))
            weir_pause();
        else if ((found & mark) == mark || weir_cas(word, &found, found | mark))
            return false;
    }
}

bool weir_lock_inherit(uint32_t *word, uint32_t from, uint32_t owner)
{
    uint32_t found = weir_load(word);
    while ((found & LOCK_OWNER) == from) {
        if (weir_cas(word, &found, (found & ~LOCK_OWNER) | owner))
            return true;
    }
    return false;
}

void weir_lock_set_overdue(uint32_t *word)
{
    uint32_t found = weir_load_relaxed(word);
    /* If it fails, the lock has moved on. */
    if (found != 0)
        weir_cas(word, &found, found | LOCK_OVERDUE);
}

/* ---- The writer lock ---- */

bool weir_table_try_lock_as(struct weir_table *t, uint32_t process,
                            uint32_t mark)
{
    weir_assert(process < t->commons);
    return weir_lock_try(&t->writer, process + 1, mark);
}

bool weir_table_try_lock(struct weir_table *t)
{
    return weir_table_try_lock_as(t, 0, 0);
}

bool weir_table_try_lock_once(struct weir_table *t, uint32_t process)
{
    weir_assert(process < t->commons);
    return weir_lock_try_once(&t->writer, process + 1);
}

void weir_table_unlock(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    /* Relaxed: a hint (table.h). */
    if (weir_lock_release(t, &t->writer))
        weir_store_relaxed(&t->wake, 1);
}

void weir_table_set_overdue(struct weir_table *t)
{
    weir_lock_set_overdue(&t->writer);
}

bool weir_table_is_overdue(const struct weir_table *t)
{
    return weir_load_relaxed(&t->writer) & LOCK_OVERDUE;
}

/* ---- Waiting, for the process ---- */

const uint32_t *weir_table_released(const struct weir_table *t)
{
    return &t->released;
}

bool weir_table_wake(struct weir_table *t)
{
    return weir_load_relaxed(&t->wake) && weir_exchange(&t->wake, 0);
}
