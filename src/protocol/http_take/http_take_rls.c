/* SPDX-License-Identifier: MIT
 * protocol/http_take/http_take_rls.c - POST /json: Envoy's rate limit service over
 * HTTP, at the same path as in envoyproxy/ratelimit, so that its clients can
 * use Weir.
 *
 * 200 or 429 by the overall verdict, with the answer in either case; 400 for
 * every invalid request, as in the original; 403 if the credential may not take
 * from one of the quotas. Unlike the original's, the answer names the error,
 * and methods other than POST are refused. */

#include "io/h2.h"
#include "protocol/http_take/http_take_internal.h"

void weir_http_take_rls(struct weir_rls_service *service,
                        const struct weir_protocol_taker *taker,
                        struct weir_text body, struct weir_http_reply *reply,
                        weir_instant now)
{
    struct weir_text why;
    bool over;
    json_t *asked = weir_http_take_read_json(body, reply);
    if (!asked)
        return;
    int status = weir_rls_service_answer_json(service, taker, asked,
                                              &reply->json, &over, &why, now);
    json_decref(asked);
    if (!reply->json)
        weir_http_take_problem(
            reply, status == WEIR_GRPC_PERMISSION_DENIED ? 403 : 400, NULL,
            NULL, why.p);
    else if (over)
        reply->status = 429;
}
