/* SPDX-License-Identifier: MIT
 * quota/quota_algorithm_rule.h - the bucket state rule of a quota. */

#ifndef WEIR_QUOTA_ALGORITHM_RULE_H
#define WEIR_QUOTA_ALGORITHM_RULE_H

#include "core/algorithm/algorithm.h"
#include "core/quota/quota.h"

/* Makes the rule of a quota that passed weir_quota_check(). 'utc_offset_s' is
 * the offset of the quota's 'tz' now (io/zone.h); it matters only with a
 * calendar's window. With a limit of 0, or none, the algorithm has nothing to
 * decide: the rule is then always a leaky bucket that always or never refuses.
 * The kind, mode and sharing are ignored. */
void weir_quota_algorithm_rule(const struct weir_quota *quota,
                               int32_t utc_offset_s,
                               struct weir_algorithm_rule *out);

#endif /* WEIR_QUOTA_ALGORITHM_RULE_H */
