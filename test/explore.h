/* SPDX-License-Identifier: MIT
 * test/explore.h - every schedule of a few threads over lock-free code.
 *
 * Compile the code with WEIR_EXPLORE defined, so that each access by
 * base/atomic.h stops at a scheduler; give it a program of a few threads, the
 * memory that they write and a check for the end of an execution. It runs them
 * again and again, each time by another schedule, until there is none left, or
 * until the check fails: then it prints the schedule, and
 *
 *     WEIR_SCHEDULE=NAME:a12b3a1 test_x
 *
 * (a takes twelve steps, b three, a one) replays that one of the program NAME
 * and prints each of its accesses.
 *
 * It explores sequentially consistent executions, not those that only a weaker
 * machine can have. Between two accesses a thread isn't interrupted: plain
 * memory must be its own or guarded. A loop that waits for another thread says
 * so by weir_pause(); a loop that doesn't is reported, as a thread that never
 * ends. */

#ifndef WEIR_EXPLORE_H
#define WEIR_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPLORE_FIBERS_MAX 8
#define EXPLORE_STEPS_MAX 4096 /* of one execution */

/* A bug put in on purpose, to test that it is found. */
enum explore_plant_kind {
    EXPLORE_SOUND,
    EXPLORE_TORN,  /* a compare-and-swap, add, … is a load, then a store */
    EXPLORE_BLIND, /* a load returns the value at the start */
};
struct explore_plant {
    enum explore_plant_kind kind;
    unsigned fiber;   /* of this fiber only */
    const void *word; /* within 'state' */
};

#define EXPLORE_ALL (-1)
struct explore_program {
    const char *name;
    /* All memory that the fibers write; restored before each execution. */
    void *state;
    size_t state_bytes;
    unsigned fibers;
    void (*run[EXPLORE_FIBERS_MAX])(void *state);
    /* Called when no fiber can move: describes the error; NULL: none. May make
     * accesses of its own, which aren't scheduled. */
    const char *(*check)(void *state);
    /* EXPLORE_ALL: one schedule of each class, see explore.c. Otherwise at
     * least one of each class that has a schedule with at most that many
     * preemptions (a fiber that could go on is left). */
    int preemptions;
    bool plain; /* with a bound: all schedules within it */
    bool quiet; /* prints errors only */
    /* If not 0, fiber 0 is killed before its step of that number. */
    unsigned killed_at;
    struct explore_plant plant;
    /* For a replay: writes a name for an address; NULL: its offset is
     * printed. */
    void (*describe)(void *state, const void *p, char *buf, size_t bytes);
};

#define EXPLORE_SCHEDULE_MAX 2048
struct explore_result {
    uint64_t executions; /* begun */
    uint64_t completed;  /* of them: run to the end, and checked */
    uint64_t classes;    /* of those, by their conflicting steps */
    uint64_t steps;
    unsigned longest;  /* steps of the longest execution */
    bool killed;       /* some execution reached 'killed_at' */
    const char *wrong; /* the check's error; NULL: none */
    char schedule[EXPLORE_SCHEDULE_MAX]; /* by which it was found */
};

/* Explores, or replays, and prints a line with the figures. Ends at the first
 * execution with an error. */
void explore(const struct explore_program *program, struct explore_result *out);
/* False: a replay is requested, of another program. */
bool explore_is_wanted(const struct explore_program *program);

/* A bound on preemptions, which the environment raises: WEIR_DEEP=1 by one, for
 * a night; WEIR_DEEP=2 to EXPLORE_ALL, which takes days for some programs. */
int explore_bound(int preemptions);
/* The same for a program with few enough classes that all can be explored in a
 * minute: WEIR_DEEP=1 is enough. */
int explore_all_or(int preemptions);

/* In a check: true if the fiber ended; false if it was killed or waits for one
 * that was. */
bool explore_ended(unsigned fiber);

/* After a check or a fiber that never returned, because an assertion failed:
 * prints its schedule. For a test's teardown. */
void explore_mourn(void);

/* In a check. */
#define EXPLORE_MUST(condition)             \
    do {                                    \
        if (!(condition))                   \
            return "isn't so: " #condition; \
    } while (0)

#endif /* WEIR_EXPLORE_H */
