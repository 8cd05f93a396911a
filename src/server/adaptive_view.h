/* SPDX-License-Identifier: MIT
 * server/adaptive_view.h - adaptive limits over all processes. */

#ifndef WEIR_ADAPTIVE_VIEW_H
#define WEIR_ADAPTIVE_VIEW_H

#include "core/concurrency/controller.h"
#include "core/node/root.h"

/* The limits of one quota or instance in the processes that reported it. */
struct weir_adaptive_view {
    char name[WEIR_NAME_MAX + 1];           /* NUL-terminated */
    uint32_t processes;                     /* >= 1 */
    double min, median, max;                /* of their limits */
    uint64_t in_flight;                     /* units, of all processes */
    uint32_t by_reason[WEIR_LIMIT_REASONS]; /* processes, by the reason of their
                                             * limit's last move */
};

/* Writes the quotas with the most processes, at most 'max'; returns how many.
 * 'match': that name alone; absent: all. */
size_t weir_adaptive_see(struct weir_root *root, struct weir_text match,
                         struct weir_adaptive_view *out, size_t max,
                         weir_instant now);

#endif /* WEIR_ADAPTIVE_VIEW_H */
