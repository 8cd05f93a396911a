/* SPDX-License-Identifier: MIT
 * front/view.c - the views but /v1/why: usage, live, recent; their paths; and
 * the samples that /v1/recent shows.
 *
 * A view answers a request about the present at once, as JSON, from a source's
 * own memory. The callers choose the listener and check the role. */

#include "front/view.h"

#include <stdlib.h>
#include <string.h>

#include "codec/json_text.h"
#include "front/page_file.h"
#include "io/clock.h"

#define WALK_EVERY (900 * WEIR_MILLISECOND) /* less than a reader's second */
#define WALK_SHARE 50
#define INCARNATION_TEXT_SIZE (2 * WEIR_INCARNATION_SIZE + 1)

#define KEPT_MAX 256   /* names whose samples are kept */
#define SAMPLES 300    /* of each, about a second apart */
#define WALK_MAX 20000 /* in use; with more there is no top k of samples */
#define KEPT_WALK_EVERY (10 * WEIR_SECOND)
/* A name that is neither in the top k nor shown by a page gives way after … */
#define KEPT_FOR (60 * WEIR_SECOND)

/* The sums at an instant, in units. */
struct sample {
    weir_instant at;
    uint64_t passed, refused;
};

struct kept {
    char name[WEIR_NAME_MAX];
    size_t name_len;     /* 0: the slot is free */
    weir_instant wanted; /* time of the last request for it */
    size_t count;        /* of samples */
    size_t next;         /* index of the next one */
};

struct weir_views {
    struct weir_view_source source;
    struct lists *live; /* owned; NULL: not requested yet */
    /* /v1/recent: */
    weir_instant walk_at;
    struct weir_busy *busy; /* KEPT_MAX; owned */
    struct sample *samples; /* of all, one after the other; owned. Some 2 MB, of
                             * which only used pages take memory */
    struct kept kept[KEPT_MAX];
};

/* ---- For sources, and for all views ---- */

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

static json_t *busy_object(const struct weir_views *views,
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

/* The process's state, and its incarnation in hexadecimal. */
static void read_facts(const struct weir_views *views,
                       struct weir_view_facts *out,
                       char incarnation[INCARNATION_TEXT_SIZE])
{
    views->source.facts(views->source.context, out);
    weir_view_hex(out->incarnation, WEIR_INCARNATION_SIZE, incarnation);
}

/* The quota's name in a query. */
static int read_quota_name(struct weir_text query, char *buf,
                           struct weir_text *out, struct weir_diag *diag)
{
    int error = weir_query_name(query, "name", buf, out, diag);
    return error < 0 ? error : weir_name_check(*out, diag);
}

/* ---- /v1/usage ---- */

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
        json_array_append_new(list, busy_object(views, &busy[i], now));
    free(busy);
    struct weir_view_facts facts;
    char incarnation[INCARNATION_TEXT_SIZE];
    read_facts(views, &facts, incarnation);
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
        *out = top_usage_object(views, &asked, now);
    return error;
}

/* ---- /v1/recent: samples second by second, for a page just opened ---- */

/* The names are the top k of the quotas, and quotas that pages show. The top k
 * is found by a walk of all quotas in use, some times a minute and only while
 * at most WALK_MAX are in use (such a walk takes a few milliseconds); a root
 * of a million instances keeps only the quotas that pages show. Each second
 * costs a look-up of each kept name.
 *
 * A name is found by comparing it with all: there are few, and most differ in
 * their length or first bytes. */

static struct sample *ring_of_samples(const struct weir_views *views,
                                      const struct kept *kept)
{
    return views->samples + (kept - views->kept) * SAMPLES;
}

static const struct kept *find_kept(const struct weir_views *views,
                                    struct weir_text name)
{
    weir_assert(name.len > 0 && name.len <= WEIR_NAME_MAX);
    for (size_t i = 0; i < KEPT_MAX; i++) {
        const struct kept *kept = &views->kept[i];
        if (kept->name_len == name.len &&
            memcmp(kept->name, name.p, name.len) == 0)
            return kept;
    }
    return NULL;
}

/* A free slot, or that of the name wanted longest ago; NULL: all are still
 * wanted. */
static struct kept *find_free_slot(struct weir_views *views, weir_instant now)
{
    struct kept *oldest = &views->kept[0];
    for (size_t i = 0; i < KEPT_MAX; i++) {
        struct kept *kept = &views->kept[i];
        if (kept->name_len == 0)
            return kept;
        if (kept->wanted < oldest->wanted)
            oldest = kept;
    }
    return now >= oldest->wanted + KEPT_FOR ? oldest : NULL;
}

/* A page shows that name: it is kept from now on, if there is room. */
static void keep_name(struct weir_views *views, struct weir_text name,
                      weir_instant now)
{
    struct kept *kept = (struct kept *)find_kept(views, name);
    if (!kept) {
        kept = find_free_slot(views, now);
        if (!kept)
            return;
        *kept = (struct kept){ .name_len = name.len };
        memcpy(kept->name, name.p, name.len);
    }
    kept->wanted = now;
}

static void want_top_k(struct weir_views *views, weir_instant now)
{
    const struct weir_usages *usages = &views->source.usages;
    views->walk_at = now + KEPT_WALK_EVERY;
    if (usages->count(usages->context) > WALK_MAX)
        return;
    const struct weir_busy_query query = { .rank = WEIR_RANK_OFFERED,
                                           .max = KEPT_MAX };
    size_t used;
    size_t count = weir_top_k(usages, &query, views->busy, &used, now);
    for (size_t i = 0; i < count; i++)
        keep_name(
            views,
            (struct weir_text){ views->busy[i].name, views->busy[i].name_len },
            now);
}

static void take_recent_sample(struct weir_views *views, struct kept *kept,
                               weir_instant now)
{
    struct weir_used_quota usage;
    struct weir_text name = { kept->name, kept->name_len };
    if (!views->source.usages.of(views->source.usages.context, name, &usage,
                                 now))
        return;
    struct sample *at = ring_of_samples(views, kept);
    size_t last = (kept->next + SAMPLES - 1) % SAMPLES;
    /* The root forgot the quota meanwhile, and counts it from 0. */
    if (kept->count > 0 &&
        (usage.passed < at[last].passed || usage.refused < at[last].refused))
        kept->count = 0;
    at[kept->next] = (struct sample){ .at = now,
                                      .passed = usage.passed,
                                      .refused = usage.refused };
    kept->next = (kept->next + 1) % SAMPLES;
    if (kept->count < SAMPLES)
        kept->count++;
    weir_assert(kept->next < SAMPLES && kept->count <= SAMPLES);
}

/* The name's samples, the oldest first. */
static json_t *samples_array(const struct weir_views *views,
                             struct weir_text name)
{
    const struct kept *kept = find_kept(views, name);
    size_t count = kept ? kept->count : 0;
    json_t *list = json_array();
    for (size_t i = SAMPLES - count; i < SAMPLES; i++) {
        const struct sample *sample =
            &ring_of_samples(views, kept)[(kept->next + i) % SAMPLES];
        json_array_append_new(list,
                              json_pack("[f, I, I]", (double)sample->at / 1e9,
                                        (json_int_t)sample->passed,
                                        (json_int_t)sample->refused));
    }
    return list;
}

static json_t *recent_object(const struct weir_views *views,
                             struct weir_text name, weir_instant now)
{
    json_t *list = samples_array(views, name);
    struct weir_view_facts facts;
    char incarnation[INCARNATION_TEXT_SIZE];
    read_facts(views, &facts, incarnation);
    return json_pack("{s:s, s:f, s:o}", "incarnation", incarnation, "at",
                     (double)now / 1e9, "samples", list);
}

static int view_recent(struct weir_views *views, struct weir_text query,
                       json_t **out, struct weir_diag *diag, weir_instant now)
{
    char buf[WEIR_NAME_MAX];
    struct weir_text name;
    int error = read_quota_name(query, buf, &name, diag);
    if (error == 0)
        *out = recent_object(views, name, now);
    return error;
}

/* ---- /v1/live ---- */

/* The present state, for pages that request it each second: whether all is
 * well, the quotas that the page shows (?watch=), and the top k of all quotas
 * in use. The first two cost little (100 names at most). The top k, and the
 * sums of templates' instances, cost a walk of all quotas in use, which may be
 * a million. So all readers share one walk, and the next comes no sooner than a
 * second later and fifty times the duration of the last one. However many
 * readers and quotas there are, walks take a fiftieth of the loop's time; the
 * lists are then older than the rest, and 'listed_at' gives their time.
 *
 * The page computes rates: counts only grow, and 'at' is their clock. */

struct lists {
    weir_instant made; /* time of the walk */
    weir_instant next; /* time of the next walk, at the earliest */
    size_t used;
    json_t *top_k, *refused; /* arrays; owned */
    json_t *templates;       /* name -> sum; owned */
};

/* NULL is legal. */
static void free_lists(struct lists *live)
{
    if (!live)
        return;
    json_decref(live->top_k);
    json_decref(live->refused);
    json_decref(live->templates);
    free(live);
}

/* ---- /v1/live: the walk ---- */

static json_t *list_of_choice(const struct weir_views *views,
                              const struct weir_busy_choice *choice,
                              weir_instant now)
{
    json_t *list = json_array();
    for (size_t i = 0; i < choice->count; i++) {
        const struct weir_busy *busy = &choice->out[i];
        if (choice->query.rank == WEIR_RANK_REFUSED && busy->refused == 0)
            break;
        json_array_append_new(list, busy_object(views, busy, now));
    }
    return list;
}

static void walk_usages(const struct weir_views *views, struct lists *live,
                        weir_instant now)
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
static const struct lists *refresh_lists(struct weir_views *views,
                                         weir_instant now)
{
    if (views->live && now < views->live->next)
        return views->live;
    struct lists *live = calloc(1, sizeof *live);
    if (!live)
        return NULL;
    weir_instant begun = weir_clock_now();
    walk_usages(views, live, now);
    /* The lists serve all requests of the next second. */
    if (weir_json_failed()) {
        free_lists(live);
        return NULL;
    }
    weir_duration took = weir_clock_now() - begun;
    live->made = now;
    live->next =
        now + (took * WALK_SHARE > WALK_EVERY ? took * WALK_SHARE : WALK_EVERY);
    free_lists(views->live);
    views->live = live;
    weir_assert(live->next > now);
    return live;
}

/* ---- /v1/live: watched quotas ---- */

/* The usage of a quota in use, by its name; NULL: there is none. */
static json_t *watched_object(const struct weir_views *views,
                              struct weir_text name, weir_instant now)
{
    const struct weir_usages *usages = &views->source.usages;
    struct weir_used_quota usage;
    struct weir_busy busy;
    if (usages->of(usages->context, name, &usage, now)) {
        weir_busy_of(&usage, &busy);
        return busy_object(views, &busy, now);
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
            return weir_diag_put(diag, WEIR_EINVAL,
                                 "?watch= has more than 100 names");
        struct weir_text name = next_name(&list);
        int error = weir_name_check(name, diag);
        if (error < 0)
            return error;
        keep_name(views, name, now);
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
                    ? weir_diag_put(diag, WEIR_EINVAL,
                                    "?watch= has a '%' "
                                    "without two hexadecimal digits")
                    : add_watched(views, (struct weir_text){ buf, (size_t)len },
                                  out, diag, now);
    free(buf);
    return error;
}

/* 'watched' is stolen. */
static json_t *live_object(const struct weir_views *views, json_t *watched,
                           weir_instant now)
{
    const struct lists *live = views->live;
    struct weir_view_facts facts;
    char incarnation[INCARNATION_TEXT_SIZE];
    read_facts(views, &facts, incarnation);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:s*, s:f, s:f, s:I, s:I, s:I, s:I, s:I,"
        " s:I, s:I, s:f, s:O, s:O, s:o}",
        "kind", facts.kind, "name", facts.name, "version", facts.version,
        "incarnation", incarnation, "ready", facts.ready, "trouble",
        facts.trouble, "at", (double)now / 1e9, "uptime_s",
        (double)(now - facts.started) / 1e9, "epoch", (json_int_t)facts.epoch,
        "quotas", (json_int_t)facts.quotas, "used", (json_int_t)live->used,
        "unknown", (json_int_t)facts.unknown, "contended",
        (json_int_t)facts.contended, "limiters", (json_int_t)facts.limiters,
        "reports", (json_int_t)facts.reports, "listed_at",
        (double)live->made / 1e9, "top_offered", live->top_k, "top_limited",
        live->refused, "watched", watched);
}

static int view_live(struct weir_views *views, struct weir_text query,
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

static int view_why(struct weir_views *views, struct weir_text query,
                    json_t **out, struct weir_diag *diag, weir_instant now)
{
    return weir_view_why(&views->source, query, out, diag, now);
}

/* ---- Paths ---- */

typedef int view_fn(struct weir_views *views, struct weir_text query,
                    json_t **out, struct weir_diag *diag, weir_instant now);

static const struct {
    const char *path;
    view_fn *view;
} known[] = {
    { "/v1/live", view_live },
    /* A listener may repeat it each second; this answers once. */
    { WEIR_PAGE_EVENTS, view_live },
    { "/v1/recent", view_recent },
    { "/v1/why", view_why },
    { "/v1/usage", view_usage },
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
    made->busy = calloc(KEPT_MAX, sizeof *made->busy);
    made->samples = calloc((size_t)KEPT_MAX * SAMPLES, sizeof *made->samples);
    if (!made->busy || !made->samples)
        weir_views_free(&made);
    return made;
}

void weir_views_free(struct weir_views **views)
{
    if (!*views)
        return;
    free_lists((*views)->live);
    free((*views)->busy);
    free((*views)->samples);
    free(*views);
    *views = NULL;
}

void weir_views_tick(struct weir_views *views, weir_instant now)
{
    if (now >= views->walk_at)
        want_top_k(views, now);
    for (size_t i = 0; i < KEPT_MAX; i++)
        if (views->kept[i].name_len > 0)
            take_recent_sample(views, &views->kept[i], now);
}
