/* SPDX-License-Identifier: MIT
 * table/table_mend.c - repairs after a writer was killed; under its lock.
 *
 * The switch has two copies (table_switch.c); states and index entries change
 * by single stores. Everything else is rebuilt from the slots: the lists of
 * free slots and of free chunks, the area, the order of templates, and the
 * number of references to a slot:
 *
 *     refs = children + templates that overflow into it + pins */

#include <string.h>

#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_index.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_read.h"
#include "core/table/table_shadow_internal.h"
#include "core/table/table_share.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_switch_internal.h"

/* Whether a life that the writer was ending has to go on. As weir_slot_evict()
 * checks again after it has ended a life. */
static bool must_go_on(struct weir_table *t, uint32_t slot)
{
    return weir_slot_has_permits(t, slot) || !weir_bucket_state_seize(t, slot);
}

/* Frees slots with a life that it had not begun, or not fully ended. Nothing
 * refers to them: only live slots get children and pins. A slot that was being
 * made has no bucket state (table_bucket_state.c), so it is freed even if a
 * request that found it in its last life has the lock of that state. */
static void clear_half_lives(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    for (uint32_t slot = 0; slot < t->used; slot++) {
        uint8_t state = weir_cold(t, slot)->state;
        bool alive = weir_hot(t, slot)->generation & 1;
        if (alive || state == WEIR_SLOT_FREE)
            continue;
        if (state != WEIR_SLOT_MAKING && must_go_on(t, slot)) {
            weir_slot_publish(t, slot);
            continue;
        }
        weir_templates_edit(t);
        weir_templates_remove(t, slot);
        weir_templates_edited(t);
        weir_slot_free(t, slot);
        weir_bucket_state_unseize(t, slot);
    }
}

/* Rebuilds the list: a slot may have been on its way to or from it. */
static void gather_free_slots(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->used <= weir_load_relaxed(&t->committed));
    uint32_t live = 0;
    t->free_head = WEIR_SLOT_NONE;
    for (uint32_t slot = 0; slot < t->used; slot++) {
        struct cold *cold = weir_cold(t, slot);
        if (cold->state != WEIR_SLOT_FREE) {
            live++;
            continue;
        }
        cold->aux = t->free_head;
        t->free_head = slot;
    }
    weir_store_relaxed(&t->live, live);
    weir_shadow_recount(t);
    weir_assert(live <= t->used);
}

void weir_table_break_lock(struct weir_table *t)
{
    bool held = weir_load_relaxed(&t->writer) != 0;
    if (held)
        weir_table_mend_switch(t);
    weir_bucket_states_mend(t);
    if (!held)
        return;
    weir_templates_mend(t);
    weir_name_index_mend(t);
    clear_half_lives(t);
    gather_free_slots(t);
    weir_gate_slots_mend(t);
    weir_table_unlock(t);
}

/* ---- In a table that processes share ---- */

static void refer(struct weir_table *t, uint32_t slot, uint32_t times)
{
    if (slot < t->used)
        weir_cold_refer(weir_cold(t, slot), times);
}

static void mend_refs(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    for (uint32_t slot = 0; slot < t->used; slot++)
        weir_store_relaxed(&weir_cold(t, slot)->refs, 0);
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
    weir_assert(t->chunk_used <= t->chunk_count);
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
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->kept_at != 0);
    memset(weir_table_at(t, t->kept_at), 0,
           (t->chunk_used + 63) / 64 * sizeof(uint64_t));
    for (uint32_t slot = 0; slot < t->used; slot++) {
        const struct cold *cold = weir_cold(t, slot);
        if (cold->state == WEIR_SLOT_FREE)
            continue;
        keep_chain(t, weir_name(t, slot)->more);
        keep_chain(t, cold->aux);
    }
    gather_free_chunks(t);
}

void weir_table_mend_shared(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->commons > 1);
    weir_pins_mend(t);
    mend_refs(t);
    weir_templates_mend(t);
    weir_name_index_mend(t);
    clear_half_lives(t);
    gather_free_slots(t);
    weir_gate_slots_mend(t);
    mend_chunks(t);
}
