/* SPDX-License-Identifier: MIT
 * server/admin/admin_read.c - quotas as people read them: one, a page, all.
 *
 * Every answer is made from the root's catalog, in the order of names. So a
 * page can begin after a name, and a reader that comes back later neither
 * misses nor repeats a quota that existed all the time, whatever was edited in
 * between.
 *
 * A request reads one set: the live one, or with ?shadow=1 the shadow set,
 * whose quotas have the names that they will have in force. In the order of
 * names the shadow set is one range, so that a walk of the live set steps over
 * it. */

#include <string.h>

#include "core/quota/glob.h"
#include "server/admin/admin_internal.h"
#include "server/admin/quota_export.h"
#include "server/root_usages.h"

static int check_quotas_read(const struct weir_admin *admin,
                             struct weir_diag *diag)
{
    if (weir_root_ready(admin->root))
        return 0;
    return weir_diag_set(
        diag, WEIR_ENOTREADY, "the root has not read its quotas yet: ",
        admin->trouble ? admin->trouble_why : "try again in a moment", NULL);
}

static json_t *usage_of_quota(const struct weir_usage *usage)
{
    return json_pack("{s:f, s:I, s:I, s:I}", "fill", usage->fill, "passed",
                     (json_int_t)usage->passed, "limited",
                     (json_int_t)usage->refused, "limiters",
                     (json_int_t)usage->limiters);
}

static json_t *quota_object(struct weir_admin_call *call,
                            const struct weir_quota *quota, bool usage)
{
    struct weir_quota shown = weir_shadow_live(quota);
    json_t *object = weir_quota_to_json(&shown);
    struct weir_usage used;
    if (object && usage &&
        weir_root_usage_of(call->admin->root, quota->name, &used, call->now))
        json_object_set_new(object, "usage", usage_of_quota(&used));
    return object;
}

/* A name without a quota of its own may still be ruled by a template. */
static int refuse_missing_quota(struct weir_catalog *catalog,
                                struct weir_text name, struct weir_diag *diag)
{
    char shown[WEIR_NAME_MAX + 1];
    memcpy(shown, name.p, name.len);
    shown[name.len] = '\0';
    struct weir_captures captures;
    const struct weir_quota *template =
        weir_catalog_find(catalog, name, &captures);
    if (!template)
        return weir_diag_set(diag, WEIR_ENOENT, "there is no quota '", shown,
                             "'; `weir quota ls` lists those there are", NULL);
    if (weir_text_equal(template->name, name))
        return weir_diag_set(diag, WEIR_ENOENT, "no quota is called '", shown,
                             "'; the name brings its own limit", NULL);
    char pattern[WEIR_NAME_MAX + 1];
    memcpy(pattern, template->name.p, template->name.len);
    pattern[template->name.len] = '\0';
    return weir_diag_set(diag, WEIR_ENOENT, "no quota is called '", shown,
                         "'; the template '", pattern, "' rules it", NULL);
}

/* The requested quota, in its set. */
static int find_requested_quota(struct weir_admin_call *call, bool shadow,
                                const struct weir_quota **out,
                                struct weir_diag *diag)
{
    struct weir_catalog *catalog = weir_root_catalog(call->admin->root);
    struct weir_quota named = { .name = call->name };
    struct weir_shadow_texts texts;
    int error = weir_shadow_refuse(&named, diag);
    if (error == 0 && shadow)
        error = weir_shadow_quota(&named, &texts, &named, diag);
    if (error < 0)
        return error;
    *out = weir_catalog_get(catalog, named.name);
    return *out ? 0 : refuse_missing_quota(catalog, named.name, diag);
}

void weir_admin_get_quota(struct weir_admin_call *call)
{
    struct weir_diag diag = { 0 };
    const struct weir_quota *quota = NULL;
    bool usage = false;
    bool shadow = false;
    int error = weir_query_flag(call->uri.query, "usage", &usage, &diag);
    if (error == 0)
        error = weir_query_flag(call->uri.query, "shadow", &shadow, &diag);
    if (error == 0)
        error = check_quotas_read(call->admin, &diag);
    if (error == 0)
        error = find_requested_quota(call, shadow, &quota, &diag);
    if (error < 0)
        weir_admin_answer_error(&call->asker, error, &diag);
    else
        weir_admin_answer_json(&call->asker, 200,
                               quota_object(call, quota, usage));
}

/* The index of the first quota with a name after 'name'. */
static size_t index_after(struct weir_catalog *catalog, struct weir_text name)
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

/* Which fields of a quota a list has. */
enum form {
    FORM_WHOLE,    /* every field */
    FORM_EXPORTED, /* the fields that aren't at their default */
    FORM_BRIEF,    /* the fields that a tree shows */
};

/* The parameters of a list. */
struct page {
    char after_buf[WEIR_NAME_MAX];
    char match_buf[WEIR_NAME_MAX];
    struct weir_text after;
    struct weir_text match;
    size_t limit;
    bool usage;
    bool shadow; /* of the shadow set */
    enum form form;
};

static int read_page(struct weir_admin_call *call, size_t limit, size_t max,
                     struct page *page, struct weir_diag *diag)
{
    page->limit = limit;
    page->usage = page->shadow = false;
    int error =
        weir_query_number(call->uri.query, "limit", max, &page->limit, diag);
    if (error == 0)
        error = weir_query_flag(call->uri.query, "usage", &page->usage, diag);
    if (error == 0)
        error = weir_query_flag(call->uri.query, "shadow", &page->shadow, diag);
    if (error == 0)
        error = weir_query_name(call->uri.query, "after", page->after_buf,
                                &page->after, diag);
    if (error == 0)
        error = weir_query_name(call->uri.query, "match", page->match_buf,
                                &page->match, diag);
    if (error == 0)
        error = check_quotas_read(call->admin, diag);
    return error;
}

/* The range of the shadow set: its first index, and the one after its last. */
static void find_shadow_range(struct weir_catalog *catalog, size_t out[2])
{
    /* No name is the prefix alone, and none ends in the greatest byte. */
    out[0] = index_after(catalog, WEIR_TEXT(WEIR_SHADOW_PREFIX));
    out[1] = index_after(catalog, WEIR_TEXT(WEIR_SHADOW_PREFIX "\xff"));
    weir_assert(out[0] <= out[1]);
}

/* The index at which a page begins. */
static size_t first_index(struct weir_catalog *catalog, const struct page *page,
                          const size_t shadows_at[2])
{
    if (page->after.len == 0)
        return page->shadow ? shadows_at[0] : 0;
    if (!page->shadow)
        return index_after(catalog, page->after);
    char buf[WEIR_SHADOW_PREFIX_LEN + WEIR_NAME_MAX];
    memcpy(buf, WEIR_SHADOW_PREFIX, WEIR_SHADOW_PREFIX_LEN);
    memcpy(buf + WEIR_SHADOW_PREFIX_LEN, page->after.p, page->after.len);
    struct weir_text after = { buf, WEIR_SHADOW_PREFIX_LEN + page->after.len };
    return index_after(catalog, after);
}

static json_t *row_of_page(struct weir_admin_call *call,
                           const struct page *page,
                           const struct weir_quota *quota)
{
    struct weir_quota shown = weir_shadow_live(quota);
    switch (page->form) {
    case FORM_WHOLE:
        break;
    case FORM_EXPORTED:
        return weir_quota_export(&shown);
    case FORM_BRIEF:
        return weir_view_brief(&shown);
    }
    return quota_object(call, quota, page->usage);
}

/* Fills 'list' with a page; returns its last quota if there are more. */
static const struct weir_quota *fill_page(struct weir_admin_call *call,
                                          const struct page *page,
                                          const size_t shadows_at[2],
                                          json_t *list)
{
    struct weir_catalog *catalog = weir_root_catalog(call->admin->root);
    size_t end = page->shadow ? shadows_at[1] : weir_catalog_count(catalog);
    const struct weir_quota *last = NULL;
    for (size_t i = first_index(catalog, page, shadows_at); i < end; i++) {
        if (!page->shadow && i >= shadows_at[0] && i < shadows_at[1])
            i = shadows_at[1];
        if (i >= end)
            break;
        const struct weir_quota *quota = weir_catalog_at(catalog, i);
        struct weir_quota shown = weir_shadow_live(quota);
        if (page->match.len > 0 &&
            !weir_glob_match(page->match, shown.name, NULL))
            continue;
        if (json_array_size(list) == page->limit)
            return last;
        json_array_append_new(list, row_of_page(call, page, quota));
        last = quota;
    }
    return NULL;
}

static void add_template_usage(struct weir_admin_call *call,
                               const struct page *page, json_t *list)
{
    struct weir_template_sum sums[WEIR_TEMPLATES_MAX] = { 0 };
    size_t count = 0;
    size_t index;
    json_t *object;
    json_array_foreach(list, index, object)
    {
        struct weir_quota named = { 0 };
        struct weir_shadow_texts texts;
        json_t *name = json_object_get(object, "name");
        named.name.p = json_string_value(name);
        named.name.len = json_string_length(name);
        if (count == WEIR_TEMPLATES_MAX ||
            (page->shadow &&
             weir_shadow_quota(&named, &texts, &named, NULL) < 0))
            continue;
        const struct weir_quota *quota =
            weir_catalog_get(weir_root_catalog(call->admin->root), named.name);
        if (quota && weir_quota_is_template(quota))
            sums[count++] =
                (struct weir_template_sum){ .quota = quota, .context = object };
    }
    /* One walk of all quotas in use for a whole page. */
    weir_template_sums(call->admin->root, sums, count, call->now);
    for (size_t i = 0; i < count; i++)
        json_object_set_new(
            sums[i].context, "usage",
            weir_view_sum(sums[i].passed, sums[i].refused, sums[i].instances));
}

static void answer_quota_page(struct weir_admin_call *call,
                              const struct page *page, json_t *answer)
{
    struct weir_catalog *catalog = weir_root_catalog(call->admin->root);
    size_t shadows_at[2];
    find_shadow_range(catalog, shadows_at);
    size_t shadows = shadows_at[1] - shadows_at[0];
    size_t total =
        page->shadow ? shadows : weir_catalog_count(catalog) - shadows;
    json_t *list = json_array();
    json_object_set_new(answer, "epoch",
                        json_integer((json_int_t)weir_catalog_epoch(catalog)));
    json_object_set_new(answer, "total", json_integer((json_int_t)total));
    json_object_set_new(answer, "quotas", list);
    const struct weir_quota *last = fill_page(call, page, shadows_at, list);
    if (last) {
        struct weir_text name = weir_name_live(last->name);
        json_object_set_new(answer, "next", json_stringn(name.p, name.len));
    }
    if (page->form == FORM_WHOLE && page->usage)
        add_template_usage(call, page, list);
    weir_admin_answer_json(&call->asker, 200, answer);
}

/* 'answer' has the fields before the list; stolen. */
static void answer_list(struct weir_admin_call *call, enum form form,
                        size_t limit, size_t max, json_t *answer)
{
    struct page page;
    struct weir_diag diag = { 0 };
    int error = read_page(call, limit, max, &page, &diag);
    page.form = form;
    if (error == 0) {
        answer_quota_page(call, &page, answer);
        return;
    }
    json_decref(answer);
    weir_admin_answer_error(&call->asker, error, &diag);
}

void weir_admin_list(struct weir_admin_call *call)
{
    answer_list(call, FORM_WHOLE, 100, WEIR_ADMIN_PAGE_MAX, json_object());
}

void weir_admin_export(struct weir_admin_call *call)
{
    answer_list(call, FORM_EXPORTED, WEIR_ADMIN_EXPORT_PAGE,
                WEIR_ADMIN_EXPORT_PAGE, json_pack("{s:i}", "weir", 1));
}

void weir_admin_brief(struct weir_admin_call *call)
{
    answer_list(call, FORM_BRIEF, WEIR_ADMIN_EXPORT_PAGE,
                WEIR_ADMIN_EXPORT_PAGE, json_object());
}
