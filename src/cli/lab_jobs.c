/* SPDX-License-Identifier: MIT
 * cli/lab_jobs.c - many seeds at once, with results in the seeds' order.
 *
 * A run shares nothing with another, so each has a thread. Its result is kept
 * in a ring until its turn has come:
 *
 *      seed   first ....... heard .......... claimed ....... last
 *                           |<--- ring ----->|
 *
 * Threads claim the next seed while the ring has room, so that memory is
 * bounded while one slow seed holds back the results after it.
 *
 * A failed assertion in a run ends the whole process: memory is wrong then, and
 * going on would prove nothing. But the seed must be known: each thread keeps
 * the command that replays its run, and the signal's handler writes it. */

#include "cli/lab_command.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "lab/memory.h"

#define JOBS_MAX 256
#define SEEDS_MAX 1000000 /* in one command */
#define REPLAY_MAX 1024
#define BAR_WIDTH 24
#define BAR_PAUSE (100 * WEIR_MILLISECOND)

/* A run, in its place of the ring. */
struct weir_lab_progress {
    struct pool *pool;
    double part;
    bool made;    /* 'result' is there */
    void *result; /* owned */
};

struct pool {
    const struct weir_lab_jobs *jobs;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t moved; /* a seed was claimed, or its result made or passed
                           * on */
    uint64_t count;       /* of seeds; the indices below begin at 0 */
    uint64_t claimed, finished;
    bool over;                      /* no more results are wanted */
    struct weir_lab_progress *ring; /* owned; by index */
    size_t ring_size;
    bool bar;
    weir_instant bar_at; /* last drawn */
};

/* ---- Crashes ---- */

static _Thread_local char replay_text[REPLAY_MAX];

static void on_crash(int signal_number)
{
    (void)signal_number;
    /* If the text can't be written, nothing can be done about it. */
    ssize_t written = write(STDERR_FILENO, replay_text, strlen(replay_text));
    (void)written;
    /* Returns to the cause of the signal, which now ends the process. */
}

static void watch_crashes(void)
{
    static const int signals[] = { SIGILL,  SIGTRAP, SIGABRT,
                                   SIGSEGV, SIGBUS,  SIGFPE };
    struct sigaction action = { .sa_handler = on_crash,
                                .sa_flags = SA_RESETHAND };
    for (size_t i = 0; i < WEIR_COUNT_OF(signals); i++)
        sigaction(signals[i], &action, NULL);
}

static void note_replay(const struct weir_lab_jobs *jobs, uint64_t seed)
{
    char command[REPLAY_MAX - 128];
    jobs->replay(jobs->context, seed, command, sizeof command);
    snprintf(replay_text, sizeof replay_text,
             "\nweir: the run of seed %" PRIu64 " died, most likely by an "
             "assertion; again: %s\n",
             seed, command);
}

/* ---- The bar ---- */

/* The caller holds the lock. */
static void clear_bar(struct pool *pool)
{
    if (pool->bar && pool->bar_at)
        fputs("\r\033[K", stderr);
}

static void draw_bar(struct pool *pool)
{
    weir_instant now = weir_clock_now();
    if (!pool->bar || now - pool->bar_at < BAR_PAUSE)
        return;
    pool->bar_at = now;
    double done = (double)pool->finished;
    for (uint64_t i = pool->finished; i < pool->claimed; i++)
        done += pool->ring[i % pool->ring_size].made
                    ? 1
                    : pool->ring[i % pool->ring_size].part;
    double part = done / (double)pool->count;
    int full = (int)(part * BAR_WIDTH);
    char bar[BAR_WIDTH + 1];
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', (size_t)full);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] %3.0f %%", bar, 100 * part);
    if (pool->count > 1)
        fprintf(stderr, "  %" PRIu64 " of %" PRIu64 " seeds", pool->finished,
                pool->count);
    fflush(stderr);
}

void weir_lab_progress(void *context, double part)
{
    struct weir_lab_progress *progress = context;
    struct pool *pool = progress->pool;
    pthread_mutex_lock(&pool->lock);
    progress->part = part < 0 ? 0 : part > 1 ? 1 : part;
    draw_bar(pool);
    pthread_mutex_unlock(&pool->lock);
}

/* ---- Threads ---- */

/* Whether there is another seed to run; waits for room. The caller holds the
 * lock. */
static bool claim(struct pool *pool, uint64_t *out_index)
{
    while (!pool->over && pool->claimed < pool->count &&
           pool->claimed - pool->finished >= pool->ring_size)
        pthread_cond_wait(&pool->moved, &pool->lock);
    if (pool->over || pool->claimed == pool->count)
        return false;
    *out_index = pool->claimed++;
    weir_assert(pool->claimed - pool->finished <= pool->ring_size);
    pool->ring[*out_index % pool->ring_size] =
        (struct weir_lab_progress){ .pool = pool };
    return true;
}

static void *run_worker(void *context)
{
    struct pool *pool = context;
    const struct weir_lab_jobs *jobs = pool->jobs;
    uint64_t index;
    pthread_mutex_lock(&pool->lock);
    while (claim(pool, &index)) {
        struct weir_lab_progress *run = &pool->ring[index % pool->ring_size];
        pthread_mutex_unlock(&pool->lock);
        note_replay(jobs, jobs->first + index);
        void *made = jobs->run(jobs->context, jobs->first + index, run);
        pthread_mutex_lock(&pool->lock);
        weir_assert(!run->made);
        run->result = made;
        run->made = true;
        pthread_cond_broadcast(&pool->moved);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Passes results on, in order. */
static void pass_results_on(struct pool *pool)
{
    const struct weir_lab_jobs *jobs = pool->jobs;
    pthread_mutex_lock(&pool->lock);
    while (!pool->over && pool->finished < pool->count) {
        struct weir_lab_progress *run =
            &pool->ring[pool->finished % pool->ring_size];
        if (!run->made) {
            pthread_cond_wait(&pool->moved, &pool->lock);
            continue;
        }
        clear_bar(pool);
        /* With the lock: no other thread draws a bar into the output now. */
        pool->over = !jobs->done(jobs->context, jobs->first + pool->finished,
                                 run->result);
        run->made = false;
        pool->finished++;
        weir_assert(pool->finished <= pool->claimed);
        pthread_cond_broadcast(&pool->moved);
    }
    clear_bar(pool);
    pool->bar = false;
    pthread_mutex_unlock(&pool->lock);
}

static void drop_rest(struct pool *pool)
{
    for (size_t i = 0; i < pool->ring_size; i++)
        if (pool->ring[i].made && pool->jobs->drop)
            pool->jobs->drop(pool->jobs->context, pool->ring[i].result);
}

static unsigned thread_count(const struct weir_lab_jobs *jobs, uint64_t seeds)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned threads = jobs->threads    ? jobs->threads
                       : processors > 1 ? (unsigned)processors
                                        : 1;
    if (threads > JOBS_MAX)
        threads = JOBS_MAX;
    return threads < seeds ? threads : (unsigned)seeds;
}

void weir_lab_jobs_run(const struct weir_lab_jobs *jobs)
{
    weir_assert(jobs->first <= jobs->last);
    struct pool pool = { .jobs = jobs,
                         .lock = PTHREAD_MUTEX_INITIALIZER,
                         .moved = PTHREAD_COND_INITIALIZER,
                         .count = jobs->last - jobs->first + 1,
                         .bar = isatty(STDERR_FILENO) };
    unsigned threads = thread_count(jobs, pool.count);
    pool.ring_size = 4 * (size_t)threads;
    weir_assert(threads > 0 && threads <= JOBS_MAX);
    pool.ring = calloc(pool.ring_size, sizeof *pool.ring);
    if (!pool.ring)
        weir_no_memory();
    watch_crashes();
    pthread_t started[JOBS_MAX];
    unsigned running = 0;
    while (running < threads &&
           pthread_create(&started[running], NULL, run_worker, &pool) == 0)
        running++;
    if (running == 0)
        weir_no_memory(); /* not even one thread */
    pass_results_on(&pool);
    for (unsigned i = 0; i < running; i++)
        pthread_join(started[i], NULL);
    drop_rest(&pool);
    free(pool.ring);
}

/* ---- Numbers on the command line ---- */

/* A whole number from 1 to 'max'. */
static int parse_count(const char *option, const char *text, uint64_t max,
                       uint64_t *out)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || value == 0 || value > max)
        return weir_cli_fail("%s %s: write a whole number from 1 to %" PRIu64,
                             option, text, max);
    *out = value;
    return 0;
}

static bool parse_seed(const char **text, uint64_t *out)
{
    char *end;
    errno = 0;
    if (**text < '0' || **text > '9')
        return false;
    *out = strtoull(*text, &end, 10);
    *text = end;
    /* JSON has no larger whole numbers. */
    return errno == 0 && *out <= INT64_MAX;
}

static int parse_seeds(const char *option, const char *text,
                       uint64_t *out_first, uint64_t *out_last)
{
    const char *rest = text;
    uint64_t first, last;
    bool good = parse_seed(&rest, &first);
    last = first;
    if (good && strncmp(rest, "..", 2) == 0) {
        rest += 2;
        good = parse_seed(&rest, &last);
    }
    if (!good || *rest)
        return weir_cli_fail(
            "%s %s: write a number, or FIRST..LAST as in 1..20", option, text);
    if (first > last)
        return weir_cli_fail("%s %s: the first seed is above the last; write "
                             "%" PRIu64 "..%" PRIu64,
                             option, text, last, first);
    if (last - first >= SEEDS_MAX)
        return weir_cli_fail("%s %s: at most %d seeds at once", option, text,
                             SEEDS_MAX);
    *out_first = first;
    *out_last = last;
    return 0;
}

int weir_lab_jobs_parse(struct weir_lab_jobs *jobs, const char *option,
                        const char *seeds, const char *threads,
                        const char *until_event, uint64_t *out_until_event)
{
    uint64_t count = 0;
    int status = parse_seeds(option, seeds, &jobs->first, &jobs->last);
    if (status == 0 && threads)
        status = parse_count("--jobs", threads, JOBS_MAX, &count);
    if (status == 0 && until_event)
        status = parse_count("--until-event", until_event, INT64_MAX,
                             out_until_event);
    jobs->threads = (unsigned)count;
    return status;
}
