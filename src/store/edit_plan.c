/* SPDX-License-Identifier: MIT
 * store/edit_plan.c - filters an edit's changes and puts them in order.
 *
 * Changes come in any order, and each takes an epoch. Readers get them in the
 * order of epochs and may stop anywhere, so each prefix should be a valid tree:
 * parents before children, and removals from the leaves up.
 *
 * Changes are sorted by rank: the depth of a quota in the future tree, found by
 * walking up through the parents that this edit sets or, for quotas not in the
 * edit, the current ones. Removals rank after all quotas, the deepest in the
 * old tree first. A cycle ends the walk at WEIR_DEPTH_MAX; the check of the
 * tree refuses it afterwards.
 *
 *     0  roots   1  their children   ...   17  parents with captures
 *     64 - depth  removals */

#include "store/edit_plan.h"

#include <stdlib.h>
#include <string.h>

#include "core/quota/quota_text.h"

#define RANK_CAPTURES (WEIR_DEPTH_MAX + 1)
#define RANK_REMOVALS 64

int weir_plan_refuse_memory(struct weir_diag *diag)
{
    return weir_diag_put(diag, WEIR_ENOMEM, "there is no memory for this edit");
}

static struct weir_text item_name(const struct weir_plan_item *item)
{
    return item->change->quota.name;
}

static int compare_item_names(const void *a, const void *b)
{
    return weir_text_compare(item_name(a), item_name(b));
}

static int compare_item_ranks(const void *a, const void *b)
{
    const struct weir_plan_item *x = a;
    const struct weir_plan_item *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static const struct weir_change *find_planned(const struct weir_plan *plan,
                                              struct weir_text name)
{
    struct weir_change change = { .quota = { .name = name } };
    struct weir_plan_item key = { .change = &change };
    const struct weir_plan_item *item = bsearch(
        &key, plan->items, plan->count, sizeof(key), compare_item_names);
    return item ? item->change : NULL;
}

/* The parent that a name will have; absent for a root and for an unknown
 * name. */
static struct weir_text future_parent(const struct weir_plan *plan,
                                      const struct weir_catalog *catalog,
                                      struct weir_text name)
{
    const struct weir_change *change = find_planned(plan, name);
    if (change)
        return change->quota.parent;
    const struct weir_quota *quota = weir_catalog_get(catalog, name);
    return quota ? quota->parent : (struct weir_text){ NULL, 0 };
}

static uint32_t rank_set(const struct weir_plan *plan,
                         const struct weir_catalog *catalog,
                         struct weir_text parent)
{
    if (parent.len > 0 && memchr(parent.p, '{', parent.len))
        return RANK_CAPTURES;
    uint32_t depth = 0;
    while (parent.len > 0 && depth < WEIR_DEPTH_MAX) {
        depth++;
        parent = future_parent(plan, catalog, parent);
    }
    return depth;
}

static uint32_t rank_removal(const struct weir_catalog *catalog,
                             struct weir_text name)
{
    uint32_t depth = 0;
    const struct weir_quota *quota = weir_catalog_get(catalog, name);
    while (quota && quota->parent.len > 0 && depth < WEIR_DEPTH_MAX) {
        depth++;
        quota = weir_catalog_get(catalog, quota->parent);
    }
    weir_assert(depth < RANK_REMOVALS);
    return RANK_REMOVALS - depth;
}

static void rank(struct weir_plan *plan, const struct weir_catalog *catalog)
{
    for (size_t i = 0; i < plan->count; i++) {
        struct weir_plan_item *item = &plan->items[i];
        const struct weir_quota *quota = &item->change->quota;
        item->rank = item->change->removed
                         ? rank_removal(catalog, quota->name)
                         : rank_set(plan, catalog, quota->parent);
    }
    qsort(plan->items, plan->count, sizeof(*plan->items), compare_item_ranks);
}

static int check_change(const struct weir_catalog *catalog,
                        const struct weir_change *change, unsigned flags,
                        struct weir_diag *diag)
{
    const struct weir_quota *quota = &change->quota;
    char shown[WEIR_SHOW_MAX];
    int error = change->removed ? weir_name_check(quota->name, diag)
                                : weir_quota_check(quota, diag);
    if (error < 0)
        return error;
    bool exists = weir_catalog_get(catalog, quota->name) != NULL;
    if ((change->removed || change->resets) && !exists)
        return weir_diag_set(diag, WEIR_ENOENT, "there is no quota ",
                             weir_text_show(quota->name, shown), NULL);
    if (!change->removed && exists && (flags & WEIR_EDIT_CREATE))
        return weir_diag_set(diag, WEIR_EEXIST, "there is a quota ",
                             weir_text_show(quota->name, shown), " already",
                             NULL);
    return 0;
}

static int refuse_planned_twice(const struct weir_plan *plan,
                                struct weir_diag *diag)
{
    for (size_t i = 1; i < plan->count; i++) {
        struct weir_text name = item_name(&plan->items[i]);
        if (!weir_text_equal(item_name(&plan->items[i - 1]), name))
            continue;
        char shown[WEIR_SHOW_MAX];
        return weir_diag_set(diag, WEIR_EEXIST, "one edit names ",
                             weir_text_show(name, shown), " twice", NULL);
    }
    return 0;
}

/* Adds removals of all quotas of the edited set that the edit doesn't name.
 * Names are copied: a catalog's texts are freed when the name changes. */
static int add_planned_removals(struct weir_plan *plan,
                                struct weir_catalog *catalog, unsigned flags,
                                struct weir_diag *diag)
{
    size_t total = weir_catalog_count(catalog);
    size_t named = plan->count;
    size_t bytes = 0;
    for (size_t i = 0; i < total; i++) {
        const struct weir_quota *quota = weir_catalog_at(catalog, i);
        if (!quota)
            return weir_plan_refuse_memory(diag);
        bytes += quota->name.len;
    }
    plan->names = malloc(bytes + 1);
    plan->removals = calloc(total + 1, sizeof(*plan->removals));
    if (!plan->names || !plan->removals)
        return weir_plan_refuse_memory(diag);
    struct weir_plan known = { .items = plan->items, .count = named };
    char *at = plan->names;
    for (size_t i = 0; i < total; i++) {
        struct weir_text name = weir_catalog_at(catalog, i)->name;
        bool shadow = (flags & WEIR_EDIT_SHADOW) != 0;
        if (weir_name_is_shadow(name) != shadow || find_planned(&known, name))
            continue;
        struct weir_change *removal = &plan->removals[plan->count - named];
        memcpy(at, name.p, name.len);
        removal->removed = true;
        removal->quota.name = (struct weir_text){ at, name.len };
        at += name.len;
        weir_assert(at <= plan->names + bytes);
        weir_assert(plan->count < plan->capacity);
        plan->items[plan->count] =
            (struct weir_plan_item){ .change = removal,
                                     .index = (uint32_t)plan->count };
        plan->count++;
    }
    return 0;
}

/* Drops changes that change nothing. */
static void sift_plan(struct weir_plan *plan,
                      const struct weir_catalog *catalog)
{
    size_t kept = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct weir_change *change = plan->items[i].change;
        const struct weir_quota *old =
            weir_catalog_get(catalog, change->quota.name);
        bool same = !change->removed && !change->resets && old &&
                    weir_quota_equal(old, &change->quota);
        if (!same)
            plan->items[kept++] = plan->items[i];
    }
    weir_assert(kept <= plan->count);
    plan->count = kept;
}

static int fill_plan(struct weir_plan *plan, struct weir_catalog *catalog,
                     const struct weir_edit *edit, struct weir_diag *diag)
{
    for (size_t i = 0; i < edit->count; i++) {
        int error = check_change(catalog, &edit->changes[i], edit->flags, diag);
        if (error < 0)
            return error;
        weir_assert(plan->count < plan->capacity);
        plan->items[plan->count++] =
            (struct weir_plan_item){ .change = &edit->changes[i],
                                     .index = (uint32_t)i };
    }
    if (plan->count > 0)
        qsort(plan->items, plan->count, sizeof(*plan->items),
              compare_item_names);
    int error = refuse_planned_twice(plan, diag);
    if (error == 0 && (edit->flags & WEIR_EDIT_REPLACE))
        error = add_planned_removals(plan, catalog, edit->flags, diag);
    return error;
}

int weir_plan_make(struct weir_plan *plan, struct weir_catalog *catalog,
                   const struct weir_edit *edit, struct weir_diag *diag)
{
    struct weir_plan made = { .capacity = edit->count };
    if (edit->flags & WEIR_EDIT_REPLACE)
        made.capacity += weir_catalog_count(catalog);
    if (made.capacity >= UINT32_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG,
                             "an edit holds too many changes");
    made.items = calloc(made.capacity + 1, sizeof(*made.items));
    if (!made.items)
        return weir_plan_refuse_memory(diag);
    int error = fill_plan(&made, catalog, edit, diag);
    if (error < 0) {
        weir_plan_free(&made);
        return error;
    }
    sift_plan(&made, catalog);
    if (made.count > 0) {
        qsort(made.items, made.count, sizeof(*made.items), compare_item_names);
        rank(&made, catalog);
    }
    *plan = made;
    return 0;
}

void weir_plan_free(struct weir_plan *plan)
{
    free(plan->items);
    free(plan->removals);
    free(plan->names);
    *plan = (struct weir_plan){ .count = 0 };
}
