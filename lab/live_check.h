/* SPDX-License-Identifier: MIT
 * lab/live_check.h - which scenarios real processes can run. */

#ifndef WEIR_LIVE_CHECK_H
#define WEIR_LIVE_CHECK_H

#include "lab/scenario.h"

/* 0, or WEIR_EINVAL with 'diag' saying what --live can't do, and where in
 * the file it is asked for. */
int weir_live_check(const struct weir_scenario *scenario,
                    struct weir_diag *diag);

#endif /* WEIR_LIVE_CHECK_H */
