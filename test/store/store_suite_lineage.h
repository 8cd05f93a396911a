/* SPDX-License-Identifier: MIT
 * test/store/store_suite_lineage.h - the part of the suite about a store whose
 * history was replaced. */

#ifndef WEIR_STORE_SUITE_LINEAGE_H
#define WEIR_STORE_SUITE_LINEAGE_H

#include "store/store.h"

/* weir_store_look() for a reader without changes. */
int store_suite_identity(struct weir_store *store, struct weir_store_id *id,
                         uint64_t *epoch, uint64_t *floor,
                         struct weir_diag *diag);

/* Runs the tests on a new, empty store. */
void store_suite_lineage(struct weir_store *store);

#endif /* WEIR_STORE_SUITE_LINEAGE_H */
