/* SPDX-License-Identifier: MIT
 * counted/tally_internal.h - shared by the files of a tally. */

#ifndef WEIR_TALLY_INTERNAL_H
#define WEIR_TALLY_INTERNAL_H

#include "core/counted/tally.h"

/* Time constant of the smoothed rates … */
#define WEIR_RATE_SPAN (2 * WEIR_SECOND)
/* … and of the values for `share` and `hold`: an outage may last for hours, and
 * its last second of load is not typical. */
#define WEIR_LEARN_SPAN (10 * WEIR_SECOND)

static inline float weir_smoothed(float before, float sample,
                                  weir_duration span)
{
    float weight = (float)span / (float)(span + WEIR_RATE_SPAN);
    return before + (sample - before) * weight;
}

static inline bool weir_tally_announced(const struct weir_tally_link *link,
                                        const struct weir_tally_cell *cell)
{
    return cell->session == (uint32_t)link->session;
}

/* Whether the slot is of a kind that is reported. */
static inline bool weir_tally_is_reported(const struct weir_slot_view *view)
{
    return view->state == WEIR_SLOT_QUOTA || view->state == WEIR_SLOT_INSTANCE;
}

/* ---- tally.c ---- */

/* The cell of a slot in its present life; begun anew if need be. */
struct weir_tally_cell *weir_tally_cell_of(struct weir_tally *tally,
                                           struct weir_tally_link *link,
                                           uint32_t slot,
                                           const struct weir_slot_view *view);
/* Units handed over of the slot in its present life, of its present kind. */
uint64_t *weir_tally_handed_of(struct weir_tally *tally, uint32_t slot,
                               uint32_t generation, bool inflight);

/* ---- tally_stop.c ---- */

/* Units that the root presumes of the cell's pace since 'then', plus those that
 * were reported as ahead; 1/1024 units. */
uint64_t weir_tally_presumed(const struct weir_tally *tally,
                             const struct weir_tally_link *link,
                             const struct weir_tally_cell *cell,
                             weir_instant then, weir_instant now);
/* Notes the bounds of the bucket that the cell's fill is of. */
void weir_tally_set_band(const struct weir_tally_link *link,
                         struct weir_tally_cell *cell,
                         const struct weir_bucket *bucket);
/* Sets the counts at which the slot is reported, and stops. */
void weir_tally_update_slack(struct weir_tally *tally, uint32_t slot,
                             weir_instant now);
/* The same for every slot that a root has sent a fill of. */
void weir_tally_update_all_slack(struct weir_tally *tally, weir_instant now);
/* Sets the slot's bucket by the largest fill that a root has sent. */
void weir_tally_update_fill(struct weir_tally *tally, uint32_t slot,
                            const struct weir_slot_view *view,
                            weir_instant now);
/* Drops the fill and pace of an earlier session. Counts that were answered too
 * late are dropped from the prompt ones: they have leaked there by now. */
void weir_tally_forget_fill(struct weir_tally_cell *cell);
/* The table learns whether some root's fill of the slot is known. Call it after
 * that. */
void weir_tally_update_heard(struct weir_tally *tally, uint32_t slot);

/* ---- tally_report.c ---- */

/* Whether counts are late: the root hasn't answered those of some intervals
 * ago, or those made while it was unreachable. */
bool weir_tally_is_late(const struct weir_tally *tally,
                        const struct weir_tally_link *link,
                        const struct weir_tally_cell *cell, weir_instant now);

/* ---- tally_correction.c ---- */

/* The units that we and others added between the last two fills of a root. */
struct weir_tally_added {
    float own, others; /* units; below 0: too many were presumed */
    int64_t fill;      /* as received now */
};
void weir_tally_learn_part(struct weir_tally *tally, uint32_t slot,
                           struct weir_tally_cell *cell,
                           const struct weir_slot_view *view,
                           const struct weir_tally_added *added,
                           weir_instant now);
/* A root has sent a fill of the slot: learns the probability for `hold`.
 * 'blind': it isn't a fill of the bucket. */
void weir_tally_learn_hold(struct weir_tally *tally, uint32_t slot, bool blind,
                           weir_instant now);

/* Units of the slot's count that are only presumed. */
static inline uint64_t weir_tally_ahead_of(const struct weir_tally *tally,
                                           uint32_t slot)
{
    return tally->carried ? tally->carried[slot].ahead : 0;
}

#endif /* WEIR_TALLY_INTERNAL_H */
