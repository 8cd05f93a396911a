/* SPDX-License-Identifier: MIT
 * store/edit_plan.h - filters an edit's changes and puts them in order. */

#ifndef WEIR_EDIT_PLAN_H
#define WEIR_EDIT_PLAN_H

#include "store/store.h"

struct weir_plan_item {
    const struct weir_change *change; /* borrowed */
    uint32_t rank;
    uint32_t index;
};

struct weir_plan {
    struct weir_plan_item *items;
    size_t count;
    size_t capacity;
    struct weir_change *removals; /* of WEIR_EDIT_REPLACE; owned */
    char *names;                  /* the removals' names */
};

/* Refuses changes that are wrong in any tree (a field, a name twice, a removal
 * of no quota, WEIR_EDIT_CREATE of an existing one), adds the removals of
 * WEIR_EDIT_REPLACE, drops changes that change nothing, and sorts: quotas from
 * the top of the future tree down, then removals from the bottom of the old
 * tree up. On failure there is nothing to free. */
int weir_plan_make(struct weir_plan *plan, struct weir_catalog *catalog,
                   const struct weir_edit *edit, struct weir_diag *diag);
void weir_plan_free(struct weir_plan *plan);
/* Returns WEIR_ENOMEM, with a sentence. */
int weir_plan_refuse_memory(struct weir_diag *diag);

#endif /* WEIR_EDIT_PLAN_H */
