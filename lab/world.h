/* SPDX-License-Identifier: MIT
 * lab/world.h - virtual time: parts that each have one next instant, a heap of
 * them, and random numbers from a seed.
 *
 * Nodes, directions of links, sources of load and the director of faults are
 * all parts: a function that runs at the part's instant and then sets the next
 * one. Parts due at the same instant run in an order drawn from the seed, so
 * each seed is one interleaving. One thread. */

#ifndef WEIR_WORLD_H
#define WEIR_WORLD_H

#include "core/base/base.h"
#include "core/base/rng.h"

/* A world begins here, not at 0: nothing may depend on time being small. */
#define WEIR_WORLD_START (1000 * WEIR_SECOND)

struct weir_part {
    const char *name; /* its kind, for traces; borrowed */
    /* Runs at the part's instant; it sleeps afterwards unless it wakes
     * itself. */
    void (*run)(struct weir_part *part, weir_instant now);
    /* Private to the world: */
    weir_instant at;
    uint64_t tie;
    size_t place; /* in the heap, + 1; 0: asleep */
};

struct weir_world {
    weir_instant now;
    struct weir_rng rng;     /* the one source of chance of all parts */
    uint64_t events;         /* parts run so far; the index of the next */
    struct weir_part **heap; /* owned */
    size_t count, capacity;
};

void weir_world_init(struct weir_world *world, uint64_t seed);
void weir_world_fini(struct weir_world *world);

/* The part runs at 'at' (in the past: now) and no longer at its former instant;
 * WEIR_NEVER: it sleeps. A part must sleep before it is freed. */
void weir_world_wake(struct weir_world *world, struct weir_part *part,
                     weir_instant at);
/* The part that weir_world_step() would run; NULL: none until 'until'. */
const struct weir_part *weir_world_next(const struct weir_world *world,
                                        weir_instant until);
/* Runs the next part if it is due by 'until', and moves the clock to its
 * instant; else moves the clock to 'until' and returns false. */
bool weir_world_step(struct weir_world *world, weir_instant until);

/* Random draws. Probabilities 0 .. 1; a probability of 0 draws nothing. */
bool weir_world_chance(struct weir_world *world, double probability);
/* Exponential with the given mean: the gaps of a Poisson process. */
double weir_world_exponential(struct weir_world *world, double mean);

#endif /* WEIR_WORLD_H */
