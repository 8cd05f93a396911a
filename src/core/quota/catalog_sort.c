/* SPDX-License-Identifier: MIT
 * quota/catalog_sort.c - sorts quotas by name.
 *
 * A bottom-up merge sort, since the pure modules have no qsort(): glibc's may
 * call malloc(). Runs double from 1; each pass merges pairs of them into the
 * other array. No recursion; n log n comparisons in any order (a million names:
 * a second or two, because of cache misses in the names' texts). */

#include "core/quota/catalog_sort.h"

#include <string.h>

static void merge_halves(const struct weir_quota **from, size_t middle,
                         size_t end, const struct weir_quota **to)
{
    size_t left = 0;
    size_t right = middle;
    for (size_t i = 0; i < end; i++) {
        bool take_left =
            right == end ||
            (left < middle &&
             weir_text_compare(from[left]->name, from[right]->name) <= 0);
        to[i] = take_left ? from[left++] : from[right++];
    }
}

void weir_catalog_sort(const struct weir_quota **quotas,
                       const struct weir_quota **scratch, size_t count)
{
    const struct weir_quota **from = quotas;
    const struct weir_quota **to = scratch;
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t at = 0; at < count; at += 2 * run) {
            size_t left = count - at;
            merge_halves(from + at, run < left ? run : left,
                         2 * run < left ? 2 * run : left, to + at);
        }
        const struct weir_quota **other = from;
        from = to;
        to = other;
    }
    if (from != quotas)
        memcpy(quotas, from, count * sizeof(*quotas));
}
