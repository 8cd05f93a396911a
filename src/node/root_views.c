/* SPDX-License-Identifier: MIT
 * node/root_views.c - what people look at: usage, limiters, totals. Reads
 * what the root holds anyway; nothing is counted for display alone. */

#include "node/root_state.h"

#include <string.h>

static void usage_of(struct weir_root *root, struct weir_use *use,
                     struct weir_usage *out, weir_instant now)
{
    struct weir_captures captures;
    struct weir_text name = { use->name, use->name_len };
    int64_t fill = weir_merge_told_fill(&root->merge, use, now);
    *out = (struct weir_usage){
        .name = name,
        .quota = weir_catalog_find(root->catalog, name, &captures),
        .fill = (double)fill /
                (double)((uint64_t)1 << use->bucket.leak.frac),
        .passed = use->passed,
        .refused = use->refused,
        .limiters = use->connected,
    };
}

bool weir_root_usage(struct weir_root *root, size_t *cursor,
                     struct weir_usage *out, weir_instant now)
{
    while (*cursor < root->merge.use_used) {
        struct weir_use *use = &root->merge.uses[(*cursor)++];
        if (!use->live)
            continue;
        usage_of(root, use, out, now);
        return true;
    }
    return false;
}

bool weir_root_usage_of(struct weir_root *root, struct weir_text name,
                        struct weir_usage *out, weir_instant now)
{
    struct weir_use *use = weir_merge_get(&root->merge, name);
    if (!use)
        return false;
    usage_of(root, use, out, now);
    return true;
}

bool weir_root_limiter_usage(struct weir_root *root, size_t *cursor,
                             struct weir_limiter_usage *out,
                             weir_instant now)
{
    while (*cursor < root->limiter_used) {
        const struct root_limiter *limiter = root->limiters[(*cursor)++];
        if (!limiter->live)
            continue;
        *out = (struct weir_limiter_usage){
            .name = { limiter->name, limiter->name_len },
            .connected = limiter->cells.connected,
            .silent = now - limiter->heard_at,
            .epoch = limiter->epoch,
            .unknown = limiter->unknown,
            .reports = limiter->reports,
            .quotas = limiter->cells.cells,
        };
        memcpy(out->incarnation, limiter->incarnation,
               WEIR_INCARNATION_SIZE);
        return true;
    }
    return false;
}

void weir_root_stats(const struct weir_root *root,
                     struct weir_root_stats *out)
{
    *out = root->stats;
    out->limiters_connected = root->connected;
    out->limiters_known = root->limiter_live;
    out->quotas = weir_catalog_count(root->catalog);
    out->quotas_used = root->merge.use_live;
    out->epoch = root->epoch;
    out->counts = root->merge.merged;
    out->stretch = root->stretch;
    for (uint32_t i = 0; i < root->limiter_used; i++) {
        if (root->limiters[i]->live)
            out->unknown += root->limiters[i]->unknown;
    }
}
