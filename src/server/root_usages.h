/* SPDX-License-Identifier: MIT
 * server/root_usages.h - a root's quotas in use. */

#ifndef WEIR_ROOT_USAGES_H
#define WEIR_ROOT_USAGES_H

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

#endif /* WEIR_ROOT_USAGES_H */
