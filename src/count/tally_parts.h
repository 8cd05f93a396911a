/* SPDX-License-Identifier: MIT
 * count/tally_parts.h - what the files of a tally share; for tally*.c only. */

#ifndef WEIR_TALLY_PARTS_H
#define WEIR_TALLY_PARTS_H

#include "count/tally.h"

/* Time constant of the smoothed rates. */
#define WEIR_RATE_SPAN (2 * WEIR_SECOND)

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

/* The root hasn't answered for what was counted some intervals ago, or while
 * it couldn't be reached. */
bool weir_tally_is_late(const struct weir_tally *tally,
                        const struct weir_tally_link *link, weir_instant now);

/* ---- tally_carry.c ---- */

/* What was handed over of the slot in its present life. */
uint64_t *weir_tally_handed_of(struct weir_tally *tally, uint32_t slot,
                               uint32_t generation);
/* The root didn't take what the unanswered report handed over. */
void weir_tally_hand_back(struct weir_tally *tally, uint32_t slot,
                          const struct weir_tally_cell *cell);
/* The root knows the slot: what it wasn't handed with the announcement is to
 * follow soon. */
void weir_tally_hand_rest(struct weir_tally *tally,
                          struct weir_tally_link *link, uint32_t slot);
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
