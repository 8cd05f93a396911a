/* SPDX-License-Identifier: MIT
 * counted/merge_internal.h - shared by the files of a merge. */

#ifndef WEIR_MERGE_INTERNAL_H
#define WEIR_MERGE_INTERNAL_H

#include "core/counted/merge.h"

/* Instants of a merge are counted from its birth. */
static inline uint64_t weir_merge_elapsed(const struct weir_merge *merge,
                                          weir_instant now)
{
    return weir_since(merge->origin, now);
}

/* A root quota by its index + 1, and back. */
static inline uint32_t weir_root_quota_number(
    const struct weir_merge *merge, const struct weir_root_quota *root_quota)
{
    return (uint32_t)(root_quota - merge->root_quotas) + 1;
}

static inline struct weir_root_quota *weir_root_quota_at(
    struct weir_merge *merge, uint32_t number)
{
    weir_assert(number > 0 && number <= merge->root_quotas_used);
    return &merge->root_quotas[number - 1];
}

static inline int64_t weir_fill_smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- merge_bucket.c ---- */

/* The cell of a slot; NULL: none was made. */
struct weir_limiter_cell *weir_limiter_cell_of(
    const struct weir_merge_limiter *limiter, uint32_t slot);
/* The cell's own part of the presumed units, scaled. */
uint64_t weir_limiter_cell_presumed(const struct weir_merge *merge,
                                    const struct weir_root_quota *root_quota,
                                    const struct weir_limiter_cell *cell,
                                    weir_instant now);
/* Units that other limiters than the cell's have added, presumed included. */
uint64_t weir_limiter_cell_others(const struct weir_merge *merge,
                                  const struct weir_root_quota *root_quota,
                                  const struct weir_limiter_cell *cell,
                                  weir_instant now);
/* 'fill': scaled, presumed units included. */
void weir_root_quota_set_fill(struct weir_merge *merge,
                              struct weir_root_quota *root_quota, int64_t fill,
                              weir_instant now);
/* Adds units. 'instead': units of the bucket that they replace, scaled; 'late':
 * they fill it up to 'high' at most. Returns by how much they moved the bucket,
 * scaled. */
int64_t weir_root_quota_add(struct weir_merge *merge,
                            struct weir_root_quota *root_quota, int64_t units,
                            int64_t instead, bool late, weir_instant now);
/* A fill on another scale, at most a full bucket. */
int64_t weir_root_quota_rescaled(const struct weir_root_quota *root_quota,
                                 int64_t fill, unsigned from);
/* Takes the quota's parameters; the fill is to be set after that. */
void weir_root_quota_use(const struct weir_merge *merge,
                         struct weir_root_quota *root_quota,
                         const struct weir_quota *quota);
/* Makes the root quota of a name that has none. NULL: no memory, or over
 * WEIR_ROOT_QUOTAS_MAX. */
struct weir_root_quota *weir_root_quota_make(struct weir_merge *merge,
                                             struct weir_text name,
                                             const struct weir_quota *quota,
                                             weir_instant now);
/* Takes the next root quota out of the queue; NULL: none. It may have been
 * dropped since. */
struct weir_root_quota *weir_merge_dequeue(struct weir_merge *merge,
                                           enum weir_merge_queue queue);
/* Frees the element of a dropped root quota, if it is in no queue any more. */
void weir_root_quota_free_if_left(struct weir_merge *merge,
                                  struct weir_root_quota *root_quota);

/* ---- merge_debt.c ---- */

/* The most that the bucket holds, scaled. */
int64_t weir_root_quota_fill_most(const struct weir_root_quota *root_quota);
/* Of that, the most that one limiter may have put in, scaled. */
int64_t weir_root_quota_debt_of(const struct weir_merge *merge,
                                const struct weir_root_quota *root_quota,
                                weir_duration max_debt);
/* The most that an edit leaves in the bucket, scaled. */
int64_t weir_root_quota_edited_most(const struct weir_root_quota *root_quota);
/* The part of 'units' (> 0), counted by the cell's limiter, that fits into
 * 'room' of its own bucket, scaled. The rest is counted as beyond its debt. */
int64_t weir_limiter_cell_cut(struct weir_merge *merge,
                              struct weir_root_quota *root_quota,
                              const struct weir_limiter_cell *cell,
                              int64_t units, int64_t room, weir_instant now);

/* Marks whether the cell's limiter is to be sent a fill of it. */
static inline void weir_limiter_cell_set_due(struct weir_limiter_cell *cell,
                                             bool due)
{
    struct weir_merge_limiter *limiter = cell->limiter;
    uint64_t *bits =
        &limiter->pages[cell->slot / WEIR_LIMITER_CELLS_A_PAGE]->due;
    uint64_t bit = (uint64_t)1 << (cell->slot % WEIR_LIMITER_CELLS_A_PAGE);
    bool was = (*bits & bit) != 0;
    if (was == due)
        return;
    weir_assert(due || limiter->due > 0);
    *bits ^= bit;
    limiter->due += due ? 1 : (uint32_t)-1;
}

/* ---- slack.c ---- */

/* Whether a count of the slot is answered with a fill. */
bool weir_limiter_cell_is_owed(struct weir_merge *merge,
                               struct weir_root_quota *root_quota,
                               const struct weir_limiter_cell *cell,
                               weir_instant now);

#endif /* WEIR_MERGE_INTERNAL_H */
