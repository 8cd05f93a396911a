/* SPDX-License-Identifier: MIT
 * bench/buckets.c - two peers written in C.
 *
 * The mutex bucket is the usual one: a lock, a double of tokens, a clock. The
 * other is the idea of folly's TokenBucket, from its description: the whole
 * bucket is one number, the instant at which it would have held no token, so
 *
 *     tokens = min(burst, (now - zero) * rate)
 *
 * and taking moves 'zero' forward by compare-and-swap. One word, exact among
 * threads; an instant in a double. Both have a limit that is never reached, as
 * Weir's rows do. */

#include "rows.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define RATE 1e10
#define BURST 1e10

struct buckets {
    struct {
        pthread_mutex_t lock;
        double tokens;
        double last;
        char rest[72];
    } mutex;
    struct word {
        uint64_t zero; /* a double's bits, seconds */
        char rest[120];
    } clocked, given;
    struct {
        double now;
        char rest[120];
    } instants[2];
};

static double seconds(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void *buckets_setup(const char **out_note)
{
    (void)out_note;
    struct buckets *buckets = bench_pages(sizeof(*buckets));
    if (buckets == NULL)
        return NULL;
    pthread_mutex_init(&buckets->mutex.lock, NULL);
    return buckets;
}

static void buckets_teardown(void *state)
{
    bench_pages_free(state, sizeof(struct buckets));
}

const struct bench_fixture bench_buckets = { buckets_setup, buckets_teardown };

static bool mutex_take(struct buckets *buckets, double weight)
{
    pthread_mutex_lock(&buckets->mutex.lock);
    double now = seconds();
    double tokens = buckets->mutex.tokens + (now - buckets->mutex.last) * RATE;
    buckets->mutex.last = now;
    if (tokens > BURST)
        tokens = BURST;
    bool pass = tokens >= weight;
    buckets->mutex.tokens = pass ? tokens - weight : tokens;
    pthread_mutex_unlock(&buckets->mutex.lock);
    return pass;
}

static double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint64_t to_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline bool zero_take(struct word *word, double weight, double now)
{
    uint64_t was = __atomic_load_n(&word->zero, __ATOMIC_RELAXED);
    uint64_t next;
    do {
        double tokens = (now - from_bits(was)) * RATE;
        if (tokens > BURST)
            tokens = BURST;
        if (tokens < weight)
            return false;
        next = to_bits(now - (tokens - weight) / RATE);
    } while (!__atomic_compare_exchange_n(&word->zero, &was, next, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return true;
}

void bench_mutex_clock(void *state, int thread, uint64_t n)
{
    (void)thread;
    for (uint64_t i = 0; i < n; i++)
        bench_keep(mutex_take(state, 1));
}

void bench_zero_clock(void *state, int thread, uint64_t n)
{
    struct buckets *buckets = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++)
        bench_keep(zero_take(&buckets->clocked, 1, seconds()));
}

/* Without a clock: an instant that advances by itself, fast enough that the
 * bucket is never empty. Two threads' instants are never far apart. */
void bench_zero_given(void *state, int thread, uint64_t n)
{
    struct buckets *buckets = state;
    double now = buckets->instants[thread].now;
    for (uint64_t i = 0; i < n; i++) {
        now += 1e-8;
        bench_keep(zero_take(&buckets->given, 1, now));
    }
    buckets->instants[thread].now = now;
}
