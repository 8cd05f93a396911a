/* SPDX-License-Identifier: MIT
 * store/store_whole.c - what is done to a store as a whole: its upgrade, its
 * restore from a copy, and the move to another store. */

#include "store/backend.h"
#include "store/store.h"

int weir_store_upgrade(const char *url, unsigned *out_from,
                       struct weir_diag *diag)
{
    struct weir_backend *backend;
    int error = weir_backend_make(url, &backend, diag);
    if (error < 0)
        return error;
    error = backend->type->upgrade(backend, out_from, diag);
    backend->type->close(backend);
    return error;
}

static int raise_restores(struct weir_backend *backend, uint64_t *out,
                          struct weir_diag *diag)
{
    const struct weir_backend_type *type = backend->type;
    struct weir_store_meta meta;
    int error = type->begin(backend, WEIR_BEGIN_WRITE, diag);
    if (error < 0)
        return error;
    error = type->meta(backend, &meta, diag);
    if (error == 0) {
        meta.id.restores++;
        error = type->finish(backend, &meta, false, diag);
    }
    if (error == 0 && meta.moved_to[0])
        error = type->move(backend, NULL, diag);
    bool was;
    if (error == 0)
        error = type->unmark(backend, &was, diag);
    error = weir_backend_end(backend, error, diag);
    if (error == 0)
        *out = meta.id.restores;
    return error;
}

int weir_store_restored(const char *url, uint64_t *out_restores,
                        struct weir_diag *diag)
{
    struct weir_backend *backend;
    int error = weir_backend_open(url, false, &backend, diag);
    if (error < 0)
        return error;
    error = raise_restores(backend, out_restores, diag);
    backend->type->close(backend);
    return error;
}

struct copy {
    struct weir_backend *to;
    size_t quotas;
    struct weir_diag *diag;
};

/* 'fresh' is false: a new store has no tombstones to delete. */
static int copy_row(void *context, const struct weir_row *row)
{
    struct copy *copy = context;
    copy->quotas += !row->removed;
    return copy->to->type->write(copy->to, row, false, copy->diag);
}

static int copy_log_row(void *context, const struct weir_log_row *row)
{
    struct copy *copy = context;
    return copy->to->type->log(copy->to, row, copy->diag);
}

/* Both stores are within a transaction. Ends that of the copy, on success
 * only. */
static int copy_all(struct weir_backend *from, const char *shown,
                    struct copy *copy)
{
    const struct weir_log_query whole_log = { .which = WEIR_LOG_ALL,
                                              .number = INT64_MAX,
                                              .max = INT64_MAX };
    struct weir_store_meta meta;
    int error = from->type->meta(from, &meta, copy->diag);
    if (error == 0)
        error = weir_backend_check_moved(&meta, shown, copy->diag);
    if (error == 0)
        error = from->type->read(from, 0, copy_row, copy, copy->diag);
    if (error == 0)
        error = from->type->read_log(from, &whole_log, copy_log_row, copy,
                                     copy->diag);
    if (error == 0)
        error = copy->to->type->finish(copy->to, &meta, false, copy->diag);
    bool was; /* leases of the source may be out */
    if (error == 0)
        error = copy->to->type->unmark(copy->to, &was, copy->diag);
    return error < 0 ? error : copy->to->type->commit(copy->to, copy->diag);
}

/* The source is locked against edits until its new place is written to it. That
 * is written last: if the copy fails, the source must stay usable. */
static int copy_locked(struct weir_backend *from, const char *const *urls,
                       size_t *out_quotas, struct weir_diag *diag)
{
    struct copy copy = { .diag = diag };
    char shown[2][WEIR_STORE_SHOW_MAX];
    for (int i = 0; i < 2; i++)
        weir_store_show(urls[i], shown[i]);
    int error = weir_backend_open(urls[1], true, &copy.to, diag);
    if (error < 0)
        return error;
    error = copy_all(from, shown[0], &copy);
    copy.to->type->close(copy.to);
    if (error == 0)
        error = from->type->move(from, shown[1], diag);
    if (error == 0)
        *out_quotas = copy.quotas;
    return error;
}

static int migrate_open(struct weir_backend *from, const char *const *urls,
                        size_t *out_quotas, struct weir_diag *diag)
{
    int error = from->type->begin(from, WEIR_BEGIN_WRITE, diag);
    if (error < 0)
        return error;
    error = copy_locked(from, urls, out_quotas, diag);
    return weir_backend_end(from, error, diag);
}

int weir_store_migrate(const char *from, const char *to, size_t *out_quotas,
                       struct weir_diag *diag)
{
    const char *const urls[] = { from, to };
    const struct weir_backend_type *type;
    const char *where;
    struct weir_backend *backend;
    int error = 0;
    for (int i = 0; error == 0 && i < 2; i++)
        error = weir_backend_find(urls[i], &type, &where, diag);
    if (error == 0)
        error = weir_backend_open(from, false, &backend, diag);
    if (error < 0)
        return error;
    error = migrate_open(backend, urls, out_quotas, diag);
    backend->type->close(backend);
    return error;
}
