/* SPDX-License-Identifier: MIT
 * bench/adapt_rows.c - the concurrency gate, and the end of a window.
 *
 * Instants are artificial, a microsecond apart: the cost of a clock is in
 * another group. The pair is enter and leave with its sample, on the target
 * controller; its windows close in between as in use. Beside it two pairs of a
 * pthread mutex: the cost of the same work with a lock on the way in and on the
 * way out, and a count in it. */

#include "rows.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/concurrency/concurrency_gate.h"

struct gate {
    struct weir_concurrency_gate *open, *full;
    struct weir_concurrency_gate_permit held;
    weir_instant now[2][WEIR_CACHE_LINE / sizeof(weir_instant)];
    pthread_mutex_t mutex;
    uint64_t counted;
    unsigned char *ripe, *judged; /* a controller's block, and room for it */
    size_t bytes;
    weir_instant ripe_at;
};

static struct weir_concurrency_gate *gate_new(double limit)
{
    struct weir_concurrency_gate_options options;
    weir_concurrency_gate_defaults(&options, WEIR_CONTROLLER_TARGET);
    options.controller.initial = limit;
    void *block = NULL;
    if (posix_memalign(&block, WEIR_CACHE_LINE,
                       weir_concurrency_gate_size(&options)) != 0)
        abort();
    return weir_concurrency_gate_init(block, &options, 1);
}

/* A window of 320 samples over two octaves, old enough, with one request still
 * in flight. */
static void ripen(struct gate *gate)
{
    struct weir_controller_options options;
    struct weir_rng rng = { 1 };
    weir_controller_defaults(&options, WEIR_CONTROLLER_TARGET);
    gate->bytes = weir_controller_size(&options);
    gate->ripe = malloc(gate->bytes);
    gate->judged = malloc(gate->bytes);
    if (gate->ripe == NULL || gate->judged == NULL)
        abort();
    struct weir_controller *c =
        weir_controller_init(gate->ripe, &options, WEIR_SECOND);
    for (int i = 0; i < 320; i++) {
        struct weir_sample sample = {
            .latency = (50 + weir_rng_below(&rng, 150)) * WEIR_MILLISECOND,
            .in_flight = 20,
        };
        weir_controller_sample(c, &sample, 2 * WEIR_SECOND);
    }
    gate->ripe_at = 20 * WEIR_SECOND;
}

static void *gate_setup(const char **out_note)
{
    (void)out_note;
    struct gate *gate = calloc(1, sizeof(*gate));
    if (gate == NULL)
        return NULL;
    gate->open = gate_new(1000);
    gate->full = gate_new(1);
    if (!weir_concurrency_gate_enter(gate->full, 0, 1, &gate->held, 1))
        abort();
    pthread_mutex_init(&gate->mutex, NULL);
    gate->now[0][0] = gate->now[1][0] = WEIR_SECOND;
    ripen(gate);
    return gate;
}

static void gate_teardown(void *state)
{
    struct gate *gate = state;
    free(gate->open);
    free(gate->full);
    free(gate->ripe);
    free(gate->judged);
    pthread_mutex_destroy(&gate->mutex);
    free(gate);
}

const struct bench_fixture bench_gate = { gate_setup, gate_teardown };

void bench_gate_pair(void *state, int thread, uint64_t n)
{
    struct gate *gate = state;
    weir_instant now = gate->now[thread][0];
    for (uint64_t i = 0; i < n; i++) {
        struct weir_concurrency_gate_permit permit;
        if (!weir_concurrency_gate_enter(gate->open, 0, 1, &permit, now))
            abort();
        now += 1000;
        weir_concurrency_gate_leave(gate->open, &permit, WEIR_SAMPLE_SUCCESS,
                                    now);
    }
    gate->now[thread][0] = now;
}

void bench_gate_refused(void *state, int thread, uint64_t n)
{
    struct gate *gate = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        struct weir_concurrency_gate_permit permit;
        if (weir_concurrency_gate_enter(gate->full, 0, 1, &permit, 2))
            abort();
        bench_fence();
    }
}

/* The figure includes the copy that makes the window ripe again. */
void bench_window_close(void *state, int thread, uint64_t n)
{
    struct gate *gate = state;
    struct weir_overdue overdue = { .count = 1, .age = WEIR_SECOND };
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(gate->judged, gate->ripe, gate->bytes);
        struct weir_controller *c = (void *)gate->judged;
        if (!weir_controller_tick(c, &overdue, gate->ripe_at))
            abort();
    }
}

void bench_window_copy(void *state, int thread, uint64_t n)
{
    struct gate *gate = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(gate->judged, gate->ripe, gate->bytes);
        bench_fence();
    }
}

void bench_mutex_pairs(void *state, int thread, uint64_t n)
{
    struct gate *gate = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        pthread_mutex_lock(&gate->mutex);
        gate->counted++;
        pthread_mutex_unlock(&gate->mutex);
        pthread_mutex_lock(&gate->mutex);
        gate->counted--;
        pthread_mutex_unlock(&gate->mutex);
    }
}
