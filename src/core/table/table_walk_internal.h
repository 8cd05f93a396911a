/* SPDX-License-Identifier: MIT
 * table/table_walk_internal.h - a decision on its way through a chain.
 *
 * table_take.c decides the common case by the hot lines alone. All else is one
 * walk (table_walk.c): each link judges the request, then each link commits it,
 * and if one refuses after all, or the chain changed meanwhile, what was
 * committed is undone. Each kind of link has a file with these functions:
 *
 *     kind          judge             commit            undo         explain
 *     link_bucket   by its fill       adds to 'count'   subtracts    yes
 *     link_inflight as a bucket       enters, or looks  leaves       yes
 *                                     at its gate
 *     link_state    when locked       steps the state   steps back   yes
 *     link_leased   as a bucket       still fits?       -            yes
 *     link_exact    passes: the store is asked last, by the caller
 *
 * Mode shadow is a flag of the link (walk.quiet): its refusal is noted, and the
 * request goes on. */

#ifndef WEIR_TABLE_WALK_INTERNAL_H
#define WEIR_TABLE_WALK_INTERNAL_H

#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_permit.h"
#include "core/table/table_read.h"
#include "core/table/table_shadow_internal.h"

/* The chain that a request walks. The request itself is a struct
 * weir_algorithm_ask, which no function of the walk changes. */
struct walk {
    /* The call, as weir_walk_of() made it. */
    struct weir_ref ref;
    uint32_t stripe; /* the caller's */
    enum set set;    /* the set that it draws from */
    bool whole;      /* links that a store decides pass: the caller of
                      * weir_table_begin() asks the store, and no caller asks
                      * one for the shadow set */
    struct weir_permit_record *record; /* of an enter; NULL: not an enter */
    struct weir_turn *turn; /* an enter of a caller that waits; NULL: it doesn't
                             * wait */
    weir_instant now;

    /* The links, from the leaf up. */
    uint64_t elapsed;
    uint32_t links;
    uint32_t slot[WEIR_DEPTH_MAX];
    uint32_t lift;      /* bits: links with a bucket below empty */
    uint32_t skip;      /* bits: links not to be charged */
    uint32_t free;      /* bits: links that pass whatever the fill */
    uint32_t quiet;     /* bits: links in mode shadow */
    uint32_t states;    /* bits: links with a bucket state to be stepped */
    uint32_t locked;    /* bits: of those, the ones that the walk has locked */
    uint32_t away;      /* bits: links that a store decides */
    uint32_t inflights; /* bits: links that count units in flight */
    uint32_t adaptive;  /* bits: of those, the ones with a gate */
    bool gated;         /* a gate was asked: a chain has one that adapts */
    bool drawn;
    uint64_t chance; /* if 'drawn': one for the whole chain */

    /* The charges that are committed, for an undo. */
    uint32_t counted;                /* bits: links with a charged count */
    uint32_t stepped;                /* bits: links with a charged state */
    uint64_t units[WEIR_DEPTH_MAX];  /* of each that is counted */
    uint32_t serial[WEIR_DEPTH_MAX]; /* of each state */
    uint8_t paid[WEIR_DEPTH_MAX];    /* the level of each state that paid */

    /* The verdict. */
    uint32_t refuser;   /* index of a link; WEIR_DEPTH_MAX: none */
    bool contended;     /* decided without a bucket state that was locked */
    bool full;          /* … without a parent whose quota may be lacking */
    uint32_t shadow;    /* bits: links that would have refused */
    uint8_t level;      /* the highest that paid */
    weir_duration wait; /* the longest that a link demands */
    unsigned kick; /* bits: WEIR_OUTCOME_KICK, _NEXT, _WAKE; of all tries */

    /* For a reply. */
    bool explains;      /* the states are explained before they are unlocked */
    uint32_t explained; /* bits: links with an answer below */
    struct weir_algorithm_answer answer[WEIR_DEPTH_MAX];
};

/* Not a verdict: the chain changed while it was charged. Nothing is charged;
 * repeat the whole walk. */
#define OUTCOME_MOVED 0x80000000u

/* The retry time if no better one is known: a root answers about every 20 ms,
 * and it is unknown when units in flight end. */
#define STOP_RETRY (20 * WEIR_MILLISECOND)
/* The same for a bucket state that another thread has locked. */
#define LOCKED_RETRY WEIR_MILLISECOND

/* Corrects a wrong hint; if the CAS fails, the writer was faster. */
static inline void weir_slot_mend_hint(struct hot *hot, uint64_t up,
                                       uint32_t above)
{
    weir_cas(&hot->up, &up, weir_up_of((uint32_t)up, above));
}

/* Whether link i of a chain no longer leads to the link walked after it; call
 * it when both are charged. */
INLINE bool weir_link_has_moved(struct weir_table *t, const uint32_t *slots,
                                uint32_t links, uint32_t i)
{
    if (i + 1 >= links)
        return false;
    struct hot *hot = weir_hot(t, slots[i]);
    uint32_t above = i + 2 < links ? slots[i + 2] : WEIR_SLOT_NONE;
    uint64_t up = weir_load(&hot->up);
    if (WEIR_LIKELY(up == weir_up_of(slots[i + 1], above)))
        return false;
    if ((uint32_t)up != slots[i + 1])
        return true;
    weir_slot_mend_hint(hot, up, above);
    return false;
}

static inline void weir_slot_prefetch_above(const struct weir_table *t,
                                            uint64_t up)
{
    uint32_t above = (uint32_t)(up >> 32);
    if (above != WEIR_SLOT_NONE)
        __builtin_prefetch(weir_hot(t, above), 1);
}

/* ---- table_walk.c ---- */
/* A walk for a call on 'ref'; the caller may then set 'set', 'whole', 'record'
 * and 'turn'. */
static inline void weir_walk_of(struct walk *walk, uint32_t stripe,
                                struct weir_ref ref, weir_instant now)
{
    walk->ref = ref;
    walk->stripe = stripe;
    walk->set = LIVE;
    walk->whole = false;
    walk->record = NULL;
    walk->turn = NULL;
    walk->explains = false;
    walk->now = now;
    walk->kick = 0;
}
/* Decides the request, charges it if it passes and isn't a peek, and counts
 * its refusals. Returns bits of weir_outcome; with _STALE_REF and _EXACT
 * nothing was charged. */
unsigned weir_walk_run(struct weir_table *t, struct walk *walk,
                       const struct weir_algorithm_ask *ask);
/* The same, as a call of the live set ends: fills the reply (may be NULL) about
 * the verdict, and adds WEIR_OUTCOME_SHADOW if the request isn't a peek. */
unsigned weir_walk_answer(struct weir_table *t, struct walk *walk,
                          const struct weir_algorithm_ask *ask,
                          struct weir_reply *reply);
/* Takes back what the walk committed. */
void weir_walk_undo(struct weir_table *t, struct walk *walk,
                    const struct weir_algorithm_ask *ask);

/* ---- The kinds; 'i' is the index of a link of the walk ---- */
/* A commit returns 0, WEIR_OUTCOME_LIMITED (the link refuses, and leaves
 * nothing to undo) or OUTCOME_MOVED. An explanation fills 'used' and
 * 'remaining', and for walk->refuser also 'never' and 'retry_after'. */

/* link_bucket.c */
bool weir_link_bucket_judge(struct weir_table *t, struct walk *walk, uint32_t i,
                            const struct slot_read *read,
                            const struct weir_algorithm_ask *ask);
/* The wait that the link demands of a reservation, or WEIR_NEVER. */
weir_duration weir_link_bucket_wait(const struct weir_table *t,
                                    const struct walk *walk, uint32_t i,
                                    const struct slot_read *read,
                                    const struct weir_algorithm_ask *ask);
unsigned weir_link_bucket_commit(struct weir_table *t, struct walk *walk,
                                 uint32_t i,
                                 const struct weir_algorithm_ask *ask);
void weir_link_bucket_undo(struct weir_table *t, struct walk *walk, uint32_t i);
void weir_link_bucket_explain(const struct weir_table *t,
                              const struct walk *walk, uint32_t i,
                              const struct slot_read *read,
                              const struct weir_algorithm_ask *ask,
                              struct weir_algorithm_answer *out);

/* link_state.c; from weir_link_state_lock() to weir_link_state_unlock(), except
 * weir_link_state_give_back() */
/* Locks the link's state. False: another thread has it, and 'mark' is set in
 * the lock. */
INLINE bool weir_link_state_lock(struct weir_table *t, struct walk *walk,
                                 uint32_t i, uint32_t mark)
{
    weir_audit(!(walk->locked >> i & 1));
    if (!weir_bucket_state_lock(t, walk->slot[i], walk->stripe, mark))
        return false;
    walk->locked |= 1u << i;
    return true;
}
INLINE void weir_link_state_unlock(struct weir_table *t, struct walk *walk,
                                   uint32_t i)
{
    weir_audit(walk->locked >> i & 1);
    walk->kick |= weir_bucket_state_unlock(t, walk->slot[i]);
    walk->locked &= ~(1u << i);
}
/* Whether its step would pass. */
bool weir_link_state_judge(struct weir_table *t, struct walk *walk, uint32_t i,
                           const struct weir_algorithm_ask *ask);
unsigned weir_link_state_commit(struct weir_table *t, struct walk *walk,
                                uint32_t i,
                                const struct weir_algorithm_ask *ask);
void weir_link_state_undo(struct weir_table *t, struct walk *walk, uint32_t i,
                          const struct weir_algorithm_ask *ask);
/* Writes walk->answer[] of all that are locked. */
void weir_link_states_explain(struct weir_table *t, struct walk *walk,
                              const struct weir_algorithm_ask *ask);
/* As an undo, long after the commit, if the slot still has that state. If it is
 * locked, its units stay charged. */
void weir_link_state_give_back(struct weir_table *t, struct walk *walk,
                               uint32_t i,
                               const struct weir_algorithm_ask *ask);

/* link_inflight.c */
/* An enter puts its weight in flight and writes the slot to the permit record.
 * Any other request only asks the link's gate whether an enter would find
 * room. */
unsigned weir_link_inflight_commit(struct weir_table *t, struct walk *walk,
                                   uint32_t i,
                                   const struct weir_algorithm_ask *ask);
/* The same for one slot; false: the quota refuses. '*out_kick': bits. */
bool weir_link_inflight_enter(struct weir_table *t, uint32_t slot,
                              const struct slot_read *read,
                              struct weir_permit_record *record,
                              const struct weir_turn *turn, unsigned *out_kick,
                              weir_instant now);
/* Adds what is known of its concurrency gate, if it has one. */
void weir_link_inflight_explain(const struct weir_table *t,
                                const struct walk *walk, uint32_t i,
                                const struct weir_algorithm_ask *ask,
                                struct weir_algorithm_answer *out);
/* For a refused enter of a caller that waits: writes the refusing slot to its
 * turn. Returns whether the refusal must not be counted. */
bool weir_link_inflight_note_turn(const struct weir_table *t,
                                  const struct walk *walk);

/* link_leased.c */
/* The end of an enter's commit. False: the units, just put in flight, don't fit
 * any more, as a lower grant has come since they were judged. True: they are
 * counted for the lease view, or the slot keeps to no grant. */
bool weir_link_leased_commit(struct weir_table *t, uint32_t slot,
                             uint64_t weight);
/* Whether a leave brought the units down to the limit: a lower grant waits for
 * that. */
bool weir_link_leased_fits_again(const struct weir_table *t, uint32_t slot,
                                 uint64_t before, uint64_t left);
/* Names the grant in a reply about the slot. */
void weir_link_leased_explain(const struct weir_table *t, uint32_t slot,
                              struct weir_reply *reply);

#endif /* WEIR_TABLE_WALK_INTERNAL_H */
