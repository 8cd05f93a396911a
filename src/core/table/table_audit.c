/* SPDX-License-Identifier: MIT
 * table/table_audit.c - checks of a table's invariants, under its lock.
 *
 * Decisions go on meanwhile, so an audit looks only at what the writer lock
 * protects: names, lives, references, free lists, rules and the area. */

#include "core/quota/throttle_name.h"
#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_index.h"
#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"

#include <string.h>

/* ---- A slot ---- */

/* The rule is a template's, or the one in the name. */
static void audit_rule(const struct weir_table *t, uint32_t rule,
                       struct weir_text name)
{
    struct weir_quota brought;
    weir_assert(rule == WEIR_SLOT_NONE
                    ? weir_throttle_name_read(name, &brought)
                    : weir_cold(t, rule)->state == WEIR_SLOT_TEMPLATE);
}

static void audit_live(struct weir_table *t, uint32_t slot)
{
    const struct hot *hot = weir_hot(t, slot);
    const struct cold *cold = weir_cold(t, slot);
    char buf[WEIR_NAME_MAX + 1];
    struct weir_text name = { buf, weir_table_name(t, slot, buf) };
    weir_assert(name.len > 0);
    weir_assert(weir_slot_find(t, name) == slot);
    /* A writer may have been killed in a switch. */
    weir_assert(!(hot->meta & META_SEQ_ONE) || t->spare_slot == slot);
    weir_assert(!(weir_load_relaxed(&hot->base) & 1) || t->spare_slot == slot);
    uint32_t parent = weir_parent(hot);
    weir_assert(parent == WEIR_SLOT_NONE ||
                (weir_cold(t, parent)->state != WEIR_SLOT_FREE &&
                 weir_cold(t, parent)->refs > 0));
    if (cold->state == WEIR_SLOT_INSTANCE && !t->unruled)
        audit_rule(t, cold->rule, name);
}

static void audit_slot(struct weir_table *t, uint32_t slot)
{
    uint8_t state = weir_cold(t, slot)->state;
    bool free = state == WEIR_SLOT_FREE;
    weir_assert(state != WEIR_SLOT_MAKING);
    weir_assert((weir_hot(t, slot)->generation & 1) == !free);
    if (!free)
        audit_live(t, slot);
    if (!t->rules_made)
        return;
    uint32_t own, rule, refs;
    weir_bucket_state_look(t, slot, &own, &rule, &refs);
    weir_assert((rule > 0) == (refs > 0));
    weir_assert(refs == 0 || (!free && state != WEIR_SLOT_PLACEHOLDER));
}

void weir_table_audit(struct weir_table *t, uint32_t *hand, uint32_t n)
{
    if (!weir_table_try_lock(t))
        return;
    uint32_t used = weir_table_used(t);
    if (n > used)
        n = used;
    for (uint32_t i = 0; i < n && i < WEIR_TABLE_AUDIT_MAX; i++) {
        if (*hand >= used)
            *hand = 0;
        audit_slot(t, (*hand)++);
    }
    weir_table_unlock(t);
}

/* ---- The whole ---- */

static uint32_t count_chunks(const struct weir_table *t, uint32_t first)
{
    uint32_t count = 0;
    for (; first != CHUNK_NONE; first = weir_chunk(t, first)->next) {
        weir_assert(first < t->chunk_used);
        weir_assert(++count <= t->chunk_used);
    }
    return count;
}

/* Each live slot has one entry in the index, and no other slot has any. */
static void audit_index(const struct weir_table *t, uint32_t *entries)
{
    memset(entries, 0, t->used * sizeof(*entries));
    for (uint32_t b = 0; b < weir_name_index_count(t); b++) {
        for (int i = 0; i < BUCKET_ENTRIES; i++) {
            uint32_t slot = (uint32_t)weir_index(t, b)->entry[i] - 1;
            if (slot < t->used)
                entries[slot]++;
        }
    }
    for (uint32_t slot = 0; slot < t->used; slot++)
        weir_assert(entries[slot] ==
                    (weir_cold(t, slot)->state != WEIR_SLOT_FREE));
}

static void audit_sums(const struct weir_table *t, uint32_t *children)
{
    uint32_t live = 0, templates = 0, free = 0;
    uint32_t chunks = count_chunks(t, t->chunk_head);
    memset(children, 0, t->used * sizeof(*children));
    for (uint32_t slot = 0; slot < t->used; slot++) {
        const struct cold *cold = weir_cold(t, slot);
        if (cold->state == WEIR_SLOT_FREE)
            continue;
        live++;
        chunks += count_chunks(t, weir_name(t, slot)->more);
        chunks += count_chunks(t, cold->aux);
        uint32_t parent = weir_parent(weir_hot(t, slot));
        if (parent != WEIR_SLOT_NONE)
            children[parent]++;
        bool template = cold->state == WEIR_SLOT_TEMPLATE;
        templates += template;
        if (template && cold->rule != WEIR_SLOT_NONE)
            children[cold->rule]++;
    }
    weir_assert(live == weir_table_live(t));
    weir_assert(templates == t->template_count);
    weir_assert(chunks == t->chunk_used);
    for (uint32_t slot = t->free_head; slot != WEIR_SLOT_NONE;
         slot = weir_cold(t, slot)->aux) {
        weir_assert(weir_cold(t, slot)->state == WEIR_SLOT_FREE);
        weir_assert(++free <= t->used);
    }
    weir_assert(free + live == t->used);
    /* References beyond those by children are pins. */
    for (uint32_t slot = 0; slot < t->used; slot++)
        weir_assert(weir_cold(t, slot)->state == WEIR_SLOT_FREE
                        ? children[slot] == 0
                        : weir_cold(t, slot)->refs >= children[slot]);
    for (uint32_t i = 1; i < t->template_count; i++)
        weir_assert(t->templates[i - 1].order <= t->templates[i].order);
}

/* Units of the area used by bucket states, and free units: their sum is the
 * area used so far. */
static void audit_area(const struct weir_table *t)
{
    uint32_t units = 0;
    for (uint32_t slot = 0; t->rules_made && slot < t->used; slot++) {
        uint32_t own, rule, refs;
        weir_bucket_state_look(t, slot, &own, &rule, &refs);
        units += own;
        /* A rule shared by several is counted at the first of them. */
        bool first = rule > 0;
        uint32_t sharing = 0;
        for (uint32_t other = 0; other < t->used && rule > 0; other++) {
            bool same = (uint32_t)weir_bucket_state(t, other)->where ==
                        (uint32_t)weir_bucket_state(t, slot)->where;
            sharing += same;
            first = first && !(same && other < slot);
        }
        weir_assert(sharing == refs);
        units += first ? rule : 0;
    }
    for (unsigned order = 0; order < AREA_ORDERS; order++)
        units += weir_area_count(t, order) << order;
    weir_assert(units == t->area_used);
}

void weir_table_audit_whole(struct weir_table *t, uint32_t *scratch,
                            uint32_t max)
{
    if (!weir_table_try_lock(t))
        return;
    if (t->used <= max && weir_name_index_count(t) <= max + 2) {
        audit_index(t, scratch);
        audit_sums(t, scratch);
        audit_area(t);
    }
    weir_table_unlock(t);
}
