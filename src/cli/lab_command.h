/* SPDX-License-Identifier: MIT
 * cli/lab_command.h - the parts of `weir lab`; argv[0] is "lab". */

#ifndef WEIR_LAB_COMMAND_H
#define WEIR_LAB_COMMAND_H

#include "lab/output.h"

/* lab_run.c: */
int weir_cli_lab_run(int argc, char **argv);
int weir_cli_lab_compare(int argc, char **argv);
/* lab_models.c: */
int weir_cli_lab_models(int argc, char **argv);
/* lab_swarm.c: */
int weir_cli_lab_swarm(int argc, char **argv);

#endif /* WEIR_LAB_COMMAND_H */
