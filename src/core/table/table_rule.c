/* SPDX-License-Identifier: MIT
 * table/table_rule.c - the rule of a name: instances and placeholders.
 *
 * A name in the table is one of
 *
 *     quota, template   put by the sync
 *     instance          made from the first template that matches, or from its
 *                       own name (throttle_name.h); evicted when it is not
 *                       needed
 *     placeholder       no quota rules it, but it is referred to: by a handle,
 *                       a child, a template's overflow. Passes.
 *
 * Making an instance may make its parent, and the parent's parent: recursion is
 * bounded by WEIR_DEPTH_MAX, beyond which the chain ends. */

#include "core/quota/glob.h"
#include "core/quota/quota_bucket.h"
#include "core/quota/throttle_name.h"
#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_grow.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_share.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_switch_internal.h"

/* Freed for a bucket state: one may be too small, or not adjacent to a free
 * block. */
#define EVICT_BUCKET_STATES 8

/* ---- Parents ---- */

/* The parent that a template gives to a name, made if necessary; or
 * WEIR_SLOT_NONE. */
static uint32_t parent_by(struct weir_table *t, uint32_t template,
                          const struct weir_captures *captures, unsigned depth,
                          weir_instant now)
{
    weir_assert(depth < WEIR_DEPTH_MAX);
    const struct cold *cold = weir_cold(t, template);
    if (cold->aux_len == 0 || depth + 1 >= WEIR_DEPTH_MAX)
        return WEIR_SLOT_NONE;
    char pattern[WEIR_NAME_MAX], name[WEIR_NAME_MAX];
    weir_chunks_load(t, cold->aux, cold->aux_len, pattern);
    int len = weir_glob_expand((struct weir_text){ pattern, cold->aux_len },
                               captures, name);
    uint32_t parent = WEIR_SLOT_NONE;
    if (len > 0)
        weir_slot_resolve(t, (struct weir_text){ name, (size_t)len }, true,
                          depth + 1, &parent, now);
    return parent;
}

/* Whether the chain from 'from' leads through 'slot', or is endless. */
static bool chain_leads_to(const struct weir_table *t, uint32_t from,
                           uint32_t slot)
{
    for (unsigned i = 0; i < WEIR_DEPTH_MAX && from != WEIR_SLOT_NONE; i++) {
        if (from == slot)
            return true;
        from = weir_parent(weir_hot(t, from));
    }
    return false;
}

/* Patterns of templates may form a cycle: the chain ends there. The slot is
 * referenced while its ancestors are made, or it might be evicted to make room
 * for them. */
static void link_instance(struct weir_table *t, uint32_t slot,
                          uint32_t template,
                          const struct weir_captures *captures, unsigned depth,
                          weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    struct cold *cold = weir_cold(t, slot);
    cold->refs++;
    uint32_t parent = parent_by(t, template, captures, depth, now);
    if (chain_leads_to(t, parent, slot))
        parent = WEIR_SLOT_NONE;
    weir_slot_set_parent(t, slot, parent);
    weir_assert(cold->refs > 0);
    cold->refs--;
}

/* ---- What a slot becomes ---- */

/* Copies the template's parameters. An instance without room for its bucket
 * state limits nothing itself: WEIR_EFULL. */
static int become_instance(struct weir_table *t, uint32_t slot,
                           uint32_t template, bool empty, weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    struct slot_read read;
    struct bucket_state_plan plan;
    int error = weir_bucket_state_plan_instance(t, slot, template, &plan);
    weir_slot_read(t, template, weir_elapsed(t, now), &read);
    struct weir_bucket bucket = { .leak = read.leak,
                                  .low = read.high - read.band,
                                  .high = read.high };
    const struct cold *from = weir_cold(t, template);
    struct cold *cold = weir_cold(t, slot);
    enum weir_sharing before = (enum weir_sharing)cold->sharing;
    weir_store_relaxed(&cold->rule, template);
    cold->created = from->created;
    cold->sharing = from->sharing;
    cold->on_stale = from->on_stale;
    weir_store_relaxed(&cold->hold, weir_load_relaxed(&from->hold));
    uint32_t flags =
        read.flags & (META_OFF | META_SHADOW | META_INFLIGHT | META_ADAPTIVE);
    flags |= weir_slot_stale_flags(t, slot) | (error < 0 ? META_OFF : 0);
    if (from->sharing == WEIR_LEASED)
        weir_leased(t, slot)->priority = weir_leased(t, template)->priority;
    weir_slot_lease(t, slot, before, empty, &bucket);
    weir_slot_adapt_as(t, slot, template, empty, now);
    weir_slot_queue_as(t, slot, template);
    weir_slot_measure(t, slot, &bucket, flags, &plan, empty, now);
    weir_slot_share(t, slot, before);
    weir_store_release(&cold->state, WEIR_SLOT_INSTANCE);
    return error;
}

/* The slot gets the quota that its name contains. Any previous quota of the
 * name was another one. */
static void become_throttle(struct weir_table *t, uint32_t slot,
                            const struct weir_quota *brought, weir_instant now)
{
    struct weir_bucket bucket;
    struct bucket_state_plan none = { .where = 0 };
    struct cold *cold = weir_cold(t, slot);
    weir_assert(weir_table_is_locked(t));
    weir_assert(cold->state != WEIR_SLOT_FREE);
    enum weir_sharing before = (enum weir_sharing)cold->sharing;
    weir_quota_bucket(brought, &bucket);
    cold->created = brought->created;
    cold->sharing = (uint8_t)(brought->sharing & 7);
    cold->on_stale = (uint8_t)(brought->on_stale & 7);
    weir_slot_lease(t, slot, before, true, &bucket);
    weir_slot_unadapt(t, slot);
    weir_slot_measure(t, slot, &bucket, weir_slot_stale_flags(t, slot), &none,
                      true, now);
    weir_slot_share(t, slot, before);
    weir_slot_set_parent(t, slot, WEIR_SLOT_NONE);
    /* Last: weir_slot_rule() recognizes by it that all of this was done. */
    weir_store_relaxed(&cold->rule, WEIR_SLOT_NONE);
    weir_store_release(&cold->state, WEIR_SLOT_INSTANCE);
}

static void become_placeholder(struct weir_table *t, uint32_t slot,
                               weir_instant now)
{
    struct weir_bucket bucket;
    weir_bucket_open(&bucket);
    struct cold *cold = weir_cold(t, slot);
    weir_assert(weir_table_is_locked(t));
    weir_assert(cold->state != WEIR_SLOT_FREE);
    weir_store_relaxed(&cold->rule, WEIR_SLOT_NONE);
    cold->created = 0;
    cold->sharing = WEIR_LOCAL;
    weir_slot_lease(t, slot, WEIR_LOCAL, true, &bucket);
    weir_slot_unadapt(t, slot);
    struct bucket_state_plan none = { .where = 0 };
    weir_slot_measure(t, slot, &bucket, META_OFF, &none, true, now);
    weir_store_release(&cold->state, WEIR_SLOT_PLACEHOLDER);
}

void weir_slot_unrule(struct weir_table *t, uint32_t slot, weir_instant now)
{
    become_placeholder(t, slot, now);
    weir_slot_set_parent(t, slot, WEIR_SLOT_NONE);
    weir_assert(weir_parent(weir_hot(t, slot)) == WEIR_SLOT_NONE);
}

void weir_slot_rule(struct weir_table *t, uint32_t slot, weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(slot < t->used);
    struct cold *cold = weir_cold(t, slot);
    if (cold->state != WEIR_SLOT_INSTANCE &&
        cold->state != WEIR_SLOT_PLACEHOLDER)
        return;
    char buf[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(t, slot, buf);
    struct weir_captures captures;
    struct weir_quota brought;
    uint32_t template =
        weir_templates_match(t, (struct weir_text){ buf, len }, &captures);
    if (template != WEIR_SLOT_NONE) {
        bool another = cold->state == WEIR_SLOT_PLACEHOLDER ||
                       cold->created != weir_cold(t, template)->created;
        become_instance(t, slot, template, another, now);
        link_instance(t, slot, template, &captures, 0, now);
        return;
    }
    if (weir_throttle_name_read((struct weir_text){ buf, len }, &brought)) {
        if (cold->state == WEIR_SLOT_PLACEHOLDER ||
            cold->rule != WEIR_SLOT_NONE)
            become_throttle(t, slot, &brought, now);
        return;
    }
    weir_slot_unrule(t, slot, now);
    if (cold->refs == 0)
        weir_placeholder_free(t, slot);
}

/* ---- From a name to its slot ---- */

static enum weir_resolved resolve_without_room(
    struct weir_table *t, uint32_t template,
    const struct weir_captures *captures, unsigned depth, uint32_t *out,
    weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    if (template == WEIR_SLOT_NONE)
        return WEIR_RESOLVED_NONE;
    uint32_t overflow = weir_cold(t, template)->rule;
    if (overflow != WEIR_SLOT_NONE) {
        *out = overflow;
        return WEIR_RESOLVED_FULL;
    }
    uint32_t parent = parent_by(t, template, captures, depth, now);
    if (parent == WEIR_SLOT_NONE)
        return WEIR_RESOLVED_NONE;
    *out = parent;
    return WEIR_RESOLVED_CHAIN;
}

/* Instances of the shadow set leave half of the table to the live set; beyond
 * that they replace idle slots. */
static bool may_make_instance(struct weir_table *t, struct weir_text name,
                              uint32_t template, weir_instant now)
{
    if (template == WEIR_SLOT_NONE || !weir_name_is_shadow(name) ||
        t->live < weir_load_relaxed(&t->committed_max) / 2)
        return true;
    return weir_table_evict(t, EVICT_LOOK_MAX, 1, now) > 0;
}

/* Makes a new instance; from time to time, idle slots are freed for its bucket
 * state. */
static int become_evicting(struct weir_table *t, uint32_t slot,
                           uint32_t template, weir_instant now)
{
    weir_assert(weir_cold(t, slot)->state == WEIR_SLOT_MAKING);
    int error = become_instance(t, slot, template, true, now);
    if (error == 0 || now < t->barren_till || weir_table_is_short(t))
        return error;
    weir_cold(t, slot)->refs++;
    uint32_t freed =
        weir_table_evict(t, EVICT_LOOK_MAX, EVICT_BUCKET_STATES, now);
    weir_assert(weir_cold(t, slot)->refs > 0);
    weir_cold(t, slot)->refs--;
    if (freed > 0)
        error = become_instance(t, slot, template, true, now);
    if (error < 0)
        t->barren_till = now + BARREN;
    return error;
}

enum weir_resolved weir_slot_resolve(struct weir_table *t,
                                     struct weir_text name, bool keep,
                                     unsigned depth, uint32_t *out,
                                     weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(depth < WEIR_DEPTH_MAX);
    uint32_t slot = weir_slot_find(t, name);
    if (slot != WEIR_SLOT_NONE) {
        uint8_t state = weir_cold(t, slot)->state;
        /* It is being made further down in this same chain: a cycle. */
        if (state == WEIR_SLOT_MAKING ||
            (state == WEIR_SLOT_PLACEHOLDER && !keep))
            return WEIR_RESOLVED_NONE;
        *out = slot;
        return WEIR_RESOLVED;
    }
    struct weir_captures captures;
    struct weir_quota brought;
    uint32_t template = weir_templates_match(t, name, &captures);
    bool brings =
        template == WEIR_SLOT_NONE && weir_throttle_name_read(name, &brought);
    if (template == WEIR_SLOT_NONE && !brings && !keep)
        return WEIR_RESOLVED_NONE;
    slot = may_make_instance(t, name, template, now)
               ? weir_slot_make(t, name, now)
               : WEIR_SLOT_NONE;
    if (slot == WEIR_SLOT_NONE)
        return resolve_without_room(t, template, &captures, depth, out, now);
    if (template != WEIR_SLOT_NONE) {
        link_instance(t, slot, template, &captures, depth, now);
        if (become_evicting(t, slot, template, now) < 0) {
            weir_slot_free(t, slot);
            return resolve_without_room(t, template, &captures, depth, out,
                                        now);
        }
    } else if (brings) {
        become_throttle(t, slot, &brought, now);
    } else {
        become_placeholder(t, slot, now);
    }
    weir_slot_publish(t, slot);
    *out = slot;
    return WEIR_RESOLVED;
}

/* Without the lock: most names are present. */
static bool find_ruled(struct weir_table *t, struct weir_text name,
                       struct weir_ref *out)
{
    struct weir_ref ref;
    if (!weir_table_find(t, name, &ref))
        return false;
    uint8_t state = weir_load_acquire(&weir_cold(t, ref.slot)->state);
    if (state <= WEIR_SLOT_PLACEHOLDER)
        return false;
    *out = ref;
    return true;
}

/* Under the lock. */
enum weir_resolved weir_table_resolve_locked(struct weir_table *t,
                                             struct weir_text name, bool keep,
                                             struct weir_ref *out,
                                             weir_instant now)
{
    uint32_t slot;
    enum weir_resolved resolved =
        weir_slot_resolve(t, name, keep, 0, &slot, now);
    if (resolved != WEIR_RESOLVED_NONE)
        *out = (struct weir_ref){ slot, weir_hot(t, slot)->generation };
    return resolved;
}

enum weir_resolved weir_table_resolve_as(struct weir_table *t, uint32_t process,
                                         struct weir_text name, bool keep,
                                         struct weir_ref *out, weir_instant now)
{
    if (name.len == 0 || name.len > WEIR_NAME_MAX)
        return WEIR_RESOLVED_NONE;
    if (find_ruled(t, name, out))
        return WEIR_RESOLVED;
    weir_table_lock_as(t, process);
    enum weir_resolved resolved =
        weir_table_resolve_locked(t, name, keep, out, now);
    weir_table_unlock(t);
    return resolved;
}

enum weir_resolved weir_table_resolve(struct weir_table *t,
                                      struct weir_text name, bool keep,
                                      struct weir_ref *out, weir_instant now)
{
    return weir_table_resolve_as(t, 0, name, keep, out, now);
}
