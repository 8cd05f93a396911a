/* SPDX-License-Identifier: MIT
 * store/presence.c - which roots are on a store.
 *
 * Roots don't know each other, and none needs this to decide or to answer. It
 * is for limiters, which can't see by themselves that there are roots behind
 * the one address that they were given.
 *
 * Each root writes a row with the time of the store's clock, again and again;
 * a row that is too old, or of the future after that clock was set back, is
 * deleted by the next root that writes. The table is made at the first write:
 * an older Weir on the same store doesn't look at it. */

#include "store/presence.h"

#include <stdio.h>

int weir_presence_write(struct weir_backend *backend,
                        const uint8_t root[WEIR_INCARNATION_SIZE], bool leaves,
                        uint32_t *out_roots, struct weir_diag *diag)
{
    const struct weir_backend_type *type = backend->type;
    char hex[2 * WEIR_INCARNATION_SIZE + 1];
    uint32_t roots = 0;
    for (size_t i = 0; i < WEIR_INCARNATION_SIZE; i++)
        snprintf(hex + 2 * i, 3, "%02x", root[i]);
    int error = type->begin(backend, WEIR_BEGIN_FREE, diag);
    if (error < 0)
        return error;
    error = type->present(backend, hex, leaves, &roots, diag);
    error = weir_backend_end(backend, error, diag);
    if (error == 0)
        *out_roots = roots;
    return error;
}
