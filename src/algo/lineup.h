/* SPDX-License-Identifier: MIT
 * algo/lineup.h - the wait queue: callers that wait, and which is next.
 *
 *     weir_lineup_join(&line, &my_place);
 *     next = weir_lineup_next(&line, 0);       ... in the line's order
 *     weir_lineup_leave(&line, next);          ... served, or it gave up
 *
 * A wait queue has lanes, for classes that don't block each other: the caller
 * can ask for the next of some lanes alone. Within a lane only the order
 * decides which waiter overtakes another.
 *
 * A place lies in the waiter's memory. The waiter sets lane, ticket and
 * priority first and leaves the other members alone. The queue has no lock: one
 * thread at a time. */

#ifndef WEIR_LINEUP_H
#define WEIR_LINEUP_H

#include "base/base.h"

/* The order of service. The numbers are in the wire format and in the
 * stores. */
enum weir_lineup_order {
    WEIR_LINEUP_FIFO = 1,     /* the longest waiter first */
    WEIR_LINEUP_LIFO = 2,     /* the newest waiter first */
    WEIR_LINEUP_PRIORITY = 3, /* the highest priority; then FIFO */
};

#define WEIR_LINEUP_LANES 9

struct weir_lineup_place {
    uint32_t lane;    /* below WEIR_LINEUP_LANES */
    uint64_t ticket;  /* unique; a lower one came earlier */
    int64_t priority; /* a higher one is served earlier */
    struct weir_lineup_place *before, *after; /* the queue's */
};

struct weir_lineup {
    enum weir_lineup_order order;
    uint32_t count; /* of all lanes */
    uint32_t lanes; /* bits: the lanes with a waiter */
    struct weir_lineup_place *first[WEIR_LINEUP_LANES];
    struct weir_lineup_place *last[WEIR_LINEUP_LANES];
};

/* Makes it empty. */
void weir_lineup_init(struct weir_lineup *line, enum weir_lineup_order order);

/* O(1) for a place that is first or last of its lane; else O(n), from the
 * end. */
void weir_lineup_join(struct weir_lineup *line,
                      struct weir_lineup_place *place);
/* The place must be in the queue. */
void weir_lineup_leave(struct weir_lineup *line,
                       struct weir_lineup_place *place);

/* The next waiter of all lanes except those with a bit in 'without'; NULL:
 * none. */
struct weir_lineup_place *weir_lineup_next(const struct weir_lineup *line,
                                           uint32_t without);

/* Whether a waiter of the queue comes before this place, which is not in the
 * queue. */
bool weir_lineup_has_before(const struct weir_lineup *line,
                            const struct weir_lineup_place *place);

/* Changes the order, for the present waiters too; O(n log n). */
void weir_lineup_reorder(struct weir_lineup *line,
                         enum weir_lineup_order order);

#endif /* WEIR_LINEUP_H */
