/* SPDX-License-Identifier: MIT
 * table/table_stale.c - where on_stale decides: no root has answered for
 * stale_after. */

#include "core/table/table_slots_internal.h"
#include "core/table/table_switch_internal.h"
#include "core/table/table_traits.h"

uint32_t weir_slot_stale_flags(const struct weir_table *t, uint32_t slot)
{
    const struct cold *cold = weir_cold(t, slot);
    if (!t->stale || weir_sharing_of(cold) != WEIR_COUNTED)
        return 0;
    switch (weir_on_stale_of(cold)) {
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

static void stale_slot(struct weir_table *t, uint32_t slot, weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(slot < t->used);
    struct cold *cold = weir_cold(t, slot);
    if (cold->state == WEIR_SLOT_FREE || cold->state == WEIR_SLOT_MAKING)
        return;
    weir_table_mend_switch(t);
    uint32_t before = weir_hot(t, slot)->meta & META_FLAGS;
    uint32_t flags = before & ~META_STALE;
    uint32_t added = weir_slot_stale_flags(t, slot);
    if ((added & META_HOLD) && !(before & META_HOLD)) {
        struct slot_read read;
        weir_slot_read(t, slot, weir_elapsed(t, now), &read);
        /* Uses the probability learnt while the roots answered, because a
         * bucket that no root fills any more soon empties. If that is 0, uses
         * the present fill from this process's own counts; not while that
         * is paused, as the fill's source had no contact with the roots
         * either. */
        uint8_t learnt = weir_load_relaxed(&cold->hold);
        uint8_t own = t->hold_paused ? 0 : weir_slot_read_refusal(&read);
        weir_store_relaxed(&cold->hold, learnt > 0 ? learnt : own);
    }
    weir_slot_set_flags(t, slot, flags | added);
}

bool weir_table_set_stale(struct weir_table *t, bool stale, weir_instant now)
{
    if (!weir_table_try_lock(t))
        return false;
    weir_store_relaxed(&t->stale, stale);
    weir_table_unlock(t);
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++) {
        if (!weir_table_try_lock(t))
            return false;
        stale_slot(t, slot, now);
        weir_table_unlock(t);
    }
    return true;
}

bool weir_table_is_stale(const struct weir_table *t)
{
    return weir_load_relaxed(&t->stale) != 0;
}

/* ---- on_stale=hold: the probability of refusal ---- */

/* The probability of refusal now, in 1/255. */
uint8_t weir_slot_read_refusal(const struct slot_read *read)
{
    weir_assert(read->band >= 0);
    int64_t over = read->fill - (read->high - read->band);
    if (read->fill > read->high)
        return 255;
    if (over <= 0 || read->band == 0)
        return 0;
    return (uint8_t)((weir_u128)(uint64_t)over * 255 / (uint64_t)read->band);
}

float weir_table_refusal(struct weir_table *t, uint32_t slot, weir_instant now)
{
    struct slot_read read;
    weir_slot_read(t, slot, weir_elapsed(t, now), &read);
    return (float)weir_slot_read_refusal(&read) / 255;
}

void weir_table_set_hold(struct weir_table *t, uint32_t slot, float refusal)
{
    weir_assert(refusal >= 0 && refusal <= 1);
    if (weir_table_is_stale(t) || t->hold_paused)
        return;
    weir_store_relaxed(&weir_cold(t, slot)->hold,
                       (uint8_t)(refusal * 255 + 0.5f));
}

void weir_table_pause_hold(struct weir_table *t, bool paused)
{
    t->hold_paused = paused;
}

bool weir_table_hold_is_paused(const struct weir_table *t)
{
    return t->hold_paused;
}

/* ---- on_stale=pass, hold ---- */

void weir_slot_forgive(struct weir_table *t, uint32_t slot, uint64_t weight,
                       uint64_t elapsed)
{
    struct slot_read read;
    weir_slot_read(t, slot, elapsed, &read);
    if (read.flags & (META_OFF | META_INFLIGHT))
        return;
    int64_t over = read.fill - read.high;
    if (over <= 0)
        return;
    if (weight <= (uint64_t)over >> read.leak.frac)
        over = (int64_t)(weight << read.leak.frac);
    weir_table_add_others(t, slot, -over);
}
