/* SPDX-License-Identifier: MIT
 * cli/root_client.h - requests of the commands to a root, over
 * weir.v1.Root/Call, and their answers in JSON. */

#ifndef WEIR_ROOT_CLIENT_H
#define WEIR_ROOT_CLIENT_H

#include <jansson.h>

#include "command/cli.h"

struct weir_root_client;

/* Opens the client that --roots names, or prints why not (NULL). */
struct weir_root_client *weir_root_client_new(const struct weir_cli *cli);
void weir_root_client_free(struct weir_root_client **client);

size_t weir_root_client_count(const struct weir_root_client *client);
/* "127.0.0.1:7077" of the n-th root, as given. */
const char *weir_root_client_name(const struct weir_root_client *client,
                                  size_t n);
/* Uses only this root from here on. */
void weir_root_client_only(struct weir_root_client *client, size_t n);

/* The usual patience of a request: a root that was just started reads its
 * quotas in a moment, and WEIR_ENOTREADY means that nothing was done. */
#define WEIR_CLIENT_READY (30 * WEIR_SECOND)

/* Sends the request to the first root that answers; the connection is kept.
 * 'body' may be NULL. An edit isn't repeated: if a root goes away in the
 * middle, that is the error. While no root has read its quotas, the request is
 * repeated for 'patience'. '*out' is the answer in JSON (a new reference). On
 * failure 'diag' has the root's error, or why none answers; WEIR_ENOTREADY: no
 * root has read its quotas yet. */
int weir_root_client_request(struct weir_root_client *client,
                             weir_duration patience, const char *method,
                             const char *path, json_t *body, json_t **out,
                             struct weir_diag *diag);
/* Whether the last request made its quota, instead of changing it. */
bool weir_root_client_created(const struct weir_root_client *client);

/* weir_root_client_request() for commands: with the usual patience, and prints
 * the error. Returns an exit status. */
int weir_cli_request(struct weir_root_client *client, const char *method,
                     const char *path, json_t *body, json_t **out);
/* The answer to a request on a connection of its own, a new reference; 'body'
 * (NULL: none) is taken over. NULL: an error was printed, or with --json the
 * answer; the command ends with '*out_status'. */
json_t *weir_cli_answer(const struct weir_cli *cli, const char *method,
                        const char *path, json_t *body, int *out_status);
/* Prints a JSON value and a line feed, and drops it. */
void weir_cli_print_json(json_t *value);
/* The text of a field in an object; "" without the field. */
const char *weir_cli_text(const json_t *object, const char *key);
/* Its number; 0 without one. */
double weir_cli_number(const json_t *object, const char *key);
/* Likewise, without a fraction. */
long long weir_cli_whole(const json_t *object, const char *key);
/* Whether it is true. */
bool weir_cli_is(const json_t *object, const char *key);

/* Writes "/v1/quotas/NAME?query" to 'buf' of WEIR_CLI_PATH_MAX bytes. Prints
 * the error in a name. Returns 0 or an exit status. */
#define WEIR_CLI_PATH_MAX 2048
int weir_cli_quota_path(const char *name, const char *query, char *buf);

/* All quotas of a listing ("/v1/quotas:export", "/v1/quotas?match=…"), page by
 * page, as one list. A new reference, or NULL after printing an error. */
json_t *weir_cli_quota_all(struct weir_root_client *client, const char *path,
                           uint64_t *out_epoch);
/* The same as an object, name -> quota; a new reference. */
json_t *weir_cli_by_name(const json_t *list);

#endif /* WEIR_ROOT_CLIENT_H */
