/* SPDX-License-Identifier: MIT
 * table/table_walk.c - the walk: the full way of a request through its chain.
 *
 * All links judge, from the leaf up, then all commit. Between the two, other
 * threads may commit as well: k racing takes can exceed 'high' by (k - 1)
 * weights. That is part of the stated bound, and the price of a take that never
 * loops on a word that other threads write.
 *
 * The commits go by kind, in the order of what an undo costs. In-flight
 * counters come first, from the root down: their undo is exact. Bucket states
 * are next, all locked, from the leaf up; an undo of theirs can't always be
 * exact. Counts are last, from the root down, so that each link is checked when
 * it and its parent were charged, and the ref at the very end; no root sees the
 * count of a request that a state refuses. Then the states are unlocked. */

#include "core/table/table_stripe_internal.h"
#include "core/table/table_switch_internal.h"
#include "core/table/table_traits.h"
#include "core/table/table_walk_internal.h"

static bool charges_whole(const struct weir_algorithm_ask *ask)
{
    return ask->op == WEIR_ALGORITHM_TAKE || ask->op == WEIR_ALGORITHM_RESERVE;
}

static bool judges(const struct weir_algorithm_ask *ask)
{
    return charges_whole(ask) || ask->op == WEIR_ALGORITHM_PEEK;
}

/* ---- Judge ---- */

static void begin_walk(const struct weir_table *t, struct walk *walk,
                       const struct weir_algorithm_ask *ask)
{
    walk->elapsed = weir_elapsed(t, walk->now);
    walk->links = walk->lift = walk->skip = walk->free = walk->quiet = 0;
    walk->states = walk->locked = walk->away = walk->explained = 0;
    walk->inflights = walk->adaptive = 0;
    walk->drawn = walk->gated = walk->contended = walk->full = false;
    walk->counted = walk->stepped = walk->shadow = 0;
    walk->refuser = WEIR_DEPTH_MAX;
    walk->level = 0;
    walk->wait = 0;
    if (walk->record)
        *walk->record = (struct weir_permit_record){
            .weight = ask->weight,
            .process = (uint16_t)weir_process_of(t, walk->stripe),
            .klass = walk->record->klass,
        };
}

/* Notes the parts beside its bucket that decide link i. A link that is off
 * isn't charged, and in-flight counters change by enters and leaves alone. */
static void note_flags(struct walk *walk, uint32_t i, uint32_t flags,
                       const struct weir_algorithm_ask *ask)
{
    uint32_t bit = 1u << i;
    if (flags & (META_OFF | META_INFLIGHT))
        walk->skip |= bit;
    /* A reservation waits for its turn under `hold`. */
    if (WEIR_UNLIKELY(flags & META_PASS) ||
        (WEIR_UNLIKELY(flags & META_HOLD) && ask->op == WEIR_ALGORITHM_TAKE))
        walk->free |= bit;
    if (flags & META_SHADOW)
        walk->quiet |= bit;
    if (WEIR_LIKELY(
            !(flags & (META_BUCKET_STATE | META_AWAY | META_INFLIGHT))) ||
        (flags & META_OFF))
        return;
    walk->inflights |= flags & META_INFLIGHT ? bit : 0;
    walk->adaptive |= flags & META_ADAPTIVE ? bit : 0;
    walk->states |= flags & META_BUCKET_STATE ? bit : 0;
    walk->away |= flags & META_AWAY ? bit : 0;
}

/* Link i refuses. Returns WEIR_OUTCOME_LIMITED, or 0 in mode shadow. */
static unsigned note_refusal(struct walk *walk, uint32_t i)
{
    if (walk->quiet >> i & 1) {
        walk->shadow |= 1u << i;
        walk->skip |= 1u << i;
        return 0;
    }
    walk->refuser = i;
    return WEIR_OUTCOME_LIMITED;
}

/* A reservation is refused by the link that demands the longest wait; a charge
 * or refund is never refused. A state judges when it commits, and a store when
 * all else has. */
static unsigned judge_link(struct weir_table *t, struct walk *walk, uint32_t i,
                           const struct slot_read *read,
                           const struct weir_algorithm_ask *ask)
{
    if (!judges(ask))
        return 0;
    if (ask->op == WEIR_ALGORITHM_RESERVE) {
        weir_duration wait = weir_link_bucket_wait(t, walk, i, read, ask);
        if (wait > walk->wait) {
            walk->wait = wait;
            walk->refuser = i;
        }
        return 0;
    }
    if ((read->flags & (META_OFF | META_BUCKET_STATE | META_AWAY)) ||
        weir_link_bucket_judge(t, walk, i, read, ask))
        return 0;
    return note_refusal(walk, i);
}

/* Whether on_full decides, because the quota of a link may be one that found no
 * room: a handle, or another quota's parent, got its name a placeholder. That
 * has no parent, so it is the last link. If a parent's quota is lacking and
 * on_full is `pass`, the links below it decide, and walk->full is set. */
static bool goes_by_on_full(const struct weir_table *t, struct walk *walk,
                            const struct weir_algorithm_ask *ask)
{
    uint32_t last = walk->links - 1;
    if (!(walk->skip >> last & 1) || walk->set != LIVE || !judges(ask) ||
        weir_table_lacking(t) == 0 ||
        weir_load_acquire(&weir_cold(t, walk->slot[last])->state) !=
            WEIR_SLOT_PLACEHOLDER)
        return false;
    uint32_t process = weir_process_of(t, walk->stripe);
    /* Relaxed: the process itself has set it. */
    walk->full =
        last > 0 && (weir_load_relaxed(&t->passes_on_full) >> process & 1);
    return !walk->full;
}

/* Reads and judges the chain; the walk then describes the links up to the
 * refuser. Returns 0, WEIR_OUTCOME_LIMITED, _STALE_REF or _EXACT. */
static unsigned judge_links(struct weir_table *t, struct walk *walk,
                            const struct weir_algorithm_ask *ask)
{
    uint32_t slot = walk->ref.slot;
    unsigned outcome = 0;
    do {
        uint64_t up = weir_load_relaxed(&weir_hot(t, slot)->up);
        weir_slot_prefetch_above(t, up);
        struct slot_read read;
        weir_slot_read(t, slot, walk->elapsed, &read);
        uint32_t i = walk->links++;
        walk->slot[i] = slot;
        if (read.fill < 0)
            walk->lift |= 1u << i;
        note_flags(walk, i, read.flags, ask);
        outcome = judge_link(t, walk, i, &read, ask);
        slot = (uint32_t)up;
    } while (outcome == 0 && slot != WEIR_SLOT_NONE &&
             walk->links < WEIR_DEPTH_MAX);
    if (!weir_ref_is_live(t, walk->ref) ||
        (WEIR_UNLIKELY(walk->skip != 0) && goes_by_on_full(t, walk, ask)))
        return WEIR_OUTCOME_STALE_REF;
    if (WEIR_UNLIKELY(walk->away != 0) && !walk->whole)
        return WEIR_OUTCOME_EXACT;
    if (ask->op != WEIR_ALGORITHM_RESERVE)
        return outcome;
    if (walk->wait > ask->wait_max || walk->wait == WEIR_NEVER)
        return WEIR_OUTCOME_LIMITED;
    walk->refuser = WEIR_DEPTH_MAX;
    return 0;
}

/* ---- Commit ---- */

static unsigned commit_inflights(struct weir_table *t, struct walk *walk,
                                 const struct weir_algorithm_ask *ask)
{
    uint32_t links = walk->inflights & ~walk->shadow;
    unsigned outcome = 0;
    if (WEIR_LIKELY(links == 0) || !judges(ask))
        return 0;
    for (uint32_t i = walk->links; outcome == 0 && i-- > 0;) {
        if ((links >> i & 1) && weir_link_inflight_commit(t, walk, i, ask) != 0)
            outcome = note_refusal(walk, i);
    }
    return outcome;
}

/* Another thread has the state of link i. Returns 0: the link isn't charged. */
static unsigned decide_locked(const struct weir_table *t, struct walk *walk,
                              uint32_t i, const struct weir_algorithm_ask *ask)
{
    if (ask->when_locked == WEIR_LOCKED_RETURNS)
        return weir_bucket_state_is_overdue(t, walk->slot[i])
                   ? WEIR_OUTCOME_CONTENDED | WEIR_OUTCOME_OVERDUE
                   : WEIR_OUTCOME_CONTENDED;
    walk->states &= ~(1u << i);
    walk->contended = true;
    bool passes = ask->when_locked == WEIR_LOCKED_PASSES || !judges(ask) ||
                  (walk->quiet >> i & 1);
    return passes ? 0 : note_refusal(walk, i);
}

static void unlock_states(struct weir_table *t, struct walk *walk)
{
    for (uint32_t i = 0; walk->locked != 0 && i < walk->links; i++)
        if (walk->locked >> i & 1)
            weir_link_state_unlock(t, walk, i);
}

/* From the leaf up. A caller that has waited in vain says so in the lock, for
 * others that would wait. */
static unsigned lock_states(struct weir_table *t, struct walk *walk,
                            const struct weir_algorithm_ask *ask)
{
    uint32_t mark = ask->waited ? LOCK_OVERDUE : 0;
    if (ask->when_locked == WEIR_LOCKED_RETURNS)
        mark = LOCK_AWAITED;
    unsigned outcome = 0;
    for (uint32_t i = 0; outcome == 0 && i < walk->links; i++)
        if ((walk->states >> i & 1) && !weir_link_state_lock(t, walk, i, mark))
            outcome = decide_locked(t, walk, i, ask);
    return outcome;
}

/* The first link with a state that would refuse; WEIR_DEPTH_MAX: none, or it
 * needn't be known. A charge can't always be undone exactly (for example if a
 * bucket at a lower level paid). So with several states all judge first, and
 * units are given back only after a race. */
static uint32_t find_refuser(struct weir_table *t, struct walk *walk,
                             const struct weir_algorithm_ask *ask)
{
    uint32_t enforced = walk->states & ~walk->quiet;
    bool several = (walk->states & (walk->states - 1)) != 0;
    for (uint32_t i = 0; several && charges_whole(ask) && i < walk->links; i++)
        if ((enforced >> i & 1) && !weir_link_state_judge(t, walk, i, ask))
            return i;
    return WEIR_DEPTH_MAX;
}

/* A state that would refuse is stepped all the same, and alone, so that it
 * counts if the quota counts refusals. */
static unsigned commit_states(struct weir_table *t, struct walk *walk,
                              const struct weir_algorithm_ask *ask)
{
    if (WEIR_LIKELY(walk->states == 0))
        return 0;
    unsigned locked = lock_states(t, walk, ask);
    if (locked != 0)
        return locked;
    uint32_t refuser = find_refuser(t, walk, ask);
    for (uint32_t i = 0; i < walk->links; i++) {
        if (!(walk->states >> i & 1) ||
            (refuser < WEIR_DEPTH_MAX && i != refuser))
            continue;
        unsigned outcome = weir_link_state_commit(t, walk, i, ask);
        if (outcome == OUTCOME_MOVED)
            return outcome;
        if ((outcome != 0 || i == refuser) && note_refusal(walk, i) != 0)
            return WEIR_OUTCOME_LIMITED;
    }
    return 0;
}

/* Requests that a stale quota lets pass leave no debt. Uses the flags that
 * judged: the table may have contact with a root again by now. */
static void forgive_links(struct weir_table *t, const struct walk *walk)
{
    for (uint32_t i = 0; i < walk->links; i++)
        if (walk->free & walk->counted & 1u << i)
            weir_slot_forgive(t, walk->slot[i], walk->units[i], walk->elapsed);
}

static unsigned commit_counts(struct weir_table *t, struct walk *walk,
                              const struct weir_algorithm_ask *ask)
{
    for (uint32_t i = walk->links; i-- > 0;)
        if (weir_link_bucket_commit(t, walk, i, ask) != 0)
            return OUTCOME_MOVED;
    if (!weir_ref_is_live(t, walk->ref))
        return OUTCOME_MOVED;
    if (WEIR_UNLIKELY(walk->free != 0) && charges_whole(ask))
        forgive_links(t, walk);
    return 0;
}

void weir_walk_undo(struct weir_table *t, struct walk *walk,
                    const struct weir_algorithm_ask *ask)
{
    for (uint32_t i = 0; i < walk->links; i++)
        if (walk->counted >> i & 1)
            weir_link_bucket_undo(t, walk, i);
    for (uint32_t i = 0; i < walk->links; i++)
        if (walk->stepped >> i & 1)
            weir_link_state_undo(t, walk, i, ask);
    if (walk->record)
        walk->kick |= weir_table_leave(t, walk->record);
}

static unsigned commit_links(struct weir_table *t, struct walk *walk,
                             const struct weir_algorithm_ask *ask)
{
    unsigned outcome = commit_inflights(t, walk, ask);
    if (outcome == 0)
        outcome = commit_states(t, walk, ask);
    if (outcome == 0 && ask->op != WEIR_ALGORITHM_PEEK)
        outcome = commit_counts(t, walk, ask);
    if (outcome != 0)
        weir_walk_undo(t, walk, ask);
    if (walk->explains && (outcome == 0 || outcome == WEIR_OUTCOME_LIMITED))
        weir_link_states_explain(t, walk, ask);
    unlock_states(t, walk);
    return outcome;
}

/* ---- The verdict ---- */

/* Counts a take's or reservation's refusal, and a take's refusals by links in
 * mode shadow; a request by a name without a quota as unknown. A caller that
 * waits is counted when its wait ends. */
static void count_refusals(struct weir_table *t, const struct walk *walk,
                           const struct weir_algorithm_ask *ask, bool limited)
{
    if (!walk->whole && (walk->skip & 1))
        weir_placeholder_count(t, walk->stripe, walk->slot[0]);
    if (limited && walk->turn && weir_link_inflight_note_turn(t, walk))
        return;
    if (WEIR_UNLIKELY(walk->full))
        weir_table_count_overflow(t, walk->stripe);
    if (ask->op == WEIR_ALGORITHM_TAKE && walk->shadow != 0)
        weir_stripe_refuse_links(t, walk->stripe, walk->slot, walk->shadow,
                                 ask->weight);
    if (limited)
        weir_stripe_refuse_links(t, walk->stripe, walk->slot,
                                 1u | 1u << walk->refuser, ask->weight);
}

unsigned weir_walk_run(struct weir_table *t, struct walk *walk,
                       const struct weir_algorithm_ask *ask)
{
    unsigned outcome;
    do {
        begin_walk(t, walk, ask);
        outcome = judge_links(t, walk, ask);
        if (outcome == 0)
            outcome = commit_links(t, walk, ask);
    } while (outcome == OUTCOME_MOVED);
    bool limited = outcome & WEIR_OUTCOME_LIMITED;
    if (outcome & WEIR_OUTCOME_UNDECIDED)
        return outcome | walk->kick;
    weir_audit(limited == (walk->refuser < walk->links));
    if (charges_whole(ask))
        count_refusals(t, walk, ask, limited);
    /* A refused caller that waits is counted when its wait ends. */
    if (WEIR_UNLIKELY(walk->contended) && walk->set == LIVE &&
        !(limited && walk->turn))
        weir_table_count_contended(t, walk->stripe);
    return outcome | walk->kick;
}

/* ---- Explain ----
 * The links are read once more, bucket states before they are unlocked: only
 * callers that want a reply pay for it. With other threads at work, what it
 * says of other links may therefore be of a moment later than the verdict. */

weir_duration weir_table_jitter(struct weir_table *t, uint32_t stripe,
                                weir_duration wait)
{
    if (wait == 0 || wait > WEIR_NEVER / 2)
        return wait;
    return wait + (weir_duration)(((weir_u128)(wait / 4 + 1) *
                                   weir_stripe_draw(t, stripe, LIVE)) >>
                                  64);
}

/* False: the link limits nothing, or nothing is known of it: another thread had
 * its state, or an edit has just given it one. */
static bool explain_link(struct weir_table *t, struct walk *walk, uint32_t i,
                         const struct weir_algorithm_ask *ask,
                         struct weir_algorithm_answer *out)
{
    struct slot_read read;
    weir_slot_read(t, walk->slot[i], walk->elapsed, &read);
    if (i != walk->refuser &&
        (read.flags & (META_OFF | META_SHADOW | META_PASS | META_AWAY)))
        return false;
    if (walk->explained >> i & 1) {
        *out = walk->answer[i];
        return true;
    }
    if (read.flags & META_BUCKET_STATE) {
        *out = (struct weir_algorithm_answer){ .retry_after = LOCKED_RETRY };
        return i == walk->refuser;
    }
    weir_link_bucket_explain(t, walk, i, &read, ask, out);
    if (read.flags & META_ADAPTIVE)
        weir_link_inflight_explain(t, walk, i, ask, out);
    return true;
}

/* The link that a reply is about: the refuser, or the one nearest to its limit.
 * False: no link limits. */
static bool find_nearest(struct weir_table *t, struct walk *walk,
                         const struct weir_algorithm_ask *ask, bool passed,
                         uint32_t *out_link, struct weir_algorithm_answer *out)
{
    bool found = false;
    for (uint32_t i = 0; i < walk->links; i++) {
        struct weir_algorithm_answer answer;
        if ((!passed && i != walk->refuser) ||
            !explain_link(t, walk, i, ask, &answer) ||
            (found && answer.remaining >= out->remaining))
            continue;
        *out_link = i;
        *out = answer;
        found = true;
    }
    return found;
}

/* Whether a peek decided without a word of the roots: no fill has come of a
 * counted quota, or no grant of a leased one. */
static bool is_unheard(const struct weir_table *t, const struct walk *walk)
{
    if (!weir_load_relaxed(&t->reported))
        return false;
    for (uint32_t i = 0; i < walk->links; i++) {
        uint32_t slot = walk->slot[i];
        uint32_t flags = weir_load_relaxed(&weir_hot(t, slot)->meta);
        if (flags & META_OFF)
            continue;
        enum weir_sharing sharing = weir_sharing_of(weir_cold(t, slot));
        if ((sharing == WEIR_COUNTED && !weir_bit_of(t, BITS_HEARD, slot)) ||
            (sharing == WEIR_LEASED &&
             weir_table_leasing(t, slot) == WEIR_LEASING_CLOSED))
            return true;
    }
    return false;
}

static void explain_verdict(struct weir_table *t, struct walk *walk,
                            const struct weir_algorithm_ask *ask, bool passed,
                            struct weir_reply *reply)
{
    uint32_t link;
    struct weir_algorithm_answer answer = { .remaining = UINT64_MAX };
    uint8_t state = weir_load_acquire(&weir_cold(t, walk->slot[0])->state);
    *reply = (struct weir_reply){
        .verdict = passed ? WEIR_PASSED : WEIR_LIMITED,
        .stale = weir_table_is_stale(t) ||
                 (ask->op == WEIR_ALGORITHM_PEEK && is_unheard(t, walk)),
        .contended = walk->contended,
        .full = walk->full,
        .shadow = walk->shadow != 0,
        .unknown = state == WEIR_SLOT_PLACEHOLDER,
        .level = passed ? walk->level : 0,
        .wait = ask->op == WEIR_ALGORITHM_RESERVE ? walk->wait : 0,
    };
    if (find_nearest(t, walk, ask, passed, &link, &answer)) {
        uint32_t slot = walk->slot[link];
        reply->fill = answer.used;
        reply->never = !passed && answer.never;
        reply->retry_after = passed ? 0 : answer.retry_after;
        weir_link_leased_explain(t, slot, reply);
        reply->quota_len = (uint8_t)weir_table_name(t, slot, reply->quota);
    }
    if (passed)
        reply->remaining = answer.remaining;
    else
        reply->retry_after =
            reply->never
                ? WEIR_NEVER
                : weir_table_jitter(t, walk->stripe, reply->retry_after);
}

/* ---- The calls ---- */

unsigned weir_walk_answer(struct weir_table *t, struct walk *walk,
                          const struct weir_algorithm_ask *ask,
                          struct weir_reply *reply)
{
    walk->explains = reply != NULL;
    unsigned outcome = weir_walk_run(t, walk, ask);
    if (reply && !(outcome & WEIR_OUTCOME_UNDECIDED))
        explain_verdict(t, walk, ask, !(outcome & WEIR_OUTCOME_LIMITED), reply);
    if (ask->op == WEIR_ALGORITHM_PEEK)
        return outcome;
    return outcome | weir_shadow_outcome(t);
}

unsigned weir_table_ask(struct weir_table *t, uint32_t stripe,
                        struct weir_ref ref,
                        const struct weir_algorithm_ask *ask,
                        struct weir_reply *reply, weir_instant now)
{
    struct walk walk;
    weir_walk_of(&walk, stripe, ref, now);
    return weir_walk_answer(t, &walk, ask, reply);
}
