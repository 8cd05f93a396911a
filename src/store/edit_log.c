/* SPDX-License-Identifier: MIT
 * store/edit_log.c - the log of edits, and undoing them.
 *
 * Each change has an entry under its epoch, with the quota's fields before and
 * after; entries of one edit share the edit's last epoch. An undo is an edit
 * that restores each quota's fields from before, in the same transaction that
 * checks that none was changed since. It is in the log itself: undoing it
 * repeats the edit. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/quota/quota_text.h"
#include "store/edit_plan.h"
#include "store/store_internal.h"

static uint64_t bounded(uint64_t number)
{
    return number < INT64_MAX ? number : INT64_MAX;
}

/* ---- Reading -------------------------------------------------------- */

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
        return weir_diag_set(
            diag, WEIR_ESTORE,
            "a quota in the store's log has more fields than any can have",
            NULL);
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
        .who = row->who,
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
    int error = type->begin(store->backend, false, diag);
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
        " was changed since, by ", weir_text_show(row->who, by), " on ", when,
        " (epoch ", weir_number_show(row->epoch, epoch),
        "); nothing was undone", NULL);
}

/* Runs inside the transaction, and ends it on success only. */
static int undo_begun(struct weir_store *store, uint64_t epoch,
                      struct weir_text who, uint64_t *out_epoch,
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
                                    .who = who };
    if (error == 0)
        error = weir_store_edit_begun(store, &edit, out_epoch, diag);
    free_undo(&undo);
    return error;
}

int weir_store_undo(struct weir_store *store, uint64_t epoch,
                    struct weir_text who, uint64_t *out_epoch,
                    struct weir_diag *diag)
{
    const struct weir_backend_type *type = store->backend->type;
    int error = weir_store_check_identity(who, diag);
    if (error == 0)
        error = type->begin(store->backend, true, diag);
    if (error < 0)
        return error;
    error = undo_begun(store, epoch, who, out_epoch, diag);
    if (error < 0)
        type->rollback(store->backend);
    return error;
}
