/* SPDX-License-Identifier: MIT
 * store/presence.h - which roots are on a store, by rows that expire. */

#ifndef WEIR_PRESENCE_H
#define WEIR_PRESENCE_H

#include "store/backend.h"

/* weir_store_present(), in a transaction of its own. */
int weir_presence_write(struct weir_backend *backend,
                        const uint8_t root[WEIR_INCARNATION_SIZE], bool leaves,
                        uint32_t *out_roots, struct weir_diag *diag);

#endif /* WEIR_PRESENCE_H */
