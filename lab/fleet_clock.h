/* SPDX-License-Identifier: MIT
 * lab/fleet_clock.h - a node's own clock: an offset of its own, a drift, steps.
 * Integers only: a deadline converted to the world's time is the first instant
 * at which the clock shows it, so a node neither spins nor oversleeps. */

#ifndef WEIR_FLEET_CLOCK_H
#define WEIR_FLEET_CLOCK_H

#include "core/base/base.h"

/* The clock showed 'showed' at the world's 'since'; from then on it runs at
 * 'rate' / 10^9. */
struct weir_fleet_clock {
    weir_instant since, showed;
    int64_t rate;
};

#define WEIR_CLOCK_TRUE 1000000000 /* the rate of a clock without drift */

/* The clock's reading at the world's 'now', which is not before 'since'. */
weir_instant weir_fleet_clock_at(const struct weir_fleet_clock *clock,
                                 weir_instant now);
/* The first instant of the world, from 'now' on, at which the clock shows
 * 'shown' or more; WEIR_NEVER stays WEIR_NEVER. */
weir_instant weir_fleet_clock_when(const struct weir_fleet_clock *clock,
                                   weir_instant shown, weir_instant now);
/* The clock jumps by 'step' (but not below one second), and drifts from now on
 * (between a tenth and twice the true rate). */
void weir_fleet_clock_set(struct weir_fleet_clock *clock, int64_t step,
                          double drift_ppm, weir_instant now);

#endif /* WEIR_FLEET_CLOCK_H */
