/* SPDX-License-Identifier: MIT
 * table/table_permit.h - units in flight, any thread. */

#ifndef WEIR_TABLE_PERMIT_H
#define WEIR_TABLE_PERMIT_H

#include "core/table/table.h"

/* Quotas of kind concurrency count units in flight, from an enter to its leave.
 * No call of table.h puts units in flight: it is decided as if its request were
 * over at once. A charge or refund skips such a quota. */

/* The permit record of an enter: everything needed to give the permit back. All
 * zero: none. */
struct weir_permit_record {
    uint64_t weight;
    weir_instant entered; /* if 'gate_slot' */
    uint16_t links;
    uint16_t process; /* the owner, in a table that processes share */
    uint32_t klass;   /* set by the caller of an enter: weir_class_number(), or
                       * 0 */
    uint32_t slot[WEIR_DEPTH_MAX];
    /* The concurrency gate that let it in too (table_gate.c). */
    uint32_t gate_slot; /* gate slot + 1; 0: none */
    uint32_t serial;    /* of the gate slot */
    uint32_t in_flight : 24, place : 7, counted : 1;
    uint16_t life, class_life;
};
/* As a take, and puts the weight in flight at the chain's quotas of kind
 * concurrency, all or none, for the class that 'out_record' names on entry (the
 * class stays). Enters never raise the units in flight, with those of other
 * processes, above such a quota's limit. With WEIR_OUTCOME_EXACT and _CONTENDED
 * nothing is put in flight: weir_table_begin() goes on. */
unsigned weir_table_enter(struct weir_table *table, uint32_t stripe,
                          struct weir_ref ref, uint64_t weight,
                          struct weir_permit_record *out_record,
                          struct weir_reply *reply, weir_instant now);
/* Gives the permit back, once, whether or not the quotas still exist; units
 * charged to other quotas of the chain stay. 'record' is empty then. It never
 * takes more than is in flight: leaving a copy of a permit can't make the
 * counter negative. Returns WEIR_OUTCOME_KICK, _NEXT, both or 0. Lock-free: a
 * loop repeats only when another thread made progress. */
unsigned weir_table_leave(struct weir_table *table,
                          struct weir_permit_record *record);
/* The same, with the outcome from which an adaptive quota learns. */
unsigned weir_table_leave_as(struct weir_table *table,
                             struct weir_permit_record *record,
                             enum weir_permit_outcome outcome,
                             weir_instant now);
/* Callers that wait to enter. The table doesn't store the waiters, but it knows
 * at which slots they wait, so that no caller overtakes them. A caller that
 * doesn't wait finds a slot shut if a caller of the same lane waits there
 * (algorithm/wait_queue.h; each class of an adaptive quota has a lane). If only
 * other lanes wait, it is let in only within the guaranteed part of its
 * class. */
enum weir_turn_kind {
    WEIR_TURN_PASSING = 1, /* doesn't wait yet: as a plain enter */
    WEIR_TURN_ALONE,       /* waits, but in no queue: as a plain enter */
    WEIR_TURN_SURE,        /* waits behind another lane */
    WEIR_TURN_FIRST,       /* is next where it waits; at slots in 'shut' as
                            * PASSING */
};
struct weir_turn {
    enum weir_turn_kind kind;
    uint8_t when_locked; /* as weir_algorithm_ask.when_locked … */
    bool waited;         /* … and .waited */
    uint32_t stripe;
    uint32_t shut_count;
    uint32_t shut[WEIR_DEPTH_MAX]; /* slots where others are before it */
    uint32_t refuser; /* out, if refused: the refusing slot, of kind
                       * concurrency; WEIR_SLOT_NONE: none */
    uint32_t lane;    /* out: the caller's lane there */
    uint32_t other;   /* out: the refusing slot of another kind */
};
/* weir_table_enter() for a caller that waits, or will wait if this is refused.
 * A refusal isn't counted, except by a leased quota with WEIR_TURN_ALONE: the
 * lease manager must learn the wants. */
unsigned weir_table_enter_turn(struct weir_table *table, struct weir_ref ref,
                               uint64_t weight,
                               struct weir_permit_record *out_record,
                               struct weir_turn *turn, struct weir_reply *reply,
                               weir_instant now);
/* Sets the lanes of the slot in which callers wait, and how many units they
 * want. Call it before the waiter tries to enter, so that no leave is missed.
 * One thread at a time per slot. */
void weir_table_set_line(struct weir_table *table, uint32_t slot,
                         uint32_t lanes, uint64_t units);
/* Whether a caller waits there. */
bool weir_table_is_awaited(const struct weir_table *table, uint32_t slot);
/* The order of the slot's wait queue and its maximum length, from its quota. */
void weir_table_queue(const struct weir_table *table, uint32_t slot,
                      enum weir_wait_queue_order *out_order, uint32_t *out_max);
/* The instant at which to check a slot with waiters again even without a leave;
 * WEIR_NEVER: a leave or the sync wakes them. */
weir_instant weir_table_line_due(const struct weir_table *table, uint32_t slot,
                                 weir_instant now);
/* The slots of the chain that count units in flight, at most WEIR_DEPTH_MAX.
 * Returns their number; 0 too if the slot's life is over. */
uint32_t weir_table_inflights(const struct weir_table *table,
                              struct weir_ref ref, uint32_t *out_slots);
/* Whether a slot is in the chain; it may have changed since. */
bool weir_table_has_link(const struct weir_table *table, struct weir_ref ref,
                         uint32_t slot);

/* Units in flight by the slot's name. */
uint64_t weir_table_in_flight(const struct weir_table *table, uint32_t slot);
/* This process is a fork: the units in flight are the parent's. No thread may
 * enter or leave meanwhile. */
void weir_table_forget_permits(struct weir_table *table);

#endif /* WEIR_TABLE_PERMIT_H */
