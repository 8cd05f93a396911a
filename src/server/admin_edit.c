/* SPDX-License-Identifier: MIT
 * server/admin_edit.c - edits: one after the other, each answered when it is
 * in force here.
 *
 * An edit may depend on what is there (PATCH changes some fields of a quota;
 * an import says what it changed), and another root may have edited the
 * same store a moment ago. So each edit goes twice to the store's thread:
 *
 *     request -> queue -> sync -> changes made -> edit -> applied -> answer
 *                         (all that others did        (by this root, before
 *                          is in our catalog)          on_done is called)
 *
 * and the next begins when the one before is answered, so that two edits
 * through one root never overwrite each other's fields. Two through two
 * roots can, if both fall between sync and edit, which is a millisecond:
 * fields that only one of them names may then be as before the other. Its
 * own transaction still keeps every tree sound.
 *
 * An edit that alters nothing is answered without the store's edit. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/admin_parts.h"
#include "server/changes.h"
#include "wire/quota_json.h"

enum verb { PUT, PATCH, REMOVE, IMPORT };

struct weir_admin_edit {
    struct weir_admin_edit *next;
    weir_admin_done_fn *done;
    void *context;
    enum verb verb;
    bool create;  /* refuse a quota that exists */
    bool replace; /* of an import */
    bool sent;    /* the store's thread has the changes */
    json_t *body; /* owned; NULL for REMOVE */
    size_t created, changed, unchanged, removed;
    size_t name_len;
    char name[WEIR_NAME_MAX + 1];
};

static struct weir_text name_of(const struct weir_admin_edit *edit)
{
    return (struct weir_text){ edit->name, edit->name_len };
}

/* ---- The queue ---- */

static struct weir_admin_edit *pop(struct weir_admin *admin)
{
    struct weir_admin_edit *edit = admin->edits;
    admin->edits = edit->next;
    if (!admin->edits)
        admin->edits_end = &admin->edits;
    admin->edits_count--;
    return edit;
}

static void edit_free(struct weir_admin_edit *edit)
{
    json_decref(edit->body);
    free(edit);
}

/* Begins the first of the queue. Those for which there is no memory are
 * answered here. */
static void begin_next(struct weir_admin *admin)
{
    while (admin->edits &&
           weir_store_thread_sync(admin->store, admin->edits) < 0) {
        struct weir_admin_edit *edit = pop(admin);
        weir_admin_answer_error(edit->done, edit->context, WEIR_ENOMEM,
                                NULL);
        edit_free(edit);
    }
}

static void finish_error(struct weir_admin *admin, int error,
                         const struct weir_diag *diag)
{
    struct weir_admin_edit *edit = pop(admin);
    weir_admin_answer_error(edit->done, edit->context, error, diag);
    edit_free(edit);
    begin_next(admin);
}

static json_t *result(struct weir_admin *admin,
                      const struct weir_admin_edit *edit, uint64_t epoch)
{
    const struct weir_quota *quota;
    switch (edit->verb) {
    case PUT:
    case PATCH:
        quota = weir_catalog_get(weir_root_catalog(admin->root),
                                 name_of(edit));
        /* Another root may have removed it in the same moment. */
        if (quota)
            return weir_quota_to_json(quota);
        return json_pack("{s:I}", "epoch", (json_int_t)epoch);
    case REMOVE:
        return json_pack("{s:I, s:I}", "removed", (json_int_t)edit->removed,
                         "epoch", (json_int_t)epoch);
    case IMPORT:
        break;
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "created",
                     (json_int_t)edit->created, "changed",
                     (json_int_t)edit->changed, "unchanged",
                     (json_int_t)edit->unchanged, "removed",
                     (json_int_t)edit->removed, "epoch", (json_int_t)epoch);
}

static void finish(struct weir_admin *admin, uint64_t epoch)
{
    struct weir_admin_edit *edit = pop(admin);
    bool made = edit->verb != IMPORT && edit->created > 0;
    weir_admin_answer_json(edit->done, edit->context, made ? 201 : 200,
                           result(admin, edit, epoch));
    edit_free(edit);
    begin_next(admin);
}

void weir_admin_edits_fini(struct weir_admin *admin)
{
    while (admin->edits) {
        struct weir_admin_edit *edit = pop(admin);
        weir_admin_answer_error(edit->done, edit->context, WEIR_ECLOSED,
                                NULL);
        edit_free(edit);
    }
}

/* ---- What is to be changed, once the catalog is fresh ---- */

/* Adds 'quota' to the changes unless it is there already, just so. */
static int add_quota(struct weir_admin *admin, struct weir_admin_edit *edit,
                     const struct weir_quota *quota,
                     struct weir_changes *changes, struct weir_diag *diag)
{
    int error = weir_quota_check(quota, diag);
    if (error < 0)
        return error;
    const struct weir_quota *old =
        weir_catalog_get(weir_root_catalog(admin->root), quota->name);
    if (old && edit->create)
        return weir_diag_set(diag, WEIR_EEXIST, "the quota '", edit->name,
                             "' exists already; leave --new (?new=1) out to "
                             "change it", NULL);
    if (old && weir_quota_equal(old, quota)) {
        edit->unchanged++;
        return 0;
    }
    if (old)
        edit->changed++;
    else
        edit->created++;
    struct weir_change change = { .quota = *quota };
    return weir_changes_add(changes, &change);
}

/* What is the store's to set, and the usage, is passed over, so that an
 * answer can be edited and sent back. */
static int apply_object(json_t *object, struct weir_quota *quota,
                        struct weir_diag *diag)
{
    json_object_del(object, "usage");
    json_object_del(object, "id");
    json_object_del(object, "epoch");
    json_object_del(object, "created");
    int error = weir_quota_from_json(object, quota, diag);
    /* "Not found" would be read as: there is no such quota. */
    return error == WEIR_ENOENT ? WEIR_EQUOTA : error;
}

static int make_one(struct weir_admin *admin, struct weir_admin_edit *edit,
                    struct weir_changes *changes, struct weir_diag *diag)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    const struct weir_quota *old = weir_catalog_get(
        weir_root_catalog(admin->root), name_of(edit));
    if (edit->verb == PATCH && old)
        quota = *old;
    int error = apply_object(edit->body, &quota, diag);
    if (error < 0)
        return error;
    quota.name = name_of(edit);
    return add_quota(admin, edit, &quota, changes, diag);
}

static int make_removal(struct weir_admin *admin,
                        struct weir_admin_edit *edit,
                        struct weir_changes *changes, struct weir_diag *diag)
{
    struct weir_change change = { .removed = true };
    weir_quota_init(&change.quota);
    change.quota.name = name_of(edit);
    int error = weir_catalog_check(weir_root_catalog(admin->root), &change,
                                   diag);
    if (error < 0)
        return error;
    edit->removed = 1;
    return weir_changes_add(changes, &change);
}

static int compare_names(const void *a, const void *b)
{
    const struct weir_change *const *x = a;
    const struct weir_change *const *y = b;
    return weir_text_compare((*x)->quota.name, (*y)->quota.name);
}

/* All that is named, sorted; NULL: no memory. */
static const struct weir_change **sort_names(const struct weir_changes *all)
{
    const struct weir_change **sorted =
        malloc((all->count + 1) * sizeof(*sorted));
    if (!sorted)
        return NULL;
    for (size_t i = 0; i < all->count; i++)
        sorted[i] = &all->at[i];
    qsort(sorted, all->count, sizeof(*sorted), compare_names);
    return sorted;
}

static int refuse_doubles(const struct weir_change **sorted, size_t count,
                          struct weir_diag *diag)
{
    for (size_t i = 1; i < count; i++) {
        struct weir_text name = sorted[i]->quota.name;
        if (!weir_text_equal(sorted[i - 1]->quota.name, name))
            continue;
        char shown[WEIR_NAME_MAX + 1];
        memcpy(shown, name.p, name.len);
        shown[name.len] = '\0';
        return weir_diag_set(diag, WEIR_EEXIST, "the quota '", shown,
                             "' is named twice; name it once", NULL);
    }
    return 0;
}

/* How many quotas of the catalog aren't named. */
static size_t count_missing(struct weir_catalog *catalog,
                            const struct weir_change **sorted, size_t count)
{
    size_t missing = 0;
    size_t at = 0;
    for (size_t i = 0; i < weir_catalog_count(catalog); i++) {
        struct weir_text name = weir_catalog_at(catalog, i)->name;
        while (at < count &&
               weir_text_compare(sorted[at]->quota.name, name) < 0)
            at++;
        missing +=
            at == count || !weir_text_equal(sorted[at]->quota.name, name);
    }
    return missing;
}

/* Reads the n-th object of an import. */
static int read_entry(json_t *entry, size_t n, struct weir_quota *quota,
                      struct weir_diag *diag)
{
    weir_quota_init(quota);
    int error = apply_object(entry, quota, diag);
    if (error == 0)
        error = weir_quota_check(quota, diag);
    if (error == 0)
        return 0;
    char at[32];
    snprintf(at, sizeof at, "quotas[%zu]: ", n);
    struct weir_diag inner = *diag;
    return weir_diag_set(diag, error, at, inner.text, NULL);
}

/* 'all' gets every quota that is named, 'changes' those to be sent: with
 * 'replace' all of them, for the store must know what isn't named. */
static int make_import(struct weir_admin *admin,
                       struct weir_admin_edit *edit,
                       struct weir_changes *changes, struct weir_diag *diag)
{
    json_t *list = json_is_array(edit->body)
                       ? edit->body
                       : json_object_get(edit->body, "quotas");
    struct weir_changes altered = { 0 };
    int error = 0;
    for (size_t i = 0; error == 0 && i < json_array_size(list); i++) {
        struct weir_change change = { 0 };
        error = read_entry(json_array_get(list, i), i, &change.quota, diag);
        if (error == 0)
            error = weir_changes_add(changes, &change);
        if (error == 0)
            error = add_quota(admin, edit, &change.quota, &altered, diag);
    }
    const struct weir_change **sorted = error ? NULL : sort_names(changes);
    if (error == 0 && !sorted)
        error = WEIR_ENOMEM;
    if (error == 0)
        error = refuse_doubles(sorted, changes->count, diag);
    if (error == 0 && edit->replace)
        edit->removed = count_missing(weir_root_catalog(admin->root), sorted,
                                      changes->count);
    free(sorted);
    if (error == 0 && !edit->replace) {
        struct weir_changes named = *changes;
        *changes = altered;
        altered = named;
    }
    weir_changes_fini(&altered);
    return error;
}

static int make_changes(struct weir_admin *admin,
                        struct weir_admin_edit *edit,
                        struct weir_changes *changes, struct weir_diag *diag)
{
    switch (edit->verb) {
    case PUT:
    case PATCH:
        return make_one(admin, edit, changes, diag);
    case REMOVE:
        return make_removal(admin, edit, changes, diag);
    case IMPORT:
        break;
    }
    return make_import(admin, edit, changes, diag);
}

static void make_and_send(struct weir_admin *admin,
                          struct weir_admin_edit *edit, uint64_t epoch)
{
    struct weir_changes changes = { 0 };
    struct weir_diag diag = { 0 };
    int error = make_changes(admin, edit, &changes, &diag);
    if (error < 0) {
        weir_changes_fini(&changes);
        finish_error(admin, error, &diag);
        return;
    }
    if (edit->created + edit->changed + edit->removed == 0) {
        weir_changes_fini(&changes);
        finish(admin, epoch);
        return;
    }
    unsigned flags = (edit->create ? WEIR_EDIT_CREATE : 0) |
                     (edit->replace ? WEIR_EDIT_REPLACE : 0);
    edit->sent = true;
    error = weir_store_thread_edit(admin->store, &changes, flags, edit);
    if (error < 0)
        finish_error(admin, error, &diag);
}

void weir_admin_edit_done(struct weir_admin *admin,
                          struct weir_admin_edit *edit, int error,
                          const struct weir_diag *diag, uint64_t epoch)
{
    weir_assert(edit == admin->edits);
    if (error < 0) {
        finish_error(admin, error, diag);
        return;
    }
    if (edit->sent)
        finish(admin, epoch);
    else
        make_and_send(admin, edit, epoch);
}

/* ---- Requests ---- */

static int read_body(const struct weir_admin_call *call, json_t **out,
                     struct weir_diag *diag)
{
    struct weir_text body = call->request->body;
    json_error_t why;
    json_t *json = json_loadb(body.len ? body.p : "", body.len,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!json) {
        diag->line = why.line > 0 ? (uint32_t)why.line : 0;
        diag->column = why.column > 0 ? (uint32_t)why.column : 0;
        return weir_diag_set(diag, WEIR_ESYNTAX, "the body isn't JSON: ",
                             why.text, NULL);
    }
    *out = json;
    return 0;
}

/* An edit that names another quota in its body than in its path is a
 * mistake of one or the other. */
static int check_names(const struct weir_admin_call *call, json_t *body,
                       struct weir_diag *diag)
{
    if (!json_is_object(body))
        return weir_diag_set(diag, WEIR_EINVAL, "the body is a JSON object, "
                             "like {\"limit\": \"100/s\"}", NULL);
    json_t *name = json_object_get(body, "name");
    if (!name)
        return 0;
    struct weir_text inner = { json_string_value(name),
                               json_string_length(name) };
    if (json_is_string(name) && weir_text_equal(inner, call->name))
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL, "'name' in the body isn't the "
                         "name in the path; a quota can't be renamed: make "
                         "another and remove this one", NULL);
}

static int check_list(json_t *body, struct weir_diag *diag)
{
    json_t *version = json_object_get(body, "weir");
    if (version && json_integer_value(version) != 1)
        return weir_diag_set(diag, WEIR_ESCHEMA, "'weir' isn't 1: the list "
                             "was made by another version", NULL);
    json_t *list = json_is_array(body) ? body
                                       : json_object_get(body, "quotas");
    if (json_is_array(list))
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL, "the body is a list of quotas, "
                         "or {\"weir\": 1, \"quotas\": [...]}", NULL);
}

static int check_open(const struct weir_admin *admin, struct weir_diag *diag)
{
    if (admin->stopping)
        return weir_diag_set(diag, WEIR_ECLOSED, "the root is stopping; "
                             "send the edit to another", NULL);
    if (!admin->store)
        return weir_diag_set(diag, WEIR_ESTORE, "the root has no store",
                             NULL);
    if (admin->edits_count >= WEIR_ADMIN_EDITS_MAX)
        return weir_diag_set(diag, WEIR_EFULL, "256 edits wait already; "
                             "try again, or import many quotas at once",
                             NULL);
    return 0;
}

static int make_edit(struct weir_admin_call *call, enum verb verb,
                     struct weir_admin_edit *edit, struct weir_diag *diag)
{
    int error = weir_admin_flag(call, "new", &edit->create, diag);
    if (error == 0)
        error = weir_admin_flag(call, "replace", &edit->replace, diag);
    if (error == 0 && verb != REMOVE)
        error = read_body(call, &edit->body, diag);
    if (error < 0)
        return error;
    edit->verb = verb;
    edit->done = call->done;
    edit->context = call->context;
    switch (verb) {
    case PUT:
    case PATCH:
        edit->replace = false;
        error = check_names(call, edit->body, diag);
        break;
    case REMOVE:
        edit->create = edit->replace = false;
        break;
    case IMPORT:
        edit->create = false;
        error = check_list(edit->body, diag);
        break;
    }
    edit->name_len = call->name.len;
    if (call->name.len > 0)
        memcpy(edit->name, call->name.p, call->name.len);
    return error < 0 ? error : check_open(call->admin, diag);
}

static void enqueue(struct weir_admin_call *call, enum verb verb)
{
    struct weir_admin *admin = call->admin;
    struct weir_diag diag = { 0 };
    struct weir_admin_edit *edit = calloc(1, sizeof *edit);
    int error = edit ? make_edit(call, verb, edit, &diag) : WEIR_ENOMEM;
    if (error < 0) {
        if (edit)
            edit_free(edit);
        weir_admin_answer_error(call->done, call->context, error, &diag);
        return;
    }
    *admin->edits_end = edit;
    admin->edits_end = &edit->next;
    admin->edits_count++;
    if (admin->edits == edit)
        begin_next(admin);
}

void weir_admin_put(struct weir_admin_call *call)
{
    enqueue(call, PUT);
}

void weir_admin_patch(struct weir_admin_call *call)
{
    enqueue(call, PATCH);
}

void weir_admin_delete(struct weir_admin_call *call)
{
    enqueue(call, REMOVE);
}

void weir_admin_import(struct weir_admin_call *call)
{
    enqueue(call, IMPORT);
}
