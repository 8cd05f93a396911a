/* SPDX-License-Identifier: MIT
 * libweir/libweir_exact_leave.c - takes permits out of the stores of exact
 * quotas.
 *
 * The address of a quota's store is in its rule, under the lock of its bucket
 * state. A leave waits for that lock as a decision does, and then notes the
 * permit in a list. So does an undo, which doesn't wait. Each later enter or
 * leave that comes to a store first takes one permit of the list out. The slot
 * may have another quota by then, so the list has names. A permit whose quota
 * is no longer there, that is in the list when the limiter closes, or for which
 * the list has no room (LATE_MAX), ends at the store by its permit_timeout. */

#include <string.h>

#include "core/base/atomic.h"
#include "io/clock.h"
#include "libweir/libweir_decide.h"

#define LATE_MAX 65536 /* permits in the list */

struct weir_late_leave {
    uint64_t permit, weight;
    size_t len;
    char name[WEIR_NAME_MAX + 1];
};

/* ---- The list ---- */

/* False: the list is full, or there is no memory. */
static bool make_room(struct weir_late_leaves *late)
{
    if (late->count == LATE_MAX)
        return false;
    struct weir_late_leave *leave =
        weir_mem_grow(&weir_mem_system, late->leave, sizeof(*late->leave),
                      &late->room, late->count + 1);
    if (leave)
        late->leave = leave;
    return leave;
}

static void note_late(struct weir *weir, const struct weir_late_leave *leave)
{
    struct weir_late_leaves *late = &weir->exact.late;
    pthread_mutex_lock(&late->mutex);
    if (make_room(late)) {
        late->leave[late->count] = *leave;
        weir_store_relaxed(&late->count, late->count + 1);
    }
    pthread_mutex_unlock(&late->mutex);
}

/* False: the list is empty. */
static bool take_late(struct weir *weir, struct weir_late_leave *out)
{
    struct weir_late_leaves *late = &weir->exact.late;
    /* Relaxed: a permit just noted waits for the next call. */
    if (WEIR_LIKELY(weir_load_relaxed(&late->count) == 0))
        return false;
    pthread_mutex_lock(&late->mutex);
    uint32_t count = late->count;
    if (count > 0) {
        *out = late->leave[count - 1];
        weir_store_relaxed(&late->count, count - 1);
    }
    pthread_mutex_unlock(&late->mutex);
    return count > 0;
}

/* ---- Leaves ---- */

static void step_leave(struct weir *weir, const struct weir_away *away,
                       uint64_t permit, uint64_t weight)
{
    const struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_REFUND,
                                            .weight = weight,
                                            .permit = permit };
    struct weir_algorithm_answer ignored;
    if (away->rule.algorithm == WEIR_PERMITS)
        (void)weir_exact_step(weir, away, &ask, &ignored);
}

static int find_record(struct weir *weir, uint32_t slot, struct weir_away *out)
{
    unsigned wake = 0;
    int error = weir_table_away_record(weir->table, weir_stripe_mine(weir),
                                       slot, out, &wake);
    weir_verdict_of(weir, wake);
    return error;
}

void weir_exact_leave_later(struct weir *weir, uint32_t slot, uint64_t permit,
                            uint64_t weight)
{
    struct weir_late_leave leave = { .permit = permit, .weight = weight };
    leave.len = weir_table_name(weir->table, slot, leave.name);
    note_late(weir, &leave);
}

void weir_exact_leave_late(struct weir *weir)
{
    struct weir_late_leave leave;
    struct weir_away away;
    struct weir_ref ref;
    if (WEIR_LIKELY(!take_late(weir, &leave)))
        return;
    struct weir_text name = { leave.name, leave.len };
    if (!weir_table_find(weir->table, name, &ref))
        return;
    int error = find_record(weir, ref.slot, &away);
    if (error == WEIR_ETIMEOUT)
        note_late(weir, &leave);
    else if (error == 0 &&
             weir_text_equal(name,
                             (struct weir_text){ away.name, away.name_len }))
        step_leave(weir, &away, leave.permit, leave.weight);
}

void weir_exact_leave(struct weir *weir,
                      const struct weir_permit_record *record, uint64_t permit)
{
    weir_assert(permit != 0);
    struct weir_call call = weir_call_at(0);
    weir_exact_leave_late(weir);
    for (uint32_t i = 0; i < record->links; i++) {
        struct weir_away away;
        int error;
        do {
            error = find_record(weir, record->slot[i], &away);
        } while (error == WEIR_ETIMEOUT && weir_call_wait(weir, &call, false));
        if (error == WEIR_ETIMEOUT)
            weir_exact_leave_later(weir, record->slot[i], permit,
                                   record->weight);
        else if (error == 0)
            step_leave(weir, &away, permit, record->weight);
    }
}
