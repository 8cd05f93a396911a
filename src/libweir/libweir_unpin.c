/* SPDX-License-Identifier: MIT
 * libweir/libweir_unpin.c - gives the slots of closed handles back, and pins
 * those that a child of fork() inherits.
 *
 * That needs the writer lock. If another thread has it for too long, the slot
 * goes to a list, and the next turn of one of the library's threads, or the
 * next handle, gives it back. A slot stays pinned until then, so its ref stays
 * valid. The list is never longer than the number of handles that were open.
 *
 * On a shared table, a child of fork() has to pin the slots of its parent's
 * handles once more. Its first call, perhaps a decision, tries that once; the
 * next turn tries again. Until it is done the child gives no slot back: it may
 * not have pinned it yet. If the parent closes a handle earlier, the child's is
 * stale. */

#include <stdlib.h>

#include "core/base/atomic.h"
#include "core/table/table_share.h"
#include "io/clock.h"
#include "libweir/libweir_decide.h"

/* False: no memory; the slot stays pinned. */
static bool note_late(struct weir_unpins *unpins, struct weir_ref ref)
{
    struct weir_ref *late =
        weir_mem_grow(&weir_mem_system, unpins->late, sizeof(*late),
                      &unpins->room, unpins->count + 1);
    if (!late)
        return false;
    unpins->late = late;
    unpins->late[unpins->count] = ref;
    weir_store_relaxed(&unpins->count, unpins->count + 1);
    return true;
}

/* False: another thread has the writer lock. */
static bool try_inherit(struct weir *weir)
{
    struct weir_unpins *unpins = &weir->unpins;
    if (unpins->parent == 0)
        return true;
    if (!weir_table_inherit_pins(weir->table, unpins->parent, weir->process))
        return false;
    weir_store_relaxed(&unpins->parent, 0);
    return true;
}

void weir_pins_inherit(struct weir *weir, uint32_t parent)
{
    struct weir_unpins *unpins = &weir->unpins;
    weir_assert(parent != 0 && parent != weir->process);
    pthread_mutex_lock(&unpins->mutex);
    /* A parent that has not inherited its own parent's pins has none. */
    if (unpins->parent == 0)
        weir_store_relaxed(&unpins->parent, parent);
    (void)try_inherit(weir);
    pthread_mutex_unlock(&unpins->mutex);
}

void weir_unpin(struct weir *weir, struct weir_ref ref)
{
    struct weir_unpins *unpins = &weir->unpins;
    /* Relaxed: if it was done just now, the next turn unpins the slot. */
    bool ready = weir_load_relaxed(&unpins->parent) == 0;
    struct weir_lock_wait wait;
    weir_lock_wait_begin(weir, &wait, ready ? weir_handle_wait(weir) : 0);
    do {
        if (ready && weir_table_unpin_as(weir->table, weir->process, ref))
            return;
    } while (weir_lock_wait(weir, &wait));
    pthread_mutex_lock(&unpins->mutex);
    (void)note_late(unpins, ref);
    pthread_mutex_unlock(&unpins->mutex);
}

void weir_unpin_late(struct weir *weir)
{
    struct weir_unpins *unpins = &weir->unpins;
    /* Relaxed: a slot just listed waits for the next turn. */
    if (WEIR_LIKELY(weir_load_relaxed(&unpins->count) == 0 &&
                    weir_load_relaxed(&unpins->parent) == 0))
        return;
    pthread_mutex_lock(&unpins->mutex);
    bool ready = try_inherit(weir);
    uint32_t count = unpins->count;
    while (ready && count > 0 &&
           weir_table_unpin_as(weir->table, weir->process,
                               unpins->late[count - 1]))
        count--;
    weir_store_relaxed(&unpins->count, count);
    pthread_mutex_unlock(&unpins->mutex);
}

void weir_unpins_init(struct weir_unpins *unpins)
{
    *unpins = (struct weir_unpins){ .parent = unpins->parent };
    pthread_mutex_init(&unpins->mutex, NULL);
}

void weir_unpins_fini(struct weir_unpins *unpins)
{
    free(unpins->late);
}
