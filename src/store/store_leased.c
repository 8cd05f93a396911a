/* SPDX-License-Identifier: MIT
 * store/store_leased.c - the mark that no root of a store was ever master.
 *
 * A root that becomes master has to wait for leases of a predecessor that it
 * doesn't know. If there never was one, it needn't. A new store says so by a
 * row of its own table; each master deletes it. The row proves something
 * only to the root that deleted it, in one transaction: two roots can't both
 * find it (docs/design/nothing-out.md).
 *
 * The row is in a table of its own, which older stores lack: no upgrade makes
 * it, because it isn't known whether leases of such a store are out. */

#include "store/backend.h"

static int take_mark(struct weir_backend *backend, enum weir_begin how,
                     bool *out_never, struct weir_diag *diag)
{
    const struct weir_backend_type *type = backend->type;
    struct weir_store_meta meta;
    bool never = false;
    int error = type->begin(backend, how, diag);
    if (error < 0)
        return error;
    error = type->meta(backend, &meta, diag);
    if (error == 0 && !meta.moved_to[0])
        error = type->unmark(backend, &never, diag);
    error = weir_backend_end(backend, error, diag);
    if (error == 0)
        *out_never = never;
    return error;
}

int weir_store_take_never_leased(const char *url, bool waits, bool *out_never,
                                 struct weir_diag *diag)
{
    struct weir_backend *backend;
    int error = weir_backend_open(url, false, &backend, diag);
    if (error < 0)
        return error;
    error = take_mark(backend, waits ? WEIR_BEGIN_WRITE : WEIR_BEGIN_FREE,
                      out_never, diag);
    backend->type->close(backend);
    return error;
}
