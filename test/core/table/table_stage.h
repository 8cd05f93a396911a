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

/* As the sync, which comes again when a call gave up. */
static inline void stage_await(const struct weir_table *t)
{
    while (weir_load(&t->writer) != 0)
        weir_pause();
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++)
        while (weir_load(&weir_bucket_state(t, slot)->lock) != 0)
            weir_pause();
}

static inline void stage_put(struct weir_table *t,
                             const struct weir_quota *quota, weir_instant now)
{
    while (weir_table_put(t, quota, now) == WEIR_ETIMEOUT || t->unruled) {
        stage_await(t);
        weir_slots_rule(t, now);
    }
}

static inline void stage_drop(struct weir_table *t, struct weir_text name,
                              weir_instant now)
{
    while (weir_table_drop(t, name, now) == WEIR_ETIMEOUT || t->unruled) {
        stage_await(t);
        weir_slots_rule(t, now);
    }
}

static inline void stage_lock(struct weir_table *t)
{
    while (!weir_table_try_lock(t))
        stage_await(t);
}

/* Frees all idle slots; the name "i_2" is given one. Returns its ref. */
static inline struct weir_ref stage_evict(struct weir_table *t,
                                          weir_instant now)
{
    struct weir_ref next = { 0 };
    stage_lock(t);
    weir_table_evict(t, t->slots, t->slots, now);
    weir_table_unlock(t);
    while (weir_table_resolve(t, WEIR_TEXT("i_2"), false, &next, now) ==
           WEIR_RESOLVED_CONTENDED)
        stage_await(t);
    return next;
}

#endif /* WEIR_TEST_TABLE_STAGE_H */
