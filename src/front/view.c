/* SPDX-License-Identifier: MIT
 * front/view.c - the views and their paths.
 *
 * A view answers a request about the present at once, as JSON, from a source's
 * own memory. The callers choose the listener and check the role. */

#include "front/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/page_file.h"
#include "front/recent.h"
#include "io/clock.h"

#define WALK_EVERY (900 * WEIR_MILLISECOND) /* less than a reader's second */
#define WALK_SHARE 50
#define INCARNATION_TEXT_SIZE (2 * WEIR_INCARNATION_SIZE + 1)

struct weir_views {
    struct weir_view_source source;
    struct weir_recent *past; /* owned */
    struct lists *live;       /* owned; NULL: not requested yet */
};

/* ---- For sources, and for all views ---- */

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

/* ---- /v1/recent ---- */

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

/* ---- /v1/why ---- */

/* Why a request by a name passes or not. It is charged to a chain: the quota or
 * template that rules the name, its parent, and so on. Each link is shown in
 * its present state, with the chance that it refuses, which a bucket's fill
 * tells. A root knows the fill of all limiters together, by which counted
 * quotas are decided, but not the decisions that a process makes alone (a
 * leased grant, an adaptive limit, a local bucket): for such a link it gives no
 * chance, but the reason.
 *
 * A limiter decides by its own buckets. For links that are decided elsewhere it
 * gives the present result of a peek, a decision that charges nothing: if that
 * passes, all links did, and if it doesn't, the refusing link is named, and
 * nothing is known of the others. */

/* How a link treats this request, as far as it is known. */
struct link_view {
    char name[WEIR_NAME_MAX];
    size_t name_len;
    char ruler[WEIR_NAME_MAX];
    struct weir_ruled ruled; /* 'name' is in 'ruler'; no parent */
    bool in_use;
    struct weir_used_quota usage; /* zero if it isn't; the debtor's texts live
                                * until the answer is made */
    double chance;                /* that it refuses; below 0: not known here */
    weir_duration retry_after;    /* of a chance of 1; WEIR_NEVER: none */
};

/* The links from the name upwards. */
struct chain {
    struct link_view link[WEIR_DEPTH_MAX];
    size_t count;
    char missing[WEIR_NAME_MAX]; /* a missing parent */
    size_t missing_len;          /* 0: none */
};

/* ---- /v1/why: one link ---- */

static bool is_off(const struct weir_ruled *ruled)
{
    return ruled->limit.unlimited || ruled->mode == WEIR_OFF;
}

/* How long until 'units' have leaked. */
static weir_duration leak_time(const struct weir_ruled *ruled, double units)
{
    if (ruled->leak <= 0 || ruled->kind == WEIR_CONCURRENCY)
        return WEIR_NEVER;
    double time = units * 1e9 / ruled->leak;
    return time < 9e18 ? (weir_duration)time : WEIR_NEVER;
}

static void judge_link(struct link_view *link, double weight)
{
    const struct weir_ruled *ruled = &link->ruled;
    double fill = link->usage.fill;
    link->chance = 0;
    link->retry_after = WEIR_NEVER;
    if (is_off(ruled))
        return;
    if (ruled->limit.units == 0) {
        link->chance = 1;
        return;
    }
    if (ruled->elsewhere) {
        link->chance = -1;
        return;
    }
    if (fill + weight > ruled->high) {
        link->chance = 1;
        if (weight <= ruled->high)
            link->retry_after = leak_time(ruled, fill + weight - ruled->high);
        return;
    }
    if (fill > ruled->low)
        link->chance = (fill - ruled->low) / (ruled->high - ruled->low);
}

/* ---- /v1/why: the chain ---- */

static void see_link(const struct weir_views *views, struct link_view *link,
                     double weight, weir_instant now)
{
    const struct weir_usages *usages = &views->source.usages;
    struct weir_text name = { link->name, link->name_len };
    link->in_use = usages->of(usages->context, name, &link->usage, now);
    if (!link->in_use)
        link->usage = (struct weir_used_quota){ 0 };
    judge_link(link, weight);
}

/* False: no quota rules the name. '*out_parent' is the length of the parent's
 * name, the next one. */
static bool add_link(const struct weir_views *views, struct chain *chain,
                     struct weir_text name, char *parent, size_t *out_parent,
                     weir_instant now)
{
    struct link_view *link = &chain->link[chain->count];
    const struct weir_view_source *source = &views->source;
    *link = (struct link_view){ .name_len = name.len };
    memcpy(link->name, name.p, name.len);
    if (!source->rule(source->context, name, &link->ruled, now))
        return false;
    *out_parent = link->ruled.parent.len;
    memcpy(parent, link->ruled.parent.p ? link->ruled.parent.p : "",
           *out_parent);
    memcpy(link->ruler, link->ruled.name.p, link->ruled.name.len);
    link->ruled.name.p = link->ruler;
    chain->count++;
    weir_assert(chain->count <= WEIR_DEPTH_MAX);
    return true;
}

static void climb_chain(const struct weir_views *views, struct weir_text name,
                        double weight, struct chain *chain, weir_instant now)
{
    char at[WEIR_NAME_MAX];
    size_t len = name.len;
    memcpy(at, name.p, len);
    chain->count = chain->missing_len = 0;
    weir_assert(len <= WEIR_NAME_MAX);
    while (len > 0 && chain->count < WEIR_DEPTH_MAX) {
        struct weir_text here = { at, len };
        char parent[WEIR_NAME_MAX];
        if (!add_link(views, chain, here, parent, &len, now)) {
            memcpy(chain->missing, at, here.len);
            chain->missing_len = here.len;
            return;
        }
        see_link(views, &chain->link[chain->count - 1], weight, now);
        memcpy(at, parent, len);
    }
}

/* ---- /v1/why: a limiter's decision now ---- */

static bool has_unknown(const struct chain *chain)
{
    bool unknown = false;
    for (size_t i = 0; i < chain->count; i++) {
        if (chain->link[i].ruled.asks)
            return false; /* a view makes no request to a store */
        unknown |= chain->link[i].chance < 0;
    }
    return unknown;
}

static void settle_unknown(struct link_view *link,
                           const struct weir_reply *reply)
{
    bool refused = reply->verdict == WEIR_LIMITED;
    if (link->chance >= 0)
        return;
    if (!refused) {
        link->chance = 0;
    } else if (reply->quota_len == link->name_len &&
               memcmp(reply->quota, link->name, link->name_len) == 0) {
        link->chance = 1;
        link->retry_after = reply->retry_after;
    }
}

static void peek_at_unknown(const struct weir_views *views,
                            struct weir_text name, uint64_t weight,
                            struct chain *chain, weir_instant now)
{
    const struct weir_view_source *source = &views->source;
    if (!source->peek || !has_unknown(chain))
        return;
    struct weir_reply reply;
    source->peek(source->context, name, weight, &reply, now);
    for (size_t i = 0; i < chain->count; i++)
        settle_unknown(&chain->link[i], &reply);
}

/* ---- /v1/why: sentences ---- */

static void print_seconds(weir_duration time, char *buf, size_t size)
{
    snprintf(buf, size, "%.3g s", (double)time / 1e9);
}

static void describe_refusal(const struct link_view *link, double weight,
                             char *buf, size_t size)
{
    const struct weir_ruled *ruled = &link->ruled;
    char wait[32];
    if (link->retry_after != WEIR_NEVER) {
        print_seconds(link->retry_after, wait, sizeof wait);
        snprintf(buf, size,
                 "the bucket is full (%.4g of %.6g): limits for %s, longer if "
                 "other requests come",
                 link->usage.fill, ruled->high, wait);
    } else if (ruled->kind == WEIR_RATE) {
        snprintf(buf, size, "a weight of %.6g never fits into a burst of %.6g",
                 weight, ruled->high);
    } else {
        snprintf(buf, size, "%.6g more than are free of %.6g at a time", weight,
                 ruled->high);
    }
}

static void describe_link(const struct link_view *link, double weight,
                          char *buf, size_t size)
{
    const struct weir_ruled *ruled = &link->ruled;
    if (ruled->mode == WEIR_OFF)
        snprintf(buf, size, "it is off: passes");
    else if (ruled->limit.unlimited)
        snprintf(buf, size, "it has no limit: passes");
    else if (ruled->limit.units == 0)
        snprintf(buf, size, "its limit is 0: limits all");
    else if (ruled->leased && ruled->leak <= 0)
        snprintf(buf, size,
                 "this process was granted nothing of it yet, and "
                 "asks for it: limits all");
    else if (ruled->elsewhere)
        snprintf(buf, size, "%s%s", ruled->elsewhere,
                 link->chance < 0    ? ""
                 : link->chance >= 1 ? ": limits now"
                                     : ": passes now");
    else if (link->chance >= 1)
        describe_refusal(link, weight, buf, size);
    else if (link->chance > 0)
        snprintf(buf, size,
                 "the fill of %.4g is between low_burst (%.6g) and high_burst "
                 "(%.6g): limits %.0f of 100",
                 link->usage.fill, ruled->low, ruled->high, 100 * link->chance);
    else
        snprintf(buf, size, "%.4g of %.6g used: passes", link->usage.fill,
                 ruled->low);
}

/* For a leased quota: the part of the limit that the figures describe. */
static void add_part(const struct weir_ruled *ruled, char *buf, size_t size)
{
    size_t len = strlen(buf);
    if (ruled->leased && ruled->leak > 0 && len < size)
        snprintf(buf + len, size - len,
                 "; of the limit %.4g%s were granted to this process",
                 ruled->leak, ruled->kind == WEIR_RATE ? " a second" : "");
}

/* For a bucket that may refuse: the limiter that reported beyond max_debt. */
static void add_debtor(const struct link_view *link, char *buf, size_t size)
{
    const struct weir_used_debtor *debtor = &link->usage.debtor;
    size_t len = strlen(buf);
    char silent[32];
    if (debtor->units == 0 || link->chance <= 0 || len >= size)
        return;
    print_seconds(debtor->silent, silent, sizeof silent);
    snprintf(buf + len, size - len,
             "; limiter '%.*s' reported more than its max_debt, at last %s ago",
             (int)debtor->limiter.len, debtor->limiter.p, silent);
}

static json_t *debtor_object(const struct weir_used_debtor *debtor)
{
    char incarnation[INCARNATION_TEXT_SIZE];
    if (debtor->units == 0)
        return json_null();
    weir_view_hex(debtor->incarnation, WEIR_INCARNATION_SIZE, incarnation);
    return json_pack("{s:s%, s:s, s:I, s:f}", "limiter",
                     debtor->limiter.p ? debtor->limiter.p : "",
                     debtor->limiter.len, "incarnation", incarnation, "units",
                     (json_int_t)debtor->units, "silent_s",
                     (double)debtor->silent / 1e9);
}

static json_t *link_object(const struct link_view *link, double weight)
{
    char limit[64];
    char why[640];
    const struct weir_ruled *ruled = &link->ruled;
    size_t len = weir_limit_format(&ruled->limit, limit, sizeof limit);
    describe_link(link, weight, why, sizeof why);
    add_part(ruled, why, sizeof why);
    add_debtor(link, why, sizeof why);
    bool bounded = !ruled->limit.unlimited;
    return json_pack(
        "{s:s%, s:s%, s:s, s:s%, s:o, s:o, s:b, s:f, s:I, s:I, s:o, s:o,"
        " s:o, s:s}",
        "name", link->name, link->name_len, "quota", ruled->name.p,
        ruled->name.len, "mode", weir_mode_word(ruled->mode), "limit", limit,
        len, "low", bounded ? json_real(ruled->low) : json_null(), "high",
        bounded ? json_real(ruled->high) : json_null(), "in_use", link->in_use,
        "fill", link->usage.fill, "passed", (json_int_t)link->usage.passed,
        "limited", (json_int_t)link->usage.refused, "chance",
        link->chance < 0 ? json_null() : json_real(link->chance),
        "retry_after_s",
        link->retry_after == WEIR_NEVER
            ? json_null()
            : json_real((double)link->retry_after / 1e9),
        "beyond_debt", debtor_object(&link->usage.debtor), "why", why);
}

/* ---- /v1/why: the answer ---- */

/* The result of the links so far. */
struct verdict {
    double passes; /* the chance that all known links let it pass */
    bool unknown;  /* a link isn't known here */
};

static void weigh_link(struct verdict *verdict, const struct link_view *link)
{
    if (link->ruled.mode != WEIR_ENFORCE)
        return;
    if (link->chance < 0)
        verdict->unknown = true;
    else
        verdict->passes *= 1 - link->chance;
}

static const char *verdict_text(const struct verdict *verdict)
{
    if (verdict->passes <= 0)
        return "limited";
    if (verdict->unknown)
        return "unknown";
    return verdict->passes < 1 ? "chance" : "passed";
}

static json_t *explain_chain(const struct chain *chain, struct weir_text name,
                             size_t weight)
{
    struct verdict verdict = { .passes = 1 };
    json_t *links = json_array();
    for (size_t i = 0; i < chain->count; i++) {
        weigh_link(&verdict, &chain->link[i]);
        json_array_append_new(links,
                              link_object(&chain->link[i], (double)weight));
    }
    json_t *missing = chain->missing_len == 0
                          ? json_null()
                          : json_stringn(chain->missing, chain->missing_len);
    return json_pack("{s:s%, s:I, s:s, s:f, s:o, s:o}", "name", name.p,
                     name.len, "weight", (json_int_t)weight, "verdict",
                     verdict_text(&verdict), "passes", verdict.passes, "chain",
                     links, "missing", missing);
}

static int refuse_unruled(struct weir_text name, struct weir_diag *diag)
{
    char shown[WEIR_NAME_MAX + 1];
    memcpy(shown, name.p, name.len);
    shown[name.len] = '\0';
    return weir_diag_set(diag, WEIR_ENOENT, "no quota and no template rules '",
                         shown,
                         "': requests by that name are not limited, "
                         "only counted as unknown",
                         NULL);
}

static int check_view_ready(const struct weir_views *views,
                            struct weir_diag *diag)
{
    struct weir_view_facts facts;
    views->source.facts(views->source.context, &facts);
    return facts.ready
               ? 0
               : weir_diag_set(diag, WEIR_ENOTREADY,
                               "the quotas haven't been read yet", NULL);
}

static int view_why(struct weir_views *views, struct weir_text query,
                    json_t **out, struct weir_diag *diag, weir_instant now)
{
    char buf[WEIR_NAME_MAX];
    struct weir_text name;
    size_t weight = 1;
    int error = read_quota_name(query, buf, &name, diag);
    if (error == 0)
        error =
            weir_query_number(query, "weight", WEIR_BURST_MAX, &weight, diag);
    if (error == 0)
        error = check_view_ready(views, diag);
    if (error < 0)
        return error;
    struct chain chain;
    climb_chain(views, name, (double)weight, &chain, now);
    if (chain.count == 0)
        return refuse_unruled(name, diag);
    peek_at_unknown(views, name, weight, &chain, now);
    *out = explain_chain(&chain, name, weight);
    return 0;
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
    made->past = weir_recent_new(&source->usages);
    if (!made->past)
        weir_views_free(&made);
    return made;
}

void weir_views_free(struct weir_views **views)
{
    if (!*views)
        return;
    free_lists((*views)->live);
    weir_recent_free(&(*views)->past);
    free(*views);
    *views = NULL;
}

void weir_views_tick(struct weir_views *views, weir_instant now)
{
    weir_recent_tick(views->past, now);
}
