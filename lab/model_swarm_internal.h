/* SPDX-License-Identifier: MIT
 * lab/model_swarm_internal.h - the parts of the model "swarm": the fleet with
 * its load, its faults, and its checkers. */

#ifndef WEIR_MODEL_SWARM_INTERNAL_H
#define WEIR_MODEL_SWARM_INTERNAL_H

#include "lab/fleet.h"
#include "lab/heap.h"
#include "lab/model.h"
#include "lab/storage.h"

/* By the model's fields. */
enum {
    SWARM_LIMITERS,
    SWARM_STARTED,
    SWARM_ROOTS,
    SWARM_WORKERS,
    SWARM_LATENCY,
    SWARM_CANCEL,
    SWARM_TARGET,
    SWARM_MIN,
    SWARM_CLASSES,
    SWARM_TIMEOUT,
    SWARM_RATE,
    SWARM_LIGHT,
    SWARM_DELAY,
    SWARM_JITTER,
    SWARM_LOSS,
    SWARM_TWICE,
    SWARM_REORDER,
    SWARM_REPLAY,
    SWARM_SLOWNESS,
    SWARM_SLOW_AT,
    SWARM_SLOW_FOR,
    SWARM_HANG_AT,
    SWARM_HANG_FOR,
    SWARM_TROUBLE,
    SWARM_SETTLE,
    SWARM_CUTS,
    SWARM_DEATHS,
    SWARM_MASTERS,
    SWARM_CLOCKS,
    SWARM_PAUSES,
    SWARM_CPU,
    SWARM_EDITS,
    SWARM_STORE,
    SWARM_LOADS,
};

/* By the model's metrics. */
enum {
    SWARM_GOODPUT,
    SWARM_WINDOWS_OVER,
    SWARM_WORST_WINDOW,
    SWARM_SHARE_MIN,
    SWARM_SHARE_MAX,
    SWARM_MESSAGES,
    SWARM_TURNS,
    SWARM_PAUSE,
};

#define SWARM_LIMITERS_MAX 12
#define SWARM_ROOTS_MAX 3
#define SWARM_NAME "store"
#define SWARM_NONE UINT32_MAX

struct swarm_node {
    bool paused;
    uint32_t life;         /* another one after each death */
    weir_instant start_at; /* it is started then; WEIR_NEVER */
};

struct swarm_check;

struct swarm_stage {
    struct weir_model_run *run;
    const double *values;     /* the run's */
    struct weir_fleet *fleet; /* owned, as the next two */
    struct weir_storage *storage;
    struct swarm_check *check;
    struct weir_quota quota; /* at first, and after the faults */
    weir_instant start;      /* the run's 0, in the fleet's time */
    weir_instant mended;     /* all faults are over, in the fleet's time */
    uint32_t limiters, roots;
    struct swarm_node node[2][SWARM_LIMITERS_MAX]; /* limiters, roots */
    /* Requests. */
    struct weir_part arrivals, answers;
    struct weir_heap flying; /* owned; of requests in flight */
    struct weir_rng rng;     /* of requests, and the storage's */
    double load;             /* a multiple of the rate */
    /* Mastership. */
    struct weir_part keeper;
    uint32_t master;       /* SWARM_NONE: nobody was elected yet */
    weir_instant leads_at; /* the next master leads; 0: there is one */
    /* Faults. */
    struct weir_part trouble;
    struct weir_rng chance; /* of faults and elections */
    uint32_t left;          /* faults yet to come */
    uint32_t mends;         /* bits: faults of these kinds are to be mended */
    bool away;              /* the store */
};

static inline double swarm_value(const struct swarm_stage *s, int field)
{
    return s->values[field];
}

static inline weir_duration swarm_time(const struct swarm_stage *s, int field)
{
    return (weir_duration)s->values[field];
}

/* Requests a second that the storage answers. */
static inline double swarm_capacity(const struct swarm_stage *s)
{
    return s->values[SWARM_WORKERS] * 1e9 / s->values[SWARM_LATENCY];
}

/* Whether the limiter takes requests. */
static inline bool swarm_takes(const struct swarm_stage *s, uint32_t limiter)
{
    const struct weir_limiter *l = weir_fleet_limiter(s->fleet, limiter);
    return l && !s->node[0][limiter].paused && weir_limiter_ready(l);
}

/* ---- model_swarm_trouble.c ---- */

/* Begins the parts "keeper" and "trouble". */
void weir_swarm_trouble_start(struct swarm_stage *s);
void weir_swarm_trouble_end(struct swarm_stage *s);

/* ---- model_swarm_check.c ---- */

struct weir_concurrency_gate_view;

struct swarm_check *weir_swarm_check_new(struct swarm_stage *s);
void weir_swarm_check_free(struct swarm_check *check); /* or NULL */
/* The first violation, owned by 'check'; NULL: none. */
const char *weir_swarm_check_sentence(const struct swarm_check *check);
/* After each event, of that part. */
void weir_swarm_check_event(struct swarm_check *check, const char *part);
/* A request came to a limiter, whose gate was so before (NULL: it has none). */
void weir_swarm_check_request(struct swarm_check *check, uint32_t limiter,
                              const struct weir_concurrency_gate_view *gate,
                              bool admitted);
/* An admitted request was over after so long. */
void weir_swarm_check_answer(struct swarm_check *check, weir_duration latency);
/* A clock was set: leases last as long as their holders believe. */
void weir_swarm_check_clock(struct swarm_check *check);
/* At the end of a whole run: recovery. Fills the run's metrics. */
void weir_swarm_check_end(struct swarm_check *check);

#endif /* WEIR_MODEL_SWARM_INTERNAL_H */
