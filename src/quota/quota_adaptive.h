/* SPDX-License-Identifier: MIT
 * quota/quota_adaptive.h - the fields of quotas that are adaptive. */

#ifndef WEIR_QUOTA_ADAPTIVE_H
#define WEIR_QUOTA_ADAPTIVE_H

#include "adapt/sluice.h"
#include "quota/quota.h"

/* Of an adaptive quota that passed the check: what one of 'processes' (0 as 1)
 * is to make its sluice of. Parts of fleet_min and fleet_max are equal ones,
 * and at least the least that the controller knows; max outdoes min. */
void weir_quota_sluice(const struct weir_quota *quota, uint32_t processes,
                       struct weir_sluice_options *out);
/* The number by which an enter names a class: of its name alone, the same
 * everywhere and for ever; never 0. */
uint32_t weir_class_number(struct weir_text name);

/* The part of weir_quota_check() that looks at what an adaptive quota alone
 * has; for one whose other fields are sound. */
int weir_quota_check_adaptive(const struct weir_quota *quota,
                              struct weir_diag *diag);

/* What is in force where nobody said anything, in 1 / WEIR_DECIMAL_ONE; for a
 * controller that there is. */
uint64_t weir_quota_percentile(const struct weir_quota *quota);
uint64_t weir_quota_bound(const struct weir_quota *quota, bool highest);

#endif /* WEIR_QUOTA_ADAPTIVE_H */
