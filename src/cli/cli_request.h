/* SPDX-License-Identifier: MIT
 * cli/cli_request.h - requests of the commands to a root. Errors are printed;
 * statuses are exit statuses. */

#ifndef WEIR_CLI_REQUEST_H
#define WEIR_CLI_REQUEST_H

#include <jansson.h>

#include "cli/root_client.h"
#include "command/cli.h"

/* Opens the client that --roots names, or prints why not (NULL). */
struct weir_root_client *weir_cli_connect(const struct weir_cli *cli);
/* weir_root_client_request() that prints the error. Returns an exit status. */
int weir_cli_request(struct weir_root_client *client, const char *method,
                     const char *path, json_t *body, json_t **out,
                     int *out_status);
/* The same on a connection of its own; 'body' (NULL: none) is taken over. */
int weir_cli_request_once(const struct weir_cli *cli, const char *method,
                          const char *path, json_t *body, json_t **out);
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

#endif /* WEIR_CLI_REQUEST_H */
