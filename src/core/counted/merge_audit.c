/* SPDX-License-Identifier: MIT
 * core/counted/merge_audit.c - audits of a merge: each kept sum is the sum over
 * the limiter cells, and lists, queues and index agree. */

#include "core/base/hash.h"
#include "core/counted/merge_internal.h"

/* The sums over the limiter cells of a root quota. */
struct cell_sums {
    uint32_t cells, connected;
    uint64_t pace, carried_pace;  /* as kept: modulo 2^64 … */
    weir_u128 from, carried_from; /* … or 2^128 */
    uint64_t exposure;
    uint64_t in_flight, carried_in_flight; /* units */
};

static void audit_limiter_cell(struct weir_merge *merge,
                               const struct weir_root_quota *root_quota,
                               const struct weir_limiter_cell *cell,
                               struct cell_sums *sums)
{
    const struct weir_merge_limiter *limiter = cell->limiter;
    weir_assert(weir_root_quota_at(merge, cell->root_quota) == root_quota);
    weir_assert(weir_limiter_cell_of(limiter, cell->slot) == cell);
    weir_assert(!cell->next || cell->next->prev == cell);
    weir_assert(limiter->cells > 0);
    weir_assert(cell->paced_at <= cell->counted_at);
    weir_assert(!cell->inflight || cell->pace == 0);
    weir_assert(cell->pace != 0 || cell->exposure == 0);
    weir_assert(!cell->inflight || cell->last <= WEIR_IN_FLIGHT_MAX);
    uint64_t in_flight = cell->inflight ? cell->last : 0;
    weir_u128 from = (weir_u128)cell->pace * cell->paced_at;
    sums->cells++;
    sums->connected += limiter->connected;
    sums->pace += cell->pace;
    sums->from += from;
    sums->exposure += cell->exposure;
    sums->in_flight += in_flight;
    if (!cell->carried)
        return;
    sums->carried_pace += cell->pace;
    sums->carried_from += from;
    sums->carried_in_flight += in_flight;
}

static void audit_cells(struct weir_merge *merge,
                        const struct weir_root_quota *root_quota)
{
    struct cell_sums sums = { 0 };
    weir_assert(!root_quota->cells || !root_quota->cells->prev);
    for (const struct weir_limiter_cell *cell = root_quota->cells;
         cell && sums.cells < root_quota->cell_count; cell = cell->next)
        audit_limiter_cell(merge, root_quota, cell, &sums);
    weir_assert(sums.cells == root_quota->cell_count);
    weir_assert(sums.connected == root_quota->connected);
    weir_assert(sums.pace == root_quota->pace);
    weir_assert(sums.from == root_quota->pace_from);
    weir_assert(sums.exposure == root_quota->exposure);
    weir_assert(sums.in_flight == root_quota->in_flight);
    weir_assert(sums.carried_pace == root_quota->carried_pace);
    weir_assert(sums.carried_from == root_quota->carried_from);
    weir_assert(sums.carried_in_flight == root_quota->carried_in_flight);
}

/* In a queue the last one has no next, and any other one has. Returns whether
 * it is in any. */
static bool audit_queued(const struct weir_merge *merge,
                         const struct weir_root_quota *root_quota)
{
    bool queued = false;
    uint32_t number = weir_root_quota_number(merge, root_quota);
    for (int i = 0; i < WEIR_MERGE_QUEUES; i++) {
        bool last = merge->queue[i].last == number;
        queued |= root_quota->queued[i];
        weir_assert(root_quota->queued[i] ? last == (root_quota->next[i] == 0)
                                          : !last);
    }
    return queued;
}

/* An element without a root quota: in a queue still, or free. */
static void audit_dropped(struct weir_merge *merge,
                          const struct weir_root_quota *root_quota, bool queued)
{
    weir_assert(!root_quota->name && !root_quota->cells);
    weir_assert(root_quota->cell_count == 0);
    if (!queued && root_quota->next[0] != 0)
        weir_assert(!weir_root_quota_at(merge, root_quota->next[0])->live);
}

static void audit_root_quota(struct weir_merge *merge,
                             const struct weir_root_quota *root_quota)
{
    bool queued = audit_queued(merge, root_quota);
    if (!root_quota->live) {
        audit_dropped(merge, root_quota, queued);
        return;
    }
    struct weir_text name = { root_quota->name, root_quota->name_len };
    weir_assert(root_quota->hash == weir_hash(name, merge->seed));
    weir_assert(weir_merge_get(merge, name) == root_quota);
    weir_assert(root_quota->debt_most >= 0);
    weir_assert(root_quota->dry_left >= 0 &&
                root_quota->dry_left <= WEIR_SCALED_MAX);
    weir_assert(root_quota->connected <= root_quota->cell_count);
    if (root_quota->cell_count <= WEIR_AUDIT_WALK_MAX)
        audit_cells(merge, root_quota);
}

void weir_merge_audit(struct weir_merge *merge, uint32_t n)
{
    weir_assert(merge->root_quotas_live <= merge->root_quotas_used);
    weir_assert(merge->root_quotas_live == merge->index.count);
    for (int i = 0; i < WEIR_MERGE_QUEUES; i++)
        weir_assert((merge->queue[i].first == 0) ==
                    (merge->queue[i].last == 0));
    for (uint32_t i = 0; i < n && i < merge->root_quotas_used; i++) {
        if (merge->audit_hand >= merge->root_quotas_used)
            merge->audit_hand = 0;
        audit_root_quota(merge, &merge->root_quotas[merge->audit_hand++]);
    }
}

static uint32_t cells_in_use(const struct weir_merge_limiter *limiter)
{
    struct weir_limiter_cell *cell;
    uint32_t cells = 0, cursor = 0;
    while (weir_merge_next_cell(limiter, &cursor, &cell))
        cells++;
    return cells;
}

void weir_merge_audit_limiter(const struct weir_merge_limiter *limiter)
{
    uint32_t due = 0;
    weir_assert(limiter->due <= limiter->cells);
    weir_assert(limiter->connected || limiter->due == 0);
    weir_audit(cells_in_use(limiter) == limiter->cells);
    if (limiter->page_capacity > WEIR_AUDIT_WALK_MAX)
        return;
    for (size_t p = 0; p < limiter->page_capacity; p++)
        due += limiter->pages[p]
                   ? (uint32_t)__builtin_popcountll(limiter->pages[p]->due)
                   : 0;
    weir_assert(due == limiter->due);
}
