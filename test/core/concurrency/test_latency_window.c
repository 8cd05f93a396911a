/* SPDX-License-Identifier: MIT
 * test_latency_window.c - windows and batches beside all samples in an array,
 * sorted: counts are exact, percentiles of batches within 1.6 %. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/base/rng.h"
#include "core/concurrency/controller_kind.h"
#include "core/concurrency/latency_window.h"
#include "seed.h"

#define ROUNDS 400
#define SENDERS 12
#define SAMPLES_MAX 4000
#define LOW 1024 /* ns: below it all is one bin */

/* All samples of the senders together. */
struct naive {
    weir_duration samples[SAMPLES_MAX];
    uint32_t count, slow;
    double sum;
};

static int ascending(const void *a, const void *b)
{
    const weir_duration *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Nearest rank: the least sample that is not below so many of a million. */
static weir_duration naive_percentile(struct naive *naive, uint32_t millionths)
{
    uint64_t rank = 1;
    while (rank * 1000000 < (uint64_t)naive->count * millionths)
        rank++;
    return naive->samples[rank - 1];
}

/* Latencies in the first bin are all as good as one. */
static void assert_within(double is, double should, double part)
{
    double off = is > should ? is - should : should - is;
    bool first = is < LOW && should < LOW;
    if (off > part * should && off > LOW / 2. && !first)
        fail_msg("%g ns is more than %g %% off %g ns", is, 100 * part, should);
}

/* The ends of a bin, found by counting from the first. */
static void naive_ends(uint32_t bin, weir_duration *out_from,
                       weir_duration *out_below)
{
    weir_duration from = 0, below = LOW, octave = LOW;
    for (uint32_t i = 0; i < bin; i++) {
        if (below == 2 * octave)
            octave *= 2;
        from = below;
        below += octave / 32;
    }
    *out_from = from;
    *out_below = below;
}

static void bins_have_their_ends(void **state)
{
    (void)state;
    static struct weir_latency_window window;
    struct weir_latency_count count;
    for (uint32_t bin = 0; bin < WEIR_WINDOW_BINS; bin++) {
        weir_duration from, below;
        naive_ends(bin, &from, &below);
        if (bin == WEIR_WINDOW_BINS - 1) {
            assert_int_equal(from, WEIR_LATENCY_MAX);
            below = from + 1; /* the one latency in it */
        }
        const weir_duration ends[] = { from, below - 1 };
        for (int i = 0; i < 2; i++) {
            weir_latency_window_init(&window);
            weir_latency_window_add(&window, ends[i], false, 1);
            assert_int_equal(weir_latency_window_counts(&window, &count), 1);
            assert_int_equal(count.bin, bin);
            assert_within((double)weir_latency_bin_middle(bin), (double)ends[i],
                          0.016);
        }
    }
}

/* A latency of one of some forms: spread over all magnitudes, near one value,
 * the same again and again, at the ends of bins. */
static weir_duration some_latency(struct weir_rng *rng, uint64_t form)
{
    weir_duration base = 20 * WEIR_MILLISECOND;
    if (form == 0)
        return weir_rng_below(rng, WEIR_LATENCY_MAX + 1) >>
               weir_rng_below(rng, 40);
    if (form == 1)
        return base + weir_rng_below(rng, base / 2);
    if (form == 2)
        return base;
    return ((weir_duration)1 << (10 + weir_rng_below(rng, 29))) -
           weir_rng_below(rng, 2);
}

static void fill(struct weir_rng *rng, struct weir_latency_window *window,
                 struct naive *naive)
{
    uint64_t form = weir_rng_below(rng, 4);
    weir_latency_window_clear(window);
    for (uint64_t n = weir_rng_below(rng, 100); n > 0; n--) {
        weir_duration latency = some_latency(rng, form);
        bool slow = weir_rng_below(rng, 3) == 0;
        uint32_t count = 1 + (uint32_t)weir_rng_below(rng, 3);
        weir_latency_window_add(window, latency, slow, count);
        for (uint32_t i = 0; i < count; i++)
            naive->samples[naive->count++] = latency;
        naive->slow += slow ? count : 0;
        naive->sum += (double)latency * count;
    }
}

static void compare(const struct weir_latency_window *window,
                    struct naive *naive, double part)
{
    static const uint32_t millionths[] = { 1,      1000,   500000, 950000,
                                           990000, 999900, 1000000 };
    assert_int_equal(window->samples, naive->count);
    assert_int_equal(window->slow, naive->slow);
    qsort(naive->samples, naive->count, sizeof(*naive->samples), ascending);
    if (naive->count > 0)
        assert_within((double)window->sum / window->samples,
                      naive->sum / naive->count, part);
    for (size_t i = 0; naive->count > 0 && i < WEIR_COUNT_OF(millionths); i++)
        assert_within(
            (double)weir_latency_window_percentile(window, millionths[i]),
            (double)naive_percentile(naive, millionths[i]), part);
}

/* Several windows, each sent as a batch, become one. */
static void batches_become_one_window(void **state)
{
    (void)state;
    static struct weir_latency_window one, all, own;
    static struct weir_latency_count counts[WEIR_WINDOW_BINS];
    static struct naive naive, alone;
    struct weir_rng rng = made_seed("latency_window");
    weir_latency_window_init(&one);
    weir_latency_window_init(&own);
    weir_latency_window_init(&all);
    for (int i = 0; i < ROUNDS; i++) {
        weir_latency_window_clear(&all);
        naive = (struct naive){ .count = 0 };
        for (uint64_t n = 1 + weir_rng_below(&rng, SENDERS); n > 0; n--) {
            fill(&rng, &one, &naive);
            struct weir_latency_batch batch = {
                .slow = one.slow,
                .count = weir_latency_window_counts(&one, counts),
                .bins = counts,
            };
            uint64_t samples = 0;
            for (size_t k = 0; k < batch.count; k++) {
                assert_true(k == 0 || counts[k].bin > counts[k - 1].bin);
                assert_compare(counts[k].count, >, 0);
                samples += counts[k].count;
            }
            assert_int_equal(samples, one.samples);
            weir_latency_window_merge(&all, &batch);
        }
        compare(&all, &naive, 0.016);
        alone = (struct naive){ .count = 0 };
        fill(&rng, &own, &alone);
        compare(&own, &alone, 1. / 32);
    }
}

/* A second sending changes no count: the middles stay in their bins. */
static void a_batch_of_a_batch_is_the_same(void **state)
{
    (void)state;
    static struct weir_latency_window one, again;
    static struct weir_latency_count first[WEIR_WINDOW_BINS],
        second[WEIR_WINDOW_BINS];
    for (uint32_t i = 0; i < WEIR_WINDOW_BINS; i++)
        first[i] = (struct weir_latency_count){ i, i + 1 };
    struct weir_latency_batch batch = { .count = WEIR_WINDOW_BINS,
                                        .bins = first };
    weir_latency_window_init(&one);
    weir_latency_window_merge(&one, &batch);
    assert_int_equal(weir_latency_window_counts(&one, second),
                     WEIR_WINDOW_BINS);
    assert_memory_equal(first, second, sizeof(first));
    batch.bins = second;
    weir_latency_window_init(&again);
    weir_latency_window_merge(&again, &batch);
    assert_int_equal(again.sum, one.sum);
}

/* The largest batches again and again: no sum overflows, and what has no room
 * isn't counted anywhere. */
static void a_full_window_stays_full(void **state)
{
    (void)state;
    static struct weir_latency_window window;
    const struct weir_latency_count bins[] = {
        { WEIR_WINDOW_BINS - 2, 1 },
        { WEIR_WINDOW_BINS - 1, WEIR_WINDOW_SAMPLES_MAX - 1 }
    };
    const struct weir_latency_batch batch = { .slow = UINT32_MAX,
                                              .count = 2,
                                              .bins = bins };
    weir_latency_window_init(&window);
    weir_latency_window_add(&window, WEIR_LATENCY_MAX, false, 5);
    for (int i = 0; i < 300; i++) {
        weir_latency_window_merge(&window, &batch);
        assert_int_equal(window.samples, WEIR_WINDOW_SAMPLES_MAX);
        assert_int_equal(window.slow, WEIR_WINDOW_SAMPLES_MAX - 5);
        assert_compare(window.sum, <=,
                       WEIR_LATENCY_MAX * WEIR_WINDOW_SAMPLES_MAX);
        assert_int_equal(weir_latency_window_percentile(&window, 1000000),
                         WEIR_LATENCY_MAX);
        assert_compare(weir_latency_window_percentile(&window, 1), >,
                       WEIR_LATENCY_MAX / 64 * 62);
    }
    /* Nothing is left of it. */
    weir_latency_window_clear(&window);
    weir_latency_window_add(&window, 5 * WEIR_SECOND, true, 1);
    assert_int_equal(window.samples, 1);
    assert_int_equal(window.slow, 1);
    assert_int_equal(weir_latency_window_percentile(&window, 1),
                     5 * WEIR_SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bins_have_their_ends),
        cmocka_unit_test(batches_become_one_window),
        cmocka_unit_test(a_batch_of_a_batch_is_the_same),
        cmocka_unit_test(a_full_window_stays_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
