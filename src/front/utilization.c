/* SPDX-License-Identifier: MIT
 * front/utilization.c - measures the utilization of the loop's thread, for the
 * root.
 *
 * It is the share of the CPU time that the thread could have had: on an
 * overloaded machine, too, the root doesn't look idle. The root then asks
 * limiters to report less often, and the log has a line of it. */

#include "front/utilization.h"

static void log_report_backoff(const struct weir_root *root,
                               struct weir_log *log, weir_duration before)
{
    struct weir_root_stats stats;
    weir_root_stats(root, &stats);
    unsigned percent = stats.busy_ppm / 10000;
    unsigned ms = (unsigned)(stats.report_backoff / WEIR_MILLISECOND);
    if (stats.report_backoff > before)
        weir_log_limited(
            log, WEIR_LOG_LOAD, WEIR_LOG_WARNING,
            "busy for %u %% of the time: limiters are asked to report "
            "no more often than every %u ms",
            percent, ms);
    else if (stats.report_backoff == 0 && before > 0)
        weir_log_limited(
            log, WEIR_LOG_LOAD, WEIR_LOG_INFO,
            "busy for %u %% of the time: limiters report as set again",
            percent);
}

/* The share of the CPU time that this thread could have had which it used. Time
 * in which it waits for a CPU counts as neither work nor idleness. */
static uint32_t busy_share(const struct weir_thread_time *before,
                           const struct weir_thread_time *after,
                           weir_duration span)
{
    weir_duration ran = after->ran - before->ran;
    weir_duration waited = after->waited - before->waited;
    weir_duration had = span > waited ? span - waited : 0;
    return ran < had ? (uint32_t)(ran * 1000000 / had) : 1000000;
}

void weir_utilization_measure(struct weir_utilization *utilization,
                              struct weir_root *root, struct weir_log *log,
                              weir_instant now)
{
    weir_duration span = now - utilization->measured_at;
    if (utilization->measured_at > 0 && span < WEIR_SECOND)
        return;
    struct weir_thread_time thread = weir_clock_thread();
    struct weir_root_stats before;
    weir_root_stats(root, &before);
    if (utilization->measured_at > 0) {
        weir_root_busy(root, busy_share(&utilization->thread, &thread, span),
                       now);
        log_report_backoff(root, log, before.report_backoff);
    }
    utilization->measured_at = now;
    utilization->thread = thread;
}
