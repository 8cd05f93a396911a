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
    struct slot_read read;
    weir_slot_read(t, ref.slot, 0, &read);
    out->weight = weight;
    if ((read.flags & ~META_ADAPTIVE) != META_INFLIGHT ||
        weir_parent(hot) != WEIR_SLOT_NONE ||
        !weir_link_inflight_enter(t, ref.slot, &read, out, NULL, out_kick, now))
        return false;
    bool alone = (uint32_t)weir_load(&hot->up) == WEIR_SLOT_NONE;
    if (WEIR_LIKELY(alone && weir_load(&hot->generation) == ref.generation))
        return true;
    *out_kick |= weir_table_leave(t, out);
    return false;
}

static unsigned enter_chain(struct weir_table *t, struct walk *walk,
                            uint64_t weight, struct weir_reply *reply)
{
    struct weir_algorithm_ask ask = {
        .op = WEIR_ALGORITHM_TAKE,
        .weight = weir_weight_clipped(weight),
        .when_locked =
            walk->turn ? walk->turn->when_locked : WEIR_LOCKED_RETURNS,
        .waited = walk->turn && walk->turn->waited,
    };
    return weir_walk_answer(t, walk, &ask, reply);
}

/* Whether every link is a bare bucket: then an enter is a take, which is
 * cheaper. Relaxed: a link that becomes an in-flight counter now was entered
 * before its edit. */
static bool is_bare(const struct weir_table *t, uint32_t slot)
{
    for (uint32_t links = 0; links < WEIR_DEPTH_MAX; links++) {
        const struct hot *hot = weir_hot(t, slot);
        if (weir_load_relaxed(&hot->meta) & META_FLAGS)
            return false;
        slot = weir_parent(hot);
        if (slot == WEIR_SLOT_NONE)
            return true;
    }
    return false;
}

unsigned weir_table_enter(struct weir_table *t, uint32_t stripe,
                          struct weir_ref ref, uint64_t weight,
                          struct weir_permit_record *out_record,
                          struct weir_reply *reply, weir_instant now)
{
    struct walk walk;
    out_record->links = out_record->gate_slot = 0;
    out_record->process = weir_process_of(t, stripe);
    unsigned kick = 0;
    if (!reply && is_bare(t, ref.slot))
        return weir_table_take(t, stripe, ref, weight, NULL, now);
    if (WEIR_LIKELY(!reply && weir_shadow_outcome(t) == 0) &&
        enter_alone(t, ref, weir_weight_clipped(weight), out_record, &kick,
                    now))
        return kick;
    weir_walk_of(&walk, stripe, ref, now);
    walk.record = out_record;
    /* The kick stays, even if its cause was undone: the mark is set, and no
     * other thread kicks before the sync has read it. */
    return enter_chain(t, &walk, weight, reply) | kick;
}

unsigned weir_table_enter_turn(struct weir_table *t, struct weir_ref ref,
                               uint64_t weight,
                               struct weir_permit_record *out_record,
                               struct weir_turn *turn, struct weir_reply *reply,
                               weir_instant now)
{
    struct walk walk;
    out_record->links = out_record->gate_slot = 0;
    weir_walk_of(&walk, turn->stripe, ref, now);
    walk.record = out_record;
    walk.turn = turn;
    return enter_chain(t, &walk, weight, reply);
}
