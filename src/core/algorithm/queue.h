/* SPDX-License-Identifier: MIT
 * algorithm/queue.h - the leaky bucket as a queue: entries are released at a
 * rate, in order, each before its own deadline.
 *
 * Bounded, in memory that the caller gives. A pushed entry stays in the queue
 * until it is handed out, once: released when its turn comes, or expired when
 * its deadline comes first. Below the bound nothing is lost; a push to a full
 * queue is refused at once. Expired entries are handed out first, from any
 * position in the queue, and use none of the rate: a queue full of old work
 * neither delays fresh work nor keeps it out.
 *
 * Not thread-safe. 'now' may stand still, and go back a little: an entry may
 * then wait for its turn once more.
 *
 * Source: Turner 1986, the bucket as a queue; deadlines at the head as in
 * CoDel's reasoning (Nichols, Jacobson 2012): late work is worth nothing. */

#ifndef WEIR_QUEUE_H
#define WEIR_QUEUE_H

#include "core/algorithm/leaky.h"

#define WEIR_QUEUE_MAX (1u << 24) /* entries */

struct weir_queue;

struct weir_queue_options {
    uint32_t entries;  /* 1 .. WEIR_QUEUE_MAX */
    uint64_t units;    /* the rate: 'units' every 'per'; 0: no release */
    weir_duration per; /* > 0; at most 100 units a nanosecond */
    uint64_t burst;    /* units released at once after idling, 1 to 2^50 */
};

struct weir_queue_entry {
    uint64_t id;           /* the caller's */
    uint64_t weight;       /* units, 0 .. WEIR_WEIGHT_MAX */
    weir_instant deadline; /* it expires then; WEIR_NEVER: never */
};

enum weir_queue_next {
    WEIR_QUEUE_EMPTY,
    WEIR_QUEUE_WAIT,     /* the head's turn comes at weir_queue_deadline() */
    WEIR_QUEUE_RELEASED, /* 'out' may proceed now */
    WEIR_QUEUE_EXPIRED,  /* 'out' has reached its deadline */
};

/* Size in bytes; 0 when an option is out of its range. */
size_t weir_queue_size(const struct weir_queue_options *options);
/* An empty queue in 'block', of weir_queue_size() bytes and 8-byte aligned. */
struct weir_queue *weir_queue_init(void *block,
                                   const struct weir_queue_options *options);

/* 0, or WEIR_EFULL: there are 'entries' in the queue. Expired entries free
 * their places when weir_queue_next() hands them out: if the queue is full, the
 * caller calls that until it no longer returns EXPIRED, then tries again. */
int weir_queue_push(struct weir_queue *queue,
                    const struct weir_queue_entry *entry);
/* Takes the next entry out, if its deadline or its turn has come. An entry
 * heavier than the burst is released when the whole burst is free; the entries
 * after it wait for the rest. O(log entries). */
enum weir_queue_next weir_queue_next(struct weir_queue *queue,
                                     struct weir_queue_entry *out,
                                     weir_instant now);
/* The instant at which weir_queue_next() will return an entry: 'now' or later,
 * to the nanosecond. WEIR_NEVER: never. */
weir_instant weir_queue_deadline(const struct weir_queue *queue,
                                 weir_instant now);

#endif /* WEIR_QUEUE_H */
