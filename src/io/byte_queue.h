/* SPDX-License-Identifier: MIT
 * io/byte_queue.h - a queue of bytes in one piece of memory that grows. A
 * zeroed struct is an empty queue. */

#ifndef WEIR_BYTE_QUEUE_H
#define WEIR_BYTE_QUEUE_H

#include <stdlib.h>
#include <string.h>

#include "core/base/base.h"

#define WEIR_QUEUE_KEEP (256u << 10) /* bytes of memory kept when empty */

struct weir_byte_queue {
    uint8_t *p;
    size_t head; /* the bytes still queued: [head, len) */
    size_t len;
    size_t capacity;
};

static inline size_t weir_byte_queue_left(const struct weir_byte_queue *queue)
{
    return queue->len - queue->head;
}

/* Makes room for 'more' bytes at the end; false: no memory, nothing changed. */
static inline bool weir_byte_queue_reserve(struct weir_byte_queue *queue,
                                           size_t more)
{
    if (queue->head > 0 && queue->head >= weir_byte_queue_left(queue)) {
        memmove(queue->p, queue->p + queue->head, weir_byte_queue_left(queue));
        queue->len -= queue->head;
        queue->head = 0;
    }
    size_t need = queue->len + more;
    if (need <= queue->capacity)
        return true;
    size_t wanted = queue->capacity > 0 ? queue->capacity : 512;
    while (wanted < need)
        wanted *= 2;
    uint8_t *p = realloc(queue->p, wanted);
    if (!p)
        return false;
    queue->p = p;
    queue->capacity = wanted;
    return true;
}

/* The caller has reserved the room with weir_byte_queue_reserve(). */
static inline void weir_byte_queue_append(struct weir_byte_queue *queue,
                                          const void *bytes, size_t len)
{
    weir_assert(len <= queue->capacity - queue->len);
    if (len > 0)
        memcpy(queue->p + queue->len, bytes, len);
    queue->len += len;
}

static inline void weir_byte_queue_fini(struct weir_byte_queue *queue)
{
    free(queue->p);
    *queue = (struct weir_byte_queue){ .p = NULL };
}

static inline void weir_byte_queue_take(struct weir_byte_queue *queue,
                                        size_t len)
{
    weir_assert(len <= weir_byte_queue_left(queue));
    queue->head += len;
    if (queue->head < queue->len)
        return;
    queue->head = 0;
    queue->len = 0;
    if (queue->capacity > WEIR_QUEUE_KEEP)
        weir_byte_queue_fini(queue);
}

#endif /* WEIR_BYTE_QUEUE_H */
