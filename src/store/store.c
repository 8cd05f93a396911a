/* SPDX-License-Identifier: MIT
 * store/store.c - quota stores: selects the store that a URL names, and runs
 * edits.
 *
 * A store keeps a catalog of its quotas, so that the cost of an edit depends on
 * the edit and not on the whole set. Inside the edit's transaction the changes
 * of other processes are read into the catalog, which brings it to the store's
 * epoch, and the edit is checked against it.
 *
 *     begin (no other writer from here)
 *       read the epoch row, then changes above the catalog's epoch
 *       plan: filter, order                       edit_plan.c
 *       write each change under the next epoch, and its log entry;
 *       apply it to the catalog
 *       check the place of each in the tree as it is now
 *       update the epoch row
 *     commit
 *
 * Checking after applying makes the order within an edit irrelevant: two quotas
 * may swap places, a parent may be removed while its child is moved away. The
 * price: a refused edit leaves a wrong catalog, which is dropped and read again
 * when next needed. The most common refusal, of an edit of one quota, is found
 * before anything is applied. */

#include "store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "core/quota/quota_text.h"
#include "io/clock.h"
#include "store/edit_plan.h"
#include "store/store_internal.h"

static const struct weir_backend_type *const types[] = {
    &weir_backend_sqlite,
    &weir_backend_postgres,
};

static int refuse_quotas_memory(struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ENOMEM, "there is no memory for the quotas",
                         NULL);
}

int weir_store_find(const char *url, const struct weir_backend_type **type,
                    const char **where, struct weir_diag *diag)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(types); i++) {
        size_t len = strlen(types[i]->scheme);
        if (strncmp(url, types[i]->scheme, len) != 0 || url[len] != ':')
            continue;
        if (url[len + 1] == '\0')
            return weir_diag_set(diag, WEIR_EINVAL, "the store '", url,
                                 "' names no file or database; write ",
                                 types[i]->example, NULL);
        *type = types[i];
        *where = url + len + 1;
        return 0;
    }
    char buf[WEIR_STORE_SHOW_MAX];
    char shown[WEIR_SHOW_MAX];
    struct weir_text text = weir_text_of(weir_store_show(url, buf));
    return weir_diag_set(diag, WEIR_EINVAL, "the store ",
                         weir_text_show(text, shown),
                         " is of no kind that this version knows; write ",
                         types[0]->example, " or ", types[1]->example, NULL);
}

int weir_store_init(const char *url, struct weir_diag *diag)
{
    const struct weir_backend_type *type;
    const char *where;
    int error = weir_store_find(url, &type, &where, diag);
    if (error < 0)
        return error;
    struct weir_store_meta meta = { .epoch = 0 };
    if (getrandom(meta.id.uuid, sizeof(meta.id.uuid), 0) < 0)
        return weir_diag_set(
            diag, WEIR_ESYSTEM,
            "the system gives no random bytes: ", strerrordesc_np(errno), NULL);
    struct weir_backend *backend;
    error = type->create(where, &backend, diag);
    if (error < 0)
        return error;
    error = type->finish(backend, &meta, false, diag);
    if (error == 0)
        error = type->commit(backend, diag);
    type->close(backend);
    return error;
}

int weir_store_check_moved(const struct weir_store_meta *meta,
                           const char *shown, struct weir_diag *diag)
{
    if (!meta->moved_to[0])
        return 0;
    return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", shown,
                         " was migrated to ", meta->moved_to,
                         ": use that one; if this one is to be used "
                         "again after all, run 'weir store restored ",
                         shown, "'", NULL);
}

/* Reads the meta row in a transaction of its own; refuses a migrated store. */
static int read_store_meta(struct weir_store *store,
                           struct weir_store_meta *out, struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = type->begin(store->backend, false, diag);
    if (error < 0)
        return error;
    error = type->meta(store->backend, out, diag);
    type->rollback(store->backend);
    return error < 0 ? error : weir_store_check_moved(out, store->shown, diag);
}

int weir_store_open(const char *url, struct weir_store **out,
                    struct weir_diag *diag)
{
    const struct weir_backend_type *type;
    const char *where;
    int error = weir_store_find(url, &type, &where, diag);
    if (error < 0)
        return error;
    struct weir_store *store = calloc(1, sizeof(*store));
    if (!store)
        return refuse_quotas_memory(diag);
    weir_store_show(url, store->shown);
    error = type->open(where, &store->backend, diag);
    if (error < 0) {
        free(store);
        return error;
    }
    struct weir_store_meta meta;
    error = read_store_meta(store, &meta, diag);
    if (error < 0) {
        weir_store_close(store);
        return error;
    }
    *out = store;
    return 0;
}

int weir_store_check_mode(const char *url, struct weir_diag *diag)
{
    const struct weir_backend_type *type;
    const char *where;
    int error = weir_store_find(url, &type, &where, diag);
    if (error < 0 || !type->check_mode)
        return error;
    return type->check_mode(where, diag);
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
    struct weir_store_meta meta;
    int error = read_store_meta(store, &meta, diag);
    if (error < 0)
        return error;
    *id = meta.id;
    *epoch = meta.epoch;
    *floor = meta.floor;
    return 0;
}

/* Converts rows to changes. */
struct reading {
    weir_store_each *each;
    void *context;
    struct weir_diag *diag;
};

static int read_quota_row(void *context, const struct weir_row *row)
{
    struct reading *reading = context;
    char scratch[WEIR_FIELDS_MAX];
    struct weir_change change = { .removed = row->id == 0 };
    if (row->fields.len > sizeof(scratch))
        return weir_diag_set(
            reading->diag, WEIR_ESTORE,
            "a quota in the store has more fields than any can have", NULL);
    int error = weir_fields_read(row->name, row->fields, scratch, &change.quota,
                                 reading->diag);
    if (error < 0)
        return error;
    change.quota.id = row->id;
    change.quota.epoch = row->epoch;
    change.quota.created = row->created;
    return reading->each(reading->context, &change);
}

static int read_rows(struct weir_store *store, uint64_t epoch,
                     weir_store_each *each, void *context,
                     struct weir_diag *diag)
{
    struct reading reading = { each, context, diag };
    return store->backend->type->read(store->backend, epoch, read_quota_row,
                                      &reading, diag);
}

int weir_store_read(struct weir_store *store, uint64_t epoch,
                    weir_store_each *each, void *context,
                    struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = type->begin(store->backend, false, diag);
    if (error < 0)
        return error;
    error = read_rows(store, epoch, each, context, diag);
    type->rollback(store->backend);
    return error;
}

bool weir_store_changed(struct weir_store *store)
{
    return store->backend->type->changed(store->backend);
}

/* ---- Editing -------------------------------------------------------- */

static int apply_to_catalog(void *context, const struct weir_change *change)
{
    return weir_catalog_apply(context, change);
}

/* Brings the catalog to the transaction's state. A catalog is dropped if it is
 * of another store, of one that was set back, or older than the tombstones
 * reach. */
static int refresh(struct weir_store *store, struct weir_store_meta *meta,
                   struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = type->meta(store->backend, meta, diag);
    if (error == 0)
        error = weir_store_check_moved(meta, store->shown, diag);
    if (error < 0)
        return error;
    bool other = !weir_store_id_equal(&store->id, &meta->id);
    if (store->catalog &&
        (other || weir_catalog_epoch(store->catalog) > meta->epoch ||
         weir_catalog_epoch(store->catalog) < meta->floor))
        drop_catalog(store);
    store->id = meta->id;
    if (!store->catalog) {
        uint64_t seed;
        memcpy(&seed, meta->id.uuid, sizeof(seed));
        store->catalog = weir_catalog_new(&weir_mem_system, seed);
    }
    if (!store->catalog)
        return refuse_quotas_memory(diag);
    uint64_t epoch = weir_catalog_epoch(store->catalog);
    if (epoch == meta->epoch)
        return 0;
    error = read_rows(store, epoch, apply_to_catalog, store->catalog, diag);
    if (error == WEIR_ENOMEM)
        refuse_quotas_memory(diag);
    if (error < 0)
        drop_catalog(store);
    return error;
}

/* Data shared by the changes of one edit. */
struct writing {
    struct weir_store_meta meta;
    struct weir_text who;
    uint64_t at_ms;
    uint64_t last; /* the edit's last epoch */
};

static int write_log(struct weir_store *store, const struct writing *writing,
                     const struct weir_quota *old, const struct weir_row *row,
                     struct weir_diag *diag)
{
    char was[WEIR_FIELDS_MAX];
    struct weir_log_row entry = {
        .epoch = row->epoch,
        .edit = writing->last,
        .at_ms = writing->at_ms,
        .who = writing->who,
        .name = row->name,
    };
    if (old)
        entry.was = weir_fields_write(old, was);
    if (row->id > 0)
        entry.became = row->fields;
    return store->backend->type->log(store->backend, &entry, diag);
}

/* Writes a change under the next epoch, and with the next id if the name is
 * new. */
static int write_change(struct weir_store *store, struct writing *writing,
                        const struct weir_change *change,
                        struct weir_diag *diag)
{
    struct weir_change written = *change;
    struct weir_quota *quota = &written.quota;
    const struct weir_quota *old =
        weir_catalog_get(store->catalog, quota->name);
    quota->epoch = ++writing->meta.epoch;
    weir_assert(quota->epoch <= writing->last);
    quota->created = old && !change->resets ? old->created : quota->epoch;
    char fields[WEIR_FIELDS_MAX];
    struct weir_row row = {
        .epoch = quota->epoch,
        .created = quota->created,
        .name = quota->name,
    };
    weir_assert(old || !change->removed);
    if (!change->removed) {
        quota->id = old ? old->id : ++writing->meta.last_id;
        row.id = quota->id;
        row.fields = weir_fields_write(quota, fields);
    }
    int error = store->backend->type->write(store->backend, &row, !old, diag);
    if (error == 0)
        error = write_log(store, writing, old, &row, diag);
    if (error < 0)
        return error;
    error = weir_catalog_apply(store->catalog, &written);
    return error < 0 ? refuse_quotas_memory(diag) : 0;
}

static int check_places(struct weir_store *store, const struct weir_plan *plan,
                        struct weir_diag *diag)
{
    for (size_t i = 0; i < plan->count; i++) {
        int error = weir_catalog_check_place(
            store->catalog, plan->items[i].change->quota.name, diag);
        if (error < 0)
            return error;
    }
    return 0;
}

static int write_changes(struct weir_store *store, const struct weir_plan *plan,
                         struct writing *writing, struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    bool removed = false;
    int error = 0;
    for (size_t i = 0; error == 0 && i < plan->count; i++) {
        const struct weir_change *change = plan->items[i].change;
        removed = removed || change->removed;
        error = write_change(store, writing, change, diag);
    }
    if (error == 0 && plan->count > 1)
        error = check_places(store, plan, diag);
    weir_assert(error < 0 || writing->meta.epoch == writing->last);
    if (error == 0)
        error = type->finish(store->backend, &writing->meta, removed, diag);
    return error < 0 ? error : type->commit(store->backend, diag);
}

/* Writes a plan of at least one change. A failure after the first write drops
 * the catalog. */
static int write_plan(struct weir_store *store, const struct weir_plan *plan,
                      struct writing *writing, struct weir_diag *diag)
{
    weir_assert(plan->count > 0 && store->catalog);
    if (plan->count == 1) {
        int error =
            weir_catalog_check(store->catalog, plan->items[0].change, diag);
        if (error < 0)
            return error;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    writing->at_ms =
        (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    writing->last = writing->meta.epoch + plan->count;
    int error = write_changes(store, plan, writing, diag);
    if (error < 0)
        drop_catalog(store);
    return error;
}

int weir_store_check_identity(struct weir_text who, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    if (who.len <= WEIR_STORE_IDENTITY_MAX &&
        (who.len == 0 || weir_utf8_clean(who, "") == who.len))
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL,
                         "an editor's name has at most 255 bytes of "
                         "UTF-8 without control characters, not ",
                         weir_text_show(who, shown), NULL);
}

int weir_store_edit_begun(struct weir_store *store,
                          const struct weir_edit *edit, uint64_t *out_epoch,
                          struct weir_diag *diag)
{
    struct writing writing = { .who = edit->who };
    int error = refresh(store, &writing.meta, diag);
    if (error < 0)
        return error;
    if ((edit->flags & WEIR_EDIT_BASED) && edit->based != writing.meta.epoch)
        return weir_diag_set(
            diag, WEIR_ECHANGED,
            "others edited the quotas at the same time; try again", NULL);
    struct weir_plan plan;
    error = weir_plan_make(&plan, store->catalog, edit, diag);
    if (error < 0)
        return error;
    if (plan.count > 0)
        error = write_plan(store, &plan, &writing, diag);
    else
        store->backend->type->rollback(store->backend);
    weir_plan_free(&plan);
    if (error == 0)
        *out_epoch = writing.meta.epoch;
    return error;
}

int weir_store_edit(struct weir_store *store, const struct weir_edit *edit,
                    uint64_t *epoch, struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = weir_store_check_identity(edit->who, diag);
    if (error == 0)
        error = type->begin(store->backend, true, diag);
    if (error < 0)
        return error;
    error = weir_store_edit_begun(store, edit, epoch, diag);
    if (error < 0)
        type->rollback(store->backend);
    return error;
}
