/* SPDX-License-Identifier: MIT
 * quota/table_walk.h - a decision on its way through a chain; for table*.c.
 *
 * table_take.c walks and charges, table_permit.c holds what is given back,
 * table_meter.c steps what isn't one word, table_reply.c says what came of it,
 * table_receipt.c does the same for chains that end in a store. */

#ifndef WEIR_TABLE_WALK_H
#define WEIR_TABLE_WALK_H

#include "quota/table_layout.h"

/* A decision's way up a chain. */
struct walk {
    uint64_t elapsed;
    uint64_t chance;
    uint32_t links;
    uint32_t lift;     /* bits: links whose bucket stands below empty */
    uint32_t skip;     /* bits: links not to be charged */
    uint32_t shadow;   /* bits: links that would have refused */
    uint32_t free;     /* bits: links that pass whatever their bucket holds */
    uint32_t meters;   /* bits: links that a meter decides */
    uint32_t away;     /* bits: links that a store decides */
    uint32_t quiet;    /* bits: of both, those in mode shadow */
    uint32_t gauges;   /* bits: links that count what is in flight */
    uint32_t adaptive; /* bits: of those, the ones that a sluice guards */
    uint32_t refuser;  /* index of a link, or WEIR_DEPTH_MAX */
    uint32_t stripe;   /* whose walk it is */
    enum set set;      /* whose chance it draws from */
    bool drawn;
    weir_instant now;
    uint32_t slot[WEIR_DEPTH_MAX];
};
/* What its meters said, where there are any. */
struct steps {
    uint32_t charged; /* bits: links to be given back, should it not be */
    uint8_t level;    /* the highest */
    uint8_t paid[WEIR_DEPTH_MAX]; /* each link's level */
    weir_duration wait;           /* the longest */
    uint32_t serial[WEIR_DEPTH_MAX];
};

/* More than a verdict: the chain changed while it was charged, nothing is
 * charged, all is to be asked again. */
#define OUTCOME_MOVED 0x80000000u

/* What is asked of a chain. */
struct weir_question {
    uint32_t stripe;
    struct weir_ref ref;
    struct weir_meter_ask ask;
    enum set set;
    bool whole; /* links that a store decides are left to somebody else */
    struct weir_hold *hold; /* an enter's; NULL: it is none */
    struct weir_turn *turn; /* of an enter of who waits; NULL: of a passer-by
                             * who doesn't */
};

/* ---- table_take.c ---- */
/* What the calls are made of. They charge, and count what a reserve refuses;
 * weir_walk_count() counts what a take did. Each returns a verdict, with
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
/* A take or peek, all of it. */
unsigned weir_walk_ask(struct weir_table *t, const struct weir_question *q,
                       struct weir_reply *reply, weir_instant now);
/* A handle's name may have no quota yet. */
void weir_placeholder_count(struct weir_table *t, uint32_t stripe,
                            uint32_t slot);
/* ---- table_permit.c ---- */
/* Holds the gauges of a walk that passed, all or none, and writes them to the
 * question's hold. Returns 0, or WEIR_OUTCOME_LIMITED and the walk's refuser:
 * somebody was faster. '*out_kick': 0, or WEIR_OUTCOME_KICK. */
unsigned weir_walk_hold(struct weir_table *t, struct walk *walk,
                        const struct weir_question *q, unsigned *out_kick);
/* Of an enter of who waits, refused: tells his turn by what. Whether nothing is
 * to be counted of it. */
bool weir_walk_tell_turn(const struct weir_table *t, const struct walk *walk,
                         const struct weir_question *q);
/* Of who holds nothing: whether an enter would find room in the sluice of the
 * walk. As weir_walk_hold(). */
unsigned weir_walk_see(struct weir_table *t, struct walk *walk,
                       const struct weir_question *q);
/* ---- table_meter.c ---- */
/* Any thread: one step at link 'i' of a walk. False: it has no meter now. */
bool weir_link_step(struct weir_table *t, const struct walk *walk, uint32_t i,
                    const struct weir_meter_ask *ask,
                    struct weir_meter_answer *out, uint32_t *out_serial);
/* Each meter of the walk is asked in turn, from the leaf up, until one
 * refuses: then the walk's refuser is that one and those before have it back.
 * Returns 0, WEIR_OUTCOME_LIMITED or OUTCOME_MOVED. */
unsigned weir_walk_step(struct weir_table *t, struct walk *walk,
                        const struct weir_meter_ask *ask, struct steps *steps);
/* Gives back what the steps charged. */
void weir_walk_step_back(struct weir_table *t, const struct walk *walk,
                         struct steps *steps, const struct weir_meter_ask *ask);
/* ---- table_reply.c ---- */
/* What is to be said of a walk that passed or was refused. */
void weir_walk_explain(struct weir_table *t, uint32_t stripe,
                       const struct walk *walk, uint64_t weight, bool passed,
                       struct weir_reply *reply);
void weir_reply_name(const struct weir_table *t, uint32_t slot,
                     struct weir_reply *reply);
/* It only counts: a fill that overflows is lifted as if it were idle. */
static inline bool weir_look_is_endless(const struct look *look)
{
    return look->high == WEIR_SCALED_MAX;
}
/* When nothing better is known: a root answers about every 20 ms; of what is
 * in flight nobody knows when it ends. */
#define STOP_RETRY (20 * WEIR_MILLISECOND)

#endif /* WEIR_TABLE_WALK_H */
