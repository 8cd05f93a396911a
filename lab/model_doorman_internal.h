/* SPDX-License-Identifier: MIT
 * lab/model_doorman_internal.h - the stage of Doorman's scenarios, for the
 * model's own files: a tree of jobs, clients on its leaves, their wants,
 * mishaps, and measurements. Two sets of rules run on it.
 *
 * The words are Doorman's: a job is a place in the tree, with some tasks (the
 * processes) of which at most one is master. The stage chooses the masters and
 * the clients' wants and informs the rules; the rules tell the stage how much
 * each client may use. Instants are since the start of the run. */

#ifndef WEIR_MODEL_DOORMAN_INTERNAL_H
#define WEIR_MODEL_DOORMAN_INTERNAL_H

#include "core/base/rng.h"
#include "lab/heap.h"
#include "lab/model.h"

#define WEIR_DOORMAN_NONE UINT32_MAX

/* The model's parameters; the table is in model_doorman.c. */
enum weir_doorman_field {
    WEIR_DOORMAN_RULES,
    WEIR_DOORMAN_REGIONS,
    WEIR_DOORMAN_DATACENTRES,
    WEIR_DOORMAN_CLIENTS,
    WEIR_DOORMAN_TASKS,
    WEIR_DOORMAN_WANTS,
    WEIR_DOORMAN_CHANGE,
    WEIR_DOORMAN_CHANGE_EVERY,
    WEIR_DOORMAN_CAPACITY,
    WEIR_DOORMAN_SHARE,
    WEIR_DOORMAN_SAFE,
    WEIR_DOORMAN_LEASE,
    WEIR_DOORMAN_REFRESH,
    WEIR_DOORMAN_DECAY,
    WEIR_DOORMAN_FIRST,
    WEIR_DOORMAN_ROSTER,
    WEIR_DOORMAN_KEEP,
    WEIR_DOORMAN_RTT,
    WEIR_DOORMAN_MISHAPS,
    WEIR_DOORMAN_SPIKES,
    WEIR_DOORMAN_ELECTIONS,
    WEIR_DOORMAN_LOSSES,
    WEIR_DOORMAN_SPIKE,
    WEIR_DOORMAN_AWAY,
    WEIR_DOORMAN_LOSE,
    WEIR_DOORMAN_ELECT,
    WEIR_DOORMAN_SURGE,
    WEIR_DOORMAN_SURGE_WANTS,
    WEIR_DOORMAN_NEWCOMER,
    WEIR_DOORMAN_CUT,
    WEIR_DOORMAN_CUT_TO,
};

enum weir_doorman_metric {
    WEIR_DOORMAN_UTILISATION,
    WEIR_DOORMAN_SHORTFALL_ROWS,
    WEIR_DOORMAN_EPISODES,
    WEIR_DOORMAN_MAX_GIVEN,
    WEIR_DOORMAN_MIN_GIVEN,
    WEIR_DOORMAN_RECOVERY,
    WEIR_DOORMAN_NEWCOMER_WAIT,
    WEIR_DOORMAN_REPORT_UTILISATION,
    WEIR_DOORMAN_REPORT_ROWS,
    WEIR_DOORMAN_REPORT_EPISODES,
    WEIR_DOORMAN_REPORT_MAX,
    WEIR_DOORMAN_REPORT_OVER_MEAN,
    WEIR_DOORMAN_SHORTFALLS,
    WEIR_DOORMAN_DECISIONS,
    WEIR_DOORMAN_LEARNING_ANSWERS,
    WEIR_DOORMAN_FAILURES,
    WEIR_DOORMAN_EXPIRIES,
};

enum weir_doorman_series {
    WEIR_DOORMAN_GIVEN,
    WEIR_DOORMAN_GIVEN_LEAST,
    WEIR_DOORMAN_CAPACITY_THEN,
    WEIR_DOORMAN_WANTED,
    WEIR_DOORMAN_WITHOUT_MASTER,
};

struct weir_doorman;

struct weir_doorman_action {
    struct weir_heap_key key;
    void (*run)(struct weir_doorman *stage, uint32_t which, weir_instant now);
    uint32_t which;
};

/* ---- model_doorman_look.c: measurements ---- */

struct weir_doorman_look {
    weir_instant at; /* the values below hold since then */
    double given, wanted, capacity;
    /* Bound of 'given': the capacity, and after a cut the capacity that was
     * handed out then and hasn't come back since. */
    double bound;
    uint32_t without_master; /* jobs */
    double used;             /* utilisation x ns, over the measured time */
    weir_instant over_at;    /* the last instant over the bound; WEIR_NEVER */
    bool over, low;
    size_t drawn; /* samples that have a value */
    uint64_t over_instants, over_episodes;
    double most, least; /* 'given' divided by the bound; by the usable amount */
    /* Mishaps: the end of the last one, and of the earliest one that still
     * affects it; WEIR_NEVER: none. */
    weir_instant ended, first_ended;
    /* When this dip began, and when the clients last wanted more: see
     * is_by_demand(). */
    weir_instant low_at, demand_at;
    weir_duration patience; /* a refresh and a round trip */
    bool mishaps;
    weir_duration recovery;
    uint32_t newcomer; /* a client; NONE: not yet, or no longer waiting */
    weir_instant newcomer_came;
    struct {
        uint64_t count, over, episodes;
        bool was_over;
        double given, given_over, most;
    } report; /* rows of the original's report, each five seconds */
};

/* ---- The stage ---- */

struct weir_doorman_job {
    uint32_t level;  /* depth; the root's is 0 */
    uint32_t parent; /* NONE: the root */
    uint32_t master; /* one of its tasks; NONE */
    bool lost;       /* by a mishap that its election will end */
};

struct weir_doorman_client {
    uint32_t job;
    double wants;
    double given; /* allowed to use now */
};

/* Each is called after the stage has changed. */
struct weir_doorman_rules {
    const char *name;
    void (*init)(struct weir_doorman *stage);
    void (*fini)(struct weir_doorman *stage);
    /* Jobs come parents first, clients after their job. */
    void (*job_came)(struct weir_doorman *stage, uint32_t job);
    void (*client_came)(struct weir_doorman *stage, uint32_t client,
                        weir_instant now);
    void (*wants_changed)(struct weir_doorman *stage, uint32_t client,
                          weir_instant now);
    void (*capacity_changed)(struct weir_doorman *stage, weir_instant now);
    /* 'old' is no longer master; the new master isn't 'old'. Either may be
     * NONE. */
    void (*master_changed)(struct weir_doorman *stage, uint32_t job,
                           uint32_t old, weir_instant now);
    /* The capacity that the root considers handed out, in transit or in use. */
    double (*out)(struct weir_doorman *stage, weir_instant now);
    /* Runs all until the run's end: the agenda, and the rules' own events. */
    void (*play)(struct weir_doorman *stage);
};
extern const struct weir_doorman_rules weir_doorman_weir, weir_doorman_original;

struct weir_doorman {
    struct weir_model_run *run;
    const double *values; /* by enum weir_doorman_field */
    const struct weir_doorman_rules *rules;
    void *fleet; /* owned by the rules */
    struct weir_rng rng;
    struct weir_heap agenda; /* of struct weir_doorman_action */
    struct weir_doorman_look look;
    struct weir_doorman_job *jobs; /* owned; the root is the first */
    size_t job_count, job_room;
    struct weir_doorman_client *clients; /* owned */
    size_t client_count, client_room;
    uint32_t tasks; /* of each job */
};

/* Runs 'run' at 'at'; within an instant, in the order of the calls. */
static inline void weir_doorman_post(
    struct weir_doorman *stage, weir_instant at,
    void (*run)(struct weir_doorman *stage, uint32_t which, weir_instant now),
    uint32_t which)
{
    weir_heap_push(&stage->agenda,
                   &(struct weir_doorman_action){
                       .key.at = at, .run = run, .which = which });
}

/* Runs the actions that are due by 'now' and were posted before the call. */
static inline void weir_doorman_run_due(struct weir_doorman *stage,
                                        weir_instant now)
{
    uint64_t end = stage->agenda.pushed;
    while (weir_heap_due(&stage->agenda) <= now &&
           weir_heap_first(&stage->agenda)->order < end) {
        struct weir_doorman_action action;
        weir_heap_pop(&stage->agenda, &action);
        action.run(stage, action.which, now);
    }
}

/* Adds one to a metric that counts. */
static inline void weir_doorman_count(struct weir_doorman *stage,
                                      enum weir_doorman_metric metric)
{
    stage->run->metrics[metric] += 1;
}

/* A client may use 'given' from now on. */
void weir_doorman_give(struct weir_doorman *stage, uint32_t client,
                       double given, weir_instant now);

/* ---- model_doorman_look.c, for the stage ---- */

void weir_doorman_look_init(struct weir_doorman *stage);
/* Wants, capacity or masters have changed: accounts the time before 'now' under
 * the former values. */
void weir_doorman_look_again(struct weir_doorman *stage, weir_instant now);
void weir_doorman_look_cut(struct weir_doorman *stage, double capacity,
                           weir_instant now);
/* A mishap begins; a mishap has ended. */
void weir_doorman_mishap_begins(struct weir_doorman *stage);
void weir_doorman_mishap_ends(struct weir_doorman *stage, weir_instant now);
/* A row of the original's report. */
void weir_doorman_report(struct weir_doorman *stage);
/* Writes the metrics that are kept here, at the end of the run. */
void weir_doorman_look_end(struct weir_doorman *stage);

#endif /* WEIR_MODEL_DOORMAN_INTERNAL_H */
