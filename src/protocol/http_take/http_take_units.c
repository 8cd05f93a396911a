/* SPDX-License-Identifier: MIT
 * protocol/http_take/http_take_units.c - POST /v1/take: one ask, or a list of them.
 *
 *     {"name": "s3/put", "weight": 2, "peek": false}
 *     {"requests": [{"name": "a"}, {"name": "b", "weight": 3}]}
 *
 * One ask has its verdict in the status too (200 or 429) and in the headers of
 * draft-ietf-httpapi-ratelimit-headers-10: RateLimit-Policy names the quota
 * that decided, RateLimit has its remaining units. A list has 200 and a verdict
 * for each ask; asks are independent, and a refused one undoes no other.
 *
 * Structured fields are ASCII (RFC 9651), quotas' names are UTF-8: bytes that
 * aren't ASCII are sent as %XX there. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "protocol/http_take/http_take.h"
#include "protocol/http_take/http_take_internal.h"

#define EXCEEDED \
    "https://iana.org/assignments/http-problem-types#quota-exceeded"
#define INTEGER_MAX 999999999999999u /* largest integer of RFC 9651 */
/* Each byte as %XX, two quotes, a NUL. */
#define FIELD_MAX (3 * WEIR_NAME_MAX + 3)

/* ---- Requests ---- */

json_t *weir_http_take_read_json(struct weir_text body,
                                 struct weir_http_reply *reply)
{
    json_error_t error;
    json_t *asked = json_loadb(body.p ? body.p : "", body.len,
                               JSON_REJECT_DUPLICATES, &error);
    if (asked)
        return asked;
    char text[JSON_ERROR_TEXT_LENGTH + 64];
    snprintf(text, sizeof text, "the body is no JSON: line %d, column %d: %s",
             error.line, error.column, error.text);
    weir_http_take_problem(reply, 400, NULL, NULL, text);
    return NULL;
}

int weir_http_take_refuse(const struct weir_http_take_call *take,
                          const char *detail)
{
    weir_http_take_problem(take->reply, 400, NULL, NULL, detail);
    return -1;
}

void weir_http_take_refuse_error(const struct weir_http_take_call *take,
                                 int error, const char *detail)
{
    weir_http_take_problem(take->reply, error == WEIR_EDENIED ? 403 : 400, NULL,
                           NULL, detail);
}

static int refuse_member(const struct weir_http_take_call *take,
                         const char *name)
{
    char text[160];
    snprintf(text, sizeof text,
             "there is no member \"%.60s\": a request has name, weight and "
             "peek; a list of them is requests",
             name);
    return weir_http_take_refuse(take, text);
}

int weir_http_take_read_request(const struct weir_http_take_call *take,
                                json_t *from, struct weir_protocol_request *out)
{
    const char *key;
    json_t *value;
    json_t *name = json_object_get(from, "name");
    json_t *weight = json_object_get(from, "weight");
    json_t *peek = json_object_get(from, "peek");
    json_object_foreach(
        from, key, value) if (value != name && value != weight &&
                              value != peek) return refuse_member(take, key);
    if (!json_is_string(name))
        return weir_http_take_refuse(take, "an ask is an object with a name: "
                                           "{\"name\": \"site\"}");
    bool is_weight = json_is_integer(weight) &&
                     json_integer_value(weight) >= 0 &&
                     json_integer_value(weight) <= (json_int_t)WEIR_WEIGHT_MAX;
    if (weight && !is_weight)
        return weir_http_take_refuse(
            take, "a weight is a whole number from 0 to 4294967296");
    if (peek && !json_is_boolean(peek))
        return weir_http_take_refuse(take, "peek is true or false");
    *out = (struct weir_protocol_request){
        .name = { json_string_value(name), json_string_length(name) },
        .weight = weight ? (uint64_t)json_integer_value(weight) : 1,
        .peek = json_is_true(peek),
        .taker = take->taker,
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

/* Writes a reply's values into 'to'. */
static void tell(json_t *to, const struct weir_reply *reply)
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
    set_if(to, "stale", reply->stale);
    set_if(to, "shadow", reply->shadow);
}

/* A name as a String of RFC 9651. */
static void quote(const struct weir_reply *reply, char out[FIELD_MAX])
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

static void add_headers(const struct weir_http_take_call *take,
                        const struct weir_reply *reply)
{
    struct weir_policy policy;
    char name[FIELD_MAX];
    char window[32] = "";
    char wait[32] = "";
    bool limited = reply->verdict == WEIR_LIMITED;
    bool waits = limited && !reply->never && reply->retry_after != WEIR_NEVER;
    uint64_t wait_s = waits ? to_steps(reply->retry_after, WEIR_SECOND) : 0;
    if (waits)
        weir_http_add_header(take->reply, "Retry-After", "%" PRIu64, wait_s);
    if (weir_policy(take->host->weir, reply->quota, reply->quota_len, &policy) <
        0)
        return;
    quote(reply, name);
    if (policy.quantity > INTEGER_MAX)
        policy.quantity = INTEGER_MAX;
    if (policy.window > 0)
        snprintf(window, sizeof window, ";w=%" PRIu64,
                 to_steps(policy.window, WEIR_SECOND));
    if (waits)
        snprintf(wait, sizeof wait, ";t=%" PRIu64, wait_s);
    uint64_t remaining =
        reply->remaining < policy.quantity ? reply->remaining : policy.quantity;
    weir_http_add_header(take->reply, "RateLimit-Policy",
                         "%s;q=%" PRIu64 "%s%s", name, policy.quantity, window,
                         policy.concurrency ? ";qu=\"concurrent-requests\""
                                            : "");
    weir_http_add_header(take->reply, "RateLimit", "%s;r=%" PRIu64 "%s", name,
                         remaining, wait);
    if (take->old_headers)
        add_old_headers(take->reply, policy.quantity, remaining,
                        waits ? wait_s : to_steps(policy.window, WEIR_SECOND));
}

static void tell_refused(const struct weir_http_take_call *take,
                         const struct weir_reply *reply)
{
    char detail[WEIR_NAME_MAX + 96];
    snprintf(detail, sizeof detail,
             reply->never ? "the weight is more than %s ever lets pass at once"
                          : "%s has no room for it now",
             reply->quota_len > 0 ? reply->quota : "the quota");
    weir_http_take_problem(take->reply, 429, EXCEEDED, "Quota exceeded",
                           detail);
    if (!take->reply->json)
        return;
    if (reply->quota_len > 0)
        json_object_set_new(
            take->reply->json, "violated-policies",
            json_pack("[o]", json_stringn(reply->quota, reply->quota_len)));
    tell(take->reply->json, reply);
}

void weir_http_take_write_reply(const struct weir_http_take_call *take,
                                const struct weir_reply *reply)
{
    if (reply->verdict == WEIR_LIMITED) {
        tell_refused(take, reply);
    } else {
        take->reply->json = json_object();
        tell(take->reply->json, reply);
    }
    add_headers(take, reply);
}

static void take_one(const struct weir_http_take_call *take, json_t *from)
{
    struct weir_protocol_request ask;
    struct weir_reply reply;
    struct weir_diag diag = { 0 };
    if (weir_http_take_read_request(take, from, &ask) < 0)
        return;
    int error =
        weir_protocol_decide(take->host, &ask, &reply, &diag, take->now);
    if (error < 0) {
        weir_http_take_refuse_error(take, error, diag.text);
        return;
    }
    weir_http_take_write_reply(take, &reply);
}

/* All asks are read before the first is decided: a list with an error charges
 * nothing. */
static void take_list(const struct weir_http_take_call *take, json_t *asks)
{
    struct weir_protocol_request read[WEIR_HTTP_TAKE_REQUESTS_MAX];
    struct weir_diag diag = { 0 };
    size_t count = json_array_size(asks);
    if (count > WEIR_HTTP_TAKE_REQUESTS_MAX) {
        weir_http_take_refuse(take, "a list has at most 256 requests");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (weir_http_take_read_request(take, json_array_get(asks, i),
                                        &read[i]) < 0)
            return;
        int error = weir_protocol_check(take->host, &read[i], &diag, take->now);
        if (error < 0) {
            weir_http_take_refuse_error(take, error, diag.text);
            return;
        }
    }
    json_t *replies = json_array();
    for (size_t i = 0; i < count; i++) {
        struct weir_reply reply;
        (void)weir_protocol_decide(take->host, &read[i], &reply, &diag,
                                   take->now);
        json_t *one = json_object();
        tell(one, &reply);
        json_array_append_new(replies, one);
    }
    take->reply->json = json_pack("{s:o}", "replies", replies);
}

void weir_http_take_decide(const struct weir_protocol_host *host,
                           const struct weir_protocol_taker *taker,
                           struct weir_text body, bool old_headers,
                           struct weir_http_reply *reply, weir_instant now)
{
    const struct weir_http_take_call take = { host, taker, reply, old_headers,
                                              now };
    json_t *asked = weir_http_take_read_json(body, reply);
    json_t *asks = json_object_get(asked, "requests");
    if (json_is_array(asks) && json_object_size(asked) == 1)
        take_list(&take, asks);
    else if (asked)
        take_one(&take, asked);
    json_decref(asked);
}
