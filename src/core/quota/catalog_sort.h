/* SPDX-License-Identifier: MIT
 * quota/catalog_sort.h - sorts quotas by name. */

#ifndef WEIR_CATALOG_SORT_H
#define WEIR_CATALOG_SORT_H

#include "core/quota/quota.h"

/* Sorts 'count' pointers by the names' bytes; 'scratch' has room for as
 * many. */
void weir_catalog_sort(const struct weir_quota **quotas,
                       const struct weir_quota **scratch, size_t count);

#endif /* WEIR_CATALOG_SORT_H */
