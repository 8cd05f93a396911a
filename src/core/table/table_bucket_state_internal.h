/* SPDX-License-Identifier: MIT
 * table/table_bucket_state_internal.h - states of several words, and the
 * memory that they are allocated in. */

#ifndef WEIR_TABLE_BUCKET_STATE_INTERNAL_H
#define WEIR_TABLE_BUCKET_STATE_INTERNAL_H

#include "core/table/table_lock_internal.h"

/* Precedes the bucket state that stands in for a store. */
struct shared {
    uint64_t limiters; /* the rule is divided by it; 0: never used */
};

/* A rule in the area: of a quota or template, and of its instances. Only 'refs'
 * and 'utc_offset_s' change; an edit makes a new rule. */
struct bucket_rule {
    uint32_t refs;          /* bucket states that use it; under the writer
                             * lock */
    int32_t utc_offset_s;   /* of its zone; atomic */
    weir_duration deadline; /* of a store */
    uint16_t store_len;     /* 0: decided here */
    uint8_t zone_len;       /* 0: UTC, or a fixed offset */
    uint8_t on_stale;       /* of a store: enum weir_on_stale */
    struct weir_algorithm_rule rule;
    char text[]; /* the store, the zone */
};

/* ---- table_area.c; under the lock ---- */
/* A block of at least 'bytes', zeroed: its unit, or AREA_NONE. */
uint32_t weir_area_take(struct weir_table *t, size_t bytes);
void weir_area_give(struct weir_table *t, uint32_t unit, size_t bytes);
/* Units of a block for 'bytes'; number of free blocks of an order. */
uint32_t weir_area_units(size_t bytes);
uint32_t weir_area_count(const struct weir_table *t, unsigned order);
/* After a killed writer: all blocks are free except those kept by
 * weir_area_keep() between begin and end. */
void weir_area_mend_begin(struct weir_table *t);
void weir_area_keep(struct weir_table *t, uint32_t unit, size_t bytes);
void weir_area_mend_end(struct weir_table *t);

/* ---- table_bucket_state.c ---- */
/* Under the lock: plans the rule and bucket state that a quota needs in the
 * area. 'slot' is its present slot. */
struct bucket_state_plan {
    uint64_t where; /* 0: no bucket state */
    uint32_t flags; /* META_BUCKET_STATE or META_AWAY */
    bool same;      /* the slot has it already */
};
/* WEIR_EFULL: the area has no room, nothing has changed. */
int weir_bucket_state_plan(struct weir_table *t, uint32_t slot,
                           const struct weir_quota *quota,
                           struct bucket_state_plan *out);
/* The same for an instance of 'template'. */
int weir_bucket_state_plan_instance(struct weir_table *t, uint32_t slot,
                                    uint32_t template,
                                    struct bucket_state_plan *out);
/* Releases a plan that wasn't followed. */
void weir_bucket_state_unplan(struct weir_table *t,
                              const struct bucket_state_plan *plan);
/* Under the lock, before the slot is edited or freed: locks its bucket state,
 * so that no request has it, until weir_bucket_state_unseize(). False: a
 * request has it, and the slot can't be edited now. */
bool weir_bucket_state_seize(struct weir_table *t, uint32_t slot);
void weir_bucket_state_unseize(struct weir_table *t, uint32_t slot);
/* Whether no request has the state now: of a free slot, one that found the slot
 * in its last life may. */
bool weir_bucket_state_is_free(const struct weir_table *t, uint32_t slot);
/* The functions up to weir_bucket_state_is_idle() are for a seized state.
 * Follows a plan: the slot gets the plan's bucket state, with the units of its
 * previous bucket state or bucket, or ('empty') none. Call it before the bucket
 * is switched. */
void weir_bucket_state_follow(struct weir_table *t, uint32_t slot,
                              const struct bucket_state_plan *plan, bool empty,
                              weir_instant now);
/* Units in the slot's bucket state. */
uint64_t weir_bucket_state_units(struct weir_table *t, uint32_t slot,
                                 weir_instant now);
/* Removes the slot's bucket state. Returns its units, for a bucket that takes
 * its place. */
uint64_t weir_bucket_state_drop(struct weir_table *t, uint32_t slot,
                                weir_instant now);
/* Whether the slot has no bucket state or an empty one. */
bool weir_bucket_state_is_idle(const struct weir_table *t, uint32_t slot,
                               weir_instant now);
/* For an audit: area units of its state and of its rule, and the rule's
 * references. */
void weir_bucket_state_look(const struct weir_table *t, uint32_t slot,
                            uint32_t *out_own, uint32_t *out_rule,
                            uint32_t *out_refs);
/* After a killed writer, before slots are freed. */
void weir_bucket_states_mend(struct weir_table *t);
/* After a process has died: 'by' resets the bucket states that it left locked.
 * 'writer': it also held the writer lock, which the caller now holds: repairs
 * its unfinished changes to bucket states, while other threads go on with
 * theirs. */
void weir_bucket_states_reap(struct weir_table *t, uint32_t process,
                             uint32_t by, bool writer);

/* Any thread: locks a slot's bucket state; false: it is taken, and 'mark' is
 * set in the lock (table_lock_internal.h). */
static inline bool weir_bucket_state_lock(const struct weir_table *t,
                                          uint32_t slot, uint32_t stripe,
                                          uint32_t mark)
{
    return weir_lock_try(&weir_bucket_state(t, slot)->lock, stripe + 1, mark);
}
/* Whether a caller has waited for its lock in vain. */
static inline bool weir_bucket_state_is_overdue(const struct weir_table *t,
                                                uint32_t slot)
{
    return weir_load_relaxed(&weir_bucket_state(t, slot)->lock) & LOCK_OVERDUE;
}
/* While it is locked: its rule, or NULL; its state, or NULL; and a number that
 * tells two states of a slot apart. */
const struct bucket_rule *weir_bucket_state_rule(const struct weir_table *t,
                                                 uint32_t slot);
void *weir_bucket_state_state(const struct weir_table *t, uint32_t slot);
static inline uint32_t weir_bucket_state_serial(const struct weir_table *t,
                                                uint32_t slot)
{
    return weir_load_relaxed(&weir_bucket_state(t, slot)->serial);
}
/* Returns 0 or WEIR_OUTCOME_WAKE. */
static inline unsigned weir_bucket_state_unlock(struct weir_table *t,
                                                uint32_t slot)
{
    return weir_lock_release(t, &weir_bucket_state(t, slot)->lock)
               ? WEIR_OUTCOME_WAKE
               : 0;
}
/* A step of the state by its rule, with the zone's present offset. */
void weir_bucket_state_step(const struct weir_table *t,
                            const struct bucket_rule *of, void *state,
                            const struct weir_algorithm_ask *ask,
                            struct weir_algorithm_answer *out,
                            weir_instant now);
/* 'now' on the clock that a rule's windows use. */
weir_instant weir_bucket_state_now(const struct weir_table *t,
                                   const struct weir_algorithm_rule *rule,
                                   weir_instant now);

#endif /* WEIR_TABLE_BUCKET_STATE_INTERNAL_H */
