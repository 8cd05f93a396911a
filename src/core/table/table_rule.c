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
 * bounded by WEIR_DEPTH_MAX, beyond which the chain ends.
 *
 * Long names. A client's name over WEIR_NAME_MAX bytes is stored cut
 * (table_stored_name.h). Its parents follow from the whole name, and only a
 * request has that. So when the templates have changed, an instance of a long
 * name gets its template's parameters at once, and its parent at the next
 * request by name: cold.aux_len is 1 until then. A name is refused, which
 * limits its requests, if its stored form or that of an ancestor would be ruled
 * by another quota than the name itself. */

#include "core/quota/glob.h"
#include "core/quota/long_name.h"
#include "core/quota/quota_bucket.h"
#include "core/quota/throttle_name.h"
#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_grow.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_share.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_stored_name.h"
#include "core/table/table_switch_internal.h"
#include "core/table/table_traits.h"

/* Freed for a bucket state: one may be too small, or not adjacent to a free
 * block. */
#define EVICT_BUCKET_STATES 8

/* ---- Parents ---- */

/* A name that an instance is made for, as it is stored. */
struct instance_name {
    struct weir_text text;
    uint32_t template; /* WEIR_SLOT_NONE: none */
    const struct weir_captures *captures;
    bool cut; /* the captures are of a stored name that was cut */
};

/* weir_slot_resolve_given() of a parent whose name is over WEIR_NAME_MAX bytes:
 * apart, because of its stack. */
static __attribute__((noinline)) enum weir_resolved resolve_long_parent(
    struct weir_table *t, struct weir_text pattern,
    const struct weir_captures *captures, unsigned depth, uint32_t *out,
    weir_instant now)
{
    char name[WEIR_GIVEN_PARENT_MAX];
    int len = weir_glob_expand_in(pattern, captures, name, sizeof(name));
    if (len < 0)
        return len == WEIR_ETOOBIG ? WEIR_RESOLVED_REFUSED : WEIR_RESOLVED_NONE;
    return weir_slot_resolve_given(t, (struct weir_text){ name, (size_t)len },
                                   true, depth, out, now);
}

/* The parent that a template gives to a name, made if necessary. */
static enum weir_resolved parent_by(struct weir_table *t,
                                    const struct instance_name *name,
                                    unsigned depth, uint32_t *out,
                                    weir_instant now)
{
    weir_assert(depth < WEIR_DEPTH_MAX);
    const struct cold *cold = weir_cold(t, name->template);
    if (cold->aux_len == 0 || depth + 1 >= WEIR_DEPTH_MAX)
        return WEIR_RESOLVED_NONE;
    char pattern[WEIR_NAME_MAX], parent[WEIR_NAME_MAX];
    weir_chunks_load(t, cold->aux, cold->aux_len, pattern);
    struct weir_text text = { pattern, cold->aux_len };
    int len = weir_glob_expand_in(text, name->captures, parent, sizeof(parent));
    if (len == WEIR_ETOOBIG)
        return resolve_long_parent(t, text, name->captures, depth + 1, out,
                                   now);
    if (len <= 0)
        return WEIR_RESOLVED_NONE;
    text = (struct weir_text){ parent, (size_t)len };
    return name->cut
               ? weir_slot_resolve(t, text, true, depth + 1, out, now)
               : weir_slot_resolve_given(t, text, true, depth + 1, out, now);
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
static enum weir_resolved link_instance(struct weir_table *t, uint32_t slot,
                                        const struct instance_name *name,
                                        unsigned depth, weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    struct cold *cold = weir_cold(t, slot);
    uint32_t parent = WEIR_SLOT_NONE;
    weir_cold_refer(cold, 1);
    enum weir_resolved resolved = parent_by(t, name, depth, &parent, now);
    if (chain_leads_to(t, parent, slot))
        parent = WEIR_SLOT_NONE;
    weir_slot_set_parent(t, slot, parent);
    weir_assert(cold->refs > 0);
    weir_cold_refer(cold, -1);
    return resolved;
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
    enum weir_sharing before = weir_sharing_of(cold);
    weir_store_relaxed(&cold->rule, template);
    weir_store_relaxed(&cold->created, from->created);
    weir_trait_rule(cold, weir_sharing_of(from), weir_on_stale_of(from));
    weir_store_relaxed(&cold->hold, weir_load_relaxed(&from->hold));
    uint32_t flags =
        read.flags & (META_OFF | META_SHADOW | META_INFLIGHT | META_ADAPTIVE);
    flags |= weir_slot_stale_flags(t, slot) | (error < 0 ? META_OFF : 0);
    if (weir_sharing_of(from) == WEIR_LEASED)
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
    enum weir_sharing before = weir_sharing_of(cold);
    weir_quota_bucket(brought, &bucket);
    weir_store_relaxed(&cold->created, brought->created);
    weir_trait_rule(cold, brought->sharing, brought->on_stale);
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
    weir_store_relaxed(&cold->created, 0);
    weir_trait_rule(cold, WEIR_LOCAL, weir_on_stale_of(cold));
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

static void rule_instance(struct weir_table *t, uint32_t slot,
                          const struct instance_name *name, weir_instant now)
{
    struct cold *cold = weir_cold(t, slot);
    bool instance = cold->state == WEIR_SLOT_INSTANCE;
    bool another =
        !instance || cold->created != weir_cold(t, name->template)->created;
    /* Its former template's slot may be another template's by now. */
    bool linked = name->cut && !another && cold->rule == name->template;
    become_instance(t, slot, name->template, another, now);
    if (!linked)
        (void)link_instance(t, slot, name, 0, now);
    weir_store_relaxed(&cold->aux_len, name->cut);
}

void weir_slot_rule_seized(struct weir_table *t, uint32_t slot,
                           weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(slot < t->used);
    struct cold *cold = weir_cold(t, slot);
    if (cold->state != WEIR_SLOT_INSTANCE &&
        cold->state != WEIR_SLOT_PLACEHOLDER)
        return;
    char buf[WEIR_NAME_MAX + 1];
    struct weir_captures captures;
    struct weir_quota brought;
    struct instance_name name = {
        .text = { buf, weir_table_name(t, slot, buf) }, .captures = &captures
    };
    name.template = weir_templates_match(t, name.text, &captures);
    name.cut = weir_name_is_cut(name.text);
    if (name.template != WEIR_SLOT_NONE) {
        rule_instance(t, slot, &name, now);
        return;
    }
    if (weir_throttle_name_read(name.text, &brought)) {
        if (cold->state == WEIR_SLOT_PLACEHOLDER ||
            cold->rule != WEIR_SLOT_NONE)
            become_throttle(t, slot, &brought, now);
        return;
    }
    weir_slot_unrule(t, slot, now);
    if (cold->refs == 0)
        weir_placeholder_free(t, slot);
}

bool weir_slot_rule(struct weir_table *t, uint32_t slot, weir_instant now)
{
    if (!weir_bucket_state_seize(t, slot))
        return false;
    weir_slot_rule_seized(t, slot, now);
    weir_bucket_state_unseize(t, slot);
    return true;
}

/* ---- From a name to its slot ---- */

/* Whether a quota or template refuses no request by itself. */
static bool limits_nothing(const struct weir_table *t, uint32_t slot,
                           weir_instant now)
{
    struct slot_read read;
    weir_slot_read(t, slot, weir_elapsed(t, now), &read);
    if (read.flags & (META_OFF | META_SHADOW))
        return true;
    return weir_slot_read_is_endless(&read) &&
           !(read.flags & (META_BUCKET_STATE | META_ADAPTIVE));
}

/* The overflow quota of a template that limits nothing may limit: then it isn't
 * for this template's values, and neither is a quota that isn't here. */
static bool has_overflow(const struct weir_table *t, uint32_t overflow,
                         bool limits, weir_instant now)
{
    if (overflow == WEIR_SLOT_NONE || limits)
        return overflow != WEIR_SLOT_NONE;
    return weir_cold(t, overflow)->state == WEIR_SLOT_QUOTA &&
           limits_nothing(t, overflow, now);
}

static enum weir_resolved resolve_without_room(struct weir_table *t,
                                               const struct instance_name *name,
                                               unsigned depth, uint32_t *out,
                                               weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    if (name->template == WEIR_SLOT_NONE)
        return WEIR_RESOLVED_LACKING;
    uint32_t overflow = weir_cold(t, name->template)->rule;
    bool limits = !limits_nothing(t, name->template, now);
    if (has_overflow(t, overflow, limits, now)) {
        *out = overflow;
        return WEIR_RESOLVED_FULL;
    }
    uint32_t parent = WEIR_SLOT_NONE;
    enum weir_resolved above = parent_by(t, name, depth, &parent, now);
    if (above == WEIR_RESOLVED_REFUSED)
        return WEIR_RESOLVED_REFUSED;
    if (parent == WEIR_SLOT_NONE)
        return limits || above == WEIR_RESOLVED_LACKING ? WEIR_RESOLVED_LACKING
                                                        : WEIR_RESOLVED_FREE;
    *out = parent;
    return limits || above == WEIR_RESOLVED_CHAIN ? WEIR_RESOLVED_CHAIN
                                                  : WEIR_RESOLVED_FULL;
}

/* Instances of the shadow set leave half of the table to the live set; beyond
 * that they replace idle slots. */
static bool may_make_instance(struct weir_table *t,
                              const struct instance_name *name,
                              weir_instant now)
{
    if (name->template == WEIR_SLOT_NONE || !weir_name_is_shadow(name->text) ||
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
    weir_cold_refer(weir_cold(t, slot), 1);
    uint32_t freed =
        weir_table_evict(t, EVICT_LOOK_MAX, EVICT_BUCKET_STATES, now);
    weir_assert(weir_cold(t, slot)->refs > 0);
    weir_cold_refer(weir_cold(t, slot), -1);
    if (freed > 0)
        error = become_instance(t, slot, template, true, now);
    if (error < 0)
        t->barren_till = now + BARREN;
    return error;
}

/* Whether an instance can't be made with this parent: it would be decided
 * without it for as long as it lives. Another quota stands in for the parent
 * only in a table that can't grow. */
static bool is_unlinked(const struct weir_table *t, enum weir_resolved linked)
{
    if (linked == WEIR_RESOLVED_FULL || linked == WEIR_RESOLVED_CHAIN ||
        linked == WEIR_RESOLVED_FREE)
        return weir_table_is_short(t);
    return linked == WEIR_RESOLVED_LACKING || linked == WEIR_RESOLVED_REFUSED;
}

/* Makes the slot of a name that has none, if a quota rules it or with
 * 'keep'. */
static enum weir_resolved resolve_absent(struct weir_table *t,
                                         const struct instance_name *name,
                                         bool keep, unsigned depth,
                                         uint32_t *out, weir_instant now)
{
    struct weir_quota brought;
    bool brings = name->template == WEIR_SLOT_NONE &&
                  weir_throttle_name_read(name->text, &brought);
    if (name->template == WEIR_SLOT_NONE && !brings && !keep)
        return WEIR_RESOLVED_NONE;
    uint32_t slot = may_make_instance(t, name, now)
                        ? weir_slot_make(t, name->text, now)
                        : WEIR_SLOT_NONE;
    if (slot == WEIR_SLOT_NONE)
        return resolve_without_room(t, name, depth, out, now);
    if (name->template != WEIR_SLOT_NONE) {
        enum weir_resolved linked = link_instance(t, slot, name, depth, now);
        if (is_unlinked(t, linked)) {
            weir_slot_free(t, slot);
            return linked == WEIR_RESOLVED_REFUSED
                       ? linked
                       : resolve_without_room(t, name, depth, out, now);
        }
        /* A late request may have locked it just now: as if it had no room. */
        bool seized = weir_bucket_state_seize(t, slot);
        bool became =
            seized && become_evicting(t, slot, name->template, now) == 0;
        if (seized)
            weir_bucket_state_unseize(t, slot);
        if (!became) {
            weir_slot_free(t, slot);
            return resolve_without_room(t, name, depth, out, now);
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
    struct instance_name absent = { .text = name,
                                    .captures = &captures,
                                    .cut = weir_name_is_cut(name) };
    absent.template = weir_templates_match(t, name, &captures);
    return resolve_absent(t, &absent, keep, depth, out, now);
}

/* Updates the slot of a long name, by the whole name. */
static enum weir_resolved resolve_present(struct weir_table *t, uint32_t slot,
                                          const struct instance_name *name,
                                          unsigned depth, weir_instant now)
{
    struct cold *cold = weir_cold(t, slot);
    bool instance = cold->state == WEIR_SLOT_INSTANCE;
    if (name->template == WEIR_SLOT_NONE)
        return WEIR_RESOLVED;
    /* If a request has its bucket state, a sweep does this later. */
    if (!instance || cold->rule != name->template)
        (void)weir_slot_rule(t, slot, now);
    if (weir_load_relaxed(&cold->aux_len) == 0)
        return WEIR_RESOLVED;
    enum weir_resolved linked = link_instance(t, slot, name, depth, now);
    if (is_unlinked(t, linked))
        return linked == WEIR_RESOLVED_REFUSED ? linked : WEIR_RESOLVED_LACKING;
    weir_store_relaxed(&cold->aux_len, 0);
    return WEIR_RESOLVED;
}

static enum weir_resolved resolve_long(struct weir_table *t,
                                       struct weir_text given, bool keep,
                                       unsigned depth, uint32_t *out,
                                       weir_instant now)
{
    struct weir_stored_name stored;
    if (given.len > WEIR_GIVEN_NAME_MAX)
        return WEIR_RESOLVED_REFUSED;
    weir_stored_name_make(t, given, &stored);
    if (stored.len == 0)
        return WEIR_RESOLVED_REFUSED;
    struct instance_name name = { .text = weir_stored_name_text(&stored),
                                  .template = stored.template,
                                  .captures = &stored.captures };
    uint32_t slot = weir_slot_find(t, name.text);
    uint8_t state =
        slot != WEIR_SLOT_NONE ? weir_cold(t, slot)->state : WEIR_SLOT_FREE;
    bool ruled = name.template != WEIR_SLOT_NONE;
    if (state == WEIR_SLOT_MAKING)
        return WEIR_RESOLVED_NONE;
    if (state != WEIR_SLOT_QUOTA && ruled &&
        !weir_stored_name_holds(t, &stored))
        return WEIR_RESOLVED_REFUSED;
    if (state == WEIR_SLOT_FREE)
        return resolve_absent(t, &name, keep, depth, out, now);
    if (state == WEIR_SLOT_PLACEHOLDER && !ruled && !keep)
        return WEIR_RESOLVED_NONE;
    *out = slot;
    return state == WEIR_SLOT_INSTANCE || state == WEIR_SLOT_PLACEHOLDER
               ? resolve_present(t, slot, &name, depth, now)
               : WEIR_RESOLVED;
}

enum weir_resolved weir_slot_resolve_given(struct weir_table *t,
                                           struct weir_text name, bool keep,
                                           unsigned depth, uint32_t *out,
                                           weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(depth < WEIR_DEPTH_MAX);
    return weir_name_is_long(name)
               ? resolve_long(t, name, keep, depth, out, now)
               : weir_slot_resolve(t, name, keep, depth, out, now);
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

/* Without the lock, for when that is taken: whether no quota, no template and
 * not the name itself rules it. False: it isn't known. */
static bool is_unruled(struct weir_table *t, struct weir_text given)
{
    struct weir_stored_name stored = { .len = 0 };
    struct weir_captures captures;
    struct weir_quota brought;
    struct weir_ref ref;
    struct weir_text name = given;
    uint32_t template;
    uint32_t version = weir_templates_version(t);
    if (given.len > WEIR_GIVEN_NAME_MAX)
        return false;
    if (weir_name_is_long(given)) {
        weir_stored_name_make(t, given, &stored);
        name = weir_stored_name_text(&stored);
        template = stored.template;
    } else {
        template = weir_templates_match(t, name, &captures);
    }
    return weir_templates_is_same(t, version) && template == WEIR_SLOT_NONE &&
           name.len > 0 && !find_ruled(t, name, &ref) &&
           !weir_throttle_name_read(name, &brought);
}

static enum weir_resolved ref_of_resolved(const struct weir_table *t,
                                          enum weir_resolved resolved,
                                          uint32_t slot, struct weir_ref *out)
{
    if (weir_is_resolved(resolved))
        *out = (struct weir_ref){ slot, weir_hot(t, slot)->generation };
    return resolved;
}

/* Under the lock. */
enum weir_resolved weir_table_resolve_locked(struct weir_table *t,
                                             struct weir_text name, bool keep,
                                             struct weir_ref *out,
                                             weir_instant now)
{
    uint32_t slot = WEIR_SLOT_NONE;
    enum weir_resolved resolved =
        weir_slot_resolve_given(t, name, keep, 0, &slot, now);
    return ref_of_resolved(t, resolved, slot, out);
}

enum weir_resolved weir_table_resolve_given(struct weir_table *t,
                                            uint32_t process,
                                            struct weir_text name, bool keep,
                                            struct weir_ref *out,
                                            weir_instant now)
{
    if (name.len == 0)
        return WEIR_RESOLVED_NONE;
    if (!weir_name_is_long(name) && find_ruled(t, name, out))
        return WEIR_RESOLVED;
    if (!weir_table_try_lock_as(t, process, LOCK_AWAITED))
        return !keep && is_unruled(t, name) ? WEIR_RESOLVED_NONE
                                            : WEIR_RESOLVED_CONTENDED;
    enum weir_resolved resolved =
        weir_table_resolve_locked(t, name, keep, out, now);
    weir_table_unlock(t);
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
    uint32_t slot = WEIR_SLOT_NONE;
    if (!weir_table_try_lock_as(t, process, LOCK_AWAITED))
        return WEIR_RESOLVED_CONTENDED;
    enum weir_resolved resolved =
        weir_slot_resolve(t, name, keep, 0, &slot, now);
    (void)ref_of_resolved(t, resolved, slot, out);
    weir_table_unlock(t);
    return resolved;
}

enum weir_resolved weir_table_resolve(struct weir_table *t,
                                      struct weir_text name, bool keep,
                                      struct weir_ref *out, weir_instant now)
{
    return weir_table_resolve_as(t, 0, name, keep, out, now);
}
