/* SPDX-License-Identifier: MIT
 * algorithm/wait_queue.c - the wait queue: one sorted list per lane.
 *
 * Always: a lane is sorted by entry_comes_before(), which is total because
 * tickets are unique; a lane's bit is set if and only if it has a first place.
 *
 * Rejected: a heap. A waiter that gives up leaves from the middle, and the
 * places lie in the waiters' memory: a list needs neither a search nor memory
 * of its own. Joining is linear only for a waiter that overtakes some but not
 * all others, and a queue is bounded by the threads of a process. */

#include "core/algorithm/wait_queue.h"

#include <string.h>

void weir_wait_queue_init(struct weir_wait_queue *line,
                          enum weir_wait_queue_order order)
{
    memset(line, 0, sizeof(*line));
    line->order = order;
}

static bool entry_comes_before(enum weir_wait_queue_order order,
                               const struct weir_wait_queue_entry *a,
                               const struct weir_wait_queue_entry *b)
{
    switch (order) {
    case WEIR_WAIT_QUEUE_FIFO:
        break;
    case WEIR_WAIT_QUEUE_LIFO:
        return a->ticket > b->ticket;
    case WEIR_WAIT_QUEUE_PRIORITY:
        if (a->priority != b->priority)
            return a->priority > b->priority;
        break;
    }
    return a->ticket < b->ticket;
}

/* Inserts between two places of its lane; NULL: an end. */
static void insert_between(struct weir_wait_queue *line,
                           struct weir_wait_queue_entry *place,
                           struct weir_wait_queue_entry *before,
                           struct weir_wait_queue_entry *after)
{
    uint32_t lane = place->lane;
    weir_assert(lane < WEIR_WAIT_QUEUE_LANES);
    weir_audit(!before || entry_comes_before(line->order, before, place));
    weir_audit(!after || entry_comes_before(line->order, place, after));
    place->before = before;
    place->after = after;
    *(before ? &before->after : &line->first[lane]) = place;
    *(after ? &after->before : &line->last[lane]) = place;
    line->lanes |= 1u << lane;
    line->count++;
    weir_assert(line->first[lane] && line->last[lane]);
}

void weir_wait_queue_join(struct weir_wait_queue *line,
                          struct weir_wait_queue_entry *place)
{
    weir_assert(place->lane < WEIR_WAIT_QUEUE_LANES);
    struct weir_wait_queue_entry *first = line->first[place->lane];
    struct weir_wait_queue_entry *before = line->last[place->lane];
    if (first && entry_comes_before(line->order, place, first)) {
        insert_between(line, place, NULL, first);
        return;
    }
    while (before && entry_comes_before(line->order, place, before))
        before = before->before;
    insert_between(line, place, before, before ? before->after : NULL);
}

void weir_wait_queue_leave(struct weir_wait_queue *line,
                           struct weir_wait_queue_entry *place)
{
    weir_assert(line->count > 0);
    uint32_t lane = place->lane;
    weir_assert(lane < WEIR_WAIT_QUEUE_LANES && line->first[lane]);
    *(place->before ? &place->before->after : &line->first[lane]) =
        place->after;
    *(place->after ? &place->after->before : &line->last[lane]) = place->before;
    place->before = place->after = NULL;
    if (!line->first[lane])
        line->lanes &= ~(1u << lane);
    line->count--;
    weir_assert((line->count == 0) == (line->lanes == 0));
}

struct weir_wait_queue_entry *weir_wait_queue_next(
    const struct weir_wait_queue *line, uint32_t without)
{
    struct weir_wait_queue_entry *next = NULL;
    for (uint32_t lane = 0; lane < WEIR_WAIT_QUEUE_LANES; lane++) {
        struct weir_wait_queue_entry *first = line->first[lane];
        if (!first || (without >> lane & 1))
            continue;
        if (!next || entry_comes_before(line->order, first, next))
            next = first;
    }
    return next;
}

bool weir_wait_queue_has_before(const struct weir_wait_queue *line,
                                const struct weir_wait_queue_entry *place)
{
    const struct weir_wait_queue_entry *next = weir_wait_queue_next(line, 0);
    return next && entry_comes_before(line->order, next, place);
}

/* Takes the earlier of two sorted chains' first places. */
static struct weir_wait_queue_entry *pop_earlier(
    enum weir_wait_queue_order order, struct weir_wait_queue_entry **a,
    struct weir_wait_queue_entry **b)
{
    weir_assert(*a || *b);
    bool from_b = !*a || (*b && entry_comes_before(order, *b, *a));
    struct weir_wait_queue_entry **chain = from_b ? b : a;
    struct weir_wait_queue_entry *next = *chain;
    *chain = next->after;
    return next;
}

static struct weir_wait_queue_entry *merge_chains(
    enum weir_wait_queue_order order, struct weir_wait_queue_entry *a,
    struct weir_wait_queue_entry *b)
{
    struct weir_wait_queue_entry *first = NULL;
    struct weir_wait_queue_entry **end = &first;
    while (a || b) {
        *end = pop_earlier(order, &a, &b);
        end = &(*end)->after;
    }
    *end = NULL;
    return first;
}

/* Merge sort along 'after' alone. The runs form a binary counter: run[i] is
 * NULL or has 2^i places. */
static struct weir_wait_queue_entry *sort_chain(
    enum weir_wait_queue_order order, struct weir_wait_queue_entry *place)
{
    struct weir_wait_queue_entry *run[32] = { NULL };
    struct weir_wait_queue_entry *sorted = NULL;
    while (place) {
        struct weir_wait_queue_entry *carry = place;
        place = place->after;
        carry->after = NULL;
        uint32_t i = 0;
        for (; run[i]; i++) {
            carry = merge_chains(order, run[i], carry);
            run[i] = NULL;
        }
        weir_assert(i < WEIR_COUNT_OF(run));
        run[i] = carry;
    }
    for (uint32_t i = 0; i < WEIR_COUNT_OF(run); i++)
        sorted = merge_chains(order, run[i], sorted);
    return sorted;
}

void weir_wait_queue_reorder(struct weir_wait_queue *line,
                             enum weir_wait_queue_order order)
{
    struct weir_wait_queue before = *line;
    weir_wait_queue_init(line, order);
    for (uint32_t lane = 0; lane < WEIR_WAIT_QUEUE_LANES; lane++) {
        struct weir_wait_queue_entry *place =
            sort_chain(order, before.first[lane]);
        while (place) {
            struct weir_wait_queue_entry *after = place->after;
            insert_between(line, place, line->last[lane], NULL);
            place = after;
        }
    }
    weir_assert(line->count == before.count && line->lanes == before.lanes);
}
