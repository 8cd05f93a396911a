/* SPDX-License-Identifier: MIT
 * test/mem_maker.h - allocators for tests of modules below io/, which has
 * weir_mem_system: malloc()'s, and one whose memory runs out. */

#ifndef WEIR_MEM_MAKER_H
#define WEIR_MEM_MAKER_H

#include <stdlib.h>

#include "core/base/base.h"

static inline void *maker_alloc(void *context, size_t size)
{
    (void)context;
    return calloc(1, size);
}

static inline void maker_free(void *context, void *p, size_t size)
{
    (void)context;
    (void)size;
    free(p);
}

static const struct weir_mem maker_mem = { NULL, maker_alloc, maker_free };

/* The context of an allocator. */
struct scarce {
    int left;     /* allocations that succeed */
    size_t bytes; /* allocated, and not yet freed */
};

static inline void *scarce_alloc(void *context, size_t size)
{
    struct scarce *scarce = context;
    if (scarce->left <= 0)
        return NULL;
    scarce->left--;
    scarce->bytes += size;
    return calloc(1, size);
}

static inline void scarce_free(void *context, void *p, size_t size)
{
    struct scarce *scarce = context;
    if (p)
        scarce->bytes -= size;
    free(p);
}

static inline struct weir_mem scarce_mem(struct scarce *scarce)
{
    return (struct weir_mem){ scarce, scarce_alloc, scarce_free };
}

#endif /* WEIR_MEM_MAKER_H */
