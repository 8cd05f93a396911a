/* SPDX-License-Identifier: MIT
 * test/pump.h - limiters and roots in one process: a virtual clock, a lossy
 * network and a seed. Bytes of weir.v1 travel; everything that happens
 * follows from the seed. */

#ifndef WEIR_PUMP_H
#define WEIR_PUMP_H

#include "base/rng.h"
#include "node/limiter.h"
#include "node/root.h"

#define PUMP_LIMITERS_MAX 64
#define PUMP_ROOTS_MAX 8
#define PUMP_NAMES_MAX 64

struct pump_options {
    uint64_t seed;
    uint32_t limiters, roots;
    uint32_t slots;            /* of each limiter's table */
    weir_duration delay_min, delay_max; /* of a message, uniform */
    double loss;               /* probability that a message vanishes */
    double twice;              /* … arrives twice */
    double reorder;            /* … may overtake those before it */
    double replay;             /* … that one in flight when its link goes
                                * down arrives on the next link */
    struct weir_settings settings;
};

struct pump_node_limiter {
    void *table_block, *block;
    struct weir_table *table;
    struct weir_limiter *limiter; /* NULL: not running */
    uint32_t stripe;
};

struct pump_packet {
    weir_instant at;
    uint64_t tie;
    bool to_root;
    uint32_t limiter, root;
    uint32_t connection;
    size_t len;
    char *bytes; /* owned */
};

struct pump {
    struct pump_options options;
    struct weir_rng rng;
    weir_instant now;
    struct pump_node_limiter limiter[PUMP_LIMITERS_MAX];
    struct weir_root *root[PUMP_ROOTS_MAX]; /* NULL: dead */
    uint32_t connection[PUMP_LIMITERS_MAX][PUMP_ROOTS_MAX];
    bool up[PUMP_LIMITERS_MAX][PUMP_ROOTS_MAX];
    weir_instant last_at[PUMP_LIMITERS_MAX][PUMP_ROOTS_MAX][2];
    bool cut[PUMP_LIMITERS_MAX][PUMP_ROOTS_MAX]; /* by the test */
    struct pump_packet *packets; /* heap */
    size_t packet_count, packet_capacity;
    struct weir_catalog *store;
    uint64_t epoch;
    uint64_t messages, bytes; /* sent */
    int error;                /* first error of a node; 0 */
    /* Sees every fill that reaches a limiter; may be NULL. */
    void (*on_fill)(void *context, uint32_t limiter, uint32_t root,
                    const struct weir_fill *fill);
    void *context;
};

/* Aborts the test when there is no memory. */
struct pump *pump_new(const struct pump_options *options);
void pump_free(struct pump *pump);

/* One edit of the store; every live root applies it at once. */
int pump_put(struct pump *pump, const struct weir_quota *quota);
int pump_remove(struct pump *pump, const char *name);
/* A quota with a limit and bursts in units. */
int pump_quota(struct pump *pump, const char *name, const char *parent,
               uint64_t units, weir_duration per, uint64_t low,
               uint64_t high);

/* Everything up to and including 'until' happens. */
void pump_run(struct pump *pump, weir_instant until);

unsigned pump_take(struct pump *pump, uint32_t limiter, const char *name,
                   uint64_t weight, struct weir_reply *reply);
void pump_charge(struct pump *pump, uint32_t limiter, const char *name,
                 uint64_t weight);

/* Links go down and up; nodes die (SIGKILL) and are born again, empty. */
void pump_cut(struct pump *pump, uint32_t limiter, uint32_t root, bool cut);
void pump_kill_root(struct pump *pump, uint32_t root);
void pump_start_root(struct pump *pump, uint32_t root);
void pump_kill_limiter(struct pump *pump, uint32_t limiter);
void pump_start_limiter(struct pump *pump, uint32_t limiter);

/* Units in a limiter's bucket, its count, a root's bucket; 0 if unknown. */
double pump_limiter_fill(struct pump *pump, uint32_t limiter,
                         const char *name);
uint64_t pump_count(struct pump *pump, uint32_t limiter, const char *name);
double pump_root_fill(struct pump *pump, uint32_t root, const char *name);
uint64_t pump_root_passed(struct pump *pump, uint32_t root,
                          const char *name);

#endif /* WEIR_PUMP_H */
