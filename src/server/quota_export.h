/* SPDX-License-Identifier: MIT
 * server/quota_export.h - a quota as an import wants it. */

#ifndef WEIR_QUOTA_EXPORT_H
#define WEIR_QUOTA_EXPORT_H

#include "wire/quota_json.h"

/* Only what differs from a default, and nothing that is the store's to set.
 * A new reference; NULL: no memory. */
json_t *weir_quota_export(const struct weir_quota *quota);

#endif /* WEIR_QUOTA_EXPORT_H */
