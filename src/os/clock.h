/* SPDX-License-Identifier: MIT
 * os/clock.h - the instants and the chance of the machine. */

#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

#include "base/base.h"

/* CLOCK_MONOTONIC. Never 0. Async-signal-safe, wait-free. */
weir_instant weir_clock_now(void);
/* CLOCK_BOOTTIME: as weir_clock_now(), but it goes on while the machine sleeps.
 * For what others hold to be over by then, as a lease; never to be compared
 * with an instant of weir_clock_now(). */
weir_instant weir_clock_boot(void);
/* What weir_clock_now() lacks to nanoseconds since 1970 in UTC, modulo 2^64:
 * it moves when somebody sets the clock. */
uint64_t weir_clock_wall_offset(void);
/* How long the calling thread has run, and has waited for a processor to run
 * on, ever; the rest of the time it had nothing to do. Without a kernel that
 * tells (CONFIG_SCHEDSTATS) it never waited. */
struct weir_thread_time {
    weir_duration ran;
    weir_duration waited;
};
struct weir_thread_time weir_clock_thread(void);
/* Fills 'buf' from getrandom(); aborts when the kernel has none. */
void weir_entropy(void *buf, size_t size);
/* malloc behind struct weir_mem. */
extern const struct weir_mem weir_mem_system;

#endif /* WEIR_CLOCK_H */
