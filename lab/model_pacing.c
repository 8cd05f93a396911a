/* SPDX-License-Identifier: MIT
 * lab/model_pacing.c - waiting work is released at a rate: at which instants?
 *
 * All lines wait from the start, which is a window's beginning; the token
 * bucket is empty then, and never has more than one token. One sender requests
 * a permit for one line after the other; if the bucket state refuses, it waits
 * as long as the answer says. leaky_queue is the queue itself: the lines are
 * pushed, and come out in turn.
 *
 * The model runs it twice: undisturbed, and with a sender that stands still for
 * 'stall' at two instants, as a sender with a slow reader does. Sending takes
 * no time, so an algorithm that releases many lines at once shows it. */

#include <math.h>

#include "core/algorithm/queue.h"
#include "lab/memory.h"
#include "lab/model.h"
#include "lab/model_algorithm.h"

enum { ALGORITHM, LINES, RATE, STALL, STALL_1, STALL_2 };
static const struct weir_model_field fields[] = {
    { .name = "algorithm",
      .kind = WEIR_MODEL_WORD,
      .preset = 2,
      .words = weir_model_algorithms,
      .sentence = "what paces" },
    { .name = "lines",
      .kind = WEIR_MODEL_COUNT,
      .preset = 10000,
      .min = 1,
      .max = 10000000,
      .sentence = "that wait from the start" },
    { .name = "rate",
      .kind = WEIR_MODEL_RATE,
      .preset = 1000,
      .sentence = "at which they are to go" },
    { .name = "stall",
      .kind = WEIR_MODEL_DURATION,
      .preset = 1e9,
      .sentence = "the sender stands still for so long" },
    { .name = "stall_1",
      .kind = WEIR_MODEL_DURATION,
      .preset = 4e9,
      .sentence = "... from then on" },
    { .name = "stall_2",
      .kind = WEIR_MODEL_DURATION,
      .preset = 6e9,
      .sentence = "... and from then on" },
    { .name = NULL },
};

enum {
    PEAK,
    MAX_1S,
    LATER_PEAK,
    STALLED_PEAK,
    STALLED_MAX_1S,
    STALLED_LATER_PEAK,
    WAIT_P99
};
static const struct weir_model_metric metrics[] = {
    { "peak_100ms", "most lines in one tenth of a second" },
    { "max_1s", "most lines in any second" },
    { "later_peak_100ms", "peak_100ms after the first second" },
    { "stalled_peak_100ms", "peak_100ms of the run with stalls" },
    { "stalled_max_1s", "max_1s of the run with stalls" },
    { "stalled_later_peak_100ms", "the same from the first stall on" },
    { "queue_wait_p99_ms",
      "milliseconds that a line waits, 99th percentile, without stalls" },
    { NULL, NULL },
};

enum { RELEASED, STALLED };
static const struct weir_model_series series[] = {
    { "released", "lines a second", true },
    { "stalled", "lines a second", true },
    { NULL, NULL, false },
};

/* ---- One line after the other ---- */

struct sender {
    const struct weir_model_run *run;
    bool stalls;
    bool queued;
    struct weir_model_algorithm bucket_state;
    struct weir_queue *queue; /* owned */
};

static uint64_t pacing_rate(const struct weir_model_run *run)
{
    return (uint64_t)llround(run->values[RATE]);
}

static void sender_init(struct sender *sender, struct weir_model_run *run)
{
    size_t algorithm = (size_t)run->values[ALGORITHM];
    uint64_t rate = pacing_rate(run);
    weir_model_algorithm_init(&sender->bucket_state, algorithm, rate,
                              WEIR_SECOND, 1, 0);
    sender->queued = sender->bucket_state.rule.algorithm == WEIR_LEAKY_QUEUE;
    struct weir_queue_options options = {
        .entries = (uint32_t)run->values[LINES],
        .units = rate,
        .per = WEIR_SECOND,
        .burst = 1,
    };
    void *block = weir_must_zeroed(1, weir_queue_size(&options));
    sender->queue = weir_queue_init(block, &options);
    for (uint32_t i = 0; sender->queued && i < options.entries; i++) {
        struct weir_queue_entry entry = { i, 1, WEIR_NEVER };
        weir_assert(weir_queue_push(sender->queue, &entry) == 0);
    }
}

static void sender_fini(struct sender *sender)
{
    weir_model_algorithm_fini(&sender->bucket_state);
    free(sender->queue);
}

/* The end of a stall if the sender stands still at 'now', else 'now'. */
static weir_instant after_stall(const struct sender *sender, weir_instant now)
{
    const double *values = sender->run->values;
    weir_duration stall = (weir_duration)values[STALL];
    for (int i = STALL_1; sender->stalls && i <= STALL_2; i++) {
        weir_instant from = (weir_instant)values[i];
        if (now >= from && now < from + stall)
            now = from + stall;
    }
    return now;
}

/* The instant of the next line; asked at 'now'. */
static weir_instant next_line_at(struct sender *sender, weir_instant now)
{
    for (;;) {
        now = after_stall(sender, now);
        struct weir_queue_entry entry;
        if (sender->queued) {
            if (weir_queue_next(sender->queue, &entry, now) ==
                WEIR_QUEUE_RELEASED)
                return now;
            now = weir_queue_deadline(sender->queue, now);
            continue;
        }
        struct weir_algorithm_answer answer = weir_model_algorithm_decide(
            &sender->bucket_state, WEIR_ALGORITHM_TAKE, 1, now);
        if (answer.passed)
            return now;
        weir_assert(answer.retry_after > 0 && answer.retry_after < WEIR_NEVER);
        now += answer.retry_after;
    }
}

/* The largest number of the 'count' sorted instants within any 'span'. */
static size_t most_within(const weir_instant *at, size_t count,
                          weir_duration span)
{
    size_t most = 0;
    for (size_t first = 0, last = 0; last < count; last++) {
        while (at[last] - at[first] >= span)
            first++;
        size_t here = last - first + 1;
        most = here > most ? here : most;
    }
    return most;
}

/* The maximum over tenths of a second aligned to the clock, from 'from' on. */
static double peak_tenth(const weir_instant *at, size_t count,
                         weir_instant from)
{
    const weir_duration tenth = WEIR_SECOND / 10;
    size_t most = 0;
    size_t i = 0;
    while (i < count && at[i] < from)
        i++;
    for (size_t first = i; i < count; i++) {
        if (at[i] / tenth != at[first] / tenth)
            first = i;
        size_t here = i - first + 1;
        most = here > most ? here : most;
    }
    return (double)most;
}

static void send_all(struct weir_model_run *run, bool stalls, weir_instant *at)
{
    struct sender sender = { .run = run, .stalls = stalls };
    sender_init(&sender, run);
    size_t count = (size_t)run->values[LINES];
    weir_instant now = 0;
    for (size_t i = 0; i < count; i++) {
        now = next_line_at(&sender, now);
        at[i] = now;
        weir_model_add(run, stalls ? STALLED : RELEASED, now, 1);
    }
    run->events += count;
    sender_fini(&sender);
}

static void play_pacing(struct weir_model_run *run)
{
    size_t count = (size_t)run->values[LINES];
    weir_instant *at = weir_must_zeroed(count, sizeof *at);
    send_all(run, false, at);
    run->metrics[PEAK] = peak_tenth(at, count, 0);
    run->metrics[LATER_PEAK] = peak_tenth(at, count, WEIR_SECOND);
    run->metrics[MAX_1S] = (double)most_within(at, count, WEIR_SECOND);
    run->metrics[WAIT_P99] = (double)at[(count - 1) * 99 / 100] / 1e6;
    send_all(run, true, at);
    run->metrics[STALLED_PEAK] = peak_tenth(at, count, 0);
    run->metrics[STALLED_LATER_PEAK] =
        peak_tenth(at, count, (weir_instant)run->values[STALL_1]);
    run->metrics[STALLED_MAX_1S] = (double)most_within(at, count, WEIR_SECOND);
    free(at);
}

const struct weir_model weir_model_pacing = {
    .name = "pacing",
    .sentence = "lines that wait are let go at a rate, by each algorithm",
    .fields = fields,
    .metrics = metrics,
    .series = series,
    .play = play_pacing,
};
