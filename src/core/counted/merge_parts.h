/* SPDX-License-Identifier: MIT
 * counted/merge_parts.h - shared by the files of a merge; for merge*.c only. */

#ifndef WEIR_MERGE_PARTS_H
#define WEIR_MERGE_PARTS_H

#include "core/counted/merge.h"

/* Instants of a merge are counted from its birth. */
static inline uint64_t weir_merge_elapsed(const struct weir_merge *merge,
                                          weir_instant now)
{
    return now > merge->origin ? now - merge->origin : 0;
}

/* A root quota by its index + 1, and back. */
static inline uint32_t weir_root_quota_number(
    const struct weir_merge *merge, const struct weir_root_quota *root_quota)
{
    return (uint32_t)(root_quota - merge->uses) + 1;
}

static inline struct weir_root_quota *weir_root_quota_at(
    struct weir_merge *merge, uint32_t number)
{
    weir_assert(number > 0 && number <= merge->use_used);
    return &merge->uses[number - 1];
}

/* Takes the next moved bucket out of the queue; NULL: none. It may have been
 * dropped since. */
struct weir_root_quota *weir_merge_next_touched(struct weir_merge *merge);
/* Frees the element of a dropped root quota, if it is in no queue any more. */
void weir_root_quota_free_if_left(struct weir_merge *merge,
                                  struct weir_root_quota *root_quota);
/* Pace times nanoseconds as a fill; not below 0, for a clock may step back, and
 * bounded, for peers may lie. */
uint64_t weir_root_quota_scaled_pace(const struct weir_root_quota *root_quota,
                                     weir_u128 sum);
/* A fill on another scale, at most a full bucket. */
int64_t weir_root_quota_rescaled(const struct weir_root_quota *root_quota,
                                 int64_t fill, unsigned from);
/* The cell of a slot; NULL: none was made. */
struct weir_limiter_cell *weir_limiter_cell_of(
    const struct weir_merge_limiter *limiter, uint32_t slot);

/* ---- merge_carry.c ---- */

/* Puts it into the queue of those to be carried on. */
void weir_root_quota_carry_on(struct weir_merge *merge,
                              struct weir_root_quota *root_quota);
/* From now on the cell's pace, or its units in flight, are in the carried sums,
 * or aren't. */
void weir_limiter_cell_set_carried(struct weir_merge *merge,
                                   struct weir_root_quota *root_quota,
                                   struct weir_limiter_cell *cell,
                                   bool carried);
/* Takes the units and the pace that the cell's limiter hands over. 'refused':
 * units more than at its last report. */
void weir_limiter_cell_carry(struct weir_merge *merge,
                             struct weir_root_quota *root_quota,
                             struct weir_limiter_cell *cell,
                             const struct weir_count *count, uint64_t refused,
                             weir_duration late_from);

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
/* A debt: its sum less 'leaked', all that has leaked. One larger than any
 * bucket is 0: the sums wrapped while it was idle. */
static inline int64_t weir_debt_left(uint64_t in, uint64_t leaked)
{
    int64_t debt = (int64_t)(in - leaked);
    return debt > 0 && debt <= WEIR_SCALED_MAX ? debt : 0;
}
/* The inverse: the sum for a debt; one below 0 counts as 0. */
static inline uint64_t weir_debt_sum(int64_t debt, uint64_t leaked)
{
    return leaked + (uint64_t)(debt > 0 ? debt : 0);
}

/* ---- merge.c ---- */

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
    *bits ^= bit;
    limiter->due += due ? 1 : (uint32_t)-1;
}

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
/* Whether a count of the slot is answered with a fill. */
bool weir_limiter_cell_is_owed(struct weir_merge *merge,
                               struct weir_root_quota *root_quota,
                               const struct weir_limiter_cell *cell,
                               weir_instant now);

#endif /* WEIR_MERGE_PARTS_H */
