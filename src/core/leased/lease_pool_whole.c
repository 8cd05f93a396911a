/* SPDX-License-Identifier: MIT
 * leased/lease_pool_whole.c - grants in whole units.
 *
 * A part of a permit is of no use. Shares are fractions all the same, and their
 * whole parts leave odd units over: two units among three holders leave both.
 * So a holder with more than its share may have the odd unit too, until another
 * holder waits; then the odd unit is given up, at an ask. A holder that gave
 * one up rests (gets no odd unit) while any holder waits that hasn't given one
 * up: that period is a turn. A unit given up is free to any waiting holder, as
 * other capacity is. (To take an odd unit when a holder begins to wait, and not
 * at an ask, would push it to and fro.) */

#include "core/leased/lease_pool_state.h"

/* At most WEIR_LEASE_UNITS_MAX; shares are right to some roundings. */
static double units_below(double x)
{
    return (double)(int64_t)(x * (1 + TINY));
}

double weir_whole_above(double share)
{
    double below = (double)(int64_t)share;
    return below < share * (1 - TINY) ? below + 1 : below;
}

/* Whether a holder waits that hasn't given an odd unit up in this turn. */
static bool is_due(const struct weir_lease_pool *b)
{
    return b->waiting > b->rested;
}

double weir_whole_grant(const struct weir_lease_pool *b, const struct holder *h,
                        double share, double room)
{
    bool rests = h->turn == b->turn && is_due(b);
    return smaller(rests ? units_below(share) : weir_whole_above(share),
                   units_below(room));
}

double weir_whole_pass_on(struct weir_lease_pool *b, struct holder *h,
                          double share, double grant)
{
    if (!is_due(b)) {
        b->turn++;
        b->rested = 0;
        return grant;
    }
    if (h->turn != b->turn && h->waits)
        b->rested++; /* of the waiting holders, as set_waits() counts */
    h->turn = b->turn;
    return smaller(units_below(share), grant);
}
