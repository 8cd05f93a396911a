/* SPDX-License-Identifier: MIT
 * table/table_view.h - copies of what a table has: for the sync, for people and
 * for responses. */

#ifndef WEIR_TABLE_VIEW_H
#define WEIR_TABLE_VIEW_H

#include "core/table/table.h"

struct weir_concurrency_gate_view; /* concurrency/concurrency_gate.h */

/* A slot as the sync reads it. */
struct weir_slot_view {
    enum weir_slot_state state;
    enum weir_sharing sharing;
    enum weir_on_stale on_stale;
    uint32_t generation;
    uint64_t created; /* of the quota, or of the instance's template */
    uint64_t count;   /* units this table let through, modulo 2^64; kind
                       * concurrency: in flight now */
    uint64_t refused; /* units */
    int64_t fill;     /* scaled by 2^frac, not below 0 */
    uint64_t in;      /* (count << frac) + base: the bucket's 'in' sum */
    struct weir_bucket bucket;
    bool unlimited;
    uint32_t refs; /* children and pins */
    bool inflight; /* of kind concurrency */
};
void weir_table_view(struct weir_table *table, uint32_t slot,
                     struct weir_slot_view *out, weir_instant now);
/* The template of an instance: its slot, or WEIR_SLOT_NONE. */
uint32_t weir_table_template_of(const struct weir_table *table, uint32_t slot);

/* ---- Any thread ---- */

/* Requests by names without a quota, and by instances that found no room. */
uint64_t weir_table_unknown(const struct weir_table *table);
uint64_t weir_table_overflowed(const struct weir_table *table);
/* Requests that were decided without a lock that was taken for too long. */
uint64_t weir_table_contended(const struct weir_table *table);

/* The limit of that name's quota here. False: there is none, or it lets all
 * pass, or its bucket state is locked now. Any thread; as weir_policy(). */
bool weir_table_policy(struct weir_table *table, uint32_t stripe,
                       struct weir_text name, struct weir_policy *out);

/* Any thread: the state of the slot's limit; false: it isn't adaptive, or has
 * no gate slot. */
bool weir_table_adaptive(struct weir_table *table, uint32_t slot,
                         struct weir_concurrency_gate_view *out,
                         weir_instant now);
/* Whose limit that is. */
enum weir_gate_source {
    WEIR_GATE_OWN = 0, /* found by this table */
    WEIR_GATE_PART,    /* its part of the fleet's limit */
    WEIR_GATE_ALONE,   /* found by this table, since no root answers */
};
/* Any thread; of a slot that isn't adaptive: OWN. */
enum weir_gate_source weir_table_gate_source(const struct weir_table *table,
                                             uint32_t slot);
/* The next slot of a quota or instance that has a gate slot; 'cursor' begins at
 * 0. */
bool weir_table_adaptive_next(const struct weir_table *table, uint32_t *cursor,
                              uint32_t *out_slot);
/* Slots that have a gate slot, templates included; and those that wait for
 * one. */
uint32_t weir_table_adaptives(const struct weir_table *table,
                              uint32_t *out_wanting);

/* A slot's parameters and state in this process. */
struct weir_slot_details {
    enum weir_slot_state state; /* PLACEHOLDER or above */
    enum weir_sharing sharing;
    enum weir_mode mode;
    uint32_t generation;    /* of this life of the slot */
    uint32_t ruler_slot;    /* an instance's template; WEIR_SLOT_NONE: none, or
                             * no instance */
    bool inflight;          /* of kind concurrency */
    bool elsewhere;         /* fill, low and high don't decide, and are 0: a
                             * bucket state, a store or an adaptive limit
                             * does */
    enum weir_gate_source source; /* of an adaptive limit */
    double limit;           /* units a second, or at a time, of the whole quota;
                          * INFINITY: none; 0 where 'elsewhere' */
    double granted;         /* the part that this process may use: less than the
                             * limit if it is leased */
    double fill, low, high; /* units; high INFINITY: no limit */
    uint64_t count;         /* units let through in all lives; kind concurrency:
                             * 0 */
    uint64_t refused;       /* units, in all lives */
    size_t name_len, parent_len, ruler_len; /* of the texts below,
                                             * NUL-terminated; 0: none */
    char name[WEIR_NAME_MAX + 1];
    char parent[WEIR_NAME_MAX + 1]; /* of a template: the parent's pattern */
    char ruler[WEIR_NAME_MAX + 1];  /* of an instance: its template, if any */
};
/* Any thread, without a lock: how the slot of that name decides, for answers to
 * requests. Of 'out' it sets sharing, mode, inflight, elsewhere, source,
 * granted, fill, low and high. False: there is no such slot. */
bool weir_table_rule_view(struct weir_table *table, struct weir_text name,
                          struct weir_slot_details *out, uint32_t *out_slot,
                          weir_instant now);
/* False: the slot isn't live, or belongs to the shadow set. Takes the writer
 * lock, as that process, for the time of a copy, if it is free. */
bool weir_table_details(struct weir_table *table, uint32_t process,
                        uint32_t slot, struct weir_slot_details *out,
                        weir_instant now);

#endif /* WEIR_TABLE_VIEW_H */
