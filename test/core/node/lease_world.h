/* SPDX-License-Identifier: MIT
 * test/core/node/lease_world.h - leased quotas in limiters, over the lab's
 * fleet. The test plays the leases' master, with the product's own lease pools:
 * it receives the wants that reach a root, and answers and pushes after a
 * delay.
 *
 * An oracle watches: one bucket, which leaks at the whole limit and takes each
 * unit that passes at any limiter. The units that pass in any span are at most
 * the limit times the span plus a bound, exactly if the bucket's level is never
 * above that bound. */

#ifndef WEIR_LEASE_WORLD_H
#define WEIR_LEASE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/leased/lease_manager.h"
#include "core/node/root_lease.h"
#include "io/clock.h"
#include "lab/fleet_internal.h"

#define LIMITERS 4
#define LIMIT 1000
#define LOW 1000.0 /* bursts: 1 s and 1.5 s of it */
#define HIGH 1500.0
#define STEP WEIR_MILLISECOND
#define WAY WEIR_MILLISECOND
#define QUEUE 4096
#define TIMEOUT (30 * WEIR_SECOND) /* of permits */
#define FLYING 512
#define BINS 4096 /* of 100 ms */

struct said {
    weir_instant at;
    uint32_t limiter;
    uint64_t answer;
    struct weir_lease_grant grant;
    char name[32];
};

/* A permit in flight. */
struct flying {
    uint32_t limiter;
    weir_instant until; /* then it leaves */
    struct weir_permit_record record;
};

struct world {
    struct weir_fleet *fleet;
    struct weir_lease_manager *manager;
    enum weir_kind kind;       /* of "q" */
    enum weir_sharing sharing; /* likewise */
    double capacity;
    weir_duration lease;
    bool mute;         /* the master doesn't answer */
    weir_duration way; /* delay of its messages */
    uint32_t deaf;     /* limiters below this number neither send nor receive */
    uint64_t session[LIMITERS];
    struct said queue[QUEUE];
    size_t first, count;
    uint32_t wants, releases; /* heard */
    int64_t priority;         /* … last */
    double wanted[LIMITERS];  /* … last */
    int64_t quota_priority;

    double offered[LIMITERS]; /* a second */
    double owed[LIMITERS];
    double level, level_most;
    uint64_t passed[LIMITERS], refused[LIMITERS];
    uint32_t bin[BINS]; /* passed */
    weir_instant began;

    struct flying flying[FLYING];
    uint32_t out[LIMITERS]; /* permits */
    double ceiling;         /* the permits in flight never exceed this */
    weir_duration stay;
};

/* $WEIR_SEED, or 1. */
uint64_t world_seed(void);

/* A fleet with a quota "q" with these fields, after three seconds. */
struct world *world_begin_kind(enum weir_kind kind, uint64_t limit,
                               enum weir_sharing sharing,
                               enum weir_on_stale on_stale);
/* The same with LIMIT a second. */
struct world *world_begin(enum weir_sharing sharing,
                          enum weir_on_stale on_stale);
/* The same with leased permits, each of which is out for 'stay'. */
struct world *world_begin_flight(uint64_t limit, weir_duration stay);
void world_end(struct world *world);

/* An edit of "q". */
void world_put(struct world *world, enum weir_sharing sharing, uint64_t limit,
               enum weir_on_stale on_stale);
/* Units a second offered to each limiter from now on. */
void world_offer(struct world *world, double a, double b, double c, double d);
/* Lets time pass: each limiter takes, or enters, its offered units. Units in
 * flight are compared with the ceiling after each enter. */
void world_run(struct world *world, weir_duration span);
void world_enter(struct world *world, uint32_t limiter);

/* Of all limiters: units that passed, and permits that are out. */
uint64_t world_passed(const struct world *world);
uint32_t world_out(const struct world *world);
/* Resets the counts of passed and refused units. */
void world_forget(struct world *world);
/* A limiter's view of its lease of "q". */
struct weir_lease_view world_lease(struct world *world, uint32_t limiter);

#endif /* WEIR_LEASE_WORLD_H */
