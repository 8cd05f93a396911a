/* SPDX-License-Identifier: MIT
 * core/table/table_grow_internal.h - what belongs to so many slots, within
 * table/. */

#ifndef WEIR_TABLE_GROW_INTERNAL_H
#define WEIR_TABLE_GROW_INTERNAL_H

#include "core/table/table_grow.h"
#include "core/table/table_layout.h"

/* Up to so many slots a table grows rather than free an idle one, which would
 * be made and announced to the roots again: some 60 MB. */
#define WEIR_TABLE_IDLE_SLOTS 65536

/* Chunks that can be touched when so many slots can: names of up to 83 bytes
 * (NAME_HEAD + 2 * CHUNK_BYTES) have room in all slots. Chunks are 5 % to
 * 9 % of a slot's memory. */
static inline uint32_t weir_chunks_of(uint32_t slots)
{
    return 2 * slots + 64;
}
/* Units of the area, likewise. */
static inline uint32_t weir_area_units_of(const struct weir_table *t,
                                          uint32_t slots)
{
    uint64_t units =
        (AREA_LEAST + (uint64_t)slots * WEIR_ALGORITHM_BYTES_A_SLOT) /
        AREA_UNIT;
    return slots == t->slots || units > t->area_units ? t->area_units
                                                      : (uint32_t)units;
}

/* Fills a header with the sizes and offsets of a table. */
void weir_table_lay_out(struct weir_table *shape,
                        const struct weir_table_options *options);
/* Under the lock: a call found no room in the slots that are committed. */
static inline void weir_table_note_short(struct weir_table *t)
{
    uint32_t committed = weir_load_relaxed(&t->committed);
    if (committed < weir_load_relaxed(&t->committed_max))
        weir_store_relaxed(&t->short_of, committed);
}

#endif /* WEIR_TABLE_GROW_INTERNAL_H */
