/* SPDX-License-Identifier: MIT
 * base/index.c - a hash index; see index.h.
 *
 * Removal shifts the following entries back into the gap (Knuth, TAOCP 6.4,
 * algorithm R), so there are no tombstones, and probes stay short after any
 * number of additions and removals. The table is at most three quarters
 * full. */

#include "core/base/index.h"

static size_t home(const struct weir_index *index, uint64_t hash)
{
    /* The low bits: callers pass a good hash. */
    return (size_t)hash & (index->capacity - 1);
}

void weir_index_fini(struct weir_index *index, const struct weir_mem *mem)
{
    mem->free(mem->context, index->entries,
              index->capacity * sizeof(*index->entries));
    *index = (struct weir_index){ 0 };
}

bool weir_index_find(const struct weir_index *index, uint64_t hash,
                     size_t *cursor, uint32_t *out_value)
{
    if (index->capacity == 0)
        return false;
    weir_audit(index->count < index->capacity && *cursor <= index->count);
    size_t mask = index->capacity - 1;
    for (;;) {
        const struct weir_index_entry *entry =
            &index->entries[(home(index, hash) + *cursor) & mask];
        if (entry->value == 0)
            return false;
        ++*cursor;
        if (entry->hash != hash)
            continue;
        *out_value = entry->value - 1;
        return true;
    }
}

static void insert_entry(struct weir_index *index, uint64_t hash,
                         uint32_t value)
{
    weir_assert(value != 0 && index->count < index->capacity);
    size_t mask = index->capacity - 1;
    size_t at = home(index, hash);
    while (index->entries[at].value != 0)
        at = (at + 1) & mask;
    index->entries[at] = (struct weir_index_entry){ hash, value };
}

static int grow_index(struct weir_index *index, const struct weir_mem *mem)
{
    struct weir_index bigger = {
        .capacity = index->capacity ? index->capacity * 2 : 16,
        .count = index->count,
    };
    bigger.entries =
        mem->alloc(mem->context, bigger.capacity * sizeof(*bigger.entries));
    if (!bigger.entries)
        return WEIR_ENOMEM;
    for (size_t i = 0; i < index->capacity; i++) {
        const struct weir_index_entry *entry = &index->entries[i];
        if (entry->value != 0)
            insert_entry(&bigger, entry->hash, entry->value);
    }
    weir_index_fini(index, mem);
    *index = bigger;
    weir_assert((index->capacity & (index->capacity - 1)) == 0);
    weir_assert(index->count < index->capacity);
    return WEIR_OK;
}

int weir_index_add(struct weir_index *index, const struct weir_mem *mem,
                   uint64_t hash, uint32_t value)
{
    weir_assert(value < UINT32_MAX);
    if ((index->count + 1) * 4 > index->capacity * 3) {
        int error = grow_index(index, mem);
        if (error < 0)
            return error;
    }
    insert_entry(index, hash, value + 1);
    index->count++;
    weir_assert(index->count * 4 <= index->capacity * 3);
    return WEIR_OK;
}

/* Fills the gap with the next entry that may move there: its home must not be
 * cyclically within (gap, at]. Repeats for the gap that this leaves. */
static void shift_back(struct weir_index *index, size_t gap)
{
    weir_assert(gap < index->capacity);
    size_t mask = index->capacity - 1;
    for (size_t at = (gap + 1) & mask; index->entries[at].value != 0;
         at = (at + 1) & mask) {
        size_t from_home = (at - home(index, index->entries[at].hash)) & mask;
        if (from_home < ((at - gap) & mask))
            continue;
        index->entries[gap] = index->entries[at];
        gap = at;
    }
    index->entries[gap] = (struct weir_index_entry){ 0, 0 };
}

void weir_index_remove(struct weir_index *index, uint64_t hash, uint32_t value)
{
    if (index->capacity == 0)
        return;
    size_t mask = index->capacity - 1;
    for (size_t at = home(index, hash); index->entries[at].value != 0;
         at = (at + 1) & mask) {
        if (index->entries[at].hash != hash ||
            index->entries[at].value != value + 1)
            continue;
        shift_back(index, at);
        weir_assert(index->count > 0);
        index->count--;
        return;
    }
}
