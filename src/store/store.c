/* SPDX-License-Identifier: MIT
 * store/store.c - quota stores: runs edits, logs and undoes them.
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
 * before anything is applied.
 *
 * Each change has an entry under its epoch, with the quota's fields before and
 * after; entries of one edit share the edit's last epoch. An undo is an edit
 * that restores each quota's fields from before, in the same transaction that
 * checks that none was changed since. It is in the log itself: undoing it
 * repeats the edit. */

#include "store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "core/quota/quota_text.h"
#include "io/clock.h"
#include "store/backend.h"
#include "store/edit_plan.h"
#include "store/lineage_log.h"
#include "store/presence.h"

struct weir_store {
    struct weir_backend *backend;
    struct weir_catalog *catalog;    /* NULL: read it before its next use */
    struct weir_store_id id;         /* the store that the catalog was read
                                      * from */
    char shown[WEIR_STORE_SHOW_MAX]; /* its URL */
    weir_store_bad_each *bad;        /* NULL: none */
    void *bad_context;
};

static int refuse_quotas_memory(struct weir_diag *diag)
{
    return weir_diag_put(diag, WEIR_ENOMEM,
                         "there is no memory for the quotas");
}

int weir_store_init(const char *url, struct weir_diag *diag)
{
    struct weir_store_meta meta = { .epoch = 0 };
    if (getrandom(meta.id.uuid, sizeof(meta.id.uuid), 0) < 0)
        return weir_diag_set(
            diag, WEIR_ESYSTEM,
            "the system gives no random bytes: ", strerrordesc_np(errno), NULL);
    struct weir_backend *backend;
    int error = weir_backend_open(url, true, &backend, diag);
    if (error < 0)
        return error;
    error = backend->type->finish(backend, &meta, false, diag);
    if (error == 0)
        error = backend->type->commit(backend, diag);
    backend->type->close(backend);
    return error;
}

/* Reads the meta row in a transaction of its own; refuses a migrated store. */
static int read_store_meta(struct weir_store *store,
                           struct weir_store_meta *out, struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = type->begin(store->backend, WEIR_BEGIN_READ, diag);
    if (error < 0)
        return error;
    error = type->meta(store->backend, out, diag);
    type->rollback(store->backend);
    return error < 0 ? error
                     : weir_backend_check_moved(out, store->shown, diag);
}

int weir_store_open(const char *url, struct weir_store **out,
                    struct weir_diag *diag)
{
    struct weir_store *store = calloc(1, sizeof(*store));
    if (!store)
        return refuse_quotas_memory(diag);
    weir_store_show(url, store->shown);
    struct weir_store_meta meta;
    int error = weir_backend_open(url, false, &store->backend, diag);
    if (error == 0)
        error = read_store_meta(store, &meta, diag);
    if (error < 0)
        weir_store_close(store);
    else
        *out = store;
    return error;
}

int weir_store_check_mode(const char *url, struct weir_diag *diag)
{
    const struct weir_backend_type *type;
    const char *where;
    int error = weir_backend_find(url, &type, &where, diag);
    if (error < 0 || !type->check_mode)
        return error;
    return type->check_mode(where, diag);
}

/* An empty one; WEIR_ENOMEM. */
static int make_catalog(struct weir_store *store)
{
    uint64_t seed;
    weir_assert(!store->catalog);
    memcpy(&seed, store->id.uuid, sizeof(seed));
    store->catalog = weir_catalog_new(&weir_mem_system, seed);
    if (!store->catalog)
        return WEIR_ENOMEM;
    weir_catalog_limit_tombstones(store->catalog, 0); /* it sends no changes */
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
    if (store->backend)
        store->backend->type->close(store->backend);
    free(store);
}

static bool has_uuid(const struct weir_store_meta *meta,
                     const struct weir_store_id *id)
{
    return memcmp(id->uuid, meta->id.uuid, sizeof(id->uuid)) == 0;
}

static int read_state(struct weir_store *store,
                      const struct weir_lineage *known,
                      struct weir_store_state *out, struct weir_diag *diag)
{
    struct weir_store_meta meta;
    int error = store->backend->type->meta(store->backend, &meta, diag);
    if (error == 0)
        error = weir_backend_check_moved(&meta, store->shown, diag);
    if (error < 0)
        return error;
    *out = (struct weir_store_state){ .id = meta.id,
                                      .epoch = meta.epoch,
                                      .floor = meta.floor };
    if (!known || known->count == 0)
        return 0;
    if (has_uuid(&meta, &known->id))
        return weir_lineage_check(known, store->backend, meta.epoch,
                                  &out->history, &out->loss, diag);
    out->history = WEIR_HISTORY_UNKNOWN;
    return 0;
}

static int raise_restores_beyond(struct weir_store *store,
                                 const struct weir_lineage *known,
                                 struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    struct weir_store_meta meta;
    int error = type->meta(store->backend, &meta, diag);
    if (error < 0)
        return error;
    if (!has_uuid(&meta, &known->id) || meta.id.restores > known->id.restores) {
        type->rollback(store->backend);
        return 0;
    }
    bool was;
    meta.id.restores = known->id.restores + 1;
    error = type->finish(store->backend, &meta, false, diag);
    if (error == 0)
        error = type->unmark(store->backend, &was, diag);
    return error < 0 ? error : type->commit(store->backend, diag);
}

int weir_store_look(struct weir_store *store, const struct weir_lineage *known,
                    struct weir_store_state *out, struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = type->begin(store->backend, WEIR_BEGIN_READ, diag);
    if (error < 0)
        return error;
    error = read_state(store, known, out, diag);
    type->rollback(store->backend);
    if (error == 0 && out->history != WEIR_HISTORY_KEPT)
        drop_catalog(store);
    return error;
}

int weir_store_mark_replaced(struct weir_store *store,
                             const struct weir_lineage *known,
                             struct weir_diag *diag)
{
    weir_assert(known->count > 0);
    const struct weir_backend_type *type = store->backend->type;
    int error = type->begin(store->backend, WEIR_BEGIN_WRITE, diag);
    if (error < 0)
        return error;
    error = raise_restores_beyond(store, known, diag);
    if (error < 0)
        type->rollback(store->backend);
    return error;
}

/* Converts rows to changes. */
struct reading {
    weir_store_each *each;
    void *context;
    const struct weir_store *store; /* that reports bad rows; NULL: none does */
    const struct weir_catalog *catalog; /* NULL: it isn't looked at */
    bool has_bad; /* the catalog has a quota whose row is bad now */
};

static int skip_row(struct reading *reading, const struct weir_row *row,
                    const char *why)
{
    if (reading->catalog && row->name.p &&
        weir_catalog_get(reading->catalog, row->name))
        reading->has_bad = true;
    const struct weir_bad_row bad = {
        .id = row->id, .epoch = row->epoch, .name = row->name, .why = why
    };
    if (reading->store && reading->store->bad)
        reading->store->bad(reading->store->bad_context, &bad);
    return 0;
}

static int read_quota_row(void *context, const struct weir_row *row)
{
    struct reading *reading = context;
    char scratch[WEIR_FIELDS_MAX];
    struct weir_change change = { .removed = row->removed };
    struct weir_diag why;
    if (!row->name.p || !row->fields.p)
        return skip_row(reading, row, "it has no name or fields");
    if (row->epoch == 0 || row->epoch > WEIR_ROW_EPOCH_MAX)
        return skip_row(reading, row, "it has no possible epoch");
    if (row->fields.len > sizeof(scratch))
        return skip_row(reading, row, "it has more fields than any can have");
    if (weir_fields_read(row->name, row->fields, scratch, &change.quota, &why) <
        0)
        return skip_row(reading, row, why.text);
    change.quota.id = row->id;
    change.quota.epoch = row->epoch;
    change.quota.created = row->created;
    return reading->each(reading->context, &change);
}

static int read_rows(struct weir_store *store, uint64_t epoch,
                     struct reading *reading, struct weir_diag *diag)
{
    return store->backend->type->read(store->backend, epoch, read_quota_row,
                                      reading, diag);
}

/* Inside the transaction in which the rows are read. */
static int extend_lineage(struct weir_store *store,
                          struct weir_lineage *lineage, struct weir_diag *diag)
{
    struct weir_store_meta meta;
    int error = store->backend->type->meta(store->backend, &meta, diag);
    if (error < 0)
        return error;
    if (!weir_store_id_equal(&lineage->id, &meta.id))
        return weir_diag_set(
            diag, WEIR_ECHANGED, "the quota store ", store->shown,
            " was replaced while it was read; reading again", NULL);
    return weir_lineage_read(lineage, store->backend, meta.epoch, diag);
}

int weir_store_read(struct weir_store *store, uint64_t epoch,
                    weir_store_each *each, void *context,
                    struct weir_lineage *lineage, struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = type->begin(store->backend, WEIR_BEGIN_READ, diag);
    if (error < 0)
        return error;
    if (lineage)
        error = extend_lineage(store, lineage, diag);
    struct reading reading = { each, context, .store = store };
    if (error == 0)
        error = read_rows(store, epoch, &reading, diag);
    type->rollback(store->backend);
    return error;
}

void weir_store_watch_rows(struct weir_store *store, weir_store_bad_each *each,
                           void *context)
{
    store->bad = each;
    store->bad_context = context;
}

int weir_store_present(struct weir_store *store,
                       const uint8_t root[WEIR_INCARNATION_SIZE], bool leaves,
                       uint32_t *out_roots, struct weir_diag *diag)
{
    return weir_presence_write(store->backend, root, leaves, out_roots, diag);
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

/* Reads into the catalog what is newer. A catalog that has a quota whose row is
 * bad now is read anew, without it: an edit that sets the quota to what it was
 * would be one that changes nothing, and the bad row would stay. */
static int read_newer(struct weir_store *store, struct weir_diag *diag)
{
    uint64_t epoch = weir_catalog_epoch(store->catalog);
    struct reading reading = { apply_to_catalog, store->catalog,
                               .catalog = store->catalog };
    int error = read_rows(store, epoch, &reading, diag);
    if (error < 0 || !reading.has_bad)
        return error;
    drop_catalog(store);
    if (make_catalog(store) < 0)
        return WEIR_ENOMEM;
    reading = (struct reading){ apply_to_catalog, store->catalog };
    return read_rows(store, 0, &reading, diag);
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
        error = weir_backend_check_moved(meta, store->shown, diag);
    if (error < 0)
        return error;
    bool other = !weir_store_id_equal(&store->id, &meta->id);
    if (store->catalog &&
        (other || weir_catalog_epoch(store->catalog) > meta->epoch ||
         weir_catalog_epoch(store->catalog) < meta->floor))
        drop_catalog(store);
    store->id = meta->id;
    if (!store->catalog && make_catalog(store) < 0)
        return refuse_quotas_memory(diag);
    if (weir_catalog_epoch(store->catalog) == meta->epoch)
        return 0;
    error = read_newer(store, diag);
    if (error == WEIR_ENOMEM)
        refuse_quotas_memory(diag);
    if (error < 0)
        drop_catalog(store);
    return error;
}

/* Data shared by the changes of one edit. */
struct writing {
    struct weir_store_meta meta;
    struct weir_text identity;
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
        .identity = writing->identity,
        .name = row->name,
    };
    if (old)
        entry.was = weir_fields_write(old, was);
    if (!row->removed)
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
        .removed = change->removed,
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
    weir_assert(writing->meta.epoch + plan->count == writing->last);
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
    writing->at_ms = weir_clock_wall() / WEIR_MILLISECOND;
    writing->last = writing->meta.epoch + plan->count;
    int error = write_changes(store, plan, writing, diag);
    if (error < 0)
        drop_catalog(store);
    return error;
}

/* Begins an edit by 'identity', whose name must be valid in the log. */
static int begin_edit(struct weir_store *store, struct weir_text identity,
                      struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    if (identity.len <= WEIR_STORE_IDENTITY_MAX &&
        (identity.len == 0 || weir_utf8_clean(identity, "") == identity.len))
        return store->backend->type->begin(store->backend, WEIR_BEGIN_WRITE,
                                           diag);
    return weir_diag_set(diag, WEIR_EINVAL,
                         "an editor's name has at most 255 bytes of "
                         "UTF-8 without control characters, not ",
                         weir_text_show(identity, shown), NULL);
}

/* An edit inside a write transaction, which it ends on success only. */
static int edit_begun(struct weir_store *store, const struct weir_edit *edit,
                      uint64_t *out_epoch, struct weir_diag *diag)
{
    struct writing writing = { .identity = edit->identity };
    int error = refresh(store, &writing.meta, diag);
    if (error < 0)
        return error;
    if ((edit->flags & WEIR_EDIT_BASED) && edit->based != writing.meta.epoch)
        return weir_diag_put(
            diag, WEIR_ECHANGED,
            "others edited the quotas at the same time; try again");
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
    int error = begin_edit(store, edit->identity, diag);
    if (error < 0)
        return error;
    error = edit_begun(store, edit, epoch, diag);
    if (error < 0)
        store->backend->type->rollback(store->backend);
    return error;
}

/* ---- The log -------------------------------------------------------- */

static uint64_t bounded(uint64_t number)
{
    return number < INT64_MAX ? number : INT64_MAX;
}

struct telling {
    weir_store_log_each *each;
    void *context;
    struct weir_diag *diag;
};

/* A reset is the only edit that changes no field. */
static bool is_reset(const struct weir_log_row *row)
{
    return row->was.p && row->became.p &&
           weir_text_equal(row->was, row->became);
}

static int read_log_side(struct weir_text name, struct weir_text fields,
                         char *scratch, struct weir_quota *quota,
                         struct weir_diag *diag)
{
    if (!fields.p)
        return 0;
    if (fields.len > WEIR_FIELDS_MAX)
        return weir_diag_put(
            diag, WEIR_ESTORE,
            "a quota in the store's log has more fields than any can have");
    return weir_fields_read(name, fields, scratch, quota, diag);
}

static int report_log_entry(void *context, const struct weir_log_row *row)
{
    struct telling *telling = context;
    char was[WEIR_FIELDS_MAX];
    char became[WEIR_FIELDS_MAX];
    struct weir_log_entry entry = {
        .epoch = row->epoch,
        .edit = row->edit,
        .at_ms = row->at_ms,
        .identity = row->identity,
        .name = row->name,
        .has_before = row->was.p != NULL,
        .has_after = row->became.p != NULL,
        .reset = is_reset(row),
    };
    int error =
        read_log_side(row->name, row->was, was, &entry.before, telling->diag);
    if (error == 0)
        error = read_log_side(row->name, row->became, became, &entry.after,
                              telling->diag);
    return error < 0 ? error : telling->each(telling->context, &entry);
}

int weir_store_log(struct weir_store *store, uint64_t below,
                   struct weir_text name, size_t max, weir_store_log_each *each,
                   void *context, struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    const struct weir_log_query query = {
        .which = name.len > 0 ? WEIR_LOG_NAME : WEIR_LOG_ALL,
        .number = below > 0 ? bounded(below) : INT64_MAX,
        .max = bounded(max),
        .name = name,
    };
    struct telling telling = { each, context, diag };
    int error = type->begin(store->backend, WEIR_BEGIN_READ, diag);
    if (error < 0)
        return error;
    error = type->read_log(store->backend, &query, report_log_entry, &telling,
                           diag);
    type->rollback(store->backend);
    return error;
}

/* ---- Undoing -------------------------------------------------------- */

/* The changes that an undo makes, and a block of memory for each one's
 * texts. */
struct undo {
    struct weir_change *changes;
    char **texts;
    size_t count;
    size_t capacity;
    struct weir_diag *diag;
};

static void free_undo(struct undo *undo)
{
    for (size_t i = 0; i < undo->count; i++)
        free(undo->texts[i]);
    free(undo->texts);
    free(undo->changes);
}

static int grow_undo(struct undo *undo)
{
    if (undo->count < undo->capacity)
        return 0;
    size_t capacity = undo->capacity > 0 ? 2 * undo->capacity : 16;
    struct weir_change *changes =
        reallocarray(undo->changes, capacity, sizeof(*changes));
    if (changes)
        undo->changes = changes;
    char **texts = reallocarray(undo->texts, capacity, sizeof(*texts));
    if (texts)
        undo->texts = texts;
    if (!changes || !texts)
        return weir_plan_refuse_memory(undo->diag);
    undo->capacity = capacity;
    return 0;
}

/* Reverses one entry of the edit. The block holds the name, the fields, and
 * their unescaped values. */
static int turn_round(void *context, const struct weir_log_row *row)
{
    struct undo *undo = context;
    char shown[WEIR_SHOW_MAX];
    if (is_reset(row))
        return weir_diag_set(
            undo->diag, WEIR_EINVAL, "that edit was a reset of ",
            weir_text_show(row->name, shown),
            ", and the bucket's content is gone; there is nothing to undo",
            NULL);
    int error = grow_undo(undo);
    if (error < 0)
        return error;
    char *text = malloc(row->name.len + 2 * row->was.len + 1);
    if (!text)
        return weir_plan_refuse_memory(undo->diag);
    weir_assert(undo->count < undo->capacity);
    struct weir_change *change = &undo->changes[undo->count];
    undo->texts[undo->count++] = text;
    struct weir_text name = { text, row->name.len };
    struct weir_text was = { text + name.len, row->was.len };
    memcpy(text, row->name.p, name.len);
    *change = (struct weir_change){ .removed = row->was.p == NULL };
    change->quota.name = name;
    if (change->removed)
        return 0;
    memcpy(text + name.len, row->was.p, was.len);
    return weir_fields_read(name, was, text + name.len + was.len,
                            &change->quota, undo->diag);
}

static int take_edit(void *context, const struct weir_log_row *row)
{
    uint64_t *found = context;
    found[0] = row->epoch;
    found[1] = row->edit;
    return 0;
}

/* Finds the edit that made 'epoch'. */
static int find_edit(struct weir_store *store, uint64_t epoch,
                     uint64_t *out_edit, struct weir_diag *diag)
{
    uint64_t found[2] = { 0, 0 };
    struct weir_log_query query = { .which = WEIR_LOG_ALL,
                                    .number = bounded(epoch) + 1,
                                    .max = 1 };
    int error = 0;
    if (epoch < INT64_MAX)
        error = store->backend->type->read_log(store->backend, &query,
                                               take_edit, found, diag);
    if (error < 0)
        return error;
    char number[WEIR_NUMBER_MAX];
    if (epoch == 0 || found[0] != epoch)
        return weir_diag_set(diag, WEIR_ENOENT,
                             "the log knows no edit of epoch ",
                             weir_number_show(epoch, number),
                             "; 'weir quota log' lists those it knows", NULL);
    *out_edit = found[1];
    return 0;
}

static int refuse_changed(void *context, const struct weir_log_row *row)
{
    struct weir_diag *diag = context;
    char shown[WEIR_SHOW_MAX];
    char by[WEIR_SHOW_MAX];
    char when[32];
    char epoch[WEIR_NUMBER_MAX];
    time_t seconds = (time_t)(row->at_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &utc);
    return weir_diag_set(
        diag, WEIR_ECHANGED, "the quota ", weir_text_show(row->name, shown),
        " was changed since, by ", weir_text_show(row->identity, by), " on ",
        when, " (epoch ", weir_number_show(row->epoch, epoch),
        "); nothing was undone", NULL);
}

/* Runs inside the transaction, and ends it on success only. */
static int undo_begun(struct weir_store *store, uint64_t epoch,
                      struct weir_text identity, uint64_t *out_epoch,
                      struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    struct weir_log_query query = { .which = WEIR_LOG_SINCE, .max = 1 };
    int error = find_edit(store, epoch, &query.number, diag);
    if (error < 0)
        return error;
    error = type->read_log(store->backend, &query, refuse_changed, diag, diag);
    if (error < 0)
        return error;
    struct undo undo = { .diag = diag };
    query.which = WEIR_LOG_EDIT;
    query.max = INT64_MAX;
    error = type->read_log(store->backend, &query, turn_round, &undo, diag);
    const struct weir_edit edit = { .changes = undo.changes,
                                    .count = undo.count,
                                    .identity = identity };
    if (error == 0)
        error = edit_begun(store, &edit, out_epoch, diag);
    free_undo(&undo);
    return error;
}

int weir_store_undo(struct weir_store *store, uint64_t epoch,
                    struct weir_text identity, uint64_t *out_epoch,
                    struct weir_diag *diag)
{
    int error = begin_edit(store, identity, diag);
    if (error < 0)
        return error;
    error = undo_begun(store, epoch, identity, out_epoch, diag);
    if (error < 0)
        store->backend->type->rollback(store->backend);
    return error;
}
