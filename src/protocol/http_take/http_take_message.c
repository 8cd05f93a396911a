/* SPDX-License-Identifier: MIT
 * protocol/http_take/http_take_message.c - requests for decisions, replies and
 * problems in JSON.
 *
 *     {"name": "s3/put", "weight": 2, "peek": false}
 *
 * A single decision is in the status too (200 or 429) and in the headers of
 * draft-ietf-httpapi-ratelimit-headers-10: RateLimit-Policy names the quota
 * that decided, RateLimit has its remaining units.
 *
 * Structured fields are ASCII (RFC 9651), quotas' names are UTF-8: bytes that
 * aren't ASCII are sent as %XX there. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

int weir_http_take_refuse(const struct weir_http_take_call *call,
                          const char *detail)
{
    weir_http_take_problem(call->reply, 400, detail);
    return -1;
}

void weir_http_take_refuse_error(const struct weir_http_take_call *call,
                                 int error, const char *detail)
{
    weir_http_take_problem(call->reply, error == WEIR_EDENIED ? 403 : 400,
                           detail);
}

/* ---- Requests ---- */

json_t *weir_http_take_read_json(const struct weir_http_take_call *call)
{
    struct weir_text body = call->http->body;
    json_error_t error;
    json_t *asked = json_loadb(body.p ? body.p : "", body.len,
                               JSON_REJECT_DUPLICATES, &error);
    if (asked)
        return asked;
    char text[JSON_ERROR_TEXT_LENGTH + 64];
    snprintf(text, sizeof text, "the body is no JSON: line %d, column %d: %s",
             error.line, error.column, error.text);
    weir_http_take_problem(call->reply, 400, text);
    return NULL;
}

static int refuse_member(const struct weir_http_take_call *call,
                         const char *name)
{
    char text[160];
    snprintf(text, sizeof text,
             "there is no member \"%.60s\": a request has name, weight and "
             "peek; a list of them is requests",
             name);
    return weir_http_take_refuse(call, text);
}

int weir_http_take_read_request(const struct weir_http_take_call *call,
                                json_t *from, struct weir_protocol_request *out)
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
        return weir_http_take_refuse(call,
                                     "a request is an object with a name: "
                                     "{\"name\": \"site\"}");
    bool is_weight = json_is_integer(weight) &&
                     json_integer_value(weight) >= 0 &&
                     json_integer_value(weight) <= (json_int_t)WEIR_WEIGHT_MAX;
    if (weight && !is_weight)
        return weir_http_take_refuse(
            call, "a weight is a whole number from 0 to 4294967296");
    if (peek && !json_is_boolean(peek))
        return weir_http_take_refuse(call, "peek is true or false");
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

void weir_http_take_add_verdict(json_t *to, const struct weir_reply *reply)
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
    snprintf(detail, sizeof detail,
             reply->never ? "the weight is more than %s ever lets pass at once"
                          : "%s has no room for it now",
             reply->quota_len > 0 ? reply->quota : "the quota");
    write_problem(call->reply, 429, EXCEEDED, "Quota exceeded", detail);
    if (!call->reply->json)
        return;
    if (reply->quota_len > 0)
        json_object_set_new(
            call->reply->json, "violated-policies",
            json_pack("[o]", json_stringn(reply->quota, reply->quota_len)));
    weir_http_take_add_verdict(call->reply->json, reply);
}

void weir_http_take_write_reply(const struct weir_http_take_call *call,
                                const struct weir_reply *reply,
                                bool old_headers)
{
    weir_assert(!call->reply->json);
    if (reply->verdict == WEIR_LIMITED) {
        write_refusal(call, reply);
    } else {
        call->reply->json = json_object();
        weir_http_take_add_verdict(call->reply->json, reply);
    }
    add_headers(call, reply, old_headers);
}
