/* SPDX-License-Identifier: MIT
 * test/explore.h - every schedule of a few threads over lock-free code.
 *
 * Compile the code with WEIR_EXPLORE defined, so that each access by
 * base/atomic.h stops at a scheduler; give it a program of a few threads, the
 * memory that they write and what must hold when all have ended. It runs them
 * again and again, each time by another schedule, until there is none left,
 * or until the check objects: then it prints the schedule, and
 *
 *     WEIR_SCHEDULE=NAME:a12b3a1 test_x
 *
 * (a takes twelve steps, b three, a one) replays that one of the program NAME
 * and prints each of its accesses.
 *
 * What is explored are sequentially consistent executions; what a weaker
 * machine may do besides is not. Between two accesses a thread runs on: plain
 * memory must be its own or guarded. A loop that waits for another thread
 * says so by weir_pause(); one that waits and doesn't say so is found, as a
 * thread that goes on without end. */

#ifndef WEIR_EXPLORE_H
#define WEIR_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPLORE_FIBERS_MAX 8
#define EXPLORE_STEPS_MAX 4096 /* of one execution */

/* A bug put in on purpose, to see that it is found. */
enum explore_plant_kind {
    EXPLORE_SOUND,
    EXPLORE_TORN,  /* a compare-and-swap, add, … is a load, then a store */
    EXPLORE_BLIND, /* a load finds what was there when all began */
};
struct explore_plant {
    enum explore_plant_kind kind;
    unsigned fiber;   /* of this fiber only */
    const void *word; /* within 'state' */
};

#define EXPLORE_ALL (-1)
struct explore_program {
    const char *name;
    /* All memory that the fibers write; put back before each execution. */
    void *state;
    size_t state_bytes;
    unsigned fibers;
    void (*run[EXPLORE_FIBERS_MAX])(void *state);
    /* Called when no fiber can move: what is wrong, or NULL. May make
     * accesses of its own, which aren't scheduled. */
    const char *(*check)(void *state);
    /* EXPLORE_ALL: one schedule of each class, see explore.c. Otherwise at
     * least one of each class that has one in which a fiber that could go on
     * is left at most so often. */
    int preemptions;
    bool plain; /* with a bound: all schedules within it */
    bool quiet; /* prints only what is wrong */
    /* If not 0, fiber 0 is killed before its step of that number. */
    unsigned killed_at;
    struct explore_plant plant;
    /* For a replay: writes a name for an address; NULL: its offset. */
    void (*describe)(void *state, const void *p, char *buf, size_t bytes);
};

#define EXPLORE_SCHEDULE_MAX 2048
struct explore_result {
    uint64_t executions; /* begun */
    uint64_t completed;  /* of them: up to the end, and checked */
    uint64_t classes;    /* of those, counted by what each did */
    uint64_t steps;
    unsigned longest;  /* steps of the longest execution */
    bool killed;       /* some execution reached 'killed_at' */
    const char *wrong; /* what the check found; NULL: nothing */
    char schedule[EXPLORE_SCHEDULE_MAX]; /* by which it was found */
};

/* Explores, or replays, and prints a line with the figures. Ends at the first
 * execution in which something is wrong. */
void explore(const struct explore_program *program, struct explore_result *out);
/* False: a replay is asked for, and of another program. */
bool explore_is_wanted(const struct explore_program *program);

/* A bound on preemptions that the environment widens: WEIR_DEEP=1 by one, for
 * a night; WEIR_DEEP=2 to EXPLORE_ALL, which for some programs takes days. */
int explore_bound(int preemptions);
/* The same of a program whose classes can all be explored in a minute:
 * WEIR_DEEP=1 does. */
int explore_all_or(int preemptions);

/* Within a check: whether the fiber ended, and wasn't killed and doesn't wait
 * for one that was. */
bool explore_ended(unsigned fiber);

/* After a check or a fiber that never returned, because an assertion failed:
 * prints by which schedule. For a test's teardown. */
void explore_mourn(void);

/* In a check. */
#define EXPLORE_MUST(condition)             \
    do {                                    \
        if (!(condition))                   \
            return "isn't so: " #condition; \
    } while (0)

#endif /* WEIR_EXPLORE_H */
