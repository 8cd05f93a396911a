/* SPDX-License-Identifier: MIT
 * cli/lab_print.h - results of runs, for people. */

#ifndef WEIR_LAB_PRINT_H
#define WEIR_LAB_PRINT_H

#include <stdio.h>

#include "lab/output.h"

/* Prints the run's parameters, measures, claims, expectations: over all seeds.
 * Two variants that are 'compared' get a column of their difference. */
void weir_lab_print(const struct weir_batch *batches, size_t count,
                    bool compared, FILE *out);
/* Whether all expectations held, in all variants. */
bool weir_lab_held(const struct weir_batch *batch);

#endif /* WEIR_LAB_PRINT_H */
