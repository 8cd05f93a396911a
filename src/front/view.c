/* SPDX-License-Identifier: MIT
 * front/view.c - the views and their paths.
 *
 * A view answers a request about the present at once, as JSON, from a source's
 * own memory. The callers choose the listener and check the role. */

#include "front/view.h"

#include <stdlib.h>

#include "front/page_file.h"
#include "front/recent.h"
#include "front/view_internal.h"

/* ---- Paths ---- */

typedef int view_fn(struct weir_views *views, struct weir_text query,
                    json_t **out, struct weir_diag *diag, weir_instant now);

static const struct {
    const char *path;
    view_fn *view;
} known[] = {
    { "/v1/live", weir_view_live },
    /* A listener may repeat it each second; this answers once. */
    { WEIR_PAGE_EVENTS, weir_view_live },
    { "/v1/recent", weir_view_recent },
    { "/v1/why", weir_view_why },
    { "/v1/usage", weir_view_usage },
};

const char *weir_views_path(size_t i)
{
    return i < WEIR_COUNT_OF(known) ? known[i].path : NULL;
}

static view_fn *find_view(struct weir_text path)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(known); i++)
        if (weir_text_equal(path, weir_text_of(known[i].path)))
            return known[i].view;
    return NULL;
}

bool weir_views_have(struct weir_text path)
{
    return find_view(path) != NULL;
}

int weir_views_answer(struct weir_views *views, const struct weir_uri *uri,
                      json_t **out, struct weir_diag *diag, weir_instant now)
{
    view_fn *view = find_view(uri->path);
    weir_assert(view);
    *out = NULL;
    int error = view(views, uri->query, out, diag, now);
    return error == 0 && !*out ? WEIR_ENOMEM : error;
}

/* ---- Life ---- */

struct weir_views *weir_views_new(const struct weir_view_source *source)
{
    struct weir_views *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->source = *source;
    made->past = weir_recent_new(&source->usages);
    if (!made->past)
        weir_views_free(&made);
    return made;
}

void weir_views_free(struct weir_views **views)
{
    if (!*views)
        return;
    weir_view_live_free((*views)->live);
    weir_recent_free(&(*views)->past);
    free(*views);
    *views = NULL;
}

void weir_views_tick(struct weir_views *views, weir_instant now)
{
    weir_recent_tick(views->past, now);
}
