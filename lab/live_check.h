/* SPDX-License-Identifier: MIT
 * lab/live_check.h - the scenarios that real processes can run. */

#ifndef WEIR_LIVE_CHECK_H
#define WEIR_LIVE_CHECK_H

#include "lab/scenario.h"

/* 0, or WEIR_EINVAL: 'diag' names the statement that --live can't run, and its
 * place in the file. */
int weir_live_check(const struct weir_scenario *scenario,
                    struct weir_diag *diag);

#endif /* WEIR_LIVE_CHECK_H */
