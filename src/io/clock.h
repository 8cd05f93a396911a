/* SPDX-License-Identifier: MIT
 * io/clock.h - the machine's clocks and random numbers. */

#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

#include <pthread.h>
#include <sys/time.h>

#include "core/base/base.h"

/* CLOCK_MONOTONIC. Never 0. Async-signal-safe, wait-free. */
weir_instant weir_clock_now(void);
/* CLOCK_BOOTTIME: as weir_clock_now(), but it goes on while the machine sleeps.
 * For deadlines that other hosts rely on, such as a lease's. Never compare it
 * with an instant of weir_clock_now(). */
weir_instant weir_clock_boot(void);
/* Nanoseconds since 1970 in UTC, by the machine's wall clock, which may be
 * set. */
uint64_t weir_clock_wall(void);
/* The difference between weir_clock_wall() and weir_clock_now(),
 * modulo 2^64: it changes when the clock is set. */
uint64_t weir_clock_wall_offset(void);
/* An instant of weir_clock_now() for the system's calls, at most 146 years; and
 * a duration for libevent's, rounded down to microseconds. */
struct timespec weir_timespec_of(weir_instant at);
struct timeval weir_timeval_of(weir_duration duration);
/* A condition whose deadlines are instants of weir_clock_now(). */
void weir_condition_init(pthread_cond_t *condition);
/* The time that the calling thread has run, and has waited for a processor,
 * since its start; the rest of the time it was idle. If the kernel doesn't
 * report waits (CONFIG_SCHEDSTATS) they are 0. */
struct weir_thread_time {
    weir_duration ran;
    weir_duration waited;
};
struct weir_thread_time weir_clock_thread(void);
/* Fills 'buf' from getrandom(); aborts if that fails. */
void weir_entropy(void *buf, size_t size);
/* malloc behind struct weir_mem. */
extern const struct weir_mem weir_mem_system;

#endif /* WEIR_CLOCK_H */
