/* SPDX-License-Identifier: MIT
 * server/admin/admin_view.c - a root as a source of views: the catalog has the
 * quotas and templates, the merged counts their state.
 *
 * A root decides nothing: it knows the fill of all limiters together, by which
 * counted quotas are decided. If each process decides by itself, the view says
 * so. */

#include <stdio.h>

#include "core/quota/glob.h"
#include "server/admin/admin_internal.h"
#include "server/root_usages.h"

/* ---- The quota of a name ---- */

/* Why the root can't see the decision; NULL: a leaky bucket of all limiters
 * together, or permits of theirs, or nothing to decide. */
static const char *why_decided_elsewhere(const struct weir_quota *quota)
{
    if (quota->sharing != WEIR_ADAPTIVE &&
        (quota->limit.unlimited || quota->limit.units == 0))
        return NULL;
    switch (quota->sharing) {
    case WEIR_ADAPTIVE:
        return quota->scope == WEIR_SCOPE_FLEET
                   ? "each process keeps to its part of the fleet's limit"
                   : "each process has a limit of its own, by its measurements";
    case WEIR_LEASED:
        return "each process keeps to the part that it was granted";
    case WEIR_EXACT:
        return "its store decides each request";
    case WEIR_LOCAL:
        return "each process counts by itself";
    case WEIR_COUNTED:
        break;
    }
    return quota->algorithm == WEIR_LEAKY
               ? NULL
               : "each process keeps the algorithm's state; the fill is its "
                 "sum";
}

/* The parent's name, expanded into 'buf' for a template. */
static struct weir_text parent_name_of(const struct weir_quota *quota,
                                       const struct weir_captures *captures,
                                       char *buf)
{
    if (quota->parent.len == 0 || !weir_quota_is_template(quota))
        return quota->parent;
    int len = weir_glob_expand(quota->parent, captures, buf);
    return (struct weir_text){ buf, len < 0 ? 0 : (size_t)len };
}

static void set_ruled_bounds(const struct weir_quota *quota,
                             struct weir_ruled *out)
{
    const struct weir_limit *limit = &quota->limit;
    out->low = out->high = (double)limit->units;
    if (limit->per > 0)
        out->leak = (double)limit->units * 1e9 / (double)limit->per;
    if (quota->kind != WEIR_RATE || limit->unlimited)
        return;
    uint64_t low, high;
    weir_quota_bursts(quota, &low, &high);
    out->low = (double)low;
    out->high = (double)high;
}

static bool find_ruling_quota(void *context, struct weir_text name,
                              struct weir_ruled *out, weir_instant now)
{
    struct weir_admin *admin = context;
    struct weir_captures captures;
    (void)now;
    const struct weir_quota *quota =
        weir_catalog_find(weir_root_catalog(admin->root), name, &captures);
    if (!quota)
        return false;
    *out = (struct weir_ruled){
        .name = quota->name,
        .parent = parent_name_of(quota, &captures, admin->parent),
        .mode = quota->mode,
        .kind = quota->kind,
        .limit = quota->limit,
        .elsewhere = why_decided_elsewhere(quota),
    };
    set_ruled_bounds(quota, out);
    return true;
}

/* ---- Other parts of the source ---- */

static void read_root_facts(void *context, struct weir_view_facts *out)
{
    const struct weir_admin *admin = context;
    struct weir_root_stats stats;
    weir_root_stats(admin->root, &stats);
    *out = (struct weir_view_facts){
        .kind = "root",
        .name = admin->name,
        .version = admin->version,
        .incarnation = admin->incarnation,
        .ready = weir_root_ready(admin->root),
        .trouble = admin->trouble ? admin->trouble_why : NULL,
        .started = admin->started,
        .epoch = stats.epoch,
        .quotas = stats.quotas,
        .unknown = stats.unknown,
        .contended = stats.contended,
        .limiters = stats.limiters_connected,
        .reports = stats.reports,
    };
}

static json_t *list_template_usage(void *context, weir_instant now)
{
    const struct weir_admin *admin = context;
    struct weir_catalog *catalog = weir_root_catalog(admin->root);
    struct weir_template_sum sums[WEIR_TEMPLATES_MAX] = { 0 };
    size_t count = weir_catalog_templates(catalog);
    for (size_t i = 0; i < count; i++)
        sums[i].quota = weir_catalog_template(catalog, i);
    weir_template_sums(admin->root, sums, count, now);
    json_t *object = json_object();
    for (size_t i = 0; i < count; i++)
        json_object_setn_new(
            object, sums[i].quota->name.p, sums[i].quota->name.len,
            weir_view_sum(sums[i].passed, sums[i].refused, sums[i].instances));
    return object;
}

/* NULL: no process reported an adaptive limit of that name, and no fleet has
 * one. */
static json_t *adaptive_object(void *context, struct weir_text name,
                               weir_instant now)
{
    const struct weir_admin *admin = context;
    struct weir_adaptive_view seen = { .processes = 0 };
    json_t *fleet = weir_admin_fleet_limit(admin, name, now);
    if (weir_adaptive_see(admin->root, name, &seen, 1, now) == 0 && !fleet)
        return NULL;
    json_t *reasons = json_object();
    for (unsigned i = 0; i < WEIR_LIMIT_REASONS; i++) {
        if (seen.by_reason[i] > 0)
            json_object_set_new(
                reasons, weir_limit_reason_text((enum weir_limit_reason)i),
                json_integer(seen.by_reason[i]));
    }
    char limit[64];
    if (fleet)
        snprintf(limit, sizeof limit, "%.3g",
                 json_real_value(json_object_get(fleet, "limit")));
    else
        snprintf(limit, sizeof limit,
                 seen.min < seen.max ? "%.3g..%.3g" : "%.3g", seen.min,
                 seen.max);
    return json_pack("{s:s, s:f, s:f, s:f, s:I, s:I, s:o, s:o}", "limit", limit,
                     "min", seen.min, "median", seen.median, "max", seen.max,
                     "processes", (json_int_t)seen.processes, "in_flight",
                     (json_int_t)seen.in_flight, "reasons", reasons, "fleet",
                     fleet ? fleet : json_null());
}

struct weir_view_source weir_admin_source(struct weir_admin *admin)
{
    return (struct weir_view_source){
        .usages = weir_usages_of_root(admin->root),
        .context = admin,
        .facts = read_root_facts,
        .rule = find_ruling_quota,
        .templates = list_template_usage,
        .adaptive = adaptive_object,
    };
}
