/* SPDX-License-Identifier: MIT
 * front/utilization.h - measures the utilization of the loop's thread. */

#ifndef WEIR_UTILIZATION_H
#define WEIR_UTILIZATION_H

#include "core/node/root.h"
#include "front/log.h"
#include "io/clock.h"

struct weir_utilization {
    weir_instant measured_at;       /* time of the last measurement; 0: never
                                     * … */
    struct weir_thread_time thread; /* … and the CPU time used until then */
};

/* To be called by the loop's thread in each turn: reports the utilization to
 * the root once a second, and to the log when the root changes its report
 * backoff. */
void weir_utilization_measure(struct weir_utilization *utilization,
                              struct weir_root *root, struct weir_log *log,
                              weir_instant now);

#endif /* WEIR_UTILIZATION_H */
