/* SPDX-License-Identifier: MIT
 * protocol/http_take/http_take_decide.c - POST /v1/take: one request, or a list
 * of them; and POST /json.
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
 * other than POST are refused. */

#include <string.h>

#include "io/h2.h"
#include "protocol/http_take/http_take_internal.h"

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
    if (weir_http_take_read_request(call, from, &ask) < 0)
        return;
    int error =
        weir_protocol_decide(call->api->host, &ask, &reply, &diag, call->now);
    if (error < 0) {
        weir_http_take_refuse_error(call, error, diag.text);
        return;
    }
    weir_http_take_write_reply(call, &reply,
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
        weir_http_take_refuse(call, "a list has at most 256 requests");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (weir_http_take_read_request(call, json_array_get(requests, i),
                                        &read[i]) < 0)
            return;
        int error =
            weir_protocol_check(call->api->host, &read[i], &diag, call->now);
        if (error < 0) {
            weir_http_take_refuse_error(call, error, diag.text);
            return;
        }
    }
    json_t *replies = json_array();
    for (size_t i = 0; i < count; i++) {
        struct weir_reply reply;
        (void)weir_protocol_decide(call->api->host, &read[i], &reply, &diag,
                                   call->now);
        json_t *one = json_object();
        weir_http_take_add_verdict(one, &reply);
        json_array_append_new(replies, one);
    }
    call->reply->json = json_pack("{s:o}", "replies", replies);
}

void weir_http_take_decide(const struct weir_http_take_call *call)
{
    json_t *asked = weir_http_take_read_json(call);
    json_t *requests = json_object_get(asked, "requests");
    if (json_is_array(requests) && json_object_size(asked) == 1)
        take_list(call, requests);
    else if (asked)
        take_one(call, asked);
    json_decref(asked);
}

void weir_http_take_rls(const struct weir_http_take_call *call)
{
    struct weir_http_reply *reply = call->reply;
    struct weir_text why;
    bool over;
    json_t *asked = weir_http_take_read_json(call);
    if (!asked)
        return;
    int status = weir_rls_service_answer_json(
        call->api->service, &call->visitor->taker, asked, &reply->json, &over,
        &why, call->now);
    json_decref(asked);
    if (!reply->json)
        weir_http_take_problem(
            reply, status == WEIR_GRPC_PERMISSION_DENIED ? 403 : 400, why.p);
    else if (over)
        reply->status = 429;
}
