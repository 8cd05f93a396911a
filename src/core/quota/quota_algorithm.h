/* SPDX-License-Identifier: MIT
 * quota/quota_algorithm.h - the fields that only some algorithms have.
 * quota_algorithm.c also defines quota.h's functions for them. */

#ifndef WEIR_QUOTA_ALGORITHM_H
#define WEIR_QUOTA_ALGORITHM_H

#include "core/quota/quota.h"

/* The part of weir_quota_check() that checks window, tz, sub_windows,
 * max_entries, next_buckets, store and deadline, for a quota with sound other
 * fields and no field that doesn't apply. */
int weir_quota_check_algorithm(const struct weir_quota *quota,
                               struct weir_diag *diag);

#endif /* WEIR_QUOTA_ALGORITHM_H */
