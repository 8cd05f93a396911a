/* SPDX-License-Identifier: MIT
 * lab/heap.h - future events of a model, by instant and within an instant by
 * the order of pushing. (The world, world.h, draws that order instead.) */

#ifndef WEIR_HEAP_H
#define WEIR_HEAP_H

#include "core/base/base.h"

/* The first member of an item. */
struct weir_heap_key {
    weir_instant at;
    uint64_t order; /* set by weir_heap_push() */
};

/* A zeroed heap with 'size' set is empty; 'items' is freed with free(). */
struct weir_heap {
    size_t size; /* bytes of an item, its key included */
    char *items; /* owned */
    size_t count, capacity;
    uint64_t pushed;
};

/* Copies the item. Aborts without memory. */
void weir_heap_push(struct weir_heap *heap, const void *item);
/* Removes the first item of a heap that isn't empty. */
void weir_heap_pop(struct weir_heap *heap, void *out_item);

/* The first item's key; NULL: the heap is empty. */
static inline const struct weir_heap_key *weir_heap_first(
    const struct weir_heap *heap)
{
    return heap->count > 0 ? (const void *)heap->items : NULL;
}

/* The first item's instant; WEIR_NEVER: the heap is empty. */
static inline weir_instant weir_heap_due(const struct weir_heap *heap)
{
    return heap->count > 0 ? weir_heap_first(heap)->at : WEIR_NEVER;
}

#endif /* WEIR_HEAP_H */
