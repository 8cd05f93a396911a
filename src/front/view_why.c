/* SPDX-License-Identifier: MIT
 * front/view_why.c - GET /v1/why: why a request by a name passes or not.
 *
 * A request by a name is charged to a chain: the quota or template that rules
 * the name, its parent, and so on. Each link is shown in its present state,
 * with the chance that it refuses, which a bucket's fill tells. A root knows
 * the fill of all limiters together, by which counted quotas are decided, but
 * not the decisions that a process makes alone (a leased grant, an adaptive
 * limit, a local bucket): for such a link it gives no chance, but the reason.
 *
 * A limiter decides by its own buckets. For links that are decided elsewhere it
 * gives the present result of a peek, a decision that charges nothing: if that
 * passes, all links did, and if it doesn't, the refusing link is named, and
 * nothing is known of the others. */

#include <stdio.h>
#include <string.h>

#include "front/view.h"

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

/* ---- One link ---- */

/* An adaptive quota has no limit of its own, and one is found elsewhere. */
static bool is_unlimited(const struct weir_ruled *ruled)
{
    return ruled->limit.unlimited && !ruled->elsewhere;
}

static bool is_off(const struct weir_ruled *ruled)
{
    return is_unlimited(ruled) || ruled->mode == WEIR_OFF;
}

static bool is_zero(const struct weir_ruled *ruled)
{
    return !ruled->limit.unlimited && ruled->limit.units == 0 &&
           !ruled->elsewhere;
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
    if (is_zero(ruled)) {
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

/* ---- The chain ---- */

static void see_link(const struct weir_view_source *source,
                     struct link_view *link, double weight, weir_instant now)
{
    const struct weir_usages *usages = &source->usages;
    struct weir_text name = { link->name, link->name_len };
    link->in_use = usages->of(usages->context, name, &link->usage, now);
    if (!link->in_use)
        link->usage = (struct weir_used_quota){ 0 };
    judge_link(link, weight);
}

/* False: no quota rules the name. '*out_parent' is the length of the parent's
 * name, the next one. */
static bool add_link(const struct weir_view_source *source, struct chain *chain,
                     struct weir_text name, char *parent, size_t *out_parent,
                     weir_instant now)
{
    struct link_view *link = &chain->link[chain->count];
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

static void climb_chain(const struct weir_view_source *source,
                        struct weir_text name, double weight,
                        struct chain *chain, weir_instant now)
{
    char at[WEIR_NAME_MAX];
    size_t len = name.len;
    memcpy(at, name.p, len);
    chain->count = chain->missing_len = 0;
    weir_assert(len <= WEIR_NAME_MAX);
    while (len > 0 && chain->count < WEIR_DEPTH_MAX) {
        struct weir_text here = { at, len };
        char parent[WEIR_NAME_MAX];
        if (!add_link(source, chain, here, parent, &len, now)) {
            memcpy(chain->missing, at, here.len);
            chain->missing_len = here.len;
            return;
        }
        see_link(source, &chain->link[chain->count - 1], weight, now);
        memcpy(at, parent, len);
    }
}

/* ---- A limiter's decision now ---- */

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

static void peek_at_unknown(const struct weir_view_source *source,
                            struct weir_text name, uint64_t weight,
                            struct chain *chain, weir_instant now)
{
    if (!source->peek || !has_unknown(chain))
        return;
    struct weir_reply reply;
    source->peek(source->context, name, weight, &reply, now);
    for (size_t i = 0; i < chain->count; i++)
        settle_unknown(&chain->link[i], &reply);
}

/* ---- Sentences ---- */

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
    else if (is_unlimited(ruled))
        snprintf(buf, size, "it has no limit: passes");
    else if (is_zero(ruled))
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
    char incarnation[2 * WEIR_INCARNATION_SIZE + 1];
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

/* ---- The answer ---- */

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

static int check_view_ready(const struct weir_view_source *source,
                            struct weir_diag *diag)
{
    struct weir_view_facts facts;
    source->facts(source->context, &facts);
    return facts.ready ? 0
                       : weir_diag_put(diag, WEIR_ENOTREADY,
                                       "the quotas haven't been read yet");
}

int weir_view_why(const struct weir_view_source *source, struct weir_text query,
                  json_t **out, struct weir_diag *diag, weir_instant now)
{
    char buf[WEIR_NAME_MAX];
    struct weir_text name;
    size_t weight = 1;
    int error = weir_query_name(query, "name", buf, &name, diag);
    if (error == 0)
        error = weir_name_check(name, diag);
    if (error == 0)
        error =
            weir_query_number(query, "weight", WEIR_BURST_MAX, &weight, diag);
    if (error == 0)
        error = check_view_ready(source, diag);
    if (error < 0)
        return error;
    struct chain chain;
    climb_chain(source, name, (double)weight, &chain, now);
    if (chain.count == 0)
        return refuse_unruled(name, diag);
    peek_at_unknown(source, name, weight, &chain, now);
    *out = explain_chain(&chain, name, weight);
    return 0;
}
