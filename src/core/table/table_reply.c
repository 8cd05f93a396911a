/* SPDX-License-Identifier: MIT
 * table/table_reply.c - explains a decision, if the caller wants a reply.
 *
 * The links are read once more: only callers that want a reply pay for it, and
 * takes without one carry no data for it. With other threads at work, a reply
 * may therefore describe a moment later than the verdict's. */

#include "core/table/table_stripe_internal.h"
#include "core/table/table_switch_internal.h"
#include "core/table/table_walk_internal.h"

#include <string.h>

#define HOLD_RETRY WEIR_SECOND
/* A grant is requested within this time. */
#define GRANT_RETRY (100 * WEIR_MILLISECOND)

void weir_reply_name(const struct weir_table *t, uint32_t slot,
                     struct weir_reply *reply)
{
    reply->quota_len = (uint8_t)weir_table_name(t, slot, reply->quota);
}

weir_duration weir_table_jitter(struct weir_table *t, uint32_t stripe,
                                weir_duration wait)
{
    if (wait == 0 || wait > WEIR_NEVER / 2)
        return wait;
    return wait + (weir_duration)(((weir_u128)(wait / 4 + 1) *
                                   weir_stripe_draw(t, stripe, LIVE)) >>
                                  64);
}

/* The answer of a link's bucket state; false: it has none, or it was
 * removed. */
static bool peek_bucket_state(struct weir_table *t, const struct walk *walk,
                              uint32_t i, uint64_t weight,
                              struct weir_algorithm_answer *out)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_PEEK,
                                      .weight = weight };
    uint32_t serial;
    return (walk->bucket_states >> i & 1) &&
           weir_link_step(t, walk, i, &ask, out, &serial);
}

/* ---- Refused ---- */

/* The time until the refuser would certainly let the weight pass. */
static weir_duration retry_after(const struct look *look, uint64_t weight,
                                 bool stopped)
{
    if (look->flags & META_STALE)
        return HOLD_RETRY;
    if (look->flags & META_INFLIGHT)
        return STOP_RETRY;
    int64_t scaled = (int64_t)(weight << look->leak.frac);
    int64_t fill = look->fill > 0 ? look->fill : 0;
    int64_t to_low = fill - (look->high - look->band);
    int64_t to_high = fill + scaled - look->high;
    int64_t leak = to_low > to_high ? to_low : to_high;
    weir_duration wait = weir_leak_time(look->leak, leak);
    weir_duration least = stopped ? STOP_RETRY : 1;
    return wait < least ? least : wait;
}

/* The grant may soon be larger: no weight is too heavy for ever. */
static void explain_lease(const struct weir_table *t, uint32_t slot,
                          struct weir_reply *reply)
{
    reply->leased = weir_slot_granted(t, slot, &reply->granted);
    if (!reply->leased)
        return;
    reply->never = false;
    if (weir_table_leasing(t, slot) == WEIR_LEASING_CLOSED)
        reply->retry_after = GRANT_RETRY;
    else if (reply->retry_after > HOLD_RETRY)
        reply->retry_after = HOLD_RETRY;
}

/* Refused by its concurrency gate: estimates when a permit will leave. */
static void explain_gate(const struct weir_table *t, uint32_t slot,
                         const struct walk *walk, uint64_t weight,
                         struct weir_reply *reply)
{
    const struct weir_concurrency_gate *gate = weir_slot_gate(t, slot);
    if (!gate || reply->never)
        return;
    reply->never = weight > WEIR_PERMITS_MAX;
    reply->fill = weir_concurrency_gate_in_flight(gate);
    reply->retry_after = weir_concurrency_gate_wait(gate, walk->now);
}

static void explain_bucket(const struct weir_table *t, const struct walk *walk,
                           uint64_t weight, struct weir_reply *reply)
{
    uint32_t slot = walk->slot[walk->refuser];
    struct look look;
    weir_slot_read(t, slot, walk->elapsed, &look);
    uint64_t stop = weir_load_relaxed(&weir_hot(t, slot)->stop);
    bool stopped = (int64_t)(look.count - stop) >= 0;
    reply->never = !(look.flags & META_STALE) &&
                   (int64_t)(weight << look.leak.frac) > look.high;
    reply->fill = look.fill > 0 ? look.fill >> look.leak.frac : 0;
    reply->retry_after = retry_after(&look, weight, stopped);
    explain_lease(t, slot, reply);
    if (look.flags & META_ADAPTIVE)
        explain_gate(t, slot, walk, weight, reply);
}

static void explain_refuser(struct weir_table *t, uint32_t stripe,
                            const struct walk *walk, uint64_t weight,
                            struct weir_reply *reply)
{
    struct weir_algorithm_answer answer;
    reply->verdict = WEIR_LIMITED;
    if (peek_bucket_state(t, walk, walk->refuser, weight, &answer)) {
        reply->never = answer.never;
        reply->fill = answer.used;
        /* It may have passed again by now. */
        reply->retry_after = answer.passed ? 1 : answer.retry_after;
    } else {
        explain_bucket(t, walk, weight, reply);
    }
    reply->retry_after = reply->never
                             ? WEIR_NEVER
                             : weir_table_jitter(t, stripe, reply->retry_after);
    weir_reply_name(t, walk->slot[walk->refuser], reply);
}

/* ---- Passed ---- */

struct room {
    uint64_t units;
    int64_t fill;
};

/* The units left at a link; false: it limits nothing. */
static bool room_at(struct weir_table *t, const struct walk *walk, uint32_t i,
                    struct room *out)
{
    struct look look;
    struct weir_algorithm_answer answer;
    weir_slot_read(t, walk->slot[i], walk->elapsed, &look);
    if (look.flags & (META_OFF | META_SHADOW | META_PASS | META_AWAY))
        return false;
    if (peek_bucket_state(t, walk, i, 0, &answer)) {
        *out = (struct room){ answer.remaining, answer.used };
        return true;
    }
    int64_t fill = look.fill > 0 ? look.fill : 0;
    int64_t room = look.high > fill ? look.high - fill : 0;
    *out = (struct room){ (uint64_t)room >> look.leak.frac,
                          fill >> look.leak.frac };
    if (weir_slot_read_is_endless(&look))
        *out = (struct room){ UINT64_MAX, 0 };
    const struct weir_concurrency_gate *gate =
        look.flags & META_ADAPTIVE ? weir_slot_gate(t, walk->slot[i]) : NULL;
    uint32_t most =
        gate ? weir_concurrency_gate_free_units(gate, walk->now) : UINT32_MAX;
    if (gate && most < out->units)
        *out = (struct room){ most, weir_concurrency_gate_in_flight(gate) };
    return true;
}

/* Names the link nearest to its limit, and the units left there. */
static void explain_nearest(struct weir_table *t, const struct walk *walk,
                            struct weir_reply *reply)
{
    uint32_t nearest = WEIR_SLOT_NONE;
    reply->remaining = UINT64_MAX;
    for (uint32_t i = 0; i < walk->links; i++) {
        struct room room;
        if (!room_at(t, walk, i, &room) ||
            (nearest != WEIR_SLOT_NONE && room.units >= reply->remaining))
            continue;
        nearest = walk->slot[i];
        reply->remaining = room.units;
        reply->fill = room.fill;
    }
    if (nearest == WEIR_SLOT_NONE)
        return;
    weir_reply_name(t, nearest, reply);
    reply->leased = weir_slot_granted(t, nearest, &reply->granted);
}

void weir_walk_explain(struct weir_table *t, uint32_t stripe,
                       const struct walk *walk, uint64_t weight, bool passed,
                       struct weir_reply *reply)
{
    memset(reply, 0, sizeof(*reply));
    reply->stale = weir_table_is_stale(t);
    reply->shadow = walk->shadow != 0;
    uint8_t state = weir_load_acquire(&weir_cold(t, walk->slot[0])->state);
    reply->unknown = state == WEIR_SLOT_PLACEHOLDER;
    if (passed)
        explain_nearest(t, walk, reply);
    else
        explain_refuser(t, stripe, walk, weight, reply);
}
