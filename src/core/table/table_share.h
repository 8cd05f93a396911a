/* SPDX-License-Identifier: MIT
 * table/table_share.h - a table that processes share. */

#ifndef WEIR_TABLE_SHARE_H
#define WEIR_TABLE_SHARE_H

#include "core/table/table.h"

/* Processes have numbers below options.processes; 0 is the sync, in any
 * process. In a process's own table everything belongs to number 0. The caller
 * ensures that no two live processes have the same number. */
enum weir_resolved weir_table_resolve_as(struct weir_table *table,
                                         uint32_t process,
                                         struct weir_text name, bool keep,
                                         struct weir_ref *out,
                                         weir_instant now);
/* Pins of a shared table with so many slots. A pinned slot counts once for each
 * process that pins it. */
#define WEIR_TABLE_PINS(SLOTS) (2 * (SLOTS) + 1024)
/* WEIR_RESOLVED_FULL with a slot of that name: there was no room to record the
 * pin, so the slot isn't pinned. */
enum weir_resolved weir_table_pin_as(struct weir_table *table, uint32_t process,
                                     struct weir_text name,
                                     struct weir_ref *out, weir_instant now);
/* False: as weir_table_unpin(). */
bool weir_table_unpin_as(struct weir_table *table, uint32_t process,
                         struct weir_ref ref);
/* The process 'child', a fork of 'parent', gets a pin on each slot that
 * 'parent' has pinned now. False: another thread has the writer lock, and the
 * child has none. */
bool weir_table_inherit_pins(struct weir_table *table, uint32_t parent,
                             uint32_t child);
/* The process has died, at any point of its code: 'by' breaks its locks and
 * repairs the data that they guard. Takes continue meanwhile. Call it for all
 * dead processes before weir_table_reap() for any; several processes may do so
 * at once. */
void weir_table_reap_locks(struct weir_table *table, uint32_t process,
                           uint32_t by);
/* Gives back the stripes, pins and permits of a dead process. One caller at a
 * time. May be repeated if the caller is killed during it, and must be repeated
 * if it returns false: the writer lock was taken for long, perhaps by another
 * dead process. */
bool weir_table_reap(struct weir_table *table, uint32_t process, uint32_t by);
/* Marks every slot that has an unsettled count or units in flight, or ('all')
 * that was ever used: the process that would have reported it is gone. */
void weir_table_mark_unsettled(struct weir_table *table, bool all);
/* The options that a table was made with; only for a sound block. */
void weir_table_shape(const struct weir_table *table,
                      struct weir_table_options *out);
/* This process is a fork: if the writer lock is taken, its holder is in another
 * process. Then reads every slot and frees those that were being made; at worst
 * a chunk of a name is lost, and a slot that was just being pinned stays in
 * use. A bucket state in which another thread was making a step starts anew.
 * Takes continue meanwhile, unless the table has bucket states; no thread of
 * this process may hold the lock. */
void weir_table_break_lock(struct weir_table *table);

#endif /* WEIR_TABLE_SHARE_H */
