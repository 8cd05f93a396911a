/* SPDX-License-Identifier: MIT
 * server/admin/admin.c - routes a request to its handler.
 *
 * One table of (method, path, handler). A path ends a row, or, with "/", begins
 * the name of a quota: all that follows is the name, slashes included. Both
 * listeners call weir_admin_call(), so that a request means the same on either.
 *
 * A handler that only reads answers at once, from the root's memory, whatever
 * the store does. Edits go through the store and are in admin_edit.c; its
 * changes are applied to the root here, and its answers handed to the edits. */

#include "server/admin/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/credentials.h"
#include "front/page_file.h"
#include "server/admin/admin_internal.h"

/* ---- Routes ---- */

/* The third field of a row: a row without a role doesn't compile. */
enum need { OPEN = 0, READ = WEIR_ROLE_READ, EDIT = WEIR_ROLE_EDIT };

struct route {
    const char *path; /* complete, or ends in '/' and a name follows */
    const char *method;
    enum need need;
    void (*handle)(struct weir_admin_call *call);
    const char *allow; /* all methods of the path */
    size_t body_max;
    enum weir_admin_verb verb; /* of weir_admin_enqueue() */
};

static void answer_routes(struct weir_admin_call *call);
static void answer_view(struct weir_admin_call *call);

#define QUOTA_METHODS "GET, PUT, PATCH, DELETE"
static const struct route routes[] = {
    { "/v1", "GET", READ, answer_routes, "GET", 0 },
    { "/v1/quotas/", "GET", READ, weir_admin_get_quota, QUOTA_METHODS, 0 },
    { "/v1/quotas/", "PUT", EDIT, weir_admin_enqueue, QUOTA_METHODS,
      WEIR_ADMIN_BODY_MAX, WEIR_VERB_PUT },
    { "/v1/quotas/", "PATCH", EDIT, weir_admin_enqueue, QUOTA_METHODS,
      WEIR_ADMIN_BODY_MAX, WEIR_VERB_PATCH },
    { "/v1/quotas/", "DELETE", EDIT, weir_admin_enqueue, QUOTA_METHODS, 0,
      WEIR_VERB_REMOVE },
    { "/v1/quotas", "GET", READ, weir_admin_list, "GET", 0 },
    { "/v1/quotas:export", "GET", READ, weir_admin_export, "GET", 0 },
    { "/v1/quotas:brief", "GET", READ, weir_admin_brief, "GET", 0 },
    { "/v1/quotas:import", "POST", EDIT, weir_admin_enqueue, "POST",
      WEIR_ADMIN_IMPORT_MAX, WEIR_VERB_IMPORT },
    { "/v1/quotas:remove", "POST", EDIT, weir_admin_enqueue, "POST",
      WEIR_ADMIN_IMPORT_MAX, WEIR_VERB_REMOVE_ALL },
    { "/v1/quotas:reset", "POST", EDIT, weir_admin_enqueue, "POST",
      WEIR_ADMIN_IMPORT_MAX, WEIR_VERB_RESET },
    { "/v1/shadow:promote", "POST", EDIT, weir_admin_enqueue, "POST", 0,
      WEIR_VERB_PROMOTE },
    { "/v1/shadow:discard", "POST", EDIT, weir_admin_enqueue, "POST", 0,
      WEIR_VERB_DISCARD },
    { "/v1/log", "GET", READ, weir_admin_enqueue, "GET", 0, WEIR_VERB_LOG },
    { "/v1/undo", "POST", EDIT, weir_admin_enqueue, "POST", WEIR_ADMIN_BODY_MAX,
      WEIR_VERB_UNDO },
    { "/v1/status", "GET", READ, weir_admin_status, "GET", 0 },
    { "/v1/fleet", "GET", READ, weir_admin_fleet, "GET", 0 },
    { "/v1/usage", "GET", READ, answer_view, "GET", 0 },
    { "/v1/live", "GET", READ, answer_view, "GET", 0 },
    { WEIR_PAGE_EVENTS, "GET", READ, answer_view, "GET", 0 },
    { "/v1/recent", "GET", READ, answer_view, "GET", 0 },
    { "/v1/why", "GET", READ, answer_view, "GET", 0 },
    { "/v1/preview", "POST", EDIT, weir_admin_preview, "POST",
      WEIR_ADMIN_BODY_MAX },
    { "/debug/status", "GET", READ, weir_admin_debug_status, "GET", 0 },
    { "/debug/resources", "GET", READ, weir_admin_debug_resources, "GET", 0 },
    { "/metrics", "GET", READ, weir_admin_metrics, "GET", 0 },
    { "/healthz", "GET", OPEN, weir_admin_health, "GET", 0 },
    { "/readyz", "GET", OPEN, weir_admin_readiness, "GET", 0 },
};

static bool route_has_name(const struct route *route)
{
    return route->path[strlen(route->path) - 1] == '/';
}

static bool route_matches(const struct route *route, struct weir_text path)
{
    size_t len = strlen(route->path);
    if (route_has_name(route))
        return path.len >= len && memcmp(path.p, route->path, len) == 0;
    return weir_text_equal(path, weir_text_of(route->path));
}

/* The route, or NULL; then '*allow' lists the methods of the path. */
static const struct route *find_admin_route(struct weir_text path,
                                            struct weir_text method,
                                            const char **allow)
{
    *allow = NULL;
    for (size_t i = 0; i < WEIR_COUNT_OF(routes); i++) {
        const struct route *route = &routes[i];
        if (!route_matches(route, path))
            continue;
        if (weir_text_equal(method, weir_text_of(route->method)))
            return route;
        *allow = route->allow;
    }
    return NULL;
}

unsigned weir_admin_role(const struct weir_admin_request *request)
{
    const char *allow;
    const struct route *route = find_admin_route(
        weir_uri_split(request->target).path, request->method, &allow);
    if (route)
        return route->need;
    bool reads = weir_text_equal(request->method, WEIR_TEXT("GET"));
    return reads ? WEIR_ROLE_READ : WEIR_ROLE_EDIT;
}

/* GET /v1: all routes, for people, and for a test that requests each of
 * them. */
static void answer_routes(struct weir_admin_call *call)
{
    json_t *list = json_array();
    for (size_t i = 0; i < WEIR_COUNT_OF(routes); i++) {
        const struct route *route = &routes[i];
        bool open = route->need == OPEN;
        const char *role =
            open ? "" : weir_role_name((enum weir_role)route->need);
        char path[64];
        snprintf(path, sizeof path, "%s%s", route->path,
                 route_has_name(route) ? "NAME" : "");
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "method",
                                              route->method, "path", path,
                                              "role", role));
    }
    weir_admin_answer_json(&call->asker, 200,
                           json_pack("{s:o}", "routes", list));
}

/* The data of the page. */
static void answer_view(struct weir_admin_call *call)
{
    struct weir_diag diag = { 0 };
    json_t *answer;
    int error = weir_views_answer(call->admin->views, &call->uri, &answer,
                                  &diag, call->now);
    if (error < 0)
        weir_admin_answer_error(&call->asker, error, &diag);
    else
        weir_admin_answer_json(&call->asker, 200, answer);
}

static int decode_name(struct weir_admin_call *call, const struct route *route,
                       char *buf, struct weir_diag *diag)
{
    size_t skip = strlen(route->path);
    struct weir_text rest = { call->uri.path.p + skip,
                              call->uri.path.len - skip };
    int len = weir_uri_decode(rest, false, buf, WEIR_NAME_MAX + 1);
    if (len == WEIR_ESYNTAX)
        return weir_diag_put(diag, WEIR_ENAME,
                             "the path has a '%' without two hexadecimal "
                             "digits; write %25 for a percent sign");
    if (len < 0)
        return weir_diag_put(
            diag, WEIR_ENAME,
            "the name in the path is too long; a name has 255 bytes at most");
    call->name = (struct weir_text){ buf, (size_t)len };
    return weir_name_check(call->name, diag);
}

static int check_body(size_t max, size_t len, struct weir_diag *diag)
{
    if (len <= max)
        return 0;
    return weir_diag_put(diag, WEIR_ETOOBIG,
                         max == 0 ? "this request has no body"
                         : max == WEIR_ADMIN_BODY_MAX
                             ? "the body is over 1 MiB; use "
                               "POST /v1/quotas:import for many quotas"
                             : "the body is over 64 MiB; import in parts");
}

/* A request without a route is checked with the bound of most requests, so that
 * its refusal names the missing route. */
int weir_admin_check_body(const struct weir_admin_request *request, size_t len,
                          struct weir_diag *diag)
{
    const char *allow;
    const struct route *route = find_admin_route(
        weir_uri_split(request->target).path, request->method, &allow);
    return check_body(route ? route->body_max : WEIR_ADMIN_BODY_MAX, len, diag);
}

static void dispatch_call(struct weir_admin_call *call,
                          const struct route *route)
{
    struct weir_diag diag = { 0 };
    if (check_body(route->body_max, call->request->body.len, &diag) < 0) {
        weir_admin_answer_error(&call->asker, WEIR_ETOOBIG, &diag);
        return;
    }
    char name[WEIR_NAME_MAX + 1];
    int error =
        route_has_name(route) ? decode_name(call, route, name, &diag) : 0;
    if (error < 0) {
        weir_admin_answer_error(&call->asker, error, &diag);
        return;
    }
    call->verb = route->verb;
    route->handle(call);
}

void weir_admin_call(struct weir_admin *admin,
                     const struct weir_admin_request *request,
                     weir_admin_done_fn *done, void *context, weir_instant now)
{
    weir_assert(done);
    struct weir_admin_call call = { .admin = admin,
                                    .request = request,
                                    .uri = weir_uri_split(request->target),
                                    .asker = { done, context },
                                    .now = now };
    const char *allow;
    const struct route *route =
        find_admin_route(call.uri.path, request->method, &allow);
    if (route) {
        dispatch_call(&call, route);
        return;
    }
    if (allow) {
        weir_admin_answer_method(&call.asker, allow);
        return;
    }
    struct weir_diag diag = { 0 };
    weir_diag_put(&diag, WEIR_ENOENT,
                  "nothing answers at this path; GET /v1 lists those that do");
    weir_admin_answer_error(&call.asker, WEIR_ENOENT, &diag);
}

/* ---- The store ---- */

static int renew_store(void *context, const struct weir_store_id *id,
                       uint64_t epoch, uint64_t floor, weir_instant now)
{
    struct weir_admin *admin = context;
    if (admin->parts.watch.on_store)
        admin->parts.watch.on_store(admin->parts.watch.context, id, epoch);
    admin->bad = (struct weir_admin_bad_rows){ .count = 0 };
    admin->store_id = *id;
    admin->floor = floor;
    /* The root reads the store into a new catalog, also if it is the same
     * store: otherwise a reading that breaks off would leave half an edit in
     * force. */
    int error = weir_root_renew(admin->root, id);
    return error < 0 ? error
                     : weir_root_store(admin->root, id, epoch, floor, now);
}

static int apply_store_change(void *context, const struct weir_change *change,
                              weir_instant now)
{
    struct weir_admin *admin = context;
    if (admin->bad.named > 0)
        weir_admin_heal_row(admin, change->quota.name);
    return weir_root_apply(admin->root, change, now);
}

static void note_bad_row(void *context, const struct weir_bad_row *row,
                         weir_instant now)
{
    weir_admin_add_bad_row(context, row, now);
}

static void note_loss(void *context, const struct weir_lineage_loss *loss)
{
    const struct weir_admin *admin = context;
    if (admin->parts.watch.on_loss)
        admin->parts.watch.on_loss(admin->parts.watch.context, loss);
}

static void settle_changes(void *context,
                           const struct weir_lineage_entry *newest,
                           weir_instant now)
{
    struct weir_admin *admin = context;
    weir_root_settle(admin->root, now);
    if (admin->parts.watch.on_epoch)
        admin->parts.watch.on_epoch(
            admin->parts.watch.context,
            weir_catalog_epoch(weir_root_catalog(admin->root)), newest);
}

static void note_store_trouble(void *context, int error, const char *why)
{
    struct weir_admin *admin = context;
    admin->trouble = error;
    size_t len = strnlen(why, sizeof admin->trouble_why - 1);
    memcpy(admin->trouble_why, why, len);
    admin->trouble_why[len] = '\0';
    if (admin->parts.watch.on_trouble)
        admin->parts.watch.on_trouble(admin->parts.watch.context, error, why);
}

static void note_roots(void *context, uint32_t roots)
{
    struct weir_admin *admin = context;
    weir_root_set_roots(admin->root, roots);
}

static void finish_request(void *context, void *ask, int error,
                           const struct weir_diag *diag, uint64_t epoch,
                           weir_instant now)
{
    weir_assert(ask);
    (void)now;
    weir_admin_edit_done(context, ask, error, diag, epoch);
}

struct weir_store_listener weir_admin_store_listener(struct weir_admin *admin)
{
    return (struct weir_store_listener){
        .context = admin,
        .on_store = renew_store,
        .on_bad_row = note_bad_row,
        .on_loss = note_loss,
        .on_change = apply_store_change,
        .on_settle = settle_changes,
        .root = admin->incarnation,
        .on_roots = note_roots,
        .on_trouble = note_store_trouble,
        .on_done = finish_request,
    };
}

/* ---- Life ---- */

struct weir_admin *weir_admin_new(const struct weir_admin_options *options)
{
    weir_assert(options->root);
    struct weir_admin *admin = calloc(1, sizeof *admin);
    if (!admin)
        return NULL;
    char shown[WEIR_STORE_SHOW_MAX];
    admin->root = options->root;
    const struct weir_view_source source = weir_admin_source(admin);
    char *url = strdup(
        weir_store_show(options->store_url ? options->store_url : "", shown));
    admin->views = weir_views_new(&source);
    if (!url || !admin->views) {
        weir_views_free(&admin->views);
        free(url);
        free(admin);
        return NULL;
    }
    admin->settings = options->settings;
    admin->store_url = url;
    admin->version = options->version ? options->version : "";
    admin->started = options->started;
    admin->authorizer = options->authorizer;
    admin->edits_end = &admin->edits;
    memcpy(admin->incarnation, options->incarnation, sizeof admin->incarnation);
    weir_assert(options->name.len <= WEIR_NAME_MAX);
    memcpy(admin->name, options->name.p, options->name.len);
    return admin;
}

void weir_admin_free(struct weir_admin **admin)
{
    if (!*admin)
        return;
    weir_admin_edits_fini(*admin);
    weir_assert((*admin)->edits_count == 0);
    weir_views_free(&(*admin)->views);
    free((*admin)->store_url);
    free(*admin);
    *admin = NULL;
}

struct weir_admin_parts *weir_admin_parts(struct weir_admin *admin)
{
    return &admin->parts;
}

void weir_admin_tick(struct weir_admin *admin, weir_instant now)
{
    weir_views_tick(admin->views, now);
}

size_t weir_admin_waiting(const struct weir_admin *admin)
{
    return admin->edits_count;
}

void weir_admin_stop_edits(struct weir_admin *admin)
{
    admin->stopping = true;
}
