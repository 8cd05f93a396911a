/* SPDX-License-Identifier: MIT
 * server/root_usages.c - a root's quotas in use, as a source of views; the sums
 * of templates; and adaptive limits over all processes. */

#include "server/root_usages.h"

#include <stdlib.h>
#include <string.h>

#include "io/clock.h"

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

/* ---- Adaptive limits ----
 *
 * Each process finds its own limit, and a graph can't have a line for each
 * process. So a quota has the least, the median and the greatest limit, and the
 * number of processes by the reason of their last move. The limits are gathered
 * in one array, sorted by name and limit, and cut into quotas where the name
 * changes. */

struct gathered {
    const struct weir_adaptive_limit **limits; /* owned */
    size_t count, capacity;
};

static bool add_limit(struct gathered *all,
                      const struct weir_adaptive_limit *limit)
{
    const struct weir_adaptive_limit **grown =
        weir_mem_grow(&weir_mem_system, all->limits, sizeof(*grown),
                      &all->capacity, all->count + 1);
    if (!grown)
        return false;
    all->limits = grown;
    all->limits[all->count++] = limit;
    return true;
}

static void gather_limits(struct weir_root *root, struct weir_text match,
                          struct gathered *all, weir_instant now)
{
    size_t cursor = 0;
    struct weir_limiter_usage limiter;
    while (weir_root_limiter_usage(root, &cursor, &limiter, now)) {
        for (size_t i = 0; i < limiter.limit_count; i++) {
            const struct weir_adaptive_limit *limits = &limiter.limits[i];
            bool wanted = !match.p || weir_text_equal(match, limits->name);
            if (wanted && !add_limit(all, limits))
                return;
        }
    }
}

static int compare_names_and_limits(const void *a, const void *b)
{
    const struct weir_adaptive_limit *x =
        *(const struct weir_adaptive_limit *const *)a;
    const struct weir_adaptive_limit *y =
        *(const struct weir_adaptive_limit *const *)b;
    int order = weir_text_compare(x->name, y->name);
    return order != 0 ? order : (x->limit > y->limit) - (x->limit < y->limit);
}

static void sum_up_processes(const struct weir_adaptive_limit *const *limits,
                             size_t count, struct weir_adaptive_view *out)
{
    *out = (struct weir_adaptive_view){
        .processes = (uint32_t)count,
        .min = limits[0]->limit,
        .median = limits[count / 2]->limit,
        .max = limits[count - 1]->limit,
    };
    memcpy(out->name, limits[0]->name.p, limits[0]->name.len);
    for (size_t i = 0; i < count; i++) {
        out->in_flight += limits[i]->in_flight;
        if (limits[i]->reason < WEIR_LIMIT_REASONS)
            out->by_reason[limits[i]->reason]++;
    }
}

static size_t find_fewest_processes(const struct weir_adaptive_view *seen,
                                    size_t count)
{
    size_t found = 0;
    for (size_t i = 1; i < count; i++) {
        if (seen[i].processes < seen[found].processes)
            found = i;
    }
    return found;
}

static size_t cut_into_quotas(const struct gathered *all,
                              struct weir_adaptive_view *out, size_t max)
{
    size_t seen = 0;
    size_t first = 0;
    for (size_t i = 1; i <= all->count; i++) {
        if (i < all->count &&
            weir_text_equal(all->limits[first]->name, all->limits[i]->name))
            continue;
        weir_assert(first < i);
        size_t place = seen < max ? seen : find_fewest_processes(out, max);
        if (seen < max || out[place].processes < i - first)
            sum_up_processes(all->limits + first, i - first, &out[place]);
        seen += seen < max;
        first = i;
    }
    return seen;
}

size_t weir_adaptive_see(struct weir_root *root, struct weir_text match,
                         struct weir_adaptive_view *out, size_t max,
                         weir_instant now)
{
    struct gathered all = { .limits = NULL };
    gather_limits(root, match, &all, now);
    if (all.count > 0)
        qsort(all.limits, all.count, sizeof(*all.limits),
              compare_names_and_limits);
    size_t count = all.count > 0 ? cut_into_quotas(&all, out, max) : 0;
    free(all.limits);
    return count;
}
