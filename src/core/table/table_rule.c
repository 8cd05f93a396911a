/* SPDX-License-Identifier: MIT
 * table/table_rule.c - the rule of a name: instances, placeholders, references.
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
 * 'refs' counts children and pins. A child refers to its parent, so a slot that
 * can be evicted is always a leaf, and a chain never leads through a freed
 * slot. A slot with units in flight isn't freed either, even if its quota was
 * removed: it stays as a placeholder, so that permits are never given back to
 * another name.
 *
 * Making an instance may make its parent, and the parent's parent: recursion is
 * bounded by WEIR_DEPTH_MAX, beyond which the chain ends. */

#include "core/quota/glob.h"
#include "core/quota/quota_bucket.h"
#include "core/quota/throttle_name.h"
#include "core/table/table_layout.h"

/* Slots that a caller visits to evict one before it gives up. */
#define EVICT_LOOK_MAX 256
#define BARREN (20 * WEIR_MILLISECOND)
/* Freed for a bucket state: one may be too small, or not adjacent to a free
 * block. */
#define EVICT_BUCKET_STATES 8
/* Slots swept each time the lock is taken: some microseconds. */
#define SWEEP_HOLD 32

/* ---- References ---- */

void weir_slot_free(struct weir_table *t, uint32_t slot)
{
    uint32_t parent = weir_parent(weir_hot(t, slot));
    weir_slot_release(t, slot);
    if (parent != WEIR_SLOT_NONE)
        weir_slot_unref(t, parent);
}

/* Frees a placeholder without references. As in evict(): the generation first,
 * then a last check whether an enter was faster. */
static void free_placeholder(struct weir_table *t, uint32_t slot)
{
    struct hot *hot = weir_hot(t, slot);
    weir_store(&hot->generation, hot->generation + (hot->generation & 1));
    if (weir_slot_has_permits(t, slot))
        weir_slot_publish(t, slot);
    else
        weir_slot_free(t, slot);
}

void weir_slot_unref(struct weir_table *t, uint32_t slot)
{
    struct cold *cold = weir_cold(t, slot);
    weir_assert(cold->refs > 0);
    cold->refs--;
    if (cold->refs > 0)
        return;
    t->barren_till = 0;
    weir_slot_unpinned(t, slot);
    if (cold->state == WEIR_SLOT_PLACEHOLDER)
        free_placeholder(t, slot);
}

void weir_slot_set_parent(struct weir_table *t, uint32_t slot, uint32_t parent)
{
    struct hot *hot = weir_hot(t, slot);
    uint32_t before = weir_parent(hot);
    if (before == parent)
        return;
    uint32_t above = WEIR_SLOT_NONE;
    if (parent != WEIR_SLOT_NONE) {
        weir_cold(t, parent)->refs++;
        above = weir_parent(weir_hot(t, parent));
    }
    weir_store(&hot->up, weir_up_of(parent, above));
    if (before != WEIR_SLOT_NONE)
        weir_slot_unref(t, before);
}

/* ---- Eviction ---- */

/* Whether the slot is not needed now; '*out_count' is its count then. A
 * placeholder is idle as soon as it has no references: one that was resolved
 * and never pinned. */
static bool is_idle(struct weir_table *t, uint32_t slot, uint64_t *out_count,
                    weir_instant now)
{
    const struct cold *cold = weir_cold(t, slot);
    bool idles = cold->state == WEIR_SLOT_INSTANCE ||
                 cold->state == WEIR_SLOT_PLACEHOLDER;
    if (!idles || cold->refs > 0)
        return false;
    uint64_t bit = (uint64_t)1 << (slot % 64);
    if (weir_load_relaxed(&weir_bits(t)[slot / 64]) & bit)
        return false;
    struct look look;
    *out_count = weir_load(&weir_hot(t, slot)->count);
    weir_slot_read(t, slot, weir_elapsed(t, now), &look);
    bool empty = look.fill <= 0 || look.high == WEIR_SCALED_MAX ||
                 (look.flags & META_INFLIGHT);
    return empty && !weir_slot_has_permits(t, slot) &&
           look.count == weir_load_relaxed(&cold->settled) &&
           weir_bucket_state_is_idle(t, slot, now);
}

/* Frees an instance that is not needed. The generation moves before the count
 * is read for the last time (table_layout.h). If a take came in between, the
 * slot lives on under another generation: the old one can't be restored,
 * because a thread may have seen the even one in between. */
static bool evict(struct weir_table *t, uint32_t slot, weir_instant now)
{
    uint64_t count;
    if (!is_idle(t, slot, &count, now))
        return false;
    struct hot *hot = weir_hot(t, slot);
    weir_store(&hot->generation, hot->generation + 1);
    if (weir_load(&hot->count) != count || weir_slot_has_permits(t, slot)) {
        weir_slot_publish(t, slot);
        return false;
    }
    weir_slot_free(t, slot);
    return true;
}

uint32_t weir_table_evict(struct weir_table *t, uint32_t looks, uint32_t wanted,
                          weir_instant now)
{
    uint32_t freed = 0;
    for (uint32_t i = 0; i < looks && i < t->used && freed < wanted; i++) {
        t->hand = t->hand + 1 < t->used ? t->hand + 1 : 0;
        freed += evict(t, t->hand, now);
    }
    return freed;
}

/* After one failed search there is none for a while, until the sweep has
 * passed: otherwise each name of a flood would hold the lock for some hundred
 * slots. */
uint32_t weir_slot_make(struct weir_table *t, struct weir_text name,
                        weir_instant now)
{
    uint32_t slot = weir_slot_take(t, name);
    if (slot != WEIR_SLOT_NONE || now < t->barren_till)
        return slot;
    if (weir_table_evict(t, EVICT_LOOK_MAX, 1, now) == 0) {
        t->barren_till = now + BARREN;
        return slot;
    }
    return weir_slot_take(t, name);
}

bool weir_table_is_crowded(const struct weir_table *t)
{
    return t->slots - weir_table_live(t) < t->slots / 8 + 1;
}

/* Whether it is an instance that found no room for its bucket state. */
static bool lacks_bucket_state(const struct weir_table *t, uint32_t slot)
{
    const struct cold *cold = weir_cold(t, slot);
    return t->metered && cold->state == WEIR_SLOT_INSTANCE &&
           cold->rule != WEIR_SLOT_NONE &&
           weir_bucket_state(t, slot)->where == 0 &&
           weir_bucket_state(t, cold->rule)->where != 0;
}

/* Under the lock: the hand moves on by some slots. */
static uint32_t sweep_some(struct weir_table *t, uint32_t count,
                           weir_instant now)
{
    uint64_t elapsed = weir_elapsed(t, now);
    uint32_t freed = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = t->hand = t->hand + 1 < t->used ? t->hand + 1 : 0;
        if (weir_cold(t, slot)->state > WEIR_SLOT_MAKING)
            weir_slot_lift(t, slot, elapsed);
        if (lacks_bucket_state(t, slot) || weir_slot_wants_gate_slot(t, slot))
            weir_slot_rule(t, slot, now);
        if (weir_table_is_crowded(t))
            freed += evict(t, slot, now);
    }
    return freed;
}

uint32_t weir_table_sweep(struct weir_table *t, uint32_t count,
                          weir_instant now)
{
    uint32_t used = weir_table_used(t);
    uint32_t freed = 0;
    if (count > used)
        count = used;
    for (uint32_t done = 0; done < count; done += SWEEP_HOLD) {
        uint32_t some = count - done < SWEEP_HOLD ? count - done : SWEEP_HOLD;
        weir_table_lock(t);
        freed += sweep_some(t, some, now);
        t->barren_till = 0;
        weir_table_unlock(t);
    }
    if (freed > 0)
        weir_shadow_freed(t);
    return freed;
}

/* ---- The rule of a name ---- */

static uint32_t match_template(const struct weir_table *t,
                               struct weir_text name,
                               struct weir_captures *captures)
{
    bool shadow = weir_name_is_shadow(name);
    for (uint32_t i = 0; i < t->template_count; i++) {
        char buf[WEIR_NAME_MAX + 1];
        uint32_t slot = t->templates[i].slot;
        size_t len = weir_table_name(t, slot, buf);
        struct weir_text pattern = { buf, len };
        enum weir_glob glob =
            t->templates[i].path ? WEIR_GLOB_PATH : WEIR_GLOB_NAME;
        if (weir_name_is_shadow(pattern) == shadow &&
            weir_template_match(glob, pattern, name, captures))
            return slot;
    }
    return WEIR_SLOT_NONE;
}

/* The parent that a template gives to a name, made if necessary; or
 * WEIR_SLOT_NONE. */
static uint32_t parent_by(struct weir_table *t, uint32_t template,
                          const struct weir_captures *captures, unsigned depth,
                          weir_instant now)
{
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
static bool leads_to(const struct weir_table *t, uint32_t from, uint32_t slot)
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
    struct cold *cold = weir_cold(t, slot);
    cold->refs++;
    uint32_t parent = parent_by(t, template, captures, depth, now);
    if (leads_to(t, parent, slot))
        parent = WEIR_SLOT_NONE;
    weir_slot_set_parent(t, slot, parent);
    cold->refs--;
}

/* Copies the template's parameters. An instance without room for its bucket
 * state limits nothing itself: WEIR_EFULL. */
static int become_instance(struct weir_table *t, uint32_t slot,
                           uint32_t template, bool empty, weir_instant now)
{
    struct look look;
    struct bucket_state_plan plan;
    int error = weir_bucket_state_plan_instance(t, slot, template, &plan);
    weir_slot_read(t, template, weir_elapsed(t, now), &look);
    struct weir_bucket bucket = { .leak = look.leak,
                                  .low = look.high - look.band,
                                  .high = look.high };
    const struct cold *from = weir_cold(t, template);
    struct cold *cold = weir_cold(t, slot);
    enum weir_sharing before = (enum weir_sharing)cold->sharing;
    weir_store_relaxed(&cold->rule, template);
    cold->created = from->created;
    cold->sharing = from->sharing;
    cold->on_stale = from->on_stale;
    weir_store_relaxed(&cold->hold, weir_load_relaxed(&from->hold));
    uint32_t flags =
        look.flags & (META_OFF | META_SHADOW | META_INFLIGHT | META_ADAPTIVE);
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
}

void weir_slot_rule(struct weir_table *t, uint32_t slot, weir_instant now)
{
    struct cold *cold = weir_cold(t, slot);
    if (cold->state != WEIR_SLOT_INSTANCE &&
        cold->state != WEIR_SLOT_PLACEHOLDER)
        return;
    char buf[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(t, slot, buf);
    struct weir_captures captures;
    struct weir_quota brought;
    uint32_t template =
        match_template(t, (struct weir_text){ buf, len }, &captures);
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
        free_placeholder(t, slot);
}

static enum weir_resolved no_room(struct weir_table *t, uint32_t template,
                                  const struct weir_captures *captures,
                                  unsigned depth, uint32_t *out,
                                  weir_instant now)
{
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
static bool may_make(struct weir_table *t, struct weir_text name,
                     uint32_t template, weir_instant now)
{
    if (template == WEIR_SLOT_NONE || !weir_name_is_shadow(name) ||
        t->live < t->slots / 2)
        return true;
    return weir_table_evict(t, EVICT_LOOK_MAX, 1, now) > 0;
}

/* Makes a new instance; from time to time, idle slots are freed for its bucket
 * state. */
static int make_room(struct weir_table *t, uint32_t slot, uint32_t template,
                     weir_instant now)
{
    int error = become_instance(t, slot, template, true, now);
    if (error == 0 || now < t->barren_till)
        return error;
    weir_cold(t, slot)->refs++;
    uint32_t freed =
        weir_table_evict(t, EVICT_LOOK_MAX, EVICT_BUCKET_STATES, now);
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
    uint32_t template = match_template(t, name, &captures);
    bool brings =
        template == WEIR_SLOT_NONE && weir_throttle_name_read(name, &brought);
    if (template == WEIR_SLOT_NONE && !brings && !keep)
        return WEIR_RESOLVED_NONE;
    slot = may_make(t, name, template, now) ? weir_slot_make(t, name, now)
                                            : WEIR_SLOT_NONE;
    if (slot == WEIR_SLOT_NONE)
        return no_room(t, template, &captures, depth, out, now);
    if (template != WEIR_SLOT_NONE) {
        link_instance(t, slot, template, &captures, depth, now);
        if (make_room(t, slot, template, now) < 0) {
            weir_slot_free(t, slot);
            return no_room(t, template, &captures, depth, out, now);
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

void weir_slot_mark_chain(struct weir_table *t, uint32_t slot)
{
    /* Between two edits the parents may form a cycle. */
    for (unsigned i = 0; slot != WEIR_SLOT_NONE && i < WEIR_DEPTH_MAX; i++) {
        weir_slot_mark(t, slot);
        slot = weir_parent(weir_hot(t, slot));
    }
}

/* The marks make the roots send fills of a pinned slot before its first
 * request. */
static void pin_slot(struct weir_table *t, struct weir_ref ref,
                     weir_instant now)
{
    weir_cold(t, ref.slot)->refs++;
    weir_slot_mark_chain(t, ref.slot);
    weir_shadow_meet(t, ref, now);
}

/* Under the lock. */
static enum weir_resolved find_or_make(struct weir_table *t,
                                       struct weir_text name, bool keep,
                                       struct weir_ref *out, weir_instant now)
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
    enum weir_resolved resolved = find_or_make(t, name, keep, out, now);
    weir_table_unlock(t);
    return resolved;
}

enum weir_resolved weir_table_pin_as(struct weir_table *t, uint32_t process,
                                     struct weir_text name,
                                     struct weir_ref *out, weir_instant now)
{
    if (name.len == 0 || name.len > WEIR_NAME_MAX)
        return WEIR_RESOLVED_NONE;
    weir_table_lock_as(t, process);
    enum weir_resolved resolved = find_or_make(t, name, true, out, now);
    if (resolved != WEIR_RESOLVED_NONE) {
        if (weir_share_pin(t, process, out->slot))
            pin_slot(t, *out, now);
        else
            resolved = WEIR_RESOLVED_FULL;
    }
    weir_table_unlock(t);
    return resolved;
}

void weir_table_unpin_as(struct weir_table *t, uint32_t process,
                         struct weir_ref ref)
{
    weir_table_lock_as(t, process);
    if (ref.slot < t->slots &&
        weir_hot(t, ref.slot)->generation == ref.generation &&
        weir_share_unpin(t, process, ref.slot))
        weir_slot_unref(t, ref.slot);
    weir_table_unlock(t);
}

enum weir_resolved weir_table_resolve(struct weir_table *t,
                                      struct weir_text name, bool keep,
                                      struct weir_ref *out, weir_instant now)
{
    return weir_table_resolve_as(t, 0, name, keep, out, now);
}

enum weir_resolved weir_table_pin(struct weir_table *t, struct weir_text name,
                                  struct weir_ref *out, weir_instant now)
{
    return weir_table_pin_as(t, 0, name, out, now);
}

void weir_table_unpin(struct weir_table *t, struct weir_ref ref)
{
    weir_table_unpin_as(t, 0, ref);
}

uint32_t weir_table_template_of(const struct weir_table *t, uint32_t slot)
{
    const struct cold *cold = weir_cold(t, slot);
    uint8_t state = weir_load_acquire(&cold->state);
    return state == WEIR_SLOT_INSTANCE ? weir_load_relaxed(&cold->rule)
                                       : WEIR_SLOT_NONE;
}
