/* SPDX-License-Identifier: MIT
 * lab/output.h - what came out of runs, for programs and for the eye: JSON
 * lines, CSV, figures. The same bytes for the same seeds, whatever the
 * compiler and the order in which the runs ended. (Text for people is the
 * command line's.) */

#ifndef WEIR_OUTPUT_H
#define WEIR_OUTPUT_H

#include <stdio.h>

#include "lab/run.h"

/* A figure draws at most so many panels, and curves in one of them. */
#define WEIR_FIGURE_PANELS_MAX 16
#define WEIR_FIGURE_CURVES_MAX 12

/* All variants of a scenario at one seed. All is borrowed. */
struct weir_batch {
    const char *name;
    uint64_t seed;
    struct weir_scenario **scenarios; /* a variant each */
    struct weir_result **results;
    size_t count;
};

/* {"scenario":…,"seed":…,"metrics":{…}} and a line feed; with variants,
 * metrics holds an object for each. Behind them "events" and "takes", then
 * "expectations", "claims" and "violations", each only if there are any. A
 * number that couldn't be found is null. */
void weir_output_json(const struct weir_batch *batch, FILE *out);

/* Makes the folder unless it is there. 0, or WEIR_ESYSTEM with 'diag' when
 * nothing could be written into it: better known before the runs. */
int weir_output_folder(const char *dir, struct weir_diag *diag);

/* The samples of each variant as DIR/NAME[-VARIANT]-SEED.csv. 0, or
 * WEIR_ESYSTEM with 'diag'. */
int weir_output_csv(const struct weir_batch *batch, const char *dir,
                    struct weir_diag *diag);

/* Every figure of the scenario as DIR/NAME[-N].svg, beside the .gp (a script
 * for gnuplot) and the .dat that it was drawn from. What stands over time is
 * the first batch's; measures are means over all. 0, WEIR_ESYSTEM, or
 * WEIR_ENOENT when gnuplot isn't installed: then all but the .svg is there,
 * and 'diag' says how to go on. */
int weir_output_figures(const struct weir_batch *batches, size_t count,
                        const char *dir, struct weir_diag *diag);

/* Whether all variants have their setting of that place the same. */
bool weir_output_is_common(const struct weir_batch *batch, size_t setting);

#endif /* WEIR_OUTPUT_H */
