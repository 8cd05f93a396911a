/* SPDX-License-Identifier: MIT
 * table/table_edit.c - adding, changing and removing quotas, by the sync.
 *
 * An edit keeps the slot, its count and its fill in units; only a quota that
 * was removed and created again begins empty, because it is another one under
 * the same name. Every function takes the writer lock for one slot at a time: a
 * caller that makes an instance waits for one of these steps, never for a whole
 * set.
 *
 * The sync waits for no lock. An edit that doesn't get one, or finds a slot
 * whose bucket state a request has, returns WEIR_ETIMEOUT, and the sync makes
 * it again. Only the instances of a changed template may follow it later, by
 * the sweep.
 *
 * Instances follow changed templates once for all changes of a message, since
 * that visits the whole table: 100 templates edited at once cost as much as
 * one. Until then an instance goes by parameters of its own, and its rule may
 * be a slot that is another quota's by now. */

#include "core/quota/quota_bucket.h"
#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_grow.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_read.h"
#include "core/table/table_shadow_internal.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_switch_internal.h"
#include "core/table/table_sync.h"
#include "core/table/table_traits.h"

/* Slots visited and freed by a put in a full table, each time it takes the
 * lock. */
#define PUT_LOOKS 1024
#define PUT_WANTED 32

/* ---- Templates ---- */

/* Sets a template's data beside its parameters: its place in the order, the
 * pattern of the parent, the overflow quota. */
static int template_put(struct weir_table *t, uint32_t slot,
                        const struct weir_quota *quota, weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(quota->parent.len <= WEIR_NAME_MAX);
    struct cold *cold = weir_cold(t, slot);
    uint32_t aux = CHUNK_NONE;
    uint32_t overflow = WEIR_SLOT_NONE;
    bool another = cold->state != WEIR_SLOT_TEMPLATE;
    if (another && t->template_count == WEIR_TEMPLATES_MAX)
        return WEIR_EFULL;
    if (quota->overflow.len > 0 &&
        weir_slot_resolve(t, quota->overflow, true, 0, &overflow, now) !=
            WEIR_RESOLVED)
        return WEIR_EFULL;
    if (overflow != WEIR_SLOT_NONE)
        weir_cold_refer(weir_cold(t, overflow), 1);
    if (!weir_chunks_store(t, quota->parent.p, quota->parent.len, &aux)) {
        if (overflow != WEIR_SLOT_NONE)
            weir_slot_unref(t, overflow);
        return WEIR_EFULL;
    }
    weir_templates_edit(t);
    weir_templates_remove(t, slot);
    /* In this order: a writer killed in between only loses some chunks. */
    uint32_t chunks = cold->aux;
    cold->aux = aux;
    cold->aux_len = (uint8_t)quota->parent.len;
    weir_chunks_free(t, chunks);
    /* An instance's rule is its template, without a reference to it. */
    uint32_t before = another ? WEIR_SLOT_NONE : cold->rule;
    weir_store_relaxed(&cold->rule, overflow);
    if (before != WEIR_SLOT_NONE)
        weir_slot_unref(t, before);
    weir_slot_set_parent(t, slot, WEIR_SLOT_NONE);
    t->unruled = true;
    weir_templates_insert(t, quota, slot);
    weir_templates_edited(t);
    weir_assert(cold->aux_len == quota->parent.len);
    return WEIR_OK;
}

static void template_forget(struct weir_table *t, uint32_t slot)
{
    struct cold *cold = weir_cold(t, slot);
    weir_assert(weir_table_is_locked(t));
    weir_assert(cold->state == WEIR_SLOT_TEMPLATE);
    uint32_t overflow = cold->rule;
    t->unruled = true;
    weir_templates_edit(t);
    weir_templates_remove(t, slot);
    weir_templates_edited(t);
    uint32_t chunks = cold->aux;
    cold->aux = CHUNK_NONE;
    cold->aux_len = 0;
    weir_chunks_free(t, chunks);
    weir_store_relaxed(&cold->rule, WEIR_SLOT_NONE);
    if (overflow != WEIR_SLOT_NONE)
        weir_slot_unref(t, overflow);
}

/* Skips other slots by reading one byte each. */
void weir_slots_rule(struct weir_table *t, weir_instant now)
{
    bool ruled = true;
    if (!t->unruled)
        return;
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++) {
        uint8_t state = weir_load_acquire(&weir_cold(t, slot)->state);
        if (state != WEIR_SLOT_INSTANCE && state != WEIR_SLOT_PLACEHOLDER)
            continue;
        if (!weir_table_try_lock(t))
            return;
        ruled &= weir_slot_rule(t, slot, now);
        weir_table_unlock(t);
    }
    t->unruled = !ruled;
}

/* ---- Put ---- */

static uint32_t flags_of(const struct weir_quota *quota)
{
    uint32_t flags = quota->kind == WEIR_CONCURRENCY ? META_INFLIGHT : 0;
    flags |= quota->sharing == WEIR_ADAPTIVE ? META_ADAPTIVE : 0;
    if (quota->mode == WEIR_OFF)
        return flags | META_OFF;
    return flags | (quota->mode == WEIR_SHADOW ? META_SHADOW : 0);
}

/* A quota that is its own parent, in a row that another program wrote into the
 * store, has no parent. */
static int put_links(struct weir_table *t, uint32_t slot,
                     const struct weir_quota *quota, weir_instant now)
{
    weir_assert(weir_cold(t, slot)->refs > 0);
    struct cold *cold = weir_cold(t, slot);
    if (weir_quota_is_template(quota))
        return template_put(t, slot, quota, now);
    uint32_t parent = WEIR_SLOT_NONE;
    if (quota->parent.len > 0 && !weir_text_equal(quota->parent, quota->name) &&
        weir_slot_resolve(t, quota->parent, true, 1, &parent, now) !=
            WEIR_RESOLVED)
        return WEIR_EFULL;
    if (cold->state == WEIR_SLOT_INSTANCE)
        weir_store_relaxed(&cold->rule, WEIR_SLOT_NONE);
    weir_slot_set_parent(t, slot, parent);
    return WEIR_OK;
}

/* Sets the quota's fields in a slot; its links are made. */
static void put_fields(struct weir_table *t, uint32_t slot,
                       const struct weir_quota *quota,
                       const struct bucket_state_plan *plan, weir_instant now)
{
    struct cold *cold = weir_cold(t, slot);
    weir_assert(weir_table_is_locked(t));
    weir_assert(cold->state != WEIR_SLOT_FREE);
    bool template = weir_quota_is_template(quota);
    bool known =
        cold->state == WEIR_SLOT_QUOTA || cold->state == WEIR_SLOT_TEMPLATE;
    bool another =
        cold->state == WEIR_SLOT_MAKING ||
        (cold->created != quota->created && cold->state == WEIR_SLOT_QUOTA);
    bool ruled = known || cold->state == WEIR_SLOT_INSTANCE;
    enum weir_sharing before = weir_sharing_of(cold);
    weir_store_relaxed(&cold->created, quota->created);
    weir_trait_rule(cold, quota->sharing, quota->on_stale);
    weir_trait_set(cold, TRAIT_SEEN, true);
    struct weir_bucket bucket;
    weir_quota_bucket(quota, &bucket);
    if (quota->sharing == WEIR_LEASED)
        weir_leased(t, slot)->priority = quota->priority;
    if (!template)
        weir_slot_lease(t, slot, before, another || !ruled, &bucket);
    weir_slot_adapt(t, slot, quota, another, now);
    weir_slot_queue(t, slot, quota);
    uint32_t flags = flags_of(quota) | weir_slot_stale_flags(t, slot);
    weir_slot_measure(t, slot, &bucket, flags, plan, another, now);
    weir_slot_share(t, slot, before);
    /* The units in flight must be reported again to a root that treated the
     * quota as another one. */
    if (flags & META_INFLIGHT)
        weir_slot_mark(t, slot);
    /* release: a reader that sees the state sees the rest. */
    weir_store_release(&cold->state,
                       template ? WEIR_SLOT_TEMPLATE : WEIR_SLOT_QUOTA);
    if (!known || template)
        weir_shadow_count(t, quota->name, !known);
}

static int put_locked(struct weir_table *t, const struct weir_quota *quota,
                      weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    uint32_t slot = weir_slot_find(t, quota->name);
    bool fresh = slot == WEIR_SLOT_NONE;
    if (fresh)
        slot = weir_slot_make(t, quota->name, now);
    if (slot == WEIR_SLOT_NONE)
        return WEIR_EFULL;
    struct cold *cold = weir_cold(t, slot);
    struct bucket_state_plan plan;
    int error = weir_bucket_state_plan(t, slot, quota, &plan);
    if (error == 0 && !weir_bucket_state_seize(t, slot)) {
        weir_bucket_state_unplan(t, &plan);
        error = WEIR_ETIMEOUT;
    } else if (error == 0) {
        /* Protected from eviction: its links may need room, and it may be an
         * idle instance. */
        weir_cold_refer(cold, 1);
        error = put_links(t, slot, quota, now);
        weir_assert(cold->refs > 0);
        weir_cold_refer(cold, -1);
        if (error < 0)
            weir_bucket_state_unplan(t, &plan);
        else
            put_fields(t, slot, quota, &plan, now);
        weir_bucket_state_unseize(t, slot);
    }
    if (fresh && error < 0)
        weir_slot_free(t, slot);
    else if (fresh)
        weir_slot_publish(t, slot);
    return error;
}

static bool is_template_name(struct weir_table *t, struct weir_text name)
{
    struct weir_ref ref;
    return weir_table_find(t, name, &ref) &&
           weir_load_acquire(&weir_cold(t, ref.slot)->state) ==
               WEIR_SLOT_TEMPLATE;
}

/* A quota has priority over instances: idle slots are freed for it, some each
 * time the lock is taken, until all were visited. If none was idle, the next
 * quotas don't search for a while: otherwise N quotas without room would cost N
 * times the table. A table that can grow isn't searched at all. */
int weir_table_put_unruled(struct weir_table *t, const struct weir_quota *quota,
                           weir_instant now)
{
    weir_assert(quota->name.len > 0 && quota->name.len <= WEIR_NAME_MAX);
    int error = WEIR_EFULL;
    uint32_t looks = 0;
    /* Without glob=path, the same name may be that of a quota. */
    if (!weir_quota_is_template(quota) && is_template_name(t, quota->name) &&
        weir_table_drop_unruled(t, quota->name, now) < 0)
        return WEIR_ETIMEOUT;
    while (error == WEIR_EFULL && looks <= weir_table_used(t)) {
        if (!weir_table_try_lock(t))
            return WEIR_ETIMEOUT;
        if (looks > 0)
            weir_table_evict(t, PUT_LOOKS, PUT_WANTED, now);
        error = put_locked(t, quota, now);
        weir_table_unlock(t);
        if (weir_table_is_short(t) || now < t->full_till)
            break;
        looks += PUT_LOOKS;
    }
    if (error == WEIR_EFULL && looks > weir_table_used(t))
        t->full_till = now + BARREN;
    return error;
}

int weir_table_put(struct weir_table *t, const struct weir_quota *quota,
                   weir_instant now)
{
    int error = weir_table_put_unruled(t, quota, now);
    weir_slots_rule(t, now);
    return error;
}

void weir_table_set_lacking(struct weir_table *t, uint32_t quotas)
{
    weir_store_relaxed(&t->lacking, quotas);
}

uint32_t weir_table_lacking(const struct weir_table *t)
{
    /* Relaxed: a decision beside an edit goes by either state. */
    return weir_load_relaxed(&t->lacking);
}

static_assert(WEIR_TABLE_PROCESSES_MAX <= 64, "a bit of passes_on_full each");

void weir_table_set_on_full(struct weir_table *t, uint32_t process, bool passes)
{
    weir_assert(process < WEIR_TABLE_PROCESSES_MAX);
    uint64_t bit = (uint64_t)1 << process;
    /* Its former process may have left the number another bit. */
    uint64_t before = weir_fetch_or(&t->passes_on_full, bit) | bit;
    while (!passes && !weir_cas(&t->passes_on_full, &before, before & ~bit))
        continue;
}

/* ---- Drop ---- */

/* Under the lock, the slot's state seized: the quota goes, its template is
 * found. */
static void drop_locked(struct weir_table *t, uint32_t slot, bool template,
                        weir_instant now)
{
    struct cold *cold = weir_cold(t, slot);
    char name[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(t, slot, name);
    if (template)
        template_forget(t, slot);
    weir_shadow_count(t, (struct weir_text){ name, len }, -1);
    weir_store_release(&cold->state, WEIR_SLOT_PLACEHOLDER);
    /* Without references it is freed, even if a template matches. A concurrent
     * enter may find it: it limits nothing by then. */
    weir_cold_refer(cold, 1);
    if (cold->refs > 1 || weir_slot_has_permits(t, slot))
        weir_slot_rule_seized(t, slot, now);
    else if (!template)
        weir_slot_unrule(t, slot, now);
    weir_slot_unref(t, slot);
}

static int drop_slot(struct weir_table *t, uint32_t slot, weir_instant now)
{
    weir_assert(slot < t->slots);
    if (!weir_table_try_lock(t))
        return WEIR_ETIMEOUT;
    uint8_t state = weir_cold(t, slot)->state;
    bool template = state == WEIR_SLOT_TEMPLATE;
    bool defined = template || state == WEIR_SLOT_QUOTA;
    bool seized = defined && weir_bucket_state_seize(t, slot);
    if (seized) {
        drop_locked(t, slot, template, now);
        weir_bucket_state_unseize(t, slot);
    }
    weir_table_unlock(t);
    return defined && !seized ? WEIR_ETIMEOUT : WEIR_OK;
}

int weir_table_drop_unruled(struct weir_table *t, struct weir_text name,
                            weir_instant now)
{
    struct weir_ref ref;
    return weir_table_find(t, name, &ref) ? drop_slot(t, ref.slot, now)
                                          : WEIR_OK;
}

int weir_table_drop(struct weir_table *t, struct weir_text name,
                    weir_instant now)
{
    int error = weir_table_drop_unruled(t, name, now);
    weir_slots_rule(t, now);
    return error;
}

int weir_table_begin_full(struct weir_table *t)
{
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++) {
        if (!weir_table_try_lock(t))
            return WEIR_ETIMEOUT;
        weir_trait_set(weir_cold(t, slot), TRAIT_SEEN, false);
        weir_table_unlock(t);
    }
    return WEIR_OK;
}

int weir_table_end_full(struct weir_table *t, weir_instant now)
{
    int error = WEIR_OK;
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++) {
        const struct cold *cold = weir_cold(t, slot);
        uint8_t state = weir_load_acquire(&cold->state);
        bool defined = state == WEIR_SLOT_QUOTA || state == WEIR_SLOT_TEMPLATE;
        if (defined && !weir_trait_get(cold, TRAIT_SEEN) &&
            drop_slot(t, slot, now) < 0)
            error = WEIR_ETIMEOUT;
    }
    weir_slots_rule(t, now);
    return error;
}
