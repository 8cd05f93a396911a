/* SPDX-License-Identifier: MIT
 * server/adaptive_seen.h - adaptive limits over all processes. */

#ifndef WEIR_ADAPTIVE_SEEN_H
#define WEIR_ADAPTIVE_SEEN_H

#include "adapt/controller.h"
#include "node/root.h"

/* Of one quota or instance, over the processes that told of it. */
struct weir_adaptive_seen {
    char name[WEIR_NAME_MAX + 1];           /* NUL-terminated */
    uint32_t processes;                     /* >= 1 */
    double min, median, max;                /* of their limits */
    uint64_t in_flight;                     /* units of all */
    uint32_t by_reason[WEIR_LIMIT_REASONS]; /* processes, by why their limit
                                             * last moved */
};

/* Those with the most processes, at most 'max'; returns how many. 'match', or
 * absent for all: that name alone. */
size_t weir_adaptive_see(struct weir_root *root, struct weir_text match,
                         struct weir_adaptive_seen *out, size_t max,
                         weir_instant now);

#endif /* WEIR_ADAPTIVE_SEEN_H */
