/* SPDX-License-Identifier: MIT
 * test/core/table/table_stage.h - steps that explorations of a table share. In
 * a header, so that the explorer controls their accesses: included after
 * table_sources.h. */

#ifndef WEIR_TEST_TABLE_STAGE_H
#define WEIR_TEST_TABLE_STAGE_H

#include "table_maker.h"

/* The sync reads all counts. The first use of a slot is reported at once; later
 * uses aren't. */
static inline void stage_settle(struct weir_table *t)
{
    uint64_t bits = 0;
    weir_table_collect(t, &bits);
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++) {
        uint64_t count = weir_table_count(t, slot);
        weir_table_set_slack(t, slot, count + WEIR_COUNT_FAR,
                             count + WEIR_COUNT_FAR);
        weir_table_set_settled(t, slot, count);
    }
    while (weir_table_urgent(t))
        continue;
}

/* Frees all idle slots; the name "i_2" is given one. Returns its ref. */
static inline struct weir_ref stage_evict(struct weir_table *t,
                                          weir_instant now)
{
    struct weir_ref next = { 0 };
    weir_table_lock(t);
    weir_table_evict(t, t->slots, t->slots, now);
    weir_table_unlock(t);
    weir_table_resolve(t, WEIR_TEXT("i_2"), false, &next, now);
    return next;
}

#endif /* WEIR_TEST_TABLE_STAGE_H */
