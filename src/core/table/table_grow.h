/* SPDX-License-Identifier: MIT
 * core/table/table_grow.h - the memory of a table that grows
 * (docs/design/growing-tables.md).
 *
 * The caller provides address space for options.slots, of which only the ranges
 * that these calls list can be touched; all bytes are zero at first. The core
 * touches nothing else. Growing is:
 *
 *     count = weir_table_growth(t, most, ranges, &slots)
 *     the caller commits them; if it can't, weir_table_stop_growing()
 *     weir_table_grown(t, slots)
 *
 * Any thread of any process may do that at any time, also several at once:
 * ranges may be committed more than once. Lock-free. */

#ifndef WEIR_TABLE_GROW_H
#define WEIR_TABLE_GROW_H

#include "core/table/table.h"

/* Bytes from the table's first. */
struct weir_table_range {
    uint64_t at, bytes;
};
#define WEIR_TABLE_RANGES_MAX (32 + WEIR_TABLE_PROCESSES_MAX)

/* Slots that a growth adds: at least, and at most; and one of a shared table,
 * in a file. */
#define WEIR_TABLE_GROWTH_MIN 1024
#define WEIR_TABLE_GROWTH_MAX 16384
#define WEIR_TABLE_GROWTH_STEP 256
/* After this a caller that grows may have been killed, or stopped. */
#define WEIR_TABLE_GROWTH_TIME (100 * WEIR_MILLISECOND)

/* What must be committed before weir_table_init(). Returns the number of
 * ranges. */
uint32_t weir_table_first_ranges(
    const struct weir_table_options *options,
    struct weir_table_range out[WEIR_TABLE_RANGES_MAX]);
/* What must be committed before '*out_slots' slots can be used, at most 'most'
 * more than now. 0: it can't grow. */
uint32_t weir_table_growth(const struct weir_table *table, uint32_t most,
                           struct weir_table_range out[WEIR_TABLE_RANGES_MAX],
                           uint32_t *out_slots);
/* Notes that a caller begins to commit that; weir_table_grown() or
 * weir_table_stop_growing() ends it. False: another caller has begun, as below.
 * To commit the same at once is allowed all the same. */
bool weir_table_begin_growth(struct weir_table *table, weir_instant now);
/* Whether a caller began that less than WEIR_TABLE_GROWTH_TIME ago. */
bool weir_table_is_growing(const struct weir_table *table, weir_instant now);
void weir_table_grown(struct weir_table *table, uint32_t slots);
/* No memory could be had: the table is full with the slots that it has. */
void weir_table_stop_growing(struct weir_table *table);
/* Whether that was called, and not undone by weir_table_resume_growing(). */
bool weir_table_growth_failed(const struct weir_table *table);
void weir_table_resume_growing(struct weir_table *table);

/* Whether a call found no room (WEIR_EFULL, or another result than
 * WEIR_RESOLVED) that a growth may bring: grow, and call again. Another thread
 * may grow in between, so a caller that has read weir_table_committed() before
 * its call makes it again too if that is larger now. */
bool weir_table_is_short(const struct weir_table *table);
/* Whether more slots can be committed. */
bool weir_table_can_grow(const struct weir_table *table);
/* Whether it is time to grow ahead: less than 1/16 of what is committed is
 * free; the sweep frees idle slots from 1/8 on (weir_table_is_crowded()). */
bool weir_table_wants_growth(const struct weir_table *table);
/* Bytes committed. */
uint64_t weir_table_committed_bytes(const struct weir_table *table);
/* Slots whose memory is committed. */
uint32_t weir_table_committed(const struct weir_table *table);

#endif /* WEIR_TABLE_GROW_H */
