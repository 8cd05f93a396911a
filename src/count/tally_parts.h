/* SPDX-License-Identifier: MIT
 * count/tally_parts.h - what the files of a tally share; for tally*.c only. */

#ifndef WEIR_TALLY_PARTS_H
#define WEIR_TALLY_PARTS_H

#include "count/tally.h"

/* Time constant of the smoothed rates … */
#define WEIR_RATE_SPAN (2 * WEIR_SECOND)
/* … and of what `share` and `hold` go by: an outage may last for hours, and
 * what went on in the last second before it may have been anything. */
#define WEIR_LEARN_SPAN (10 * WEIR_SECOND)

/* How long ago 'then' was. A clock may step back. */
static inline weir_duration weir_age(weir_instant then, weir_instant now)
{
    return now > then ? now - then : 0;
}

static inline float weir_smoothed(float before, float sample,
                                  weir_duration span)
{
    float weight = (float)span / (float)(span + WEIR_RATE_SPAN);
    return before + (sample - before) * weight;
}

/* What remains of a sum over the last WEIR_LEARN_SPAN after a span. */
static inline float weir_fading(weir_duration span)
{
    return (float)WEIR_LEARN_SPAN / (float)(span + WEIR_LEARN_SPAN);
}

/* How long a root goes on with a pace that isn't said again. */
static inline weir_duration weir_tally_pace_good(const struct weir_tally *tally)
{
    return WEIR_PACE_INTERVALS * tally->interval;
}

static inline bool weir_tally_announced(const struct weir_tally_link *link,
                                        const struct weir_tally_cell *cell)
{
    return cell->session == (uint32_t)link->session;
}

/* Whether reports tell of what has the slot now. */
static inline bool weir_tally_is_told_of(const struct weir_slot_view *view)
{
    return view->state == WEIR_SLOT_QUOTA || view->state == WEIR_SLOT_INSTANCE;
}

/* ---- tally.c ---- */

/* The cell of a slot in its present life; begun anew if need be. */
struct weir_tally_cell *weir_tally_cell_of(struct weir_tally *tally,
                                           struct weir_tally_link *link,
                                           uint32_t slot,
                                           const struct weir_slot_view *view);

/* Where the slot is worth a report, and where it stops. */
void weir_tally_update_slack(struct weir_tally *tally, uint32_t slot,
                             weir_instant now);

/* ---- tally_report.c ---- */

/* The root hasn't answered for what the slot counted some intervals ago, or
 * while it couldn't be reached. */
bool weir_tally_is_late(const struct weir_tally *tally,
                        const struct weir_tally_link *link,
                        const struct weir_tally_cell *cell, weir_instant now);

/* ---- tally_correction.c ---- */

/* By this fill, and the last one of the root, we and others added so much. */
struct weir_tally_added {
    float own, others; /* units; below 0: was presumed too much */
    int64_t fill;      /* as told now */
};
void weir_tally_learn_part(struct weir_tally *tally, uint32_t slot,
                           struct weir_tally_cell *cell,
                           const struct weir_slot_view *view,
                           const struct weir_tally_added *added,
                           weir_instant now);
/* A root has told of the slot: learns what `hold` is to go on with. 'blind':
 * what was told is no picture of the bucket. */
void weir_tally_learn_hold(struct weir_tally *tally, uint32_t slot, bool blind,
                           weir_instant now);

/* ---- tally_carry.c ---- */

/* What was handed over of the slot in its present life, of its present kind. */
uint64_t *weir_tally_handed_of(struct weir_tally *tally, uint32_t slot,
                               uint32_t generation, bool gauge);
/* The root didn't take what the unanswered report handed over. */
void weir_tally_hand_back(struct weir_tally *tally, uint32_t slot,
                          const struct weir_tally_cell *cell);
/* The root knows the slot: what it wasn't handed with the announcement is to
 * follow soon. */
void weir_tally_hand_rest(struct weir_tally *tally,
                          struct weir_tally_link *link, uint32_t slot);
/* A report that told of the slot was answered: if what is in flight is so at
 * the carrier now, whoever was told as one before is to hear that it isn't. */
void weir_tally_take_over(struct weir_tally *tally,
                          struct weir_tally_link *link, uint32_t slot);
/* A root gives back what is in flight at a limiter that it doesn't hear for
 * long: all of it is said again. */
void weir_tally_say_in_flight(struct weir_tally *tally,
                              struct weir_tally_link *link);
/* Whether carriers have, and have answered for, the count up to 'total'. */
bool weir_tally_is_handed(const struct weir_tally *tally, uint32_t slot,
                          uint64_t total);
/* Of the slot's count, units that are only presumed. */
static inline uint64_t weir_tally_ahead_of(const struct weir_tally *tally,
                                           uint32_t slot)
{
    return tally->carried ? tally->carried[slot].ahead : 0;
}

#endif /* WEIR_TALLY_PARTS_H */
