/* SPDX-License-Identifier: MIT
 * quota/quota_meter.h - the meter that a quota asks for. */

#ifndef WEIR_QUOTA_METER_H
#define WEIR_QUOTA_METER_H

#include "algo/meter.h"
#include "quota/quota.h"

/* Makes the rule of a quota that passed weir_quota_check(). 'utc_offset_s' is
 * that of the quota's 'tz' now (os/zone.h); it matters only with a calendar's
 * window. A limit of 0 and no limit leave an algorithm nothing to decide:
 * whatever it is, the rule is then a leaky bucket that always or never
 * refuses. The kind, mode and sharing take no part. */
void weir_quota_meter(const struct weir_quota *quota, int32_t utc_offset_s,
                      struct weir_meter_rule *out);

#endif /* WEIR_QUOTA_METER_H */
