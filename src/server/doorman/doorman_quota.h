/* SPDX-License-Identifier: MIT
 * server/doorman/doorman_quota.h - an entry of a Doorman file as a quota. */

#ifndef WEIR_DOORMAN_QUOTA_H
#define WEIR_DOORMAN_QUOTA_H

#include "core/quota/quota.h"
#include "server/doorman/doorman_config.h"

/* The quota of an entry: leased, found by Go's globs, tried at its place in the
 * file. Texts are borrowed from the entry. Returns 0, or the error of
 * weir_quota_check(), with the entry's line. */
int weir_doorman_quota(const struct weir_doorman_template *entry,
                       uint32_t place, struct weir_quota *out,
                       struct weir_diag *diag);

#endif /* WEIR_DOORMAN_QUOTA_H */
