/* SPDX-License-Identifier: MIT
 * bench/harness.h - rows of a benchmark, measured in interleaved rounds. */

#ifndef WEIR_BENCH_HARNESS_H
#define WEIR_BENCH_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value that a row's figure is compared with. */
enum bench_relation {
    BENCH_PLAIN,      /* the figure itself */
    BENCH_RATIO,      /* divided by the row 'beside', round by round */
    BENCH_DIFFERENCE, /* less the row 'beside', round by round */
};

enum bench_role { BENCH_FLOOR, BENCH_OURS, BENCH_PEER };

/* The state that several rows work on. It is made before a group's rounds and
 * freed after them, so that one group's gigabyte doesn't disturb another group.
 * 'setup' returns the state, or NULL with 'out_note' saying why not. */
struct bench_fixture {
    void *(*setup)(const char **out_note);
    void (*teardown)(void *state);
};

/* One line of the table. Either 'body' or 'peer' is set. */
struct bench_row {
    const char *id;   /* unique; the key in the JSON document */
    const char *what; /* description for people */
    enum bench_role role;
    const char *beside; /* id of a row of the same group, or NULL */
    enum bench_relation relation;
    double target; /* upper bound on the relation; 0: none */
    int threads;   /* 1 or 2; two are pinned, one processor each */
    const struct bench_fixture *fixture;
    /* Does 'n' operations. 'thread' is 0 or 1. */
    void (*body)(void *state, int thread, uint64_t n);
    void (*between)(void *state); /* before each batch, untimed, or NULL */
    uint64_t batch_max;  /* operations 'between' provides for; 0: any */
    const char *peer;    /* program that measures, or NULL */
    const char *request; /* the request to send to it */
};

struct bench_group {
    const char *name;
    const struct bench_row *rows;
    size_t count;
    uint64_t batch_min; /* operations; cold rows need many to be equally cold
                         * each time */
};

/* A counted figure, not a timed one. */
struct bench_figure {
    const char *id;
    const char *what;
    const char *unit;
    double value;
    double target; /* upper bound; 0: none */
    const char *note;
};

struct bench_options {
    unsigned rounds;      /* at least 7 */
    uint64_t batch_ns;    /* length of one measurement, about */
    const char *only;     /* a group's name, or NULL for all */
    const char *peer_dir; /* folder of peers' programs, or NULL */
};

/* Measures 'group' and writes its rows as elements of a JSON array.
 * 'first' is cleared by the first element. */
void bench_group_run(const struct bench_group *group,
                     const struct bench_options *options, bool *first);

/* Writes one figure as an element of the same array. */
void bench_figure_write(const struct bench_figure *figure, bool *first);

/* Pins the calling thread; without that right it isn't pinned. */
void bench_pin(int processor);

/* Zeroed memory of plain small pages, all of them present. */
void *bench_pages(size_t size);
void bench_pages_free(void *pages, size_t size);

/* Keeps the compiler from merging loops. */
static inline void bench_fence(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Ends one operation, with its cache misses, before the next begins. */
static inline void bench_alone(void)
{
    __builtin_ia32_lfence();
}

/* Keeps an otherwise unused result. */
static inline void bench_keep(uint64_t value)
{
    __asm__ volatile("" ::"r"(value));
}

#endif /* WEIR_BENCH_HARNESS_H */
