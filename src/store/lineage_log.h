/* SPDX-License-Identifier: MIT
 * store/lineage_log.h - compares a reader's lineage with a store's log. */

#ifndef WEIR_LINEAGE_LOG_H
#define WEIR_LINEAGE_LOG_H

#include "store/backend.h"
#include "store/lineage.h"

/* Both are called inside a transaction of 'backend'. */

/* Adds the changes up to 'epoch', by the log. */
int weir_lineage_read(struct weir_lineage *lineage,
                      struct weir_backend *backend, uint64_t epoch,
                      struct weir_diag *diag);
/* Whether the store, at 'epoch', has the lineage's newest change; one indexed
 * row is read. 'out_loss' is set for WEIR_HISTORY_LOST: by bisection, some ten
 * rows more. */
int weir_lineage_check(const struct weir_lineage *lineage,
                       struct weir_backend *backend, uint64_t epoch,
                       enum weir_history *out,
                       struct weir_lineage_loss *out_loss,
                       struct weir_diag *diag);

#endif /* WEIR_LINEAGE_LOG_H */
