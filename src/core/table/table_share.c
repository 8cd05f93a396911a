/* SPDX-License-Identifier: MIT
 * table/table_share.c - ownership in a table that processes share.
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
 * A process that learns of another's death (libweir/block.c; this file knows
 * processes only by their numbers) reaps it. Other code ignores these records:
 * a thread that finds a lock taken waits as ever, until its holder or a reaper
 * releases it.
 *
 * The reaper may die too, so each step can be repeated, and a step that is
 * complete leaves no trace to be repeated. Order: the locks first, with the
 * data that they guard, because other threads wait for them; then stripes, pins
 * and permits.
 *
 * After a killed writer. The switch has two copies (table_layout.h); states and
 * index entries change by single stores. Everything else is rebuilt from the
 * slots: the lists of free slots and of free chunks, the area, the order of
 * templates, and the number of references to a slot:
 *
 *     refs = children + templates that overflow into it + pins
 *
 * The lock goes from the dead process to the reaper in one swap, so no thread
 * sees a half-repaired table; if the reaper dies as well, it is the lock's
 * owner by then. Which quotas the writer would still have put is the sync's
 * task: it starts again with the whole set.
 *
 * After a killed taker. It charged the chain from the root down, so at worst
 * some quotas are charged for a request that was never served. A slot that it
 * was about to mark is marked with all that aren't settled.
 *
 * A reaper mustn't wait for a lock: its holder may have died just now, and
 * there may be no other process to break it. It tries for some time, and
 * repeats later.
 *
 * Rejected: a robust mutex of the C library. The kernel releases it, but after
 * an exec(), or for a thread that was never registered, the owner is unknown,
 * and a pure module can't wait in one. Rejected: locks with a time after which
 * they may be broken: a stopped process isn't dead. */

#include "core/table/table_layout.h"

#include <string.h>

/* Pins visited each time the lock is taken: some microseconds. */
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
    t->in_flight_at = at;
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
        .bucket_state_bytes = (uint64_t)t->area_units * AREA_UNIT,
    };
}

/* ---- Pins; under the lock ---- */

/* The place of the process's pin in the slot's list; it contains 0 if there is
 * none. */
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
    /* release: from now on it is a pin, in any list. */
    weir_store_release(&pin->count, 1);
    *place = number;
    return true;
}

/* Removes the pin at the place. */
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
    cold->refs -= count;
    t->barren_till = 0;
    if (cold->refs == 0)
        weir_slot_unpinned(t, pin->slot);
}

/* False: the lock was taken for long. */
static bool reap_pins(struct weir_table *t, uint32_t process, uint32_t by)
{
    uint32_t done = 0;
    bool more = true;
    while (more) {
        if (!weir_table_try_lock_as(t, by))
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

/* Marks the chunks of a chain as kept. A chunk that is marked already ends it:
 * the rest is marked too. */
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

static void reap_writer(struct weir_table *t, uint32_t process, uint32_t by)
{
    weir_table_mend_switch(t);
    weir_bucket_states_reap(t, process, by, true);
    mend_pins(t);
    mend_refs(t);
    weir_table_mend_slots(t);
    mend_chunks(t);
    weir_table_unlock(t);
}

/* ---- Reaping ---- */

static void reap_stripes(struct weir_table *t, uint32_t process)
{
    for (uint32_t i = t->commons; i < t->stripe_count; i++) {
        if (weir_load_relaxed(&weir_stripe(t, i)->owned) == process + 1)
            weir_table_release_stripe(t, i);
    }
}

static void reap_permits(struct weir_table *t, uint32_t process)
{
    uint32_t used = weir_table_used(t);
    for (uint32_t slot = 0; slot < used; slot++)
        weir_inflight_reap(t, slot, process);
}

void weir_table_reap_locks(struct weir_table *t, uint32_t process, uint32_t by)
{
    weir_assert(process < t->commons && by < t->commons);
    uint64_t dead = process + 1;
    /* The bucket states first: the repair may have to wait for their locks. */
    weir_bucket_states_reap(t, process, by, false);
    if (weir_load(&t->writer) == dead && weir_cas(&t->writer, &dead, by + 1))
        reap_writer(t, process, by);
}

bool weir_table_reap(struct weir_table *t, uint32_t process, uint32_t by)
{
    weir_assert(t->commons > 1);
    weir_table_reap_locks(t, process, by);
    reap_stripes(t, process);
    if (!reap_pins(t, process, by))
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
        bool told = all && count != 0;
        if (told || count != settled || weir_slot_has_permits(t, slot))
            weir_slot_mark(t, slot);
    }
}
