/* SPDX-License-Identifier: MIT
 * bench/harness.c - rounds, batches, JSON.
 *
 * The problem: these machines are shared, their clocks and neighbours change
 * within a second, and a figure in nanoseconds from one minute says little
 * about a figure from the next. The ratio of a row to its floor measured a
 * moment before is stable. So the rows of a group are measured in turn, round
 * after round:
 *
 *     round 1   floor  ours  peer  peer
 *     round 2   floor  ours  peer  peer
 *     ...
 *
 * and the reader of the document divides within a round, then takes the median
 * of the quotients. All rounds are written, so that the spread is visible too.
 *
 * One thread is timed by the processor time it used, without the time that a
 * neighbour on the same processor took. Two threads that contend for a line are
 * timed by the wall clock: a thread that is not running doesn't contend, and
 * would make the line look cheap. A round in which wall and processor time
 * differ is thrown away and measured again, a few times at most, and the row
 * counts the rounds that stayed disturbed.
 *
 * Rejected: the fastest round (hides rare slow paths), and one long run for
 * each row (the neighbours' load then decides the ranking). */

#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "peer.h"

#define ROUNDS_MAX 101
#define ROWS_MAX 48
#define CHUNK 512      /* operations between two checks of the stop flag */
#define DISTURBED 1.10 /* wall time over processor time */
#define ATTEMPTS 6

/* One measurement. */
struct sample {
    double ns; /* per operation and thread */
    bool disturbed;
};

/* A row while its group runs. */
struct row_run {
    const struct bench_row *row;
    void *state;
    const char *note; /* reason for missing figures, or NULL */
    uint64_t batch;   /* operations */
    double ns[ROUNDS_MAX];
    unsigned disturbed;
};

/* Two threads on one body. */
struct race {
    const struct bench_row *row;
    void *state;
    uint64_t batch;
    atomic_int arrived;
    atomic_bool stop;
    struct race_thread {
        struct race *race;
        int index;
        uint64_t done;
        uint64_t wall_ns;
        uint64_t cpu_ns;
    } threads[2];
};

static uint64_t clock_ns(clockid_t id)
{
    struct timespec at;
    clock_gettime(id, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

void bench_pin(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

void *bench_pages(size_t size)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    return pages;
}

void bench_pages_free(void *pages, size_t size)
{
    if (pages != NULL)
        munmap(pages, size);
}

static void *race_main(void *argument)
{
    struct race_thread *self = argument;
    struct race *race = self->race;
    bench_pin(self->index);
    atomic_fetch_add(&race->arrived, 1);
    while (atomic_load(&race->arrived) < 2)
        sched_yield();
    uint64_t wall = clock_ns(CLOCK_MONOTONIC);
    uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t done = 0;
    while (!atomic_load_explicit(&race->stop, memory_order_relaxed)) {
        race->row->body(race->state, self->index, CHUNK);
        done += CHUNK;
        if (done >= race->batch)
            atomic_store_explicit(&race->stop, true, memory_order_relaxed);
    }
    self->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    self->wall_ns = clock_ns(CLOCK_MONOTONIC) - wall;
    self->done = done;
    return NULL;
}

/* Both stop when the first has done its batch, so there is no tail in which one
 * thread has the line alone. */
static struct sample race_measure(const struct row_run *run, uint64_t batch)
{
    struct race race = { .row = run->row, .state = run->state, .batch = batch };
    pthread_t ids[2];
    for (int i = 0; i < 2; i++) {
        race.threads[i].race = &race;
        race.threads[i].index = i;
        if (pthread_create(&ids[i], NULL, race_main, &race.threads[i]) != 0)
            abort();
    }
    uint64_t wall = 0, cpu = 0, done = 0;
    for (int i = 0; i < 2; i++) {
        pthread_join(ids[i], NULL);
        wall += race.threads[i].wall_ns;
        cpu += race.threads[i].cpu_ns;
        done += race.threads[i].done;
    }
    return (struct sample){
        .ns = (double)wall / (double)done,
        .disturbed = (double)wall > DISTURBED * (double)cpu,
    };
}

static struct sample measure(const struct row_run *run, uint64_t batch)
{
    const struct bench_row *row = run->row;
    if (row->peer != NULL) {
        struct sample sample = { 0 };
        sample.ns =
            bench_peer_ask(row->peer, row->request, batch, &sample.disturbed);
        return sample;
    }
    if (row->between != NULL)
        row->between(run->state);
    if (row->threads == 2)
        return race_measure(run, batch);
    uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    row->body(run->state, 0, batch);
    cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return (struct sample){ .ns = (double)cpu / (double)batch };
}

/* Warms the row up and finds the number of operations of a batch. */
static void row_calibrate(struct row_run *run, uint64_t batch_min,
                          uint64_t batch_ns)
{
    uint64_t batch = 4096;
    for (int i = 0; i < 12; i++) {
        struct sample sample = measure(run, batch);
        if (sample.ns < 0) {
            run->note = "the peer's program failed";
            return;
        }
        double took = sample.ns * (double)batch;
        if (took >= 0.5 * (double)batch_ns) {
            batch = (uint64_t)((double)batch_ns / sample.ns);
            break;
        }
        if (run->row->batch_max != 0 && batch * 4 > run->row->batch_max)
            break;
        batch *= 4;
    }
    if (run->row->batch_max != 0 && batch > run->row->batch_max)
        batch = run->row->batch_max;
    if (batch < batch_min) {
        measure(run, batch_min);
        batch = batch_min;
    }
    run->batch = batch;
}

static void row_measure(struct row_run *run, unsigned round)
{
    struct sample sample = { .disturbed = true };
    for (int i = 0; i < ATTEMPTS && sample.disturbed; i++)
        sample = measure(run, run->batch);
    run->ns[round] = sample.ns;
    run->disturbed += sample.disturbed;
}

/* The rows of a group share a fixture's state. */
static void rows_setup(struct row_run *runs, size_t count,
                       const struct bench_options *options)
{
    for (size_t i = 0; i < count; i++) {
        const struct bench_row *row = runs[i].row;
        if (row->peer != NULL)
            runs[i].note = bench_peer_start(row->peer, options->peer_dir);
        if (row->fixture == NULL)
            continue;
        size_t first = 0;
        while (runs[first].row->fixture != row->fixture)
            first++;
        if (first < i) {
            runs[i].state = runs[first].state;
            runs[i].note = runs[first].note;
            continue;
        }
        runs[i].state = row->fixture->setup(&runs[i].note);
        if (runs[i].state == NULL && runs[i].note == NULL)
            runs[i].note = "not enough memory";
    }
}

static void rows_teardown(struct row_run *runs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct bench_row *row = runs[i].row;
        void *state = runs[i].state;
        if (row->peer != NULL && runs[i].note == NULL)
            bench_peer_rest(row->peer);
        if (row->fixture == NULL || state == NULL)
            continue;
        for (size_t k = i; k < count; k++)
            if (runs[k].state == state)
                runs[k].state = NULL;
        row->fixture->teardown(state);
    }
}

static void element_begin(bool *first)
{
    printf("%s\n  {", *first ? "" : ",");
    *first = false;
}

static void row_write(const struct row_run *run, const char *group,
                      unsigned rounds, bool *first)
{
    static const char *const roles[] = { "floor", "ours", "peer" };
    static const char *const relations[] = { "plain", "ratio", "difference" };
    const struct bench_row *row = run->row;
    element_begin(first);
    printf("\"id\": \"%s\", \"group\": \"%s\", \"what\": \"%s\", "
           "\"role\": \"%s\", \"unit\": \"ns\", \"threads\": %d, "
           "\"relation\": \"%s\"",
           row->id, group, row->what, roles[row->role], row->threads,
           relations[row->relation]);
    if (row->beside != NULL)
        printf(", \"beside\": \"%s\"", row->beside);
    if (row->target > 0)
        printf(", \"target\": %g", row->target);
    if (run->note != NULL) {
        printf(", \"note\": \"%s\"}", run->note);
        return;
    }
    printf(", \"batch\": %llu, \"disturbed\": %u, \"rounds\": [",
           (unsigned long long)run->batch, run->disturbed);
    for (unsigned i = 0; i < rounds; i++)
        printf("%s%.4g", i == 0 ? "" : ", ", run->ns[i]);
    printf("]}");
}

void bench_group_run(const struct bench_group *group,
                     const struct bench_options *options, bool *first)
{
    if (options->only != NULL && strcmp(options->only, group->name) != 0)
        return;
    if (group->count > ROWS_MAX || options->rounds > ROUNDS_MAX)
        abort();
    struct row_run *runs = calloc(group->count, sizeof(*runs));
    if (runs == NULL)
        abort();
    for (size_t i = 0; i < group->count; i++)
        runs[i].row = &group->rows[i];
    rows_setup(runs, group->count, options);
    for (size_t i = 0; i < group->count; i++)
        if (runs[i].note == NULL)
            row_calibrate(&runs[i], group->batch_min, options->batch_ns);
    for (unsigned round = 0; round < options->rounds; round++)
        for (size_t i = 0; i < group->count; i++)
            if (runs[i].note == NULL)
                row_measure(&runs[i], round);
    for (size_t i = 0; i < group->count; i++)
        row_write(&runs[i], group->name, options->rounds, first);
    rows_teardown(runs, group->count);
    free(runs);
    fflush(stdout);
}

void bench_figure_write(const struct bench_figure *figure, bool *first)
{
    element_begin(first);
    printf("\"id\": \"%s\", \"group\": \"counted\", \"what\": \"%s\", "
           "\"role\": \"ours\", \"unit\": \"%s\", \"relation\": \"plain\"",
           figure->id, figure->what, figure->unit);
    if (figure->target > 0)
        printf(", \"target\": %g", figure->target);
    if (figure->note != NULL)
        printf(", \"note\": \"%s\"}", figure->note);
    else
        printf(", \"rounds\": [%.6g]}", figure->value);
}
