/* SPDX-License-Identifier: MIT
 * codec/quota_json.h - a quota as a JSON object: jansson.
 *
 *     {"name": "site", "limit": "100/s", "low_burst": "1s", …,
 *      "labels": {"team": "web"}, "order": 0, "id": 7, "epoch": 31, …}
 *
 * The fields and their texts are those of weir_quota_fields(); numbers are
 * integers. */

#ifndef WEIR_QUOTA_JSON_H
#define WEIR_QUOTA_JSON_H

#include <jansson.h>

#include "core/quota/quota.h"

/* All fields, also those at their defaults. A new reference; NULL: no
 * memory. */
json_t *weir_quota_to_json(const struct weir_quota *quota);

/* Sets the fields of 'object' in an initialised quota; null or an empty text
 * resets a field to its default. The quota borrows its texts from 'object',
 * which is changed: "labels" as an object becomes the quota's text. The quota
 * isn't checked as a whole. WEIR_ESYNTAX (no object, a value of the wrong
 * type), WEIR_ENOENT (no such field: 'diag' names the nearest), WEIR_EQUOTA (a
 * value), WEIR_ENOMEM; 'quota' is then unchanged. */
int weir_quota_from_json(json_t *object, struct weir_quota *quota,
                         struct weir_diag *diag);

#endif /* WEIR_QUOTA_JSON_H */
