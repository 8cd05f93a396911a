/* SPDX-License-Identifier: MIT
 * store/store.c - quota stores: which one a URL names, and what an edit is.
 *
 * A store keeps a catalog of what it holds, so that an edit of one quota
 * costs one quota and not the set: inside the edit's transaction the catalog
 * is brought to the store's epoch by reading what others changed since, and
 * the edit is checked against it.
 *
 *     begin (no other writer from here)
 *       read the epoch row, then changes above the catalog's epoch
 *       plan: sift, order                         edit_plan.c
 *       write each change under the next epoch; apply it to the catalog
 *       check the place of each in the tree as it is now
 *       move the epoch row
 *     commit
 *
 * Checking after applying makes the order within an edit irrelevant: two
 * quotas may swap places, a parent may go while its child is moved away. The
 * price is that a refused edit leaves a catalog that is wrong; it is thrown
 * away and read anew when next needed. The everyday refusal, of an edit of
 * one quota, is found before anything is applied. */

#include "store/store.h"

#include <stdlib.h>
#include <string.h>

#include "quota/quota_text.h"
#include "store/backend.h"
#include "store/edit_plan.h"

static const struct weir_backend_type *const types[] = {
    &weir_backend_sqlite,
};

struct weir_store {
    struct weir_backend *backend;
    struct weir_catalog *catalog; /* NULL: to be read anew */
    struct weir_store_id id;      /* whose quotas the catalog holds */
};

static void *take_memory(void *context, size_t size)
{
    (void)context;
    return calloc(1, size);
}

static void give_memory(void *context, void *p, size_t size)
{
    (void)context;
    (void)size;
    free(p);
}

static const struct weir_mem memory = { NULL, take_memory, give_memory };

static int refuse_memory(struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ENOMEM, "there is no memory for the "
                         "quotas", NULL);
}

/* The type that a URL names, and what follows its colon. */
static int find_type(const char *url, const struct weir_backend_type **type,
                     const char **where, struct weir_diag *diag)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(types); i++) {
        size_t len = strlen(types[i]->scheme);
        if (strncmp(url, types[i]->scheme, len) != 0 || url[len] != ':')
            continue;
        if (url[len + 1] == '\0')
            return weir_diag_set(diag, WEIR_EINVAL, "the store '", url,
                                 "' names no place; write sqlite:FILE", NULL);
        *type = types[i];
        *where = url + len + 1;
        return 0;
    }
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EINVAL, "the store ",
                         weir_text_show(weir_text_of(url), shown),
                         " is of no kind that this version knows; write "
                         "sqlite:FILE", NULL);
}

int weir_store_init(const char *url, struct weir_diag *diag)
{
    const struct weir_backend_type *type;
    const char *where;
    int error = find_type(url, &type, &where, diag);
    return error < 0 ? error : type->init(where, diag);
}

int weir_store_open(const char *url, struct weir_store **out,
                    struct weir_diag *diag)
{
    const struct weir_backend_type *type;
    const char *where;
    int error = find_type(url, &type, &where, diag);
    if (error < 0)
        return error;
    struct weir_store *store = calloc(1, sizeof(*store));
    if (!store)
        return refuse_memory(diag);
    error = type->open(where, &store->backend, diag);
    if (error < 0) {
        free(store);
        return error;
    }
    *out = store;
    return 0;
}

static void drop_catalog(struct weir_store *store)
{
    weir_catalog_free(store->catalog);
    store->catalog = NULL;
}

void weir_store_close(struct weir_store *store)
{
    if (!store)
        return;
    drop_catalog(store);
    store->backend->type->close(store->backend);
    free(store);
}

int weir_store_identity(struct weir_store *store, struct weir_store_id *id,
                        uint64_t *epoch, uint64_t *floor,
                        struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = type->begin(store->backend, false, diag);
    if (error < 0)
        return error;
    struct weir_store_meta meta;
    error = type->meta(store->backend, &meta, diag);
    type->rollback(store->backend);
    if (error < 0)
        return error;
    *id = meta.id;
    *epoch = meta.epoch;
    *floor = meta.floor;
    return 0;
}

int weir_store_read(struct weir_store *store, uint64_t epoch,
                    weir_store_each *each, void *context,
                    struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = type->begin(store->backend, false, diag);
    if (error < 0)
        return error;
    error = type->read(store->backend, epoch, each, context, diag);
    type->rollback(store->backend);
    return error;
}

bool weir_store_changed(struct weir_store *store)
{
    return store->backend->type->changed(store->backend);
}

/* ---- Editing -------------------------------------------------------- */

static int apply(void *context, const struct weir_change *change)
{
    return weir_catalog_apply(context, change);
}

/* Brings the catalog to what the transaction sees. A catalog of another
 * store, of one set back, or from before what the tombstones tell is no
 * base to go on from. */
static int refresh(struct weir_store *store, struct weir_store_meta *meta,
                   struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = type->meta(store->backend, meta, diag);
    if (error < 0)
        return error;
    bool other = memcmp(store->id.uuid, meta->id.uuid, 16) != 0 ||
                 store->id.restores != meta->id.restores;
    if (store->catalog &&
        (other || weir_catalog_epoch(store->catalog) > meta->epoch ||
         weir_catalog_epoch(store->catalog) < meta->floor))
        drop_catalog(store);
    store->id = meta->id;
    if (!store->catalog) {
        uint64_t seed;
        memcpy(&seed, meta->id.uuid, sizeof(seed));
        store->catalog = weir_catalog_new(&memory, seed);
    }
    if (!store->catalog)
        return refuse_memory(diag);
    uint64_t epoch = weir_catalog_epoch(store->catalog);
    if (epoch == meta->epoch)
        return 0;
    error = type->read(store->backend, epoch, apply, store->catalog, diag);
    if (error == WEIR_ENOMEM)
        refuse_memory(diag);
    if (error < 0)
        drop_catalog(store);
    return error;
}

static int write_change(struct weir_store *store,
                        const struct weir_change *change, uint64_t epoch,
                        struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    struct weir_change written = *change;
    struct weir_quota *quota = &written.quota;
    const struct weir_quota *old = weir_catalog_get(store->catalog,
                                                    quota->name);
    quota->epoch = epoch;
    quota->id = old ? old->id : 0;
    quota->created = old ? old->created : epoch;
    int error = change->removed ? type->remove(store->backend, quota->name,
                                               epoch, diag)
                                : type->put(store->backend, quota, diag);
    if (error < 0)
        return error;
    error = weir_catalog_apply(store->catalog, &written);
    return error < 0 ? refuse_memory(diag) : 0;
}

static int check_places(struct weir_store *store,
                        const struct weir_plan *plan, struct weir_diag *diag)
{
    for (size_t i = 0; i < plan->count; i++) {
        int error = weir_catalog_check_place(
            store->catalog, plan->items[i].change->quota.name, diag);
        if (error < 0)
            return error;
    }
    return 0;
}

/* Writes a plan of at least one change. From the first write on, a failure
 * costs the catalog. */
static int write_plan(struct weir_store *store, const struct weir_plan *plan,
                      uint64_t *epoch, struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    if (plan->count == 1) {
        int error = weir_catalog_check(store->catalog,
                                       plan->items[0].change, diag);
        if (error < 0)
            return error;
    }
    bool removed = false;
    int error = 0;
    for (size_t i = 0; error == 0 && i < plan->count; i++) {
        const struct weir_change *change = plan->items[i].change;
        removed = removed || change->removed;
        error = write_change(store, change, ++*epoch, diag);
    }
    if (error == 0 && plan->count > 1)
        error = check_places(store, plan, diag);
    if (error == 0)
        error = type->finish(store->backend, *epoch, removed, diag);
    if (error == 0)
        error = type->commit(store->backend, diag);
    if (error < 0)
        drop_catalog(store);
    return error;
}

/* The edit, inside its transaction. Ends it on success only. */
static int edit(struct weir_store *store, const struct weir_change *changes,
                size_t count, unsigned flags, uint64_t *out_epoch,
                struct weir_diag *diag)
{
    struct weir_store_meta meta;
    int error = refresh(store, &meta, diag);
    if (error < 0)
        return error;
    struct weir_plan plan;
    error = weir_plan_make(&plan, store->catalog, changes, count, flags,
                           diag);
    if (error < 0)
        return error;
    uint64_t epoch = meta.epoch;
    if (plan.count > 0)
        error = write_plan(store, &plan, &epoch, diag);
    else
        store->backend->type->rollback(store->backend);
    weir_plan_free(&plan);
    if (error == 0)
        *out_epoch = epoch;
    return error;
}

int weir_store_edit(struct weir_store *store,
                    const struct weir_change *changes, size_t count,
                    unsigned flags, uint64_t *epoch, struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = type->begin(store->backend, true, diag);
    if (error < 0)
        return error;
    error = edit(store, changes, count, flags, epoch, diag);
    if (error < 0)
        type->rollback(store->backend);
    return error;
}
