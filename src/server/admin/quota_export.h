/* SPDX-License-Identifier: MIT
 * server/admin/quota_export.h - a quota as JSON for an import. */

#ifndef WEIR_QUOTA_EXPORT_H
#define WEIR_QUOTA_EXPORT_H

#include "codec/quota_json.h"

/* Only fields that differ from their default and that the store doesn't set. A
 * new reference; NULL: no memory. */
json_t *weir_quota_export(const struct weir_quota *quota);

#endif /* WEIR_QUOTA_EXPORT_H */
