/* SPDX-License-Identifier: MIT
 * node/root_report_backoff.c - an overloaded root asks for fewer reports.
 *
 * Reports are nearly all of a root's work. An overloaded root answers late, and
 * a limiter has one report unanswered at most; but near its limits a limiter
 * reports up to fifty times a second, and merging the counts of two reports at
 * once costs half. So a root that was busy most of the time sends with each
 * answer a report backoff, the shortest interval between reports. It doubles
 * the backoff until the root has time again, and then halves it, down to none.
 *
 *     busy      ... 30 %  |  30 .. 80 %  |  80 % ...
 *     backoff    halved   |  unchanged   |  doubled
 *
 * The two thresholds are more than a factor of two apart, so that halving the
 * load doesn't cause its doubling again; and the backoff is changed only after
 * its effect can be seen. The cost: a limiter that has used up its slack waits
 * longer for more. So if all roots are overloaded less passes, never more; if
 * one is, limiters use the slack of the others. An overloaded root also sends
 * only the needed fills (counted/merge.c). The backoff ends at a third of
 * stale_after: after a longer silence limiters would decide without the
 * root. */

#include "core/node/root_state.h"

#define REPORT_BACKOFF_ABOVE 800000 /* of a million */
#define REPORT_BACKOFF_BELOW 300000
#define REPORT_BACKOFF_FIRST (50 * WEIR_MILLISECOND)

static weir_duration backoff_doubled(const struct weir_root *root)
{
    weir_duration wanted = root->report_backoff > 0 ? 2 * root->report_backoff
                                                    : REPORT_BACKOFF_FIRST;
    weir_duration most =
        weir_shorter(WEIR_REPORT_BACKOFF_MAX, root->settings.stale_after / 3);
    return weir_shorter(wanted, most);
}

static weir_duration backoff_halved(const struct weir_root *root)
{
    return root->report_backoff > REPORT_BACKOFF_FIRST
               ? root->report_backoff / 2
               : 0;
}

void weir_root_busy(struct weir_root *root, uint32_t ppm, weir_instant now)
{
    root->stats.busy_ppm = ppm;
    if (now < root->judge_at)
        return;
    if (ppm >= REPORT_BACKOFF_ABOVE)
        root->report_backoff = backoff_doubled(root);
    else if (ppm < REPORT_BACKOFF_BELOW)
        root->report_backoff = backoff_halved(root);
    else
        return;
    root->judge_at = now + 2 * root->report_backoff;
    root->merge.overloaded = root->report_backoff > 0;
    weir_assert(root->report_backoff <= WEIR_REPORT_BACKOFF_MAX);
}
