/* SPDX-License-Identifier: MIT
 * client/client.h - what a limiter in a process is made of; for client/ only.
 *
 * Two sides that share only the table (lock-free), two atomics and a mutex
 * for what people wait for:
 *
 *     callers' threads                      the background thread
 *     ----------------                      ---------------------
 *     decide.c: take, peek, …  -> table <-  pump.c: limiter node, links
 *     stripe.c: a thread's corner           link.c: one root's connection
 *     weir.c: open, close, ready   <- mutex, condition ->
 *     event_queue.c: what goes on  <- mutex, eventfd   ->
 *
 * A child of fork() has the callers' side and a copy of the memory, but no
 * background thread; fork.c makes it a limiter of its own. */

#ifndef WEIR_CLIENT_H
#define WEIR_CLIENT_H

#include <pthread.h>

#include "node/limiter.h"
#include "os/root_link.h"
#include "os/login.h"
#include "wire/weir_v1.h"

#define WEIR_EVENT_QUEUE_MAX 64
#define WEIR_SLOTS_DEFAULT 65536
#define WEIR_STRIPES_DEFAULT 64
/* Time that closing waits for the last counts to be answered. */
#define WEIR_CLOSE_PATIENCE (100 * WEIR_MILLISECOND)

struct event;
struct event_base;
struct weir;

struct weir_client_link {
    struct weir *weir;         /* borrowed */
    uint32_t index;            /* of the limiter's link */
    struct weir_address address;
    struct weir_root_link *link; /* owned */
};

struct weir_event_queue {
    pthread_mutex_t mutex;     /* guards all below but fd */
    int fd;                    /* eventfd: readable while count > 0 */
    uint32_t first, count;
    uint64_t lost;
    weir_instant lost_at;      /* the first of them */
    struct weir_event event[WEIR_EVENT_QUEUE_MAX];
};

/* On a page that the kernel wipes in children of fork(). */
struct weir_own {
    uint64_t id;       /* atomic: weir->id; 0: not this process's limiter yet */
    uint32_t forking;  /* atomic: some thread makes it so */
};

/* A stripe given to a thread; the thread's exit gives it back. */
struct weir_stripe_lease {
    struct weir *weir;
    uint32_t stripe;
};

struct weir {
    /* The callers' side. */
    struct weir_table *table;
    uint64_t id;               /* random, > 1: no two limiters share it */
    pthread_key_t stripe_key;
    struct weir_stripe_lease *leases; /* owned; one a stripe */
    struct weir_own *own;      /* wiped in a child of fork() */
    int kick_fd;               /* eventfd: wakes the thread */

    /* Memory. */
    void *table_block, *limiter_block, *arena_block; /* owned */
    size_t table_size, limiter_size;

    /* Options, kept for a child. */
    char name[WEIR_NAME_MAX + 1];
    bool named;                /* by the caller */
    uint32_t slots, stripes;
    weir_event_fn *on_event;
    void *event_context;
    uint32_t link_count;
    struct weir_login *login;  /* owned; its paths are fixed, the rest is the
                                * background thread's */

    /* Between the sides: mutex guards those up to events. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool ready, closing;
    uint64_t sync_wanted;      /* calls of weir_sync() */
    uint64_t sync_done;        /* of them, those answered */
    struct weir_status status;
    struct weir_event_queue events;

    /* The background thread's. */
    pthread_t thread;
    bool thread_runs;
    struct weir_limiter *limiter;
    struct event_base *base;
    struct event *kick_event, *timer;
    struct weir_client_link link[WEIR_ROOTS_MAX];
    struct weir_arena arena;
    bool tell_forked;          /* as the thread's first event */
    char *out;                 /* owned: a message being encoded */
    size_t out_size;
    uint64_t sync_begun;       /* of sync_wanted: hurried for */
    bool stopping;
    weir_instant stop_at;
};

/* ---- weir.c ---- */
void weir_locks_init(struct weir *weir);
/* How the limiter is called: as the caller said, or by program and pid. */
void weir_name_limiter(struct weir *weir);

/* ---- event_queue.c ---- */
int weir_event_queue_init(struct weir_event_queue *queue);
void weir_event_queue_fini(struct weir_event_queue *queue);
/* To the queue and to the callback. Background thread. */
void weir_event_tell(struct weir *weir, const struct weir_event *event);

/* ---- stripe.c ---- */
int weir_stripes_init(struct weir *weir);
void weir_stripes_fini(struct weir *weir);
/* The calling thread's stripe. In a child of fork() the first such call makes
 * the limiter the child's own. */
uint32_t weir_stripe_mine(struct weir *weir);
/* In a child: gives back what threads held that stayed with the parent. */
void weir_stripes_forked(struct weir *weir);

/* ---- pump.c ---- */
/* Makes the loop and its links and starts the thread. */
int weir_pump_start(struct weir *weir);
/* Asks the thread to end, waits for it, frees loop and links. */
void weir_pump_stop(struct weir *weir);
/* From a callers' thread: there is something to do. Async-signal-safe. */
void weir_pump_kick(struct weir *weir);
/* On the thread: drains the limiter's messages and events, sets the timer. */
void weir_pump_run(struct weir *weir);

/* ---- link.c ---- */
int weir_client_link_init(struct weir *weir, uint32_t index);
void weir_client_link_connect(struct weir_client_link *link);
/* Sends a message; a link that can't is dropped. */
void weir_client_link_send(struct weir_client_link *link,
                           const struct weir_message *message);
void weir_client_link_fini(struct weir_client_link *link);

/* ---- fork.c ---- */
int weir_fork_watch(struct weir *weir);
void weir_fork_unwatch(struct weir *weir);
/* Whether this process is the one whose limiter it is. */
bool weir_fork_is_own(const struct weir *weir);
/* If it isn't, makes it so, unless another thread is at it. */
void weir_fork_try(struct weir *weir);
/* The same, and waits for the other thread: for who will take a lock. */
void weir_fork_check(struct weir *weir);

#endif /* WEIR_CLIENT_H */
