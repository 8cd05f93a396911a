/* SPDX-License-Identifier: MIT
 * codec/weir_v1_adaptive.h - the fields of adaptive quotas, and of all quotas
 * of kind concurrency; for weir_v1.c. */

#ifndef WEIR_WEIR_V1_ADAPTIVE_H
#define WEIR_WEIR_V1_ADAPTIVE_H

#include "core/quota/quota.h"
#include "weir.pb-c.h"

/* Writes the fields that aren't at their defaults; 'message' borrows the
 * quota's texts. */
void weir_v1_adaptive_put(const struct weir_quota *quota,
                          Weir__V1__Quota *message);
/* Reads the fields into a quota at its defaults, which borrows the message's
 * bytes. */
void weir_v1_adaptive_get(const Weir__V1__Quota *message,
                          struct weir_quota *out);

#endif /* WEIR_WEIR_V1_ADAPTIVE_H */
