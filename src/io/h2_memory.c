/* SPDX-License-Identifier: MIT
 * io/h2_memory.c - the memory of an nghttp2 session, in a list.
 *
 * nghttp2 1.52 frees an item twice, in nghttp2_session_del() too, after it had
 * no memory to queue that item. So a session that an allocation failed in ends:
 * h2.c calls nothing of nghttp2 for it any more, and its blocks are freed by
 * this list. As every session's blocks are: there is no second way. */

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "io/h2_internal.h"

struct block {
    struct block *next, **self; /* 'self': the pointer that points to this
                                 * one */
};
static_assert(sizeof(struct block) % _Alignof(max_align_t) == 0,
              "the bytes behind it are aligned for any type");

static void *link_block(struct weir_h2 *h2, struct block *block)
{
    if (!block) {
        h2->failed = h2->failed < 0 ? h2->failed : WEIR_ENOMEM;
        return NULL;
    }
    block->next = h2->blocks;
    block->self = &h2->blocks;
    if (block->next)
        block->next->self = &block->next;
    h2->blocks = block;
    return block + 1;
}

static struct block *unlink_block(void *p)
{
    struct block *block = p ? (struct block *)p - 1 : NULL;
    if (!block)
        return NULL;
    *block->self = block->next;
    if (block->next)
        block->next->self = block->self;
    return block;
}

static void *allocate_block(size_t size, void *context)
{
    size_t whole = size + sizeof(struct block);
    return link_block(context, whole > size ? malloc(whole) : NULL);
}

static void *clear_block(size_t count, size_t size, void *context)
{
    size_t most = SIZE_MAX - sizeof(struct block);
    bool fits = size == 0 || count <= most / size;
    return link_block(
        context, fits ? calloc(1, sizeof(struct block) + count * size) : NULL);
}

static void free_block(void *p, void *context)
{
    (void)context;
    free(unlink_block(p));
}

/* A block that doesn't grow stays as it is. */
static void *grow_block(void *p, size_t size, void *context)
{
    size_t whole = size + sizeof(struct block);
    struct block *before = unlink_block(p);
    struct block *after = whole > size ? realloc(before, whole) : NULL;
    if (!after && before)
        (void)link_block(context, before);
    return link_block(context, after);
}

nghttp2_mem weir_h2_memory(struct weir_h2 *h2)
{
    return (nghttp2_mem){ .mem_user_data = h2,
                          .malloc = allocate_block,
                          .free = free_block,
                          .calloc = clear_block,
                          .realloc = grow_block };
}

void weir_h2_free_memory(struct weir_h2 *h2)
{
    while (h2->blocks)
        free_block(h2->blocks + 1, h2);
    h2->session = NULL;
}
