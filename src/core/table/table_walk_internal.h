/* SPDX-License-Identifier: MIT
 * table/table_walk_internal.h - a decision on its way through a chain.
 *
 * table_take.c and table_charge.c walk and charge, link_inflight.c counts units
 * in flight, table_bucket_state.c steps bucket states of several words,
 * table_reply.c explains the result, link_exact.c does the same for
 * chains with a store. */

#ifndef WEIR_TABLE_WALK_INTERNAL_H
#define WEIR_TABLE_WALK_INTERNAL_H

#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_permit.h"
#include "core/table/table_read.h"
#include "core/table/table_shadow_internal.h"

/* A decision's way up a chain. */
struct walk {
    uint64_t elapsed;
    uint64_t chance;
    uint32_t links;
    uint32_t lift;          /* bits: links with a bucket below empty */
    uint32_t skip;          /* bits: links not to be charged */
    uint32_t shadow;        /* bits: links that would have refused */
    uint32_t free;          /* bits: links that pass whatever the fill */
    uint32_t bucket_states; /* bits: links with a bucket state */
    uint32_t away;          /* bits: links that a store decides */
    uint32_t quiet;         /* bits: of both, those in mode shadow */
    uint32_t inflights;     /* bits: links that count units in flight */
    uint32_t adaptive;      /* bits: of those, the ones with a gate */
    uint32_t refuser;       /* index of a link, or WEIR_DEPTH_MAX */
    uint32_t stripe;        /* the caller's stripe */
    enum set set;           /* the set that it draws from */
    bool drawn;
    weir_instant now;
    uint32_t slot[WEIR_DEPTH_MAX];
};
/* The results of its bucket states, if there are any. */
struct steps {
    uint32_t charged; /* bits: links charged, to undo if refused later */
    uint8_t level;    /* the highest */
    uint8_t paid[WEIR_DEPTH_MAX]; /* each link's level */
    weir_duration wait;           /* the longest */
    uint32_t serial[WEIR_DEPTH_MAX];
};

/* Not a verdict: the chain changed while it was charged. Nothing is charged;
 * repeat the whole walk. */
#define OUTCOME_MOVED 0x80000000u

/* A request to a chain. */
struct walk_request {
    uint32_t stripe;
    struct weir_ref ref;
    struct weir_algorithm_ask ask;
    enum set set;
    bool whole; /* skip links that a store decides: the caller requests it */
    struct weir_permit_record *record; /* of an enter; NULL: not an enter */
    struct weir_turn *turn; /* an enter of a caller that waits; NULL: it doesn't
                             * wait */
};

static inline uint64_t weir_weight_clipped(uint64_t weight)
{
    return weight < WEIR_WEIGHT_MAX ? weight : WEIR_WEIGHT_MAX;
}

static inline void weir_walk_begin(struct walk *walk,
                                   const struct weir_table *t, weir_instant now)
{
    walk->now = now;
    walk->elapsed = weir_elapsed(t, now);
    walk->links = walk->lift = walk->skip = walk->shadow = walk->free = 0;
    walk->bucket_states = walk->away = walk->quiet = walk->inflights = 0;
    walk->stripe = 0;
    walk->adaptive = 0;
    walk->set = LIVE;
    walk->drawn = false;
}

/* Notes the other deciders of a link. A link that is off isn't charged, and
 * in-flight counters change by enters and leaves alone. */
static inline void weir_walk_note_flags(struct walk *walk, uint32_t flags,
                                        uint32_t bit)
{
    if (flags & (META_OFF | META_INFLIGHT))
        walk->skip |= bit;
    if (WEIR_UNLIKELY(flags & (META_PASS | META_HOLD)))
        walk->free |= bit;
    if (WEIR_LIKELY(
            !(flags & (META_BUCKET_STATE | META_AWAY | META_INFLIGHT))) ||
        (flags & META_OFF))
        return;
    walk->inflights |= flags & META_INFLIGHT ? bit : 0;
    walk->adaptive |= flags & META_ADAPTIVE ? bit : 0;
    walk->bucket_states |= flags & META_BUCKET_STATE ? bit : 0;
    walk->away |= flags & META_AWAY ? bit : 0;
    walk->quiet |= flags & META_SHADOW ? bit : 0;
}

/* Corrects a wrong hint; if the CAS fails, the writer was faster. */
static inline void weir_slot_mend_hint(struct hot *hot, uint64_t up,
                                       uint32_t above)
{
    weir_cas(&hot->up, &up, weir_up_of((uint32_t)up, above));
}

/* Whether link i no longer leads to the link walked after it; call it when both
 * are charged. */
INLINE bool weir_walk_has_moved(struct weir_table *t, const struct walk *walk,
                                uint32_t i)
{
    if (i + 1 >= walk->links)
        return false;
    struct hot *hot = weir_hot(t, walk->slot[i]);
    uint32_t above = i + 2 < walk->links ? walk->slot[i + 2] : WEIR_SLOT_NONE;
    uint64_t up = weir_load(&hot->up);
    if (WEIR_LIKELY(up == weir_up_of(walk->slot[i + 1], above)))
        return false;
    if ((uint32_t)up != walk->slot[i + 1])
        return true;
    weir_slot_mend_hint(hot, up, above);
    return false;
}

/* ---- table_bucket_state.c ---- */
/* Any thread: one step at link 'i' of a walk. False: it has no bucket state
 * now. */
bool weir_link_step(struct weir_table *t, const struct walk *walk, uint32_t i,
                    const struct weir_algorithm_ask *ask,
                    struct weir_algorithm_answer *out, uint32_t *out_serial);
/* Steps each bucket state of the walk, from the leaf up, until one refuses:
 * that one becomes the walk's refuser, and those before it get their units
 * back. Returns 0, WEIR_OUTCOME_LIMITED or OUTCOME_MOVED. */
unsigned weir_walk_step(struct weir_table *t, struct walk *walk,
                        const struct weir_algorithm_ask *ask,
                        struct steps *steps);
/* Gives back the units that the steps charged. */
void weir_walk_step_back(struct weir_table *t, const struct walk *walk,
                         struct steps *steps,
                         const struct weir_algorithm_ask *ask);
/* Steps the bucket states of a walk that its buckets let pass. */
static inline unsigned weir_walk_step_states(struct weir_table *t,
                                             struct walk *walk,
                                             struct steps *steps,
                                             const struct walk_request *q)
{
    *steps = (struct steps){ .charged = 0 };
    if (WEIR_LIKELY(walk->bucket_states == 0))
        return 0;
    return weir_walk_step(t, walk, &q->ask, steps);
}

/* ---- link_inflight.c ---- */
/* Puts the weight in flight at one slot. False: the quota refuses. */
bool weir_link_enter(struct weir_table *t, uint32_t slot,
                     const struct look *look, struct weir_permit_record *record,
                     const struct weir_turn *turn, unsigned *out_kick,
                     weir_instant now);
/* Puts the weight in flight at the in-flight counters of a walk that passed,
 * and writes those that accepted to q->hold. Returns 0, or WEIR_OUTCOME_LIMITED
 * and the walk's refuser: another enter was faster. '*out_kick': 0, or
 * WEIR_OUTCOME_KICK. */
unsigned weir_walk_enter(struct weir_table *t, struct walk *walk,
                         const struct walk_request *q, unsigned *out_kick);
/* For a refused enter of a caller that waits: writes the refusing slot to its
 * turn. Returns whether the refusal must not be counted. */
bool weir_walk_note_turn(const struct weir_table *t, const struct walk *walk,
                         const struct walk_request *q);
/* For a request that puts nothing in flight: whether an enter would find room
 * in the walk's concurrency gate. Returns as weir_walk_enter(). */
unsigned weir_walk_check_gates(struct weir_table *t, struct walk *walk,
                               const struct walk_request *q);

/* ---- table_reply.c ---- */
/* Fills the reply about a walk that passed or was refused. */
void weir_walk_explain(struct weir_table *t, uint32_t stripe,
                       const struct walk *walk, uint64_t weight, bool passed,
                       struct weir_reply *reply);
void weir_reply_name(const struct weir_table *t, uint32_t slot,
                     struct weir_reply *reply);

/* ---- table_take.c, table_charge.c ---- */
/* The parts of the calls. They charge, and count a reserve's refusal;
 * weir_walk_count() counts a take's. Each returns a verdict, with
 * WEIR_OUTCOME_KICK, or _STALE_REF or _EXACT alone: nothing was charged. */
unsigned weir_walk_decide(struct weir_table *t, const struct walk_request *q,
                          struct walk *walk, struct steps *steps,
                          weir_instant now);
unsigned weir_walk_move(struct weir_table *t, const struct walk_request *q,
                        struct walk *walk, struct steps *steps,
                        weir_instant now);
unsigned weir_walk_reserve(struct weir_table *t, const struct walk_request *q,
                           struct walk *walk, struct steps *steps,
                           weir_instant now);
void weir_walk_count(struct weir_table *t, uint32_t stripe,
                     const struct walk *walk, uint64_t weight,
                     unsigned outcome);
/* A whole take or peek. */
unsigned weir_walk_take(struct weir_table *t, const struct walk_request *q,
                        struct weir_reply *reply, weir_instant now);
/* A take or reserve on a slot of the shadow set, as enforced there: draws from
 * that set's stream, explains nothing, counts no unknown name. */
unsigned weir_slot_take_shadow(struct weir_table *t, uint32_t stripe,
                               struct weir_ref ref, uint64_t weight,
                               weir_instant now);
unsigned weir_slot_reserve_shadow(struct weir_table *t, uint32_t stripe,
                                  struct weir_ref ref, uint64_t weight,
                                  weir_duration wait_max, weir_instant now);
/* Charges a walk that the bucket states let pass; undoes both if the chain
 * changed meanwhile. */
unsigned weir_walk_charge(struct weir_table *t, const struct walk *walk,
                          struct steps *steps, const struct walk_request *q);
/* The retry time if no better one is known: a root answers about every 20 ms,
 * and it is unknown when units in flight end. */
#define STOP_RETRY (20 * WEIR_MILLISECOND)

#endif /* WEIR_TABLE_WALK_INTERNAL_H */
