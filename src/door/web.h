/* SPDX-License-Identifier: MIT
 * door/web.h - decisions over HTTP/1.1 and JSON (weir-agent(8) is the
 * reference, examples/openapi.yaml the same for programs).
 *
 *     POST /v1/take     ask for units, one name or several
 *     POST /v1/enter    ask for units and hold them, a permit
 *     POST /v1/leave    give it back
 *     POST /json        Envoy's rate limit service, in proto3's JSON
 *     GET  /v1          all routes
 *     GET  /v1/status   how the limiter stands
 *     GET  /metrics     the same for Prometheus
 *     GET  /healthz     whether the process lives
 *     GET  /readyz      whether the quotas of a root are complete here
 *     GET  /            the page, and its views (weir_web_views)
 *
 * Where credentials are in force each request but the last three shows one with
 * the role 'take'. */

#ifndef WEIR_WEB_H
#define WEIR_WEB_H

#include "door/rls_answer.h"

#define WEIR_WEB_SILENCE_MAX (60 * WEIR_SECOND) /* between requests */
#define WEIR_WEB_ASKS_MAX 256                   /* names in one request */
#define WEIR_WEB_BODY_MAX (64u << 10)           /* bytes of one request */
#define WEIR_WEB_BODIES_MAX (64u << 20) /* … of all that come at once */

struct weir_web;
struct json_t; /* jansson's */

/* What the page asks beside the paths above; filled by whoever makes a door,
 * and borrowed for as long as it lives. */
struct weir_web_views {
    void *context;
    /* GET of a target. 0: nothing is there; 200, and '*out' is the answer, a
     * new reference; or another status of HTTP with 'diag' filled. */
    int (*answer)(void *context, struct weir_text target, struct json_t **out,
                  struct weir_diag *diag, weir_instant now);
    /* The path of each, for GET /v1; static; NULL past the last. */
    const char *(*path)(size_t i);
};

/* Listens. 'desk' answers /json; it is borrowed, and doors may share it;
 * likewise 'views', or NULL: no page. As weir_talk_server_new(). */
int weir_web_new(const struct weir_door_host *host,
                 const struct weir_place *place, struct weir_rls_desk *desk,
                 const struct weir_web_views *views, struct weir_web **out,
                 struct weir_diag *diag);
const struct weir_place *weir_web_place(const struct weir_web *web);
/* Certificates were read again: who has shown one that isn't good any more
 * goes. (Credentials are asked for with each request.) */
void weir_web_recheck(struct weir_web *web);
void weir_web_stop(struct weir_web *web);
/* NULL inside is legal. */
void weir_web_free(struct weir_web **web);

#endif /* WEIR_WEB_H */
