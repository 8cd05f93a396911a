/* SPDX-License-Identifier: MIT
 * table/table_take.c - the decision, by the hot lines alone where that is
 * enough.
 *
 * Most takes need only the bare comparison. So each link is first judged by its
 * line alone, in registers: two loops over the lines of the chain, one that
 * judges from the leaf up and one that charges from the root down. The first
 * link for which that isn't enough sends the whole chain to the longer walk
 * (table_walk.c), which has the theory of both. */

#include "core/table/table_stripe_internal.h"
#include "core/table/table_walk_internal.h"

__attribute__((noinline)) static unsigned take_slowly(
    struct weir_table *t, uint32_t stripe, struct weir_ref ref, uint64_t weight,
    struct weir_reply *reply, weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE,
                                      .weight = weir_weight_clipped(weight),
                                      .when_locked = WEIR_LOCKED_RETURNS };
    return weir_table_ask(t, stripe, ref, &ask, reply, now);
}

/* The verdict from a link's line alone. */
enum judged {
    EASY, /* passes, not near any bound */
    IDLE, /* passes; the bucket was empty: lift it */
    OVER, /* refused, whatever the draw */
    HARD, /* ask weir_link_bucket_judge() */
};

/* weir_slot_read() and weir_link_bucket_judge() for a slot without flags,
 * outside of its band and of an edit. A result computed from a torn line is
 * discarded at the end: this keeps so few values live that none is spilled.
 * Sets only the members of 'out' that a lift needs. */
INLINE enum judged judge(const struct hot *hot, uint64_t elapsed,
                         uint64_t weight, struct slot_read *out)
{
    uint32_t meta = weir_load_acquire(&hot->meta);
    uint64_t base = weir_load_acquire(&hot->base);
    if (WEIR_UNLIKELY((meta & (META_FLAGS | META_SEQ_ONE)) | (base & 1)))
        return HARD;
    struct weir_leak leak = weir_meta_leak(meta, weir_load_relaxed(&hot->part));
    uint64_t count = weir_load_relaxed(&hot->count);
    int64_t found = weir_fill_of(count, base, leak, elapsed);
    int64_t fill = found > 0 ? found : 0;
    *out = (struct slot_read){ .base = base, .fill = found };
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

/* Counts the refusal for the requested quota and for the refusing one. */
INLINE unsigned refuse(struct weir_table *t, uint32_t stripe,
                       struct weir_ref ref, uint32_t refuser, uint64_t weight)
{
    if (!weir_ref_is_live(t, ref))
        return WEIR_OUTCOME_STALE_REF;
    if (refuser != ref.slot)
        weir_stripe_refuse(t, stripe, refuser, weight);
    return weir_stripe_refuse(t, stripe, ref.slot, weight);
}

/* A chain with its links judged. */
struct chain {
    uint64_t elapsed;
    uint32_t links;
    uint32_t lift; /* bits: links with a bucket below empty */
    uint32_t slot[WEIR_DEPTH_MAX];
};

/* Takes back the charges of links 'from' and above. They are marked, because a
 * collect in between may have reported the charges. */
INLINE unsigned uncharge(struct weir_table *t, const struct chain *chain,
                         uint32_t from, uint64_t weight, unsigned kick)
{
    for (uint32_t i = from; i < chain->links; i++) {
        weir_fetch_sub(&weir_hot(t, chain->slot[i])->count, weight);
        weir_slot_mark(t, chain->slot[i]);
    }
    return OUTCOME_MOVED | kick;
}

/* From the root down, so that each link is checked when it and its parent
 * were charged, and the ref at the very end. */
INLINE unsigned charge(struct weir_table *t, const struct chain *chain,
                       struct weir_ref ref, uint64_t weight)
{
    unsigned outcome = 0;
    for (uint32_t i = chain->links; i-- > 0;) {
        if (WEIR_UNLIKELY(chain->lift >> i & 1))
            weir_slot_lift(t, chain->slot[i], chain->elapsed);
        outcome |= weir_slot_add(t, chain->slot[i], weight);
        if (WEIR_UNLIKELY(weir_link_has_moved(t, chain->slot, chain->links, i)))
            return uncharge(t, chain, i, weight, outcome);
    }
    return WEIR_LIKELY(weir_ref_is_live(t, ref))
               ? outcome
               : uncharge(t, chain, 0, weight, outcome);
}

/* The charge of a slot that ended its life was taken back. Apart, so that a
 * take needs no stack. */
__attribute__((noinline)) static unsigned mark_stale(struct weir_table *t,
                                                     uint32_t slot)
{
    weir_slot_mark(t, slot);
    return WEIR_OUTCOME_STALE_REF;
}

/* The end of a take that passes, of a link without a parent. */
INLINE unsigned charge_alone(struct weir_table *t, struct weir_ref ref,
                             uint64_t weight)
{
    struct hot *hot = weir_hot(t, ref.slot);
    uint64_t count = weir_fetch_add(&hot->count, weight) + weight;
    if (WEIR_UNLIKELY(!weir_ref_is_live(t, ref))) {
        weir_fetch_sub(&hot->count, weight);
        return mark_stale(t, ref.slot);
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
    struct chain chain;
    chain.elapsed = weir_elapsed(t, now);
    chain.slot[0] = ref.slot;
    uint32_t links = 1;
    struct hot *own = weir_hot(t, ref.slot);
    uint32_t slot = weir_parent(own);
    struct slot_read read;
    if (slot == WEIR_SLOT_NONE &&
        judge(own, chain.elapsed, weight, &read) == IDLE &&
        weir_slot_lift_read(own, &read))
        return charge_alone(t, ref, weight);
    while (slot != WEIR_SLOT_NONE && links < WEIR_DEPTH_MAX) {
        const struct hot *hot = weir_hot(t, slot);
        uint64_t up = weir_load_relaxed(&hot->up);
        weir_slot_prefetch_above(t, up);
        enum judged judged = judge(hot, chain.elapsed, weight, &read);
        if (WEIR_UNLIKELY(judged == OVER))
            return refuse(t, stripe, ref, slot, weight);
        if (WEIR_UNLIKELY(judged == HARD))
            return take_slowly(t, stripe, ref, weight, NULL, now);
        lift |= (uint32_t)(judged == IDLE) << links;
        chain.slot[links++] = slot;
        slot = (uint32_t)up;
    }
    chain.links = links;
    chain.lift = lift;
    unsigned outcome = charge(t, &chain, ref, weight);
    if (WEIR_LIKELY(!(outcome & OUTCOME_MOVED)))
        return outcome;
    return take_slowly(t, stripe, ref, weight, NULL, now) |
           (outcome & ~OUTCOME_MOVED);
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
    weir_slot_prefetch_above(t, up);
    struct slot_read read;
    enum judged judged = judge(hot, weir_elapsed(t, now), weight, &read);
    if (WEIR_UNLIKELY(judged == HARD))
        return take_slowly(t, stripe, ref, weight, reply, now);
    if (judged == OVER)
        return refuse(t, stripe, ref, ref.slot, weight);
    if (judged == IDLE || (uint32_t)up != WEIR_SLOT_NONE)
        return take_chain(t, stripe, ref, weight, judged == IDLE, now);
    return charge_alone(t, ref, weight);
}
