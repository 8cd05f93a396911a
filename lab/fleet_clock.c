/* SPDX-License-Identifier: MIT
 * lab/fleet_clock.c - see fleet_clock.h.
 *
 *     shown(now) = showed + floor((now - since) * rate / 10^9)
 *
 * The first instant with shown >= s is since + the ceiling of the inverse,
 * because floor(x) >= n if and only if x >= n, for a whole n. */

#include "lab/fleet_clock.h"

#include <math.h>

weir_instant weir_fleet_clock_at(const struct weir_fleet_clock *clock,
                                 weir_instant now)
{
    weir_assert(now >= clock->since);
    weir_duration gone = now - clock->since;
    if (clock->rate == WEIR_CLOCK_TRUE)
        return clock->showed + gone;
    return clock->showed +
           (weir_duration)((weir_u128)gone * (weir_u128)clock->rate /
                           WEIR_CLOCK_TRUE);
}

weir_instant weir_fleet_clock_when(const struct weir_fleet_clock *clock,
                                   weir_instant shown, weir_instant now)
{
    if (shown == WEIR_NEVER)
        return WEIR_NEVER;
    if (shown <= clock->showed)
        return now;
    weir_duration need = shown - clock->showed;
    if (clock->rate != WEIR_CLOCK_TRUE) {
        weir_u128 rate = (weir_u128)clock->rate;
        need = (weir_duration)(((weir_u128)need * WEIR_CLOCK_TRUE + rate - 1) /
                               rate);
    }
    weir_instant at = clock->since + need;
    return at > now ? at : now;
}

void weir_fleet_clock_set(struct weir_fleet_clock *clock, int64_t step,
                          double drift_ppm, weir_instant now)
{
    int64_t shown = (int64_t)weir_fleet_clock_at(clock, now) + step;
    clock->showed =
        shown > (int64_t)WEIR_SECOND ? (weir_instant)shown : WEIR_SECOND;
    clock->since = now;
    double rate = WEIR_CLOCK_TRUE + drift_ppm * 1000;
    rate = fmin(fmax(rate, 0.1 * WEIR_CLOCK_TRUE), 2.0 * WEIR_CLOCK_TRUE);
    clock->rate = (int64_t)llround(rate);
    weir_assert(clock->rate > 0);
}
