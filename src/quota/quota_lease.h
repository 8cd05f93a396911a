/* SPDX-License-Identifier: MIT
 * quota/quota_lease.h - the fields of quotas that are leased, and of permits
 * that somebody else keeps. What quota.h declares of them is in quota_lease.c
 * too. */

#ifndef WEIR_QUOTA_LEASE_H
#define WEIR_QUOTA_LEASE_H

#include "quota/quota.h"

/* The part of weir_quota_check() that looks at safe_capacity, lease, refresh,
 * learning, decay_factor, permit_timeout and queue_max, and at the limit of
 * what is leased; for a quota whose other fields are sound and which has no
 * field that doesn't apply. */
int weir_quota_check_lease(const struct weir_quota *quota,
                           struct weir_diag *diag);

#endif /* WEIR_QUOTA_LEASE_H */
