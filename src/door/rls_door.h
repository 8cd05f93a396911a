/* SPDX-License-Identifier: MIT
 * door/rls_door.h - decisions for Envoy: a gRPC port with
 *
 *     envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit
 *     envoy.service.rate_limit_quota.v3.RateLimitQuotaService/
 *         StreamRateLimitQuotas
 *     grpc.health.v1.Health/Check, /Watch     services "" and "ratelimit"
 *
 * in plain text (h2c by prior knowledge) or over TLS. If credentials are in
 * force, each call except those of Health must show one with the role
 * 'take'. */

#ifndef WEIR_RLS_DOOR_H
#define WEIR_RLS_DOOR_H

#include "door/rlqs_desk.h"
#include "door/rls_answer.h"

struct weir_rls_door;

/* Listens. Both services are borrowed, and listeners of one agent share them.
 * Errors as weir_talk_server_new(). */
int weir_rls_door_new(const struct weir_door_host *host,
                      const struct weir_place *place,
                      struct weir_rls_desk *desk, struct weir_rlqs_desk *quotas,
                      struct weir_rls_door **out, struct weir_diag *diag);
const struct weir_place *weir_rls_door_place(const struct weir_rls_door *door);
/* Credentials or certificates were reloaded. If credentials are in force, calls
 * that began before end as UNAVAILABLE, except those of Health: a stream of
 * quotas soon, a ShouldRateLimit at the latest at its message. A peer with a
 * valid credential may begin another. */
void weir_rls_door_recheck(struct weir_rls_door *door);
void weir_rls_door_stop(struct weir_rls_door *door);
/* NULL inside is legal. */
void weir_rls_door_free(struct weir_rls_door **door);

#endif /* WEIR_RLS_DOOR_H */
