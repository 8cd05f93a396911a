/* SPDX-License-Identifier: MIT
 * front/view_live.c - the live view: the present state, for pages that request
 * it each second.
 *
 * It has whether all is well, the quotas that the page shows (?watch=), and the
 * top k of all quotas in use. The first two cost little (100 names at most).
 * The top k, and the sums of templates' instances, cost a walk of all quotas in
 * use, which may be a million. So all readers share one walk, and the next
 * comes no sooner than a second later and fifty times the duration of the last
 * one. However many readers and quotas there are, walks take a fiftieth of the
 * loop's time; the lists are then older than the rest, and 'listed_at' gives
 * their time.
 *
 * The page computes rates: counts only grow, and 'at' is their clock. */

#include <stdlib.h>
#include <string.h>

#include "front/query.h"
#include "front/recent.h"
#include "front/view_internal.h"
#include "io/clock.h"

#define WALK_EVERY (900 * WEIR_MILLISECOND) /* less than a reader's second */
#define WALK_SHARE 50

struct weir_view_live {
    weir_instant made; /* time of the walk */
    weir_instant next; /* time of the next walk, at the earliest */
    size_t used;
    json_t *top_k, *refused; /* arrays; owned */
    json_t *templates;       /* name -> sum; owned */
};

void weir_view_live_free(struct weir_view_live *live)
{
    if (!live)
        return;
    json_decref(live->top_k);
    json_decref(live->refused);
    json_decref(live->templates);
    free(live);
}

/* ---- The walk ---- */

static json_t *list_of_choice(const struct weir_views *views,
                              const struct weir_busy_choice *choice,
                              weir_instant now)
{
    json_t *list = json_array();
    for (size_t i = 0; i < choice->count; i++) {
        const struct weir_busy *busy = &choice->out[i];
        if (choice->query.rank == WEIR_RANK_REFUSED && busy->refused == 0)
            break;
        json_array_append_new(list, weir_view_busy(views, busy, now));
    }
    return list;
}

static void walk_usages(const struct weir_views *views,
                        struct weir_view_live *live, weir_instant now)
{
    struct weir_busy top_k[WEIR_VIEW_TOP_MAX];
    struct weir_busy refused[WEIR_VIEW_TOP_MAX];
    struct weir_busy_choice choices[] = {
        { .query = { .rank = WEIR_RANK_OFFERED, .max = WEIR_VIEW_TOP_MAX },
          .out = top_k },
        { .query = { .rank = WEIR_RANK_REFUSED, .max = WEIR_VIEW_TOP_MAX },
          .out = refused },
    };
    weir_top_k_of_all(&views->source.usages, choices, 2, now);
    live->used = choices[0].used;
    live->top_k = list_of_choice(views, &choices[0], now);
    live->refused = list_of_choice(views, &choices[1], now);
    live->templates = views->source.templates(views->source.context, now);
}

/* NULL: no memory. */
static const struct weir_view_live *refresh_lists(struct weir_views *views,
                                                  weir_instant now)
{
    if (views->live && now < views->live->next)
        return views->live;
    struct weir_view_live *live = calloc(1, sizeof *live);
    if (!live)
        return NULL;
    weir_instant begun = weir_clock_now();
    walk_usages(views, live, now);
    weir_duration took = weir_clock_now() - begun;
    live->made = now;
    live->next =
        now + (took * WALK_SHARE > WALK_EVERY ? took * WALK_SHARE : WALK_EVERY);
    weir_view_live_free(views->live);
    views->live = live;
    weir_assert(live->next > now);
    return live;
}

/* ---- Watched quotas ---- */

/* The usage of a quota in use, by its name; NULL: there is none. */
static json_t *watched_object(const struct weir_views *views,
                              struct weir_text name, weir_instant now)
{
    const struct weir_usages *usages = &views->source.usages;
    struct weir_used_quota usage;
    struct weir_busy busy;
    if (usages->of(usages->context, name, &usage, now)) {
        weir_busy_of(&usage, &busy);
        return weir_view_busy(views, &busy, now);
    }
    char key[WEIR_NAME_MAX + 1];
    memcpy(key, name.p, name.len);
    key[name.len] = '\0';
    const json_t *sum = json_object_get(views->live->templates, key);
    json_t *object = sum ? json_copy((json_t *)sum) : NULL;
    if (object)
        json_object_set_new(object, "name", json_stringn(name.p, name.len));
    return object;
}

/* Takes the first name off a list of lines. */
static struct weir_text next_name(struct weir_text *list)
{
    const char *end = memchr(list->p, '\n', list->len);
    size_t len = end ? (size_t)(end - list->p) : list->len;
    struct weir_text name = { list->p, len };
    size_t skip = len + (end ? 1 : 0);
    *list = (struct weir_text){ list->p + skip, list->len - skip };
    return name;
}

static int add_watched(struct weir_views *views, struct weir_text list,
                       json_t *out, struct weir_diag *diag, weir_instant now)
{
    for (size_t count = 0; list.len > 0; count++) {
        if (count == WEIR_VIEW_WATCH_MAX)
            return weir_diag_set(diag, WEIR_EINVAL,
                                 "?watch= has more than 100 names", NULL);
        struct weir_text name = next_name(&list);
        int error = weir_name_check(name, diag);
        if (error < 0)
            return error;
        weir_recent_want(views->past, name, now);
        json_t *object = watched_object(views, name, now);
        if (object)
            json_array_append_new(out, object);
    }
    return 0;
}

static int read_watched(struct weir_views *views, struct weir_text query,
                        json_t *out, struct weir_diag *diag, weir_instant now)
{
    struct weir_text text;
    if (!weir_uri_query(query, "watch", &text))
        return 0;
    /* The decoded text is no longer than the encoded one. */
    char *buf = malloc(text.len + 1);
    if (!buf)
        return WEIR_ENOMEM;
    int len = weir_uri_decode(text, true, buf, text.len);
    int error = len < 0
                    ? weir_diag_set(diag, WEIR_EINVAL,
                                    "?watch= has a '%' "
                                    "without two hexadecimal digits",
                                    NULL)
                    : add_watched(views, (struct weir_text){ buf, (size_t)len },
                                  out, diag, now);
    free(buf);
    return error;
}

/* ---- Recent samples ---- */

static json_t *recent_object(const struct weir_views *views,
                             struct weir_text name, weir_instant now)
{
    struct weir_recent_sample *samples =
        malloc(WEIR_RECENT_SAMPLES * sizeof *samples);
    if (!samples)
        return NULL;
    size_t count = weir_recent_of(views->past, name, samples);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("[f, I, I]",
                                              (double)samples[i].at / 1e9,
                                              (json_int_t)samples[i].passed,
                                              (json_int_t)samples[i].refused));
    free(samples);
    struct weir_view_facts facts;
    char incarnation[2 * WEIR_INCARNATION_SIZE + 1];
    views->source.facts(views->source.context, &facts);
    weir_view_hex(facts.incarnation, WEIR_INCARNATION_SIZE, incarnation);
    return json_pack("{s:s, s:f, s:o}", "incarnation", incarnation, "at",
                     (double)now / 1e9, "samples", list);
}

int weir_view_recent(struct weir_views *views, struct weir_text query,
                     json_t **out, struct weir_diag *diag, weir_instant now)
{
    char buf[WEIR_NAME_MAX];
    struct weir_text name;
    int error = weir_query_name(query, "name", buf, &name, diag);
    if (error == 0)
        error = weir_name_check(name, diag);
    if (error == 0)
        *out = recent_object(views, name, now);
    return error;
}

/* ---- The view ---- */

/* 'watched' is stolen. */
static json_t *live_object(const struct weir_views *views, json_t *watched,
                           weir_instant now)
{
    const struct weir_view_live *live = views->live;
    struct weir_view_facts facts;
    char incarnation[2 * WEIR_INCARNATION_SIZE + 1];
    views->source.facts(views->source.context, &facts);
    weir_view_hex(facts.incarnation, WEIR_INCARNATION_SIZE, incarnation);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:s*, s:f, s:f, s:I, s:I, s:I, s:I, s:I,"
        " s:I, s:f, s:O, s:O, s:o}",
        "kind", facts.kind, "name", facts.name, "version", facts.version,
        "incarnation", incarnation, "ready", facts.ready, "trouble",
        facts.trouble, "at", (double)now / 1e9, "uptime_s",
        (double)(now - facts.started) / 1e9, "epoch", (json_int_t)facts.epoch,
        "quotas", (json_int_t)facts.quotas, "used", (json_int_t)live->used,
        "unknown", (json_int_t)facts.unknown, "limiters",
        (json_int_t)facts.limiters, "reports", (json_int_t)facts.reports,
        "listed_at", (double)live->made / 1e9, "top_offered", live->top_k,
        "top_limited", live->refused, "watched", watched);
}

int weir_view_live(struct weir_views *views, struct weir_text query,
                   json_t **out, struct weir_diag *diag, weir_instant now)
{
    json_t *watched = json_array();
    int error = refresh_lists(views, now)
                    ? read_watched(views, query, watched, diag, now)
                    : WEIR_ENOMEM;
    if (error == 0)
        *out = live_object(views, watched, now);
    else
        json_decref(watched);
    return error;
}
