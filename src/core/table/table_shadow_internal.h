/* SPDX-License-Identifier: MIT
 * table/table_shadow_internal.h - the shadow set beside the live one. */

#ifndef WEIR_TABLE_SHADOW_INTERNAL_H
#define WEIR_TABLE_SHADOW_INTERNAL_H

#include "core/table/table_layout.h"

/* The outcome bit that is set if there is a shadow set. */
static inline unsigned weir_shadow_outcome(const struct weir_table *t)
{
    /* Relaxed: a request concurrent with the edit that adds or removes the set
     * counts as before or after it. */
    return weir_load_relaxed(&t->shadows) ? WEIR_OUTCOME_SHADOW : 0;
}

/* ---- table_shadow_set.c; under the lock, except the last ---- */
/* A quota or template of this name was added (1), removed (-1), or its template
 * changed (0). Does nothing for names of the live set. */
void weir_shadow_count(struct weir_table *t, struct weir_text name,
                       int difference);
/* After a killed writer. */
void weir_shadow_recount(struct weir_table *t);
/* The slot's new life has no shadow slot yet. */
void weir_shadow_forget(struct weir_table *t, uint32_t slot);
/* Slots were freed: names that found no room in the shadow set try again. Takes
 * the lock. */
void weir_shadow_freed(struct weir_table *t);

/* ---- table_shadow.c ---- */
/* The slot was pinned: marks its shadow slot too, if it has one. Under the
 * writer lock. */
void weir_shadow_meet(struct weir_table *t, struct weir_ref ref,
                      weir_instant now);

#endif /* WEIR_TABLE_SHADOW_INTERNAL_H */
