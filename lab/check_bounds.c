/* SPDX-License-Identifier: MIT
 * lab/check_bounds.c - queues and reports stay within their named bounds. */

#include "lab/check_internal.h"

#define NAME "bounds"

void weir_check_bounds_event(struct weir_check *check)
{
    struct weir_fleet_stats stats;
    weir_fleet_stats(check->fleet, &stats);
    if (stats.lost != check->lost)
        check->lost_at = weir_fleet_now(check->fleet);
    check->lost = stats.lost;
    if (weir_fleet_error(check->fleet) != 0)
        weir_check_fail(check, NAME, "a node refused a message: %s",
                        weir_strerror(weir_fleet_error(check->fleet)));
    if (stats.waiting_bytes_most > WEIR_FLEET_INBOX_BYTES)
        weir_check_fail(
            check, NAME,
            "%llu bytes waited on one way of a link; at most %u are allowed",
            (unsigned long long)stats.waiting_bytes_most,
            WEIR_FLEET_INBOX_BYTES);
}

/* The limiter sends a report after the answer to the one before. So the
 * arrivals of answers at the limiter bound its rate of reports, in any state of
 * the network. */
void weir_check_bounds_answered(struct weir_check *check, uint32_t limiter,
                                uint32_t root)
{
    weir_assert(limiter < check->limiter_count && root < check->root_count);
    struct check_link *link = &check->limiters[limiter].link[root];
    weir_instant now = weir_fleet_now(check->fleet);
    if (now - link->span_at >= WEIR_SECOND) {
        link->span_at = now;
        link->span_reports = 0;
        link->span_ahead = check->ahead;
    }
    uint64_t most =
        (WEIR_SECOND + check->ahead - link->span_ahead) / WEIR_REPORT_SPACING +
        2;
    if (++link->span_reports > most)
        weir_check_fail(check, NAME,
                        "limiter%u made %llu reports to root%u in a second; "
                        "at most %llu are allowed",
                        limiter + 1, (unsigned long long)link->span_reports,
                        root + 1, (unsigned long long)most);
}
