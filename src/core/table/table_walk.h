/* SPDX-License-Identifier: MIT
 * table/table_walk.h - a decision on its way through a chain; for table*.c.
 *
 * table_take.c walks and charges, table_permit.c counts units in flight,
 * table_bucket_state.c steps bucket states of several words, table_reply.c
 * explains the result, table_charge_record.c does the same for chains with a
 * store. */

#ifndef WEIR_TABLE_WALK_H
#define WEIR_TABLE_WALK_H

#include "core/table/table_layout.h"

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
struct weir_question {
    uint32_t stripe;
    struct weir_ref ref;
    struct weir_algorithm_ask ask;
    enum set set;
    bool whole; /* skip links that a store decides: the caller asks it */
    struct weir_permit_record *record; /* of an enter; NULL: not an enter */
    struct weir_turn *turn; /* an enter of a caller that waits; NULL: it doesn't
                             * wait */
};

/* ---- table_take.c ---- */
/* The parts of the calls. They charge, and count a reserve's refusal;
 * weir_walk_count() counts a take's. Each returns a verdict, with
 * WEIR_OUTCOME_KICK, or _STALE_REF or _EXACT alone: nothing was charged. */
unsigned weir_walk_decide(struct weir_table *t, const struct weir_question *q,
                          struct walk *walk, struct steps *steps,
                          weir_instant now);
unsigned weir_walk_move(struct weir_table *t, const struct weir_question *q,
                        struct walk *walk, struct steps *steps,
                        weir_instant now);
unsigned weir_walk_reserve(struct weir_table *t, const struct weir_question *q,
                           struct walk *walk, struct steps *steps,
                           weir_instant now);
void weir_walk_count(struct weir_table *t, uint32_t stripe,
                     const struct walk *walk, uint64_t weight,
                     unsigned outcome);
/* A whole take or peek. */
unsigned weir_walk_ask(struct weir_table *t, const struct weir_question *q,
                       struct weir_reply *reply, weir_instant now);
/* Counts the request as unknown if the slot is a placeholder. */
void weir_placeholder_count(struct weir_table *t, uint32_t stripe,
                            uint32_t slot);
/* ---- table_permit.c ---- */
/* Puts the weight in flight at the in-flight counters of a walk that passed,
 * and writes those that accepted to q->hold. Returns 0, or WEIR_OUTCOME_LIMITED
 * and the walk's refuser: another enter was faster. '*out_kick': 0, or
 * WEIR_OUTCOME_KICK. */
unsigned weir_walk_enter(struct weir_table *t, struct walk *walk,
                         const struct weir_question *q, unsigned *out_kick);
/* For a refused enter of a caller that waits: writes the refusing slot to its
 * turn. Returns whether the refusal must not be counted. */
bool weir_walk_tell_turn(const struct weir_table *t, const struct walk *walk,
                         const struct weir_question *q);
/* For a request that puts nothing in flight: whether an enter would find room
 * in the walk's concurrency gate. Returns as weir_walk_enter(). */
unsigned weir_walk_see(struct weir_table *t, struct walk *walk,
                       const struct weir_question *q);
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
/* ---- table_reply.c ---- */
/* Fills the reply about a walk that passed or was refused. */
void weir_walk_explain(struct weir_table *t, uint32_t stripe,
                       const struct walk *walk, uint64_t weight, bool passed,
                       struct weir_reply *reply);
void weir_reply_name(const struct weir_table *t, uint32_t slot,
                     struct weir_reply *reply);
/* The bucket only counts: a fill that overflows is lifted as if it were
 * idle. */
static inline bool weir_slot_read_is_endless(const struct look *look)
{
    return look->high == WEIR_SCALED_MAX;
}
/* The retry time if no better one is known: a root answers about every 20 ms,
 * and it is unknown when units in flight end. */
#define STOP_RETRY (20 * WEIR_MILLISECOND)

#endif /* WEIR_TABLE_WALK_H */
