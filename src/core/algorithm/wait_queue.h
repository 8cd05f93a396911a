/* SPDX-License-Identifier: MIT
 * algorithm/wait_queue.h - the wait queue: callers that wait, and which is
 * next.
 *
 *     weir_wait_queue_join(&line, &my_place);
 *     next = weir_wait_queue_next(&line, 0);       ... in the line's order
 *     weir_wait_queue_leave(&line, next);          ... served, or it gave up
 *
 * A wait queue has lanes, for classes that don't block each other: the caller
 * can ask for the next of some lanes alone. Within a lane only the order
 * decides which waiter overtakes another.
 *
 * A place lies in the waiter's memory. The waiter sets lane, ticket and
 * priority first and leaves the other members alone. The queue has no lock: one
 * thread at a time. */

#ifndef WEIR_WAIT_QUEUE_H
#define WEIR_WAIT_QUEUE_H

#include "core/base/base.h"

/* The order of service. The numbers are in the wire format and in the
 * stores. */
enum weir_wait_queue_order {
    WEIR_WAIT_QUEUE_FIFO = 1,     /* the longest waiter first */
    WEIR_WAIT_QUEUE_LIFO = 2,     /* the newest waiter first */
    WEIR_WAIT_QUEUE_PRIORITY = 3, /* the highest priority; then FIFO */
};

#define WEIR_WAIT_QUEUE_LANES 9

struct weir_wait_queue_entry {
    uint32_t lane;    /* below WEIR_WAIT_QUEUE_LANES */
    uint64_t ticket;  /* unique; a lower one came earlier */
    int64_t priority; /* a higher one is served earlier */
    struct weir_wait_queue_entry *before, *after; /* the queue's */
};

struct weir_wait_queue {
    enum weir_wait_queue_order order;
    uint32_t count; /* of all lanes */
    uint32_t lanes; /* bits: the lanes with a waiter */
    struct weir_wait_queue_entry *first[WEIR_WAIT_QUEUE_LANES];
    struct weir_wait_queue_entry *last[WEIR_WAIT_QUEUE_LANES];
};

/* Makes it empty. */
void weir_wait_queue_init(struct weir_wait_queue *line,
                          enum weir_wait_queue_order order);

/* O(1) for a place that is first or last of its lane; else O(n), from the
 * end. */
void weir_wait_queue_join(struct weir_wait_queue *line,
                          struct weir_wait_queue_entry *place);
/* The place must be in the queue. */
void weir_wait_queue_leave(struct weir_wait_queue *line,
                           struct weir_wait_queue_entry *place);

/* The next waiter of all lanes except those with a bit in 'without'; NULL:
 * none. */
struct weir_wait_queue_entry *weir_wait_queue_next(
    const struct weir_wait_queue *line, uint32_t without);

/* Whether a waiter of the queue comes before this place, which is not in the
 * queue. */
bool weir_wait_queue_has_before(const struct weir_wait_queue *line,
                                const struct weir_wait_queue_entry *place);

/* Changes the order, for the present waiters too; O(n log n). */
void weir_wait_queue_reorder(struct weir_wait_queue *line,
                             enum weir_wait_queue_order order);

#endif /* WEIR_WAIT_QUEUE_H */
