/* SPDX-License-Identifier: MIT
 * lab/model_doorman.h - the stage of Doorman's scenarios, for the model's own
 * files: a tree of jobs, clients on its leaves, what they want, what befalls
 * them, what is measured. Two sets of rules play on it.
 *
 * The words are Doorman's: a job is a place in the tree, with some tasks (the
 * processes) of which at most one is master. The stage decides who is master
 * and what clients want, and tells the rules; the rules tell the stage what
 * each client may use. Instants are since the start of the run. */

#ifndef WEIR_MODEL_DOORMAN_H
#define WEIR_MODEL_DOORMAN_H

#include "base/rng.h"
#include "lab/model.h"

#define WEIR_DOORMAN_NONE UINT32_MAX

/* What the model can be told; the table is in model_doorman.c. */
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
    WEIR_DOORMAN_ROLL_CALL,
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

/* ---- model_doorman_agenda.c: what is to be done, and when ---- */

struct weir_doorman_action {
    weir_instant at;
    uint64_t number; /* of those posted: the order within an instant */
    void (*run)(struct weir_doorman *stage, uint32_t which, weir_instant now);
    uint32_t which;
};

struct weir_doorman_agenda {
    struct weir_doorman_action *heap; /* owned */
    size_t count, capacity;
    uint64_t posted;
};

void weir_doorman_post(struct weir_doorman *stage, weir_instant at,
                       void (*run)(struct weir_doorman *stage, uint32_t which,
                                   weir_instant now),
                       uint32_t which);
/* When the next is due; WEIR_NEVER: nothing is. */
weir_instant weir_doorman_due(const struct weir_doorman *stage);
/* Runs what is due by 'now' and was posted before the call, in the order of
 * posting. */
void weir_doorman_run_due(struct weir_doorman *stage, weir_instant now);

/* ---- model_doorman_look.c: what is measured ---- */

struct weir_doorman_look {
    weir_instant at; /* all below holds since */
    double given, wanted, capacity;
    /* Given may not exceed it: the capacity, and after a cut what was out
     * then, as far as that has not come back since. */
    double bound;
    uint32_t without_master; /* jobs */
    double used;             /* utilisation x ns, of the time that counts */
    weir_instant over_at;    /* the last instant that was over; WEIR_NEVER */
    bool over, low;
    size_t drawn; /* samples that have something in them */
    uint64_t over_instants, over_episodes;
    double most, least; /* given: of the bound; of what could be used */
    /* Mishaps: the end of the last one that no other has followed, and of
     * the first one before whose effect goes on; WEIR_NEVER: none. */
    weir_instant ended, first_ended;
    bool mishaps;
    weir_duration recovery;
    uint32_t newcomer; /* a client; NONE: no longer, or not yet */
    weir_instant newcomer_came;
    struct {
        uint64_t count, over, episodes;
        bool was_over;
        double given, given_over, most;
    } report; /* the rows that the original writes, each five seconds */
};

/* ---- The stage ---- */

struct weir_doorman_job {
    uint32_t level;  /* of the root: 0 */
    uint32_t parent; /* NONE: the root */
    uint32_t master; /* a task of its own; NONE */
    bool lost;       /* as a mishap that its election will end */
};

struct weir_doorman_client {
    uint32_t job;
    double wants;
    double given; /* that it may use now */
};

/* All are called with the stage as it is after what they tell. */
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
    /* 'old' isn't master any more, and who is now isn't 'old'; either may be
     * NONE. */
    void (*master_changed)(struct weir_doorman *stage, uint32_t job,
                           uint32_t old, weir_instant now);
    /* What the root takes for handed out, on its way or in use. */
    double (*out)(struct weir_doorman *stage, weir_instant now);
    /* All that happens until the run's end: the agenda, and its own. */
    void (*play)(struct weir_doorman *stage);
};
extern const struct weir_doorman_rules weir_doorman_weir, weir_doorman_original;

struct weir_doorman {
    struct weir_model_run *run;
    const double *values; /* by enum weir_doorman_field */
    const struct weir_doorman_rules *rules;
    void *fleet; /* the rules' own */
    struct weir_rng rng;
    struct weir_doorman_agenda agenda;
    struct weir_doorman_look look;
    struct weir_doorman_job *jobs; /* owned; the root is the first */
    size_t job_count, job_room;
    struct weir_doorman_client *clients; /* owned */
    size_t client_count, client_room;
    uint32_t tasks; /* of each job */
};

/* One of 'count', by chance. */
uint32_t weir_doorman_draw(struct weir_doorman *stage, size_t count);
/* One more of a metric that counts. */
void weir_doorman_count(struct weir_doorman *stage,
                        enum weir_doorman_metric metric);

/* A client may use 'given' from now on. */
void weir_doorman_give(struct weir_doorman *stage, uint32_t client,
                       double given, weir_instant now);

/* ---- model_doorman_look.c, for the stage ---- */

void weir_doorman_look_init(struct weir_doorman *stage);
/* Wants, capacity or masters have changed: time before 'now' passed under
 * what was. */
void weir_doorman_look_again(struct weir_doorman *stage, weir_instant now);
void weir_doorman_look_cut(struct weir_doorman *stage, double capacity,
                           weir_instant now);
/* A mishap begins; one has ended. */
void weir_doorman_mishap_begins(struct weir_doorman *stage);
void weir_doorman_mishap_ends(struct weir_doorman *stage, weir_instant now);
/* A row of the original's report. */
void weir_doorman_report(struct weir_doorman *stage);
/* The run is over: writes the metrics that are kept here. */
void weir_doorman_look_end(struct weir_doorman *stage);

#endif /* WEIR_MODEL_DOORMAN_H */
