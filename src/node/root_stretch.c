/* SPDX-License-Identifier: MIT
 * node/root_stretch.c - a root that can't keep up asks for fewer reports.
 *
 * Reports are nearly all of a root's work. An overloaded root answers late
 * already, and a limiter has one report unanswered at most; but near its
 * limits a limiter reports up to fifty times a second, and what is merged from
 * two reports at once costs half. So a root that was busy most of the time
 * says with each answer how far apart reports are to be, twice as far as
 * before, until it has time again; then half as far, down to none.
 *
 *     busy      ... 30 %  |  30 .. 80 %  |  80 % ...
 *     stretch    halved   |  as it is    |  doubled
 *
 * The gap between the two is more than a factor of two, so that halving the
 * load doesn't ask for doubling it again; and a stretch is judged only when
 * its effect can have been seen. What it costs: a limiter that has used up
 * its slack waits longer for more, so where all roots are overloaded less
 * passes, never more; where one is, limiters go by the slack of the others.
 * Until it has time again it also tells only what it must (count/merge.c).
 * It ends at a third of stale_after: a limiter that hears nothing for longer
 * than that would begin to decide without us. */

#include "node/root_state.h"

#define STRETCH_ABOVE 800000 /* of a million */
#define STRETCH_BELOW 300000
#define STRETCH_FIRST (50 * WEIR_MILLISECOND)

static weir_duration smaller(weir_duration a, weir_duration b)
{
    return a < b ? a : b;
}

static weir_duration longer(const struct weir_root *root)
{
    weir_duration wanted =
        root->stretch > 0 ? 2 * root->stretch : STRETCH_FIRST;
    weir_duration most =
        smaller(WEIR_STRETCH_MAX, root->settings.stale_after / 3);
    return smaller(wanted, most);
}

static weir_duration shorter(const struct weir_root *root)
{
    return root->stretch > STRETCH_FIRST ? root->stretch / 2 : 0;
}

void weir_root_busy(struct weir_root *root, uint32_t ppm, weir_instant now)
{
    root->stats.busy_ppm = ppm;
    if (now < root->judge_at)
        return;
    if (ppm >= STRETCH_ABOVE)
        root->stretch = longer(root);
    else if (ppm < STRETCH_BELOW)
        root->stretch = shorter(root);
    else
        return;
    root->judge_at = now + 2 * root->stretch;
    root->merge.strained = root->stretch > 0;
}
