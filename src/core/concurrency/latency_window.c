/* SPDX-License-Identifier: MIT
 * concurrency/latency_window.c - the latencies of one window in bins.
 *
 * An octave (a doubling of the latency) has 32 bins of equal width; below 1,024
 * ns all is one bin. A bin keeps the sum of its latencies beside their count,
 * so that a percentile among equal latencies is that latency: with evenly
 * spaced requests that is the usual case.
 *
 *     ns   0 … 1023 | 1024 1056 1088 … 2016 | 2048 2112 …        2^39
 *     bin     0     |   1    2    3  …  32  |  33   34  …         929
 *
 * Rejected: keeping the samples and selecting (exact, but 17 us for 1,000 of
 * them, while a walk over the bins takes less than one; and unbounded if a
 * window is closed by its age); t-digest, P² (worse by far for windows of some
 * hundred samples). The chance in 320 samples moves their p95 by 6 % (sd), so
 * the bin width doesn't limit the precision. */

#include "core/concurrency/latency_window.h"

#include <string.h>

#define SUB_BITS 5 /* of bins an octave */
#define LOW_BITS 10
#define MILLION 1000000u

void weir_latency_window_init(struct weir_latency_window *window)
{
    memset(window, 0, sizeof(*window));
    window->first = WEIR_WINDOW_BINS;
}

void weir_latency_window_clear(struct weir_latency_window *window)
{
    for (uint32_t i = window->first; i <= window->last; i++) {
        window->sum_of[i] = 0;
        window->count_of[i] = 0;
    }
    window->samples = window->slow = 0;
    window->sum = 0;
    window->first = WEIR_WINDOW_BINS;
    window->last = 0;
    weir_assert(window->samples == 0);
}

static uint32_t latency_bin(weir_duration latency)
{
    if (latency < 1u << LOW_BITS)
        return 0;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(latency);
    uint32_t sub =
        (uint32_t)(latency >> (octave - SUB_BITS)) & ((1u << SUB_BITS) - 1);
    return 1 + ((octave - LOW_BITS) << SUB_BITS) + sub;
}

void weir_latency_window_add(struct weir_latency_window *window,
                             weir_duration latency, bool slow, uint32_t count)
{
    weir_assert(latency <= WEIR_LATENCY_MAX);
    uint32_t room = WEIR_WINDOW_SAMPLES_MAX - window->samples;
    count = count < room ? count : room;
    if (count == 0)
        return;
    uint32_t bin = latency_bin(latency);
    weir_assert(bin < WEIR_WINDOW_BINS);
    window->first = bin < window->first ? bin : window->first;
    window->last = bin > window->last ? bin : window->last;
    window->sum_of[bin] += latency * count;
    window->count_of[bin] += count;
    window->sum += latency * count;
    window->samples += count;
    window->slow += slow ? count : 0;
    weir_audit(window->slow <= window->samples &&
               window->samples <= WEIR_WINDOW_SAMPLES_MAX);
}

weir_duration weir_latency_bin_middle(uint32_t bin)
{
    weir_assert(bin < WEIR_WINDOW_BINS);
    if (bin == 0)
        return (1u << LOW_BITS) / 2;
    uint32_t octave = LOW_BITS + ((bin - 1) >> SUB_BITS);
    weir_duration width = (weir_duration)1 << (octave - SUB_BITS);
    weir_duration sub = (bin - 1) & ((1u << SUB_BITS) - 1);
    weir_duration middle =
        ((weir_duration)1 << octave) + sub * width + width / 2;
    return middle < WEIR_LATENCY_MAX ? middle : WEIR_LATENCY_MAX;
}

size_t weir_latency_window_counts(const struct weir_latency_window *window,
                                  struct weir_latency_count *out)
{
    size_t count = 0;
    for (uint32_t i = window->first; i <= window->last; i++)
        if (window->count_of[i] > 0)
            out[count++] =
                (struct weir_latency_count){ i, window->count_of[i] };
    weir_assert(count <= WEIR_WINDOW_BINS);
    return count;
}

void weir_latency_window_merge(struct weir_latency_window *window,
                               const struct weir_latency_batch *batch)
{
    uint32_t before = window->samples;
    for (size_t i = 0; i < batch->count; i++)
        weir_latency_window_add(window,
                                weir_latency_bin_middle(batch->bins[i].bin),
                                false, batch->bins[i].count);
    uint32_t added = window->samples - before;
    window->slow += batch->slow < added ? batch->slow : added;
    weir_assert(window->slow <= window->samples);
}

uint32_t weir_percentile_millionths(double percentile)
{
    return (uint32_t)(percentile * (MILLION / 100) + 0.5);
}

/* Counted from the least, the first being 1. */
static uint32_t percentile_rank(uint32_t samples, uint32_t millionths)
{
    weir_assert(millionths <= MILLION);
    return (uint32_t)(((uint64_t)samples * millionths + MILLION - 1) / MILLION);
}

uint32_t weir_latency_window_trip(uint32_t samples, uint32_t millionths)
{
    weir_assert(samples > 0);
    weir_audit(millionths > 0);
    return samples - percentile_rank(samples, millionths) + 1;
}

/* Counts from above; the wanted sample exists. */
weir_duration weir_latency_window_percentile(
    const struct weir_latency_window *window, uint32_t millionths)
{
    if (window->samples == 0)
        return 0;
    uint32_t left = weir_latency_window_trip(window->samples, millionths);
    uint32_t bin = window->last;
    while (window->count_of[bin] < left) {
        weir_audit(bin > window->first);
        left -= window->count_of[bin];
        bin--;
    }
    weir_assert(window->count_of[bin] > 0);
    return window->sum_of[bin] / window->count_of[bin];
}
