/* SPDX-License-Identifier: MIT
 * store/shared_internal.h - the interface between the files of a shared store:
 * jobs, lanes, and the functions of each kind of store.
 *
 *     caller           lane (a server)           the kind's own thread(s)
 *     weir_shared_step -> [job, job, …] -- get --> asks the server
 *        waits on the job <------ weir_job_finish() --- its answer
 *
 * A job has two users, its caller and the lane's thread; the last one frees
 * it. A caller leaves when its deadline has passed, and a later answer is
 * dropped. */

#ifndef WEIR_SHARED_INTERNAL_H
#define WEIR_SHARED_INTERNAL_H

#include <pthread.h>

#include "core/quota/quota.h"
#include "io/stream.h"
#include "store/shared.h"

#define WEIR_SHARED_SERVERS_MAX WEIR_STORE_SERVERS_MAX
#define WEIR_SHARED_WORD_MAX 255  /* bytes of a user's name or a password */
#define WEIR_SHARED_PREFIX_MAX 64 /* bytes */
#define WEIR_SHARED_WORKERS 4     /* threads per memcached server */

/* ---- URIs ---- */

enum weir_shared_kind {
    WEIR_SHARED_REDIS,
    WEIR_SHARED_MEMCACHED,
};

struct weir_shared_uri {
    enum weir_shared_kind kind;
    bool tls;
    unsigned database;
    size_t count;
    struct weir_address server[WEIR_SHARED_SERVERS_MAX];
};

/* WEIR_ESYNTAX or WEIR_EINVAL with 'diag'. */
int weir_shared_uri_parse(struct weir_text text, struct weir_shared_uri *out,
                          struct weir_diag *diag);

/* Our credential for a server; "": none. */
struct weir_shared_secret {
    char user[WEIR_SHARED_WORD_MAX + 1];
    char password[WEIR_SHARED_WORD_MAX + 1];
};

/* Reads the secret for 'address' from the file 'path' (NULL: none); all "" if
 * there is none. 0, or WEIR_ECREDENTIAL with 'diag', which never quotes the
 * file. It is also an error if, without 'tls', a password would be sent to
 * another host and its line doesn't allow that. */
int weir_shared_secret_read(const char *path,
                            const struct weir_address *address, bool tls,
                            struct weir_shared_secret *out,
                            struct weir_diag *diag);

/* ---- Jobs ---- */

struct weir_shared_job {
    struct weir_shared_job *next; /* in the lane's list, then in the thread's
                                   * own */
    struct weir_lane *lane;
    unsigned users; /* 2, then 1, then it is freed */
    size_t key_len;
    char key[WEIR_NAME_MAX + 1];
    struct weir_algorithm_rule rule;
    struct weir_algorithm_ask ask;
    weir_instant until; /* its caller stops waiting then */
    weir_instant asked_at;
    weir_duration patience; /* its deadline, but at least WEIR_SHARED_DEADLINE:
                             * a later answer is no sign of life */

    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t wake;
    bool done;
    int result;
    struct weir_algorithm_answer answer;
};

/* Wakes the caller, if it still waits, and lets go of the job. 'answer' is read
 * if 'result' is 0. */
void weir_job_finish(struct weir_shared_job *job, int result,
                     const struct weir_algorithm_answer *answer);
void weir_job_finish_all(struct weir_shared_job *jobs, int result);
/* The job's answer has come, even if its caller no longer waits. */
void weir_job_answered(const struct weir_shared_job *job);

/* ---- Lanes ---- */

enum weir_lane_state {
    WEIR_LANE_NEW, /* not connected yet: steps wait for the first connection */
    WEIR_LANE_UP,
    WEIR_LANE_DOWN, /* steps fail at once */
};

struct weir_lane {
    struct weir_shared *shared;
    struct weir_address address;
    char name[280];         /* the address as text */
    int state;              /* enum weir_lane_state; written under 'mutex' */
    weir_duration patience; /* how long a probe may take: the longest patience
                             * of the steps since the breaker opened; atomic */

    pthread_mutex_t mutex; /* guards the members below */
    struct weir_shared_job *jobs, **jobs_end;
    weir_instant silent_since; /* the first step after the last answer in time;
                                * WEIR_NEVER: none */
    bool stop;

    void *own; /* data of the kind of store */
};

/* 'lane' holds zeros; 'shared' and 'address' stay the caller's. */
void weir_lane_init(struct weir_lane *lane, struct weir_shared *shared,
                    const struct weir_address *address);
/* Fails the jobs that wait; the lane's threads have ended. */
void weir_lane_fini(struct weir_lane *lane);
/* weir_shared_step() at the lane's server. */
int weir_lane_step(struct weir_lane *lane, struct weir_text key,
                   const struct weir_algorithm_rule *rule,
                   const struct weir_algorithm_ask *ask,
                   struct weir_algorithm_answer *out, weir_duration deadline);
bool weir_lane_is_up(const struct weir_lane *lane);

/* Below: for the lane's own threads. Takes all waiting jobs, in order; NULL:
 * none. */
struct weir_shared_job *weir_lane_get(struct weir_lane *lane);
/* The server has answered in time: steps are accepted. */
void weir_lane_up(struct weir_lane *lane);
/* The server is away for the reason 'why': waiting and new steps fail. */
void weir_lane_down(struct weir_lane *lane, const char *why);
/* Only puts the reason into the status. */
void weir_lane_note_error(struct weir_lane *lane, const char *why);

/* ---- Kinds ---- */

struct weir_shared_type {
    /* Starts the thread(s) of shared->lane[]. */
    int (*open)(struct weir_shared *shared, struct weir_diag *diag);
    /* 'job' was put into the lane; NULL: the lane's state has changed. Any
     * thread, without the lane's mutex. */
    void (*wake)(struct weir_lane *lane, const struct weir_shared_job *job);
    /* Ends the thread(s), which finish all their jobs. */
    void (*close)(struct weir_shared *shared);
};

extern const struct weir_shared_type weir_shared_redis;
extern const struct weir_shared_type weir_shared_memcached;

struct weir_shared {
    const struct weir_shared_type *type;
    struct weir_shared_uri uri;
    char prefix[WEIR_SHARED_PREFIX_MAX + 1];
    char *secrets_file;   /* owned; NULL: none */
    struct weir_tls *tls; /* owned; NULL: plain text */

    /* Counters; each is read on its own. */
    uint64_t pending, steps, timeouts, refused, swaps_lost, reloads;
    pthread_mutex_t mutex; /* guards last_error */
    char last_error[160];

    struct weir_lane lane[WEIR_SHARED_SERVERS_MAX]; /* uri.count of them */
};

#endif /* WEIR_SHARED_INTERNAL_H */
