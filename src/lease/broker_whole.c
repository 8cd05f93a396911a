/* SPDX-License-Identifier: MIT
 * lease/broker_whole.c - grants of what can't be divided.
 *
 * Of permits nobody can use a part. Shares are fractions all the same, and
 * their whole parts leave odd units over: two among three leave all of them.
 * So who has more than its share may have the odd unit too, until somebody
 * waits; then it is given up, an ask at a time, and who gave one up is at rest
 * for as long as somebody waits who hasn't: that is a turn. What was given up
 * is free to whoever waits, as any other capacity. (To take an odd unit when
 * somebody begins to wait, and not at an ask, would push it to and fro.) */

#include "lease/broker_state.h"

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

/* Whether somebody waits who hasn't given an odd unit up in this turn. */
static bool is_due(const struct weir_broker *b)
{
    return b->waiting > b->rested;
}

double weir_whole_grant(const struct weir_broker *b, const struct holder *h,
                        double share, double room)
{
    bool rests = h->turn == b->turn && is_due(b);
    return smaller(rests ? units_below(share) : weir_whole_above(share),
                   units_below(room));
}

double weir_whole_pass_on(struct weir_broker *b, struct holder *h, double share,
                          double grant)
{
    if (!is_due(b)) {
        b->turn++;
        b->rested = 0;
        return grant;
    }
    if (h->turn != b->turn && h->waits)
        b->rested++; /* of those who wait, as set_waits() counts them */
    h->turn = b->turn;
    return smaller(units_below(share), grant);
}
