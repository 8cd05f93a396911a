/* SPDX-License-Identifier: MIT
 * cli/quota_set.h - the parts of `weir quota`. */

#ifndef WEIR_QUOTA_SET_H
#define WEIR_QUOTA_SET_H

#include <jansson.h>

#include "cli/root_client.h"
#include "command/cli.h"
#include "core/quota/quota.h"

/* The subcommands; argv[0] is "quota". cmd_quota.c: */
int weir_cli_quota_set(int argc, char **argv);
int weir_cli_quota_get(int argc, char **argv);
int weir_cli_quota_ls(int argc, char **argv);
/* quota_files.c: */
int weir_cli_quota_tree(int argc, char **argv);
int weir_cli_quota_import(int argc, char **argv);
int weir_cli_quota_export(int argc, char **argv);
/* quota_history.c: */
int weir_cli_quota_log(int argc, char **argv);
int weir_cli_quota_undo(int argc, char **argv);
/* quota_shadow.c: */
int weir_cli_quota_diff(int argc, char **argv);
int weir_cli_quota_promote(int argc, char **argv);
int weir_cli_quota_discard(int argc, char **argv);

/* Opens the client that --roots names, or prints why not (NULL). */
struct weir_root_client *weir_cli_connect(const struct weir_cli *cli);
/* weir_root_client_ask() that prints the error. Returns an exit status. */
int weir_cli_ask(struct weir_root_client *client, const char *method,
                 const char *path, json_t *body, json_t **out, int *out_status);
/* Prints a JSON value and a line feed, and drops it. */
void weir_cli_print_json(json_t *value);
/* The text of a field in an object; "" without the field. */
const char *weir_cli_text(const json_t *object, const char *key);

/* Writes "/v1/quotas/NAME?query" to 'buf' of WEIR_CLI_PATH_MAX bytes. Prints
 * the error in a name. Returns 0 or an exit status. */
#define WEIR_CLI_PATH_MAX 2048
int weir_cli_quota_path(const char *name, const char *query, char *buf);

/* All quotas of a listing ("/v1/quotas:export", "/v1/quotas?match=…"), page by
 * page, as one list. A new reference, or NULL after printing an error. */
json_t *weir_cli_quota_all(struct weir_root_client *client, const char *path,
                           uint64_t *out_epoch);

/* A YAML file (or "-") as the body of an import: a new reference; NULL after
 * printing an error with its place. */
json_t *weir_cli_quota_file(const char *path);
/* Prints the counts of an import ("created 1, changed 2, …"), and drops it. */
void weir_cli_print_counts(const struct weir_cli *cli, json_t *answer);

#endif /* WEIR_QUOTA_SET_H */
