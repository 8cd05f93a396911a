/* SPDX-License-Identifier: MIT
 * os/clock.h - the instants and the chance of the machine. */

#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

#include "base/base.h"

/* CLOCK_MONOTONIC. Never 0. Async-signal-safe, wait-free. */
weir_instant weir_clock_now(void);
/* How long the calling thread has run, or waited for a processor to run on,
 * ever: the rest of the time it had nothing to do. */
weir_duration weir_clock_busy(void);
/* Fills 'buf' from getrandom(); aborts when the kernel has none. */
void weir_entropy(void *buf, size_t size);
/* malloc behind struct weir_mem. */
extern const struct weir_mem weir_mem_system;

#endif /* WEIR_CLOCK_H */
