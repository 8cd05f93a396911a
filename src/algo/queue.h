/* SPDX-License-Identifier: MIT
 * algo/queue.h - the leaky bucket as a queue: work that is let go at a rate,
 * in order, each piece until its own deadline.
 *
 * Bounded, in memory that the caller gives. What is pushed is in the queue
 * until it is handed out, once: released when its turn has come, or expired
 * when its deadline has come before that. Nothing is lost below the bound, and
 * what finds no place is refused at once. What has expired is handed out
 * first, wherever in the queue it stands, and costs the rate nothing: a queue
 * full of old work neither holds up fresh work nor keeps it out.
 *
 * Not thread-safe. 'now' may stand still, and go back a little: what has its
 * turn then waits for it once more.
 *
 * Source: Turner 1986, the bucket as a queue; deadlines at the head as in
 * CoDel's reasoning (Nichols, Jacobson 2012): what is late is worth nothing. */

#ifndef WEIR_QUEUE_H
#define WEIR_QUEUE_H

#include "algo/leaky.h"

#define WEIR_QUEUE_MAX (1u << 24) /* entries */

struct weir_queue;

struct weir_queue_options {
    uint32_t entries;  /* 1 .. WEIR_QUEUE_MAX */
    uint64_t units;    /* the rate: 'units' every 'per'; 0: nothing goes */
    weir_duration per; /* > 0; at most 100 units a nanosecond */
    uint64_t burst;    /* units that may go at once after idling, 1 to
                             * 2^50 */
};

struct weir_queue_entry {
    uint64_t id;           /* the caller's */
    uint64_t weight;       /* units, 0 .. WEIR_WEIGHT_MAX */
    weir_instant deadline; /* from then on it has expired; WEIR_NEVER: none */
};

enum weir_queue_next {
    WEIR_QUEUE_EMPTY,
    WEIR_QUEUE_WAIT,     /* the head's turn comes at weir_queue_deadline() */
    WEIR_QUEUE_RELEASED, /* 'out' goes now */
    WEIR_QUEUE_EXPIRED,  /* 'out' is handed back: its deadline has come */
};

/* Bytes, 40 an entry and a few; 0 when an option is out of its range. */
size_t weir_queue_size(const struct weir_queue_options *options);
/* An empty queue in 'block', of weir_queue_size() bytes and 8-byte aligned. */
struct weir_queue *weir_queue_init(void *block,
                                   const struct weir_queue_options *options);

/* 0, or WEIR_EFULL: there are 'entries' in the queue. Those of them that have
 * expired make room as soon as weir_queue_next() has handed them out: who finds
 * it full does that until it says something else than EXPIRED, and then tries
 * again. */
int weir_queue_push(struct weir_queue *queue,
                    const struct weir_queue_entry *entry);
/* Takes the next entry out, if there is one whose deadline or turn has come.
 * An entry that weighs more than the burst goes when the whole burst may, and
 * those after it wait for the rest. O(log entries). */
enum weir_queue_next weir_queue_next(struct weir_queue *queue,
                                     struct weir_queue_entry *out,
                                     weir_instant now);
/* When weir_queue_next() will have something: 'now' or later, to the
 * nanosecond. WEIR_NEVER: never. */
weir_instant weir_queue_deadline(const struct weir_queue *queue,
                                 weir_instant now);
uint32_t weir_queue_length(const struct weir_queue *queue);
/* A new rate, in the ranges of the options; what was let go keeps its weight in
 * units. */
void weir_queue_set_rate(struct weir_queue *queue, uint64_t units,
                         weir_duration per, uint64_t burst, weir_instant now);

#endif /* WEIR_QUEUE_H */
