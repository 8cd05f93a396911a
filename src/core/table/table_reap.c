/* SPDX-License-Identifier: MIT
 * table/table_reap.c - clears what a dead process left in a shared table.
 *
 * Any process may be killed between two instructions. Its locks, pins and
 * permits would be lost to all for good, so each of them records its owner:
 *
 *     the writer lock    number + 1
 *     a bucket state's   stripe + 1; BY_WRITER if the owner holds the writer
 *       lock             lock
 *     a stripe           number + 1; the shared ones belong to one process
 *                        each
 *     a handle's pin     slot, number, how often
 *     a permit's units   a word for each number and slot
 *
 * A process that learns of another's death (libweir/libweir_block.c; this file
 * knows processes only by their numbers) reaps it. Other code ignores these
 * records: a thread that finds a lock taken gives up after a while
 * (table_lock.c), whether its holder is dead, stopped or slow. A reaper's
 * release wakes the threads that wait, as the holder's would.
 *
 * The reaper may die too, so each step can be repeated, and a step that is
 * complete leaves no trace to be repeated. Order: the locks first, with the
 * data that they guard, because other threads wait for them; then stripes, pins
 * and permits.
 *
 * After a killed writer (table_mend.c). The lock goes from the dead process to
 * the reaper in one swap, so no thread sees a half-repaired table; if the
 * reaper dies as well, it is the lock's owner by then. Which quotas the writer
 * would still have put is the sync's task: it starts again with the whole set.
 *
 * After a killed taker. It charged the chain from the root down, so at worst
 * some quotas are charged for a request that was never served. A slot that it
 * was about to mark is marked with all that aren't settled.
 *
 * A reaper mustn't wait for a lock: its holder may have died just now, and
 * there may be no other process to break it. It tries, and repeats later.
 *
 * Rejected: a robust mutex of the C library. The kernel releases it, but after
 * an exec(), or for a thread that was never registered, the owner is unknown,
 * and a pure module can't wait in one. Rejected: locks with a time after which
 * they may be broken: a stopped process isn't dead. */

#include "core/table/table_share.h"

#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_switch_internal.h"

static void reap_writer(struct weir_table *t, uint32_t process, uint32_t by)
{
    weir_assert((weir_load_relaxed(&t->writer) & LOCK_OWNER) == by + 1);
    weir_table_mend_switch(t);
    weir_bucket_states_reap(t, process, by, true);
    weir_table_mend_shared(t);
    weir_table_unlock(t);
}

static void reap_stripes(struct weir_table *t, uint32_t process)
{
    weir_assert(process < t->commons);
    for (uint32_t i = t->commons; i < t->stripe_count; i++) {
        if (weir_load_relaxed(&weir_stripe(t, i)->owned) == process + 1)
            weir_table_release_stripe(t, i);
    }
}

static void reap_permits(struct weir_table *t, uint32_t process)
{
    weir_assert(process < t->commons);
    uint32_t used = weir_table_used(t);
    for (uint32_t slot = 0; slot < used; slot++)
        weir_inflight_reap(t, slot, process);
}

void weir_table_reap_locks(struct weir_table *t, uint32_t process, uint32_t by)
{
    weir_assert(process < t->commons && by < t->commons);
    /* The bucket states first: callers wait for them, and the repair of the
     * writer's data tries their locks only once. */
    weir_bucket_states_reap(t, process, by, false);
    if (weir_lock_inherit(&t->writer, process + 1, by + 1))
        reap_writer(t, process, by);
}

bool weir_table_reap(struct weir_table *t, uint32_t process, uint32_t by)
{
    weir_assert(by < t->commons);
    weir_assert(t->commons > 1);
    weir_table_reap_locks(t, process, by);
    reap_stripes(t, process);
    if (!weir_pins_reap(t, process, by))
        return false;
    reap_permits(t, process);
    weir_table_mark_unsettled(t, false);
    return true;
}

void weir_table_mark_unsettled(struct weir_table *t, bool all)
{
    uint32_t used = weir_table_used(t);
    for (uint32_t slot = 0; slot < used; slot++) {
        uint64_t count = weir_table_count(t, slot);
        uint64_t settled = weir_load_relaxed(&weir_cold(t, slot)->settled);
        bool is_counted = all && count != 0;
        if (is_counted || count != settled || weir_slot_has_permits(t, slot))
            weir_slot_mark(t, slot);
    }
}
