/* SPDX-License-Identifier: MIT
 * codec/rls_json.h - Envoy's rate limit service in proto3's JSON, as
 * envoyproxy/ratelimit speaks it at /json.
 *
 *     {"domain": "shop", "descriptors": [
 *         {"entries": [{"key": "path", "value": "/cart"}],
 *          "hitsAddend": "2"}]}
 *
 *     {"overallCode": "OK", "statuses": [
 *         {"code": "OK", "currentLimit": {"requestsPerUnit": 5,
 *          "unit": "HOUR"}, "limitRemaining": 3,
 *          "durationUntilReset": "1440s"}]} */

#ifndef WEIR_RLS_JSON_H
#define WEIR_RLS_JSON_H

#include <jansson.h>

#include "codec/rls.h"

/* Reads and checks as weir_rls_decode() does, within its bounds. Members are
 * named in camelCase or as in the .proto; null means absent; integers may be
 * texts, and units names or numbers. Texts point into 'object'. WEIR_ESYNTAX
 * (another type, an unknown member, one that comes twice), WEIR_ETOOBIG,
 * WEIR_EINVAL, with 'diag' filled. */
int weir_rls_from_json(json_t *object, struct weir_arena *arena,
                       struct weir_rls_request *out, struct weir_diag *diag);

/* A new reference; zeros are left out. 'metadata': the object that
 * answer->metadata has as bytes, or NULL. NULL: no memory. */
json_t *weir_rls_to_json(const struct weir_rls_answer *answer,
                         json_t *metadata);

#endif /* WEIR_RLS_JSON_H */
