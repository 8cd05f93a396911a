/* SPDX-License-Identifier: MIT
 * table/link_exact.h - exact quotas, any thread. */

#ifndef WEIR_LINK_EXACT_H
#define WEIR_LINK_EXACT_H

#include "core/table/table.h"

/* A quota that is counted in a store can't be decided here alone. A take, an
 * enter or a call like them that finds such a link returns WEIR_OUTCOME_EXACT
 * and has charged nothing.
 * Its caller continues with:
 *
 *     weir_table_begin()   everything but those links, as the call would have
 *     weir_table_away()    the request to each store, from the leaf up
 *     weir_table_undo()    one of them refused: gives back exactly the units
 *                          that begin charged, if the quotas still live */
struct weir_charge_record {
    struct weir_ref ref;
    struct weir_algorithm_ask ask;
    uint32_t stripe;
    uint32_t links;
    uint32_t away;    /* bits: links that a store decides */
    uint32_t quiet;   /* bits: of those, the ones in mode shadow */
    uint32_t charged; /* bits: links with a charged count */
    uint32_t stepped; /* bits: links with a charged bucket state */
    uint32_t slot[WEIR_DEPTH_MAX];
    uint32_t generation[WEIR_DEPTH_MAX];
    uint32_t serial[WEIR_DEPTH_MAX]; /* of the bucket states */
    uint8_t paid[WEIR_DEPTH_MAX];    /* the level of each that paid */
    /* borrowed; an enter's permit record; NULL: not an enter. Set by the
     * caller */
    struct weir_permit_record *record;
};
/* 'ask' is the call that it stands for, with a weight of at most
 * WEIR_WEIGHT_MAX; an enter is a take with a permit record. 'reply' may be
 * NULL. The rest of the charge record is written with a verdict. */
unsigned weir_table_begin(struct weir_table *table, uint32_t stripe,
                          struct weir_ref ref,
                          const struct weir_algorithm_ask *ask,
                          struct weir_charge_record *charge_record,
                          struct weir_reply *reply, weir_instant now);
/* Returns bits: WEIR_OUTCOME_KICK, _NEXT, _WAKE. Units of a bucket state that
 * is locked stay charged. */
unsigned weir_table_undo(struct weir_table *table,
                         const struct weir_charge_record *charge_record,
                         weir_instant now);

/* The request to a store for a link. */
struct weir_away {
    struct weir_algorithm_rule rule;
    weir_duration deadline;
    enum weir_on_stale on_stale;
    uint16_t store_len;
    uint8_t name_len;
    char store[WEIR_STORE_MAX + 1];
    char name[WEIR_NAME_MAX + 1];
};
/* WEIR_ENOENT: the quota no longer exists, or isn't exact. WEIR_ETIMEOUT: its
 * bucket state is locked: wait, and call again, unless it is overdue.
 * WEIR_OUTCOME_WAKE is added to '*out_wake', if it is so. */
int weir_table_away(struct weir_table *table,
                    const struct weir_charge_record *charge_record,
                    uint32_t link, struct weir_away *out, unsigned *out_wake);
/* The same for a slot in a permit record. */
int weir_table_away_record(struct weir_table *table, uint32_t stripe,
                           uint32_t slot, struct weir_away *out,
                           unsigned *out_wake);
/* Decides in place of the store, for a quota with on_stale=share: 'limiters'
 * processes do so, each with its part of the limit. Returns as above. */
int weir_table_step_shared(struct weir_table *table,
                           const struct weir_charge_record *charge_record,
                           uint32_t link, uint32_t limiters,
                           const struct weir_algorithm_ask *ask,
                           struct weir_algorithm_answer *out,
                           unsigned *out_wake, weir_instant now);
/* Whether a caller has waited in vain for the link's bucket state; says so. */
bool weir_table_away_is_overdue(const struct weir_table *table,
                                const struct weir_charge_record *charge_record,
                                uint32_t link);
void weir_table_away_set_overdue(struct weir_table *table,
                                 const struct weir_charge_record *charge_record,
                                 uint32_t link);
/* A store refused: counts the refusal for the requested quota and for the link.
 * The count of a link in mode shadow is given back, and no undo gives it back
 * again. */
void weir_table_count_refused(struct weir_table *table, uint32_t stripe,
                              struct weir_charge_record *charge_record,
                              uint32_t link);
/* Divides the rule by 'limiters' (> 0); at least one unit of each quantity and
 * burst stays. */
void weir_algorithm_rule_share(struct weir_algorithm_rule *rule,
                               uint32_t limiters);

#endif /* WEIR_LINK_EXACT_H */
