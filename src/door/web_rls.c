/* SPDX-License-Identifier: MIT
 * door/web_rls.c - POST /json: Envoy's rate limit service over HTTP, where
 * envoyproxy/ratelimit has it, so that who asked that one may ask this.
 *
 * 200 or 429 by the overall verdict, with the answer in either case; what is no
 * request is 400, whatever is wrong with it, as there; 403 is for a credential
 * that may not take from one of the quotas. Other than there the answer says
 * what is wrong, and methods but POST are refused. */

#include "door/web_reply.h"
#include "wire/h2.h"

void weir_web_rls(struct weir_rls_desk *desk,
                  const struct weir_door_taker *taker, struct weir_text body,
                  struct weir_http_reply *reply, weir_instant now)
{
    struct weir_text why;
    bool over;
    json_t *asked = weir_web_json(body, reply);
    if (!asked)
        return;
    int status = weir_rls_desk_answer_json(desk, taker, asked, &reply->json,
                                           &over, &why, now);
    json_decref(asked);
    if (!reply->json)
        weir_web_problem(reply,
                         status == WEIR_GRPC_PERMISSION_DENIED ? 403 : 400,
                         NULL, NULL, why.p);
    else if (over)
        reply->status = 429;
}
