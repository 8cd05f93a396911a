/* SPDX-License-Identifier: MIT
 * quota/quota_bucket.h - the bucket parameters of a quota, and the rule of its
 * bucket state. */

#ifndef WEIR_QUOTA_BUCKET_H
#define WEIR_QUOTA_BUCKET_H

#include "core/quota/quota.h"

/* Makes the parameters of a quota that passed weir_quota_check(): never refuses
 * if 'unlimited', always refuses if the limit is 0. */
void weir_quota_bucket(const struct weir_quota *quota, struct weir_bucket *out);

/* Makes the rule of a quota that passed weir_quota_check(). 'utc_offset_s' is
 * the offset of the quota's 'tz' now (io/zone.h); it matters only with a
 * calendar's window. With a limit of 0, or none, the algorithm has nothing to
 * decide: the rule is then always a leaky bucket that always or never refuses.
 * The kind, mode and sharing are ignored. */
void weir_quota_algorithm_rule(const struct weir_quota *quota,
                               int32_t utc_offset_s,
                               struct weir_algorithm_rule *out);

/* Bucket parameters for any real number of units a second (>= 0; 0: refuses
 * all; above WEIR_LIMIT_MAX: never refuses), exact to 10^-9 of it from 10^-3
 * on, and bursts in units, 0 <= low <= high. Grants of leased quotas use it
 * (table_lease.c). */
void weir_bucket_of_rate(struct weir_bucket *bucket, double per_s, double low,
                         double high);

#endif /* WEIR_QUOTA_BUCKET_H */
