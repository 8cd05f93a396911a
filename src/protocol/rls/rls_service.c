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
 *     until its window ends. A bucket has no such end: a client that is refused
 *     often would never pass again. Here a denied hit of several units takes
 *     the units that are left and no more: a cost known only afterwards (tokens
 *     of a language model) empties the bucket, and a request of no hits sees
 *     that. A quota in windows with count_limited=yes counts as the original.
 *   - A request of no hits is over the limit in the original if more than the
 *     limit was counted, here if not one hit would pass.
 *   - duration_until_reset of a refused hit is the time until it may pass, of a
 *     passed one the time until the bucket is full again. In seconds, rounded
 *     up, since Envoy shows whole ones.
 *
 * A client's own limit (`limit` of a descriptor) is ignored: a client that
 * could set its limit could set a large one. The quota of the descriptor's name
 * decides. */

#include "protocol/rls/rls_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/h2.h"

#define SHOWN_MAX 64 /* bytes of a policy's name in headers */

/* A descriptor and its quota's name. */
struct question {
    const struct weir_rls_rule *rule; /* NULL: no rules, or none matches */
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

/* Gives 'hits' back, or charges them without a decision; then peeks at the
 * rest. It passes 0 as the time, for the current clock: opening the handle may
 * have created the bucket just now, and at an earlier instant the bucket would
 * look fuller than it is. */
static void move_units(struct weir_rls_service *service, uint64_t hits,
                       bool back, struct weir_reply *out)
{
    struct weir_handle handle;
    struct weir_text name = { service->name.buf, service->name.len };
    int error =
        weir_handle_open(service->host->weir, name.p, name.len, &handle);
    /* Without room the rest of the chain decides. Another process may have the
     * table's lock: the units are left out then. */
    if (error < 0 && error != WEIR_EFULL) {
        if (out)
            (void)weir_peek_by_name(service->host->weir, name.p, name.len, 0,
                                    out, 0);
        return;
    }
    if (back)
        weir_refund(handle, hits, 0);
    else
        weir_charge(handle, hits, 0);
    if (out)
        (void)weir_peek(handle, 0, out, 0);
    weir_handle_close(handle);
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

/* Takes the units that are left, though they aren't enough. */
static void take_rest(struct weir_rls_service *service)
{
    struct weir_reply left;
    request_decision(service, 0, true, &left, 0);
    if (left.verdict == WEIR_PASSED && left.remaining > 0 &&
        left.remaining <= WEIR_WEIGHT_MAX)
        move_units(service, left.remaining, false, NULL);
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
        move_units(service, hits, true, out);
        out->verdict = WEIR_PASSED;
        return;
    }
    request_decision(service, hits > 0 ? hits : 1, hits == 0, out, now);
    if (out->verdict == WEIR_LIMITED && hits > 1 && !out->stale)
        take_rest(service);
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

/* A request that can never pass gets one window as its reset time. */
static void set_status_reset(const struct weir_policy *policy,
                             const struct weir_reply *reply,
                             struct weir_rls_status *status)
{
    double window = (double)policy->window;
    double reset = 0;
    if (reply->verdict == WEIR_LIMITED)
        reset = reply->retry_after == WEIR_NEVER ? window
                                                 : (double)reply->retry_after;
    else if (policy->quantity > 0 && reply->fill > 0)
        reset = (double)reply->fill * window / (double)policy->quantity;
    status->reset_given = true;
    status->reset = ceil_seconds(reset);
}

static void fill_status(const struct weir_rls_service *service,
                        const struct question *question,
                        const struct weir_reply *reply,
                        struct weir_rls_status *status)
{
    bool over = reply->verdict == WEIR_LIMITED;
    bool left = !over && !reply->shadow;
    struct weir_policy policy;
    status->code = over ? WEIR_RLS_OVER_LIMIT : WEIR_RLS_OK;
    if (reply->unknown || reply->quota_len == 0)
        return;
    if (left)
        status->remaining = reply->remaining < UINT32_MAX
                                ? (uint32_t)reply->remaining
                                : UINT32_MAX;
    if (weir_policy(service->host->weir, reply->quota, reply->quota_len,
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
    set_status_reset(&policy, reply, status);
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

static void decide_all(struct weir_rls_service *service, weir_instant now)
{
    for (uint32_t i = 0; i < service->request.count; i++) {
        struct weir_rls_status *status = &service->statuses[i];
        struct weir_reply reply;
        *status = (struct weir_rls_status){ .code = WEIR_RLS_OK };
        if (!service->questions[i].asked)
            continue;
        decide_descriptor(service, i, &reply, now);
        fill_status(service, &service->questions[i], &reply, status);
    }
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
    *out = weir_rls_to_json(&service->answer);
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
    return weir_rls_to_json(&service->answer);
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
    service->arena =
        (struct weir_arena){ service->memory, sizeof service->memory, 0 };
    return service;
}

void weir_rls_service_free(struct weir_rls_service *service)
{
    free(service);
}

void weir_rls_service_set_rules(struct weir_rls_service *service,
                                const struct weir_rls_rules *rules)
{
    service->rules = rules;
}
