/* SPDX-License-Identifier: MIT
 * table/link_state.c - a link that a bucket state decides, in a walk.
 *
 * A step judges and charges at once, so states are stepped when all other links
 * of the chain have judged. The walk locks all states of the chain before the
 * first step, and releases them when the request is charged or refused. So a
 * refusal by one of them, or a chain that has changed meanwhile, is undone
 * under locks that the walk has already: an undo needs none. A walk that
 * doesn't get one of the locks releases the others, and nothing has happened.
 *
 * Rejected: one lock at a time. A walk that had stepped a state then had to
 * wait for its lock again to give the units back; in between, they made other
 * requests fail. */

#include "core/table/table_walk_internal.h"

#include <string.h>

enum how { TRY, COMMIT, UNDO, EXPLAIN };

/* A step of link i's bucket state, which is locked. TRY steps a copy of it, if
 * it is short; a long one only peeks, and all algorithms that can wait, which a
 * peek ignores, have short states. False, and no answer: an edit has removed
 * the state, or moved it to a store. */
static bool step_state(const struct weir_table *t, const struct walk *walk,
                       uint32_t i, enum how how, struct weir_algorithm_ask *ask,
                       struct weir_algorithm_answer *out)
{
    uint64_t words[WEIR_BUCKETS_MAX];
    uint32_t slot = walk->slot[i];
    const struct bucket_rule *of = weir_bucket_state_rule(t, slot);
    void *state = weir_bucket_state_state(t, slot);
    if (!state || of->store_len > 0)
        return false;
    if (how == TRY) {
        size_t bytes = weir_algorithm_size(&of->rule);
        if (bytes > sizeof(words))
            ask->op = WEIR_ALGORITHM_PEEK;
        else
            state = memcpy(words, state, bytes);
    }
    weir_bucket_state_step(t, of, state, ask, out, walk->now);
    return true;
}

bool weir_link_state_judge(struct weir_table *t, struct walk *walk, uint32_t i,
                           const struct weir_algorithm_ask *ask)
{
    struct weir_algorithm_ask step = *ask;
    struct weir_algorithm_answer answer;
    weir_audit(walk->locked >> i & 1);
    return !step_state(t, walk, i, TRY, &step, &answer) || answer.passed;
}

/* Adds a state that passed to the verdict for the chain. */
static void note_step(struct walk *walk, uint32_t i,
                      const struct weir_algorithm_answer *answer)
{
    walk->paid[i] = answer->level;
    if (walk->quiet >> i & 1)
        return;
    if (answer->level > walk->level)
        walk->level = answer->level;
    if (answer->wait > walk->wait)
        walk->wait = answer->wait;
}

unsigned weir_link_state_commit(struct weir_table *t, struct walk *walk,
                                uint32_t i,
                                const struct weir_algorithm_ask *ask)
{
    struct weir_algorithm_ask step = *ask;
    struct weir_algorithm_answer answer;
    weir_audit((walk->locked & ~walk->stepped) >> i & 1);
    walk->serial[i] = weir_bucket_state_serial(t, walk->slot[i]);
    if (!step_state(t, walk, i, COMMIT, &step, &answer))
        return OUTCOME_MOVED;
    if (!answer.passed && ask->op != WEIR_ALGORITHM_CHARGE &&
        ask->op != WEIR_ALGORITHM_REFUND)
        return WEIR_OUTCOME_LIMITED;
    if (ask->op != WEIR_ALGORITHM_PEEK)
        walk->stepped |= 1u << i;
    note_step(walk, i, &answer);
    return 0;
}

void weir_link_state_undo(struct weir_table *t, struct walk *walk, uint32_t i,
                          const struct weir_algorithm_ask *ask)
{
    struct weir_algorithm_answer answer;
    bool refunded = ask->op == WEIR_ALGORITHM_REFUND;
    struct weir_algorithm_ask step = {
        .op = refunded ? WEIR_ALGORITHM_CHARGE : WEIR_ALGORITHM_REFUND,
        .weight = ask->weight,
        .level = walk->paid[i],
    };
    weir_assert(walk->stepped >> i & 1);
    (void)step_state(t, walk, i, UNDO, &step, &answer);
    walk->stepped &= ~(1u << i);
}

static void explain_state(struct weir_table *t, struct walk *walk, uint32_t i,
                          const struct weir_algorithm_ask *ask)
{
    struct weir_algorithm_ask step = { .op = WEIR_ALGORITHM_PEEK };
    struct weir_algorithm_answer *answer = &walk->answer[i];
    weir_audit(walk->locked >> i & 1);
    if (i == walk->refuser)
        step.weight = ask->weight;
    if (!step_state(t, walk, i, EXPLAIN, &step, answer))
        return;
    /* A refused caller shouldn't ask again at once. */
    if (answer->passed)
        answer->retry_after = 1;
    walk->explained |= 1u << i;
}

/* Later another thread may have their locks, or the units. */
void weir_link_states_explain(struct weir_table *t, struct walk *walk,
                              const struct weir_algorithm_ask *ask)
{
    for (uint32_t i = 0; i < walk->links; i++)
        if (walk->locked >> i & 1)
            explain_state(t, walk, i, ask);
}

void weir_link_state_give_back(struct weir_table *t, struct walk *walk,
                               uint32_t i, const struct weir_algorithm_ask *ask)
{
    if (!weir_link_state_lock(t, walk, i, 0))
        return;
    if (weir_bucket_state_serial(t, walk->slot[i]) == walk->serial[i])
        weir_link_state_undo(t, walk, i, ask);
    weir_link_state_unlock(t, walk, i);
}
