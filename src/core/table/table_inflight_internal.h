/* SPDX-License-Identifier: MIT
 * table/table_inflight_internal.h - units in flight, gates and wait queues. */

#ifndef WEIR_TABLE_INFLIGHT_INTERNAL_H
#define WEIR_TABLE_INFLIGHT_INTERNAL_H

#include "core/concurrency/concurrency_gate.h"
#include "core/table/table_layout.h"
#include "core/table/table_permit.h"

/* The fields of an adaptive quota that a concurrency gate is made from; a
 * template's are for its instances. */
struct adapting {
    uint64_t percentile, min, max, fleet_min, fleet_max;
    weir_duration target, permit_timeout;
    uint32_t controller; /* enum weir_controller_kind */
    uint32_t scope;      /* enum weir_scope */
    uint32_t classes_len;
    char classes[WEIR_CLASSES_TEXT_MAX];
};

/* A gate slot: a concurrency gate and the rule that it was made from. */
#define LATE_EDIT 1u
#define LATE_ANEW 2u /* for the slot's next life */
struct gate_slot {
    uint32_t slot;     /* owning slot + 1; 0: free; atomic */
    uint32_t serial;   /* moves when it gets an owner and when it is given up;
                      * even while it is free, or while it is emptied for its
                      * slot's next life; atomic */
    uint32_t made;     /* a gate was initialized in it */
    uint32_t rule;     /* the one in force: edits write the other */
    uint32_t late;     /* bits: edits that found the gate's controller busy */
    uint32_t of_fleet; /* the rule's scope is; atomic */
    uint32_t alone;    /* its limit, of a fleet, isn't given: no root answers;
                      * atomic */
    struct adapting rules[2];
    /* Under the writer lock: what each class, and the requests of none, has had
     * in flight, fading, when it was last looked at. */
    double needed[WEIR_CONCURRENCY_GATE_CLASSES_MAX + 1];
    weir_instant needed_at;
    /* numbers; 0: none; atomic */
    uint32_t klass[WEIR_CONCURRENCY_GATE_CLASSES_MAX];
    /* Untracked permits: units in flight by the slot's name since before it had
     * the gate slot. Bits 32 and above: the life of the gate that they leave
     * from; atomic. */
    uint64_t untracked;
    _Alignas(WEIR_CACHE_LINE) unsigned char gate[];
};
/* Instead of a gate slot's number: the slot wants one, and none was free. */
#define GATE_SLOT_WANTED UINT32_MAX

/* A slot's gate slot: its number + 1; 0: none; or GATE_SLOT_WANTED. Atomic. */
static inline uint32_t *weir_gate_slot_of(const struct weir_table *t,
                                          uint32_t slot)
{
    return (uint32_t *)weir_table_at(t, t->gate_slot_of_at) + slot;
}
static inline struct gate_slot *weir_gate_slot(const struct weir_table *t,
                                               uint32_t gate_slot)
{
    return weir_table_at(t, t->gate_slots_at +
                                (uint64_t)gate_slot * t->gate_slot_bytes);
}
/* Units of the slot that the process has in flight. */
static inline uint64_t *weir_in_flight_of(const struct weir_table *t,
                                          uint32_t process, uint32_t slot)
{
    return (uint64_t *)weir_table_at(t, t->in_flight_at) +
           (uint64_t)process * t->slots + slot;
}

/* ---- table_gate.c ---- */
/* Places the gate slots from 'at' (a multiple of a line) on; fills the header.
 * Returns their end. */
uint64_t weir_gate_slots_lay_out(struct weir_table *t, uint64_t at,
                                 uint32_t gate_slots);
/* Under the lock: the slot is ruled by 'quota', or as 'template' is. 'another':
 * by an unrelated quota. */
void weir_slot_adapt(struct weir_table *t, uint32_t slot,
                     const struct weir_quota *quota, bool another,
                     weir_instant now);
void weir_slot_adapt_as(struct weir_table *t, uint32_t slot, uint32_t template,
                        bool another, weir_instant now);
/* Under the lock: frees the slot's gate slot. */
void weir_slot_unadapt(struct weir_table *t, uint32_t slot);
/* Under the lock: whether it is an instance without a gate slot and one is
 * free. */
bool weir_slot_wants_gate_slot(const struct weir_table *t, uint32_t slot);
/* After a killed writer. */
void weir_gate_slots_mend(struct weir_table *t);
/* In a fork, with no enter or leave running: clears the units in flight, keeps
 * the limits. Threads that held a lock of a gate are in the other process. */
void weir_gate_slots_forget(struct weir_table *t);
/* Any thread: enters the slot's concurrency gate ('sure': only within the
 * guaranteed part of its class) and writes that to 'record'; false: the
 * gate refuses. True with 'record' unchanged: there is no gate. */
bool weir_slot_admit(struct weir_table *t, uint32_t slot,
                     struct weir_permit_record *record, bool sure,
                     weir_instant now);
/* The lane of the slot's wait queue for a class; see table_line.c. */
uint32_t weir_slot_lane(const struct weir_table *t, uint32_t slot,
                        uint32_t klass);
/* Leaves the gate that admit wrote to 'record'; false: the gate slot was
 * reused. */
bool weir_slot_dismiss(struct weir_table *t, struct weir_permit_record *record,
                       enum weir_sample_outcome outcome, weir_instant now);
/* A permit of 'weight' that did not enter the slot's gate leaves the slot. */
void weir_slot_depart(struct weir_table *t, uint32_t slot, uint64_t weight);
/* The slot's concurrency gate, for reading; NULL: none. */
struct weir_concurrency_gate *weir_slot_gate(const struct weir_table *t,
                                             uint32_t slot);
/* Whether the slot's limit is that of a fleet: any thread. */
bool weir_slot_is_of_fleet(const struct weir_table *t, uint32_t slot);
/* Under the lock, of such a slot: its part of the fleet's limit, INFINITY: it
 * finds a limit itself. False: the controller is busy. */
bool weir_slot_give(struct weir_table *t, uint32_t slot, double granted,
                    uint64_t cut, weir_instant now);
/* … whether its part is given, and how much it is. */
bool weir_slot_given(const struct weir_table *t, uint32_t slot,
                     double *out_granted);
/* Whether 'weight' units of no class would be let in now, judged without
 * entering. */
bool weir_slot_has_room(const struct weir_table *t, uint32_t slot,
                        uint64_t weight, weir_instant now);

/* ---- table_line.c; under the lock ---- */
/* The slot is ruled by 'quota', or as 'template' is: sets its wait queue. */
void weir_slot_queue(struct weir_table *t, uint32_t slot,
                     const struct weir_quota *quota);
void weir_slot_queue_as(struct weir_table *t, uint32_t slot, uint32_t template);

/* ---- link_inflight.c ---- */
/* Gives back the units that 'process' has in flight at the slot. */
void weir_inflight_reap(struct weir_table *t, uint32_t slot, uint32_t process);

#endif /* WEIR_TABLE_INFLIGHT_INTERNAL_H */
