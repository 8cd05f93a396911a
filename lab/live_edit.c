/* SPDX-License-Identifier: MIT
 * lab/live_edit.c - a live fleet's requests to its roots: edits of quotas, and
 * the fills of their buckets.
 *
 * An edit goes to the first root that can answer. If that root is killed before
 * it answers, the edit goes to the next: an import or a removal done twice has
 * the effect of one. */

#include <event2/http.h>
#include <stdio.h>

#include "codec/quota_json.h"
#include "lab/live_internal.h"
#include "lab/memory.h"

struct edit {
    struct weir_live_fleet *fleet;
    const char *method;
    char *path;   /* owned */
    json_t *body; /* owned, or NULL */
    weir_live_edited_fn *edited;
    void *context;
};

static void on_edited(void *context, int status, const json_t *answer);

static struct weir_live_root *find_edit_root(struct weir_live_fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->scenario->roots; i++) {
        struct weir_live_root *root = &fleet->roots[i];
        if (root->ready && !root->paused)
            return root;
    }
    return NULL;
}

static void send_edit(struct edit *edit)
{
    struct weir_live_root *root = find_edit_root(edit->fleet);
    if (root)
        weir_live_client_request(root->client, edit->method, edit->path,
                                 json_incref(edit->body), on_edited, edit);
    else
        on_edited(edit, 0, NULL);
}

static void end_edit(struct edit *edit, uint64_t epoch, const char *why)
{
    edit->edited(edit->context, epoch, why);
    json_decref(edit->body);
    free(edit->path);
    free(edit);
}

static void on_edited(void *context, int status, const json_t *answer)
{
    struct edit *edit = context;
    struct weir_live_fleet *fleet = edit->fleet;
    if (status == 200) {
        json_int_t epoch = json_integer_value(json_object_get(answer, "epoch"));
        end_edit(edit, (uint64_t)epoch, NULL);
        return;
    }
    bool again = status == 0 && !fleet->ending && find_edit_root(fleet);
    if (again) {
        send_edit(edit);
        return;
    }
    const char *why = json_string_value(json_object_get(answer, "detail"));
    end_edit(edit, 0, why ? why : "no root runs that could take it");
}

static void start_edit(struct weir_live_fleet *fleet, const char *method,
                       char *path, json_t *body, weir_live_edited_fn *edited,
                       void *context)
{
    struct edit *edit = weir_must_zeroed(1, sizeof *edit);
    *edit = (struct edit){ fleet, method, path, body, edited, context };
    send_edit(edit);
}

void weir_live_put(struct weir_live_fleet *fleet,
                   const struct weir_quota *quotas, size_t count,
                   weir_live_edited_fn *edited, void *context)
{
    json_t *list = weir_must(json_array());
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, weir_must(weir_quota_to_json(&quotas[i])));
    start_edit(fleet, "POST", weir_must_text(WEIR_TEXT("/v1/quotas:import")),
               list, edited, context);
}

void weir_live_remove(struct weir_live_fleet *fleet, const char *name,
                      weir_live_edited_fn *edited, void *context)
{
    char *encoded = weir_must(evhttp_encode_uri(name));
    char path[3 * WEIR_NAME_MAX + 16];
    snprintf(path, sizeof path, "/v1/quotas/%s", encoded);
    free(encoded);
    start_edit(fleet, "DELETE", weir_must_text(weir_text_of(path)), NULL,
               edited, context);
}

/* ---- Fills ---- */

static double fill_in(const json_t *listed, struct weir_text name)
{
    size_t i;
    json_t *used;
    json_array_foreach(listed, i, used)
    {
        const char *here = json_string_value(json_object_get(used, "name"));
        if (here && weir_text_equal(weir_text_of(here), name))
            return json_number_value(json_object_get(used, "fill"));
    }
    return 0;
}

static void on_looked(void *context, int status, const json_t *answer)
{
    struct weir_live_root *root = context;
    const struct weir_live_fleet *fleet = root->fleet;
    const struct weir_scenario *scenario = fleet->scenario;
    root->looking = false;
    if (status != 200 || fleet->ending)
        return;
    const json_t *listed = json_object_get(answer, "quotas");
    double *fills = weir_must_zeroed(scenario->quota_count, sizeof *fills);
    for (size_t i = 0; i < scenario->quota_count; i++)
        fills[i] = fill_in(listed, scenario->quotas[i].name);
    fleet->watch.looked(fleet->watch.context, (uint32_t)(root - fleet->roots),
                        root->asked, fills);
    free(fills);
}

void weir_live_look(struct weir_live_fleet *fleet, uint64_t asked)
{
    for (uint32_t i = 0; i < fleet->scenario->roots; i++) {
        struct weir_live_root *root = &fleet->roots[i];
        if (!root->client || root->looking || root->paused)
            continue;
        root->looking = true;
        root->asked = asked;
        weir_live_client_request(root->client, "GET", "/v1/usage?limit=1000",
                                 NULL, on_looked, root);
    }
}
