/* SPDX-License-Identifier: MIT
 * cli/cli_request.c - requests of commands to a root; errors are printed. */

#include "cli/cli_request.h"

#include <stdio.h>
#include <string.h>

#include "core/quota/quota.h"
#include "front/uri.h"

struct weir_root_client *weir_cli_connect(const struct weir_cli *cli)
{
    struct weir_root_client *client;
    struct weir_diag diag = { 0 };
    if (weir_root_client_new(cli->roots, &cli->login, &client, &diag) == 0)
        return client;
    weir_cli_fail("%s", diag.text);
    return NULL;
}

int weir_cli_request(struct weir_root_client *client, const char *method,
                     const char *path, json_t *body, json_t **out,
                     int *out_status)
{
    struct weir_diag diag = { 0 };
    if (weir_root_client_request_patiently(client, method, path, body, out,
                                           out_status, &diag) == 0)
        return 0;
    return weir_cli_fail("%s", diag.text);
}

int weir_cli_request_once(const struct weir_cli *cli, const char *method,
                          const char *path, json_t *body, json_t **out)
{
    struct weir_root_client *client = weir_cli_connect(cli);
    int status = WEIR_EXIT_ERROR;
    if (client)
        status = weir_cli_request(client, method, path, body, out, NULL);
    weir_root_client_free(&client);
    json_decref(body);
    return status;
}

void weir_cli_print_json(json_t *value)
{
    json_dumpf(value, stdout,
               JSON_INDENT(1) | JSON_REAL_PRECISION(12) | JSON_ENCODE_ANY);
    fputc('\n', stdout);
    json_decref(value);
}

const char *weir_cli_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

int weir_cli_quota_path(const char *name, const char *query, char *buf)
{
    struct weir_diag diag = { 0 };
    if (weir_name_check(weir_text_of(name), &diag) < 0)
        return weir_cli_fail("%s", diag.text);
    char encoded[3 * WEIR_NAME_MAX];
    int len = weir_uri_encode(weir_text_of(name), encoded, sizeof encoded);
    weir_assert(len > 0);
    snprintf(buf, WEIR_CLI_PATH_MAX, "/v1/quotas/%.*s%s", len, encoded, query);
    return 0;
}

/* Adds a page to 'list'. Returns the name after which the next begins, or
 * NULL. */
static const char *add_page(json_t *list, json_t *page)
{
    json_array_extend(list, json_object_get(page, "quotas"));
    return json_string_value(json_object_get(page, "next"));
}

json_t *weir_cli_quota_all(struct weir_root_client *client, const char *path,
                           uint64_t *out_epoch)
{
    json_t *list = json_array();
    char next[WEIR_CLI_PATH_MAX];
    snprintf(next, sizeof next, "%s", path);
    for (;;) {
        json_t *page;
        if (weir_cli_request(client, "GET", next, NULL, &page, NULL) != 0) {
            json_decref(list);
            return NULL;
        }
        *out_epoch =
            (uint64_t)json_integer_value(json_object_get(page, "epoch"));
        const char *after = add_page(list, page);
        if (!after) {
            json_decref(page);
            return list;
        }
        char encoded[3 * WEIR_NAME_MAX];
        int len = weir_uri_encode(weir_text_of(after), encoded, sizeof encoded);
        snprintf(next, sizeof next, "%s%cafter=%.*s", path,
                 strchr(path, '?') ? '&' : '?', len > 0 ? len : 0, encoded);
        json_decref(page);
    }
}
