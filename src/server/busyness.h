/* SPDX-License-Identifier: MIT
 * server/busyness.h - how busy the loop's thread is, told to the root. */

#ifndef WEIR_BUSYNESS_H
#define WEIR_BUSYNESS_H

#include "node/root.h"
#include "os/clock.h"
#include "server/log.h"

struct weir_busyness {
    weir_instant measured_at;       /* when last; 0: never … */
    struct weir_thread_time thread; /* … and what it had worked then */
};

/* To be called in each turn, by the thread: tells the root once a second, and
 * the log when the root has changed its mind. */
void weir_busyness_measure(struct weir_busyness *busyness,
                           struct weir_root *root, struct weir_log *log,
                           weir_instant now);

#endif /* WEIR_BUSYNESS_H */
