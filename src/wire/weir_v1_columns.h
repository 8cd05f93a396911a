/* SPDX-License-Identifier: MIT
 * wire/weir_v1_columns.h - the two messages that are many and large, report
 * and fills, written and read by hand. Only weir_v1.c uses it. */

#ifndef WEIR_WEIR_V1_COLUMNS_H
#define WEIR_WEIR_V1_COLUMNS_H

#include "wire/protobuf_bytes.h"
#include "wire/weir_v1.h"

/* Zeroed memory from the arena, aligned for anything; NULL: full. */
void *weir_arena_alloc(struct weir_arena *arena, size_t size);

/* A name on the wire: WEIR_EPROTOCOL unless it is a clean one. */
int weir_v1_name(struct weir_wire_in bytes, struct weir_text *out);

size_t weir_v1_report_size(const struct weir_report *report);
uint8_t *weir_v1_report_put(const struct weir_report *report, uint8_t *p);
int weir_v1_report_get(struct weir_wire_in in, struct weir_arena *arena,
                       struct weir_report *out);

size_t weir_v1_fills_size(const struct weir_fills *fills);
uint8_t *weir_v1_fills_put(const struct weir_fills *fills, uint8_t *p);
int weir_v1_fills_get(struct weir_wire_in in, struct weir_arena *arena,
                      struct weir_fills *out);

#endif /* WEIR_WEIR_V1_COLUMNS_H */
