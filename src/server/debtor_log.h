/* SPDX-License-Identifier: MIT
 * server/debtor_log.h - logs the limiters that went beyond their debt. */

#ifndef WEIR_DEBTOR_LOG_H
#define WEIR_DEBTOR_LOG_H

#include "core/node/root.h"
#include "front/log.h"

/* Call it about each second. One warning for each limiter and quota and episode
 * (WEIR_DEBTOR_EPISODE), a few at a time: the next call logs more. */
void weir_debtors_log(struct weir_root *root, const struct weir_log *log,
                      weir_instant now);

#endif /* WEIR_DEBTOR_LOG_H */
