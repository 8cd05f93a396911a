/* SPDX-License-Identifier: MIT
 * core/table/table_index.h - the index of names, within table/. Theory:
 * table_index.c. */

#ifndef WEIR_TABLE_INDEX_H
#define WEIR_TABLE_INDEX_H

#include "core/table/table_layout.h"

/* Slots for which a new table has buckets at once. */
#define INDEX_FIRST 64

/* Buckets for so many slots: with two names in each, on average, a name hardly
 * ever finds both of its buckets full (docs/design/growing-tables.md). */
static inline uint32_t weir_name_index_buckets(uint32_t slots)
{
    return slots / 2 + 2;
}

/* The part of a name's hash that is in its entry. */
static inline uint32_t weir_name_index_tag(uint64_t hash)
{
    return (uint32_t)(hash >> 32);
}
static inline uint64_t weir_name_index_entry(uint64_t hash, uint32_t slot)
{
    return (hash >> 32 << 32) | (slot + 1);
}

static inline uint32_t weir_name_index_place(uint64_t shape, uint32_t hash)
{
    uint32_t bucket = hash & (uint32_t)(shape >> 32);
    return bucket < (uint32_t)shape ? bucket : bucket & (uint32_t)(shape >> 33);
}
/* The two buckets of a name. */
static inline uint32_t weir_name_index_first(uint64_t shape, uint32_t tag)
{
    return weir_name_index_place(shape, tag);
}
static inline uint32_t weir_name_index_second(uint64_t shape, uint32_t tag)
{
    /* The upper half of a product: its lower bits would depend on the lower
     * bits of the tag alone, as the first bucket does. */
    return weir_name_index_place(shape,
                                 (uint32_t)(tag * 0x9e3779b97f4a7c15ull >> 32));
}
static inline uint32_t weir_name_index_count(const struct weir_table *t)
{
    return (uint32_t)weir_load_relaxed(&t->index_shape);
}

/* An empty index; 'committed' is set. */
void weir_name_index_init(struct weir_table *t);
/* Under the lock. false: the name's buckets are full, and there are as many as
 * the committed slots can have. */
bool weir_name_index_insert(struct weir_table *t, uint32_t slot, uint64_t hash);
void weir_name_index_remove(struct weir_table *t, uint32_t slot, uint64_t hash);
/* Under the lock of a killed writer. */
void weir_name_index_mend(struct weir_table *t);

#endif /* WEIR_TABLE_INDEX_H */
