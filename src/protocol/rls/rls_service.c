/* SPDX-License-Identifier: MIT
 * protocol/rls/rls_service.c - a call of Envoy's rate limit service, decided.
 *
 * Theory of operation. A call is read, named, decided and answered in memory
 * that the service allocates once, and the limiter decides within this process.
 * There is memory for one name: if the taker may not take from all names, each
 * is made and judged before the first decision, so a call that is refused as a
 * whole has charged nothing; and is made again for its decision.
 *
 * Differences from the original, which counts in windows:
 *
 *   - The original also counts denied hits, so a counter stays over its limit
 *     until its window ends. A bucket has no such end: clients that ask for
 *     several hits each, and for more than the limit, would empty it by their
 *     denied hits alone, and none would pass. Here denied hits aren't charged,
 *     unless their cost is one that is charged afterwards: 'postpaid'. A quota
 *     in windows with count_limited=yes counts as the original.
 *   - duration_until_reset of a refused hit is the time until it may pass, of a
 *     passed one the time until the bucket is full again. In seconds, rounded
 *     up, since Envoy shows whole ones. Of windows of the clock it is their
 *     end, as in the original.
 *
 * Costs afterwards. A client peeks with 0 hits before a request, and charges
 * the cost after it (tokens of a language model). A peek is over the limit if
 * more than the limit was charged, as in the original, so the charge that goes
 * beyond the limit must count. It becomes a debt of the bucket, of one unit's
 * limit at most: it lasts no longer than a window of the original. Peeks and
 * costs have the same keys, and a client that weighs its requests beforehand
 * doesn't peek: so the service counts, by a hash of a descriptor's keys, the
 * peeks that passed, and as many denied costs are debts. Rejected: a debt for
 * all that is denied (see above), or for all after one peek: a page that peeks
 * now and then would make it so.
 *
 * A client's own limit (`limit` of a descriptor) is ignored: a client that
 * could set its limit could set a large one. The quota of the descriptor's name
 * decides. */

#include "protocol/rls/rls_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/quota/long_name.h"
#include "io/clock.h"
#include "io/h2.h"
#include "libweir/limiter_view.h"

#define SHOWN_MAX 64 /* bytes of a policy's name in headers */
/* Sets of keys that are remembered; of more some are forgotten, until they are
 * peeked at again. */
#define POSTPAID_MAX 1024u
#define POSTPAID_NEAR 16u  /* places that one may have */
#define POSTPAID_PEEKS 64u /* that are counted: debts, if no more peeks come */
/* Units: the part of a fill that a root sent is of another clock. */
#define ROUNDING 0.001

/* A set of keys. */
struct postpaid {
    uint64_t hash;  /* 0: none */
    uint32_t peeks; /* that passed, without a denied cost since */
};

/* A descriptor and its quota's name. */
struct question {
    const struct weir_rls_rule *rule; /* NULL: no rules, or none matches */
    enum weir_rls_outcome outcome;    /* when it is decided */
    bool asked;                       /* false: no quota rules it, so it
                                       * passes */
};

struct weir_rls_service {
    const struct weir_protocol_host *host; /* borrowed, as is the next */
    const struct weir_rls_rules *rules;    /* NULL: every descriptor names its
                                            * quota */
    struct weir_rls_options options;
    struct weir_diag diag;                   /* of a refused call */
    const struct weir_protocol_taker *taker; /* the call's; borrowed */
    enum weir_protocol protocol;             /* the call's */
    const char *peer; /* the call's, for the log; borrowed */
    struct weir_rls_request request;
    struct weir_arena arena; /* of the request: 'memory' */
    unsigned char memory[WEIR_RLS_ARENA_SIZE];
    struct question questions[WEIR_RLS_DESCRIPTORS_MAX];
    struct weir_rls_status statuses[WEIR_RLS_DESCRIPTORS_MAX];
    struct weir_rls_answer answer;
    struct weir_rls_header headers[WEIR_RLS_HEADERS_MAX]; /* the answer's */
    char header_values[3][WEIR_RLS_HEADER_VALUE_MAX];
    struct weir_rls_name name; /* of the descriptor at hand, in 'name_buf' */
    char name_buf[WEIR_GIVEN_NAME_MAX];
    struct postpaid postpaid[POSTPAID_MAX]; /* from the hash's remainder on */
    uint64_t seed;                          /* of the hashes */
    json_t *metadata;                       /* the answer's; owned; or NULL */
    unsigned char metadata_bytes[WEIR_RLS_METADATA_MAX];
    unsigned char out[WEIR_RLS_ANSWER_MAX];
};

/* ---- Names ---- */

static bool is_replaced(const struct weir_rls_service *service,
                        const struct weir_rls_rule *rule)
{
    if (rule->name.len == 0)
        return false;
    for (uint32_t i = 0; i < service->request.count; i++) {
        const struct weir_rls_rule *other = service->questions[i].rule;
        for (uint32_t k = 0; other && k < other->replace_count; k++)
            if (weir_text_equal(other->replaces[k], rule->name))
                return true;
    }
    return false;
}

static void find_rules(struct weir_rls_service *service)
{
    const struct weir_rls_request *request = &service->request;
    for (uint32_t i = 0; i < request->count; i++) {
        const struct weir_rls_descriptor *d = &request->descriptors[i];
        service->questions[i].rule =
            service->rules
                ? weir_rls_rules_find(service->rules, request->domain,
                                      d->entries, d->entry_count)
                : NULL;
    }
}

/* The name of a descriptor that is asked; of one over the bound ('too_long')
 * its beginning. */
static struct weir_text make_name(struct weir_rls_service *service, uint32_t i)
{
    const struct weir_rls_request *request = &service->request;
    const struct weir_rls_descriptor *d = &request->descriptors[i];
    weir_assert(service->questions[i].asked);
    weir_rls_name_begin(&service->name, service->name_buf,
                        sizeof service->name_buf, request->domain);
    weir_rls_quota_name(service->questions[i].rule, d->entries, d->entry_count,
                        &service->name);
    return (struct weir_text){ service->name.buf, service->name.len };
}

static int judge_names(struct weir_rls_service *service, weir_instant now)
{
    const struct weir_rls_request *request = &service->request;
    int error = 0;
    for (uint32_t i = 0; i < request->count; i++) {
        struct question *question = &service->questions[i];
        question->asked =
            service->rules
                ? question->rule && !is_replaced(service, question->rule)
                : true;
        if (question->asked && error == 0 && !service->taker->identity.take.all)
            error =
                weir_protocol_may(service->host, service->taker,
                                  make_name(service, i), &service->diag, now);
    }
    return error;
}

/* ---- Decisions ---- */

/* The reply is of a peek at the rest. Both are at the current clock, not at
 * 'now': the first call may have created the bucket, and at an earlier instant
 * it would look fuller than it is. */
static void give_back(struct weir_rls_service *service, uint64_t hits,
                      struct weir_reply *out)
{
    struct weir *weir = service->host->weir;
    const struct weir_text name = { service->name.buf, service->name.len };
    (void)weir_refund_by_name(weir, name.p, name.len, hits, 0);
    (void)weir_peek_by_name(weir, name.p, name.len, 0, out, 0);
}

static void request_decision(struct weir_rls_service *service, uint64_t hits,
                             bool peek, struct weir_reply *out,
                             weir_instant now)
{
    const struct weir_protocol_request asked = { .name = { service->name.buf,
                                                           service->name.len },
                                                 .weight = hits,
                                                 .peek = peek,
                                                 .taker = service->taker };
    /* Escapes make every name valid. */
    if (weir_protocol_decide(service->host, &asked, out, NULL, peek ? 0 : now) <
        0)
        weir_protocol_limit(out);
}

/* ---- Costs afterwards ---- */

static uint64_t hash_keys(const struct weir_rls_service *service,
                          const struct weir_rls_descriptor *descriptor)
{
    uint64_t hash = weir_hash(service->request.domain, service->seed);
    for (size_t i = 0; i < descriptor->entry_count; i++)
        hash = weir_hash(descriptor->entries[i].key, hash);
    return hash ? hash : 1;
}

/* The place of a set of keys: its own, or else one to write over, of those
 * with the fewest peeks. */
static struct postpaid *find_postpaid(struct weir_rls_service *service,
                                      uint64_t hash)
{
    struct postpaid *fewest = &service->postpaid[hash % POSTPAID_MAX];
    for (uint64_t i = 0; i < POSTPAID_NEAR; i++) {
        struct postpaid *at =
            &service->postpaid[(hash % POSTPAID_MAX + i) % POSTPAID_MAX];
        if (at->hash == hash)
            return at;
        if (at->peeks < fewest->peeks)
            fewest = at;
    }
    return fewest;
}

static void note_peek(struct weir_rls_service *service,
                      const struct weir_rls_descriptor *descriptor)
{
    uint64_t hash = hash_keys(service, descriptor);
    struct postpaid *at = find_postpaid(service, hash);
    if (at->hash != hash)
        *at = (struct postpaid){ .hash = hash };
    if (at->peeks < POSTPAID_PEEKS)
        at->peeks++;
}

/* Whether a denied cost is a debt: one peek fewer. */
static bool take_peek(struct weir_rls_service *service,
                      const struct weir_rls_descriptor *descriptor)
{
    uint64_t hash = hash_keys(service, descriptor);
    struct postpaid *at = find_postpaid(service, hash);
    if (at->hash != hash || at->peeks == 0 ||
        !(descriptor->hits_given || service->request.hits > 0))
        return false;
    at->peeks--;
    return true;
}

/* The bucket that limits; false: none does, or a window. */
static bool view_bucket(const struct weir_rls_service *service,
                        const struct weir_reply *reply,
                        struct weir_limiter_view_reset *out)
{
    const struct weir_text quota = { reply->quota, reply->quota_len };
    return weir_limiter_view_reset(service->host->weir, quota, out,
                                   weir_clock_now()) &&
           !out->has_window;
}

/* Charges a cost that was denied, up to the bound of debt. */
static void charge_debt(struct weir_rls_service *service, uint64_t hits,
                        const struct weir_reply *reply)
{
    struct weir_limiter_view_reset view;
    if (!view_bucket(service, reply, &view))
        return;
    double room = 2 * view.high - view.fill;
    if (room >= 1)
        (void)weir_charge_by_name(
            service->host->weir, service->name.buf, service->name.len,
            (double)hits < room ? hits : (uint64_t)room, 0);
}

/* Whether the bucket that limits a peek isn't above its limit, but for
 * rounding: the part of its fill that a root sent is of another clock. */
static bool is_just_full(const struct weir_rls_service *service,
                         const struct weir_reply *reply)
{
    struct weir_limiter_view_reset view;
    return view_bucket(service, reply, &view) && view.fill < view.high + 0.5;
}

static void pass_peek(struct weir_reply *reply)
{
    reply->verdict = WEIR_PASSED;
    reply->never = false;
    reply->retry_after = 0;
    reply->remaining = 0;
}

static void note_big(const struct weir_rls_service *service, const char *why)
{
    weir_protocol_note(service->host, service->protocol, WEIR_PROTOCOL_TOO_BIG,
                       service->peer, why);
}

static void decide_descriptor(struct weir_rls_service *service, uint32_t i,
                              struct weir_reply *out, weir_instant now)
{
    const struct weir_rls_descriptor *d = &service->request.descriptors[i];
    uint64_t hits = weir_rls_hits(&service->request, d);
    memset(out, 0, sizeof *out);
    (void)make_name(service, i);
    if (service->name.too_long) {
        note_big(service, "the name of a descriptor is over 65536 bytes");
        weir_protocol_limit(out);
        return;
    }
    if (d->negative) {
        give_back(service, hits, out);
        out->verdict = WEIR_PASSED;
        return;
    }
    request_decision(service, hits, hits == 0, out, now);
    bool denied = out->verdict == WEIR_LIMITED && !out->stale;
    if (denied && hits > 0 && take_peek(service, d))
        charge_debt(service, hits, out);
    if (denied && hits == 0 && is_just_full(service, out))
        pass_peek(out);
    if (hits == 0 && out->verdict != WEIR_LIMITED)
        note_peek(service, d);
}

/* ---- Statuses ---- */

/* Converts a policy to Envoy's limit: requests per unit. If the policy's window
 * is a unit, the limit is its quantity. Otherwise it is the pace in the
 * smallest unit in which the pace is at least one request. */
static void set_status_limit(const struct weir_policy *policy,
                             struct weir_rls_status *status)
{
    static const enum weir_rls_unit units[] = {
        WEIR_RLS_SECOND, WEIR_RLS_MINUTE, WEIR_RLS_HOUR, WEIR_RLS_DAY,
        WEIR_RLS_WEEK,   WEIR_RLS_MONTH,  WEIR_RLS_YEAR,
    };
    uint64_t quantity = policy->quantity;
    for (size_t i = 0; i < WEIR_COUNT_OF(units); i++) {
        weir_duration length = weir_rls_unit_length(units[i]);
        weir_duration off = policy->window > length ? policy->window - length
                                                    : length - policy->window;
        double pace =
            (double)quantity * (double)length / (double)policy->window;
        bool same = off <= length / 1000;
        if (!same && (pace < 1 || policy->window > length) &&
            i + 1 < WEIR_COUNT_OF(units))
            continue;
        double units_of = same ? (double)quantity : pace;
        status->unit = units[i];
        status->requests_per_unit =
            units_of < UINT32_MAX ? (uint32_t)units_of : UINT32_MAX;
        return;
    }
}

static weir_duration ceil_seconds(double ns)
{
    double seconds = ns / (double)WEIR_SECOND;
    if (!(seconds > 1))
        return WEIR_SECOND;
    /* Cut at a year; also the duration of "never". */
    if (seconds > 366.0 * 86400)
        return 366 * 86400 * WEIR_SECOND;
    uint64_t whole = (uint64_t)seconds;
    return (whole + ((double)whole < seconds)) * WEIR_SECOND;
}

/* Until a limited request may pass. One that never can is given the window. */
static double wait_of(const struct weir_limiter_view_reset *view,
                      const struct weir_policy *policy, uint64_t hits)
{
    double above_high = view->fill + (double)hits - view->high;
    double above_low = view->fill - view->low;
    double above = above_high > above_low ? above_high : above_low;
    if ((double)hits > view->high || !(above > 0))
        return above > 0 ? (double)policy->window : 0;
    return above / view->per_s * (double)WEIR_SECOND;
}

/* A request for 'hits'. 'view': NULL if there is none. */
static void set_status_reset(const struct weir_rls_service *service,
                             const struct weir_policy *policy,
                             const struct weir_limiter_view_reset *view,
                             const struct weir_reply *reply, uint64_t hits,
                             struct weir_rls_status *status)
{
    bool over = reply->verdict == WEIR_LIMITED;
    double retry = reply->retry_after == WEIR_NEVER
                       ? (double)policy->window
                       : (double)reply->retry_after;
    double reset = 0;
    if (over && (service->options.jitter || !view || reply->stale))
        reset = retry;
    else if (view && view->has_window)
        reset = (double)view->window_end;
    else if (view && over)
        reset = wait_of(view, policy, hits);
    else if (view)
        reset = view->fill / view->per_s * (double)WEIR_SECOND;
    else if (policy->quantity > 0 && reply->fill > 0)
        reset = (double)reply->fill * (double)policy->window /
                (double)policy->quantity;
    status->reset_given = true;
    status->reset = ceil_seconds(reset);
}

static uint32_t cut_remaining(double units)
{
    return !(units > 0) ? 0 : units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;
}

/* A quota in mode shadow limits nothing, so a reply has no units left of it. */
static uint32_t shadow_remaining(const struct weir_policy *policy,
                                 const struct weir_limiter_view_reset *view,
                                 const struct weir_reply *reply)
{
    return cut_remaining(view->has_window
                             ? (double)policy->quantity - (double)reply->fill
                             : view->high - view->fill + ROUNDING);
}

/* The quota that a status is about: of the reply, or, if that has none, the
 * descriptor's own in mode shadow: its name is put into the reply. */
static bool find_view(struct weir_rls_service *service,
                      struct weir_reply *reply,
                      struct weir_limiter_view_reset *out)
{
    char kept[WEIR_NAME_MAX];
    struct weir_text name = { reply->quota, reply->quota_len };
    if (name.len == 0)
        name = weir_name_kept(
            (struct weir_text){ service->name.buf, service->name.len }, kept);
    if (!weir_limiter_view_reset(service->host->weir, name, out,
                                 weir_clock_now()))
        return false;
    if (reply->quota_len == 0 && out->mode == WEIR_SHADOW) {
        memcpy(reply->quota, name.p, name.len);
        reply->quota_len = (uint8_t)name.len;
    }
    return true;
}

/* 'service->name' is the descriptor's. */
static void fill_status(struct weir_rls_service *service,
                        const struct question *question, uint64_t hits,
                        struct weir_reply *reply,
                        struct weir_rls_status *status)
{
    bool over = reply->verdict == WEIR_LIMITED;
    struct weir_policy policy;
    struct weir_limiter_view_reset view;
    status->code = over ? WEIR_RLS_OVER_LIMIT : WEIR_RLS_OK;
    if (reply->unknown)
        return;
    bool viewed = find_view(service, reply, &view);
    if (!over && !reply->shadow)
        status->remaining = cut_remaining((double)reply->remaining);
    if (reply->quota_len == 0 ||
        weir_policy(service->host->weir, reply->quota, reply->quota_len,
                    &policy) < 0 ||
        policy.concurrency)
        return;
    status->limit_given = true;
    status->name =
        question->rule ? question->rule->name : (struct weir_text){ NULL, 0 };
    if (policy.window > 0)
        set_status_limit(&policy, status);
    else if (question->rule)
        status->unit = question->rule->unit; /* it allows nothing */
    if (viewed && view.mode == WEIR_SHADOW && status->remaining > 0)
        status->remaining = shadow_remaining(&policy, &view, reply);
    set_status_reset(service, &policy, viewed ? &view : NULL, reply, hits,
                     status);
}

/* Limits in quota mode refuse only if all of them are over. */
static enum weir_rls_code overall(const struct weir_rls_service *service)
{
    uint32_t quotas = 0;
    uint32_t quotas_over = 0;
    for (uint32_t i = 0; i < service->request.count; i++) {
        const struct question *question = &service->questions[i];
        bool over = service->statuses[i].code == WEIR_RLS_OVER_LIMIT;
        bool quota =
            question->asked && question->rule && question->rule->quota_mode;
        if (over && !quota)
            return WEIR_RLS_OVER_LIMIT;
        quotas += quota;
        quotas_over += quota && over;
    }
    return quotas > 0 && quotas_over == quotas ? WEIR_RLS_OVER_LIMIT
                                               : WEIR_RLS_OK;
}

/* ---- Headers ---- */

/* The last status that is over its limit, else the one with the least left. */
static const struct weir_rls_status *nearest(
    const struct weir_rls_service *service)
{
    const struct weir_rls_status *found = NULL;
    for (uint32_t i = 0; i < service->request.count; i++) {
        const struct weir_rls_status *status = &service->statuses[i];
        bool over = status->code == WEIR_RLS_OVER_LIMIT;
        bool found_over = found && found->code == WEIR_RLS_OVER_LIMIT;
        if (status->limit_given &&
            (!found || over ||
             (!found_over && status->remaining < found->remaining)))
            found = status;
    }
    return found;
}

static void add_header(struct weir_rls_service *service, const char *key,
                       const char *value)
{
    weir_assert(service->answer.header_count < WEIR_RLS_HEADERS_MAX);
    service->headers[service->answer.header_count++] =
        (struct weir_rls_header){ weir_text_of(key), weir_text_of(value) };
}

static void write_plain_headers(struct weir_rls_service *service,
                                const struct weir_rls_status *status)
{
    static const char *const keys[] = { "RateLimit-Limit",
                                        "RateLimit-Remaining",
                                        "RateLimit-Reset" };
    const uint64_t values[] = { status->requests_per_unit, status->remaining,
                                status->reset / WEIR_SECOND };
    for (size_t i = 0; i < WEIR_COUNT_OF(keys); i++) {
        snprintf(service->header_values[i], WEIR_RLS_HEADER_VALUE_MAX, "%llu",
                 (unsigned long long)values[i]);
        add_header(service, keys[i], service->header_values[i]);
    }
}

/* Writes a name as a String of structured fields. */
static void write_policy_name(struct weir_text name, char out[SHOWN_MAX + 1])
{
    size_t len = name.len < SHOWN_MAX ? name.len : SHOWN_MAX;
    for (size_t i = 0; i < len; i++) {
        char c = name.p[i];
        out[i] = c >= ' ' && c <= '~' && c != '"' && c != '\\' ? c : '_';
    }
    out[len] = '\0';
    if (len == 0)
        memcpy(out, "default", sizeof "default");
}

static void write_ietf_headers(struct weir_rls_service *service,
                               const struct weir_rls_status *status)
{
    char name[SHOWN_MAX + 1];
    unsigned long long reset = status->reset / WEIR_SECOND;
    unsigned long long window =
        weir_rls_unit_length(status->unit) / WEIR_SECOND;
    write_policy_name(status->name, name);
    snprintf(service->header_values[0], WEIR_RLS_HEADER_VALUE_MAX,
             "\"%s\";q=%u;w=%llu", name, status->requests_per_unit, window);
    snprintf(service->header_values[1], WEIR_RLS_HEADER_VALUE_MAX,
             "\"%s\";r=%u;t=%llu", name, status->remaining, reset);
    snprintf(service->header_values[2], WEIR_RLS_HEADER_VALUE_MAX, "%llu",
             reset);
    if (window > 0)
        add_header(service, "RateLimit-Policy", service->header_values[0]);
    add_header(service, "RateLimit", service->header_values[1]);
    if (service->answer.code == WEIR_RLS_OVER_LIMIT)
        add_header(service, "Retry-After", service->header_values[2]);
}

static void write_headers(struct weir_rls_service *service)
{
    const struct weir_rls_status *status = nearest(service);
    if (!status)
        return;
    switch (service->options.headers) {
    case WEIR_RLS_HEADERS_NONE:
        return;
    case WEIR_RLS_HEADERS_LIMIT:
        write_plain_headers(service, status);
        return;
    case WEIR_RLS_HEADERS_IETF:
        write_ietf_headers(service, status);
        return;
    }
}

/* ---- A call ---- */

static enum weir_rls_outcome outcome_of(const struct weir_reply *reply)
{
    return reply->verdict == WEIR_LIMITED ? WEIR_RLS_OUTCOME_OVER
           : reply->shadow                ? WEIR_RLS_OUTCOME_SHADOW
           : reply->unknown               ? WEIR_RLS_OUTCOME_UNKNOWN
                                          : WEIR_RLS_OUTCOME_OK;
}

static void decide_all(struct weir_rls_service *service, weir_instant now)
{
    for (uint32_t i = 0; i < service->request.count; i++) {
        struct weir_rls_status *status = &service->statuses[i];
        struct weir_reply reply;
        *status = (struct weir_rls_status){ .code = WEIR_RLS_OK };
        service->questions[i].outcome = WEIR_RLS_OUTCOME_UNKNOWN;
        if (!service->questions[i].asked)
            continue;
        decide_descriptor(service, i, &reply, now);
        fill_status(
            service, &service->questions[i],
            weir_rls_hits(&service->request, &service->request.descriptors[i]),
            &reply, status);
        service->questions[i].outcome = outcome_of(&reply);
    }
}

/* ---- Metadata and counts ---- */

/* The indexes of descriptors that a quota in mode shadow would have limited. */
static void add_shadow_metadata(struct weir_rls_service *service)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < service->request.count; i++)
        if (service->questions[i].outcome == WEIR_RLS_OUTCOME_SHADOW)
            json_array_append_new(list, json_integer(i));
    if (json_array_size(list) > 0)
        json_object_set(service->metadata, "shadowOverLimit", list);
    json_decref(list);
}

/* Of the limits that the request passed; an unlimited one has none. */
static void add_metadata(struct weir_rls_service *service)
{
    service->metadata = weir_rls_metadata_new(&service->request);
    for (uint32_t i = 0; i < service->request.count; i++) {
        const struct question *question = &service->questions[i];
        if (question->asked && question->rule && question->rule->metadata &&
            question->rule->unit != WEIR_RLS_NO_UNIT &&
            service->statuses[i].code == WEIR_RLS_OK)
            weir_rls_metadata_merge(service->metadata,
                                    question->rule->metadata);
    }
    add_shadow_metadata(service);
    size_t len = weir_rls_metadata_encode(
        service->metadata, service->metadata_bytes, WEIR_RLS_METADATA_MAX);
    service->answer.metadata =
        (struct weir_text){ (const char *)service->metadata_bytes, len };
}

static void count_answer(const struct weir_rls_service *service)
{
    struct weir_protocol_counts *counts = service->host->counts;
    if (!counts)
        return;
    counts->rls_calls[service->answer.code == WEIR_RLS_OVER_LIMIT]++;
    for (size_t i = 0; i < service->answer.count; i++)
        counts->rls_descriptors[service->questions[i].outcome]++;
}

/* Fills the answer to a request over a bound: limited, without statuses. */
static void limit_call(struct weir_rls_service *service, const char *why)
{
    note_big(service, why);
    service->answer = (struct weir_rls_answer){
        .code = service->options.shadow ? WEIR_RLS_OK : WEIR_RLS_OVER_LIMIT,
        .statuses = service->statuses,
        .headers = service->headers,
    };
    count_answer(service);
}

/* Notes a call that gets no answer; returns its status. */
static int refuse_call(struct weir_rls_service *service, int error)
{
    weir_protocol_note_refused(service->host, service->protocol, error,
                               service->peer, service->diag.text);
    return error == WEIR_EDENIED     ? WEIR_GRPC_PERMISSION_DENIED
           : error == WEIR_ENOTREADY ? WEIR_GRPC_UNAVAILABLE
                                     : WEIR_GRPC_INVALID_ARGUMENT;
}

/* Decides the request that was read and fills the answer, or returns a status
 * if reading ('error') or judging failed. */
static int decide_call(struct weir_rls_service *service, int error,
                       weir_instant now)
{
    weir_assert(service->taker);
    json_decref(service->metadata);
    service->metadata = NULL;
    if (error == WEIR_ETOOBIG) {
        limit_call(service, service->diag.text);
        return WEIR_GRPC_OK;
    }
    if (error == 0)
        error = weir_protocol_check_start(service->host, &service->diag);
    if (error == 0) {
        weir_assert(service->request.count <= WEIR_RLS_DESCRIPTORS_MAX);
        find_rules(service);
        error = judge_names(service, now);
    }
    if (error < 0)
        return refuse_call(service, error);
    decide_all(service, now);
    service->answer = (struct weir_rls_answer){
        .code = service->options.shadow ? WEIR_RLS_OK : overall(service),
        .count = service->request.count,
        .statuses = service->statuses,
        .headers = service->headers,
    };
    if (service->options.headers != WEIR_RLS_HEADERS_NONE)
        write_headers(service);
    if (service->options.metadata)
        add_metadata(service);
    count_answer(service);
    return WEIR_GRPC_OK;
}

static struct weir_text encode_answer(struct weir_rls_service *service)
{
    return (
        struct weir_text){ (const char *)service->out,
                           weir_rls_encode(&service->answer, service->out) };
}

int weir_rls_service_answer(struct weir_rls_service *service,
                            const struct weir_protocol_taker *taker,
                            const char *peer, struct weir_text message,
                            struct weir_text *out, weir_instant now)
{
    service->taker = taker;
    service->protocol = WEIR_PROTOCOL_RLS;
    service->peer = peer;
    int error = weir_rls_decode(message.p, message.len, &service->arena,
                                &service->request, &service->diag);
    int status = decide_call(service, error, now);
    *out = status == WEIR_GRPC_OK ? encode_answer(service)
                                  : weir_text_of(service->diag.text);
    return status;
}

struct weir_text weir_rls_service_answer_big(struct weir_rls_service *service,
                                             const char *peer, const char *why)
{
    service->protocol = WEIR_PROTOCOL_RLS;
    service->peer = peer;
    limit_call(service, why);
    return encode_answer(service);
}

int weir_rls_service_answer_json(struct weir_rls_service *service,
                                 const struct weir_protocol_taker *taker,
                                 json_t *asked, json_t **out, bool *out_over,
                                 struct weir_text *out_why, weir_instant now)
{
    service->taker = taker;
    service->protocol = WEIR_PROTOCOL_HTTP;
    service->peer = taker->address;
    int error = weir_rls_from_json(asked, &service->arena, &service->request,
                                   &service->diag);
    int status = decide_call(service, error, now);
    *out = NULL;
    *out_over = false;
    *out_why = weir_text_of(service->diag.text);
    if (status != WEIR_GRPC_OK)
        return status;
    *out = weir_rls_to_json(&service->answer, service->metadata);
    *out_over = service->answer.code == WEIR_RLS_OVER_LIMIT;
    *out_why = weir_text_of(weir_strerror(WEIR_ENOMEM));
    return *out ? WEIR_GRPC_OK : WEIR_GRPC_RESOURCE_EXHAUSTED;
}

json_t *weir_rls_service_answer_big_json(struct weir_rls_service *service,
                                         const char *peer, const char *why,
                                         bool *out_over)
{
    service->protocol = WEIR_PROTOCOL_HTTP;
    service->peer = peer;
    limit_call(service, why);
    *out_over = service->answer.code == WEIR_RLS_OVER_LIMIT;
    return weir_rls_to_json(&service->answer, NULL);
}

/* ---- Life ---- */

struct weir_rls_service *weir_rls_service_new(
    const struct weir_protocol_host *host,
    const struct weir_rls_options *options)
{
    struct weir_rls_service *service = calloc(1, sizeof *service);
    if (!service)
        return NULL;
    service->host = host;
    service->options = *options;
    service->seed = weir_clock_wall() ^ (uintptr_t)service;
    service->arena =
        (struct weir_arena){ service->memory, sizeof service->memory, 0 };
    return service;
}

void weir_rls_service_free(struct weir_rls_service *service)
{
    if (service)
        json_decref(service->metadata);
    free(service);
}

void weir_rls_service_set_rules(struct weir_rls_service *service,
                                const struct weir_rls_rules *rules)
{
    service->rules = rules;
}
