/* SPDX-License-Identifier: MIT
 * table/table_slots.c - the life of a slot, and the references that keep it.
 *
 * free -> making -> published (placeholder, quota, template or instance) ->
 * free, with another generation. If a slot's maker was killed, the slot is
 * free, or has an even generation and another state than FREE: it is reset
 * before it leaves FREE, and its generation becomes even before it returns to
 * FREE. weir_table_break_lock() recognizes it by that.
 *
 * 'refs' counts children and pins. A child refers to its parent, so a slot that
 * can be evicted is always a leaf, and a chain never leads through a freed
 * slot. A slot with units in flight isn't freed either, even if its quota was
 * removed: it stays as a placeholder, so that permits are never given back to
 * another name.
 *
 * Taking back. A walk reads, an add charges, and between the two a slot may get
 * another name. The writer moves 'generation' (or a child's 'up') before it
 * reads 'count'; a take adds to 'count' before it reads 'generation' and each
 * 'up' again. All of these are sequentially consistent: either the writer finds
 * the slot in use and leaves it, or the take finds the chain changed and
 * subtracts the units that it added. */

#include "core/table/table_slots_internal.h"

#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_index.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_read.h"
#include "core/table/table_shadow_internal.h"
#include "core/table/table_switch_internal.h"
#include "core/table/table_traits.h"

/* ---- Lives ---- */

/* Resets a free slot for its next life. Its count continues, because only
 * differences of counts are reported. */
static void slot_reset(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(!(weir_hot(t, slot)->generation & 1));
    struct cold *cold = weir_cold(t, slot);
    weir_store_relaxed(&cold->rule, WEIR_SLOT_NONE);
    cold->aux = CHUNK_NONE;
    cold->aux_len = 0;
    weir_store_relaxed(&cold->refs, 0);
    weir_store_relaxed(&cold->created, 0);
    weir_trait_set(cold, TRAIT_SEEN | TRAIT_UNPINNED, false);
    weir_store_relaxed(&cold->hold, 0);
    weir_shadow_forget(t, slot);
    struct hot *hot = weir_hot(t, slot);
    uint64_t count = weir_load_relaxed(&hot->count);
    weir_store_relaxed(&cold->settled, count);
    /* The first use of a slot is reported at once: no root knows of it. */
    weir_store_relaxed(&cold->report_at, count);
    weir_store_relaxed(&hot->up, UP_NONE);
    weir_store_relaxed(&hot->stop, count + WEIR_COUNT_FAR);
    weir_store_relaxed(&hot->report_within, WEIR_MINI_FAR);
    /* release: a thread that frees it after a crash finds no parent and no
     * chunks of its former life. */
    weir_store_release(&cold->state, WEIR_SLOT_MAKING);
}

/* The place in the list of the first free slot whose bucket state no request of
 * its last life has locked: usually the first. */
static uint32_t *find_free(struct weir_table *t)
{
    uint32_t *place = &t->free_head;
    while (*place != WEIR_SLOT_NONE && !weir_bucket_state_is_free(t, *place))
        place = &weir_cold(t, *place)->aux;
    return place;
}

uint32_t weir_slot_take(struct weir_table *t, struct weir_text name)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->used <= weir_load_relaxed(&t->committed));
    uint32_t *place = find_free(t);
    uint32_t slot = *place;
    bool fresh = slot == WEIR_SLOT_NONE;
    if (fresh) {
        if (t->used == weir_load_acquire(&t->committed))
            return WEIR_SLOT_NONE;
        slot = t->used;
    }
    if (!weir_names_store(t, slot, name))
        return WEIR_SLOT_NONE;
    if (!fresh)
        *place = weir_cold(t, slot)->aux;
    slot_reset(t, slot);
    /* release: a walk up to 'used' finds complete slots. */
    if (fresh)
        weir_store_release(&t->used, slot + 1);
    weir_store_relaxed(&t->live, t->live + 1);
    if (!weir_name_index_insert(t, slot, weir_table_hash(t, name))) {
        weir_slot_release(t, slot);
        return WEIR_SLOT_NONE;
    }
    return slot;
}

void weir_slot_publish(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(weir_cold(t, slot)->state != WEIR_SLOT_FREE);
    uint32_t *generation = &weir_hot(t, slot)->generation;
    weir_assert(!(*generation & 1));
    weir_table_set_heard(t, slot, false);
    /* release: a thread that finds it alive finds it complete. */
    weir_store_release(generation, *generation + 1);
}

void weir_slot_release(struct weir_table *t, uint32_t slot)
{
    struct hot *hot = weir_hot(t, slot);
    struct cold *cold = weir_cold(t, slot);
    weir_assert(weir_table_is_locked(t));
    weir_assert(cold->state != WEIR_SLOT_FREE);
    weir_store(&hot->generation, hot->generation + (hot->generation & 1));
    weir_names_remove(t, slot);
    weir_bucket_state_drop(t, slot, t->origin);
    weir_slot_unadapt(t, slot);
    weir_store_release(&cold->state, WEIR_SLOT_FREE);
    weir_chunks_free(t, weir_name(t, slot)->more);
    weir_chunks_free(t, cold->aux);
    cold->aux = t->free_head;
    t->free_head = slot;
    weir_store_relaxed(&t->live, t->live - 1);
    weir_assert(!(hot->generation & 1));
}

/* ---- References ---- */

void weir_slot_free(struct weir_table *t, uint32_t slot)
{
    weir_assert(slot < t->used);
    uint32_t parent = weir_parent(weir_hot(t, slot));
    weir_slot_release(t, slot);
    if (parent != WEIR_SLOT_NONE)
        weir_slot_unref(t, parent);
}

/* As in weir_slot_evict(): the generation first, then a last check whether an
 * enter was faster. */
void weir_placeholder_free(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_cold(t, slot)->state == WEIR_SLOT_PLACEHOLDER);
    weir_assert(weir_cold(t, slot)->refs == 0);
    struct hot *hot = weir_hot(t, slot);
    weir_store(&hot->generation, hot->generation + (hot->generation & 1));
    if (weir_slot_has_permits(t, slot))
        weir_slot_publish(t, slot);
    else
        weir_slot_free(t, slot);
}

void weir_slot_unref(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    struct cold *cold = weir_cold(t, slot);
    weir_assert(cold->refs > 0);
    weir_cold_refer(cold, -1);
    if (cold->refs > 0)
        return;
    t->barren_till = 0;
    weir_slot_unpinned(t, slot);
    if (cold->state == WEIR_SLOT_PLACEHOLDER)
        weir_placeholder_free(t, slot);
}

void weir_slot_set_parent(struct weir_table *t, uint32_t slot, uint32_t parent)
{
    weir_assert(weir_table_is_locked(t));
    struct hot *hot = weir_hot(t, slot);
    uint32_t before = weir_parent(hot);
    if (before == parent)
        return;
    uint32_t above = WEIR_SLOT_NONE;
    if (parent != WEIR_SLOT_NONE) {
        weir_cold_refer(weir_cold(t, parent), 1);
        above = weir_parent(weir_hot(t, parent));
    }
    weir_store(&hot->up, weir_up_of(parent, above));
    if (before != WEIR_SLOT_NONE)
        weir_slot_unref(t, before);
    weir_assert(weir_parent(hot) == parent);
}
