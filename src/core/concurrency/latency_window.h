/* SPDX-License-Identifier: MIT
 * concurrency/latency_window.h - the latencies of one window, and their
 * percentiles.
 *
 * Memory is fixed however many samples come. A percentile is exact if all
 * samples in its bin are equal, and else the mean of that bin (a bin's ends are
 * 1/32 of it apart). The number of samples above a bound is counted apart from
 * the bins, so it is always exact.
 *
 * A batch is what a window has got, in short form: on its way to the window of
 * another machine, where the latencies of several come together. A latency is
 * then the middle of its bin, so within 1.6 % of it; how many are slow, as the
 * sender has it, stays exact.
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

struct weir_latency_count {
    uint32_t bin; /* below WEIR_WINDOW_BINS */
    uint32_t count;
};

/* Latencies for another window, and what goes with them. */
struct weir_latency_batch {
    uint64_t cut;  /* the decrease of the limit that the process knew when
                          * all of these requests began; 0: none */
    uint32_t slow; /* of the requests: over the setpoint, or dropped */
    uint32_t dropped;
    uint32_t peak;             /* the most in flight when one of them began */
    uint32_t overdue;          /* requests that haven't come back … */
    weir_duration overdue_age; /* … for at least so long */
    size_t count;              /* bins; 0: no request has come back */
    const struct weir_latency_count *bins; /* ascending; counts above 0, at most
                                            * WEIR_WINDOW_SAMPLES_MAX in all */
};

/* Empties uninitialized memory. */
void weir_latency_window_init(struct weir_latency_window *window);
/* Empties a window that was in use: touches only used bins. */
void weir_latency_window_clear(struct weir_latency_window *window);
/* Adds 'count' samples of one latency (at most WEIR_LATENCY_MAX), as many as
 * there is room for. */
void weir_latency_window_add(struct weir_latency_window *window,
                             weir_duration latency, bool slow, uint32_t count);

/* Writes the counts of a window's bins, ascending; room for WEIR_WINDOW_BINS.
 * Returns how many. */
size_t weir_latency_window_counts(const struct weir_latency_window *window,
                                  struct weir_latency_count *out);
/* Adds a batch, as far as there is room; 'slow' above the number of requests
 * counts as that number. */
void weir_latency_window_merge(struct weir_latency_window *window,
                               const struct weir_latency_batch *batch);
/* The latency that stands for a bin: its middle. */
weir_duration weir_latency_bin_middle(uint32_t bin);

/* A percentile in millionths, 1 .. 10^6, for the functions below. */
uint32_t weir_percentile_millionths(double percentile);
/* How many of 'samples' (> 0) must be above a bound for the percentile to be
 * above it, by nearest rank: with 320 and 95 % it is 17. */
uint32_t weir_latency_window_trip(uint32_t samples, uint32_t millionths);
/* The percentile; 0 of an empty window. */
weir_duration weir_latency_window_percentile(
    const struct weir_latency_window *window, uint32_t millionths);

#endif /* WEIR_LATENCY_WINDOW_H */
