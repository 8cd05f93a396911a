/* SPDX-License-Identifier: MIT
 * codec/weir_v1_internal.h - the messages of weir.v1: reports and fills by
 * hand, the others by tables of their fields. Only weir_v1*.c use it. */

#ifndef WEIR_WEIR_V1_INTERNAL_H
#define WEIR_WEIR_V1_INTERNAL_H

#include "codec/message_fields.h"
#include "codec/weir_v1.h"

/* ---- weir_v1_columns.c ---- */

/* The bytes of each column, by its number, and of all of them with their heads:
 * computed once, for the size and for the heads. */
#define WEIR_V1_COLUMNS_MAX 13
struct weir_v1_sizes {
    size_t columns[WEIR_V1_COLUMNS_MAX];
    size_t total;
};

size_t weir_v1_report_size(const struct weir_report *report,
                           struct weir_v1_sizes *out);
/* 'sizes': as the size function has computed them. */
uint8_t *weir_v1_report_put(const struct weir_report *report,
                            const struct weir_v1_sizes *sizes, uint8_t *p);
int weir_v1_report_get(struct weir_wire_in in, struct weir_arena *arena,
                       struct weir_report *out);

size_t weir_v1_fills_size(const struct weir_fills *fills,
                          struct weir_v1_sizes *out);
uint8_t *weir_v1_fills_put(const struct weir_fills *fills,
                           const struct weir_v1_sizes *sizes, uint8_t *p);
int weir_v1_fills_get(struct weir_wire_in in, struct weir_arena *arena,
                      struct weir_fills *out);

/* ---- weir_v1_messages.c, weir_v1_quotas.c ---- */

/* Fields of a hello, a welcome or a change, with those of their parts. */
#define WEIR_V1_FIELDS_MAX 64

/* Of the structs in struct weir_message. */
extern const struct weir_proto_message weir_v1_hello, weir_v1_welcome,
    weir_v1_quotas, weir_v1_asks, weir_v1_answers, weir_v1_wants,
    weir_v1_grants, weir_v1_limits;

#endif /* WEIR_WEIR_V1_INTERNAL_H */
