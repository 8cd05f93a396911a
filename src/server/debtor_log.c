/* SPDX-License-Identifier: MIT
 * server/debtor_log.c - logs the limiters that went beyond their debt.
 *
 * Such a limiter reports false counts, or its quota's max_debt is shorter than
 * its charges and reservations. The line names both causes, because the root
 * can't tell which it is. */

#include "server/debtor_log.h"

#define LINES_MAX 4 /* of one call */

void weir_debtors_log(struct weir_root *root, const struct weir_log *log,
                      weir_instant now)
{
    struct weir_debtor debtor;
    for (int i = 0; i < LINES_MAX; i++) {
        if (!weir_root_new_debtor(root, &debtor, now))
            return;
        weir_log(log, WEIR_LOG_WARNING,
                 "limiter '%.*s' reported %llu units beyond its debt of quota "
                 "'%.*s': they are counted and fill nothing; end the limiter, "
                 "or raise the quota's max_debt if its charges or reservations "
                 "are as large",
                 (int)debtor.limiter.len, debtor.limiter.p,
                 (unsigned long long)debtor.units, (int)debtor.quota.len,
                 debtor.quota.p);
    }
}
