/* SPDX-License-Identifier: MIT
 * test/crowd.h - limiters of a simulated fleet that hold permits of two quotas
 * ("db", and "db/a" below it), and what may happen to them: for
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
    } out[CROWD_OUT_MAX]; /* what living limiters hold */
};

static inline uint64_t below(struct crowd *c, uint64_t bound)
{
    return weir_rng_below(&c->rng, bound);
}

static inline struct weir_listen_address limiter_at(uint32_t index)
{
    return (struct weir_listen_address){ .index = index };
}

static inline struct weir_listen_address root_at(uint32_t index)
{
    return (struct weir_listen_address){ .root = true, .index = index };
}

/* All goes on for so long, without an error. */
void run(struct crowd *c, weir_duration span);

/* A quota: so many a second, or in flight. */
void crowd_put(struct crowd *c, const char *name, const char *parent,
               enum weir_kind kind, uint64_t limit);
/* "db": 40 in flight, and what rules while no root is heard. */
void crowd_put_on_stale(struct crowd *c, enum weir_on_stale on_stale);
/* Into 'net': loses, doubles, reorders and replays, or doesn't. */
void crowd_draw_network(struct crowd *c);

/* ---- What happens ---- */

void crowd_kill(struct crowd *c, uint32_t limiter);
/* One thing. 'mishaps' are a bit each: links (by the test's own 'op_cut'),
 * roots, limiters, edits. */
void crowd_step(struct crowd *c, unsigned mishaps,
                void (*op_cut)(struct crowd *c));
/* From now on the network is as good as it gets, and everybody is there; so
 * for 'calm'. */
void crowd_heal(struct crowd *c, weir_duration calm);
/* All want far more of "db" than there is, for so many milliseconds: what was
 * in flight at most, and the mean, after the first five seconds. */
uint64_t crowd_press(struct crowd *c, int ms, double *out_mean);
void crowd_end(struct crowd *c);

/* ---- What holds ---- */

/* By one limiter; by all. */
uint64_t crowd_held(struct crowd *c, uint32_t limiter, const char *name);
uint64_t crowd_in_flight(struct crowd *c, const char *name);
/* What 'who' has in flight is so much, or the test fails with its seed. */
void crowd_expect(struct crowd *c, double got, uint64_t truth, const char *who,
                  uint32_t index, const char *name);
/* Each limiter that holds some knows what all hold. (Another may not have been
 * told.) */
void crowd_check_limiters(struct crowd *c, const char *name);

#endif /* WEIR_TEST_CROWD_H */
