/* SPDX-License-Identifier: MIT
 * table/link_bucket.c - a link that a bucket decides, in a walk.
 *
 *     stale                  as on_stale says, whatever the fill
 *     count at 'stop'        refused: too many units that no root has seen
 *     fill + weight > high   refused
 *     low < fill             refused if the draw says so: one draw for the
 *                            whole chain, so that the largest of its
 *                            probabilities decides and not their product
 *
 * An in-flight counter is judged as a bucket whose fill is the units in flight,
 * and never charged. A link with a bucket state or a store has a bucket that
 * never refuses: its 'count' then works as everywhere. */

#include "core/table/table_stripe_internal.h"
#include "core/table/table_walk_internal.h"

/* ---- Judge ---- */

/* The random number of a walk. */
static uint64_t walk_chance(struct weir_table *t, struct walk *walk)
{
    if (!walk->drawn)
        walk->chance = weir_stripe_draw_evenly(t, walk->stripe, walk->set);
    walk->drawn = true;
    return walk->chance;
}

static bool stale_passes(struct weir_table *t, struct walk *walk, uint32_t slot,
                         uint32_t flags)
{
    if (flags & (META_PASS | META_LIMIT))
        return flags & META_PASS;
    uint8_t hold = weir_load_relaxed(&weir_cold(t, slot)->hold);
    return walk_chance(t, walk) >> 32 >= (uint64_t)hold * 0x1010101u;
}

static int64_t filled(const struct slot_read *read)
{
    return read->fill > 0 ? read->fill : 0;
}

static bool is_stopped(const struct weir_table *t, uint32_t slot,
                       const struct slot_read *read)
{
    uint64_t stop = weir_load_relaxed(&weir_hot(t, slot)->stop);
    return (int64_t)(read->count - stop) >= 0;
}

/* How far the weight would go beyond 'high', scaled. */
static int64_t excess(const struct slot_read *read,
                      const struct weir_algorithm_ask *ask)
{
    return filled(read) + (int64_t)(ask->weight << read->leak.frac) -
           read->high;
}

/* Whether the weight is above the burst itself. */
static bool never_fits(const struct slot_read *read,
                       const struct weir_algorithm_ask *ask)
{
    return (int64_t)(ask->weight << read->leak.frac) > read->high;
}

bool weir_link_bucket_judge(struct weir_table *t, struct walk *walk, uint32_t i,
                            const struct slot_read *read,
                            const struct weir_algorithm_ask *ask)
{
    if (WEIR_UNLIKELY(read->flags & META_STALE))
        return stale_passes(t, walk, walk->slot[i], read->flags);
    /* Before the stop, which may still belong to the previous limit. */
    if (weir_slot_read_is_endless(read))
        return true;
    if (is_stopped(t, walk->slot[i], read))
        return false;
    if (excess(read, ask) > 0)
        return false;
    int64_t low = read->high - read->band;
    return WEIR_LIKELY(filled(read) <= low) ||
           !weir_band_refuses(read->fill, low, read->band,
                              walk_chance(t, walk));
}

/* The part of the weight that fits below the bound of debt. */
static uint64_t below_debt(const struct slot_read *read,
                           const struct weir_algorithm_ask *ask)
{
    if (weir_slot_read_is_endless(read))
        return ask->weight;
    int64_t debt = (int64_t)(WEIR_DEBT_MAX << read->leak.frac);
    int64_t high = read->high > 0 ? read->high : 0;
    int64_t fill = filled(read);
    if (fill >= high + debt)
        return 0;
    uint64_t room = (uint64_t)(high + debt - fill) >> read->leak.frac;
    return ask->weight < room ? ask->weight : room;
}

static weir_duration wait_for_bucket(const struct slot_read *read,
                                     const struct weir_algorithm_ask *ask)
{
    if ((read->flags & META_LIMIT) || never_fits(read, ask) ||
        below_debt(read, ask) < ask->weight)
        return WEIR_NEVER;
    int64_t over = excess(read, ask);
    if ((read->flags & META_INFLIGHT) && over > 0)
        return WEIR_NEVER; /* it is unknown when a permit leaves */
    return weir_leak_time(read->leak, over);
}

weir_duration weir_link_bucket_wait(const struct weir_table *t,
                                    const struct walk *walk, uint32_t i,
                                    const struct slot_read *read,
                                    const struct weir_algorithm_ask *ask)
{
    if ((read->flags & (META_OFF | META_SHADOW | META_PASS)) ||
        weir_slot_read_is_endless(read))
        return 0;
    weir_duration wait = wait_for_bucket(read, ask);
    return wait < STOP_RETRY && is_stopped(t, walk->slot[i], read) ? STOP_RETRY
                                                                   : wait;
}

/* ---- Commit ---- */

/* A unit that is only partly in the bucket is given back whole: the lift
 * removes the part below empty again. */
static uint64_t above_empty(const struct slot_read *read,
                            const struct weir_algorithm_ask *ask)
{
    if (read->fill <= 0)
        return 0;
    uint64_t one = (uint64_t)1 << read->leak.frac;
    uint64_t in = ((uint64_t)read->fill + one - 1) >> read->leak.frac;
    return ask->weight < in ? ask->weight : in;
}

/* The units to add; a refund's are below zero, modulo. */
static uint64_t units_of(const struct weir_table *t, const struct walk *walk,
                         uint32_t slot, const struct weir_algorithm_ask *ask)
{
    struct slot_read read;
    if (WEIR_LIKELY(ask->op == WEIR_ALGORITHM_TAKE ||
                    ask->op == WEIR_ALGORITHM_RESERVE))
        return ask->weight;
    weir_slot_read(t, slot, walk->elapsed, &read);
    return ask->op == WEIR_ALGORITHM_CHARGE ? below_debt(&read, ask)
                                            : 0 - above_empty(&read, ask);
}

unsigned weir_link_bucket_commit(struct weir_table *t, struct walk *walk,
                                 uint32_t i,
                                 const struct weir_algorithm_ask *ask)
{
    uint32_t slot = walk->slot[i];
    weir_audit(i < walk->links && !(walk->counted >> i & 1));
    if (WEIR_UNLIKELY(walk->lift >> i & 1))
        weir_slot_lift(t, slot, walk->elapsed);
    if (WEIR_LIKELY(!(walk->skip >> i & 1))) {
        walk->units[i] = units_of(t, walk, slot, ask);
        walk->counted |= 1u << i;
        walk->kick |= weir_slot_add(t, slot, walk->units[i]);
    }
    return WEIR_UNLIKELY(weir_link_has_moved(t, walk->slot, walk->links, i))
               ? OUTCOME_MOVED
               : 0;
}

void weir_link_bucket_undo(struct weir_table *t, struct walk *walk, uint32_t i)
{
    weir_assert(walk->counted >> i & 1);
    weir_fetch_sub(&weir_hot(t, walk->slot[i])->count, walk->units[i]);
    /* A collect since the commit may have reported them. */
    weir_slot_mark(t, walk->slot[i]);
    walk->counted &= ~(1u << i);
}

/* ---- Explain ---- */

#define HOLD_RETRY WEIR_SECOND

/* The time until the link would certainly let the weight pass. */
static weir_duration retry_after(const struct weir_table *t, uint32_t slot,
                                 const struct slot_read *read,
                                 const struct weir_algorithm_ask *ask)
{
    if (read->flags & META_STALE)
        return HOLD_RETRY;
    if (read->flags & META_INFLIGHT)
        return STOP_RETRY;
    int64_t to_low = filled(read) - (read->high - read->band);
    int64_t over = excess(read, ask);
    weir_duration wait =
        weir_leak_time(read->leak, to_low > over ? to_low : over);
    weir_duration least = is_stopped(t, slot, read) ? STOP_RETRY : 1;
    return wait < least ? least : wait;
}

void weir_link_bucket_explain(const struct weir_table *t,
                              const struct walk *walk, uint32_t i,
                              const struct slot_read *read,
                              const struct weir_algorithm_ask *ask,
                              struct weir_algorithm_answer *out)
{
    unsigned frac = read->leak.frac;
    int64_t fill = filled(read);
    bool endless = weir_slot_read_is_endless(read);
    int64_t room = read->high > fill ? read->high - fill : 0;
    *out = (struct weir_algorithm_answer){
        .used = fill >> frac,
        .remaining = endless ? UINT64_MAX : (uint64_t)room >> frac,
    };
    if (i == walk->refuser) {
        out->never = !(read->flags & META_STALE) && never_fits(read, ask);
        out->retry_after = retry_after(t, walk->slot[i], read, ask);
    } else if (endless) {
        out->used = 0;
    }
}
