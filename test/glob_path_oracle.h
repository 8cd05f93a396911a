/* SPDX-License-Identifier: MIT
 * test/glob_path_oracle.h - matching paths by trying everything. */

#ifndef WEIR_GLOB_PATH_ORACLE_H
#define WEIR_GLOB_PATH_ORACLE_H

#include "core/base/base.h"

/* True: some choice of runs for the stars of 'pattern', which is sound, makes
 * it match. By recursion, exponential in the stars. */
bool oracle_path(struct weir_text pattern, struct weir_text name);

/* True: the shortest runs are as good as any in 'pattern' and 'name': no class
 * may match a '/', and all is ASCII. Then matching is the oracle's result;
 * otherwise it is at least never more. */
bool oracle_path_is_plain(struct weir_text pattern, struct weir_text name);

#endif /* WEIR_GLOB_PATH_ORACLE_H */
