/* SPDX-License-Identifier: MIT
 * libweir/libweir_unpin.c - gives the slots of closed handles back.
 *
 * That needs the writer lock. If another thread has it for too long, the slot
 * goes to a list, and the next turn of one of the library's threads, or the
 * next handle, gives it back. A slot stays pinned until then, so its ref stays
 * valid. The list is never longer than the number of handles that were open. */

#include <stdlib.h>

#include "core/base/atomic.h"
#include "core/table/table_share.h"
#include "libweir/libweir_decide.h"

/* Room of the list at first; doubled when it is full. */
#define LATE_FIRST 16

/* False: no memory; the slot stays pinned. */
static bool note_late(struct weir_unpins *unpins, struct weir_ref ref)
{
    if (unpins->count == unpins->room) {
        uint32_t room = unpins->room ? 2 * unpins->room : LATE_FIRST;
        struct weir_ref *late =
            realloc(unpins->late, room * sizeof(*unpins->late));
        if (!late)
            return false;
        unpins->late = late;
        unpins->room = room;
    }
    unpins->late[unpins->count] = ref;
    weir_store_relaxed(&unpins->count, unpins->count + 1);
    return true;
}

void weir_unpin(struct weir *weir, struct weir_ref ref)
{
    struct weir_unpins *unpins = &weir->unpins;
    bool unpinned;
    struct weir_lock_wait wait;
    weir_lock_wait_begin(weir, &wait, weir_handle_wait(weir));
    do {
        unpinned = weir_table_unpin_as(weir->table, weir->process, ref);
    } while (!unpinned && weir_lock_wait(weir, &wait));
    if (unpinned)
        return;
    pthread_mutex_lock(&unpins->mutex);
    (void)note_late(unpins, ref);
    pthread_mutex_unlock(&unpins->mutex);
}

void weir_unpin_late(struct weir *weir)
{
    struct weir_unpins *unpins = &weir->unpins;
    /* Relaxed: a slot just listed waits for the next turn. */
    if (WEIR_LIKELY(weir_load_relaxed(&unpins->count) == 0))
        return;
    pthread_mutex_lock(&unpins->mutex);
    uint32_t count = unpins->count;
    while (count > 0 && weir_table_unpin_as(weir->table, weir->process,
                                            unpins->late[count - 1]))
        count--;
    weir_store_relaxed(&unpins->count, count);
    pthread_mutex_unlock(&unpins->mutex);
}

void weir_unpins_init(struct weir_unpins *unpins)
{
    *unpins = (struct weir_unpins){ .count = 0 };
    pthread_mutex_init(&unpins->mutex, NULL);
}

void weir_unpins_fini(struct weir_unpins *unpins)
{
    free(unpins->late);
}
