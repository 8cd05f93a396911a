/* SPDX-License-Identifier: MIT
 * io/clock.c - the machine's clocks and random numbers. */

#include "io/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static weir_instant read_system_clock(clockid_t clock)
{
    struct timespec now;
    /* This can't fail: every Linux has the clock, and 'now' is valid memory. */
    (void)clock_gettime(clock, &now);
    weir_instant instant =
        (weir_instant)now.tv_sec * WEIR_SECOND + (weir_instant)now.tv_nsec;
    return instant > 0 ? instant : 1;
}

weir_instant weir_clock_now(void)
{
    return read_system_clock(CLOCK_MONOTONIC);
}

weir_instant weir_clock_boot(void)
{
    return read_system_clock(CLOCK_BOOTTIME);
}

uint64_t weir_clock_wall(void)
{
    return read_system_clock(CLOCK_REALTIME);
}

uint64_t weir_clock_wall_offset(void)
{
    return weir_clock_wall() - weir_clock_now();
}

struct timespec weir_timespec_of(weir_instant at)
{
    at = at < WEIR_NEVER / 4 ? at : WEIR_NEVER / 4;
    return (struct timespec){ .tv_sec = (time_t)(at / WEIR_SECOND),
                              .tv_nsec = (long)(at % WEIR_SECOND) };
}

struct timeval weir_timeval_of(weir_duration duration)
{
    return (struct timeval){
        .tv_sec = (time_t)(duration / WEIR_SECOND),
        .tv_usec = (suseconds_t)(duration % WEIR_SECOND / 1000),
    };
}

void weir_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

struct weir_thread_time weir_clock_thread(void)
{
    struct weir_thread_time time = { 0, 0 };
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    int got = 0;
    if (file) {
        got = fscanf(file, "%" SCNu64 " %" SCNu64, &time.ran, &time.waited);
        fclose(file);
    }
    if (got == 2)
        return time;
    return (struct weir_thread_time){
        .ran = read_system_clock(CLOCK_THREAD_CPUTIME_ID),
    };
}

void weir_entropy(void *buf, size_t size)
{
    uint8_t *p = buf;
    while (size > 0) {
        ssize_t got = getrandom(p, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        /* Two limiters with one identity would corrupt counts: abort
         * instead. */
        if (got <= 0)
            abort();
        p += got;
        size -= (size_t)got;
    }
}

static void *system_alloc(void *context, size_t size)
{
    (void)context;
    return calloc(1, size > 0 ? size : 1);
}

static void system_free(void *context, void *p, size_t size)
{
    (void)context;
    (void)size;
    free(p);
}

const struct weir_mem weir_mem_system = {
    .alloc = system_alloc,
    .free = system_free,
};
