/* SPDX-License-Identifier: MIT
 * libweir/libweir_waiting_internal.h - the wait queues of a limiter. */

#ifndef WEIR_LIBWEIR_WAITING_INTERNAL_H
#define WEIR_LIBWEIR_WAITING_INTERNAL_H

#include <pthread.h>

#include "core/table/table.h"

struct weir;

#define WEIR_WAITING_BUCKETS 64
struct weir_waiting_line;
/* The threads that wait to enter (libweir_waiting.c). */
struct weir_waiting {
    pthread_mutex_t mutex; /* guards all below */
    uint32_t count;        /* threads that wait; atomic */
    uint32_t standing;     /* of them, those in a queue */
    uint64_t tickets;      /* drawn so far */
    uint64_t woken;        /* threads, ever */
    uint64_t rounds;       /* of serving, ever */
    weir_instant look_at;  /* when the thread serves again */
    struct weir_waiting_line *bucket[WEIR_WAITING_BUCKETS]; /* by slot; owned */
    struct weir_waiting_line *first_due, *last_due;
};

/* A request that may wait. */
struct weir_wish {
    struct weir_ref ref;
    uint64_t weight;
    int64_t priority;
    weir_instant until;
    struct weir_permit_record *record; /* borrowed: its class, then all */
    struct weir_reply *reply;          /* borrowed, never NULL */
    uint64_t ticket;                   /* 0: none yet */
};

void weir_waiting_init(struct weir_waiting *waiting);
/* No thread may be waiting. In a child of fork(), where none is: init alone. */
void weir_waiting_fini(struct weir_waiting *waiting);
/* Enters, or waits for it. Returns an outcome; LIMITED: it was too late, or too
 * many wait already. Blocks until 'until' at most. */
unsigned weir_waiting_enter(struct weir *weir, struct weir_wish *wish);
/* Units came free at these slots: hands them to the next waiters. Any
 * thread. */
void weir_waiting_left(struct weir *weir, const uint32_t *slots, uint32_t count,
                       weir_instant now);
/* On the thread: the same for all slots. Returns when to serve again even if no
 * permit leaves, or WEIR_NEVER. */
weir_instant weir_waiting_look(struct weir *weir, weir_instant now);
void weir_waiting_sleep(weir_instant until);
/* Sleeps until the wish may ask again, by its reply; at most until it is too
 * late. */
void weir_waiting_pause(const struct weir_wish *wish, weir_instant now);

#endif /* WEIR_LIBWEIR_WAITING_INTERNAL_H */
