/* SPDX-License-Identifier: MIT
 * lab/script.h - the members of a script, for the files that build scenarios
 * from it. */

#ifndef WEIR_SCRIPT_H
#define WEIR_SCRIPT_H

#include "lab/script_words.h"

/* The settings of one point of an axis. */
struct weir_point {
    char *name;
    struct weir_setting *sets;
    size_t set_count;
};
/* One "vary", or all "variant" together. */
struct weir_axis {
    size_t setting; /* the varied one; SIZE_MAX: the named variants */
    struct weir_point *points;
    size_t count;
};

struct weir_lab_script {
    char *name, *title;
    struct weir_text *lines;
    size_t line_count;
    struct weir_setting *settings; /* with the values that --set gave */
    size_t setting_count;
    size_t *forced; /* settings that --set gave a value */
    size_t forced_count;
    struct weir_axis *axes;
    size_t axis_count;
    struct weir_scenario *memory; /* owns all of it */
};

/* The number of variants in the file, before --set removed any. */
size_t weir_script_grid(const struct weir_lab_script *script);
/* "static", "interval=1s,spread=sticky"; NULL: there are none. 'as_set':
 * counted among the variants left by --set, else among those of the file. */
char *weir_script_variant_name(const struct weir_lab_script *script,
                               size_t variant, bool as_set,
                               struct weir_scenario *memory);
/* Fills the scenario's settings with their values in the variant. */
void weir_script_settle(const struct weir_lab_script *script, size_t variant,
                        struct weir_scenario *scenario);
/* The last line, as the place of a missing statement. */
struct weir_where weir_script_last(const struct weir_lab_script *script);

#endif /* WEIR_SCRIPT_H */
