/* SPDX-License-Identifier: MIT
 * lab/output.h - results of runs for programs and as figures: JSON lines, CSV,
 * SVG. The same bytes for the same seeds, with any compiler and any order in
 * which the runs end. (The command line writes the text for people.) */

#ifndef WEIR_OUTPUT_H
#define WEIR_OUTPUT_H

#include <stdio.h>

#include "lab/run.h"

/* Bounds of a figure: its panels, and the curves in one of them. */
#define WEIR_FIGURE_PANELS_MAX 16
#define WEIR_FIGURE_CURVES_MAX 12

/* All variants of a scenario at one seed. All members are borrowed. */
struct weir_batch {
    const char *name;
    uint64_t seed;
    struct weir_scenario **scenarios; /* one for each variant */
    struct weir_result **results;
    size_t count;
};

/* A line for each variant: {"scenario":…,"seed":…,"variant":…,"metrics":{…}}
 * and a line feed; without variants, one line without "variant". "events" and
 * "takes" follow, then "expectations", "claims" and "violations", each only if
 * there are any. Claims are about all variants, and are in each line. An
 * unknown number is null. */
void weir_output_json(const struct weir_batch *batch, FILE *out);

/* Makes the folder unless it exists. 0, or WEIR_ESYSTEM with 'diag' if it isn't
 * writable, so that the error comes before the runs. */
int weir_output_folder(const char *dir, struct weir_diag *diag);

/* The samples of each variant as DIR/NAME[-VARIANT]-SEED.csv. 0, or
 * WEIR_ESYSTEM with 'diag'. */
int weir_output_csv(const struct weir_batch *batch, const char *dir,
                    struct weir_diag *diag);

/* Writes every figure of the scenario as DIR/NAME[-N].svg, beside its sources:
 * the .gp (a script for gnuplot) and the .dat. Series over time are the first
 * batch's; measures are means over all batches. 0, WEIR_ESYSTEM, or WEIR_ENOENT
 * if gnuplot isn't installed: then only the .svg is missing, and 'diag' says
 * how to go on. */
int weir_output_figures(const struct weir_batch *batches, size_t count,
                        const char *dir, struct weir_diag *diag);

/* Whether this setting has the same value in all variants. */
bool weir_output_is_common(const struct weir_batch *batch, size_t setting);

#endif /* WEIR_OUTPUT_H */
