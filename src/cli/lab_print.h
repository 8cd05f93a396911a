/* SPDX-License-Identifier: MIT
 * cli/lab_print.h - what came out of runs, for people. */

#ifndef WEIR_LAB_PRINT_H
#define WEIR_LAB_PRINT_H

#include <stdio.h>

#include "lab/output.h"

/* What was run, measures, claims, expectations: over all the seeds. Two
 * variants that are 'compared' get a column of their difference. */
void weir_lab_print(const struct weir_batch *batches, size_t count,
                    bool compared, FILE *out);
/* Whether all that was expected held, in all variants. */
bool weir_lab_held(const struct weir_batch *batch);

#endif /* WEIR_LAB_PRINT_H */
