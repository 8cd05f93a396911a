/* SPDX-License-Identifier: MIT
 * table/table_edit.c - adding, changing and removing quotas, by the sync.
 *
 * An edit keeps the slot, its count and its fill in units; only a quota that
 * was removed and created again begins empty, because it is another one under
 * the same name. Every function takes the writer lock for one slot at a time: a
 * caller that makes an instance waits for one of these steps, never for a whole
 * set. */

#include "core/quota/glob.h"
#include "core/quota/quota_bucket.h"
#include "core/table/table_layout.h"

#include <string.h>

/* Slots visited and freed by a put in a full table, each time it takes the
 * lock. */
#define PUT_LOOKS 1024
#define PUT_WANTED 32

/* ---- The switch (table_layout.h) ---- */

static uint32_t meta_of(const struct weir_bucket *bucket, uint32_t flags)
{
    return flags | (uint32_t)bucket->leak.whole << META_WHOLE_SHIFT |
           (uint32_t)bucket->leak.frac << META_FRAC_SHIFT;
}

/* Steps 3 and 4. */
static void switch_finish(struct weir_table *t, uint32_t slot)
{
    struct hot *hot = weir_hot(t, slot);
    /* Odd already, if the previous writer was killed within step 3. */
    uint32_t seq = (hot->meta & ~(META_SEQ_ONE - 1)) | META_SEQ_ONE;
    uint32_t old = hot->meta & (META_SEQ_ONE - 1);
    weir_store(&hot->meta, seq | old);
    weir_fence_release();
    weir_store_relaxed(&hot->part, t->spare_part);
    weir_store_relaxed(&hot->high, t->spare_high);
    weir_store_relaxed(&hot->band, t->spare_band);
    /* release: pairs with the acquire of meta in weir_slot_read(). */
    weir_store_release(&hot->meta, (seq + META_SEQ_ONE) | t->spare_meta);
    uint64_t base = weir_load(&hot->base);
    while (!weir_cas(&hot->base, &base, base & ~(uint64_t)1))
        continue;
}

void weir_table_mend_switch(struct weir_table *t)
{
    uint32_t dead = t->spare_slot;
    if (dead != WEIR_SLOT_NONE && (weir_load(&weir_hot(t, dead)->base) & 1))
        switch_finish(t, dead);
}

static void spare_fill(struct weir_table *t, uint32_t slot,
                       const struct weir_bucket *bucket, uint32_t flags)
{
    weir_table_mend_switch(t);
    /* Odd already, if the previous writer was killed in here. */
    weir_store(&t->spare_seq, t->spare_seq | 1);
    weir_fence_release();
    weir_store_relaxed(&t->spare_slot, slot);
    weir_store_relaxed(&t->spare_part, bucket->leak.part);
    weir_store_relaxed(&t->spare_high, bucket->high);
    weir_store_relaxed(&t->spare_band,
                       weir_mini_of(bucket->high - bucket->low));
    weir_store_relaxed(&t->spare_meta, meta_of(bucket, flags));
    /* release: pairs with the acquire of spare_seq in
     * weir_slot_read_spare(). */
    weir_store_release(&t->spare_seq, t->spare_seq + 1);
}

/* The same units on another scale, within the bound. */
static int64_t fill_rescaled(const struct look *look, unsigned frac)
{
    /* A bucket that never refuses doesn't leak: its fill means nothing. */
    if (look->fill <= 0 || look->high == WEIR_SCALED_MAX)
        return 0;
    if (frac > look->leak.frac &&
        look->fill > WEIR_SCALED_MAX >> (frac - look->leak.frac))
        return WEIR_SCALED_MAX;
    return weir_rescale(look->fill, look->leak.frac, frac);
}

void weir_slot_switch(struct weir_table *t, uint32_t slot,
                      const struct weir_bucket *bucket, uint32_t flags,
                      bool empty, weir_instant now)
{
    struct hot *hot = weir_hot(t, slot);
    uint64_t elapsed = weir_elapsed(t, now);
    uint64_t leaked = weir_leaked(bucket->leak, elapsed);
    spare_fill(t, slot, bucket, flags);
    for (;;) {
        struct look look;
        weir_slot_read(t, slot, elapsed, &look);
        int64_t fill = empty ? 0 : fill_rescaled(&look, bucket->leak.frac);
        /* For kind concurrency, look.count has the units in flight. */
        uint64_t count = look.flags & META_INFLIGHT
                             ? weir_load_relaxed(&hot->count)
                             : look.count;
        uint64_t scaled =
            (uint64_t)fill + leaked - (count << bucket->leak.frac);
        if (weir_cas(&hot->base, &look.base, (scaled << 1) | 1))
            break;
    }
    switch_finish(t, slot);
}

void weir_slot_set_flags(struct weir_table *t, uint32_t slot, uint32_t flags)
{
    struct hot *hot = weir_hot(t, slot);
    weir_table_mend_switch(t);
    weir_store_release(&hot->meta, (hot->meta & ~META_FLAGS) | flags);
}

/* ---- From a quota to a slot ---- */

static uint32_t flags_of(const struct weir_quota *quota)
{
    uint32_t flags = quota->kind == WEIR_CONCURRENCY ? META_INFLIGHT : 0;
    flags |= quota->sharing == WEIR_ADAPTIVE ? META_ADAPTIVE : 0;
    if (quota->mode == WEIR_OFF)
        return flags | META_OFF;
    return flags | (quota->mode == WEIR_SHADOW ? META_SHADOW : 0);
}

uint32_t weir_slot_stale_flags(const struct weir_table *t, uint32_t slot)
{
    const struct cold *cold = weir_cold(t, slot);
    if (!t->stale || cold->sharing != WEIR_COUNTED)
        return 0;
    switch ((enum weir_on_stale)cold->on_stale) {
    case WEIR_STALE_PASS:
        return META_PASS;
    case WEIR_STALE_LIMIT:
        return META_LIMIT;
    case WEIR_STALE_HOLD:
        return META_HOLD;
    case WEIR_STALE_SHARE:
        break;
    }
    return 0;
}

/* ---- Templates ---- */

typedef uint64_t __attribute__((may_alias)) entry_word;
static_assert(sizeof(struct template_entry) == sizeof(entry_word), "");

/* Stores a whole entry at once: a killed writer leaves each entry somewhere in
 * the list, one of them perhaps twice. */
static void entry_store(struct weir_table *t, uint32_t i,
                        struct template_entry entry)
{
    uint64_t word;
    memcpy(&word, &entry, sizeof(word));
    weir_store_relaxed((entry_word *)&t->templates[i], word);
}

static void template_remove(struct weir_table *t, uint32_t slot)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->template_count; i++) {
        struct template_entry entry = t->templates[i];
        if (entry.slot == slot)
            continue;
        if (kept != i)
            entry_store(t, kept, entry);
        kept++;
    }
    t->template_count = kept;
}

static bool comes_before(const struct weir_table *t,
                         const struct weir_quota *quota,
                         const struct template_entry *other)
{
    if (quota->order != other->order)
        return quota->order < other->order;
    char buf[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(t, other->slot, buf);
    return weir_glob_compare(quota->name, (struct weir_text){ buf, len }) < 0;
}

/* Binary search: each entry of the same order requires loading its name. */
static void template_insert(struct weir_table *t,
                            const struct weir_quota *quota, uint32_t slot)
{
    uint32_t from = 0;
    uint32_t to = t->template_count;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (comes_before(t, quota, &t->templates[middle]))
            to = middle;
        else
            from = middle + 1;
    }
    for (uint32_t i = t->template_count; i > from; i--)
        entry_store(t, i, t->templates[i - 1]);
    struct template_entry entry = {
        .order = quota->order,
        .slot = slot & 0xFFFFFF,
        .path = quota->glob == WEIR_GLOB_PATH,
    };
    entry_store(t, from, entry);
    t->template_count++;
}

/* Sets a template's data beside its parameters: its place in the order, the
 * pattern of the parent, the overflow quota. */
static int template_put(struct weir_table *t, uint32_t slot,
                        const struct weir_quota *quota, weir_instant now)
{
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
        weir_cold(t, overflow)->refs++;
    if (!weir_chunks_store(t, quota->parent.p, quota->parent.len, &aux)) {
        if (overflow != WEIR_SLOT_NONE)
            weir_slot_unref(t, overflow);
        return WEIR_EFULL;
    }
    template_remove(t, slot);
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
    template_insert(t, quota, slot);
    return WEIR_OK;
}

static void template_forget(struct weir_table *t, uint32_t slot)
{
    struct cold *cold = weir_cold(t, slot);
    uint32_t overflow = cold->rule;
    template_remove(t, slot);
    uint32_t chunks = cold->aux;
    cold->aux = CHUNK_NONE;
    cold->aux_len = 0;
    weir_chunks_free(t, chunks);
    weir_store_relaxed(&cold->rule, WEIR_SLOT_NONE);
    if (overflow != WEIR_SLOT_NONE)
        weir_slot_unref(t, overflow);
}

/* The templates changed: finds the template of each instance and placeholder
 * again. Skips other slots by reading one byte each. */
static void rule_all(struct weir_table *t, weir_instant now)
{
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++) {
        uint8_t state = weir_load_acquire(&weir_cold(t, slot)->state);
        if (state != WEIR_SLOT_INSTANCE && state != WEIR_SLOT_PLACEHOLDER)
            continue;
        weir_table_lock(t);
        weir_slot_rule(t, slot, now);
        weir_table_unlock(t);
    }
}

/* ---- Put ---- */

static int put_links(struct weir_table *t, uint32_t slot,
                     const struct weir_quota *quota, weir_instant now)
{
    struct cold *cold = weir_cold(t, slot);
    if (weir_quota_is_template(quota))
        return template_put(t, slot, quota, now);
    uint32_t parent = WEIR_SLOT_NONE;
    if (quota->parent.len > 0 &&
        weir_slot_resolve(t, quota->parent, true, 1, &parent, now) !=
            WEIR_RESOLVED)
        return WEIR_EFULL;
    if (cold->state == WEIR_SLOT_INSTANCE)
        weir_store_relaxed(&cold->rule, WEIR_SLOT_NONE);
    weir_slot_set_parent(t, slot, parent);
    return WEIR_OK;
}

static void measure(struct weir_table *t, uint32_t slot,
                    const struct weir_bucket *bucket, uint32_t flags,
                    const struct bucket_state_plan *plan, bool empty,
                    weir_instant now)
{
    if (plan->where != 0) {
        struct weir_bucket open;
        weir_bucket_open(&open);
        weir_bucket_state_follow(t, slot, plan, empty, now);
        weir_slot_switch(t, slot, &open, flags | plan->flags, empty, now);
        return;
    }
    /* In this order: units taken meanwhile from the bucket state may be counted
     * twice, but are never lost. */
    weir_slot_switch(t, slot, bucket, flags, empty, now);
    uint64_t units = weir_bucket_state_drop(t, slot, now);
    if (units > 0 && !empty && bucket->high != WEIR_SCALED_MAX)
        weir_table_add_others(t, slot, (int64_t)(units << bucket->leak.frac));
}

/* From now on the counts are of another kind, or of another life: none was
 * reported to a root yet, and the former marks are not valid. */
static void begin_kind(struct weir_table *t, uint32_t slot)
{
    uint64_t count = weir_table_count(t, slot);
    struct hot *hot = weir_hot(t, slot);
    struct cold *cold = weir_cold(t, slot);
    weir_store_relaxed(&weir_inflight(t, slot)->others, 0);
    weir_store_relaxed(&cold->settled, count);
    weir_store_relaxed(&cold->report_at, count);
    weir_store(&hot->stop, count + WEIR_COUNT_FAR);
    weir_store(&hot->report_within, WEIR_MINI_FAR);
}

void weir_slot_measure(struct weir_table *t, uint32_t slot,
                       const struct weir_bucket *bucket, uint32_t flags,
                       const struct bucket_state_plan *plan, bool empty,
                       weir_instant now)
{
    weir_table_mend_switch(t);
    /* Units that a rate let through aren't in flight, nor the reverse. */
    bool flips = (weir_hot(t, slot)->meta ^ flags) & META_INFLIGHT;
    bool making = weir_cold(t, slot)->state == WEIR_SLOT_MAKING;
    measure(t, slot, bucket, flags, plan, empty || flips, now);
    if (flips || (making && (flags & META_INFLIGHT)))
        begin_kind(t, slot);
    /* The new kind and the units in flight are reported at once: roots may have
     * treated the quota as removed. */
    if (flips && !making)
        weir_slot_mark(t, slot);
}

void weir_slot_share(struct weir_table *t, uint32_t slot,
                     enum weir_sharing before)
{
    const struct cold *cold = weir_cold(t, slot);
    if (before != WEIR_COUNTED || cold->sharing == WEIR_COUNTED ||
        cold->state == WEIR_SLOT_MAKING)
        return;
    struct hot *hot = weir_hot(t, slot);
    if (hot->meta & META_INFLIGHT)
        weir_store_relaxed(&weir_inflight(t, slot)->others, 0);
    weir_store(&hot->stop, weir_table_count(t, slot) + WEIR_COUNT_FAR);
    weir_store(&hot->report_within, WEIR_MINI_FAR);
    weir_slot_mark(t, slot);
}

/* Sets the quota's fields in a slot; its links are made. */
static void put_fields(struct weir_table *t, uint32_t slot,
                       const struct weir_quota *quota,
                       const struct bucket_state_plan *plan, weir_instant now)
{
    struct cold *cold = weir_cold(t, slot);
    bool template = weir_quota_is_template(quota);
    bool known =
        cold->state == WEIR_SLOT_QUOTA || cold->state == WEIR_SLOT_TEMPLATE;
    bool another =
        cold->state == WEIR_SLOT_MAKING ||
        (cold->created != quota->created && cold->state == WEIR_SLOT_QUOTA);
    bool ruled = known || cold->state == WEIR_SLOT_INSTANCE;
    enum weir_sharing before = (enum weir_sharing)cold->sharing;
    cold->created = quota->created;
    cold->sharing = (uint8_t)(quota->sharing & 7);
    cold->on_stale = (uint8_t)(quota->on_stale & 7);
    cold->seen = 1;
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
    uint32_t slot = weir_slot_find(t, quota->name);
    bool fresh = slot == WEIR_SLOT_NONE;
    if (fresh)
        slot = weir_slot_make(t, quota->name, now);
    if (slot == WEIR_SLOT_NONE)
        return WEIR_EFULL;
    struct cold *cold = weir_cold(t, slot);
    struct bucket_state_plan plan;
    int error = weir_bucket_state_plan(t, slot, quota, &plan);
    if (error == 0) {
        /* Protected from eviction: its links may need room, and it may be an
         * idle instance. */
        cold->refs++;
        error = put_links(t, slot, quota, now);
        cold->refs--;
        if (error < 0)
            weir_bucket_state_unplan(t, &plan);
    }
    if (error < 0) {
        if (fresh)
            weir_slot_free(t, slot);
        return error;
    }
    put_fields(t, slot, quota, &plan, now);
    if (fresh)
        weir_slot_publish(t, slot);
    return WEIR_OK;
}

static bool is_template(struct weir_table *t, struct weir_text name)
{
    struct weir_ref ref;
    return weir_table_find(t, name, &ref) &&
           weir_load_acquire(&weir_cold(t, ref.slot)->state) ==
               WEIR_SLOT_TEMPLATE;
}

/* A quota has priority over instances: idle slots are freed for it, some each
 * time the lock is taken, until all were visited. */
int weir_table_put(struct weir_table *t, const struct weir_quota *quota,
                   weir_instant now)
{
    int error = WEIR_EFULL;
    uint32_t looks = 0;
    /* Without glob=path, the same name may be that of a quota. */
    if (!weir_quota_is_template(quota) && is_template(t, quota->name))
        weir_table_drop(t, quota->name, now);
    while (error == WEIR_EFULL && looks <= weir_table_used(t)) {
        weir_table_lock(t);
        if (looks > 0)
            weir_table_evict(t, PUT_LOOKS, PUT_WANTED, now);
        error = put_locked(t, quota, now);
        weir_table_unlock(t);
        looks += PUT_LOOKS;
    }
    if (error == WEIR_OK && weir_quota_is_template(quota))
        rule_all(t, now);
    return error;
}

/* ---- Drop ---- */

static void drop_slot(struct weir_table *t, uint32_t slot, weir_instant now)
{
    weir_table_lock(t);
    struct cold *cold = weir_cold(t, slot);
    bool template = cold->state == WEIR_SLOT_TEMPLATE;
    if (template)
        template_forget(t, slot);
    if (template || cold->state == WEIR_SLOT_QUOTA) {
        char name[WEIR_NAME_MAX + 1];
        size_t len = weir_table_name(t, slot, name);
        weir_shadow_count(t, (struct weir_text){ name, len }, -1);
        weir_store_release(&cold->state, WEIR_SLOT_PLACEHOLDER);
        /* Without references it is freed, even if a template matches. A
         * concurrent enter may find it: it limits nothing by then. */
        cold->refs++;
        if (cold->refs > 1 || weir_slot_has_permits(t, slot))
            weir_slot_rule(t, slot, now);
        else if (!template)
            weir_slot_unrule(t, slot, now);
        weir_slot_unref(t, slot);
    }
    weir_table_unlock(t);
    if (template)
        rule_all(t, now);
}

void weir_table_drop(struct weir_table *t, struct weir_text name,
                     weir_instant now)
{
    struct weir_ref ref;
    if (weir_table_find(t, name, &ref))
        drop_slot(t, ref.slot, now);
}

void weir_table_begin_full(struct weir_table *t)
{
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++) {
        weir_table_lock(t);
        weir_cold(t, slot)->seen = 0;
        weir_table_unlock(t);
    }
}

void weir_table_end_full(struct weir_table *t, weir_instant now)
{
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++) {
        const struct cold *cold = weir_cold(t, slot);
        uint8_t state = weir_load_acquire(&cold->state);
        bool defined = state == WEIR_SLOT_QUOTA || state == WEIR_SLOT_TEMPLATE;
        if (defined && !cold->seen)
            drop_slot(t, slot, now);
    }
}

/* ---- Stale ---- */

/* The probability of refusal now, in 1/255. */
uint8_t weir_slot_read_refusal(const struct look *look)
{
    int64_t over = look->fill - (look->high - look->band);
    if (look->fill > look->high)
        return 255;
    if (over <= 0 || look->band == 0)
        return 0;
    return (uint8_t)((weir_u128)(uint64_t)over * 255 / (uint64_t)look->band);
}

void weir_slot_forgive(struct weir_table *t, uint32_t slot, uint64_t weight,
                       uint64_t elapsed)
{
    struct look look;
    weir_slot_read(t, slot, elapsed, &look);
    if (look.flags & (META_OFF | META_INFLIGHT))
        return;
    int64_t over = look.fill - look.high;
    if (over <= 0)
        return;
    if (weight <= (uint64_t)over >> look.leak.frac)
        over = (int64_t)(weight << look.leak.frac);
    weir_table_add_others(t, slot, -over);
}

static void stale_slot(struct weir_table *t, uint32_t slot, weir_instant now)
{
    struct cold *cold = weir_cold(t, slot);
    if (cold->state == WEIR_SLOT_FREE || cold->state == WEIR_SLOT_MAKING)
        return;
    weir_table_mend_switch(t);
    uint32_t before = weir_hot(t, slot)->meta & META_FLAGS;
    uint32_t flags = before & ~META_STALE;
    uint32_t added = weir_slot_stale_flags(t, slot);
    if ((added & META_HOLD) && !(before & META_HOLD)) {
        struct look look;
        weir_slot_read(t, slot, weir_elapsed(t, now), &look);
        /* Uses the probability learnt while the roots answered, because a
         * bucket that no root fills any more soon empties. If that is 0, uses
         * the present fill from this process's own counts. If the table is
         * held, that fill isn't used: its source had no contact with the
         * roots. */
        uint8_t learnt = weir_load_relaxed(&cold->hold);
        uint8_t own = t->hold_paused ? 0 : weir_slot_read_refusal(&look);
        weir_store_relaxed(&cold->hold, learnt > 0 ? learnt : own);
    }
    weir_slot_set_flags(t, slot, flags | added);
}

void weir_table_set_stale(struct weir_table *t, bool stale, weir_instant now)
{
    weir_table_lock(t);
    weir_store_relaxed(&t->stale, stale);
    weir_table_unlock(t);
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++) {
        weir_table_lock(t);
        stale_slot(t, slot, now);
        weir_table_unlock(t);
    }
}

bool weir_table_is_stale(const struct weir_table *t)
{
    return weir_load_relaxed(&t->stale) != 0;
}

/* ---- After a writer that was killed ---- */

/* Frees slots with a life that it had not begun, or not fully ended. Nothing
 * refers to them: only live slots get children and pins. */
static void clear_half_lives(struct weir_table *t)
{
    for (uint32_t slot = 0; slot < t->used; slot++) {
        bool alive = weir_hot(t, slot)->generation & 1;
        if (alive || weir_cold(t, slot)->state == WEIR_SLOT_FREE)
            continue;
        /* As evict() checks again after it has ended a life. */
        if (weir_slot_has_permits(t, slot)) {
            weir_slot_publish(t, slot);
            continue;
        }
        template_remove(t, slot);
        weir_slot_free(t, slot);
    }
}

/* Rebuilds the list: a slot may have been on its way to or from it. */
static void gather_free_slots(struct weir_table *t)
{
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
}

static bool is_before(const struct weir_table *t, uint32_t end, uint32_t slot)
{
    for (uint32_t i = 0; i < end; i++) {
        if (t->templates[i].slot == slot)
            return true;
    }
    return false;
}

/* An entry being moved may be there twice, or its slot may no longer be a
 * template; the entry behind the last may be a valid one. */
static void mend_templates(struct weir_table *t)
{
    uint32_t count = t->template_count;
    uint32_t kept = 0;
    if (count < WEIR_TEMPLATES_MAX)
        count++;
    for (uint32_t i = 0; i < count; i++) {
        struct template_entry entry = t->templates[i];
        if (entry.slot >= t->used || is_before(t, kept, entry.slot) ||
            weir_cold(t, entry.slot)->state != WEIR_SLOT_TEMPLATE)
            continue;
        entry_store(t, kept++, entry);
    }
    t->template_count = kept;
}

void weir_table_mend_slots(struct weir_table *t)
{
    mend_templates(t);
    clear_half_lives(t);
    gather_free_slots(t);
    weir_gate_slots_mend(t);
}

void weir_table_break_lock(struct weir_table *t)
{
    bool held = weir_load_relaxed(&t->writer) != 0;
    if (held)
        weir_table_mend_switch(t);
    weir_bucket_states_mend(t);
    if (!held)
        return;
    clear_half_lives(t);
    gather_free_slots(t);
    weir_gate_slots_mend(t);
    weir_table_unlock(t);
}
