/* SPDX-License-Identifier: MIT
 * lab/storage.h - the storage behind a limit, which can get slow.
 *
 *     recent  latency * arrivals of the last second, this one included,
 *             / per_s; at least 'floor'. The storage of Mindbox's article
 *             "Adaptive concurrency limiting": 180 ms, 50/s, no floor
 *     pool    workers with one queue, first come first served; half of
 *             'latency' is fixed, a random part has the other half as mean
 *     flat    always 'latency'
 *
 * Each can become slow for a time, once or repeatedly; stand still, which
 * delays all answers due in that time by its length; and give some answers in a
 * row very slowly. While a pool stands still no worker works or begins, so its
 * queue grows, and is worked off afterwards. The time of an answer is known
 * when its request arrives. One thread; the same calls give the same answers.
 */

#ifndef WEIR_STORAGE_H
#define WEIR_STORAGE_H

#include "core/base/base.h"
#include "core/base/rng.h"

enum weir_storage_kind {
    WEIR_STORAGE_RECENT = 0,
    WEIR_STORAGE_POOL = 1,
    WEIR_STORAGE_FLAT = 2,
};
/* "recent", "pool", "flat"; ends with NULL. */
extern const char *const weir_storage_kinds[];

#define WEIR_STORAGE_WORKERS_MAX 1024

/* Instants count from 0; a 0 here means never. */
struct weir_storage_options {
    enum weir_storage_kind kind;
    weir_duration latency;
    double per_s;        /* recent: > 0 */
    weir_duration floor; /* recent */
    uint32_t workers;    /* pool: 1 .. WEIR_STORAGE_WORKERS_MAX */
    /* pool: a request whose turn comes later than that leaves the queue before
     * it: no worker is spent on it, and it is never answered. 0: each request
     * is served, even if its caller has given up. */
    weir_duration leaves_after;
    /* Slower by this factor from 'slow_at' on for 'slow_for' (0: for ever), and
     * again each 'slow_every' (0: once only). */
    double slowness;
    weir_instant slow_at;
    weir_duration slow_for, slow_every;
    weir_instant hang_at; /* stands still from here … */
    weir_duration hang_for;
    weir_instant blip_at; /* from here on so many answers take 'blip_latency' */
    uint32_t blip_count;
    weir_duration blip_latency;
};

struct weir_storage;
struct weir_storage *weir_storage_new(
    const struct weir_storage_options *options);
void weir_storage_free(struct weir_storage *storage);

/* A request arrives: returns the time that its answer takes; if it leaves a
 * pool's queue, a time above 'leaves_after'. 'now' doesn't go back. Only pools
 * draw random numbers, one each. */
weir_duration weir_storage_request(struct weir_storage *storage,
                                   struct weir_rng *rng, weir_instant now);

#endif /* WEIR_STORAGE_H */
