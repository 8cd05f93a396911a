/* SPDX-License-Identifier: MIT
 * test/core/table/table_sources.h - the table's sources, compiled into the test
 * that includes this: for tests that control the table's accesses
 * (WEIR_EXPLORE), or read its internals. */

#ifndef WEIR_TEST_TABLE_SOURCES_H
#define WEIR_TEST_TABLE_SOURCES_H

#include "core/table/link_bucket.c"
#include "core/table/link_exact.c"
#include "core/table/link_inflight.c"
#include "core/table/link_leased.c"
#include "core/table/link_state.c"
#include "core/table/table_area.c"
#include "core/table/table_audit.c"
#include "core/table/table_bucket_state.c"
#include "core/table/table_edit.c"
#include "core/table/table_enter.c"
#include "core/table/table_evict.c"
#include "core/table/table_grow.c"
#include "core/table/table_index.c"
#include "core/table/table_init.c"
#include "core/table/table_lock.c"
#include "core/table/table_mend.c"
#include "core/table/table_names.c"
#include "core/table/table_pin.c"
#include "core/table/table_read.c"
#include "core/table/table_reap.c"
#include "core/table/table_rule.c"
#include "core/table/table_shadow.c"
#include "core/table/table_shadow_set.c"
#include "core/table/table_slots.c"
#include "core/table/table_stale.c"
#include "core/table/table_stripe.c"
#include "core/table/table_sweep.c"
#include "core/table/table_switch.c"
#include "core/table/table_sync.c"
#include "core/table/table_take.c"
#include "core/table/table_template.c"
#include "core/table/table_view.c"
#include "core/table/table_walk.c"

#endif /* WEIR_TEST_TABLE_SOURCES_H */
