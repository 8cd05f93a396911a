/* SPDX-License-Identifier: MIT
 * table/table_view.c - copies of a slot: for the sync, for people and for
 * responses that state a limit.
 *
 * The table stores a quota in the form in which it decides: a leak in fractions
 * of a unit a nanosecond, not "100/s". The view therefore has the values in
 * force, not those entered. It is copied under the writer lock, so that name,
 * parent and figures are of one life and one edit. If that lock is taken, the
 * copy is made without it: of one life, if the generation is the same before
 * and after, but perhaps from the middle of an edit. The sync is the only
 * editor of a quota, so for it even that copy is exact. The lock is tried once:
 * beside a process that was stopped with it, the spins of a view of 100,000
 * slots would add up to half a second. */

#include "core/table/table_view.h"

#include <math.h>
#include <string.h>

#include "core/quota/quota_bucket.h"
#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_switch_internal.h"
#include "core/table/table_traits.h"

/* ---- For the sync ---- */

static void copy_view(const struct weir_table *t, uint32_t slot,
                      struct weir_slot_view *out, weir_instant now)
{
    weir_assert(slot < t->slots);
    const struct cold *cold = weir_cold(t, slot);
    out->state = (enum weir_slot_state)weir_load_acquire(&cold->state);
    out->generation = weir_load_acquire(&weir_hot(t, slot)->generation);
    if (out->state == WEIR_SLOT_FREE || out->state == WEIR_SLOT_MAKING)
        return;
    struct slot_read read;
    weir_slot_read(t, slot, weir_elapsed(t, now), &read);
    out->sharing = weir_sharing_of(cold);
    out->on_stale = weir_on_stale_of(cold);
    /* Relaxed: written under the lock, perhaps now. */
    out->created = weir_load_relaxed(&cold->created);
    out->refs = weir_load_relaxed(&cold->refs);
    out->count = read.count;
    out->fill = read.fill > 0 ? read.fill : 0;
    out->in =
        (read.count << read.leak.frac) + (uint64_t)((int64_t)read.base >> 1);
    out->bucket = (struct weir_bucket){ .leak = read.leak,
                                        .low = read.high - read.band,
                                        .high = read.high };
    out->unlimited = weir_slot_read_is_endless(&read);
    out->inflight = read.flags & META_INFLIGHT;
}

/* Whether a copy that was made without the lock is of one life. */
static bool is_same_life(const struct weir_table *t, uint32_t slot,
                         uint32_t generation)
{
    weir_fence_acquire();
    return weir_load_relaxed(&weir_hot(t, slot)->generation) == generation;
}

void weir_table_view(struct weir_table *t, uint32_t slot,
                     struct weir_slot_view *out, weir_instant now)
{
    memset(out, 0, sizeof(*out));
    bool locked = weir_table_try_lock_once(t, 0);
    copy_view(t, slot, out, now);
    if (locked)
        weir_table_unlock(t);
    else if (!is_same_life(t, slot, out->generation))
        *out = (struct weir_slot_view){ .state = WEIR_SLOT_MAKING };
}

uint32_t weir_table_template_of(const struct weir_table *t, uint32_t slot)
{
    const struct cold *cold = weir_cold(t, slot);
    uint8_t state = weir_load_acquire(&cold->state);
    return state == WEIR_SLOT_INSTANCE ? weir_load_relaxed(&cold->rule)
                                       : WEIR_SLOT_NONE;
}

/* ---- For people ---- */

static double leak_units(struct weir_leak leak, int64_t scaled)
{
    return (double)scaled / weir_frac_power(leak.frac);
}

static enum weir_mode mode_of(uint32_t flags)
{
    if (flags & META_OFF)
        return WEIR_OFF;
    return flags & META_SHADOW ? WEIR_SHADOW : WEIR_ENFORCE;
}

static void copy_bucket(const struct slot_read *read,
                        struct weir_slot_details *out)
{
    bool endless = weir_slot_read_is_endless(read);
    int64_t high = read->high > 0 ? read->high : 0;
    int64_t low = high > read->band ? high - read->band : 0;
    out->fill = read->fill > 0 ? leak_units(read->leak, read->fill) : 0;
    out->high = endless ? INFINITY : leak_units(read->leak, high);
    out->low = endless ? INFINITY : leak_units(read->leak, low);
    double rate = out->inflight ? out->high : weir_leak_per_s(read->leak);
    out->granted = endless ? INFINITY : read->high < 0 ? 0 : rate;
    out->limit = out->granted;
}

static void copy_limit(const struct weir_table *t, uint32_t slot,
                       struct weir_slot_details *out)
{
    struct weir_lease_view lease;
    weir_slot_lease_view(t, slot, &lease);
    if (lease.leasing != WEIR_LEASING_NONE)
        out->limit = lease.limit;
}

/* Templates keep the pattern of a parent, all others have the parent. */
static void copy_parent(const struct weir_table *t, uint32_t slot,
                        struct weir_slot_details *out)
{
    const struct cold *cold = weir_cold(t, slot);
    uint32_t parent = weir_parent(weir_hot(t, slot));
    if (cold->state == WEIR_SLOT_TEMPLATE) {
        out->parent_len = cold->aux_len;
        if (cold->aux_len > 0)
            weir_chunks_load(t, cold->aux, cold->aux_len, out->parent);
    } else if (parent != WEIR_SLOT_NONE) {
        out->parent_len = weir_table_name(t, parent, out->parent);
    }
    out->parent[out->parent_len] = '\0';
}

/* How the slot decides. Needs no lock. Returns its count. */
static uint64_t copy_rule(const struct weir_table *t, uint32_t slot,
                          struct weir_slot_details *out, weir_instant now)
{
    struct slot_read read;
    weir_slot_read(t, slot, weir_elapsed(t, now), &read);
    out->sharing = weir_sharing_of(weir_cold(t, slot));
    out->mode = mode_of(read.flags);
    out->inflight = read.flags & META_INFLIGHT;
    out->elsewhere =
        read.flags & (META_BUCKET_STATE | META_AWAY | META_ADAPTIVE);
    out->source = weir_table_gate_source(t, slot);
    if (!out->elsewhere)
        copy_bucket(&read, out);
    return read.count;
}

static void copy_details(const struct weir_table *t, uint32_t slot,
                         struct weir_slot_details *out, weir_instant now)
{
    weir_assert(out->state >= WEIR_SLOT_PLACEHOLDER);
    const struct cold *cold = weir_cold(t, slot);
    uint64_t count = copy_rule(t, slot, out, now);
    out->generation = weir_load_relaxed(&weir_hot(t, slot)->generation);
    copy_limit(t, slot, out);
    out->count = out->inflight ? 0 : count;
    out->refused = weir_table_refused(t, slot);
    copy_parent(t, slot, out);
    /* An instance without a template has its limit in its name. */
    out->ruler_slot =
        out->state == WEIR_SLOT_INSTANCE ? cold->rule : WEIR_SLOT_NONE;
    if (out->ruler_slot != WEIR_SLOT_NONE)
        out->ruler_len = weir_table_name(t, out->ruler_slot, out->ruler);
    weir_assert(out->parent_len <= WEIR_NAME_MAX);
}

bool weir_table_details(struct weir_table *table, uint32_t process,
                        uint32_t slot, struct weir_slot_details *out,
                        weir_instant now)
{
    weir_assert(slot < table->slots);
    /* Not all of it: a walk of a large table would write a kilobyte per
     * slot. */
    memset(out, 0, offsetof(struct weir_slot_details, name));
    out->parent[0] = out->ruler[0] = '\0';
    bool locked = weir_table_try_lock_once(table, process);
    uint32_t generation = weir_load_acquire(&weir_hot(table, slot)->generation);
    out->name_len = weir_table_name(table, slot, out->name);
    out->state =
        (enum weir_slot_state)weir_load_acquire(&weir_cold(table, slot)->state);
    struct weir_text name = { out->name, out->name_len };
    bool shown = name.len > 0 && out->state >= WEIR_SLOT_PLACEHOLDER &&
                 !weir_name_is_shadow(name);
    if (shown)
        copy_details(table, slot, out, now);
    if (locked)
        weir_table_unlock(table);
    return shown && (locked || is_same_life(table, slot, generation));
}

/* ---- For responses ---- */

bool weir_table_rule_view(struct weir_table *table, struct weir_text name,
                          struct weir_slot_details *out, uint32_t *out_slot,
                          weir_instant now)
{
    struct weir_ref ref;
    memset(out, 0, offsetof(struct weir_slot_details, name));
    if (!weir_table_find(table, name, &ref))
        return false;
    (void)copy_rule(table, ref.slot, out, now);
    *out_slot = ref.slot;
    return is_same_life(table, ref.slot, ref.generation);
}

/* For a bucket state with a window or several buckets; false: another one,
 * none, or it is locked. */
static bool window_policy(struct weir_table *t, uint32_t stripe, uint32_t slot,
                          struct weir_policy *out)
{
    if (!weir_bucket_state_lock(t, slot, stripe, 0))
        return false;
    const struct bucket_rule *of = weir_bucket_state_rule(t, slot);
    bool is_window = of && of->rule.window > 0;
    if (is_window)
        *out = (struct weir_policy){ .quantity = of->rule.quantity,
                                     .window = of->rule.window };
    bool is_buckets = of && !is_window && of->rule.buckets > 0;
    if (is_buckets) {
        const struct weir_bucket *first = &of->rule.bucket[0].bucket;
        *out = (struct weir_policy){
            .quantity = (uint64_t)first->high >> first->leak.frac,
            .window = weir_leak_time(first->leak, first->high),
        };
    }
    if (weir_bucket_state_unlock(t, slot))
        weir_store_relaxed(&t->wake, 1);
    return is_window || is_buckets;
}

bool weir_table_policy(struct weir_table *table, uint32_t stripe,
                       struct weir_text name, struct weir_policy *out)
{
    struct weir_ref ref;
    struct slot_read read;
    if (!weir_table_find(table, name, &ref))
        return false;
    weir_slot_read(table, ref.slot, 0, &read);
    if (read.flags & META_OFF)
        return false;
    if ((read.flags & (META_BUCKET_STATE | META_AWAY)) &&
        window_policy(table, stripe, ref.slot, out))
        return true;
    bool is_open =
        weir_slot_read_is_endless(&read) && !(read.flags & META_ADAPTIVE);
    if ((read.flags & META_AWAY) || is_open)
        return false;
    const struct weir_concurrency_gate *gate =
        read.flags & META_ADAPTIVE ? weir_slot_gate(table, ref.slot) : NULL;
    if (gate) {
        *out = (struct weir_policy){
            .concurrency = true,
            .quantity = (uint64_t)weir_concurrency_gate_limit(gate),
        };
        return true;
    }
    bool in_flight = read.flags & META_INFLIGHT;
    int64_t high = read.high > 0 ? read.high : 0;
    weir_duration window =
        in_flight || high == 0 ? 0 : weir_leak_time(read.leak, high);
    *out = (struct weir_policy){
        .concurrency = in_flight,
        .quantity = (uint64_t)high >> read.leak.frac,
        .window = window == WEIR_NEVER ? 0 : window,
    };
    return true;
}
