/* SPDX-License-Identifier: MIT
 * front/view_usage.c - quotas in use as JSON, for all views, and GET
 * /v1/usage. */

#include <stdio.h>
#include <stdlib.h>

#include "front/query.h"
#include "front/view_internal.h"

void weir_view_hex(const uint8_t *bytes, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

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

static json_t *top_usage_object(const struct weir_views *views,
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

int weir_view_usage(struct weir_views *views, struct weir_text query,
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
        *out = top_usage_object(views, &asked, now);
    return error;
}
