/* SPDX-License-Identifier: MIT
 * quota/quota_bucket.h - the bucket that a quota asks for. */

#ifndef WEIR_QUOTA_BUCKET_H
#define WEIR_QUOTA_BUCKET_H

#include "algo/leaky.h"
#include "quota/quota.h"

/* Makes the parameters of a quota that passed weir_quota_check(): one that
 * never refuses for 'unlimited', one that always does for a limit of 0. */
void weir_quota_bucket(const struct weir_quota *quota,
                       struct weir_bucket *out);

#endif /* WEIR_QUOTA_BUCKET_H */
