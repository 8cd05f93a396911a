/* SPDX-License-Identifier: MIT
 * concurrency/latency_window.h - the latencies of one window, and their
 * percentiles.
 *
 * Memory is fixed however many samples come. A percentile is exact if all
 * samples in its bin are equal, and else the mean of that bin (a bin's ends are
 * 1/32 of it apart). The number of samples above a bound is counted apart from
 * the bins, so it is always exact.
 *
 * Plain memory; one thread at a time. */

#ifndef WEIR_LATENCY_WINDOW_H
#define WEIR_LATENCY_WINDOW_H

#include "core/concurrency/controller.h"

#define WEIR_WINDOW_BINS 930

struct weir_latency_window {
    uint32_t samples;     /* at most WEIR_WINDOW_SAMPLES_MAX */
    uint32_t slow;        /* of them, those added as slow */
    uint32_t first, last; /* bins in use; first > last: none */
    uint64_t sum;         /* of all latencies */
    uint64_t sum_of[WEIR_WINDOW_BINS];
    uint32_t count_of[WEIR_WINDOW_BINS];
};

/* Empties uninitialized memory. */
void weir_latency_window_init(struct weir_latency_window *window);
/* Empties a window that was in use: touches only used bins. */
void weir_latency_window_clear(struct weir_latency_window *window);
/* Adds 'count' samples of one latency (at most WEIR_LATENCY_MAX), as many as
 * there is room for. */
void weir_latency_window_add(struct weir_latency_window *window,
                             weir_duration latency, bool slow, uint32_t count);

/* A percentile in millionths, 1 .. 10^6, for the functions below. */
uint32_t weir_percentile_millionths(double percentile);
/* How many of 'samples' (> 0) must be above a bound for the percentile to be
 * above it, by nearest rank: with 320 and 95 % it is 17. */
uint32_t weir_latency_window_trip(uint32_t samples, uint32_t millionths);
/* The percentile; 0 of an empty window. */
weir_duration weir_latency_window_percentile(
    const struct weir_latency_window *window, uint32_t millionths);

#endif /* WEIR_LATENCY_WINDOW_H */
