/* SPDX-License-Identifier: MIT
 * protocol/http_take/http_take_decide.c - POST /v1/take, /v1/charge,
 * /v1/settle, /json, /v1/enter and /v1/leave: requests for decisions, and
 * replies, in JSON.
 *
 *     {"name": "s3/put", "weight": 2, "peek": false}
 *     {"requests": [{"name": "a"}, {"name": "b", "weight": 3}]}
 *
 * A list has 200 and a verdict for each request; they are independent, and a
 * refused one undoes no other.
 *
 * POST /json is Envoy's rate limit service over HTTP, at the same path as in
 * envoyproxy/ratelimit, so that its clients can use Weir: 200 or 429 by the
 * overall verdict, with the answer in either case; 400 for every invalid
 * request, as in the original; 403 if the credential may not take from one of
 * the quotas. Unlike the original's, the answer names the error, and methods
 * other than POST are refused.
 *
 * A single decision is in the status too (200 or 429) and in the headers of
 * draft-ietf-httpapi-ratelimit-headers-10: RateLimit-Policy names the quota
 * that decided, RateLimit has its remaining units.
 *
 * Structured fields are ASCII (RFC 9651), quotas' names are UTF-8: bytes that
 * aren't ASCII are sent as %XX there.
 *
 * Costs that are known afterwards; the answer is the receipt, for the next
 * settlement of the same work:
 *
 *     {"name": "s3/bytes", "weight": 300000}                -> {"charged": …}
 *     {"name": "tokens", "charged": 2000, "actual": 640}    -> {"charged": …}
 *
 * Permits:
 *
 *     {"name": "db", "weight": 2, "class": "bulk"}    -> {…, "permit": 7}
 *     {"permit": 7, "outcome": "success"}             -> {"left": true}
 *
 * A permit belongs to its connection: when a client dies its connections
 * end, and its permits are given back at once. No keep-alive requests are
 * needed, and no timeout takes a live client for dead. A permit's number is
 * invalid on another connection.
 *
 * A proxy may send requests of several takers on one connection. Therefore a
 * permit stores its taker, and only that taker can give it back before the
 * connection ends.
 *
 * An enter that holds nothing (a quota of kind rate, or none) gets no
 * number. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"
#include "io/clock.h"
#include "io/h2.h"
#include "protocol/http_take/http_take_internal.h"

#define EXCEEDED \
    "https://iana.org/assignments/http-problem-types#quota-exceeded"
#define INTEGER_MAX 999999999999999u /* largest integer of RFC 9651 */
/* Each byte as %XX, two quotes, a NUL. */
#define FIELD_MAX (3 * WEIR_NAME_MAX + 3)

/* ---- Problems ---- */

static void write_problem(struct weir_http_reply *reply, int status,
                          const char *type, const char *title,
                          const char *detail)
{
    weir_assert(status >= 400 && status < 600);
    json_decref(reply->json);
    reply->status = status;
    reply->type = "application/problem+json";
    /* A detail that quotes a peer's bytes may be cut within a character; then
     * it is no valid JSON text. */
    json_t *text = json_string(detail);
    reply->json =
        json_pack("{s:s, s:s, s:i, s:o}", "type", type, "title", title,
                  "status", status, "detail", text ? text : json_string(title));
}

void weir_http_take_problem(struct weir_http_reply *reply, int status,
                            const char *detail)
{
    write_problem(reply, status, "about:blank", weir_http1_reason(status),
                  detail);
}

/* Replies 400 with 'detail'; returns -1. */
static int refuse_as_invalid(const struct weir_http_take_call *call,
                             const char *detail)
{
    weir_protocol_note(call->api->host, WEIR_PROTOCOL_HTTP,
                       WEIR_PROTOCOL_INVALID, call->visitor->taker.address,
                       detail);
    weir_http_take_problem(call->reply, 400, detail);
    return -1;
}

/* Replies to an error of weir_protocol_decide() or the like: 403, or 400. */
static void refuse_decision(const struct weir_http_take_call *call, int error,
                            const char *detail)
{
    weir_protocol_note_refused(call->api->host, WEIR_PROTOCOL_HTTP, error,
                               call->visitor->taker.address, detail);
    weir_http_take_problem(call->reply,
                           error == WEIR_EDENIED     ? 403
                           : error == WEIR_ENOTREADY ? 503
                                                     : 400,
                           detail);
}

/* ---- Requests ---- */

static int refuse_member(const struct weir_http_take_call *call,
                         const char *name)
{
    char text[160];
    snprintf(text, sizeof text,
             "there is no member \"%.60s\": a request has name, weight and "
             "peek; a list of them is requests",
             name);
    return refuse_as_invalid(call, text);
}

/* Reads a request for a decision; 0, or -1, and the reply is a problem. */
static int read_decision_request(const struct weir_http_take_call *call,
                                 json_t *from,
                                 struct weir_protocol_request *out)
{
    const char *key;
    json_t *value;
    json_t *name = json_object_get(from, "name");
    json_t *weight = json_object_get(from, "weight");
    json_t *peek = json_object_get(from, "peek");
    json_object_foreach(
        from, key, value) if (value != name && value != weight &&
                              value != peek) return refuse_member(call, key);
    if (!json_is_string(name))
        return refuse_as_invalid(call, "a request is an object with a name: "
                                       "{\"name\": \"site\"}");
    bool is_weight = json_is_integer(weight) &&
                     json_integer_value(weight) >= 0 &&
                     json_integer_value(weight) <= (json_int_t)WEIR_WEIGHT_MAX;
    if (weight && !is_weight)
        return refuse_as_invalid(
            call, "a weight is a whole number from 0 to 4294967296");
    if (peek && !json_is_boolean(peek))
        return refuse_as_invalid(call, "peek is true or false");
    *out = (struct weir_protocol_request){
        .name = { json_string_value(name), json_string_length(name) },
        .weight = weight ? (uint64_t)json_integer_value(weight) : 1,
        .peek = json_is_true(peek),
        .taker = &call->visitor->taker,
    };
    return 0;
}

/* ---- Replies ---- */

static uint64_t to_steps(weir_duration duration, weir_duration step)
{
    return duration / step + (duration % step > 0);
}

static void set_if(json_t *to, const char *name, bool value)
{
    if (value)
        json_object_set_new(to, name, json_true());
}

/* Adds a decision's values to the object 'to'. */
static void add_verdict(json_t *to, const struct weir_reply *reply)
{
    bool limited = reply->verdict == WEIR_LIMITED;
    json_object_set_new(to, "verdict",
                        json_string(limited ? "limited" : "passed"));
    if (reply->quota_len > 0)
        json_object_set_new(to, "quota",
                            json_stringn(reply->quota, reply->quota_len));
    /* A larger number is as good as unlimited. */
    if (!reply->unknown && reply->remaining <= INT64_MAX)
        json_object_set_new(to, "remaining",
                            json_integer((json_int_t)reply->remaining));
    bool has_end = limited && !reply->never && reply->retry_after != WEIR_NEVER;
    if (has_end)
        json_object_set_new(to, "retry_after_ms",
                            json_integer((json_int_t)to_steps(
                                reply->retry_after, WEIR_MILLISECOND)));
    set_if(to, "never", limited && reply->never);
    set_if(to, "unknown", reply->unknown);
    set_if(to, "full", reply->full);
    set_if(to, "stale", reply->stale);
    set_if(to, "contended", reply->contended);
    set_if(to, "shadow", reply->shadow);
}

/* A name as a String of RFC 9651. */
static void quote_name(const struct weir_reply *reply, char out[FIELD_MAX])
{
    static const char digits[] = "0123456789ABCDEF";
    char *at = out;
    *at++ = '"';
    for (size_t i = 0; i < reply->quota_len; i++) {
        unsigned char c = (unsigned char)reply->quota[i];
        if (c >= ' ' && c <= '~' && c != '"' && c != '\\' && c != '%') {
            *at++ = (char)c;
            continue;
        }
        *at++ = '%';
        *at++ = digits[c >> 4];
        *at++ = digits[c & 15];
    }
    *at++ = '"';
    *at = '\0';
}

static void add_old_headers(struct weir_http_reply *to, uint64_t quantity,
                            uint64_t remaining, uint64_t wait_s)
{
    weir_http_add_header(to, "X-RateLimit-Limit", "%" PRIu64, quantity);
    weir_http_add_header(to, "X-RateLimit-Remaining", "%" PRIu64, remaining);
    weir_http_add_header(to, "X-RateLimit-Reset", "%" PRIu64, wait_s);
}

static void add_headers(const struct weir_http_take_call *call,
                        const struct weir_reply *reply, bool old_headers)
{
    struct weir_policy policy;
    char name[FIELD_MAX];
    char window[32] = "";
    char wait[32] = "";
    bool limited = reply->verdict == WEIR_LIMITED;
    bool waits = limited && !reply->never && reply->retry_after != WEIR_NEVER;
    uint64_t wait_s = waits ? to_steps(reply->retry_after, WEIR_SECOND) : 0;
    if (waits)
        weir_http_add_header(call->reply, "Retry-After", "%" PRIu64, wait_s);
    if (weir_policy(call->api->host->weir, reply->quota, reply->quota_len,
                    &policy) < 0)
        return;
    quote_name(reply, name);
    if (policy.quantity > INTEGER_MAX)
        policy.quantity = INTEGER_MAX;
    if (policy.window > 0)
        snprintf(window, sizeof window, ";w=%" PRIu64,
                 to_steps(policy.window, WEIR_SECOND));
    if (waits)
        snprintf(wait, sizeof wait, ";t=%" PRIu64, wait_s);
    uint64_t remaining =
        reply->remaining < policy.quantity ? reply->remaining : policy.quantity;
    weir_http_add_header(call->reply, "RateLimit-Policy",
                         "%s;q=%" PRIu64 "%s%s", name, policy.quantity, window,
                         policy.concurrency ? ";qu=\"concurrent-requests\""
                                            : "");
    weir_http_add_header(call->reply, "RateLimit", "%s;r=%" PRIu64 "%s", name,
                         remaining, wait);
    if (old_headers)
        add_old_headers(call->reply, policy.quantity, remaining,
                        waits ? wait_s : to_steps(policy.window, WEIR_SECOND));
}

static void write_refusal(const struct weir_http_take_call *call,
                          const struct weir_reply *reply)
{
    char detail[WEIR_NAME_MAX + 96];
    if (reply->quota_len == 0 && reply->never)
        snprintf(detail, sizeof detail,
                 "the name is too long for its quota: weir-quota(5), Long "
                 "names");
    else if (reply->quota_len == 0 && reply->full)
        snprintf(detail, sizeof detail,
                 "the table has no room for the name's quota, and refuses it: "
                 "on_full in weir-agent(8)");
    else
        snprintf(detail, sizeof detail,
                 reply->never
                     ? "the weight is more than %s ever lets pass at once"
                     : "%s has no room for it now",
                 reply->quota_len > 0 ? reply->quota : "the quota");
    write_problem(call->reply, 429, EXCEEDED, "Quota exceeded", detail);
    if (!call->reply->json)
        return;
    if (reply->quota_len > 0)
        json_object_set_new(
            call->reply->json, "violated-policies",
            json_pack("[o]", json_stringn(reply->quota, reply->quota_len)));
    add_verdict(call->reply->json, reply);
}

/* Writes a decision: the status, the body and the headers. 'old_headers': with
 * X-RateLimit-…. */
static void write_decision(const struct weir_http_take_call *call,
                           const struct weir_reply *reply, bool old_headers)
{
    weir_assert(!call->reply->json);
    if (reply->verdict == WEIR_LIMITED) {
        write_refusal(call, reply);
    } else {
        call->reply->json = json_object();
        add_verdict(call->reply->json, reply);
    }
    add_headers(call, reply, old_headers);
}

void weir_http_take_limit(const struct weir_http_take_call *call,
                          const char *why)
{
    struct weir_reply reply;
    weir_protocol_limit(&reply);
    weir_protocol_note(call->api->host, WEIR_PROTOCOL_HTTP,
                       WEIR_PROTOCOL_TOO_BIG, call->visitor->taker.address,
                       why);
    write_problem(call->reply, 429, EXCEEDED, "Quota exceeded", why);
    if (call->reply->json)
        add_verdict(call->reply->json, &reply);
}

/* ---- Takes ---- */

/* The old headers are sent only to a client that requests them. */
static bool wants_old_headers(struct weir_text target)
{
    static const char asked[] = "?x-ratelimit=1";
    size_t len = sizeof asked - 1;
    return target.len > len &&
           memcmp(target.p + target.len - len, asked, len) == 0;
}

static void take_one(const struct weir_http_take_call *call, json_t *from)
{
    struct weir_protocol_request ask;
    struct weir_reply reply;
    struct weir_diag diag = { 0 };
    if (read_decision_request(call, from, &ask) < 0)
        return;
    int error =
        weir_protocol_decide(call->api->host, &ask, &reply, &diag, call->now);
    if (error < 0) {
        refuse_decision(call, error, diag.text);
        return;
    }
    write_decision(call, &reply,
                   wants_old_headers(call->http->request->target));
}

/* All requests are read before the first is decided: a list with an error
 * charges nothing. */
static void take_list(const struct weir_http_take_call *call, json_t *requests)
{
    struct weir_protocol_request read[WEIR_HTTP_TAKE_REQUESTS_MAX];
    struct weir_diag diag = { 0 };
    size_t count = json_array_size(requests);
    if (count > WEIR_HTTP_TAKE_REQUESTS_MAX) {
        refuse_as_invalid(call, "a list has at most 256 requests");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (read_decision_request(call, json_array_get(requests, i), &read[i]) <
            0)
            return;
        int error =
            weir_protocol_check(call->api->host, &read[i], &diag, call->now);
        if (error < 0) {
            refuse_decision(call, error, diag.text);
            return;
        }
    }
    json_t *replies = json_array();
    for (size_t i = 0; i < count; i++) {
        struct weir_reply reply;
        (void)weir_protocol_decide(call->api->host, &read[i], &reply, &diag,
                                   call->now);
        json_t *one = json_object();
        add_verdict(one, &reply);
        json_array_append_new(replies, one);
    }
    call->reply->json = json_pack("{s:o}", "replies", replies);
}

void weir_http_take_decide(const struct weir_http_take_call *call,
                           json_t *asked)
{
    json_t *requests = json_object_get(asked, "requests");
    if (json_is_array(requests) && json_object_size(asked) == 1)
        take_list(call, requests);
    else
        take_one(call, asked);
}

/* ---- Costs ---- */

/* A member that is a number of units; false: it isn't. */
static bool read_units(json_t *from, const char *name, uint64_t *out)
{
    json_t *units = json_object_get(from, name);
    if (!json_is_integer(units) || json_integer_value(units) < 0 ||
        json_integer_value(units) > (json_int_t)WEIR_DEBT_MAX)
        return false;
    *out = (uint64_t)json_integer_value(units);
    return true;
}

static void settle_one(const struct weir_http_take_call *call, json_t *from,
                       uint64_t charged, uint64_t actual)
{
    json_t *name = json_object_get(from, "name");
    struct weir_protocol_request ask = {
        .name = { json_string_value(name), json_string_length(name) },
        .taker = &call->visitor->taker,
    };
    struct weir_diag diag = { 0 };
    bool unknown = false;
    int error = weir_protocol_settle(call->api->host, &ask, &charged, actual,
                                     &unknown, &diag, call->now);
    if (error < 0) {
        refuse_decision(call, error, diag.text);
        return;
    }
    call->reply->json = json_pack("{s:I}", "charged", (json_int_t)charged);
    if (call->reply->json)
        set_if(call->reply->json, "unknown", unknown);
}

void weir_http_take_charge(const struct weir_http_take_call *call, json_t *from)
{
    uint64_t units;
    if (json_object_size(from) == 2 &&
        json_is_string(json_object_get(from, "name")) &&
        read_units(from, "weight", &units))
        settle_one(call, from, 0, units);
    else
        refuse_as_invalid(call, "a charge has a name and a weight, a whole "
                                "number from 0 to 1099511627776");
}

void weir_http_take_settle(const struct weir_http_take_call *call, json_t *from)
{
    uint64_t charged, actual;
    if (json_object_size(from) == 3 &&
        json_is_string(json_object_get(from, "name")) &&
        read_units(from, "charged", &charged) &&
        read_units(from, "actual", &actual))
        settle_one(call, from, charged, actual);
    else
        refuse_as_invalid(call, "a settlement has a name, the units charged so "
                                "far, and the actual ones: whole numbers from "
                                "0 to 1099511627776");
}

/* ---- Envoy's service ---- */

void weir_http_take_rls(const struct weir_http_take_call *call, json_t *asked)
{
    struct weir_http_reply *reply = call->reply;
    struct weir_text why;
    bool over;
    int status = weir_rls_service_answer_json(
        call->api->service, &call->visitor->taker, asked, &reply->json, &over,
        &why, call->now);
    if (!reply->json)
        weir_http_take_problem(reply,
                               status == WEIR_GRPC_PERMISSION_DENIED ? 403
                               : status == WEIR_GRPC_UNAVAILABLE     ? 503
                                                                     : 400,
                               why.p);
    else if (over)
        reply->status = 429;
}

void weir_http_take_rls_limit(const struct weir_http_take_call *call,
                              const char *why)
{
    bool over;
    call->reply->json = weir_rls_service_answer_big_json(
        call->api->service, call->visitor->taker.address, why, &over);
    if (!call->reply->json)
        weir_http_take_problem(call->reply, 503, weir_strerror(WEIR_ENOMEM));
    else if (over)
        call->reply->status = 429;
}

/* ---- Permits of a connection ---- */

struct weir_http_take_record {
    uint64_t number; /* 0: free */
    uint64_t owner;  /* owner_of() its taker */
    struct weir_permit permit;
};

/* The taker's identity, hashed. The operator chooses identities, so clients
 * can't make two collide. Without credentials in force all takers have the same
 * identity. */
static uint64_t owner_of(const struct weir_protocol_taker *taker)
{
    return weir_hash(weir_text_of(taker->identity.name), 0);
}

static struct weir_http_take_record *find_record(
    struct weir_http_take_permits *permits, uint64_t number)
{
    for (size_t i = 0; i < permits->room; i++)
        if (permits->held[i].number == number)
            return &permits->held[i];
    return NULL;
}

static struct weir_http_take_record *find_room(
    struct weir_http_take_permits *permits)
{
    if (permits->count == WEIR_HTTP_TAKE_PERMITS_MAX)
        return NULL;
    struct weir_http_take_record *held =
        weir_mem_grow(&weir_mem_system, permits->held, sizeof *held,
                      &permits->room, permits->count + 1);
    if (!held)
        return NULL;
    permits->held = held;
    weir_assert(permits->count < permits->room);
    return find_record(permits, 0);
}

static void leave_record(struct weir_http_take_permits *permits,
                         struct weir_http_take_record *held,
                         enum weir_permit_outcome outcome, weir_instant now)
{
    weir_assert(held->number != 0 && permits->count > 0);
    weir_leave(&held->permit, outcome, now);
    held->number = 0;
    permits->count--;
}

/* The outcome is unknown when the connection has ended. */
void weir_http_take_permits_end(struct weir_http_take_permits *permits)
{
    for (size_t i = 0; i < permits->room; i++)
        if (permits->held[i].number != 0)
            leave_record(permits, &permits->held[i], WEIR_PERMIT_IGNORED, 0);
    weir_assert(permits->count == 0);
    weir_mem_system.free(NULL, permits->held,
                         permits->room * sizeof *permits->held);
    *permits = (struct weir_http_take_permits){ .held = NULL };
}

/* ---- Enter ---- */

static bool holds_units(const struct weir_permit *permit)
{
    static const struct weir_permit nothing;
    return memcmp(permit, &nothing, sizeof nothing) != 0;
}

/* Takes "class" out of 'from'; 0, or the reply is a problem. */
static int read_class(const struct weir_http_take_call *call, json_t *from,
                      uint32_t *out)
{
    json_t *klass = json_object_get(from, "class");
    if (klass && !json_is_string(klass))
        return refuse_as_invalid(call, "a class is a text");
    size_t len = json_string_length(klass);
    *out = len > 0 ? weir_class(json_string_value(klass), len) : 0;
    (void)json_object_del(from, "class");
    return 0;
}

static int read_enter(const struct weir_http_take_call *call, json_t *from,
                      struct weir_protocol_request *out, uint32_t *out_class)
{
    if (read_class(call, from, out_class) < 0 ||
        read_decision_request(call, from, out) < 0)
        return -1;
    return out->peek ? refuse_as_invalid(call, "to peek is of /v1/take") : 0;
}

void weir_http_take_enter(const struct weir_http_take_call *call, json_t *from)
{
    struct weir_http_take_permits *permits = &call->visitor->permits;
    struct weir_protocol_request ask;
    struct weir_permit permit;
    struct weir_reply reply;
    struct weir_diag diag = { 0 };
    uint32_t klass = 0;
    if (read_enter(call, from, &ask, &klass) < 0)
        return;
    struct weir_http_take_record *held = find_room(permits);
    if (!held) {
        weir_http_take_problem(
            call->reply, 503,
            "this connection holds 1024 permits: open another");
        return;
    }
    int error = weir_protocol_enter(call->api->host, &ask, klass, &permit,
                                    &reply, &diag, call->now);
    if (error < 0) {
        refuse_decision(call, error, diag.text);
        return;
    }
    write_decision(call, &reply, false);
    if (!holds_units(&permit))
        return;
    weir_assert(held->number == 0 && permits->count < permits->room);
    *held = (struct weir_http_take_record){ .number = ++permits->last,
                                            .owner =
                                                owner_of(&call->visitor->taker),
                                            .permit = permit };
    permits->count++;
    json_object_set_new(call->reply->json, "permit",
                        json_integer((json_int_t)held->number));
}

/* ---- Leave ---- */

static bool read_outcome(json_t *from, enum weir_permit_outcome *out)
{
    static const char *const words[] = {
        [WEIR_PERMIT_SUCCESS] = "success",
        [WEIR_PERMIT_DROPPED] = "dropped",
        [WEIR_PERMIT_IGNORED] = "ignored",
    };
    const char *word = json_string_value(from);
    *out = WEIR_PERMIT_SUCCESS;
    if (!from)
        return true;
    for (size_t i = 0; word && i < WEIR_COUNT_OF(words); i++) {
        if (strcmp(words[i], word) == 0) {
            *out = (enum weir_permit_outcome)i;
            return true;
        }
    }
    return false;
}

void weir_http_take_leave(const struct weir_http_take_call *call, json_t *from)
{
    struct weir_http_take_permits *permits = &call->visitor->permits;
    json_t *number = json_object_get(from, "permit");
    json_t *said = json_object_get(from, "outcome");
    enum weir_permit_outcome outcome;
    bool good = json_is_integer(number) && json_integer_value(number) > 0 &&
                json_object_size(from) == 1u + (said != NULL);
    if (!good || !read_outcome(said, &outcome)) {
        weir_http_take_problem(
            call->reply, 400,
            "a leave has a permit, which is a number, and may "
            "have an outcome: success, dropped or ignored");
        return;
    }
    struct weir_http_take_record *held =
        find_record(permits, (uint64_t)json_integer_value(number));
    if (!held || held->owner != owner_of(&call->visitor->taker)) {
        weir_http_take_problem(
            call->reply, 404,
            "this connection holds no such permit: it was given "
            "back, or is of another connection or credential");
        return;
    }
    leave_record(permits, held, outcome, call->now);
    call->reply->json = json_pack("{s:b}", "left", 1);
}
