/* SPDX-License-Identifier: MIT
 * server/admin_read.c - quotas as people read them: one, a page, all.
 *
 * Everything here is answered from the root's catalog and walks it in the
 * order of names, so that a page can begin behind a name: the walk of a
 * reader who comes back later neither skips nor doubles a quota that was
 * there all the time, whatever was edited in between. */

#include <string.h>

#include "quota/glob.h"
#include "server/admin_parts.h"
#include "server/busiest.h"
#include "server/quota_export.h"

static int check_ready(const struct weir_admin *admin,
                       struct weir_diag *diag)
{
    if (weir_root_ready(admin->root))
        return 0;
    return weir_diag_set(diag, WEIR_ENOTREADY, "the root has not read its "
                         "quotas yet: ", admin->trouble
                             ? admin->trouble_why
                             : "try again in a moment", NULL);
}

static void refuse(struct weir_admin_call *call, int error,
                   const struct weir_diag *diag)
{
    weir_admin_answer_error(call->done, call->context, error, diag);
}

static json_t *usage_object(const struct weir_usage *usage)
{
    return json_pack("{s:f, s:I, s:I, s:I}", "fill", usage->fill, "passed",
                     (json_int_t)usage->passed, "refused",
                     (json_int_t)usage->refused, "limiters",
                     (json_int_t)usage->limiters);
}

static json_t *quota_object(struct weir_admin_call *call,
                            const struct weir_quota *quota, bool usage)
{
    json_t *object = weir_quota_to_json(quota);
    struct weir_usage used;
    if (object && usage &&
        weir_root_usage_of(call->admin->root, quota->name, &used, call->now))
        json_object_set_new(object, "usage", usage_object(&used));
    return object;
}

/* A name that no quota bears may still be ruled by a template. */
static int refuse_name(struct weir_catalog *catalog, struct weir_text name,
                       struct weir_diag *diag)
{
    char shown[WEIR_NAME_MAX + 1];
    memcpy(shown, name.p, name.len);
    shown[name.len] = '\0';
    struct weir_captures captures;
    const struct weir_quota *template =
        weir_catalog_find(catalog, name, &captures);
    if (!template)
        return weir_diag_set(diag, WEIR_ENOENT, "there is no quota '", shown,
                             "'; `weir quota ls` lists those there are",
                             NULL);
    char pattern[WEIR_NAME_MAX + 1];
    memcpy(pattern, template->name.p, template->name.len);
    pattern[template->name.len] = '\0';
    return weir_diag_set(diag, WEIR_ENOENT, "no quota is called '", shown,
                         "'; the template '", pattern, "' rules it", NULL);
}

void weir_admin_get_quota(struct weir_admin_call *call)
{
    struct weir_diag diag = { 0 };
    bool usage = false;
    int error = weir_admin_flag(call, "usage", &usage, &diag);
    if (error == 0)
        error = check_ready(call->admin, &diag);
    if (error < 0) {
        refuse(call, error, &diag);
        return;
    }
    struct weir_catalog *catalog = weir_root_catalog(call->admin->root);
    const struct weir_quota *quota = weir_catalog_get(catalog, call->name);
    if (!quota) {
        error = refuse_name(catalog, call->name, &diag);
        refuse(call, error, &diag);
        return;
    }
    weir_admin_answer_json(call->done, call->context, 200,
                           quota_object(call, quota, usage));
}

/* The index of the first quota whose name comes behind 'name'. */
static size_t index_after(struct weir_catalog *catalog,
                          struct weir_text name)
{
    size_t low = 0;
    size_t high = weir_catalog_count(catalog);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct weir_quota *quota = weir_catalog_at(catalog, middle);
        if (weir_text_compare(quota->name, name) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What a list is asked for. */
struct page {
    char after_buf[WEIR_NAME_MAX];
    char match_buf[WEIR_NAME_MAX];
    struct weir_text after;
    struct weir_text match;
    size_t limit;
    bool usage;
};

static int read_page(struct weir_admin_call *call, size_t limit, size_t max,
                     struct page *page, struct weir_diag *diag)
{
    page->limit = limit;
    page->usage = false;
    int error = weir_admin_number(call, "limit", max, &page->limit, diag);
    if (error == 0)
        error = weir_admin_flag(call, "usage", &page->usage, diag);
    if (error == 0)
        error = weir_admin_query_name(call, "after", page->after_buf,
                                      &page->after, diag);
    if (error == 0)
        error = weir_admin_query_name(call, "match", page->match_buf,
                                      &page->match, diag);
    if (error == 0)
        error = check_ready(call->admin, diag);
    return error;
}

static void answer_page(struct weir_admin_call *call,
                        const struct page *page, json_t *answer,
                        bool whole)
{
    struct weir_catalog *catalog = weir_root_catalog(call->admin->root);
    size_t total = weir_catalog_count(catalog);
    size_t index = page->after.len ? index_after(catalog, page->after) : 0;
    json_t *list = json_array();
    json_object_set_new(answer, "epoch",
                        json_integer((json_int_t)weir_catalog_epoch(catalog)));
    json_object_set_new(answer, "total", json_integer((json_int_t)total));
    json_object_set_new(answer, "quotas", list);
    const struct weir_quota *last = NULL;
    bool more = false;
    for (; index < total && !more; index++) {
        const struct weir_quota *quota = weir_catalog_at(catalog, index);
        if (page->match.len > 0 &&
            !weir_glob_match(page->match, quota->name, NULL))
            continue;
        more = json_array_size(list) == page->limit;
        if (more)
            break;
        json_array_append_new(list,
                              whole ? quota_object(call, quota, page->usage)
                                    : weir_quota_export(quota));
        last = quota;
    }
    if (more)
        json_object_set_new(answer, "next",
                            json_stringn(last->name.p, last->name.len));
    weir_admin_answer_json(call->done, call->context, 200, answer);
}

void weir_admin_list(struct weir_admin_call *call)
{
    struct page page;
    struct weir_diag diag = { 0 };
    int error = read_page(call, 100, WEIR_ADMIN_PAGE_MAX, &page, &diag);
    if (error < 0)
        refuse(call, error, &diag);
    else
        answer_page(call, &page, json_object(), true);
}

void weir_admin_export(struct weir_admin_call *call)
{
    struct page page;
    struct weir_diag diag = { 0 };
    int error = read_page(call, WEIR_ADMIN_EXPORT_PAGE,
                          WEIR_ADMIN_EXPORT_PAGE, &page, &diag);
    if (error < 0)
        refuse(call, error, &diag);
    else
        answer_page(call, &page, json_pack("{s:i}", "weir", 1), false);
}
