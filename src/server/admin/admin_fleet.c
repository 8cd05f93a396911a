/* SPDX-License-Identifier: MIT
 * server/admin/admin_fleet.c - adaptive limits of whole fleets: GET /v1/fleet,
 * and their summary in the status and in views of usage.
 *
 * The master root finds such a limit, and it alone knows the parts. A region's
 * root knows the part of its region, and those of its processes. */

#include <string.h>

#include "core/node/root_adaptive.h"
#include "core/node/root_lease.h"
#include "server/admin/admin_internal.h"

/* An absent time is null. */
static json_t *seconds_or_null(weir_duration time)
{
    return time > 0 ? json_real((double)time / 1e9) : json_null();
}

json_t *weir_admin_fleet_limit(const struct weir_admin *admin,
                               struct weir_text name, weir_instant now)
{
    struct weir_fleet_limit_view view;
    struct weir_leased_stats leased;
    if (!weir_root_adaptive_view(admin->root, name, &view, now) ||
        !weir_lease_manager_look_of(weir_root_lease_manager(admin->root), name,
                                    &leased, now))
        return NULL;
    const struct weir_controller_view *controller = &view.controller;
    return json_pack(
        "{s:f, s:f, s:s, s:f, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f,"
        " s:b}",
        "limit", controller->limit, "before", controller->before, "reason",
        weir_limit_reason_text(controller->reason), "moved_s",
        (double)weir_since(controller->moved_at, now) / 1e9, "target_s",
        seconds_or_null(view.target), "latency_s",
        seconds_or_null(controller->latency), "windows",
        (json_int_t)controller->windows, "samples",
        (json_int_t)controller->samples, "in_flight",
        (json_int_t)view.in_flight, "members", (json_int_t)view.members,
        "outliers", (json_int_t)view.outliers, "excused",
        (json_int_t)view.excused, "granted", leased.pool.granted, "wants",
        leased.pool.wants, "learning", view.learning || leased.pool.learning);
}

/* ---- In the status ---- */

/* The names of those that are left out; the bound of outliers in a fleet is
 * that of the walk. */
static json_t *outliers_list(const struct weir_admin *admin,
                             struct weir_text name, weir_instant now)
{
    json_t *list = json_array();
    struct weir_fleet_member member;
    uint32_t cursor = 0;
    while (json_array_size(list) < WEIR_ADMIN_MEMBERS_MAX &&
           weir_root_adaptive_member(admin->root, name, &cursor, &member, now))
        if (member.out)
            json_array_append_new(list,
                                  json_stringn(member.name.p, member.name.len));
    return list;
}

json_t *weir_admin_fleets(const struct weir_admin *admin, weir_instant now)
{
    json_t *list = json_array();
    struct weir_text name;
    size_t cursor = 0;
    while (weir_root_adaptive_next(admin->root, &cursor, &name)) {
        json_t *limit = weir_admin_fleet_limit(admin, name, now);
        if (!limit)
            continue;
        json_object_set_new(limit, "quota", json_stringn(name.p, name.len));
        json_object_set_new(limit, "left_out", outliers_list(admin, name, now));
        json_array_append_new(list, limit);
    }
    return list;
}

/* ---- GET /v1/fleet ---- */

static json_t *member_object(const struct weir_fleet_member *member)
{
    char incarnation[2 * WEIR_INCARNATION_SIZE + 1];
    if (member->incarnation)
        weir_view_hex(member->incarnation, WEIR_INCARNATION_SIZE, incarnation);
    return json_pack("{s:s%, s:s?, s:f, s:f, s:f, s:I, s:b}", "name",
                     member->name.len ? member->name.p : "", member->name.len,
                     "incarnation", member->incarnation ? incarnation : NULL,
                     "granted", member->granted, "wants", member->wants, "has",
                     member->has, "processes", (json_int_t)member->clients,
                     "left_out", member->out);
}

/* '*out_more': members beyond the bound. */
static json_t *members_list(const struct weir_admin *admin,
                            struct weir_text name, json_int_t *out_more,
                            weir_instant now)
{
    json_t *list = json_array();
    struct weir_fleet_member member;
    uint32_t cursor = 0;
    *out_more = 0;
    while (
        weir_root_adaptive_member(admin->root, name, &cursor, &member, now)) {
        if (json_array_size(list) < WEIR_ADMIN_MEMBERS_MAX)
            json_array_append_new(list, member_object(&member));
        else
            ++*out_more;
    }
    return list;
}

static int check_fleet_quota(const struct weir_admin *admin,
                             struct weir_text name, struct weir_diag *diag)
{
    struct weir_captures captures;
    char shown[WEIR_NAME_MAX + 1];
    memcpy(shown, name.p, name.len);
    shown[name.len] = '\0';
    const struct weir_quota *quota =
        weir_catalog_find(weir_root_catalog(admin->root), name, &captures);
    if (!quota)
        return weir_diag_set(diag, WEIR_ENOENT, "no quota rules the name '",
                             shown, "'; `weir quota ls` lists those there are",
                             NULL);
    if (quota->sharing != WEIR_ADAPTIVE || quota->scope != WEIR_SCOPE_FLEET)
        return weir_diag_set(diag, WEIR_ENOENT, "'", shown,
                             "' has no limit for a whole fleet: its quota "
                             "isn't sharing=adaptive scope=fleet",
                             NULL);
    return 0;
}

void weir_admin_fleet(struct weir_admin_call *call)
{
    const struct weir_admin *admin = call->admin;
    char buf[WEIR_NAME_MAX];
    struct weir_text name;
    struct weir_diag diag = { 0 };
    int error = weir_query_name(call->uri.query, "name", buf, &name, &diag);
    if (error == 0)
        error = weir_name_check(name, &diag);
    if (error == 0)
        error = check_fleet_quota(admin, name, &diag);
    if (error < 0) {
        weir_admin_answer_error(&call->asker, error, &diag);
        return;
    }
    bool leads = weir_root_leases(admin->root);
    struct weir_text master = weir_root_lease_master(admin->root);
    json_t *limit = weir_admin_fleet_limit(admin, name, call->now);
    json_int_t more;
    json_t *members = members_list(admin, name, &more, call->now);
    weir_admin_answer_json(&call->asker, 200,
                           json_pack("{s:s%, s:b, s:o, s:o, s:o, s:I}", "name",
                                     name.p, name.len, "leads", leads, "master",
                                     leads || master.len == 0
                                         ? json_null()
                                         : json_stringn(master.p, master.len),
                                     "fleet", limit ? limit : json_null(),
                                     "members", members, "more", more));
}
