/* SPDX-License-Identifier: MIT
 * protocol/rls/rls_listener.h - decisions for Envoy: a gRPC port with
 *
 *     envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit
 *     envoy.service.rate_limit_quota.v3.RateLimitQuotaService/
 *         StreamRateLimitQuotas
 *     grpc.health.v1.Health/Check, /Watch     services "" and "ratelimit"
 *
 * in plain text (h2c by prior knowledge) or over TLS. If credentials are in
 * force, each call except those of Health must show one with the role
 * 'take'. */

#ifndef WEIR_RLS_LISTENER_H
#define WEIR_RLS_LISTENER_H

#include "protocol/rlqs/rlqs_service.h"
#include "protocol/rls/rls_service.h"

struct weir_rls_listener;

/* Listens. Both services are borrowed, and listeners of one agent share them.
 * Errors as weir_conn_server_new(). */
int weir_rls_listener_new(const struct weir_protocol_host *host,
                          const struct weir_listen_address *place,
                          struct weir_rls_service *service,
                          struct weir_rlqs_service *quotas,
                          struct weir_rls_listener **out,
                          struct weir_diag *diag);
const struct weir_listen_address *weir_rls_listener_address(
    const struct weir_rls_listener *listener);
/* Credentials or certificates were reloaded. If credentials are in force, calls
 * that began before end as UNAVAILABLE, except those of Health: a stream of
 * quotas soon, a ShouldRateLimit at the latest at its message. A peer with a
 * valid credential may begin another. */
void weir_rls_listener_recheck(struct weir_rls_listener *listener);
/* NULL inside is legal. */
void weir_rls_listener_free(struct weir_rls_listener **listener);

#endif /* WEIR_RLS_LISTENER_H */
