/* SPDX-License-Identifier: MIT
 * quota/quota_bucket.h - the bucket parameters of a quota. */

#ifndef WEIR_QUOTA_BUCKET_H
#define WEIR_QUOTA_BUCKET_H

#include "core/algorithm/leaky.h"
#include "core/quota/quota.h"

/* Makes the parameters of a quota that passed weir_quota_check(): never refuses
 * if 'unlimited', always refuses if the limit is 0. */
void weir_quota_bucket(const struct weir_quota *quota, struct weir_bucket *out);

/* The same for any real number of units a second (>= 0; 0: refuses all; above
 * WEIR_LIMIT_MAX: never refuses), exact to 10^-9 of it from 10^-3 on, and
 * bursts in units, 0 <= low <= high. (table_lease.c) */
void weir_bucket_of_rate(struct weir_bucket *bucket, double per_s, double low,
                         double high);

#endif /* WEIR_QUOTA_BUCKET_H */
