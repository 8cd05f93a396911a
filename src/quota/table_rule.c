/* SPDX-License-Identifier: MIT
 * quota/table_rule.c - who rules a name: instances, placeholders, references.
 *
 * A name in the table is one of
 *
 *     quota, template   put by the sync
 *     instance          made of the first template that matches; evicted
 *                       when nobody needs it
 *     placeholder       no quota rules it, but somebody refers to it: a
 *                       handle, a child, a template's overflow. Passes.
 *
 * 'refs' counts children and pins. A child holds its parent, so what can be
 * evicted is always a leaf, and a chain never leads through a freed slot.
 *
 * Making an instance may make its parent, and that one's: recursion is
 * bounded by WEIR_DEPTH_MAX, beyond which the chain just ends. */

#include "quota/glob.h"
#include "quota/table_layout.h"

/* Slots a caller in need of one looks at before it gives up. */
#define EVICT_LOOK_MAX 256

/* ---- References ---- */

static void release_unneeded(struct weir_table *t, uint32_t slot)
{
    uint32_t parent = weir_hot(t, slot)->parent;
    weir_slot_release(t, slot);
    if (parent != WEIR_SLOT_NONE)
        weir_slot_unref(t, parent);
}

void weir_slot_unref(struct weir_table *t, uint32_t slot)
{
    struct cold *cold = weir_cold(t, slot);
    weir_assert(cold->refs > 0);
    cold->refs--;
    if (cold->refs == 0 && cold->state == WEIR_SLOT_PLACEHOLDER)
        release_unneeded(t, slot);
}

void weir_slot_set_parent(struct weir_table *t, uint32_t slot,
                          uint32_t parent)
{
    struct hot *hot = weir_hot(t, slot);
    uint32_t before = hot->parent;
    if (before == parent)
        return;
    uint32_t above = WEIR_SLOT_NONE;
    if (parent != WEIR_SLOT_NONE) {
        weir_cold(t, parent)->refs++;
        above = weir_hot(t, parent)->parent;
    }
    weir_store_relaxed(&hot->grandparent, above);
    weir_store_release(&hot->parent, parent);
    if (before != WEIR_SLOT_NONE)
        weir_slot_unref(t, before);
}

/* ---- Eviction ---- */

bool weir_slot_evict(struct weir_table *t, uint32_t slot, weir_instant now)
{
    const struct cold *cold = weir_cold(t, slot);
    if (cold->state != WEIR_SLOT_INSTANCE || cold->refs > 0)
        return false;
    struct look look;
    weir_look(t, slot, weir_elapsed(t, now), &look);
    bool empty = look.fill <= 0 || look.high == WEIR_SCALED_MAX;
    uint64_t bit = (uint64_t)1 << (slot % 64);
    bool marked = weir_load_relaxed(&weir_bits(t)[slot / 64]) & bit;
    if (!empty || marked || look.count != weir_load_relaxed(&cold->settled))
        return false;
    release_unneeded(t, slot);
    return true;
}

/* Walks the hand over up to 'looks' slots. */
static uint32_t hand_evict(struct weir_table *t, uint32_t looks,
                           uint32_t wanted, weir_instant now)
{
    uint32_t freed = 0;
    for (uint32_t i = 0; i < looks && freed < wanted; i++) {
        t->hand = t->hand + 1 < t->used ? t->hand + 1 : 0;
        freed += weir_slot_evict(t, t->hand, now);
    }
    return freed;
}

static uint32_t take_or_evict(struct weir_table *t, struct weir_text name,
                              weir_instant now)
{
    uint32_t slot = weir_slot_take(t, name);
    if (slot != WEIR_SLOT_NONE ||
        hand_evict(t, EVICT_LOOK_MAX, 1, now) == 0)
        return slot;
    return weir_slot_take(t, name);
}

uint32_t weir_table_sweep(struct weir_table *t, uint32_t count,
                          weir_instant now)
{
    uint32_t used = weir_table_used(t);
    uint64_t elapsed = weir_elapsed(t, now);
    uint32_t freed = 0;
    for (uint32_t i = 0; i < count && i < used; i++) {
        weir_table_lock(t);
        uint32_t slot = t->hand = t->hand + 1 < used ? t->hand + 1 : 0;
        bool crowded = t->slots - t->live < t->slots / 8 + 1;
        if (weir_cold(t, slot)->state > WEIR_SLOT_MAKING)
            weir_slot_lift(t, slot, elapsed);
        if (crowded)
            freed += weir_slot_evict(t, slot, now);
        weir_table_unlock(t);
    }
    return freed;
}

/* ---- Who rules a name ---- */

static uint32_t match_template(const struct weir_table *t,
                               struct weir_text name,
                               struct weir_captures *captures)
{
    for (uint32_t i = 0; i < t->template_count; i++) {
        char buf[WEIR_NAME_MAX + 1];
        uint32_t slot = t->templates[i].slot;
        size_t len = weir_table_name(t, slot, buf);
        struct weir_text pattern = { buf, len };
        if (weir_glob_match(pattern, name, captures))
            return slot;
    }
    return WEIR_SLOT_NONE;
}

/* The parent that a template gives to a name, made if need be; or
 * WEIR_SLOT_NONE. */
static uint32_t parent_by(struct weir_table *t, uint32_t template,
                          const struct weir_captures *captures,
                          unsigned depth, weir_instant now)
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

/* Copies the template's parameters: an instance is its quota. */
static void become_instance(struct weir_table *t, uint32_t slot,
                            uint32_t template, bool empty, weir_instant now)
{
    struct look look;
    weir_look(t, template, weir_elapsed(t, now), &look);
    struct weir_bucket bucket = { .leak = look.leak,
                                  .low = look.high - look.band,
                                  .high = look.high };
    const struct cold *from = weir_cold(t, template);
    struct cold *cold = weir_cold(t, slot);
    cold->rule = template;
    cold->created = from->created;
    cold->sharing = from->sharing;
    cold->on_stale = from->on_stale;
    weir_store_relaxed(&cold->hold, weir_load_relaxed(&from->hold));
    uint32_t flags = (look.flags & ~META_STALE) |
                     weir_slot_stale_flags(t, slot);
    weir_slot_switch(t, slot, &bucket, flags, empty, now);
    weir_store_release(&cold->state, WEIR_SLOT_INSTANCE);
}

static void become_placeholder(struct weir_table *t, uint32_t slot,
                               weir_instant now)
{
    struct weir_bucket bucket;
    weir_bucket_open(&bucket);
    struct cold *cold = weir_cold(t, slot);
    cold->rule = WEIR_SLOT_NONE;
    cold->created = 0;
    cold->sharing = WEIR_LOCAL;
    weir_slot_switch(t, slot, &bucket, META_OFF, true, now);
    weir_store_release(&cold->state, WEIR_SLOT_PLACEHOLDER);
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
    uint32_t template =
        match_template(t, (struct weir_text){ buf, len }, &captures);
    if (template != WEIR_SLOT_NONE) {
        bool another = cold->state == WEIR_SLOT_PLACEHOLDER ||
                       cold->created != weir_cold(t, template)->created;
        become_instance(t, slot, template, another, now);
        weir_slot_set_parent(t, slot,
                             parent_by(t, template, &captures, 0, now));
        return;
    }
    become_placeholder(t, slot, now);
    weir_slot_set_parent(t, slot, WEIR_SLOT_NONE);
    if (cold->refs == 0)
        release_unneeded(t, slot);
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

enum weir_resolved weir_slot_resolve(struct weir_table *t,
                                     struct weir_text name, bool keep,
                                     unsigned depth, uint32_t *out,
                                     weir_instant now)
{
    struct weir_ref ref;
    if (weir_table_find(t, name, &ref)) {
        bool ruled =
            weir_cold(t, ref.slot)->state != WEIR_SLOT_PLACEHOLDER;
        *out = ref.slot;
        return ruled || keep ? WEIR_RESOLVED : WEIR_RESOLVED_NONE;
    }
    struct weir_captures captures;
    uint32_t template = match_template(t, name, &captures);
    if (template == WEIR_SLOT_NONE && !keep)
        return WEIR_RESOLVED_NONE;
    uint32_t slot = take_or_evict(t, name, now);
    if (slot == WEIR_SLOT_NONE)
        return no_room(t, template, &captures, depth, out, now);
    if (template != WEIR_SLOT_NONE) {
        become_instance(t, slot, template, true, now);
        weir_slot_set_parent(t, slot,
                             parent_by(t, template, &captures, depth, now));
    } else {
        become_placeholder(t, slot, now);
    }
    if (!weir_slot_publish(t, slot)) {
        release_unneeded(t, slot);
        return no_room(t, template, &captures, depth, out, now);
    }
    *out = slot;
    return WEIR_RESOLVED;
}

static enum weir_resolved resolve_ref(struct weir_table *t,
                                      struct weir_text name, bool keep,
                                      bool pin, struct weir_ref *out,
                                      weir_instant now)
{
    if (name.len == 0 || name.len > WEIR_NAME_MAX)
        return WEIR_RESOLVED_NONE;
    uint32_t slot;
    weir_table_lock(t);
    enum weir_resolved resolved =
        weir_slot_resolve(t, name, keep, 0, &slot, now);
    if (resolved != WEIR_RESOLVED_NONE) {
        out->slot = slot;
        out->generation = weir_hot(t, slot)->generation;
        if (pin)
            weir_cold(t, slot)->refs++;
    }
    weir_table_unlock(t);
    return resolved;
}

enum weir_resolved weir_table_resolve(struct weir_table *t,
                                      struct weir_text name, bool keep,
                                      struct weir_ref *out, weir_instant now)
{
    return resolve_ref(t, name, keep, false, out, now);
}

enum weir_resolved weir_table_pin(struct weir_table *t,
                                  struct weir_text name,
                                  struct weir_ref *out, weir_instant now)
{
    return resolve_ref(t, name, true, true, out, now);
}

void weir_table_unpin(struct weir_table *t, struct weir_ref ref)
{
    weir_table_lock(t);
    if (ref.slot < t->slots &&
        weir_hot(t, ref.slot)->generation == ref.generation)
        weir_slot_unref(t, ref.slot);
    weir_table_unlock(t);
}

uint32_t weir_table_template_of(const struct weir_table *t, uint32_t slot)
{
    const struct cold *cold = weir_cold(t, slot);
    return cold->state == WEIR_SLOT_INSTANCE ? cold->rule : WEIR_SLOT_NONE;
}
