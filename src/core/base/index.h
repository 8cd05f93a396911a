/* SPDX-License-Identifier: MIT
 * base/index.h - from a 64-bit hash to numbers: open addressing, linear
 * probing, backward-shift removal. Not thread-safe; grows by the allocator that
 * the caller passes. The caller knows the meaning of the numbers and compares
 * the keys. */

#ifndef WEIR_INDEX_H
#define WEIR_INDEX_H

#include "core/base/base.h"

struct weir_index_entry {
    uint64_t hash;
    uint32_t value; /* + 1; 0: empty */
};
struct weir_index {
    struct weir_index_entry *entries; /* owned */
    size_t capacity;                  /* power of two, or 0 */
    size_t count;
};

/* A zeroed index is empty and valid. */
void weir_index_fini(struct weir_index *index, const struct weir_mem *mem);
/* The values stored under 'hash', one per call: begin with '*cursor' 0. Returns
 * false when there are no more. The index must not change in between. */
bool weir_index_find(const struct weir_index *index, uint64_t hash,
                     size_t *cursor, uint32_t *out_value);
/* 0 or WEIR_ENOMEM. */
int weir_index_add(struct weir_index *index, const struct weir_mem *mem,
                   uint64_t hash, uint32_t value);
void weir_index_remove(struct weir_index *index, uint64_t hash, uint32_t value);

#endif /* WEIR_INDEX_H */
