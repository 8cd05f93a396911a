/* SPDX-License-Identifier: MIT
 * protocol/http_take/http_take.h - decisions over HTTP/1.1 and JSON
 * (weir-agent(8) is the reference, examples/openapi.yaml the same for
 * programs).
 *
 *     POST /v1/take     take units, of one name or several
 *     POST /v1/charge   charge units without a decision
 *     POST /v1/settle   charge or give back the difference to a cost
 *     POST /v1/enter    take units and hold them, by a permit
 *     POST /v1/leave    give the permit back
 *     POST /json        Envoy's rate limit service, in proto3's JSON
 *     GET  /v1          all routes
 *     GET  /v1/status   the limiter's state
 *     GET  /metrics     the same for Prometheus
 *     GET  /healthz     whether the process lives
 *     GET  /readyz      whether the quotas of a root are complete here
 *     GET  /            the page, and its views (weir_http_take_views)
 *
 * If credentials are in force, each request except the last three must show one
 * with the role 'take'. */

#ifndef WEIR_HTTP_TAKE_H
#define WEIR_HTTP_TAKE_H

#include "protocol/rls/rls_service.h"

#define WEIR_HTTP_TAKE_SILENCE_MAX (60 * WEIR_SECOND) /* between requests */
#define WEIR_HTTP_TAKE_REQUESTS_MAX 256               /* asks of one request */
#define WEIR_HTTP_TAKE_BODY_MAX (64u << 10)           /* bytes of one request */
#define WEIR_HTTP_TAKE_BODIES_MAX (64u << 20) /* … of all incomplete bodies */

struct weir_http_take;
struct json_t; /* of jansson */

/* The views that the page needs besides the paths above. The owner of the
 * listener fills it; borrowed for the listener's life. */
struct weir_http_take_views {
    void *context;
    /* Answers a GET. 0: no such path; 200, and '*out' is the answer, a new
     * reference; or another HTTP status with 'diag' filled. */
    int (*answer)(void *context, struct weir_text target, struct json_t **out,
                  struct weir_diag *diag, weir_instant now);
    /* The path of each, for GET /v1; static; NULL past the last. */
    const char *(*path)(size_t i);
};

/* Listens. 'service' answers /json; it is borrowed, and listeners may share it;
 * likewise 'views', or NULL: without the page. Errors as
 * weir_conn_server_new(). */
int weir_http_take_new(const struct weir_protocol_host *host,
                       const struct weir_listen_address *place,
                       struct weir_rls_service *service,
                       const struct weir_http_take_views *views,
                       struct weir_http_take **out, struct weir_diag *diag);
const struct weir_listen_address *weir_http_take_address(
    const struct weir_http_take *api);
/* Certificates were reloaded: ends connections of clients that have shown one
 * that isn't valid any more. (Credentials are checked with each request.) */
void weir_http_take_recheck(struct weir_http_take *api);
/* NULL inside is legal. */
void weir_http_take_free(struct weir_http_take **api);

#endif /* WEIR_HTTP_TAKE_H */
