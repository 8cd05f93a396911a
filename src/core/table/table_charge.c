/* SPDX-License-Identifier: MIT
 * table/table_charge.c - calls that charge beyond the limit: charge, refund and
 * reserve. */

#include "core/table/table_stripe_internal.h"
#include "core/table/table_walk_internal.h"

/* ---- Charge, refund ---- */

/* Reads the chain without judging it. */
static void walk_plainly(struct weir_table *t, struct weir_ref ref,
                         weir_instant now, struct walk *walk)
{
    weir_walk_begin(walk, t, now);
    uint32_t slot = ref.slot;
    do {
        struct look look;
        weir_slot_read(t, slot, walk->elapsed, &look);
        /* A reservation waits for its turn under `hold` too. */
        weir_walk_note_flags(walk, look.flags & ~META_HOLD, 1u << walk->links);
        if (look.fill < 0)
            walk->lift |= 1u << walk->links;
        walk->slot[walk->links++] = slot;
        slot = weir_parent(weir_hot(t, slot));
    } while (slot != WEIR_SLOT_NONE && walk->links < WEIR_DEPTH_MAX);
}

/* The part of 'weight' that fits below the bound of debt. */
static uint64_t below_debt(const struct look *look, uint64_t weight)
{
    if (weir_slot_read_is_endless(look))
        return weight;
    int64_t debt = (int64_t)(WEIR_DEBT_MAX << look->leak.frac);
    int64_t high = look->high > 0 ? look->high : 0;
    int64_t fill = look->fill > 0 ? look->fill : 0;
    if (fill >= high + debt)
        return 0;
    uint64_t room = (uint64_t)(high + debt - fill) >> look->leak.frac;
    return weight < room ? weight : room;
}

/* A unit that is only partly in the bucket is given back whole: the lift
 * removes the part below empty again. */
static uint64_t above_empty(const struct look *look, uint64_t weight)
{
    if (look->fill <= 0)
        return 0;
    uint64_t one = (uint64_t)1 << look->leak.frac;
    uint64_t in = ((uint64_t)look->fill + one - 1) >> look->leak.frac;
    return weight < in ? weight : in;
}

/* Charges each link as much as it can take, or gives back; as charge_walked(),
 * but the amount differs from link to link. */
static unsigned move_walked(struct weir_table *t, const struct walk *walk,
                            struct weir_ref ref, uint64_t weight, bool back)
{
    uint64_t moved[WEIR_DEPTH_MAX] = { 0 };
    unsigned outcome = 0;
    uint32_t i = walk->links;
    bool whole = true;
    while (whole && i-- > 0) {
        uint32_t slot = walk->slot[i];
        if (walk->lift >> i & 1)
            weir_slot_lift(t, slot, walk->elapsed);
        struct look look;
        weir_slot_read(t, slot, walk->elapsed, &look);
        if (!(walk->skip >> i & 1)) {
            moved[i] = back ? (uint64_t)0 - above_empty(&look, weight)
                            : below_debt(&look, weight);
            outcome |= weir_slot_add(t, slot, moved[i]);
        }
        whole = !weir_walk_has_moved(t, walk, i);
    }
    if (whole && weir_ref_is_live(t, ref))
        return outcome;
    for (i = 0; i < walk->links; i++)
        weir_fetch_sub(&weir_hot(t, walk->slot[i])->count, moved[i]);
    return OUTCOME_MOVED;
}

/* Charges or gives back along the chain, whatever its fills. */
unsigned weir_walk_move(struct weir_table *t, const struct walk_request *q,
                        struct walk *walk, struct steps *steps,
                        weir_instant now)
{
    bool back = q->ask.op == WEIR_ALGORITHM_REFUND;
    unsigned outcome;
    do {
        walk_plainly(t, q->ref, now, walk);
        walk->stripe = q->stripe;
        if (!weir_ref_is_live(t, q->ref))
            return WEIR_OUTCOME_STALE_REF;
        if (walk->away != 0 && !q->whole)
            return WEIR_OUTCOME_EXACT;
        outcome = weir_walk_step_states(t, walk, steps, q);
        if (outcome == OUTCOME_MOVED)
            continue;
        outcome = move_walked(t, walk, q->ref, q->ask.weight, back);
        if (outcome == OUTCOME_MOVED)
            weir_walk_step_back(t, walk, steps, &q->ask);
    } while (outcome == OUTCOME_MOVED);
    return outcome;
}

static unsigned move_units(struct weir_table *t, uint32_t stripe,
                           struct weir_ref ref, struct weir_algorithm_ask ask,
                           weir_instant now)
{
    struct walk walk;
    struct steps steps;
    struct walk_request q = { .stripe = stripe, .ref = ref, .ask = ask };
    return weir_walk_move(t, &q, &walk, &steps, now) | weir_shadow_outcome(t);
}

unsigned weir_table_charge(struct weir_table *t, uint32_t stripe,
                           struct weir_ref ref, uint64_t weight,
                           weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_CHARGE,
                                      .weight = weir_weight_clipped(weight) };
    return move_units(t, stripe, ref, ask, now);
}

unsigned weir_table_refund(struct weir_table *t, uint32_t stripe,
                           struct weir_ref ref, uint64_t weight,
                           weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_REFUND,
                                      .weight = weir_weight_clipped(weight) };
    return move_units(t, stripe, ref, ask, now);
}

/* ---- Reserve ---- */

/* The wait that one link demands of a reservation, or WEIR_NEVER. */
static weir_duration link_wait(const struct look *look, uint64_t weight)
{
    if ((look->flags & (META_OFF | META_SHADOW | META_PASS)) ||
        weir_slot_read_is_endless(look))
        return 0;
    int64_t scaled = (int64_t)(weight << look->leak.frac);
    if ((look->flags & META_LIMIT) || scaled > look->high)
        return WEIR_NEVER;
    if (below_debt(look, weight) < weight)
        return WEIR_NEVER;
    int64_t fill = look->fill > 0 ? look->fill : 0;
    if ((look->flags & META_INFLIGHT) && fill + scaled > look->high)
        return WEIR_NEVER; /* it is unknown when a permit leaves */
    return weir_leak_time(look->leak, fill + scaled - look->high);
}

/* The wait that the whole chain demands; the link with the longest one is the
 * refuser if that is too long. */
static weir_duration walk_wait(const struct weir_table *t, struct walk *walk,
                               uint64_t weight)
{
    weir_duration wait = 0;
    walk->refuser = 0;
    for (uint32_t i = 0; i < walk->links; i++) {
        struct look look;
        weir_slot_read(t, walk->slot[i], walk->elapsed, &look);
        uint64_t stop = weir_load_relaxed(&weir_hot(t, walk->slot[i])->stop);
        weir_duration link = link_wait(&look, weight);
        if (!weir_slot_read_is_endless(&look) &&
            (int64_t)(look.count - stop) >= 0 && link < STOP_RETRY)
            link = STOP_RETRY;
        if (link <= wait)
            continue;
        wait = link;
        walk->refuser = i;
    }
    return wait;
}

/* First the buckets' wait, which charges nothing; then the bucket states, which
 * charge a reservation that they accept. */
static unsigned reserve_walked(struct weir_table *t,
                               const struct walk_request *q, struct walk *walk,
                               struct steps *steps)
{
    weir_duration wait = walk_wait(t, walk, q->ask.weight);
    *steps = (struct steps){ .wait = wait };
    if (!weir_ref_is_live(t, q->ref))
        return WEIR_OUTCOME_STALE_REF;
    if (wait > q->ask.wait_max || wait == WEIR_NEVER)
        return WEIR_OUTCOME_LIMITED;
    if (walk->adaptive != 0 && weir_walk_check_gates(t, walk, q) != 0)
        return WEIR_OUTCOME_LIMITED;
    unsigned outcome = weir_walk_step_states(t, walk, steps, q);
    if (wait > steps->wait)
        steps->wait = wait;
    return outcome == 0 ? weir_walk_charge(t, walk, steps, q) : outcome;
}

unsigned weir_walk_reserve(struct weir_table *t, const struct walk_request *q,
                           struct walk *walk, struct steps *steps,
                           weir_instant now)
{
    unsigned outcome;
    do {
        walk_plainly(t, q->ref, now, walk);
        walk->stripe = q->stripe;
        if (walk->away != 0 && !q->whole)
            return weir_ref_is_live(t, q->ref) ? WEIR_OUTCOME_EXACT
                                               : WEIR_OUTCOME_STALE_REF;
        outcome = reserve_walked(t, q, walk, steps);
    } while (outcome == OUTCOME_MOVED);
    if (outcome & WEIR_OUTCOME_LIMITED)
        weir_stripe_refuse_chain(t, q->stripe, q->ref.slot,
                                 walk->slot[walk->refuser], q->ask.weight);
    return outcome;
}

unsigned weir_table_reserve(struct weir_table *t, uint32_t stripe,
                            struct weir_ref ref, uint64_t weight,
                            weir_duration wait_max, struct weir_reply *reply,
                            weir_instant now)
{
    struct walk walk;
    struct steps steps;
    struct walk_request q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_RESERVE,
                 .weight = weir_weight_clipped(weight),
                 .wait_max = wait_max },
    };
    unsigned outcome = weir_walk_reserve(t, &q, &walk, &steps, now);
    if (outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_EXACT))
        return outcome;
    if (walk.skip & 1)
        weir_placeholder_count(t, stripe, ref.slot);
    bool passed = !(outcome & WEIR_OUTCOME_LIMITED);
    weir_walk_explain(t, stripe, &walk, q.ask.weight, passed, reply);
    reply->wait = steps.wait;
    reply->level = passed ? steps.level : 0;
    return outcome | weir_shadow_outcome(t);
}

unsigned weir_slot_reserve_shadow(struct weir_table *t, uint32_t stripe,
                                  struct weir_ref ref, uint64_t weight,
                                  weir_duration wait_max, weir_instant now)
{
    struct walk walk;
    struct steps steps;
    struct walk_request q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_RESERVE,
                 .weight = weir_weight_clipped(weight),
                 .wait_max = wait_max },
        .set = SHADOW,
        .whole = true,
    };
    return weir_walk_reserve(t, &q, &walk, &steps, now);
}
