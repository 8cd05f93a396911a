/* SPDX-License-Identifier: MIT
 * store/shared_private.h - what the files of a shared store know of each
 * other: jobs, lanes, and what each kind of store gives.
 *
 *     caller           lane (a server)           the kind's own thread(s)
 *     weir_shared_step -> [job, job, …] -- get --> asks the server
 *        waits on the job <------ weir_job_finish() --- its answer
 *
 * A job belongs to two, its caller and the lane's thread; whoever is last
 * frees it. A caller whose deadline has passed leaves, and the answer, if one
 * comes, finds nobody. */

#ifndef WEIR_SHARED_PRIVATE_H
#define WEIR_SHARED_PRIVATE_H

#include <pthread.h>

#include "os/stream.h"
#include "quota/quota.h"
#include "store/shared.h"

#define WEIR_SHARED_SERVERS_MAX WEIR_STORE_SERVERS_MAX
#define WEIR_SHARED_WORD_MAX 255  /* bytes of a user's name or a password */
#define WEIR_SHARED_PREFIX_MAX 64 /* bytes */
#define WEIR_SHARED_WORKERS 4     /* threads for a server of memcached */

/* ---- What a URI says ---- */

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

/* Who we are to a server: "" where there is none. */
struct weir_shared_secret {
    char user[WEIR_SHARED_WORD_MAX + 1];
    char password[WEIR_SHARED_WORD_MAX + 1];
};

/* What the file 'path' (NULL: none) says of 'address'; all "" if nothing. 0,
 * or WEIR_ECREDENTIAL with 'diag', which never quotes the file: also if without
 * 'tls' a password would go to another host, and its line doesn't say that it
 * may. */
int weir_shared_secret_read(const char *path,
                            const struct weir_address *address, bool tls,
                            struct weir_shared_secret *out,
                            struct weir_diag *diag);

/* ---- Jobs ---- */

struct weir_shared_job {
    struct weir_shared_job *next; /* the lane's list, then the thread's own */
    struct weir_lane *lane;
    unsigned users; /* 2, 1, then it is freed */
    size_t key_len;
    char key[WEIR_NAME_MAX + 1];
    struct weir_meter_rule rule;
    struct weir_meter_ask ask;
    weir_instant until; /* then nobody waits any more */
    weir_instant asked_at;
    weir_duration patience; /* its deadline, but WEIR_SHARED_DEADLINE at least:
                             * an answer after that is no sign of life */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t wake;
    bool done;
    int result;
    struct weir_meter_answer answer;
};

/* Tells the caller, if it still waits, and lets go of the job. 'answer' is
 * read when 'result' is 0. */
void weir_job_finish(struct weir_shared_job *job, int result,
                     const struct weir_meter_answer *answer);
void weir_job_finish_all(struct weir_shared_job *jobs, int result);
/* An answer to it has come, whoever still waits. */
void weir_job_heard(const struct weir_shared_job *job);
/* Waits by the monotonic clock, which deadlines are counted by. */
void weir_shared_cond_init(pthread_cond_t *cond);

/* ---- Lanes ---- */

enum weir_lane_state {
    WEIR_LANE_NEW, /* nobody knows yet: steps wait for the first connection */
    WEIR_LANE_UP,
    WEIR_LANE_DOWN, /* steps are refused at once */
};

struct weir_lane {
    struct weir_shared *shared;
    struct weir_address address;
    char name[280];         /* the address, for people */
    int state;              /* enum weir_lane_state; written under 'mutex' */
    weir_duration patience; /* how long a probe may take: the longest of the
                             * steps since the breaker opened; atomic */

    pthread_mutex_t mutex; /* guards what follows */
    struct weir_shared_job *jobs, **jobs_end;
    weir_instant silent_since; /* the first ask after the last answer
                                * in time; WEIR_NEVER: none */
    bool stop;

    void *own; /* the kind's */
};

/* All that waits, in order; NULL: nothing. */
struct weir_shared_job *weir_lane_get(struct weir_lane *lane);
/* The server has answered in time: steps may come. */
void weir_lane_up(struct weir_lane *lane);
/* The server is away, because of 'why': steps are refused from here on, and
 * those that wait here too. */
void weir_lane_down(struct weir_lane *lane, const char *why);
/* Says so in the status, and no more. */
void weir_lane_complain(struct weir_lane *lane, const char *why);

/* ---- Kinds ---- */

struct weir_shared_type {
    /* Starts the thread(s) of shared->lane[]. */
    int (*open)(struct weir_shared *shared, struct weir_diag *diag);
    /* 'job' lies in the lane; NULL: its state has changed. Any thread,
     * without the lane's mutex. */
    void (*wake)(struct weir_lane *lane, const struct weir_shared_job *job);
    /* Ends the thread(s); every job that they have is finished. */
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

    /* Counts; each is read alone. */
    uint64_t pending, steps, timeouts, refused, swaps_lost, reloads;
    pthread_mutex_t mutex; /* guards last_error */
    char last_error[160];

    struct weir_lane lane[WEIR_SHARED_SERVERS_MAX]; /* uri.count of them */
};

#endif /* WEIR_SHARED_PRIVATE_H */
