/* SPDX-License-Identifier: MIT
 * libweir/libweir_full.h - the words for a table without room. */

#ifndef LIBWEIR_FULL_H
#define LIBWEIR_FULL_H

#include "libweir/libweir_internal.h"

/* weir_status.overflowed_age, for the number as it is now; under the mutex. */
weir_duration weir_full_age(struct weir *weir, uint64_t overflowed,
                            weir_instant now);
/* Writes the text of a WEIR_EVENT_TABLE_FULL of the limiter node. */
void weir_full_describe(struct weir *weir, struct weir_event *event);

#endif /* LIBWEIR_FULL_H */
