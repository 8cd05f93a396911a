/* SPDX-License-Identifier: MIT
 * quota/quota_adaptive.h - the fields of adaptive quotas. */

#ifndef WEIR_QUOTA_ADAPTIVE_H
#define WEIR_QUOTA_ADAPTIVE_H

#include "core/concurrency/concurrency_gate.h"
#include "core/quota/quota.h"

/* The options of the concurrency gate that one of 'processes' (0 as 1) makes
 * for an adaptive quota that passed the check. fleet_min and fleet_max are
 * divided equally, at least the controller's minimum each; max wins over
 * min. */
void weir_quota_gate(const struct weir_quota *quota, uint32_t processes,
                     struct weir_concurrency_gate_options *out);
/* The number by which an enter names a class: depends on the name alone, the
 * same everywhere and in all versions; never 0. */
uint32_t weir_class_number(struct weir_text name);

#endif /* WEIR_QUOTA_ADAPTIVE_H */
