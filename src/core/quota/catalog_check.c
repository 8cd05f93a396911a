/* SPDX-License-Identifier: MIT
 * quota/catalog_check.c - whether an edit leaves a sound tree.
 *
 * Only the parts that an edit touches are checked, as the rest was sound
 * before:
 *
 *     above   the ancestors of the new parent, up to the root. Finding the
 *             quota itself there is a cycle.
 *     below   the deepest of the descendants, through the lists of children
 *             (a quota that moves takes them along).
 *
 * ancestors + itself + depth below <= WEIR_DEPTH_MAX. Both walks are bounded by
 * that depth, so a broken set (a store written by another program) can't make
 * them endless; the walk below visits every descendant once.
 *
 * At most one quota of a chain is adaptive: it finds its limit from the latency
 * of its requests, and two in a chain would disturb each other.
 *
 * A template's parent with captures is known only when the template is used, so
 * there is nothing to walk: the limiter's table bounds the chain of each
 * instance by the same depth. */

#include <string.h>

#include "core/quota/catalog.h"
#include "core/quota/quota_text.h"

static int refuse_missing(const struct weir_catalog *catalog,
                          struct weir_text name, const char *what, int error,
                          struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    weir_text_show(name, shown);
    const struct weir_quota *ruler = weir_catalog_find(catalog, name, NULL);
    if (!ruler)
        return weir_diag_set(diag, error, "the ", what, " ", shown,
                             " doesn't exist; create it first", NULL);
    if (weir_text_equal(ruler->name, name))
        return weir_diag_set(
            diag, error, "the ", what, " ", shown,
            " exists only by its name, and is transient; create a quota "
            "of that name first",
            NULL);
    char pattern[WEIR_SHOW_MAX];
    return weir_diag_set(diag, error, "the ", what, " ", shown,
                         " is only an instance of the template ",
                         weir_text_show(ruler->name, pattern),
                         "; create a quota of that name first", NULL);
}

/* "a -> b -> c -> a", by the parents as they would be after the edit. */
static int refuse_cycle(const struct weir_catalog *catalog,
                        const struct weir_quota *quota, struct weir_diag *diag)
{
    char path[WEIR_DIAG_MAX];
    struct weir_out out = { path, sizeof(path) - 1, 0 };
    weir_out_text(&out, quota->name);
    struct weir_text above = quota->parent;
    for (size_t i = 0; i <= WEIR_DEPTH_MAX && above.len > 0; i++) {
        weir_out_string(&out, " -> ");
        weir_out_text(&out, above);
        if (weir_text_equal(above, quota->name))
            break;
        const struct weir_quota *next = weir_catalog_get(catalog, above);
        above = next ? next->parent : (struct weir_text){ NULL, 0 };
    }
    weir_assert(out.len < sizeof(path));
    path[out.len] = '\0';
    return weir_diag_set(diag, WEIR_ECYCLE,
                         "a quota would be its own ancestor: ", path, NULL);
}

static int refuse_depth(const struct weir_quota *quota, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(
        diag, WEIR_EDEPTH, "with ", weir_text_show(quota->name, shown),
        " a chain would be longer than 16 quotas; hang it higher up", NULL);
}

/* The next child of 'parent', other than 'name': a broken set may have a quota
 * below itself, and the edit that mends it has to pass. */
static const struct weir_quota *next_child(const struct weir_catalog *catalog,
                                           struct weir_text parent,
                                           const struct weir_quota *after,
                                           struct weir_text name)
{
    do {
        after = weir_catalog_child(catalog, parent, after);
    } while (after && weir_text_equal(after->name, name));
    return after;
}

/* The descendants of a quota. */
struct below {
    size_t levels;                     /* counted up to a bound */
    const struct weir_quota *adaptive; /* the first one found, or NULL */
};

/* Walks the tree below 'name' by the lists of children, with the way back in
 * 'path', and stops at 'most' levels. */
static struct below walk_below(const struct weir_catalog *catalog,
                               struct weir_text name, size_t most)
{
    weir_assert(most <= WEIR_DEPTH_MAX);
    const struct weir_quota *path[WEIR_DEPTH_MAX];
    size_t depth = 0;
    struct below below = { .levels = 0 };
    const struct weir_quota *at = next_child(catalog, name, NULL, name);
    for (;;) {
        if (at && depth < most) {
            if (at->sharing == WEIR_ADAPTIVE && !below.adaptive)
                below.adaptive = at;
            path[depth++] = at;
            if (depth > below.levels)
                below.levels = depth;
            at = next_child(catalog, at->name, NULL, name);
            continue;
        }
        weir_assert(depth <= below.levels && below.levels <= most);
        if (depth == 0 || below.levels == most)
            return below;
        depth--;
        at = next_child(catalog, name, path[depth], name);
    }
}

static int check_parent_is_plain(const struct weir_quota *parent,
                                 struct weir_diag *diag)
{
    if (!weir_quota_is_template(parent))
        return 0;
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EPARENT, "the parent ",
                         weir_text_show(parent->name, shown), " is a template",
                         NULL);
}

static int refuse_second(struct weir_text above, struct weir_text below,
                         struct weir_diag *diag)
{
    char upper[WEIR_SHOW_MAX];
    char lower[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA, weir_text_show(below, lower),
                         " and ", weir_text_show(above, upper),
                         " above it would both be adaptive, and only one of a "
                         "chain may be; make the other local or counted",
                         NULL);
}

/* Checks the chains through 'quota'; its own ancestors are sound. 'below': the
 * first adaptive quota below it, or NULL. */
static int check_adaptive(const struct weir_catalog *catalog,
                          const struct weir_quota *quota,
                          const struct weir_quota *below,
                          struct weir_diag *diag)
{
    const struct weir_quota *highest =
        quota->sharing == WEIR_ADAPTIVE ? quota : NULL;
    struct weir_text above = quota->parent;
    while (above.len > 0 && !weir_text_has(above, '{')) {
        const struct weir_quota *parent = weir_catalog_get(catalog, above);
        if (!parent)
            break;
        if (parent->sharing == WEIR_ADAPTIVE && highest)
            return refuse_second(parent->name, highest->name, diag);
        if (parent->sharing == WEIR_ADAPTIVE)
            highest = parent;
        above = parent->parent;
    }
    weir_assert(!below || below->sharing == WEIR_ADAPTIVE);
    if (!highest || !below)
        return 0;
    return refuse_second(highest->name, below->name, diag);
}

/* Walks up from 'quota' by its parent. Returns the number of ancestors. */
static int check_above(const struct weir_catalog *catalog,
                       const struct weir_quota *quota, struct weir_diag *diag)
{
    struct weir_text above = quota->parent;
    int ancestors = 0;
    while (above.len > 0) {
        if (weir_text_equal(above, quota->name))
            return refuse_cycle(catalog, quota, diag);
        const struct weir_quota *parent = weir_catalog_get(catalog, above);
        if (!parent)
            return refuse_missing(catalog, above, "parent", WEIR_EPARENT, diag);
        int error = check_parent_is_plain(parent, diag);
        if (error < 0)
            return error;
        if (++ancestors >= WEIR_DEPTH_MAX)
            return refuse_depth(quota, diag);
        above = parent->parent;
    }
    weir_assert(ancestors < WEIR_DEPTH_MAX);
    return ancestors;
}

static int check_overflow_target(const struct weir_catalog *catalog,
                                 const struct weir_quota *quota,
                                 struct weir_diag *diag)
{
    if (quota->overflow.len == 0)
        return 0;
    const struct weir_quota *overflow =
        weir_catalog_get(catalog, quota->overflow);
    char shown[WEIR_SHOW_MAX];
    if (overflow && weir_quota_is_template(overflow))
        return weir_diag_set(diag, WEIR_EQUOTA, "the overflow quota ",
                             weir_text_show(overflow->name, shown),
                             " is a template", NULL);
    if (overflow)
        return 0;
    return refuse_missing(catalog, quota->overflow, "overflow quota",
                          WEIR_EQUOTA, diag);
}

/* A quota with children may become a template by an edit of its glob. */
static int check_children(const struct weir_catalog *catalog,
                          const struct weir_quota *quota,
                          struct weir_diag *diag)
{
    if (!weir_quota_is_template(quota))
        return 0;
    char shown[WEIR_SHOW_MAX];
    const struct weir_quota *child =
        weir_catalog_child(catalog, quota->name, NULL);
    if (!child)
        return 0;
    return weir_diag_set(diag, WEIR_ECHILDREN,
                         "a template has no children; remove or move ",
                         weir_text_show(child->name, shown), " first", NULL);
}

static int check_quota_in_set(const struct weir_catalog *catalog,
                              const struct weir_quota *quota,
                              struct weir_diag *diag)
{
    int error = check_overflow_target(catalog, quota, diag);
    if (error == 0)
        error = check_children(catalog, quota, diag);
    if (error < 0)
        return error;
    if (weir_text_has(quota->parent, '{'))
        return 0;
    int ancestors = check_above(catalog, quota, diag);
    if (ancestors < 0)
        return ancestors;
    size_t most = (size_t)(WEIR_DEPTH_MAX - ancestors);
    weir_assert(most > 0);
    struct below below = walk_below(catalog, quota->name, most);
    if (below.levels == most)
        return refuse_depth(quota, diag);
    return check_adaptive(catalog, quota, below.adaptive, diag);
}

static int check_removed(const struct weir_catalog *catalog,
                         struct weir_text name, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    char other[WEIR_SHOW_MAX];
    weir_text_show(name, shown);
    const struct weir_quota *child = next_child(catalog, name, NULL, name);
    if (child)
        return weir_diag_set(
            diag, WEIR_ECHILDREN, shown, " has children; remove or move ",
            weir_text_show(child->name, other), " first", NULL);
    for (size_t i = 0; i < weir_catalog_templates(catalog); i++) {
        const struct weir_quota *user = weir_catalog_template(catalog, i);
        if (!weir_text_equal(user->overflow, name) ||
            weir_text_equal(user->name, name))
            continue;
        return weir_diag_set(
            diag, WEIR_ECHILDREN, shown, " is the overflow quota of ",
            weir_text_show(user->name, other), "; change that first", NULL);
    }
    return 0;
}

static int check_template_count(const struct weir_catalog *catalog,
                                const struct weir_quota *quota,
                                struct weir_diag *diag)
{
    size_t count = weir_catalog_templates(catalog);
    const struct weir_quota *old = weir_catalog_get(catalog, quota->name);
    if (weir_quota_is_template(quota) && !(old && weir_quota_is_template(old)))
        count++;
    if (count <= WEIR_TEMPLATES_MAX)
        return 0;
    return weir_diag_put(
        diag, WEIR_EFULL,
        "there are 1024 templates, which is all that is allowed; remove one "
        "first");
}

int weir_catalog_check_place(const struct weir_catalog *catalog,
                             struct weir_text name, struct weir_diag *diag)
{
    const struct weir_quota *quota = weir_catalog_get(catalog, name);
    if (!quota)
        return check_removed(catalog, name, diag);
    int error = check_template_count(catalog, quota, diag);
    return error < 0 ? error : check_quota_in_set(catalog, quota, diag);
}

int weir_catalog_check(const struct weir_catalog *catalog,
                       const struct weir_change *change, struct weir_diag *diag)
{
    const struct weir_quota *quota = &change->quota;
    if (change->removed) {
        char shown[WEIR_SHOW_MAX];
        if (!weir_catalog_get(catalog, quota->name))
            return weir_diag_set(diag, WEIR_ENOENT, "there is no quota ",
                                 weir_text_show(quota->name, shown), NULL);
        return check_removed(catalog, quota->name, diag);
    }
    int error = weir_quota_check(quota, diag);
    if (error == 0)
        error = check_template_count(catalog, quota, diag);
    if (error < 0)
        return error;
    /* a quota that keeps its parent keeps its place: this avoids a walk over a
     * million descendants when the limit of their root is edited */
    const struct weir_quota *old = weir_catalog_get(catalog, quota->name);
    bool adapts = quota->sharing == WEIR_ADAPTIVE;
    if (old && old->glob == quota->glob &&
        (!adapts || old->sharing == WEIR_ADAPTIVE) &&
        weir_text_equal(old->parent, quota->parent))
        return check_overflow_target(catalog, quota, diag);
    return check_quota_in_set(catalog, quota, diag);
}
