/* SPDX-License-Identifier: MIT
 * quota/quota_lease.h - the fields of leased quotas, and of permits that
 * another process keeps. quota_lease.c also defines quota.h's functions for
 * them. */

#ifndef WEIR_QUOTA_LEASE_H
#define WEIR_QUOTA_LEASE_H

#include "core/quota/quota.h"

/* The part of weir_quota_check() that checks safe_capacity, lease, refresh,
 * learning, decay_factor, permit_timeout and queue_max, and the limit of a
 * leased quota; for a quota with sound other fields and no field that doesn't
 * apply. */
int weir_quota_check_lease(const struct weir_quota *quota,
                           struct weir_diag *diag);

#endif /* WEIR_QUOTA_LEASE_H */
