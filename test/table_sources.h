/* SPDX-License-Identifier: MIT
 * test/table_sources.h - the table's sources, compiled into the test that
 * includes this: for tests that control the table's accesses (WEIR_EXPLORE), or
 * read its internals. */

#ifndef WEIR_TEST_TABLE_SOURCES_H
#define WEIR_TEST_TABLE_SOURCES_H

#include "quota/table.c"
#include "quota/table_area.c"
#include "quota/table_bucket_state.c"
#include "quota/table_charge_record.c"
#include "quota/table_edit.c"
#include "quota/table_permit.c"
#include "quota/table_reply.c"
#include "quota/table_rule.c"
#include "quota/table_shadow.c"
#include "quota/table_share.c"
#include "quota/table_sync.c"
#include "quota/table_take.c"

#endif /* WEIR_TEST_TABLE_SOURCES_H */
