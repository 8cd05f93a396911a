/* SPDX-License-Identifier: MIT
 * store/edit_plan.h - an edit's changes, sifted and put in order. */

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
    char *names;                  /* theirs */
};

/* Refuses what is wrong with a change whatever the tree (its fields, a name
 * twice, a removal of nothing, WEIR_EDIT_CREATE of what exists), adds the
 * removals of WEIR_EDIT_REPLACE, leaves out what changes nothing, and sorts:
 * quotas from the top of the tree they will make, then removals from the
 * bottom of the one that was. On failure there is nothing to free. */
int weir_plan_make(struct weir_plan *plan, struct weir_catalog *catalog,
                   const struct weir_edit *edit, struct weir_diag *diag);
void weir_plan_free(struct weir_plan *plan);

#endif /* WEIR_EDIT_PLAN_H */
