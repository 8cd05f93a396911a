/* SPDX-License-Identifier: MIT
 * table/table_pin.c - pins: handles that keep their slots. In a table that
 * processes share, each pin records its process, for the reaper. */

#include "core/table/table_grow_internal.h"
#include "core/table/table_read.h"
#include "core/table/table_shadow_internal.h"
#include "core/table/table_share.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_switch_internal.h"

/* Pins visited each time the lock is taken: some microseconds. */
#define PINS_A_HOLD 64

/* The first pin of a slot: its index + 1, or 0. */
static uint32_t *first_pin(const struct weir_table *t, uint32_t slot)
{
    return (uint32_t *)weir_table_at(t, t->pinned_at) + slot;
}

/* ---- A process's pins; under the lock ---- */

/* The place of the process's pin in the slot's list; it contains 0 if there is
 * none. */
static uint32_t *pin_place(struct weir_table *t, uint32_t process,
                           uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(slot < t->slots);
    uint32_t *place = first_pin(t, slot);
    while (*place != 0 && weir_pin(t, *place - 1)->process != process)
        place = &weir_pin(t, *place - 1)->next;
    return place;
}

static uint32_t pin_take(struct weir_table *t)
{
    weir_assert(t->pin_used <= t->pin_count);
    uint32_t number = t->pin_free;
    if (number != 0)
        t->pin_free = weir_pin(t, number - 1)->next;
    else if (t->pin_used < WEIR_TABLE_PINS(weir_load_acquire(&t->committed)))
        number = ++t->pin_used;
    else
        weir_table_note_short(t);
    weir_assert(number <= t->pin_used);
    return number;
}

bool weir_share_pin(struct weir_table *t, uint32_t process, uint32_t slot)
{
    weir_assert(process < t->commons);
    if (t->commons == 1)
        return true;
    uint32_t *place = pin_place(t, process, slot);
    if (*place != 0) {
        struct pin *pin = weir_pin(t, *place - 1);
        weir_store_relaxed(&pin->count, pin->count + 1);
        return true;
    }
    uint32_t number = pin_take(t);
    if (number == 0)
        return false;
    struct pin *pin = weir_pin(t, number - 1);
    pin->slot = slot;
    pin->process = process;
    pin->next = 0;
    /* release: from now on it is a pin, in any list. */
    weir_store_release(&pin->count, 1);
    *place = number;
    return true;
}

/* Removes the pin at the place. */
static void pin_drop(struct weir_table *t, uint32_t *place)
{
    weir_assert(*place != 0 && *place <= t->pin_used);
    uint32_t number = *place;
    struct pin *pin = weir_pin(t, number - 1);
    weir_store_release(&pin->count, 0);
    *place = pin->next;
    pin->next = t->pin_free;
    t->pin_free = number;
}

bool weir_share_unpin(struct weir_table *t, uint32_t process, uint32_t slot)
{
    weir_assert(process < t->commons);
    if (t->commons == 1)
        return true;
    uint32_t *place = pin_place(t, process, slot);
    if (*place == 0)
        return false;
    struct pin *pin = weir_pin(t, *place - 1);
    if (pin->count > 1)
        weir_store_relaxed(&pin->count, pin->count - 1);
    else
        pin_drop(t, place);
    return true;
}

/* ---- Handles ---- */

/* The marks make the roots send fills of a pinned slot before its first
 * request. */
static void pin_slot(struct weir_table *t, struct weir_ref ref,
                     weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(weir_cold(t, ref.slot)->state > WEIR_SLOT_MAKING);
    weir_cold_refer(weir_cold(t, ref.slot), 1);
    weir_table_mark_chain(t, ref.slot);
    weir_shadow_meet(t, ref, now);
}

enum weir_resolved weir_table_pin_as(struct weir_table *t, uint32_t process,
                                     struct weir_text name,
                                     struct weir_ref *out, weir_instant now)
{
    if (name.len == 0)
        return WEIR_RESOLVED_NONE;
    if (!weir_table_try_lock_as(t, process, LOCK_AWAITED))
        return WEIR_RESOLVED_CONTENDED;
    enum weir_resolved resolved =
        weir_table_resolve_locked(t, name, true, out, now);
    if (weir_is_resolved(resolved)) {
        if (weir_share_pin(t, process, out->slot))
            pin_slot(t, *out, now);
        else
            resolved = WEIR_RESOLVED_FULL;
    }
    weir_table_unlock(t);
    return resolved;
}

bool weir_table_unpin_as(struct weir_table *t, uint32_t process,
                         struct weir_ref ref)
{
    if (!weir_table_try_lock_as(t, process, LOCK_AWAITED))
        return false;
    if (ref.slot < t->slots &&
        weir_hot(t, ref.slot)->generation == ref.generation &&
        weir_share_unpin(t, process, ref.slot))
        weir_slot_unref(t, ref.slot);
    weir_table_unlock(t);
    return true;
}

enum weir_resolved weir_table_pin(struct weir_table *t, struct weir_text name,
                                  struct weir_ref *out, weir_instant now)
{
    return weir_table_pin_as(t, 0, name, out, now);
}

bool weir_table_unpin(struct weir_table *t, struct weir_ref ref)
{
    return weir_table_unpin_as(t, 0, ref);
}

static void inherit_pin(struct weir_table *t, const struct pin *from,
                        uint32_t child)
{
    uint32_t slot = from->slot;
    uint32_t count = from->count;
    weir_assert(weir_table_is_locked(t));
    weir_assert(from->count > 0);
    for (; count > 0 && weir_share_pin(t, child, slot); count--)
        weir_cold_refer(weir_cold(t, slot), 1);
}

bool weir_table_inherit_pins(struct weir_table *t, uint32_t parent,
                             uint32_t child)
{
    weir_assert(t->commons > 1);
    weir_assert(parent != child);
    if (!weir_table_try_lock_as(t, child, LOCK_AWAITED))
        return false;
    uint32_t used = t->pin_used;
    for (uint32_t i = 0; i < used; i++) {
        const struct pin *pin = weir_pin(t, i);
        if (pin->count > 0 && pin->process == parent)
            inherit_pin(t, pin, child);
    }
    weir_table_unlock(t);
    return true;
}

/* ---- After a process that has gone ---- */

/* Removes a pin with all its counts. A placeholder left without references
 * isn't freed here, because a reaper must not wait for a bucket state's lock:
 * the sweep frees it. */
static void pin_reap(struct weir_table *t, uint32_t number)
{
    const struct pin *pin = weir_pin(t, number - 1);
    struct cold *cold = weir_cold(t, pin->slot);
    uint32_t count = pin->count;
    uint32_t *place = pin_place(t, pin->process, pin->slot);
    weir_assert(*place == number && cold->refs >= count);
    pin_drop(t, place);
    weir_cold_refer(cold, -(int64_t)count);
    t->barren_till = 0;
    if (cold->refs == 0)
        weir_slot_unpinned(t, pin->slot);
}

/* False: the lock was taken for long. */
bool weir_pins_reap(struct weir_table *t, uint32_t process, uint32_t by)
{
    weir_assert(process < t->commons && by < t->commons);
    uint32_t done = 0;
    bool more = true;
    while (more) {
        if (!weir_table_try_lock_as(t, by, 0))
            return false;
        for (uint32_t i = 0; i < PINS_A_HOLD && done < t->pin_used; i++) {
            const struct pin *pin = weir_pin(t, done++);
            if (pin->count > 0 && pin->process == process)
                pin_reap(t, done);
        }
        more = done < t->pin_used;
        weir_table_unlock(t);
    }
    return true;
}

void weir_pins_mend(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->pin_used <= t->pin_count);
    for (uint32_t slot = 0; slot < t->used; slot++)
        *first_pin(t, slot) = 0;
    t->pin_free = 0;
    for (uint32_t number = t->pin_used; number > 0; number--) {
        struct pin *pin = weir_pin(t, number - 1);
        uint32_t *head =
            pin->count > 0 ? first_pin(t, pin->slot) : &t->pin_free;
        pin->next = *head;
        *head = number;
    }
}
