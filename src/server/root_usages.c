/* SPDX-License-Identifier: MIT
 * server/root_usages.c - a root's quotas in use, as a source of views, and the
 * sums of templates. */

#include "server/root_usages.h"

#include <stdlib.h>
#include <string.h>

static struct weir_used_quota used_quota_of(const struct weir_usage *usage)
{
    return (struct weir_used_quota){
        .name = usage->name,
        .quota = usage->quota,
        .fill = usage->fill,
        .passed = usage->passed,
        .refused = usage->refused,
        .limiters = usage->limiters,
    };
}

static struct weir_used_debtor used_debtor_of(const struct weir_debtor *debtor)
{
    struct weir_used_debtor out = { .limiter = debtor->limiter,
                                    .units = debtor->units,
                                    .silent = debtor->silent };
    memcpy(out.incarnation, debtor->incarnation, sizeof out.incarnation);
    return out;
}

static size_t root_usage_count(void *context)
{
    struct weir_root_stats stats;
    weir_root_stats(context, &stats);
    return stats.quotas_used;
}

static bool root_next_usage(void *context, size_t *cursor,
                            struct weir_used_quota *out, weir_instant now)
{
    struct weir_usage usage;
    if (!weir_root_usage(context, cursor, &usage, now))
        return false;
    *out = used_quota_of(&usage);
    return true;
}

static bool root_usage_of(void *context, struct weir_text name,
                          struct weir_used_quota *out, weir_instant now)
{
    struct weir_usage usage = { .passed = 0 };
    if (!weir_root_usage_of(context, name, &usage, now))
        return false;
    *out = used_quota_of(&usage);
    out->debtor = used_debtor_of(&usage.debtor);
    return true;
}

struct weir_usages weir_usages_of_root(struct weir_root *root)
{
    return (struct weir_usages){ .context = root,
                                 .count = root_usage_count,
                                 .next = root_next_usage,
                                 .of = root_usage_of };
}

/* ---- The sums of templates ---- */

static int compare_quota_addresses(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct weir_template_sum *)a)->quota;
    uintptr_t y = (uintptr_t)((const struct weir_template_sum *)b)->quota;
    return x < y ? -1 : x > y;
}

void weir_template_sums(struct weir_root *root, struct weir_template_sum *sums,
                        size_t count, weir_instant now)
{
    size_t cursor = 0;
    struct weir_usage usage;
    qsort(sums, count, sizeof *sums, compare_quota_addresses);
    while (count > 0 && weir_root_usage(root, &cursor, &usage, now)) {
        struct weir_template_sum key = { .quota = usage.quota };
        struct weir_template_sum *sum =
            bsearch(&key, sums, count, sizeof *sums, compare_quota_addresses);
        if (!sum)
            continue;
        sum->passed += usage.passed;
        sum->refused += usage.refused;
        sum->instances++;
    }
}
