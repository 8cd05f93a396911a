/* SPDX-License-Identifier: MIT
 * cli/cmd_quota.h - the parts of `weir quota`. */

#ifndef WEIR_CMD_QUOTA_H
#define WEIR_CMD_QUOTA_H

#include <jansson.h>

#include "cli/root_client.h"
#include "codec/rls_rules.h"
#include "core/quota/quota.h"

/* The subcommands; argv[0] is "quota". quota_files.c: */
int weir_cli_quota_tree(int argc, char **argv);
int weir_cli_quota_import(int argc, char **argv);
int weir_cli_quota_export(int argc, char **argv);
/* quota_edits.c: */
int weir_cli_quota_log(int argc, char **argv);
int weir_cli_quota_undo(int argc, char **argv);
int weir_cli_quota_diff(int argc, char **argv);
int weir_cli_quota_promote(int argc, char **argv);
int weir_cli_quota_discard(int argc, char **argv);

/* quota_files.c, for the other subcommands too: */
/* A YAML file (or "-") as the body of an import: a new reference; NULL after
 * printing an error with its place. 'envoy' (or NULL): it is a configuration
 * of envoyproxy/ratelimit, to be converted so. */
json_t *weir_cli_quota_file(const char *path,
                            const struct weir_rls_quotas_options *envoy);
/* Prints the counts of an import ("created 1, changed 2, …"), and drops it. */
void weir_cli_print_counts(const struct weir_cli *cli, json_t *answer);

#endif /* WEIR_CMD_QUOTA_H */
