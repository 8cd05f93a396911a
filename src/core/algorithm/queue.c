/* SPDX-License-Identifier: MIT
 * algorithm/queue.c - first in, first out, at a rate, with deadlines.
 *
 * Entries are nodes of a fixed pool, in two orders at once: a list in the order
 * of arrival, with the next entry to release at its head, and a heap of the
 * entries with a deadline, with the next to expire on top. A node stores its
 * place in the heap, so that it can leave both from any position.
 *
 *     first -> node <-> node <-> node <- last        free -> node -> node
 *                ^                 ^
 *     heap:    [ 0 ............... n )   deadlines, the earliest on top
 *
 * Rejected: checking deadlines only at the head. Expired entries would then be
 * found only at the queue's rate, and keep their places until then. */

#include "core/algorithm/queue.h"

#include "core/algorithm/algorithm_internal.h"

#define NONE UINT32_MAX
#define BURST_MAX ((uint64_t)1 << 50)

struct node {
    struct weir_queue_entry entry;
    uint32_t next; /* in the list, or in the list of free nodes */
    uint32_t prev;
    uint32_t place; /* in the heap; NONE: no deadline */
    uint32_t unused;
};

struct weir_queue {
    struct weir_bucket bucket;
    uint64_t in; /* the bucket's sum; 0: nothing was ever released */
    uint32_t entries;
    uint32_t length;
    uint32_t first;
    uint32_t last;
    uint32_t free;
    uint32_t heap_length;
    struct node nodes[]; /* followed by the heap: numbers of nodes */
};

static uint32_t *deadline_heap(const struct weir_queue *queue)
{
    const struct node *end = queue->nodes + queue->entries;
    return (uint32_t *)(uintptr_t)end;
}

size_t weir_queue_size(const struct weir_queue_options *options)
{
    size_t entry = sizeof(struct node) + sizeof(uint32_t);
    if (options->entries == 0 || options->entries > WEIR_QUEUE_MAX ||
        options->per == 0 || options->burst == 0 ||
        options->burst > BURST_MAX ||
        (weir_u128)options->units > (weir_u128)options->per * 100)
        return 0;
    size_t size = sizeof(struct weir_queue) + options->entries * entry;
    return (size + 7) & ~(size_t)7;
}

struct weir_queue *weir_queue_init(void *block,
                                   const struct weir_queue_options *options)
{
    weir_assert(weir_queue_size(options) > 0);
    struct weir_queue *queue = block;
    *queue = (struct weir_queue){
        .entries = options->entries,
        .first = NONE,
        .last = NONE,
    };
    weir_bucket_init(&queue->bucket, options->units, options->per,
                     options->burst, options->burst);
    for (uint32_t i = 0; i < options->entries; i++)
        queue->nodes[i].next = i + 1 < options->entries ? i + 1 : NONE;
    return queue;
}

/* ---- The heap ---- */

static weir_instant deadline_at(const struct weir_queue *queue, uint32_t place)
{
    weir_assert(place < queue->heap_length);
    return queue->nodes[deadline_heap(queue)[place]].entry.deadline;
}

static void set_deadline_place(struct weir_queue *queue, uint32_t place,
                               uint32_t number)
{
    weir_assert(place < queue->entries && number < queue->entries);
    deadline_heap(queue)[place] = number;
    queue->nodes[number].place = place;
}

static void sift_deadline_up(struct weir_queue *queue, uint32_t place)
{
    uint32_t number = deadline_heap(queue)[place];
    weir_instant deadline = queue->nodes[number].entry.deadline;
    while (place > 0 && deadline < deadline_at(queue, (place - 1) / 2)) {
        set_deadline_place(queue, place, deadline_heap(queue)[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    set_deadline_place(queue, place, number);
}

static void sift_deadline_down(struct weir_queue *queue, uint32_t place)
{
    uint32_t number = deadline_heap(queue)[place];
    weir_instant deadline = queue->nodes[number].entry.deadline;
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child + 1 < queue->heap_length &&
            deadline_at(queue, child + 1) < deadline_at(queue, child))
            child++;
        if (child >= queue->heap_length ||
            deadline <= deadline_at(queue, child))
            break;
        set_deadline_place(queue, place, deadline_heap(queue)[child]);
        place = child;
    }
    set_deadline_place(queue, place, number);
}

static void heap_remove(struct weir_queue *queue, uint32_t place)
{
    weir_assert(place < queue->heap_length);
    uint32_t moved = deadline_heap(queue)[--queue->heap_length];
    if (place == queue->heap_length)
        return;
    set_deadline_place(queue, place, moved);
    sift_deadline_up(queue, place);
    sift_deadline_down(queue, queue->nodes[moved].place);
}

/* ---- The list ---- */

int weir_queue_push(struct weir_queue *queue,
                    const struct weir_queue_entry *entry)
{
    weir_assert(entry->weight <= WEIR_WEIGHT_MAX);
    uint32_t number = queue->free;
    if (number == NONE)
        return WEIR_EFULL;
    weir_assert(number < queue->entries && queue->length < queue->entries);
    struct node *node = &queue->nodes[number];
    queue->free = node->next;
    *node = (struct node){
        .entry = *entry, .next = NONE, .prev = queue->last, .place = NONE
    };
    if (queue->last == NONE)
        queue->first = number;
    else
        queue->nodes[queue->last].next = number;
    queue->last = number;
    queue->length++;
    if (entry->deadline != WEIR_NEVER) {
        set_deadline_place(queue, queue->heap_length++, number);
        sift_deadline_up(queue, node->place);
    }
    weir_assert(queue->heap_length <= queue->length);
    return WEIR_OK;
}

static void remove_entry(struct weir_queue *queue, uint32_t number,
                         struct weir_queue_entry *out)
{
    weir_assert(number < queue->entries && queue->length > 0);
    struct node *node = &queue->nodes[number];
    *out = node->entry;
    if (node->place != NONE)
        heap_remove(queue, node->place);
    if (node->prev == NONE)
        queue->first = node->next;
    else
        queue->nodes[node->prev].next = node->next;
    if (node->next == NONE)
        queue->last = node->prev;
    else
        queue->nodes[node->next].prev = node->prev;
    node->next = queue->free;
    queue->free = number;
    queue->length--;
    weir_assert(queue->heap_length <= queue->length);
    weir_assert((queue->length == 0) == (queue->first == NONE));
}

/* ---- The rate ---- */

static int64_t fill_at(const struct weir_queue *queue, weir_instant now)
{
    if (queue->in == 0)
        return 0;
    int64_t fill = weir_bucket_fill(&queue->bucket, queue->in, now);
    return fill > 0 ? fill : 0;
}

static void fill_set(struct weir_queue *queue, int64_t fill, weir_instant now)
{
    weir_assert(fill >= 0);
    queue->in = weir_leaked(queue->bucket.leak, now) + (uint64_t)fill;
    if (queue->in == 0)
        queue->in = 1;
    weir_assert(queue->in != 0);
}

/* Nanoseconds until the head's turn; the queue must not be empty. */
static weir_duration wait_of_head(const struct weir_queue *queue,
                                  weir_instant now)
{
    weir_assert(queue->length > 0);
    const struct weir_bucket *bucket = &queue->bucket;
    uint64_t weight = queue->nodes[queue->first].entry.weight;
    int64_t scaled = (int64_t)(weight << bucket->leak.frac);
    if (scaled > bucket->high)
        scaled = bucket->high;
    return weir_leak_wait(bucket->leak,
                          fill_at(queue, now) + scaled - bucket->high, now);
}

enum weir_queue_next weir_queue_next(struct weir_queue *queue,
                                     struct weir_queue_entry *out,
                                     weir_instant now)
{
    if (queue->heap_length > 0 && deadline_at(queue, 0) <= now) {
        remove_entry(queue, deadline_heap(queue)[0], out);
        return WEIR_QUEUE_EXPIRED;
    }
    if (queue->length == 0)
        return WEIR_QUEUE_EMPTY;
    if (wait_of_head(queue, now) > 0)
        return WEIR_QUEUE_WAIT;
    remove_entry(queue, queue->first, out);
    int64_t scaled = (int64_t)(out->weight << queue->bucket.leak.frac);
    fill_set(queue, fill_at(queue, now) + scaled, now);
    return WEIR_QUEUE_RELEASED;
}

weir_instant weir_queue_deadline(const struct weir_queue *queue,
                                 weir_instant now)
{
    if (queue->length == 0)
        return WEIR_NEVER;
    weir_instant at = weir_after(now, wait_of_head(queue, now));
    if (queue->heap_length > 0)
        at = weir_earlier(at, deadline_at(queue, 0));
    return weir_later(at, now);
}
