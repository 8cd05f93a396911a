/* SPDX-License-Identifier: MIT
 * count/tally_correction.c - what others presumably counted since a fill was
 * told, guessed from the past: by a ratio of their smoothed rate, where
 * limiters report by time alone (with slack roots tell their pace: merge.c),
 * and in proportion to our own counts while no root can be asked. */

#include "count/bits.h"
#include "count/tally.h"

/* Our part of a quota's use, at least an equal one. */
static float part_of(const struct weir_tally *tally, uint32_t slot)
{
    float own = 0, others = 0;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (!cell->told || cell->own_per_s < own)
            continue;
        own = cell->own_per_s;
        others = cell->others_per_s;
    }
    float least = 1.0f / (float)(tally->limiters ? tally->limiters : 1);
    float part = own + others > 0 ? own / (own + others) : least;
    return part > least ? part : least;
}

static float others_of(const struct weir_tally *tally, uint32_t slot)
{
    float most = 0;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (cell->told && cell->others_per_s > most)
            most = cell->others_per_s;
    }
    return most;
}

static void extrapolate_slot(struct weir_tally *tally, uint32_t slot,
                             bool share, float seconds, weir_instant now)
{
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    uint64_t own = view.count - tally->share_mark[slot];
    tally->share_mark[slot] = view.count;
    if (view.sharing != WEIR_COUNTED || view.unlimited)
        return;
    float units = 0;
    if (!share)
        units = others_of(tally, slot) * tally->ratio * seconds;
    else if (view.on_stale == WEIR_STALE_SHARE && !tally->share_above &&
             (int64_t)own > 0)
        units = (float)own * (1.0f / part_of(tally, slot) - 1.0f);
    float unit = (float)((uint64_t)1 << view.bucket.leak.frac);
    if (units > 0 && units * unit < (float)WEIR_SCALED_MAX / 4)
        weir_table_add_others(tally->table, slot, (int64_t)(units * unit));
}

void weir_tally_extrapolate(struct weir_tally *tally, bool share,
                            weir_instant now)
{
    weir_duration span = now - tally->extrapolated_at;
    tally->extrapolated_at = now;
    float seconds = (float)span / (float)WEIR_SECOND;
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = weir_bit_next(tally->told, 0, end); slot < end;
         slot = weir_bit_next(tally->told, slot + 1, end))
        extrapolate_slot(tally, slot, share, seconds, now);
}
