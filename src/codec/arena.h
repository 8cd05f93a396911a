/* SPDX-License-Identifier: MIT
 * codec/arena.h - a decoder's memory: a bump allocator over one block. A
 * hostile message can't take more than the block. */

#ifndef WEIR_ARENA_H
#define WEIR_ARENA_H

#include <string.h>

#include "core/base/base.h"

#define WEIR_ARENA_ALIGN 16u /* bytes */

struct weir_arena {
    unsigned char *base; /* owned by the caller */
    size_t size;
    size_t used; /* 0: the arena is empty */
};

/* 'size' zeroed bytes, aligned to WEIR_ARENA_ALIGN, valid until the caller sets
 * 'used' back. NULL: the block has no room. */
static inline void *weir_arena_alloc(struct weir_arena *arena, size_t size)
{
    weir_assert(arena->used <= arena->size);
    uintptr_t at = (uintptr_t)(arena->base + arena->used);
    size_t gap = (size_t)(-at & (WEIR_ARENA_ALIGN - 1));
    size_t left = arena->size - arena->used;
    if (gap > left || size > left - gap)
        return NULL;
    void *p = arena->base + arena->used + gap;
    arena->used += gap + size;
    memset(p, 0, size);
    return p;
}

#endif /* WEIR_ARENA_H */
