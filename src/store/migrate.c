/* SPDX-License-Identifier: MIT
 * store/migrate.c - what is done to a whole store: made newer, copied to
 * another kind, said to be restored. */

#include <string.h>

#include "quota/quota_text.h"
#include "store/store_private.h"

int weir_store_upgrade(const char *url, unsigned *out_from,
                       struct weir_diag *diag)
{
    const struct weir_backend_type *type;
    const char *where;
    int error = weir_store_find(url, &type, &where, diag);
    return error < 0 ? error : type->upgrade(where, out_from, diag);
}

/* ---- Restored ------------------------------------------------------- */

static int raise_restores(struct weir_backend *backend, uint64_t *out,
                          struct weir_diag *diag)
{
    const struct weir_backend_type *type = backend->type;
    struct weir_store_meta meta;
    int error = type->begin(backend, true, diag);
    if (error < 0)
        return error;
    error = type->meta(backend, &meta, diag);
    if (error == 0) {
        meta.id.restores++;
        error = type->finish(backend, &meta, false, diag);
    }
    if (error == 0)
        error = type->commit(backend, diag);
    if (error == 0)
        *out = meta.id.restores;
    else
        type->rollback(backend);
    return error;
}

int weir_store_restored(const char *url, uint64_t *out_restores,
                        struct weir_diag *diag)
{
    const struct weir_backend_type *type;
    const char *where;
    struct weir_backend *backend;
    int error = weir_store_find(url, &type, &where, diag);
    if (error == 0)
        error = type->open(where, &backend, diag);
    if (error < 0)
        return error;
    error = raise_restores(backend, out_restores, diag);
    type->close(backend);
    return error;
}

/* ---- Copied --------------------------------------------------------- */

struct copy {
    struct weir_backend *to;
    size_t quotas;
    struct weir_diag *diag;
};

/* Nothing is fresh: a new store has no removals to take back. */
static int copy_row(void *context, const struct weir_row *row)
{
    struct copy *copy = context;
    copy->quotas += row->id > 0;
    return copy->to->type->write(copy->to, row, false, copy->diag);
}

static int copy_log_row(void *context, const struct weir_log_row *row)
{
    struct copy *copy = context;
    return copy->to->type->log(copy->to, row, copy->diag);
}

/* Both are within a transaction. */
static int copy_all(struct weir_backend *from, struct copy *copy)
{
    const struct weir_log_query whole_log = {
        .which = WEIR_LOG_ALL, .number = INT64_MAX, .max = INT64_MAX
    };
    struct weir_store_meta meta;
    int error = from->type->meta(from, &meta, copy->diag);
    if (error == 0)
        error = from->type->read(from, 0, copy_row, copy, copy->diag);
    if (error == 0)
        error = from->type->read_log(from, &whole_log, copy_log_row, copy,
                                     copy->diag);
    if (error == 0)
        error = copy->to->type->finish(copy->to, &meta, false, copy->diag);
    return error < 0 ? error : copy->to->type->commit(copy->to, copy->diag);
}

/* The source is locked against edits, and changed by nothing. */
static int copy_locked(struct weir_backend *from,
                       const struct weir_backend_type *type,
                       const char *where, size_t *out_quotas,
                       struct weir_diag *diag)
{
    struct copy copy = { .diag = diag };
    int error = from->type->begin(from, true, diag);
    if (error < 0)
        return error;
    error = type->create(where, &copy.to, diag);
    if (error == 0) {
        error = copy_all(from, &copy);
        type->close(copy.to);
    }
    from->type->rollback(from);
    if (error == 0)
        *out_quotas = copy.quotas;
    return error;
}

int weir_store_migrate(const char *from, const char *to, size_t *out_quotas,
                       struct weir_diag *diag)
{
    const struct weir_backend_type *from_type;
    const struct weir_backend_type *to_type;
    const char *from_where;
    const char *to_where;
    struct weir_backend *backend;
    int error = weir_store_find(from, &from_type, &from_where, diag);
    if (error == 0)
        error = weir_store_find(to, &to_type, &to_where, diag);
    if (error == 0)
        error = from_type->open(from_where, &backend, diag);
    if (error < 0)
        return error;
    error = copy_locked(backend, to_type, to_where, out_quotas, diag);
    from_type->close(backend);
    return error;
}
