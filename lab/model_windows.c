/* SPDX-License-Identifier: MIT
 * lab/model_windows.c - the error of each estimate of "calls in the last
 * minute".
 *
 * One stream of calls, Poisson with bursts, is counted by a bucket state that
 * refuses nothing, and at each call its count is compared with the exact number
 * of calls in the last window. Then a fresh bucket state refuses calls, and its
 * admitted calls are compared with the same exact count. Calls are counted in
 * thousandths, so that an estimate's fraction isn't rounded away. A bucket
 * counts no window: it takes part in the second part only. */

#include <math.h>

#include "io/clock.h"
#include "lab/memory.h"
#include "lab/model.h"
#include "lab/model_algorithm.h"
#include "lab/world.h"

#define THOUSANDTHS 1000
#define TIMED_DECISIONS 1000000

enum { ALGORITHM, LIMIT, WINDOW, LOAD, BURST_TIMES, BURST_ON, BURST_EVERY };
static const struct weir_model_field fields[] = {
    { .name = "algorithm",
      .kind = WEIR_MODEL_WORD,
      .preset = 5,
      .words = weir_model_algorithms,
      .sentence = "what counts" },
    { .name = "limit",
      .kind = WEIR_MODEL_COUNT,
      .preset = 100,
      .min = 1,
      .max = WEIR_ENTRIES_MAX,
      .sentence = "calls that pass in a window" },
    { .name = "window",
      .kind = WEIR_MODEL_DURATION,
      .preset = 60e9,
      .sentence = "that the limit is of" },
    { .name = "load",
      .kind = WEIR_MODEL_REAL,
      .preset = 0.8,
      .min = 0.001,
      .max = 100,
      .sentence = "calls between bursts, of the limit" },
    { .name = "burst_times",
      .kind = WEIR_MODEL_REAL,
      .preset = 8,
      .min = 1,
      .max = 1000,
      .sentence = "in a burst, times as many" },
    { .name = "burst_on",
      .kind = WEIR_MODEL_DURATION,
      .preset = 5e9,
      .sentence = "how long a burst is" },
    { .name = "burst_every",
      .kind = WEIR_MODEL_DURATION,
      .preset = 97e9,
      .sentence = "from one burst to the next" },
    { .name = NULL },
};

enum { MEAN, OVER, UNDER, MAX, OVER_ADMITTED, NS, BYTES };
static const struct weir_model_metric metrics[] = {
    { "error_mean", "|counted - true| over the limit, mean over calls" },
    { "error_over", "the part counted too much, the same" },
    { "error_under", "the part counted too little, the same" },
    { "error_max", "largest |counted - true| over the limit" },
    { "over_passed", "most calls admitted in any window, over the limit, "
                     "beyond 1" },
    { "ns_per_decision", "nanoseconds a decision, by this machine's clock" },
    { "bytes_per_key", "of state" },
    { NULL, NULL },
};

enum { TRUE_COUNT, COUNTED };
static const struct weir_model_series series[] = {
    { "in_last_window", "calls in the last window", false },
    { "counted", "calls in the last window", false },
    { NULL, NULL, false },
};

/* ---- The calls ---- */

static double rate_at(const double *values, weir_instant now)
{
    weir_duration every = (weir_duration)values[BURST_EVERY];
    bool burst = every > 0 && now % every < (weir_duration)values[BURST_ON];
    double per_ns = values[LOAD] * values[LIMIT] / values[WINDOW];
    return burst ? per_ns * values[BURST_TIMES] : per_ns;
}

/* A Poisson process of varying rate: one of the highest rate, thinned. */
static weir_instant *make_calls(const struct weir_model_run *run,
                                size_t *out_count)
{
    struct weir_world chance;
    weir_world_init(&chance, run->seed);
    const double *values = run->values;
    double highest =
        values[LOAD] * values[LIMIT] / values[WINDOW] * values[BURST_TIMES];
    weir_instant *calls = NULL;
    size_t count = 0, capacity = 0;
    double now = 0;
    for (;;) {
        now += weir_world_exponential(&chance, 1 / highest);
        if (now >= (double)run->span)
            break;
        double part = rate_at(values, (weir_instant)now) / highest;
        if (!weir_world_chance(&chance, part))
            continue;
        calls = weir_must_grow(calls, &capacity, count + 1, sizeof *calls);
        calls[count++] = (weir_instant)now;
    }
    weir_world_fini(&chance);
    *out_count = count;
    return calls;
}

/* ---- Counting without refusals ---- */

static void bucket_state_init(const struct weir_model_run *run,
                              struct weir_model_algorithm *bucket_state,
                              uint64_t scale)
{
    uint64_t limit = (uint64_t)run->values[LIMIT] * scale;
    weir_model_algorithm_init(bucket_state, (size_t)run->values[ALGORITHM],
                              limit, (weir_duration)run->values[WINDOW], limit,
                              limit);
}

/* A bin without calls repeats the last value. */
static void fill_gaps(struct weir_model_run *run, size_t which)
{
    double *samples = run->series[which];
    for (size_t i = 1; i < run->sample_count; i++)
        if (samples[i] == 0)
            samples[i] = samples[i - 1];
}

static void count_all(struct weir_model_run *run, const weir_instant *calls,
                      size_t count)
{
    struct weir_model_algorithm bucket_state;
    bucket_state_init(run, &bucket_state, THOUSANDTHS);
    weir_duration window = (weir_duration)run->values[WINDOW];
    double limit = run->values[LIMIT];
    double over = 0, under = 0, most = 0;
    for (size_t i = 0, first = 0; i < count; i++) {
        while (calls[i] - calls[first] >= window)
            first++;
        struct weir_algorithm_answer answer = weir_model_algorithm_decide(
            &bucket_state, WEIR_ALGORITHM_CHARGE, THOUSANDTHS, calls[i]);
        double truth = (double)(i - first + 1);
        double counted = (double)answer.used / THOUSANDTHS;
        double error = (counted - truth) / limit;
        over += error > 0 ? error : 0;
        under += error < 0 ? -error : 0;
        most = fabs(error) > most ? fabs(error) : most;
        size_t bin = calls[i] / run->step;
        if (bin < run->sample_count) {
            run->series[TRUE_COUNT][bin] = truth;
            run->series[COUNTED][bin] = counted;
        }
    }
    fill_gaps(run, TRUE_COUNT);
    fill_gaps(run, COUNTED);
    run->metrics[MEAN] = (over + under) / (double)count;
    run->metrics[OVER] = over / (double)count;
    run->metrics[UNDER] = under / (double)count;
    run->metrics[MAX] = most;
    weir_model_algorithm_fini(&bucket_state);
}

/* ---- Refusing ---- */

static void refuse_some(struct weir_model_run *run, const weir_instant *calls,
                        size_t count)
{
    struct weir_model_algorithm bucket_state;
    bucket_state_init(run, &bucket_state, 1);
    weir_duration window = (weir_duration)run->values[WINDOW];
    weir_instant *admitted = weir_must_zeroed(count, sizeof *admitted);
    size_t last = 0, first = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        if (!weir_model_algorithm_decide(&bucket_state, WEIR_ALGORITHM_TAKE, 1,
                                         calls[i])
                 .passed)
            continue;
        admitted[last++] = calls[i];
        while (calls[i] - admitted[first] >= window)
            first++;
        most = last - first > most ? last - first : most;
    }
    run->metrics[OVER_ADMITTED] =
        fmax(0, (double)most / run->values[LIMIT] - 1);
    run->metrics[BYTES] = (double)weir_algorithm_size(&bucket_state.rule);
    free(admitted);
    weir_model_algorithm_fini(&bucket_state);
}

/* Over the calls repeatedly, as if the run were cyclic. */
static double ns_per_decision(const struct weir_model_run *run,
                              const weir_instant *calls, size_t count)
{
    struct weir_model_algorithm bucket_state;
    bucket_state_init(run, &bucket_state, 1);
    weir_instant day = 0;
    size_t done = 0;
    weir_instant began = weir_clock_now();
    while (done < TIMED_DECISIONS) {
        for (size_t i = 0; i < count; i++)
            weir_model_algorithm_decide(&bucket_state, WEIR_ALGORITHM_TAKE, 1,
                                        day + calls[i]);
        done += count;
        day += run->span;
    }
    double spent = (double)(weir_clock_now() - began);
    weir_model_algorithm_fini(&bucket_state);
    return spent / (double)done;
}

static bool counts_windows(const struct weir_model_run *run)
{
    struct weir_model_algorithm bucket_state;
    bucket_state_init(run, &bucket_state, 1);
    enum weir_algorithm algorithm = bucket_state.rule.algorithm;
    weir_model_algorithm_fini(&bucket_state);
    return algorithm == WEIR_FIXED_WINDOW || algorithm == WEIR_SLIDING_LOG ||
           algorithm == WEIR_SLIDING_WINDOW;
}

static void play_windows(struct weir_model_run *run)
{
    size_t count;
    weir_instant *calls = make_calls(run, &count);
    if (count == 0)
        return;
    if (counts_windows(run))
        count_all(run, calls, count);
    refuse_some(run, calls, count);
    run->metrics[NS] = ns_per_decision(run, calls, count);
    run->events = run->takes = count;
    free(calls);
}

const struct weir_model weir_model_windows = {
    .name = "windows",
    .sentence = "what each estimate counts, beside the calls of the last "
                "window one by one",
    .fields = fields,
    .metrics = metrics,
    .series = series,
    .play = play_windows,
};
