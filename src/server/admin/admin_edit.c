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

#include "codec/json_text.h"
#include "core/base/atomic.h"
#include "core/quota/quota_text.h"
#include "io/zone.h"
#include "server/admin/admin_internal.h"
#include "server/admin/changes.h"
#include "server/admin/quota_export.h"

/* How often an edit is made again because another root's edit came first. Each
 * time one of the racing edits is made, so at least this many others were
 * made. */
#define WEIR_ADMIN_TRIES_MAX 16

struct weir_admin_edit {
    struct weir_admin_edit *next;
    struct weir_admin_asker asker;
    enum weir_admin_verb verb;
    bool create;     /* refuse a quota that exists */
    bool replace;    /* of an import */
    bool shadow;     /* an import of the shadow set; a log of its quota */
    bool sent;       /* the store's thread has the changes */
    unsigned tries;  /* number of times they were sent */
    json_t *body;    /* owned; NULL: none */
    struct log *log; /* shared with the store's thread; or NULL */
    uint64_t epoch;  /* to undo; of the log: read below it */
    size_t max;      /* entries of the log */
    size_t created, changed, unchanged, removed, reset;
    size_t name_len, identity_len;
    char name[WEIR_NAME_MAX + 1];
    char identity[WEIR_STORE_IDENTITY_MAX + 1];
};

static struct weir_text name_of_edit(const struct weir_admin_edit *edit)
{
    return (struct weir_text){ edit->name, edit->name_len };
}

static struct weir_text identity_of_edit(const struct weir_admin_edit *edit)
{
    return (struct weir_text){ edit->identity, edit->identity_len };
}

/* ---- The changes ---- */

/* Limiters use their own machines' time zones, but a zone that is missing even
 * on the root's machine is most likely misspelt. */
static int check_zone_is_known(const struct weir_quota *quota,
                               struct weir_diag *diag)
{
    int32_t offset;
    int64_t until;
    if (weir_tz_fixed(quota->tz, &offset))
        return 0;
    int error = weir_zone_at(quota->tz, 0, &offset, &until, diag);
    return error < 0 ? WEIR_EQUOTA : 0;
}

static int check_new_quota(const struct weir_quota *quota,
                           struct weir_diag *diag)
{
    int error = weir_quota_check(quota, diag);
    return error < 0 ? error : check_zone_is_known(quota, diag);
}

static int add_altered_quota(struct weir_admin *admin,
                             struct weir_admin_edit *edit,
                             const struct weir_quota *quota,
                             struct weir_changes *changes,
                             struct weir_diag *diag)
{
    int error = check_new_quota(quota, diag);
    if (error < 0)
        return error;
    const struct weir_quota *old =
        weir_catalog_get(weir_root_catalog(admin->root), quota->name);
    if (old && edit->create)
        return weir_diag_set(
            diag, WEIR_EEXIST, "the quota '", edit->name,
            "' exists already; leave --new (?new=1) out to change it", NULL);
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

/* Drops the fields that the store sets, and the usage, so that an answer can be
 * edited and sent back. */
static int apply_object(json_t *object, struct weir_quota *quota,
                        struct weir_diag *diag)
{
    json_object_del(object, "usage");
    json_object_del(object, "id");
    json_object_del(object, "epoch");
    json_object_del(object, "created");
    int error = weir_quota_from_json(object, quota, diag);
    /* WEIR_ENOENT would be read as: there is no such quota. */
    return error == WEIR_ENOENT ? WEIR_EQUOTA : error;
}

static int make_one(struct weir_admin *admin, struct weir_admin_edit *edit,
                    struct weir_changes *changes, struct weir_diag *diag)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    const struct weir_quota *old =
        weir_catalog_get(weir_root_catalog(admin->root), name_of_edit(edit));
    if (edit->verb == WEIR_VERB_PATCH && old)
        quota = *old;
    int error = apply_object(edit->body, &quota, diag);
    if (error < 0)
        return error;
    quota.name = name_of_edit(edit);
    error = weir_shadow_refuse(&quota, diag);
    if (error < 0)
        return error;
    return add_altered_quota(admin, edit, &quota, changes, diag);
}

/* The store checks whether other quotas depend on it: it sees the whole
 * edit. */
static int make_removal(struct weir_admin_edit *edit, struct weir_text name,
                        struct weir_changes *changes, struct weir_diag *diag)
{
    struct weir_change change = { .removed = true };
    weir_quota_init(&change.quota);
    change.quota.name = name;
    int error = weir_shadow_refuse(&change.quota, diag);
    if (error < 0)
        return error;
    edit->removed++;
    return weir_changes_add(changes, &change);
}

static int refuse_to_reset(struct weir_text name, const char *why,
                           struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA, "the quota ",
                         weir_text_show(name, shown), why, NULL);
}

/* A root can't empty a bucket in a store of exact quotas; units that are leased
 * or in flight are in no bucket. */
static int check_reset(const struct weir_admin *admin, struct weir_text name,
                       const struct weir_quota **out, struct weir_diag *diag)
{
    struct weir_catalog *catalog = weir_root_catalog(admin->root);
    struct weir_captures captures;
    const struct weir_quota *quota = weir_catalog_get(catalog, name);
    const struct weir_quota *rule =
        quota ? quota : weir_catalog_find(catalog, name, &captures);
    char shown[WEIR_SHOW_MAX];
    if (rule && !quota)
        return weir_diag_set(diag, WEIR_EQUOTA,
                             "there is no quota of that name; ",
                             weir_text_show(rule->name, shown),
                             " rules it: reset that one, which empties the "
                             "buckets of all its instances, or set a quota of "
                             "that name, which begins empty",
                             NULL);
    if (!quota)
        return weir_diag_set(diag, WEIR_ENOENT, "there is no quota ",
                             weir_text_show(name, shown), NULL);
    if (quota->kind != WEIR_RATE)
        return refuse_to_reset(name,
                               " has no bucket: its units in flight go "
                               "when permits end, or with their limiter",
                               diag);
    if (quota->sharing == WEIR_LEASED)
        return refuse_to_reset(
            name, " is leased, and its shares end with their leases", diag);
    if (quota->store.len > 0)
        return refuse_to_reset(
            name, " is kept by a store of its own; delete its key there", diag);
    *out = quota;
    return 0;
}

static int make_reset(struct weir_admin *admin, struct weir_admin_edit *edit,
                      struct weir_text name, struct weir_changes *changes,
                      struct weir_diag *diag)
{
    struct weir_change change = { .resets = true };
    const struct weir_quota *quota = NULL;
    weir_quota_init(&change.quota);
    change.quota.name = name;
    int error = weir_shadow_refuse(&change.quota, diag);
    if (error == 0)
        error = check_reset(admin, name, &quota, diag);
    if (error < 0)
        return error;
    change.quota = *quota;
    edit->reset++;
    return weir_changes_add(changes, &change);
}

/* Makes a change of each name in the body. */
static int make_named(struct weir_admin *admin, struct weir_admin_edit *edit,
                      struct weir_changes *changes, struct weir_diag *diag)
{
    int error = 0;
    size_t index;
    json_t *name;
    json_array_foreach(json_object_get(edit->body, "names"), index, name)
    {
        struct weir_text text = { json_string_value(name),
                                  json_string_length(name) };
        if (error == 0)
            error = weir_name_check(text, diag);
        if (error == 0)
            error = edit->verb == WEIR_VERB_RESET
                        ? make_reset(admin, edit, text, changes, diag)
                        : make_removal(edit, text, changes, diag);
    }
    return error;
}

static int compare_change_names(const void *a, const void *b)
{
    const struct weir_change *const *x = a;
    const struct weir_change *const *y = b;
    return weir_text_compare((*x)->quota.name, (*y)->quota.name);
}

/* All changes, sorted by name; NULL: no memory. */
static const struct weir_change **sort_names(const struct weir_changes *all)
{
    const struct weir_change **sorted =
        malloc((all->count + 1) * sizeof(*sorted));
    if (!sorted)
        return NULL;
    for (size_t i = 0; i < all->count; i++)
        sorted[i] = &all->at[i];
    qsort(sorted, all->count, sizeof(*sorted), compare_change_names);
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

/* How many quotas of a set of the catalog 'sorted' doesn't name. */
static size_t missing_of(struct weir_catalog *catalog,
                         const struct weir_change **sorted, size_t count,
                         bool shadow)
{
    size_t missing = 0;
    size_t at = 0;
    for (size_t i = 0; i < weir_catalog_count(catalog); i++) {
        struct weir_text name = weir_catalog_at(catalog, i)->name;
        if (weir_name_is_shadow(name) != shadow)
            continue;
        while (at < count &&
               weir_text_compare(sorted[at]->quota.name, name) < 0)
            at++;
        missing +=
            at == count || !weir_text_equal(sorted[at]->quota.name, name);
    }
    weir_assert(at <= count);
    return missing;
}

static int count_missing(struct weir_catalog *catalog,
                         const struct weir_changes *changes, bool shadow,
                         size_t *out, struct weir_diag *diag)
{
    const struct weir_change **sorted = sort_names(changes);
    if (!sorted)
        return WEIR_ENOMEM;
    int error = refuse_doubles(sorted, changes->count, diag);
    if (error == 0)
        *out = missing_of(catalog, sorted, changes->count, shadow);
    free(sorted);
    return error;
}

/* Reads the n-th object of an import. */
static int read_imported_quota(json_t *entry, size_t n,
                               struct weir_quota *quota, struct weir_diag *diag)
{
    weir_quota_init(quota);
    int error = apply_object(entry, quota, diag);
    if (error == 0)
        error = check_new_quota(quota, diag);
    if (error == 0)
        return 0;
    char at[32];
    snprintf(at, sizeof at, "quotas[%zu]: ", n);
    struct weir_diag inner = *diag;
    return weir_diag_set(diag, error, at, inner.text, NULL);
}

/* Adds an entry of an import as a change of its set. */
static int add_imported_quota(json_t *entry, size_t n, bool shadow,
                              struct weir_changes *all, struct weir_diag *diag)
{
    struct weir_change change = { 0 };
    struct weir_shadow_texts texts;
    int error = read_imported_quota(entry, n, &change.quota, diag);
    if (error == 0)
        error = weir_shadow_refuse(&change.quota, diag);
    if (error == 0 && shadow)
        error = weir_shadow_quota(&change.quota, &texts, &change.quota, diag);
    return error < 0 ? error : weir_changes_add(all, &change);
}

/* 'changes' gets the changes to send: with 'replace' every quota of the import,
 * because the store removes the others. */
static int make_import(struct weir_admin *admin, struct weir_admin_edit *edit,
                       struct weir_changes *changes, struct weir_diag *diag)
{
    json_t *list = json_is_array(edit->body)
                       ? edit->body
                       : json_object_get(edit->body, "quotas");
    if (edit->shadow && json_array_size(list) == 0)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "the list is empty; to drop the shadow set, use "
                             "`weir quota discard`");
    struct weir_changes altered = { 0 };
    int error = 0;
    for (size_t i = 0; error == 0 && i < json_array_size(list); i++) {
        error = add_imported_quota(json_array_get(list, i), i, edit->shadow,
                                   changes, diag);
        if (error == 0)
            error = add_altered_quota(admin, edit, &changes->at[i].quota,
                                      &altered, diag);
    }
    size_t missing = 0;
    if (error == 0)
        error = count_missing(weir_root_catalog(admin->root), changes,
                              edit->shadow, &missing, diag);
    if (error == 0 && edit->replace)
        edit->removed = missing;
    if (error == 0 && !edit->replace) {
        struct weir_changes named = *changes;
        *changes = altered;
        altered = named;
    }
    weir_changes_fini(&altered);
    return error;
}

/* Removes the whole shadow set: it is replaced by nothing. */
static int make_discard(struct weir_admin *admin, struct weir_admin_edit *edit,
                        struct weir_diag *diag)
{
    return count_missing(weir_root_catalog(admin->root),
                         &(struct weir_changes){ 0 }, true, &edit->removed,
                         diag);
}

/* Puts the quota under its live name; adds it to 'counted' if that alters the
 * live set. */
static int promote_quota(struct weir_admin *admin, struct weir_admin_edit *edit,
                         const struct weir_quota *quota,
                         struct weir_changes *changes,
                         struct weir_changes *counted, struct weir_diag *diag)
{
    struct weir_change live = { .quota = weir_shadow_live(quota) };
    int error = add_altered_quota(admin, edit, &live.quota, counted, diag);
    return error < 0 ? error : weir_changes_add(changes, &live);
}

static int add_shadow_removals(struct weir_catalog *catalog,
                               struct weir_changes *changes)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < weir_catalog_count(catalog); i++) {
        const struct weir_quota *quota = weir_catalog_at(catalog, i);
        struct weir_change removal = { .removed = true };
        removal.quota.name = quota->name;
        if (weir_name_is_shadow(quota->name))
            error = weir_changes_add(changes, &removal);
    }
    return error;
}

static int make_promotion(struct weir_admin *admin,
                          struct weir_admin_edit *edit,
                          struct weir_changes *changes, struct weir_diag *diag)
{
    struct weir_catalog *catalog = weir_root_catalog(admin->root);
    struct weir_changes counted = { 0 };
    int error = 0;
    for (size_t i = 0; error == 0 && i < weir_catalog_count(catalog); i++) {
        const struct weir_quota *quota = weir_catalog_at(catalog, i);
        if (weir_name_is_shadow(quota->name))
            error = promote_quota(admin, edit, quota, changes, &counted, diag);
    }
    weir_changes_fini(&counted);
    if (error == 0 && changes->count == 0)
        return weir_diag_put(diag, WEIR_ENOENT,
                             "there is no shadow set; "
                             "`weir quota import FILE --shadow` makes one");
    if (error == 0)
        error = count_missing(catalog, changes, false, &edit->removed, diag);
    return error < 0 ? error : add_shadow_removals(catalog, changes);
}

/* Makes the changes of the edit to the root's catalog, and the store's flags.
 * Counts created, changed, unchanged, removed. 0 or the error with 'diag'
 * filled; 'changes' is the caller's to free either way. */
static int make_changes(struct weir_admin *admin, struct weir_admin_edit *edit,
                        struct weir_changes *changes, unsigned *out_flags,
                        struct weir_diag *diag)
{
    edit->created = edit->changed = edit->unchanged = edit->removed = 0;
    edit->reset = 0;
    /* An import or a discard doesn't depend on the catalog. Making a million
     * quotas takes so long that edits through other roots would come between
     * again and again, if it did. */
    bool alone =
        edit->verb == WEIR_VERB_IMPORT || edit->verb == WEIR_VERB_DISCARD;
    *out_flags = (alone ? 0 : WEIR_EDIT_BASED) |
                 (edit->create ? WEIR_EDIT_CREATE : 0) |
                 (edit->replace ? WEIR_EDIT_REPLACE : 0) |
                 (edit->shadow ? WEIR_EDIT_SHADOW : 0);
    switch (edit->verb) {
    case WEIR_VERB_PUT:
    case WEIR_VERB_PATCH:
        return make_one(admin, edit, changes, diag);
    case WEIR_VERB_REMOVE:
        return make_removal(edit, name_of_edit(edit), changes, diag);
    case WEIR_VERB_REMOVE_ALL:
    case WEIR_VERB_RESET:
        return make_named(admin, edit, changes, diag);
    case WEIR_VERB_IMPORT:
        return make_import(admin, edit, changes, diag);
    case WEIR_VERB_PROMOTE:
        *out_flags |= WEIR_EDIT_REPLACE;
        return make_promotion(admin, edit, changes, diag);
    case WEIR_VERB_DISCARD:
        *out_flags |= WEIR_EDIT_REPLACE | WEIR_EDIT_SHADOW;
        return make_discard(admin, edit, diag);
    case WEIR_VERB_UNDO:
    case WEIR_VERB_LOG:
        break; /* the store makes these changes */
    }
    weir_assert(false);
    return WEIR_EINVAL;
}

/* ---- The log, and the undo of one edit ----
 *
 * The log is in the store, not in the root's memory, so it is read on the
 * store's thread, which makes the JSON as well: entries are handed out one by
 * one, borrowed. The request and the thread each own the list; the last to let
 * it go frees it. The thread alone touches it until it reports that it is
 * done. */

struct log {
    uint32_t owners; /* atomic; jansson's own count isn't always */
    json_t *entries; /* owned */
};

/* One owner lets it go, and the last one frees it. NULL is legal. */
static void drop_log(void *context)
{
    struct log *log = context;
    if (!log)
        return;
    uint32_t owners = weir_fetch_sub(&log->owners, 1);
    weir_assert(owners > 0);
    if (owners > 1)
        return;
    json_decref(log->entries);
    free(log);
}

/* ---- On the store's thread ---- */

static json_t *side_of_edit(bool there, const struct weir_quota *quota)
{
    if (!there)
        return json_null();
    struct weir_quota live = weir_shadow_live(quota);
    return weir_quota_export(&live);
}

static int add_log_entry(void *context, const struct weir_log_entry *entry)
{
    struct log *log = context;
    struct weir_text name = weir_name_live(entry->name);
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:s%, s:s%, s:b, s:b, s:o, s:o}", "epoch",
                  (json_int_t)entry->epoch, "edit", (json_int_t)entry->edit,
                  "at_ms", (json_int_t)entry->at_ms, "identity",
                  entry->identity.len ? entry->identity.p : "",
                  entry->identity.len, "name", name.p, name.len, "shadow",
                  weir_name_is_shadow(entry->name), "reset", entry->reset,
                  "before", side_of_edit(entry->has_before, &entry->before),
                  "after", side_of_edit(entry->has_after, &entry->after));
    int lost = json_array_append_new(log->entries, object);
    return weir_json_failed() || lost < 0 ? WEIR_ENOMEM : 0;
}

/* ---- On the loop ---- */

static int request_log(struct weir_admin *admin, struct weir_admin_edit *edit)
{
    weir_assert(!edit->log);
    struct log *log = malloc(sizeof *log);
    if (!log)
        return WEIR_ENOMEM;
    *log = (struct log){ .owners = 2, .entries = json_array() };
    edit->log = log;
    const struct weir_store_log_ask ask = {
        .below = edit->epoch,
        .name = name_of_edit(edit),
        .max = edit->max,
        .each = add_log_entry,
        .end = drop_log,
        .context = log,
    };
    return weir_store_thread_log(admin->parts.store, &ask, edit);
}

static json_t *log_answer(const struct weir_admin_edit *edit)
{
    weir_assert(edit->log);
    json_t *entries = edit->log->entries;
    size_t count = json_array_size(entries);
    json_t *answer = json_pack("{s:O}", "entries", entries);
    if (!answer || count < edit->max)
        return answer;
    json_t *last = json_array_get(entries, count - 1);
    json_object_set(answer, "next", json_object_get(last, "epoch"));
    return answer;
}

static int read_log_query(struct weir_admin_call *call,
                          struct weir_admin_edit *edit, struct weir_diag *diag)
{
    char buf[WEIR_NAME_MAX];
    struct weir_quota named = { 0 };
    struct weir_shadow_texts texts;
    size_t below = 0;
    edit->max = 100;
    int error = weir_query_number(call->uri.query, "max", WEIR_ADMIN_LOG_MAX,
                                  &edit->max, diag);
    if (error == 0)
        error = weir_query_number(call->uri.query, "below", SIZE_MAX / 2,
                                  &below, diag);
    if (error == 0)
        error = weir_query_flag(call->uri.query, "shadow", &edit->shadow, diag);
    if (error == 0)
        error =
            weir_query_name(call->uri.query, "quota", buf, &named.name, diag);
    if (error == 0)
        error = weir_shadow_refuse(&named, diag);
    if (error == 0 && edit->shadow)
        error = weir_shadow_quota(&named, &texts, &named, diag);
    if (error < 0)
        return error;
    edit->epoch = below;
    edit->name_len = named.name.len;
    memcpy(edit->name, named.name.p, named.name.len);
    return 0;
}

static int read_undo_body(struct weir_admin_edit *edit, struct weir_diag *diag)
{
    const json_t *epoch = json_object_get(edit->body, "epoch");
    if (!json_is_integer(epoch) || json_integer_value(epoch) < 1)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "the body is {\"epoch\": N}, with an epoch that "
                             "`weir quota log` shows");
    edit->epoch = (uint64_t)json_integer_value(epoch);
    return 0;
}

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
    drop_log(edit->log);
    free(edit);
}

static int begin_edit(struct weir_admin *admin, struct weir_admin_edit *edit)
{
    weir_assert(edit == admin->edits);
    edit->sent = false;
    if (edit->verb == WEIR_VERB_LOG)
        return request_log(admin, edit);
    if (edit->verb == WEIR_VERB_UNDO)
        return weir_store_thread_undo(admin->parts.store, edit->epoch,
                                      identity_of_edit(edit), edit);
    return weir_store_thread_sync(admin->parts.store, edit);
}

/* Begins the first edit of the queue. Edits for which there is no memory are
 * answered here. */
static void begin_next_edit(struct weir_admin *admin)
{
    while (admin->edits && begin_edit(admin, admin->edits) < 0) {
        struct weir_admin_edit *edit = pop_edit(admin);
        weir_admin_answer_error(&edit->asker, WEIR_ENOMEM, NULL);
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
    weir_admin_answer_error(&edit->asker, error, &said);
    edit_free(edit);
    begin_next_edit(admin);
}

static json_t *count_at_epoch(const char *key, uint64_t count, uint64_t epoch)
{
    return json_pack("{s:I, s:I}", key, (json_int_t)count, "epoch",
                     (json_int_t)epoch);
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
                                 name_of_edit(edit));
        /* Another root may have removed the quota in the same moment. */
        if (quota)
            return weir_quota_to_json(quota);
        return json_pack("{s:I}", "epoch", (json_int_t)epoch);
    case WEIR_VERB_REMOVE:
    case WEIR_VERB_REMOVE_ALL:
    case WEIR_VERB_DISCARD:
        return count_at_epoch("removed", edit->removed, epoch);
    case WEIR_VERB_RESET:
        return count_at_epoch("reset", edit->reset, epoch);
    case WEIR_VERB_UNDO:
        return count_at_epoch("undone", edit->epoch, epoch);
    case WEIR_VERB_LOG:
        return log_answer(edit);
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
    weir_admin_answer_json(&edit->asker, made ? 201 : 200,
                           result_of_edit(admin, edit, epoch));
    edit_free(edit);
    begin_next_edit(admin);
}

void weir_admin_edits_fini(struct weir_admin *admin)
{
    while (admin->edits) {
        struct weir_admin_edit *edit = pop_edit(admin);
        weir_admin_answer_error(&edit->asker, WEIR_ECLOSED, NULL);
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
                              .identity = identity_of_edit(edit) };
    int error = make_changes(admin, edit, &changes, &what.flags, &diag);
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
    error = weir_store_thread_edit(admin->parts.store, &changes, &what, edit);
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
    json_t *json =
        weir_json_read(body, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!json && !why.text[0])
        return WEIR_ENOMEM;
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
        return weir_diag_put(
            diag, WEIR_EINVAL,
            "the body is a JSON object, like {\"limit\": \"100/s\"}");
    json_t *name = json_object_get(body, "name");
    if (!name)
        return 0;
    struct weir_text inner = { json_string_value(name),
                               json_string_length(name) };
    if (json_is_string(name) && weir_text_equal(inner, call->name))
        return 0;
    return weir_diag_put(
        diag, WEIR_EINVAL,
        "'name' in the body isn't the name in the path; a quota can't be "
        "renamed: make another and remove this one");
}

static int check_list(json_t *body, struct weir_diag *diag)
{
    json_t *version = json_object_get(body, "weir");
    if (version && json_integer_value(version) != 1)
        return weir_diag_put(
            diag, WEIR_ESCHEMA,
            "'weir' isn't 1: the list was made by another version");
    json_t *list = json_is_array(body) ? body : json_object_get(body, "quotas");
    if (json_is_array(list))
        return 0;
    return weir_diag_put(
        diag, WEIR_EINVAL,
        "the body is a list of quotas, or {\"weir\": 1, \"quotas\": [...]}");
}

static int check_name_list(json_t *body, struct weir_diag *diag)
{
    json_t *names = json_object_get(body, "names");
    bool good = json_array_size(names) > 0;
    size_t index;
    json_t *name;
    json_array_foreach(names, index, name) good = good && json_is_string(name);
    return good ? 0
                : weir_diag_put(diag, WEIR_EINVAL,
                                "the body is {\"names\": [\"NAME\", ...]}");
}

static int check_editable(const struct weir_admin *admin,
                          struct weir_diag *diag)
{
    if (admin->stopping)
        return weir_diag_put(diag, WEIR_ECLOSED,
                             "the root is stopping; send the edit to another");
    if (admin->parts.upstream)
        return weir_diag_set(
            diag, WEIR_ESTORE,
            "this is a root of a region, which has its quotas from ",
            weir_upstream_text(admin->parts.upstream), "; ask there", NULL);
    if (admin->parts.doorman) {
        struct weir_doorman_source_state file;
        weir_doorman_source_state(admin->parts.doorman, &file);
        return weir_diag_set(diag, WEIR_ESTORE, "quotas come from ", file.text,
                             "; edit that file", NULL);
    }
    if (!admin->parts.store)
        return weir_diag_put(diag, WEIR_ESTORE, "the root has no store");
    if (admin->edits_count >= WEIR_ADMIN_EDITS_MAX)
        return weir_diag_put(
            diag, WEIR_EFULL,
            "256 edits wait already; try again, or import many quotas at once");
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
    bool adds = false; /* to the shadow set, instead of replacing it */
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
            error = weir_query_flag(call->uri.query, "add", &adds, diag);
        edit->replace = edit->replace || (edit->shadow && !adds);
        return error < 0 ? error : check_list(edit->body, diag);
    case WEIR_VERB_REMOVE_ALL:
    case WEIR_VERB_RESET:
        return check_name_list(edit->body, diag);
    case WEIR_VERB_UNDO:
        return read_undo_body(edit, diag);
    case WEIR_VERB_LOG:
        return read_log_query(call, edit, diag);
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
    struct weir_text identity = call->request->identity;
    if (identity.len == 0)
        identity = WEIR_TEXT("anonymous");
    edit->asker = call->asker;
    edit->identity_len = identity.len < WEIR_STORE_IDENTITY_MAX
                             ? identity.len
                             : WEIR_STORE_IDENTITY_MAX;
    memcpy(edit->identity, identity.p, edit->identity_len);
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
        weir_admin_answer_error(&call->asker, error, &diag);
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
