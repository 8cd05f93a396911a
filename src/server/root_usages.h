/* SPDX-License-Identifier: MIT
 * server/root_usages.h - a root's quotas in use, and the adaptive limits of
 * its limiters. */

#ifndef WEIR_ROOT_USAGES_H
#define WEIR_ROOT_USAGES_H

#include "core/concurrency/controller.h"
#include "core/node/root.h"
#include "front/top_k.h"

/* For views; the root is borrowed. */
struct weir_usages weir_usages_of_root(struct weir_root *root);

/* A template, and the units of its instances together. */
struct weir_template_sum {
    const struct weir_quota *quota; /* borrowed */
    uint64_t passed, refused, instances;
    void *context; /* the caller's */
};
/* Sums all templates in one walk of the quotas in use; sorts 'sums' by the
 * address of the quota. */
void weir_template_sums(struct weir_root *root, struct weir_template_sum *sums,
                        size_t count, weir_instant now);

/* ---- Adaptive limits ---- */

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

#endif /* WEIR_ROOT_USAGES_H */
