/* SPDX-License-Identifier: MIT
 * test/quota_maker.h - random quotas. */

#ifndef WEIR_QUOTA_MAKER_H
#define WEIR_QUOTA_MAKER_H

#include "core/base/rng.h"
#include "core/quota/catalog.h"
#include "seed.h"

/* A quota with the memory of its texts. */
struct made_quota {
    struct weir_quota quota;
    char name[WEIR_NAME_MAX];
    char parent[WEIR_NAME_MAX];
    char description[WEIR_DESCRIPTION_MAX];
    char labels[WEIR_LABELS_MAX];
};

/* A quota that passes weir_quota_check(), every field random, texts nasty.
 * The name ends in 'number', so that numbers make names differ. No parent,
 * no overflow. One in eight is a template. */
void make_quota(struct weir_rng *rng, unsigned number, struct made_quota *out);

/* A random limit within the bounds. */
struct weir_limit make_limit(struct weir_rng *rng);
/* A random burst, set. */
struct weir_burst make_burst(struct weir_rng *rng);

#endif /* WEIR_QUOTA_MAKER_H */
