/* SPDX-License-Identifier: MIT
 * quota/quota_internal.h - the parts of weir_quota_check(), in their order, and
 * values in force that only texts of fields need. Each part relies on the ones
 * before it, and returns 0 or WEIR_EQUOTA with 'diag' filled. */

#ifndef WEIR_QUOTA_INTERNAL_H
#define WEIR_QUOTA_INTERNAL_H

#include "core/quota/quota.h"

/* Refuses with a sentence, WEIR_EQUOTA; NULL: no fault, 0. */
static inline int weir_quota_fault(const char *fault, struct weir_diag *diag)
{
    return fault ? weir_diag_set(diag, WEIR_EQUOTA, fault, NULL) : 0;
}

/* Each enumeration has a value that this version knows. */
int weir_quota_check_words(const struct weir_quota *quota,
                           struct weir_diag *diag);
/* No field is set that doesn't apply. 'diag' says what the field requires and
 * the edit that resets all such fields, such as
 * "sharing=counted lease= refresh=". */
int weir_quota_check_fields(const struct weir_quota *quota,
                            struct weir_diag *diag);
/* window, tz, sub_windows, max_entries, next_buckets, store and deadline. */
int weir_quota_check_algorithm(const struct weir_quota *quota,
                               struct weir_diag *diag);
/* safe_capacity, lease, refresh, learning, decay_factor, permit_timeout and
 * queue_max, and the limit of a leased quota. */
int weir_quota_check_lease(const struct weir_quota *quota,
                           struct weir_diag *diag);
/* The fields of adaptive quotas. */
int weir_quota_check_adaptive(const struct weir_quota *quota,
                              struct weir_diag *diag);

/* The percentile and bounds in force if the fields are unset, in 1 /
 * WEIR_DECIMAL_ONE; the quota must have a controller. */
uint64_t weir_quota_percentile(const struct weir_quota *quota);
uint64_t weir_quota_bound(const struct weir_quota *quota, bool highest);

#endif /* WEIR_QUOTA_INTERNAL_H */
