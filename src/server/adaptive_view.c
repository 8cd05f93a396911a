/* SPDX-License-Identifier: MIT
 * server/adaptive_view.c - adaptive limits over all processes.
 *
 * Each process finds its own limit, and a graph can't have a line for each
 * process. So a quota has the least, the median and the greatest limit, and the
 * number of processes by the reason of their last move. The limits are gathered
 * in one array, sorted by name and limit, and cut into quotas where the name
 * changes. */

#include "server/adaptive_view.h"

#include <stdlib.h>
#include <string.h>

struct gathered {
    const struct weir_limit_told **told; /* owned */
    size_t count, capacity;
};

static bool add_told_limit(struct gathered *all,
                           const struct weir_limit_told *told)
{
    if (all->count == all->capacity) {
        size_t capacity = all->capacity ? 2 * all->capacity : 64;
        const struct weir_limit_told **grown =
            realloc(all->told, capacity * sizeof(*grown));
        if (!grown)
            return false;
        all->told = grown;
        all->capacity = capacity;
    }
    all->told[all->count++] = told;
    return true;
}

static void gather_limits(struct weir_root *root, struct weir_text match,
                          struct gathered *all, weir_instant now)
{
    size_t cursor = 0;
    struct weir_limiter_usage limiter;
    while (weir_root_limiter_usage(root, &cursor, &limiter, now)) {
        for (size_t i = 0; i < limiter.limit_count; i++) {
            const struct weir_limit_told *told = &limiter.limits[i];
            bool wanted = !match.p || weir_text_equal(match, told->name);
            if (wanted && !add_told_limit(all, told))
                return;
        }
    }
}

static int compare_limit_names(const struct weir_limit_told *a,
                               const struct weir_limit_told *b)
{
    size_t len = a->name.len < b->name.len ? a->name.len : b->name.len;
    int order = memcmp(a->name.p, b->name.p, len);
    if (order != 0)
        return order;
    return (a->name.len > b->name.len) - (a->name.len < b->name.len);
}

static int compare_names_and_limits(const void *a, const void *b)
{
    const struct weir_limit_told *x = *(const struct weir_limit_told *const *)a;
    const struct weir_limit_told *y = *(const struct weir_limit_told *const *)b;
    int order = compare_limit_names(x, y);
    return order != 0 ? order : (x->limit > y->limit) - (x->limit < y->limit);
}

static void sum_up_processes(const struct weir_limit_told *const *told,
                             size_t count, struct weir_adaptive_view *out)
{
    *out = (struct weir_adaptive_view){
        .processes = (uint32_t)count,
        .min = told[0]->limit,
        .median = told[count / 2]->limit,
        .max = told[count - 1]->limit,
    };
    memcpy(out->name, told[0]->name.p, told[0]->name.len);
    for (size_t i = 0; i < count; i++) {
        out->in_flight += told[i]->in_flight;
        if (told[i]->reason < WEIR_LIMIT_REASONS)
            out->by_reason[told[i]->reason]++;
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
            compare_limit_names(all->told[first], all->told[i]) == 0)
            continue;
        size_t place = seen < max ? seen : find_fewest_processes(out, max);
        if (seen < max || out[place].processes < i - first)
            sum_up_processes(all->told + first, i - first, &out[place]);
        seen += seen < max;
        first = i;
    }
    return seen;
}

size_t weir_adaptive_see(struct weir_root *root, struct weir_text match,
                         struct weir_adaptive_view *out, size_t max,
                         weir_instant now)
{
    struct gathered all = { .told = NULL };
    gather_limits(root, match, &all, now);
    if (all.count > 0)
        qsort(all.told, all.count, sizeof(*all.told), compare_names_and_limits);
    size_t count = all.count > 0 ? cut_into_quotas(&all, out, max) : 0;
    free(all.told);
    return count;
}
