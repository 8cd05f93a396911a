/* SPDX-License-Identifier: MIT
 * table/table_shadow_set.c - how many quotas the shadow set has, and which
 * shadow slots are still known.
 *
 * 'shadows' counts the quotas and templates with names that begin with
 * WEIR_SHADOW_PREFIX; takes read it on the header's first line, which is
 * written only when such a quota comes or goes. A live slot's entry names its
 * shadow slot. It is written under the lock, and is valid as long as
 *
 *     the live slot lives (a new life begins without an entry),
 *     'shadow_version' is the entry's (it moves when names may be ruled by
 *         another quota than before), and
 *     the shadow slot lives (its generation is the entry's). */

#include "core/table/table_shadow_internal.h"

#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"

static void next_version(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    uint32_t next = t->shadow_version + 1;
    weir_store_relaxed(&t->shadow_version, next ? next : 1);
    weir_assert(t->shadow_version != 0);
}

void weir_shadow_count(struct weir_table *t, struct weir_text name,
                       int difference)
{
    if (!weir_name_is_shadow(name))
        return;
    weir_assert(difference >= 0 || t->shadows > 0);
    next_version(t);
    weir_store_relaxed(&t->shadows, t->shadows + (uint32_t)difference);
}

void weir_shadow_recount(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    uint32_t shadows = 0;
    for (uint32_t slot = 0; slot < t->used; slot++) {
        uint8_t state = weir_cold(t, slot)->state;
        if (state != WEIR_SLOT_QUOTA && state != WEIR_SLOT_TEMPLATE)
            continue;
        char buf[WEIR_NAME_MAX + 1];
        size_t len = weir_table_name(t, slot, buf);
        shadows += weir_name_is_shadow((struct weir_text){ buf, len });
    }
    next_version(t);
    weir_store_relaxed(&t->shadows, shadows);
    weir_assert(shadows <= t->used);
}

void weir_shadow_forget(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    /* A table without a shadow set never touches the pages of
     * 'shadow_slots'. */
    if (t->shadow_version == 0)
        return;
    struct shadow_slot *shadow_slot = weir_shadow_slot(t, slot);
    weir_store_relaxed(&shadow_slot->version, 0);
    weir_store_relaxed(&shadow_slot->passed, 0);
    weir_store_relaxed(&shadow_slot->refused, 0);
}

void weir_shadow_freed(struct weir_table *t)
{
    /* Relaxed: a flag set just now waits for the next sweep. */
    if (!weir_load_relaxed(&t->shadow_short))
        return;
    if (!weir_table_try_lock(t))
        return;
    weir_store_relaxed(&t->shadow_short, 0);
    next_version(t);
    weir_table_unlock(t);
}
