/* SPDX-License-Identifier: MIT
 * front/view.c - the views and their paths, and GET /v1/usage.
 *
 * A view answers a request about the present at once, as JSON, from a source's
 * own memory. The callers choose the listener and check the role. */

#include "front/view.h"

#include <stdio.h>
#include <stdlib.h>

#include "front/page_file.h"
#include "front/query.h"
#include "front/recent.h"

void weir_view_hex(const uint8_t *bytes, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* ---- Parts of a source's answers ---- */

json_t *weir_view_sum(uint64_t passed, uint64_t refused, size_t instances)
{
    return json_pack("{s:I, s:I, s:I}", "passed", (json_int_t)passed, "limited",
                     (json_int_t)refused, "instances", (json_int_t)instances);
}

json_t *weir_view_brief(const struct weir_quota *quota)
{
    char limit[64];
    size_t len = weir_limit_format(&quota->limit, limit, sizeof limit);
    json_t *parent = quota->parent.len == 0
                         ? json_null()
                         : json_stringn(quota->parent.p, quota->parent.len);
    return json_pack("[s%, o, s%, s]", quota->name.p, quota->name.len, parent,
                     limit, len, weir_mode_word(quota->mode));
}

/* ---- Usage ---- */

json_t *weir_view_busy(const struct weir_views *views,
                       const struct weir_busy *busy, weir_instant now)
{
    const struct weir_view_source *source = &views->source;
    struct weir_text name = { busy->name, busy->name_len };
    char limit[64];
    size_t len = weir_limit_format(&busy->limit, limit, sizeof limit);
    json_t *shown = busy->removed ? json_null() : json_stringn(limit, len);
    bool bounded = !busy->removed && !busy->limit.unlimited;
    json_t *high = bounded ? json_integer((json_int_t)busy->high) : json_null();
    json_t *adaptive = busy->adaptive && source->adaptive
                           ? source->adaptive(source->context, name, now)
                           : NULL;
    return json_pack(
        "{s:s%, s:s?, s:o, s:o, s:f, s:I, s:I, s:I, s:o}", "name", busy->name,
        busy->name_len, "mode", weir_busy_mode(busy), "limit", shown, "high",
        high, "fill", busy->fill, "passed", (json_int_t)busy->passed, "limited",
        (json_int_t)busy->refused, "limiters", (json_int_t)busy->limiters,
        "adaptive", adaptive ? adaptive : json_null());
}

static json_t *usage_object(const struct weir_views *views,
                            const struct weir_busy_query *query,
                            weir_instant now)
{
    struct weir_busy *busy = malloc(query->max * sizeof *busy);
    if (!busy)
        return NULL;
    size_t used;
    size_t count = weir_top_k(&views->source.usages, query, busy, &used, now);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, weir_view_busy(views, &busy[i], now));
    free(busy);
    struct weir_view_facts facts;
    char incarnation[2 * WEIR_INCARNATION_SIZE + 1];
    views->source.facts(views->source.context, &facts);
    weir_view_hex(facts.incarnation, WEIR_INCARNATION_SIZE, incarnation);
    return json_pack("{s:s, s:f, s:I, s:I, s:o}", "incarnation", incarnation,
                     "at", (double)now / 1e9, "used", (json_int_t)used,
                     "unknown", (json_int_t)facts.unknown, "quotas", list);
}

static int view_usage(struct weir_views *views, struct weir_text query,
                      json_t **out, struct weir_diag *diag, weir_instant now)
{
    char buf[WEIR_NAME_MAX];
    struct weir_busy_query asked = { .rank = WEIR_RANK_OFFERED, .max = 100 };
    int error = weir_query_number(query, "limit", WEIR_VIEW_USAGE_MAX,
                                  &asked.max, diag);
    if (error == 0)
        error = weir_query_flag(query, "shadow", &asked.shadow, diag);
    if (error == 0)
        error = weir_query_name(query, "match", buf, &asked.match, diag);
    if (error == 0)
        *out = usage_object(views, &asked, now);
    return error;
}

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
    { "/v1/usage", view_usage },
};

const char *weir_views_path(size_t i)
{
    return i < WEIR_COUNT_OF(known) ? known[i].path : NULL;
}

static view_fn *find(struct weir_text path)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(known); i++)
        if (weir_text_equal(path, weir_text_of(known[i].path)))
            return known[i].view;
    return NULL;
}

bool weir_views_have(struct weir_text path)
{
    return find(path) != NULL;
}

int weir_views_answer(struct weir_views *views, const struct weir_uri *uri,
                      json_t **out, struct weir_diag *diag, weir_instant now)
{
    view_fn *view = find(uri->path);
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
