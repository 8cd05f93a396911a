/* SPDX-License-Identifier: MIT
 * server/admin/admin_change.c - the changes that an edit makes in a fresh
 * catalog. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/quota_json.h"
#include "core/quota/quota_text.h"
#include "io/zone.h"
#include "server/admin/admin_edit_internal.h"

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
        return weir_diag_set(diag, WEIR_EEXIST, "the quota '", edit->name,
                             "' exists already; leave --new (?new=1) out to "
                             "change it",
                             NULL);
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
    const struct weir_quota *old = weir_catalog_get(
        weir_root_catalog(admin->root), weir_admin_edit_name(edit));
    if (edit->verb == WEIR_VERB_PATCH && old)
        quota = *old;
    int error = apply_object(edit->body, &quota, diag);
    if (error < 0)
        return error;
    quota.name = weir_admin_edit_name(edit);
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
        return refuse_to_reset(name,
                               " is leased, and its shares end with "
                               "their leases",
                               diag);
    if (quota->store.len > 0)
        return refuse_to_reset(name,
                               " is kept by a store of its own; delete "
                               "its key there",
                               diag);
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
        return weir_diag_set(diag, WEIR_EINVAL,
                             "the list is empty; to drop "
                             "the shadow set, use `weir quota discard`",
                             NULL);
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
        return weir_diag_set(diag, WEIR_ENOENT,
                             "there is no shadow set; "
                             "`weir quota import FILE --shadow` makes one",
                             NULL);
    if (error == 0)
        error = count_missing(catalog, changes, false, &edit->removed, diag);
    return error < 0 ? error : add_shadow_removals(catalog, changes);
}

int weir_admin_make_changes(struct weir_admin *admin,
                            struct weir_admin_edit *edit,
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
        return make_removal(edit, weir_admin_edit_name(edit), changes, diag);
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
