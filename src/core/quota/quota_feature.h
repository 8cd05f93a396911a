/* SPDX-License-Identifier: MIT
 * quota/quota_feature.h - which parts of the language of quotas a limiter has
 * to understand to decide a quota.
 *
 * A limiter announces its features in its hello, and a root sends it only the
 * quotas that need no others. A field or value that is added to quotas gets the
 * next number here, and its row in weir_quota_needs(): limiters of this version
 * then go on with all other quotas of a newer root.
 *
 * The field scope has none on purpose. A limiter that doesn't know it finds a
 * limit of its own, as with scope=process; without the quota it would let
 * everything in. */

#ifndef WEIR_QUOTA_FEATURE_H
#define WEIR_QUOTA_FEATURE_H

#include "core/quota/quota.h"

/* Bits of a mask, which is sent: a number is never used again. */
enum weir_quota_feature {
    WEIR_FEATURE_BASE = 0, /* all fields but those below; always set */
    WEIR_FEATURE_CONCURRENCY = 1,
    WEIR_FEATURE_LEAKY_QUEUE = 2,
    WEIR_FEATURE_TOKEN_BUCKET = 3,
    WEIR_FEATURE_TOKEN_BUCKETS = 4,
    WEIR_FEATURE_FIXED_WINDOW = 5,
    WEIR_FEATURE_SLIDING_LOG = 6,
    WEIR_FEATURE_SLIDING_WINDOW = 7,
    WEIR_FEATURE_LEASED = 8,
    WEIR_FEATURE_EXACT = 9,
    WEIR_FEATURE_ADAPTIVE = 10,
    WEIR_FEATURE_GLOB_PATH = 11,
    WEIR_FEATURE_COUNT,
};

/* Of this version; of a limiter that announces none. */
#define WEIR_FEATURES_ALL (((uint64_t)1 << WEIR_FEATURE_COUNT) - 1)
#define WEIR_FEATURES_UNANNOUNCED (((uint64_t)1 << 12) - 1)

/* The features that the quota needs, as a mask. */
uint64_t weir_quota_needs(const struct weir_quota *quota);
/* As a field and its value, such as "sharing: leased". */
const char *weir_quota_feature_text(enum weir_quota_feature feature);

#endif /* WEIR_QUOTA_FEATURE_H */
