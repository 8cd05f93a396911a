/* SPDX-License-Identifier: MIT
 * lab/load.h - sources of load: the requests of a scenario, with their
 * instants, keys and limiters.
 *
 * Each load of a scenario is a part of the world. It has a random stream of its
 * own from the seed, so that two settings of one scenario are compared under
 * the same requests. A request costs O(1), with any numbers of keys and
 * limiters.
 *
 * As behind a load balancer, requests go only to limiters that are ready: that
 * run, aren't paused, and have had quotas. If the spread selects one that isn't
 * ready, the next ready one gets the request; without any, the request isn't
 * made. */

#ifndef WEIR_LOAD_H
#define WEIR_LOAD_H

#include "lab/check.h"
#include "lab/truth.h"

/* Of one access log. */
#define WEIR_LOAD_LOG_REQUESTS_MAX 10000000

struct weir_loads; /* all loads of one run */

/* Nothing runs until weir_loads_start(). 'check' may be NULL; all arguments
 * outlive the loads. NULL with 'diag' filled: an unreadable access log, with
 * the line of the scenario that names it. */
struct weir_loads *weir_loads_new(struct weir_fleet *fleet,
                                  struct weir_truth *truth,
                                  struct weir_check *check,
                                  const struct weir_scenario *scenario,
                                  uint64_t seed, struct weir_diag *diag);
void weir_loads_free(struct weir_loads *loads);
/* The scenario begins now. */
void weir_loads_start(struct weir_loads *loads);
/* From now on the load has this rate instead of its steps. */
void weir_loads_rate(struct weir_loads *loads, const char *name,
                     const struct weir_rate_step *rate);
/* The limiter was paused or resumed. (Births and deaths are observed.) */
void weir_loads_pause(struct weir_loads *loads, uint32_t limiter, bool paused);
/* Units of one load's requests. */
struct weir_load_sums {
    uint64_t offered, passed, limited;
};
/* The load's sums since the start; it is one of the scenario. */
struct weir_load_sums weir_loads_sums(const struct weir_loads *loads,
                                      const char *name);
/* Requests made so far. */
uint64_t weir_loads_takes(const struct weir_loads *loads);

/* ---- alias.c: one of n by weight, in O(1) ---- */

struct weir_alias {
    uint32_t count;
    uint64_t *part;  /* owned: of 2^64, the part of column i that is i itself
                      * … */
    uint32_t *other; /* owned: … the rest of the column is this number */
};

/* Number k from 0 has weight 1 / (k + 1)^skew. */
void weir_alias_zipf(struct weir_alias *alias, uint32_t count, double skew);
void weir_alias_fini(struct weir_alias *alias);
uint32_t weir_alias_draw(const struct weir_alias *alias, struct weir_rng *rng);

/* ---- access_log.c: requests of a log ---- */

struct weir_log_request {
    weir_duration at; /* since the first one */
    uint32_t client;
};
struct weir_access_log {
    struct weir_log_request *requests; /* owned; in the order of time */
    size_t count;
    char **clients; /* owned, each string too */
    uint32_t client_count;
};

/* Reads a log in common or combined format, gzipped or not. Requests of one
 * second are spread over it. 0; WEIR_ESYSTEM, WEIR_ESYNTAX, WEIR_ETOOBIG with
 * the text of 'diag' filled. */
int weir_access_log_read(struct weir_access_log *log, const char *path,
                         struct weir_diag *diag);
void weir_access_log_fini(struct weir_access_log *log);

/* ---- arrivals.c: instants of requests ---- */

/* A rate that changes with time. */
struct weir_arrival {
    const struct weir_load *load; /* borrowed */
    weir_instant start;           /* of the scenario … */
    weir_duration span;           /* … and its length: nothing comes later */
    double base_per_s;            /* meaning of "1x" */
    bool replaced;                /* 'rate' rules instead of the load's steps */
    struct weir_rate_step rate;
    weir_instant at; /* of the last arrival … */
    double rest;     /* … and the part of a nanosecond after it */
};

/* Moves to the next arrival; WEIR_NEVER: there are no more. */
weir_instant weir_arrival_next(struct weir_arrival *arrival,
                               struct weir_rng *rng);
/* Requests a second at 'at', which counts from the scenario's start. */
double weir_arrival_rate(const struct weir_arrival *arrival, weir_duration at);

#endif /* WEIR_LOAD_H */
