/* SPDX-License-Identifier: MIT
 * cli/lab_source.h - scenarios named on the command line: a built-in one's name
 * or a file's, with --set. */

#ifndef WEIR_LAB_SOURCE_H
#define WEIR_LAB_SOURCE_H

#include "command/cli.h"
#include "lab/scenario.h"

struct weir_lab_source {
    const char *path; /* as typed; borrowed */
    char *text;       /* owned */
    size_t len;
    struct weir_script *script; /* owned */
};

/* The text of 'name': a built-in scenario, or a file if it contains a '/' or
 * ends with ".weir". Prints an error. Returns 0 or an exit status; the source
 * can be closed in either case. */
int weir_lab_find(struct weir_lab_source *source, const char *name);
/* Finds, reads, and applies --set ('sets' may be NULL). Likewise. */
int weir_lab_open(struct weir_lab_source *source, const char *name,
                  const struct weir_cli_values *sets);
void weir_lab_close(struct weir_lab_source *source);

/* Builds a variant, or prints the error in it (NULL). */
struct weir_scenario *weir_lab_build(const struct weir_lab_source *source,
                                     size_t variant);
/* Prints why a scenario was refused, with the line shown. Returns
 * WEIR_EXIT_ERROR. */
int weir_lab_refuse(const struct weir_lab_source *source,
                    const struct weir_diag *diag);

#endif /* WEIR_LAB_SOURCE_H */
