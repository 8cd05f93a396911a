/* SPDX-License-Identifier: MIT
 * core/quota/quota_feature.c - the features that a quota needs.
 *
 * Rejected: one number of a version for all features, because a limiter of
 * another branch may have a later one without an earlier one, and a warning
 * couldn't name what it lacks. */

#include "core/quota/quota_feature.h"

static bool is_concurrency(const struct weir_quota *quota)
{
    return quota->kind == WEIR_CONCURRENCY;
}

static bool is_path(const struct weir_quota *quota)
{
    return quota->glob == WEIR_GLOB_PATH;
}

static const struct {
    const char *text;
    enum weir_algorithm algorithm;          /* the quota has it; 0: … */
    enum weir_sharing sharing;              /* … or this; 0: … */
    bool (*is)(const struct weir_quota *q); /* … or this holds */
} features[WEIR_FEATURE_COUNT] = {
    [WEIR_FEATURE_BASE] = { .text = "quotas" },
    [WEIR_FEATURE_CONCURRENCY] = { "kind: concurrency", .is = is_concurrency },
    [WEIR_FEATURE_LEAKY_QUEUE] = { "algorithm: leaky_queue", WEIR_LEAKY_QUEUE },
    [WEIR_FEATURE_TOKEN_BUCKET] = { "algorithm: token_bucket",
                                    WEIR_TOKEN_BUCKET },
    [WEIR_FEATURE_TOKEN_BUCKETS] = { "algorithm: token_buckets",
                                     WEIR_TOKEN_BUCKETS },
    [WEIR_FEATURE_FIXED_WINDOW] = { "algorithm: fixed_window",
                                    WEIR_FIXED_WINDOW },
    [WEIR_FEATURE_SLIDING_LOG] = { "algorithm: sliding_log", WEIR_SLIDING_LOG },
    [WEIR_FEATURE_SLIDING_WINDOW] = { "algorithm: sliding_window",
                                      WEIR_SLIDING_WINDOW },
    [WEIR_FEATURE_LEASED] = { "sharing: leased", .sharing = WEIR_LEASED },
    [WEIR_FEATURE_EXACT] = { "sharing: exact", .sharing = WEIR_EXACT },
    [WEIR_FEATURE_ADAPTIVE] = { "sharing: adaptive", .sharing = WEIR_ADAPTIVE },
    [WEIR_FEATURE_GLOB_PATH] = { "glob: path", .is = is_path },
};

uint64_t weir_quota_needs(const struct weir_quota *quota)
{
    uint64_t needs = 1u << WEIR_FEATURE_BASE;
    for (unsigned i = WEIR_FEATURE_BASE + 1; i < WEIR_FEATURE_COUNT; i++) {
        bool is = features[i].algorithm
                      ? quota->algorithm == features[i].algorithm
                  : features[i].sharing ? quota->sharing == features[i].sharing
                                        : features[i].is(quota);
        needs |= (uint64_t)is << i;
    }
    return needs;
}

const char *weir_quota_feature_text(enum weir_quota_feature feature)
{
    weir_assert(feature < WEIR_FEATURE_COUNT);
    return features[feature].text;
}
