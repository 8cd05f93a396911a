/* SPDX-License-Identifier: MIT
 * lab/heap.c - a binary heap of copied items. */

#include "lab/heap.h"

#include "lab/memory.h"

static struct weir_heap_key *heap_item(const struct weir_heap *heap, size_t i)
{
    return (void *)(heap->items + i * heap->size);
}

static bool key_is_before(const struct weir_heap_key *a,
                          const struct weir_heap_key *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void weir_heap_push(struct weir_heap *heap, const void *item)
{
    weir_assert(heap->size >= sizeof(struct weir_heap_key));
    heap->items = weir_must_grow(heap->items, &heap->capacity, heap->count + 1,
                                 heap->size);
    struct weir_heap_key key = *(const struct weir_heap_key *)item;
    key.order = heap->pushed++;
    size_t i = heap->count++;
    for (; i > 0 && key_is_before(&key, heap_item(heap, (i - 1) / 2));
         i = (i - 1) / 2)
        memcpy(heap_item(heap, i), heap_item(heap, (i - 1) / 2), heap->size);
    memcpy(heap_item(heap, i), item, heap->size);
    heap_item(heap, i)->order = key.order;
}

void weir_heap_pop(struct weir_heap *heap, void *out_item)
{
    weir_assert(heap->count > 0);
    memcpy(out_item, heap->items, heap->size);
    const struct weir_heap_key *last = heap_item(heap, --heap->count);
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < heap->count &&
            key_is_before(heap_item(heap, child + 1), heap_item(heap, child)))
            child++;
        if (child >= heap->count ||
            !key_is_before(heap_item(heap, child), last))
            break;
        memcpy(heap_item(heap, i), heap_item(heap, child), heap->size);
        i = child;
    }
    if (i < heap->count)
        memcpy(heap_item(heap, i), last, heap->size);
}
