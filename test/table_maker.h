/* SPDX-License-Identifier: MIT
 * test/table_maker.h - tables for tests, and an audit of one. */

#ifndef WEIR_TABLE_MAKER_H
#define WEIR_TABLE_MAKER_H

#include "core/base/rng.h"
#include "core/table/link_exact.h"
#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_permit.h"
#include "core/table/table_read.h"
#include "core/table/table_share.h"
#include "core/table/table_slots_internal.h"
#include "seed.h"

/* The origin of every table made here. */
#define MADE_AT ((weir_instant)1000 * WEIR_SECOND)

/* Tables on the heap; free() them. */
struct weir_table *made_table(uint32_t slots, uint32_t stripes, uint64_t seed);
struct weir_table *made_table_of(const struct weir_table_options *options);
/* Zeroed memory of 'head' bytes, a multiple of a cache line, for a test's own
 * state, and behind it a table; sets the table, and the bytes of both. free()
 * it. */
void *made_stage(size_t head, const struct weir_table_options *options,
                 struct weir_table **out_table, size_t *out_bytes);

/* A quota of 'units' a second with a hard edge at 'burst' units. */
struct weir_quota made_quota_of(const char *name, const char *parent,
                                uint64_t units, uint64_t burst);
/* A local quota of 'units' in flight. */
struct weir_quota made_inflight_of(const char *name, const char *parent,
                                   uint64_t units);
/* Puts it; fails the test on errors. Returns its ref. */
struct weir_ref made_put(struct weir_table *t, const struct weir_quota *quota,
                         weir_instant now);

/* Checks all invariants of a table at rest: free lists, chunks, the index,
 * references, templates. The failure names the broken one. */
void made_audit(const struct weir_table *t);

#endif /* WEIR_TABLE_MAKER_H */
