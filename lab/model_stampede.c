/* SPDX-License-Identifier: MIT
 * lab/model_stampede.c - thousands of clients are told to return at one
 * instant.
 *
 * Each client makes one call. All arrive within the first window, more than it
 * allows. A refused client waits as long as the answer says, plus a random part
 * of up to 'jitter' of that, and tries again until it passes. Weir's own
 * replies have a jitter of a quarter. */

#include "lab/memory.h"
#include "lab/model.h"
#include "lab/model_algorithm.h"
#include "lab/world.h"

#define PEAK_SPAN (10 * WEIR_MILLISECOND)

enum { ALGORITHM, CLIENTS, LIMIT, WINDOW, JITTER };
static const struct weir_model_field fields[] = {
    { .name = "algorithm",
      .kind = WEIR_MODEL_WORD,
      .preset = 3,
      .words = weir_model_algorithms,
      .sentence = "what refuses" },
    { .name = "clients",
      .kind = WEIR_MODEL_COUNT,
      .preset = 5000,
      .min = 1,
      .max = 1000000,
      .sentence = "each makes one call" },
    { .name = "limit",
      .kind = WEIR_MODEL_COUNT,
      .preset = 1000,
      .min = 1,
      .max = WEIR_ENTRIES_MAX,
      .sentence = "calls that pass in a window" },
    { .name = "window",
      .kind = WEIR_MODEL_DURATION,
      .preset = 10e9,
      .sentence = "that the limit is of" },
    { .name = "jitter",
      .kind = WEIR_MODEL_SHARE,
      .preset = 0.25,
      .sentence = "of the wait that a client was told, at most" },
    { .name = NULL },
};

enum { PEAK, PEAK_SHARE, TRIES, DONE };
static const struct weir_model_metric metrics[] = {
    { "peak_10ms", "most calls that come within any 10 ms" },
    { "peak_share", "the same, over all clients" },
    { "tries", "calls that a client makes until it passes, mean" },
    { "done_s", "seconds until all have passed" },
    { NULL, NULL },
};

enum { OFFERED, PASSED };
static const struct weir_model_series series[] = {
    { "offered", "calls a second", true },
    { "passed", "calls a second", true },
    { NULL, NULL, false },
};

struct crowd {
    struct weir_model_run *run;
    struct weir_world world;
    struct weir_model_algorithm bucket_state;
    weir_instant recent[1 << 20]; /* of the last calls, a ring */
    size_t calls, first, peak;
    size_t waiting;
    weir_instant done;
};

struct client {
    struct weir_part part; /* first: the world's handle */
    struct crowd *crowd;
};

static void note_call(struct crowd *crowd, weir_instant now)
{
    size_t size = WEIR_COUNT_OF(crowd->recent);
    crowd->recent[crowd->calls++ % size] = now;
    while (now - crowd->recent[crowd->first % size] >= PEAK_SPAN)
        crowd->first++;
    size_t here = crowd->calls - crowd->first;
    crowd->peak = here > crowd->peak ? here : crowd->peak;
}

static void make_call_of_client(struct weir_part *part, weir_instant world_now)
{
    struct crowd *crowd = ((struct client *)part)->crowd;
    struct weir_model_run *run = crowd->run;
    weir_instant now = world_now - WEIR_WORLD_START;
    note_call(crowd, now);
    weir_model_add(run, OFFERED, now, 1);
    struct weir_algorithm_answer answer = weir_model_algorithm_decide(
        &crowd->bucket_state, WEIR_ALGORITHM_TAKE, 1, now);
    if (answer.passed) {
        weir_model_add(run, PASSED, now, 1);
        weir_assert(crowd->waiting > 0);
        crowd->waiting--;
        crowd->done = now;
        return;
    }
    double longer = run->values[JITTER] * (double)answer.retry_after;
    weir_duration jitter =
        weir_rng_below(&crowd->world.rng, (uint64_t)longer + 1);
    weir_world_wake(&crowd->world, part,
                    world_now + answer.retry_after + jitter);
}

static void play_stampede(struct weir_model_run *run)
{
    const double *values = run->values;
    uint64_t limit = (uint64_t)values[LIMIT];
    size_t count = (size_t)values[CLIENTS];
    weir_duration window = (weir_duration)values[WINDOW];
    struct crowd *crowd = weir_must_zeroed(1, sizeof *crowd);
    struct client *clients = weir_must_zeroed(count, sizeof *clients);
    crowd->run = run;
    crowd->waiting = count;
    weir_world_init(&crowd->world, run->seed);
    weir_model_algorithm_init(&crowd->bucket_state, (size_t)values[ALGORITHM],
                              limit, window, limit, limit);
    for (size_t i = 0; i < count; i++) {
        clients[i] = (struct client){ .part = { .name = "client",
                                                .run = make_call_of_client },
                                      .crowd = crowd };
        weir_duration at = weir_rng_below(&crowd->world.rng, window);
        weir_world_wake(&crowd->world, &clients[i].part, WEIR_WORLD_START + at);
    }
    while (crowd->waiting > 0 &&
           weir_world_step(&crowd->world, WEIR_WORLD_START + run->span))
        continue;
    run->metrics[PEAK] = (double)crowd->peak;
    run->metrics[PEAK_SHARE] = (double)crowd->peak / (double)count;
    run->metrics[TRIES] = (double)crowd->calls / (double)count;
    if (crowd->waiting == 0)
        run->metrics[DONE] = (double)crowd->done / 1e9;
    run->events = crowd->world.events;
    run->takes = crowd->calls;
    weir_model_algorithm_fini(&crowd->bucket_state);
    weir_world_fini(&crowd->world);
    free(clients);
    free(crowd);
}

const struct weir_model weir_model_stampede = {
    .name = "stampede",
    .sentence = "thousands who wait for one reset",
    .fields = fields,
    .metrics = metrics,
    .series = series,
    .play = play_stampede,
};
