/* SPDX-License-Identifier: MIT
 * table/table_details.c - a view of a slot for people.
 *
 * The table stores a quota in the form in which it decides: a leak in fractions
 * of a unit a nanosecond, not "100/s". The view therefore has the values in
 * force, not those entered. It is copied under the writer lock, so that name,
 * parent and figures are of one life and one edit; decisions don't wait for
 * that lock. */

#include <math.h>

#include "core/table/table_layout.h"

static double units_of(struct weir_leak leak, int64_t scaled)
{
    return (double)scaled / (double)((uint64_t)1 << leak.frac);
}

static double per_s_of(struct weir_leak leak)
{
    double scaled = (double)leak.whole + (double)leak.part / 0x1p64;
    return scaled * 1e9 / (double)((uint64_t)1 << leak.frac);
}

static enum weir_mode mode_of(uint32_t flags)
{
    if (flags & META_OFF)
        return WEIR_OFF;
    return flags & META_SHADOW ? WEIR_SHADOW : WEIR_ENFORCE;
}

static void show_bucket(const struct look *look, struct weir_slot_details *out)
{
    bool endless = look->high == WEIR_SCALED_MAX;
    int64_t high = look->high > 0 ? look->high : 0;
    int64_t low = high > look->band ? high - look->band : 0;
    out->fill = look->fill > 0 ? units_of(look->leak, look->fill) : 0;
    out->high = endless ? INFINITY : units_of(look->leak, high);
    out->low = endless ? INFINITY : units_of(look->leak, low);
    double rate = out->inflight ? out->high : per_s_of(look->leak);
    out->granted = endless ? INFINITY : look->high < 0 ? 0 : rate;
    out->limit = out->granted;
}

static void show_lease(const struct weir_table *t, uint32_t slot,
                       struct weir_slot_details *out)
{
    struct weir_lease_view lease;
    weir_slot_lease_view(t, slot, &lease);
    if (lease.leasing != WEIR_LEASING_NONE)
        out->limit = lease.limit;
}

/* Templates keep the pattern of a parent, all others have the parent. */
static void show_parent(const struct weir_table *t, uint32_t slot,
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

/* Under the lock. */
static void show(const struct weir_table *t, uint32_t slot,
                 struct weir_slot_details *out, weir_instant now)
{
    const struct cold *cold = weir_cold(t, slot);
    struct look look;
    weir_slot_read(t, slot, weir_elapsed(t, now), &look);
    out->sharing = (enum weir_sharing)cold->sharing;
    out->mode = mode_of(look.flags);
    out->generation = weir_load_relaxed(&weir_hot(t, slot)->generation);
    out->inflight = look.flags & META_INFLIGHT;
    out->elsewhere =
        look.flags & (META_BUCKET_STATE | META_AWAY | META_ADAPTIVE);
    if (!out->elsewhere)
        show_bucket(&look, out);
    show_lease(t, slot, out);
    out->count = out->inflight ? 0 : look.count;
    out->refused = weir_table_refused(t, slot);
    show_parent(t, slot, out);
    /* An instance without a template has its limit in its name. */
    out->ruler_slot =
        out->state == WEIR_SLOT_INSTANCE ? cold->rule : WEIR_SLOT_NONE;
    if (out->ruler_slot != WEIR_SLOT_NONE)
        out->ruler_len = weir_table_name(t, out->ruler_slot, out->ruler);
}

bool weir_table_details(struct weir_table *table, uint32_t process,
                        uint32_t slot, struct weir_slot_details *out,
                        weir_instant now)
{
    /* Not all of it: a walk of a large table would write a kilobyte per
     * slot. */
    memset(out, 0, offsetof(struct weir_slot_details, name));
    out->parent[0] = out->ruler[0] = '\0';
    weir_table_lock_as(table, process);
    out->name_len = weir_table_name(table, slot, out->name);
    out->state = (enum weir_slot_state)weir_cold(table, slot)->state;
    struct weir_text name = { out->name, out->name_len };
    bool shown = name.len > 0 && out->state >= WEIR_SLOT_PLACEHOLDER &&
                 !weir_name_is_shadow(name);
    if (shown)
        show(table, slot, out, now);
    weir_table_unlock(table);
    return shown;
}
