/* SPDX-License-Identifier: MIT
 * table/table_take.c - the decision.
 *
 * One walk up the chain reads and judges, a second one charges. Between the
 * two, other threads may charge as well: k racing takes can exceed 'high' by
 * (k - 1) weights. That is part of the stated bound, and the price of a take
 * that never loops on a word that other threads write.
 *
 * Cases at a link in the first walk:
 *
 *     off, placeholder       the link is skipped
 *     fill + weight > high   refused
 *     count at 'stop'        refused: too many units that no root has seen
 *     low < fill             refused if the draw says so: one draw for the
 *                            whole chain, so that the largest of its
 *                            probabilities decides and not their product
 *     shadow                 would be refused: noted, not charged, goes on
 *     bucket state           not judged by this walk: when it passes, the
 *                            bucket states step (table_bucket_state.c), before
 *                            the charge
 *     store                  the chain isn't decided here alone: nothing is
 *                            charged, the caller goes on by weir_table_begin()
 *     in-flight counter      judged as a bucket is, and never charged: an enter
 *                            adds to it (link_inflight.c), before the bucket
 *                            states step
 *
 * Most takes need only the bare comparison. So each link is first judged by its
 * line alone, in registers; the first link for which that isn't enough sends
 * the whole chain to the longer walk. */

#include "core/table/table_stripe_internal.h"
#include "core/table/table_switch_internal.h"
#include "core/table/table_walk_internal.h"

/* ---- Judging ---- */

/* The random number of a walk: one draw for the whole chain. */
static uint64_t walk_chance(struct weir_table *t, uint32_t stripe,
                            struct walk *walk)
{
    if (!walk->drawn)
        walk->chance = weir_stripe_draw_evenly(t, stripe, walk->set);
    walk->drawn = true;
    return walk->chance;
}

static bool drawn_against(struct weir_table *t, uint32_t stripe,
                          struct walk *walk, const struct look *look)
{
    return weir_band_refuses(look->fill, look->high - look->band, look->band,
                             walk_chance(t, stripe, walk));
}

/* Whether a stale slot refuses. */
static bool flagged_refuses(struct weir_table *t, uint32_t stripe,
                            struct walk *walk, uint32_t slot,
                            const struct look *look)
{
    if (look->flags & META_PASS)
        return false;
    if (look->flags & META_LIMIT)
        return true;
    uint8_t hold = weir_load_relaxed(&weir_cold(t, slot)->hold);
    return walk_chance(t, stripe, walk) >> 32 < (uint64_t)hold * 0x1010101u;
}

static bool link_refuses(struct weir_table *t, uint32_t stripe,
                         struct walk *walk, uint32_t slot,
                         const struct look *look, uint64_t weight)
{
    if (WEIR_UNLIKELY(look->flags & META_STALE))
        return flagged_refuses(t, stripe, walk, slot, look);
    /* Before the stop, which may still belong to the previous limit. */
    if (weir_slot_read_is_endless(look))
        return false;
    uint64_t stop = weir_load_relaxed(&weir_hot(t, slot)->stop);
    if ((int64_t)(look->count - stop) >= 0)
        return true;
    int64_t fill = look->fill > 0 ? look->fill : 0;
    if (fill + (int64_t)(weight << look->leak.frac) > look->high)
        return true;
    if (WEIR_LIKELY(fill <= look->high - look->band))
        return false;
    return drawn_against(t, stripe, walk, look);
}

static inline void prefetch_above(const struct weir_table *t, uint64_t up)
{
    uint32_t above = (uint32_t)(up >> 32);
    if (above != WEIR_SLOT_NONE)
        __builtin_prefetch(weir_hot(t, above), 1);
}

/* Judges the chain from 'slot' up. Returns whether it passes; 'walk' then
 * describes the links read, up to the refuser. */
static bool walk_up(struct weir_table *t, uint32_t stripe, uint32_t slot,
                    uint64_t weight, struct walk *walk)
{
    do {
        uint64_t up = weir_load_relaxed(&weir_hot(t, slot)->up);
        prefetch_above(t, up);
        struct look look;
        weir_slot_read(t, slot, walk->elapsed, &look);
        uint32_t bit = 1u << walk->links;
        walk->slot[walk->links++] = slot;
        if (look.fill < 0)
            walk->lift |= bit;
        weir_walk_note_flags(walk, look.flags, bit);
        bool judged =
            !(look.flags & (META_OFF | META_BUCKET_STATE | META_AWAY));
        if (judged && link_refuses(t, stripe, walk, slot, &look, weight)) {
            if (!(look.flags & META_SHADOW)) {
                walk->refuser = walk->links - 1;
                return false;
            }
            walk->skip |= bit;
            walk->shadow |= bit;
        }
        slot = (uint32_t)up;
    } while (slot != WEIR_SLOT_NONE && walk->links < WEIR_DEPTH_MAX);
    return true;
}

/* ---- Charging ---- */

/* Takes back the charges of links 'from' and above. */
INLINE unsigned uncharge(struct weir_table *t, const struct walk *walk,
                         uint32_t from, uint64_t weight)
{
    for (uint32_t i = from; i < walk->links; i++) {
        if (!(walk->skip >> i & 1))
            weir_fetch_sub(&weir_hot(t, walk->slot[i])->count, weight);
    }
    return OUTCOME_MOVED;
}

/* From the root down, so that each link is checked when it and its parent
 * were charged, and the ref at the very end. */
INLINE unsigned charge_walked(struct weir_table *t, const struct walk *walk,
                              struct weir_ref ref, uint64_t weight)
{
    unsigned outcome = 0;
    for (uint32_t i = walk->links; i-- > 0;) {
        if (WEIR_UNLIKELY(walk->lift >> i & 1))
            weir_slot_lift(t, walk->slot[i], walk->elapsed);
        if (WEIR_LIKELY(!(walk->skip >> i & 1)))
            outcome |= weir_slot_add(t, walk->slot[i], weight);
        if (WEIR_UNLIKELY(weir_walk_has_moved(t, walk, i)))
            return uncharge(t, walk, i, weight);
    }
    return WEIR_LIKELY(weir_ref_is_live(t, ref)) ? outcome
                                                 : uncharge(t, walk, 0, weight);
}

/* Uses the flags read by the walk: the table may have contact with a root again
 * by now. */
static void forgive_walked(struct weir_table *t, const struct walk *walk,
                           uint64_t weight)
{
    for (uint32_t i = 0; i < walk->links; i++)
        if (walk->free & ~walk->skip & 1u << i)
            weir_slot_forgive(t, walk->slot[i], weight, walk->elapsed);
}

/* Charges a walk that the bucket states let pass; undoes both if the chain
 * changed meanwhile. */
unsigned weir_walk_charge(struct weir_table *t, const struct walk *walk,
                          struct steps *steps, const struct walk_request *q)
{
    unsigned outcome = charge_walked(t, walk, q->ref, q->ask.weight);
    if (outcome == OUTCOME_MOVED)
        weir_walk_step_back(t, walk, steps, &q->ask);
    else if (WEIR_UNLIKELY(walk->free != 0))
        forgive_walked(t, walk, q->ask.weight);
    return outcome;
}

/* ---- The full walk ---- */

static void count_shadow(struct weir_table *t, uint32_t stripe,
                         const struct walk *walk, uint64_t weight)
{
    for (uint32_t i = 0; i < walk->links; i++) {
        if (walk->shadow >> i & 1)
            weir_stripe_refuse(t, stripe, walk->slot[i], weight);
    }
}

/* Enters the in-flight counters of a walk that its buckets let pass. */
static inline unsigned hold_walked(struct weir_table *t, struct walk *walk,
                                   const struct walk_request *q,
                                   unsigned *out_kick)
{
    if (q->record)
        return weir_walk_enter(t, walk, q, out_kick);
    return WEIR_LIKELY(walk->adaptive == 0) ? 0
                                            : weir_walk_check_gates(t, walk, q);
}

/* Judges and, if it is a take that passes, charges. */
unsigned weir_walk_decide(struct weir_table *t, const struct walk_request *q,
                          struct walk *walk, struct steps *steps,
                          weir_instant now)
{
    unsigned outcome;
    unsigned kick = 0; /* of all rounds: a later one doesn't request again */
    do {
        weir_walk_begin(walk, t, now);
        walk->set = q->set;
        walk->stripe = q->stripe;
        bool passed = walk_up(t, q->stripe, q->ref.slot, q->ask.weight, walk);
        if (!weir_ref_is_live(t, q->ref))
            return WEIR_OUTCOME_STALE_REF | kick;
        if (WEIR_UNLIKELY(walk->away != 0) && !q->whole)
            return WEIR_OUTCOME_EXACT | kick;
        outcome =
            passed ? hold_walked(t, walk, q, &kick) : WEIR_OUTCOME_LIMITED;
        if (outcome == 0)
            outcome = weir_walk_step_states(t, walk, steps, q);
        if (outcome == 0 && q->ask.op == WEIR_ALGORITHM_TAKE)
            outcome = weir_walk_charge(t, walk, steps, q);
        if (q->record && (outcome & (WEIR_OUTCOME_LIMITED | OUTCOME_MOVED)))
            kick |= weir_table_leave(t, q->record);
    } while (outcome == OUTCOME_MOVED);
    return outcome | kick;
}

/* Counts a take's refusal, or the refusals of its links in mode shadow. */
void weir_walk_count(struct weir_table *t, uint32_t stripe,
                     const struct walk *walk, uint64_t weight, unsigned outcome)
{
    if (walk->shadow != 0)
        count_shadow(t, stripe, walk, weight);
    if (outcome & WEIR_OUTCOME_LIMITED)
        weir_stripe_refuse_chain(t, stripe, walk->slot[0],
                                 walk->slot[walk->refuser], weight);
}

__attribute__((noinline)) unsigned weir_walk_take(struct weir_table *t,
                                                  const struct walk_request *q,
                                                  struct weir_reply *reply,
                                                  weir_instant now)
{
    struct walk walk;
    struct steps steps;
    uint64_t weight = q->ask.weight;
    unsigned outcome = weir_walk_decide(t, q, &walk, &steps, now);
    if (outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_EXACT))
        return outcome;
    if (q->ask.op == WEIR_ALGORITHM_TAKE) {
        if (walk.skip & 1)
            weir_placeholder_count(t, q->stripe, q->ref.slot);
        bool limited = outcome & WEIR_OUTCOME_LIMITED;
        if (!q->turn || !limited || !weir_walk_note_turn(t, &walk, q))
            weir_walk_count(t, q->stripe, &walk, weight, outcome);
    }
    if (!reply)
        return outcome;
    bool passed = !(outcome & WEIR_OUTCOME_LIMITED);
    weir_walk_explain(t, q->stripe, &walk, weight, passed, reply);
    reply->level = passed ? steps.level : 0;
    return outcome;
}

unsigned weir_table_peek(struct weir_table *t, uint32_t stripe,
                         struct weir_ref ref, uint64_t weight,
                         struct weir_reply *reply, weir_instant now)
{
    struct walk_request q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_PEEK,
                 .weight = weir_weight_clipped(weight) },
    };
    return weir_walk_take(t, &q, reply, now);
}

/* Links of the shadow set that a store decides pass: no caller should wait for
 * an answer that doesn't change its verdict. */
unsigned weir_slot_take_shadow(struct weir_table *t, uint32_t stripe,
                               struct weir_ref ref, uint64_t weight,
                               weir_instant now)
{
    struct walk walk;
    struct steps steps;
    struct walk_request q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_TAKE,
                 .weight = weir_weight_clipped(weight) },
        .set = SHADOW,
        .whole = true,
    };
    unsigned outcome = weir_walk_decide(t, &q, &walk, &steps, now);
    if (!(outcome & WEIR_OUTCOME_STALE_REF))
        weir_walk_count(t, stripe, &walk, q.ask.weight, outcome);
    return outcome;
}

/* ---- A take, by the hot lines alone where that is enough ---- */

__attribute__((noinline)) static unsigned take_slowly(
    struct weir_table *t, uint32_t stripe, struct weir_ref ref, uint64_t weight,
    struct weir_reply *reply, weir_instant now)
{
    struct walk_request q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_TAKE,
                 .weight = weir_weight_clipped(weight) },
    };
    return weir_walk_take(t, &q, reply, now) | weir_shadow_outcome(t);
}

/* The verdict from a link's line alone. */
enum judged {
    EASY, /* passes, not near any bound */
    IDLE, /* passes; the bucket was empty: lift it */
    OVER, /* refused, whatever the draw */
    HARD, /* ask link_refuses() */
};

/* weir_slot_read() and link_refuses() for a slot without flags, outside of its
 * band and of an edit. A result computed from a torn line is discarded at the
 * end: this keeps so few values live that none is spilled. Sets only the
 * members of 'out' that a lift needs. */
INLINE enum judged judge(const struct hot *hot, uint64_t elapsed,
                         uint64_t weight, struct look *out)
{
    uint32_t meta = weir_load_acquire(&hot->meta);
    uint64_t base = weir_load_acquire(&hot->base);
    if (WEIR_UNLIKELY((meta & (META_FLAGS | META_SEQ_ONE)) | (base & 1)))
        return HARD;
    struct weir_leak leak = weir_meta_leak(meta, weir_load_relaxed(&hot->part));
    uint64_t count = weir_load_relaxed(&hot->count);
    int64_t found = weir_fill_of(count, base, leak, elapsed);
    int64_t fill = found > 0 ? found : 0;
    *out = (struct look){ .base = base, .fill = found };
    int64_t high = weir_load_relaxed(&hot->high);
    enum judged judged = found < 0 ? IDLE : EASY;
    if (fill + (int64_t)(weight << leak.frac) > high)
        judged = high == WEIR_SCALED_MAX ? HARD : OVER;
    else if (fill > high - weir_mini_get(weir_load_relaxed(&hot->band)) ||
             (int64_t)(weir_load_relaxed(&hot->stop) - count) <= 0)
        judged = HARD;
    weir_fence_acquire();
    return WEIR_LIKELY(weir_load_relaxed(&hot->meta) == meta) ? judged : HARD;
}

/* The end of a take that passes, of a link without a parent. */
INLINE unsigned charge_alone(struct weir_table *t, struct weir_ref ref,
                             uint64_t weight)
{
    struct hot *hot = weir_hot(t, ref.slot);
    uint64_t count = weir_fetch_add(&hot->count, weight) + weight;
    if (WEIR_UNLIKELY(!weir_ref_is_live(t, ref))) {
        weir_fetch_sub(&hot->count, weight);
        return WEIR_OUTCOME_STALE_REF;
    }
    return weir_slot_is_near(hot, count) ? weir_slot_touch(t, ref.slot, count)
                                         : 0;
}

/* The take of a chain after its first link passed, or of a single link that was
 * empty; 'lift': whether the first link was empty. */
__attribute__((noinline)) static unsigned take_chain(
    struct weir_table *t, uint32_t stripe, struct weir_ref ref, uint64_t weight,
    uint32_t lift, weir_instant now)
{
    struct walk walk;
    walk.elapsed = weir_elapsed(t, now);
    walk.slot[0] = ref.slot;
    uint32_t links = 1;
    struct hot *own = weir_hot(t, ref.slot);
    uint32_t slot = weir_parent(own);
    struct look look;
    if (slot == WEIR_SLOT_NONE &&
        judge(own, walk.elapsed, weight, &look) == IDLE &&
        weir_slot_lift_read(own, &look))
        return charge_alone(t, ref, weight);
    while (slot != WEIR_SLOT_NONE && links < WEIR_DEPTH_MAX) {
        const struct hot *hot = weir_hot(t, slot);
        uint64_t up = weir_load_relaxed(&hot->up);
        prefetch_above(t, up);
        enum judged judged = judge(hot, walk.elapsed, weight, &look);
        if (WEIR_UNLIKELY(judged == OVER && weir_ref_is_live(t, ref)))
            return weir_stripe_refuse_chain(t, stripe, ref.slot, slot, weight);
        if (WEIR_UNLIKELY(judged >= OVER))
            return take_slowly(t, stripe, ref, weight, NULL, now);
        lift |= (uint32_t)(judged == IDLE) << links;
        walk.slot[links++] = slot;
        slot = (uint32_t)up;
    }
    walk.links = links;
    walk.lift = lift;
    walk.skip = 0;
    unsigned outcome = charge_walked(t, &walk, ref, weight);
    if (WEIR_LIKELY(outcome != OUTCOME_MOVED))
        return outcome;
    return take_slowly(t, stripe, ref, weight, NULL, now);
}

/* A single link that is not near any bound, or refuses for certain, is decided
 * here; other cases pass the arguments on in their registers. */
unsigned weir_table_take(struct weir_table *t, uint32_t stripe,
                         struct weir_ref ref, uint64_t weight,
                         struct weir_reply *reply, weir_instant now)
{
    if (WEIR_UNLIKELY(reply != NULL || weight > WEIR_WEIGHT_MAX ||
                      weir_load_relaxed(&t->shadows) != 0))
        return take_slowly(t, stripe, ref, weight, reply, now);
    struct hot *hot = weir_hot(t, ref.slot);
    uint64_t up = weir_load_relaxed(&hot->up);
    prefetch_above(t, up);
    struct look look;
    enum judged judged = judge(hot, weir_elapsed(t, now), weight, &look);
    if (WEIR_UNLIKELY(judged == HARD))
        return take_slowly(t, stripe, ref, weight, reply, now);
    if (judged == OVER)
        return weir_ref_is_live(t, ref)
                   ? weir_stripe_refuse(t, stripe, ref.slot, weight)
                   : WEIR_OUTCOME_STALE_REF;
    if (judged == IDLE || (uint32_t)up != WEIR_SLOT_NONE)
        return take_chain(t, stripe, ref, weight, judged == IDLE, now);
    return charge_alone(t, ref, weight);
}
