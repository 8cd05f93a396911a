/* SPDX-License-Identifier: MIT
 * quota/table_share.c - what of a table is whose, when processes share it.
 *
 * Any of them may be killed between two instructions. What it had in the table
 * would be lost to all for good, so everything that somebody can have says
 * whose it is:
 *
 *     the writer lock    number + 1
 *     a meter's lock     stripe + 1; by who holds the writer lock: that
 *     a stripe           number + 1; and one a process without saying
 *     a handle's hold    a pin: slot, number, how often
 *     a permit's units   a word for each number and slot
 *
 * and who learns that a process is gone (client/block.c; nothing here knows of
 * processes but their numbers) buries it. Nobody else looks at these marks:
 * who finds a lock taken waits as ever, until its holder or a gravedigger
 * lets go of it.
 *
 * Burying may be cut short by the death of who does it, so that each step can
 * be made twice, and is done when it can't be seen any more. The order: the
 * locks first, with what they guard, because they are waited for; then what is
 * only held.
 *
 * What a killed writer leaves. The switch has two copies (table_layout.h);
 * states and index entries go by single stores. Everything else is made anew
 * from what the slots say: the lists of free slots and of free chunks, the
 * area, the order of templates, and how often a slot is referred to:
 *
 *     refs = children + templates that overflow into it + pins
 *
 * The lock goes from the dead to the gravedigger in one swap, so nobody sees
 * the table half done; should that one die as well, the lock is his by then.
 * Which quotas the writer would have put is the sync's: it begins with the
 * whole set.
 *
 * What a killed taker leaves. It charged the chain from the root down, so at
 * worst some quotas are charged for a request that nobody served. A slot that
 * it was about to mark is marked with all that isn't settled.
 *
 * Who buries mustn't wait for a lock whose holder may have died just now:
 * nobody else might be there to break it. So it tries for some time, and comes
 * again.
 *
 * Rejected: a robust mutex of the C library. The kernel gives it back, but
 * threads that exec()ed or were never told of it don't say whose it was, and a
 * pure room can't wait in one. Rejected: locks that carry a time after which
 * they may be broken: a process that is stopped isn't dead. */

#include "quota/table_layout.h"

#include <string.h>

/* Pins looked at in one hold of the lock: some microseconds. */
#define PINS_A_HOLD 64

static uint64_t line_aligned(uint64_t bytes)
{
    return (bytes + WEIR_CACHE_LINE - 1) & ~(uint64_t)(WEIR_CACHE_LINE - 1);
}

static uint64_t kept_words(const struct weir_table *t)
{
    return (t->chunk_count + 63) / 64;
}

uint64_t weir_share_lay_out(struct weir_table *t, uint64_t at)
{
    t->pin_count = WEIR_TABLE_PINS(t->slots);
    t->pins_at = at;
    at += (uint64_t)t->pin_count * sizeof(struct pin);
    t->pinned_at = at;
    at = line_aligned(at + (uint64_t)t->slots * sizeof(uint32_t));
    t->kept_at = at;
    at = line_aligned(at + kept_words(t) * sizeof(uint64_t));
    t->holds_at = at;
    return at + (uint64_t)t->slots * t->commons * sizeof(uint64_t);
}

void weir_table_shape(const struct weir_table *t,
                      struct weir_table_options *out)
{
    *out = (struct weir_table_options){
        .slots = t->slots,
        .stripes = t->stripe_count,
        .processes = t->commons,
        .seed = t->seed,
        .meter_bytes = (uint64_t)t->area_units * AREA_UNIT,
    };
}

/* ---- Pins; under the lock ---- */

/* The place that says which pin is the process's; 0 is in it if none is. */
static uint32_t *pin_place(struct weir_table *t, uint32_t process,
                           uint32_t slot)
{
    uint32_t *place = weir_pinned(t, slot);
    while (*place != 0 && weir_pin(t, *place - 1)->process != process)
        place = &weir_pin(t, *place - 1)->next;
    return place;
}

static uint32_t pin_take(struct weir_table *t)
{
    uint32_t number = t->pin_free;
    if (number != 0)
        t->pin_free = weir_pin(t, number - 1)->next;
    else if (t->pin_used < t->pin_count)
        number = ++t->pin_used;
    return number;
}

bool weir_share_pin(struct weir_table *t, uint32_t process, uint32_t slot)
{
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
    /* release: from now on it is a pin, in whatever list. */
    weir_store_release(&pin->count, 1);
    *place = number;
    return true;
}

/* Takes the pin at the place out. */
static void pin_drop(struct weir_table *t, uint32_t *place)
{
    uint32_t number = *place;
    struct pin *pin = weir_pin(t, number - 1);
    weir_store_release(&pin->count, 0);
    *place = pin->next;
    pin->next = t->pin_free;
    t->pin_free = number;
}

bool weir_share_unpin(struct weir_table *t, uint32_t process, uint32_t slot)
{
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

/* All that a process holds by a pin. A placeholder that nobody holds by then
 * isn't freed here, where nothing may wait for a meter's lock: the sweep does.
 */
static void pin_bury(struct weir_table *t, uint32_t number)
{
    const struct pin *pin = weir_pin(t, number - 1);
    struct cold *cold = weir_cold(t, pin->slot);
    uint32_t count = pin->count;
    uint32_t *place = pin_place(t, pin->process, pin->slot);
    weir_assert(*place == number && cold->refs >= count);
    pin_drop(t, place);
    cold->refs -= count;
    t->barren_till = 0;
    if (cold->refs == 0)
        weir_slot_unpinned(t, pin->slot);
}

/* False: the lock was taken for long. */
static bool bury_pins(struct weir_table *t, uint32_t process, uint32_t by)
{
    uint32_t done = 0;
    bool more = true;
    while (more) {
        if (!weir_table_try_lock_as(t, by))
            return false;
        for (uint32_t i = 0; i < PINS_A_HOLD && done < t->pin_used; i++) {
            const struct pin *pin = weir_pin(t, done++);
            if (pin->count > 0 && pin->process == process)
                pin_bury(t, done);
        }
        more = done < t->pin_used;
        weir_table_unlock(t);
    }
    return true;
}

static void inherit_pin(struct weir_table *t, const struct pin *from,
                        uint32_t child)
{
    uint32_t slot = from->slot;
    uint32_t count = from->count;
    for (; count > 0 && weir_share_pin(t, child, slot); count--)
        weir_cold(t, slot)->refs++;
}

void weir_table_inherit_pins(struct weir_table *t, uint32_t parent,
                             uint32_t child)
{
    weir_table_lock_as(t, child);
    uint32_t used = t->pin_used;
    for (uint32_t i = 0; i < used; i++) {
        const struct pin *pin = weir_pin(t, i);
        if (pin->count > 0 && pin->process == parent)
            inherit_pin(t, pin, child);
    }
    weir_table_unlock(t);
}

/* ---- After a killed writer; under its lock ---- */

static void mend_pins(struct weir_table *t)
{
    for (uint32_t slot = 0; slot < t->used; slot++)
        *weir_pinned(t, slot) = 0;
    t->pin_free = 0;
    for (uint32_t number = t->pin_used; number > 0; number--) {
        struct pin *pin = weir_pin(t, number - 1);
        uint32_t *head =
            pin->count > 0 ? weir_pinned(t, pin->slot) : &t->pin_free;
        pin->next = *head;
        *head = number;
    }
}

static void refer(struct weir_table *t, uint32_t slot, uint32_t times)
{
    if (slot < t->used)
        weir_cold(t, slot)->refs += times;
}

static void mend_refs(struct weir_table *t)
{
    for (uint32_t slot = 0; slot < t->used; slot++)
        weir_cold(t, slot)->refs = 0;
    for (uint32_t slot = 0; slot < t->used; slot++) {
        const struct cold *cold = weir_cold(t, slot);
        if (cold->state == WEIR_SLOT_FREE)
            continue;
        refer(t, weir_parent(weir_hot(t, slot)), 1);
        if (cold->state == WEIR_SLOT_TEMPLATE)
            refer(t, cold->rule, 1);
    }
    for (uint32_t i = 0; i < t->pin_used; i++)
        refer(t, weir_pin(t, i)->slot, weir_pin(t, i)->count);
}

/* Chunks that a chain keeps. One that is kept already ends it: the rest is. */
static void keep_chain(struct weir_table *t, uint32_t first)
{
    uint64_t *kept = weir_table_at(t, t->kept_at);
    while (first < t->chunk_used) {
        uint64_t bit = (uint64_t)1 << (first % 64);
        if (kept[first / 64] & bit)
            return;
        kept[first / 64] |= bit;
        first = weir_chunk(t, first)->next;
    }
}

static void gather_free_chunks(struct weir_table *t)
{
    const uint64_t *kept = weir_table_at(t, t->kept_at);
    t->chunk_head = CHUNK_NONE;
    for (uint32_t i = 0; i < t->chunk_used; i++) {
        if (kept[i / 64] >> (i % 64) & 1)
            continue;
        weir_store_relaxed(&weir_chunk(t, i)->next, t->chunk_head);
        t->chunk_head = i;
    }
}

static void mend_chunks(struct weir_table *t)
{
    memset(weir_table_at(t, t->kept_at), 0, kept_words(t) * sizeof(uint64_t));
    for (uint32_t slot = 0; slot < t->used; slot++) {
        const struct cold *cold = weir_cold(t, slot);
        if (cold->state == WEIR_SLOT_FREE)
            continue;
        keep_chain(t, weir_name(t, slot)->more);
        keep_chain(t, cold->aux);
    }
    gather_free_chunks(t);
}

static void bury_writer(struct weir_table *t, uint32_t process, uint32_t by)
{
    weir_table_mend_switch(t);
    weir_meters_bury(t, process, by, true);
    mend_pins(t);
    mend_refs(t);
    weir_table_mend_slots(t);
    mend_chunks(t);
    weir_table_unlock(t);
}

/* ---- Burying ---- */

static void bury_stripes(struct weir_table *t, uint32_t process)
{
    for (uint32_t i = t->commons; i < t->stripe_count; i++) {
        if (weir_load_relaxed(&weir_stripe(t, i)->owned) == process + 1)
            weir_table_release_stripe(t, i);
    }
}

static void bury_holds(struct weir_table *t, uint32_t process)
{
    uint32_t used = weir_table_used(t);
    for (uint32_t slot = 0; slot < used; slot++)
        weir_gauge_bury(t, slot, process);
}

void weir_table_bury_locks(struct weir_table *t, uint32_t process, uint32_t by)
{
    weir_assert(process < t->commons && by < t->commons);
    uint64_t dead = process + 1;
    /* The meters first: who mends may have to wait for them. */
    weir_meters_bury(t, process, by, false);
    if (weir_load(&t->writer) == dead && weir_cas(&t->writer, &dead, by + 1))
        bury_writer(t, process, by);
}

bool weir_table_bury(struct weir_table *t, uint32_t process, uint32_t by)
{
    weir_assert(t->commons > 1);
    weir_table_bury_locks(t, process, by);
    bury_stripes(t, process);
    if (!bury_pins(t, process, by))
        return false;
    bury_holds(t, process);
    weir_table_mark_unsettled(t, false);
    return true;
}

void weir_table_mark_unsettled(struct weir_table *t, bool all)
{
    uint32_t used = weir_table_used(t);
    for (uint32_t slot = 0; slot < used; slot++) {
        uint64_t count = weir_table_count(t, slot);
        uint64_t settled = weir_load_relaxed(&weir_cold(t, slot)->settled);
        bool told = all && count != 0;
        if (told || count != settled || weir_slot_is_held(t, slot))
            weir_slot_mark(t, slot);
    }
}
