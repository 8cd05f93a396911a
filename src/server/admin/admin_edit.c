/* SPDX-License-Identifier: MIT
 * server/admin/admin_edit.c - edits: one after the other, each answered when
 * it is in force here.
 *
 * An edit may depend on the present quotas (PATCH changes some fields of a
 * quota; an import lists its changes), and another root may have edited the
 * same store a moment ago. So each edit goes twice to the store's thread:
 *
 *     request -> queue -> sync -> changes made -> edit -> applied -> answer
 *                          ^ (the catalog has all |      (by this root, before
 *                          |  edits of the other  |       on_done is called)
 *                          |  roots)              |
 *                          +------- changed ------+
 *
 * The next edit begins when the one before is answered. So two edits through
 * one root never overwrite each other's fields. Nor do two through two roots:
 * an edit names the epoch that it was made from, and if another edit came
 * between sync and edit, the store refuses it and it is made again. An import
 * gives the whole of each quota, and depends on none.
 *
 * An edit that alters nothing is answered without the store. An undo and a
 * reading of the log go to the store directly, in their turn: the store reads
 * the entries that they depend on. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/quota_json.h"
#include "server/admin/admin_edit_internal.h"

/* ---- The queue ---- */

static struct weir_admin_edit *pop_edit(struct weir_admin *admin)
{
    struct weir_admin_edit *edit = admin->edits;
    weir_assert(edit && admin->edits_count > 0);
    admin->edits = edit->next;
    if (!admin->edits)
        admin->edits_end = &admin->edits;
    admin->edits_count--;
    return edit;
}

static void edit_free(struct weir_admin_edit *edit)
{
    json_decref(edit->body);
    weir_admin_log_drop(edit->log);
    free(edit);
}

static int begin_edit(struct weir_admin *admin, struct weir_admin_edit *edit)
{
    weir_assert(edit == admin->edits);
    edit->sent = false;
    if (edit->verb == WEIR_VERB_LOG)
        return weir_admin_ask_log(admin, edit);
    if (edit->verb == WEIR_VERB_UNDO)
        return weir_store_thread_undo(admin->store, edit->epoch,
                                      weir_admin_edit_identity(edit), edit);
    return weir_store_thread_sync(admin->store, edit);
}

/* Begins the first edit of the queue. Edits for which there is no memory are
 * answered here. */
static void begin_next_edit(struct weir_admin *admin)
{
    while (admin->edits && begin_edit(admin, admin->edits) < 0) {
        struct weir_admin_edit *edit = pop_edit(admin);
        weir_admin_answer_error(edit->done, edit->context, WEIR_ENOMEM, NULL);
        edit_free(edit);
    }
}

static void finish_with_error(struct weir_admin *admin, int error,
                              const struct weir_diag *diag)
{
    struct weir_admin_edit *edit = pop_edit(admin);
    struct weir_diag said = *diag;
    if (edit->shadow)
        weir_shadow_clean(&said);
    weir_admin_answer_error(edit->done, edit->context, error, &said);
    edit_free(edit);
    begin_next_edit(admin);
}

static json_t *result_of_edit(struct weir_admin *admin,
                              const struct weir_admin_edit *edit,
                              uint64_t epoch)
{
    const struct weir_quota *quota;
    switch (edit->verb) {
    case WEIR_VERB_PUT:
    case WEIR_VERB_PATCH:
        quota = weir_catalog_get(weir_root_catalog(admin->root),
                                 weir_admin_edit_name(edit));
        /* Another root may have removed the quota in the same moment. */
        if (quota)
            return weir_quota_to_json(quota);
        return json_pack("{s:I}", "epoch", (json_int_t)epoch);
    case WEIR_VERB_REMOVE:
    case WEIR_VERB_REMOVE_ALL:
    case WEIR_VERB_DISCARD:
        return json_pack("{s:I, s:I}", "removed", (json_int_t)edit->removed,
                         "epoch", (json_int_t)epoch);
    case WEIR_VERB_RESET:
        return json_pack("{s:I, s:I}", "reset", (json_int_t)edit->reset,
                         "epoch", (json_int_t)epoch);
    case WEIR_VERB_UNDO:
        return json_pack("{s:I, s:I}", "undone", (json_int_t)edit->epoch,
                         "epoch", (json_int_t)epoch);
    case WEIR_VERB_LOG:
        return weir_admin_log_answer(edit);
    case WEIR_VERB_IMPORT:
    case WEIR_VERB_PROMOTE:
        break;
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "created",
                     (json_int_t)edit->created, "changed",
                     (json_int_t)edit->changed, "unchanged",
                     (json_int_t)edit->unchanged, "removed",
                     (json_int_t)edit->removed, "epoch", (json_int_t)epoch);
}

static void finish_edit(struct weir_admin *admin, uint64_t epoch)
{
    struct weir_admin_edit *edit = pop_edit(admin);
    bool one = edit->verb == WEIR_VERB_PUT || edit->verb == WEIR_VERB_PATCH;
    bool made = one && edit->created > 0;
    weir_admin_answer_json(edit->done, edit->context, made ? 201 : 200,
                           result_of_edit(admin, edit, epoch));
    edit_free(edit);
    begin_next_edit(admin);
}

void weir_admin_edits_fini(struct weir_admin *admin)
{
    while (admin->edits) {
        struct weir_admin_edit *edit = pop_edit(admin);
        weir_admin_answer_error(edit->done, edit->context, WEIR_ECLOSED, NULL);
        edit_free(edit);
    }
    weir_assert(admin->edits_count == 0 && admin->edits_end == &admin->edits);
}

/* ---- Sync and edit ---- */

static void make_and_send(struct weir_admin *admin,
                          struct weir_admin_edit *edit, uint64_t epoch)
{
    struct weir_changes changes = { 0 };
    struct weir_diag diag = { 0 };
    struct weir_edit what = { .based = epoch,
                              .who = weir_admin_edit_identity(edit) };
    int error =
        weir_admin_make_changes(admin, edit, &changes, &what.flags, &diag);
    if (error < 0) {
        weir_changes_fini(&changes);
        finish_with_error(admin, error, &diag);
        return;
    }
    if (edit->created + edit->changed + edit->removed + edit->reset == 0) {
        weir_changes_fini(&changes);
        finish_edit(admin, epoch);
        return;
    }
    weir_assert(!edit->sent);
    edit->sent = true;
    edit->tries++;
    error = weir_store_thread_edit(admin->store, &changes, &what, edit);
    if (error < 0)
        finish_with_error(admin, error, &diag);
}

void weir_admin_edit_done(struct weir_admin *admin,
                          struct weir_admin_edit *edit, int error,
                          const struct weir_diag *diag, uint64_t epoch)
{
    weir_assert(edit == admin->edits);
    bool direct = edit->verb == WEIR_VERB_UNDO || edit->verb == WEIR_VERB_LOG;
    if (error == WEIR_ECHANGED && edit->sent &&
        edit->tries < WEIR_ADMIN_TRIES_MAX)
        begin_next_edit(admin); /* this edit, once more */
    else if (error < 0)
        finish_with_error(admin, error, diag);
    else if (edit->sent || direct)
        finish_edit(admin, epoch);
    else
        make_and_send(admin, edit, epoch);
}

/* ---- Requests ---- */

static int read_json_body(const struct weir_admin_call *call, json_t **out,
                          struct weir_diag *diag)
{
    struct weir_text body = call->request->body;
    json_error_t why;
    json_t *json = json_loadb(body.len ? body.p : "", body.len,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!json) {
        diag->line = why.line > 0 ? (uint32_t)why.line : 0;
        diag->column = why.column > 0 ? (uint32_t)why.column : 0;
        return weir_diag_set(diag, WEIR_ESYNTAX,
                             "the body isn't JSON: ", why.text, NULL);
    }
    *out = json;
    return 0;
}

/* If body and path name different quotas, one of them is a mistake. */
static int check_body_name(const struct weir_admin_call *call, json_t *body,
                           struct weir_diag *diag)
{
    if (!json_is_object(body))
        return weir_diag_set(diag, WEIR_EINVAL,
                             "the body is a JSON object, "
                             "like {\"limit\": \"100/s\"}",
                             NULL);
    json_t *name = json_object_get(body, "name");
    if (!name)
        return 0;
    struct weir_text inner = { json_string_value(name),
                               json_string_length(name) };
    if (json_is_string(name) && weir_text_equal(inner, call->name))
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL,
                         "'name' in the body isn't the "
                         "name in the path; a quota can't be renamed: make "
                         "another and remove this one",
                         NULL);
}

static int check_list(json_t *body, struct weir_diag *diag)
{
    json_t *version = json_object_get(body, "weir");
    if (version && json_integer_value(version) != 1)
        return weir_diag_set(diag, WEIR_ESCHEMA,
                             "'weir' isn't 1: the list "
                             "was made by another version",
                             NULL);
    json_t *list = json_is_array(body) ? body : json_object_get(body, "quotas");
    if (json_is_array(list))
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL,
                         "the body is a list of quotas, "
                         "or {\"weir\": 1, \"quotas\": [...]}",
                         NULL);
}

static int check_name_list(json_t *body, struct weir_diag *diag)
{
    json_t *names = json_object_get(body, "names");
    bool good = json_array_size(names) > 0;
    size_t index;
    json_t *name;
    json_array_foreach(names, index, name) good = good && json_is_string(name);
    return good ? 0
                : weir_diag_set(diag, WEIR_EINVAL,
                                "the body is {\"names\": [\"NAME\", ...]}",
                                NULL);
}

static int check_editable(const struct weir_admin *admin,
                          struct weir_diag *diag)
{
    if (admin->stopping)
        return weir_diag_set(diag, WEIR_ECLOSED,
                             "the root is stopping; send the edit to another",
                             NULL);
    if (admin->upstream)
        return weir_diag_set(diag, WEIR_ESTORE,
                             "this is a root of a region, "
                             "which has its quotas from ",
                             weir_upstream_text(admin->upstream), "; ask there",
                             NULL);
    if (admin->doorman) {
        struct weir_doorman_source_state file;
        weir_doorman_source_state(admin->doorman, &file);
        return weir_diag_set(diag, WEIR_ESTORE, "quotas come from ", file.text,
                             "; edit that file", NULL);
    }
    if (!admin->store)
        return weir_diag_set(diag, WEIR_ESTORE, "the root has no store", NULL);
    if (admin->edits_count >= WEIR_ADMIN_EDITS_MAX)
        return weir_diag_set(diag, WEIR_EFULL,
                             "256 edits wait already; "
                             "try again, or import many quotas at once",
                             NULL);
    return 0;
}

/* Reads the query or the body, by the verb. */
static int read_edit(struct weir_admin_call *call, struct weir_admin_edit *edit,
                     struct weir_diag *diag)
{
    bool body = edit->verb == WEIR_VERB_PUT || edit->verb == WEIR_VERB_PATCH ||
                edit->verb == WEIR_VERB_IMPORT ||
                edit->verb == WEIR_VERB_REMOVE_ALL ||
                edit->verb == WEIR_VERB_RESET || edit->verb == WEIR_VERB_UNDO;
    int error = body ? read_json_body(call, &edit->body, diag) : 0;
    if (error < 0)
        return error;
    switch (edit->verb) {
    case WEIR_VERB_PUT:
    case WEIR_VERB_PATCH:
        error = weir_query_flag(call->uri.query, "new", &edit->create, diag);
        return error < 0 ? error : check_body_name(call, edit->body, diag);
    case WEIR_VERB_IMPORT:
        error =
            weir_query_flag(call->uri.query, "replace", &edit->replace, diag);
        if (error == 0)
            error =
                weir_query_flag(call->uri.query, "shadow", &edit->shadow, diag);
        if (error == 0)
            error = weir_query_flag(call->uri.query, "add", &edit->add, diag);
        edit->replace = edit->replace || (edit->shadow && !edit->add);
        return error < 0 ? error : check_list(edit->body, diag);
    case WEIR_VERB_REMOVE_ALL:
    case WEIR_VERB_RESET:
        return check_name_list(edit->body, diag);
    case WEIR_VERB_UNDO:
        return weir_admin_read_undo(edit, diag);
    case WEIR_VERB_LOG:
        return weir_admin_read_log(call, edit, diag);
    case WEIR_VERB_REMOVE:
    case WEIR_VERB_PROMOTE:
    case WEIR_VERB_DISCARD:
        break;
    }
    return 0;
}

static int fill_edit(struct weir_admin_call *call, struct weir_admin_edit *edit,
                     struct weir_diag *diag)
{
    static const struct weir_text nobody = WEIR_TEXT("anonymous");
    struct weir_text who = call->request->who;
    if (who.len == 0)
        who = nobody;
    edit->done = call->done;
    edit->context = call->context;
    edit->who_len =
        who.len < WEIR_STORE_IDENTITY_MAX ? who.len : WEIR_STORE_IDENTITY_MAX;
    memcpy(edit->who, who.p, edit->who_len);
    edit->name_len = call->name.len;
    if (call->name.len > 0)
        memcpy(edit->name, call->name.p, call->name.len);
    int error = read_edit(call, edit, diag);
    return error < 0 ? error : check_editable(call->admin, diag);
}

void weir_admin_enqueue(struct weir_admin_call *call)
{
    struct weir_admin *admin = call->admin;
    struct weir_diag diag = { 0 };
    struct weir_admin_edit *edit = calloc(1, sizeof *edit);
    if (edit)
        edit->verb = call->verb;
    int error = edit ? fill_edit(call, edit, &diag) : WEIR_ENOMEM;
    if (error < 0) {
        if (edit)
            edit_free(edit);
        weir_admin_answer_error(call->done, call->context, error, &diag);
        return;
    }
    weir_assert(!*admin->edits_end);
    *admin->edits_end = edit;
    admin->edits_end = &edit->next;
    admin->edits_count++;
    weir_assert(admin->edits_count <= WEIR_ADMIN_EDITS_MAX);
    if (admin->edits == edit)
        begin_next_edit(admin);
}
