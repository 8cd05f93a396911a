/* SPDX-License-Identifier: MIT
 * table/table_enter.c - the calls that put units in flight. */

#include "core/table/table_walk_internal.h"

/* The common case: a single slot without other flags, not being edited. False:
 * another case, or it is full; nothing is in flight. */
static bool enter_alone(struct weir_table *t, struct weir_ref ref,
                        uint64_t weight, struct weir_permit_record *out,
                        unsigned *out_kick, weir_instant now)
{
    const struct hot *hot = weir_hot(t, ref.slot);
    struct look look;
    weir_slot_read(t, ref.slot, 0, &look);
    out->weight = weight;
    if ((look.flags & ~META_ADAPTIVE) != META_INFLIGHT ||
        weir_parent(hot) != WEIR_SLOT_NONE ||
        !weir_link_enter(t, ref.slot, &look, out, NULL, out_kick, now))
        return false;
    bool alone = (uint32_t)weir_load(&hot->up) == WEIR_SLOT_NONE;
    if (WEIR_LIKELY(alone && weir_load(&hot->generation) == ref.generation))
        return true;
    *out_kick |= weir_table_leave(t, out);
    return false;
}

unsigned weir_table_enter(struct weir_table *t, uint32_t stripe,
                          struct weir_ref ref, uint64_t weight,
                          struct weir_permit_record *out_hold,
                          struct weir_reply *reply, weir_instant now)
{
    out_hold->links = out_hold->gate_slot = 0;
    out_hold->process = weir_process_of(t, stripe);
    if (weight > WEIR_WEIGHT_MAX)
        weight = WEIR_WEIGHT_MAX;
    unsigned kick = 0;
    if (WEIR_LIKELY(!reply && weir_shadow_outcome(t) == 0) &&
        enter_alone(t, ref, weight, out_hold, &kick, now))
        return kick;
    struct walk_request q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_TAKE, .weight = weight },
        .record = out_hold,
    };
    unsigned outcome = weir_walk_take(t, &q, reply, now);
    /* The kick stays, even if its cause was undone: the mark is set, and no
     * other thread kicks before the sync has read it. */
    return outcome | kick | weir_shadow_outcome(t);
}

unsigned weir_table_enter_turn(struct weir_table *t, struct weir_ref ref,
                               uint64_t weight,
                               struct weir_permit_record *out_hold,
                               struct weir_turn *turn, struct weir_reply *reply,
                               weir_instant now)
{
    out_hold->links = out_hold->gate_slot = 0;
    struct walk_request q = {
        .stripe = turn->stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_TAKE,
                 .weight =
                     weight < WEIR_WEIGHT_MAX ? weight : WEIR_WEIGHT_MAX },
        .record = out_hold,
        .turn = turn,
    };
    return weir_walk_take(t, &q, reply, now) | weir_shadow_outcome(t);
}
