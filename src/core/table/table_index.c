/* SPDX-License-Identifier: MIT
 * core/table/table_index.c - the index of names: where an entry is, and how the
 * index grows while lookups go on.
 *
 * Linear hashing. There are 'count' buckets; 'mask' is the smallest power of
 * two, less one, that covers their numbers. A hash selects the bucket
 * 'hash & mask', or if there is none yet, the one that it will be split from:
 *
 *     0 ............ count - 1 | count ........ mask
 *     buckets                  | 'hash & mask' here: in 'hash & mask / 2'
 *
 * A new slot splits one bucket, in the order of their numbers, until there are
 * as many as weir_name_index_buckets() says; the work of growing is thus spread
 * over the insertions. A name that finds both of its buckets full, as one of
 * 30,000 growing tables of 1,000 names has it, splits the next ones ahead of
 * their time. Count and mask are one word, the shape.
 *
 * A name has two buckets, both computed from the 32 bits of its hash that the
 * entry contains. So a split reads no name. An entry stays in the split bucket
 * if one of its two buckets is still that one; otherwise it moves to the new
 * bucket, which was empty and so has room.
 *
 * A split copies entries to the new bucket, publishes the shape, and clears
 * them in the old one, each by a release. A lookup that read an entry as
 * cleared therefore sees the new shape when it reads it again, and repeats.
 * Nothing is ever found in a wrong bucket: an entry whose name belongs
 * elsewhere has another hash.
 *
 * If the writer is killed before the shape is published, the new bucket has
 * leftovers, which the next split clears. If it is killed after that, the old
 * bucket has entries that no lookup looks for there: weir_name_index_mend().
 *
 * Source: W. Litwin, "Linear hashing: a new tool for file and table
 * addressing", VLDB 1980. */

#include "core/table/table_index.h"

#include <string.h>

#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"

static uint64_t shape_of(uint32_t count, uint32_t mask)
{
    return (uint64_t)mask << 32 | count;
}

void weir_name_index_init(struct weir_table *t)
{
    uint32_t first = t->committed < INDEX_FIRST ? t->committed : INDEX_FIRST;
    uint32_t count = weir_name_index_buckets(first);
    uint32_t mask = 1;
    while (mask < count - 1)
        mask = 2 * mask + 1;
    weir_store_relaxed(&t->index_shape, shape_of(count, mask));
}

/* Whether the entry may be in this bucket. */
static bool is_at_home(uint64_t shape, uint64_t entry, uint32_t bucket)
{
    uint32_t tag = (uint32_t)(entry >> 32);
    return weir_name_index_first(shape, tag) == bucket ||
           weir_name_index_second(shape, tag) == bucket;
}

static void clear_strays(const struct weir_table *t, uint64_t shape,
                         uint32_t number)
{
    struct index_bucket *bucket = weir_index(t, number);
    for (int i = 0; i < BUCKET_ENTRIES; i++) {
        /* release: pairs with the acquire of a lookup, which then sees the
         * shape. */
        if (bucket->entry[i] != 0 &&
            !is_at_home(shape, bucket->entry[i], number))
            weir_store_release(&bucket->entry[i], 0);
    }
}

/* Adds one bucket. */
static void split(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    uint64_t shape = weir_load_relaxed(&t->index_shape);
    uint32_t added = (uint32_t)shape;
    uint32_t mask = (uint32_t)(shape >> 32);
    if (added > mask)
        mask = 2 * mask + 1;
    shape = shape_of(added + 1, mask);
    uint32_t source = added & (mask >> 1);
    const struct index_bucket *from = weir_index(t, source);
    struct index_bucket *to = weir_index(t, added);
    for (int i = 0; i < BUCKET_ENTRIES; i++) {
        uint64_t entry = from->entry[i];
        bool leaves = entry != 0 && !is_at_home(shape, entry, source);
        /* Relaxed: the release of the shape publishes it. */
        weir_store_relaxed(&to->entry[i], leaves ? entry : 0);
    }
    /* release: a lookup that sees the shape finds the copies. */
    weir_store_release(&t->index_shape, shape);
    clear_strays(t, shape, source);
}

static int bucket_room(const struct index_bucket *bucket)
{
    int room = 0;
    for (int i = 0; i < BUCKET_ENTRIES; i++)
        room += bucket->entry[i] == 0;
    return room;
}

/* The first bucket while two places stay free in it: most lookups then end in
 * their first line. Otherwise the emptier of the two. */
static struct index_bucket *choose_bucket(const struct weir_table *t,
                                          uint32_t tag)
{
    uint64_t shape = weir_load_relaxed(&t->index_shape);
    struct index_bucket *first =
        weir_index(t, weir_name_index_first(shape, tag));
    struct index_bucket *second =
        weir_index(t, weir_name_index_second(shape, tag));
    int room = bucket_room(first);
    return room > 2 || room >= bucket_room(second) ? first : second;
}

/* false: the bucket is full. */
static bool put_entry(struct index_bucket *bucket, uint64_t entry)
{
    for (int i = 0; i < BUCKET_ENTRIES; i++) {
        if (bucket->entry[i] != 0)
            continue;
        /* release: the name is complete before it is found. */
        weir_store_release(&bucket->entry[i], entry);
        return true;
    }
    return false;
}

bool weir_name_index_insert(struct weir_table *t, uint32_t slot, uint64_t hash)
{
    weir_assert(weir_table_is_locked(t));
    uint32_t committed = weir_load_relaxed(&t->committed);
    weir_assert(slot < t->used && t->used <= committed);
    if (weir_name_index_count(t) < weir_name_index_buckets(t->used))
        split(t);
    uint32_t tag = weir_name_index_tag(hash);
    uint64_t entry = weir_name_index_entry(hash, slot);
    while (!put_entry(choose_bucket(t, tag), entry)) {
        if (weir_name_index_count(t) == weir_name_index_buckets(committed))
            return false;
        split(t);
    }
    return true;
}

void weir_name_index_remove(struct weir_table *t, uint32_t slot, uint64_t hash)
{
    weir_assert(weir_table_is_locked(t));
    uint64_t shape = weir_load_relaxed(&t->index_shape);
    uint64_t entry = weir_name_index_entry(hash, slot);
    uint32_t tag = weir_name_index_tag(hash);
    struct index_bucket *buckets[] = {
        weir_index(t, weir_name_index_first(shape, tag)),
        weir_index(t, weir_name_index_second(shape, tag)),
    };
    for (int b = 0; b < 2; b++) {
        for (int i = 0; i < BUCKET_ENTRIES; i++) {
            if (buckets[b]->entry[i] == entry)
                weir_store_release(&buckets[b]->entry[i], 0);
        }
    }
}

void weir_name_index_mend(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    uint64_t shape = weir_load_relaxed(&t->index_shape);
    uint32_t last = (uint32_t)shape - 1;
    clear_strays(t, shape, last & (uint32_t)(shape >> 33));
}
