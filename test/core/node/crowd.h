/* SPDX-License-Identifier: MIT
 * test/core/node/crowd.h - limiters of a simulated fleet that hold permits of
 * two quotas ("db", and "db/a" below it), and random events: for
 * test_in_flight.c and test_region_permit.c. */

#ifndef WEIR_TEST_CROWD_H
#define WEIR_TEST_CROWD_H

#include <stdlib.h>

#include "lab/fleet.h"

#define CROWD_OUT_MAX 64

struct crowd {
    struct weir_fleet *fleet;
    struct weir_rng rng;
    struct weir_net net;
    uint64_t seed;
    uint32_t limiters, roots;
    uint32_t uppers; /* of the roots that are limiters of others */
    struct crowd_out {
        uint32_t limiter;
        struct weir_permit_record record;
    } out[CROWD_OUT_MAX]; /* permits of living limiters */
};

static inline uint64_t below(struct crowd *c, uint64_t bound)
{
    return weir_rng_below(&c->rng, bound);
}

static inline struct weir_node_place limiter_at(uint32_t index)
{
    return (struct weir_node_place){ .index = index };
}

static inline struct weir_node_place root_at(uint32_t index)
{
    return (struct weir_node_place){ .root = true, .index = index };
}

/* Lets that much time pass, without an error. */
void run(struct crowd *c, weir_duration span);

/* A quota: that many per second, or in flight. */
void crowd_put(struct crowd *c, const char *name, const char *parent,
               enum weir_kind kind, uint64_t limit);
/* "db": 40 in flight, and the rule while no root is reached. */
void crowd_put_on_stale(struct crowd *c, enum weir_on_stale on_stale);
/* Draws the settings of 'net': it loses, doubles, reorders and replays, or
 * doesn't. */
void crowd_draw_network(struct crowd *c);

/* ---- Events ---- */

void crowd_kill(struct crowd *c, uint32_t limiter);
/* One event. 'mishaps' is a bit mask: links (by the test's own 'op_cut'),
 * roots, limiters, edits. */
void crowd_step(struct crowd *c, unsigned mishaps,
                void (*op_cut)(struct crowd *c));
/* From now on the network is perfect and all nodes run; lets 'calm' pass. */
void crowd_heal(struct crowd *c, weir_duration calm);
/* All want far more of "db" than the limit, for that many milliseconds. Returns
 * the most in flight; the mean is from after the first five seconds. */
uint64_t crowd_press(struct crowd *c, int ms, double *out_mean);
void crowd_end(struct crowd *c);

/* ---- Invariants ---- */

/* By one limiter; by all. */
uint64_t crowd_held(struct crowd *c, uint32_t limiter, const char *name);
uint64_t crowd_in_flight(struct crowd *c, const char *name);
/* The units in flight known to 'who' are 'truth', or the test fails with its
 * seed. */
void crowd_expect(struct crowd *c, double got, uint64_t truth, const char *who,
                  uint32_t index, const char *name);
/* Each limiter with permits knows the sum over all. (Others may not have
 * received it.) */
void crowd_check_limiters(struct crowd *c, const char *name);

#endif /* WEIR_TEST_CROWD_H */
