/* SPDX-License-Identifier: MIT
 * cli/quota_history.c - weir quota log, undo: the edits and their authors, and
 * taking one back. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cmd_quota.h"
#include "cli/table_print.h"
#include "codec/quota_json.h"
#include "front/uri.h"
#include "server/admin/admin.h"

static const char log_help[] =
    "Shows the edits with time and author, the newest first.\n"
    "\n"
    "    weir quota log\n"
    "    weir quota log site --max 5\n"
    "\n"
    "  --max N              as many entries at most                    [50]\n"
    "  --shadow             NAME is one of the shadow set\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               a JSON list\n"
    "\n"
    "IDENTITY is the name of a token or certificate, or anonymous. Lines\n"
    "without WHEN and IDENTITY are of the same edit as the one above.\n"
    "`weir quota undo` takes an EPOCH; each epoch of an edit will do.\n";

static const char undo_help[] =
    "Takes back the edit that made an epoch, all that it changed, unless one\n"
    "of its quotas was changed since.\n"
    "\n"
    "    weir quota undo 17\n"
    "\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               {\"undone\": …, \"epoch\": …}\n"
    "\n"
    "An undo is an edit of its own and can be undone. A reset can't.\n";

/* ---- The text of a change ---- */

/* A value on one line. */
static void print_old_value(FILE *out, const struct weir_quota *quota,
                            const char *field)
{
    char buf[WEIR_FIELD_VALUE_MAX];
    size_t len = weir_quota_get(quota, field, buf, sizeof buf);
    for (size_t i = 0; i < len; i++)
        fputc(buf[i] == '\n' ? ',' : buf[i] == '\t' ? ' ' : buf[i], out);
    if (len == 0)
        fputs("none", out);
}

static bool is_same_value(const struct weir_quota *a,
                          const struct weir_quota *b, const char *field)
{
    char x[WEIR_FIELD_VALUE_MAX], y[WEIR_FIELD_VALUE_MAX];
    size_t len = weir_quota_get(a, field, x, sizeof x);
    return len == weir_quota_get(b, field, y, sizeof y) &&
           memcmp(x, y, len) == 0;
}

/* "limit=5/s parent=site": the entered fields. */
static void print_entered(FILE *out, const struct weir_quota *quota)
{
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (size_t i = 0; i < count; i++) {
        if (fields[i].read_only || strcmp(fields[i].name, "name") == 0 ||
            weir_quota_is_default(quota, fields[i].name))
            continue;
        fprintf(out, " %s=", fields[i].name);
        print_old_value(out, quota, fields[i].name);
    }
}

/* "limit 5/s -> 6/s, mode enforce -> off". */
static void print_difference(FILE *out, const struct weir_quota *before,
                             const struct weir_quota *after)
{
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    const char *gap = "";
    for (size_t i = 0; i < count; i++) {
        if (fields[i].read_only || is_same_value(before, after, fields[i].name))
            continue;
        fprintf(out, "%s%s ", gap, fields[i].name);
        print_old_value(out, before, fields[i].name);
        fputs(" -> ", out);
        print_old_value(out, after, fields[i].name);
        gap = ", ";
    }
    /* A default was written out, or a written default dropped. */
    if (!gap[0])
        fputs("as it was, but entered otherwise", out);
}

/* False: that side doesn't exist. */
static bool read_edit_side(json_t *entry, const char *key,
                           struct weir_quota *quota)
{
    weir_quota_init(quota);
    json_t *object = json_object_get(entry, key);
    return json_is_object(object) &&
           weir_quota_from_json(object, quota, NULL) == 0;
}

/* The text is malloc'ed. */
static char *describe(json_t *entry)
{
    char *text;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    if (!out)
        abort();
    struct weir_quota before, after;
    bool was = read_edit_side(entry, "before", &before);
    bool is = read_edit_side(entry, "after", &after);
    if (weir_cli_is(entry, "reset")) {
        fputs("reset", out);
    } else if (was && is) {
        print_difference(out, &before, &after);
    } else {
        fputs(is ? "created" : "removed", out);
        print_entered(out, is ? &after : &before);
    }
    if (fclose(out) != 0)
        abort();
    return text;
}

/* ---- log ---- */

static bool is_same_edit(const json_t *a, const json_t *b)
{
    return a &&
           json_equal(json_object_get(a, "edit"), json_object_get(b, "edit"));
}

/* The columns WHEN and WHO are filled in the first line of an edit only. */
static void print_entry(struct weir_rows *rows, json_t *entry, bool first)
{
    char when[32];
    time_t seconds = (time_t)(weir_cli_whole(entry, "at_ms") / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%SZ", &utc);
    char *change = describe(entry);
    weir_rows_add_all(rows, first ? when : "",
                      first ? weir_cli_text(entry, "identity") : "", NULL);
    weir_rows_addf(rows, "%lld", weir_cli_whole(entry, "epoch"));
    weir_rows_addf(rows, "%s%s", weir_cli_text(entry, "name"),
                   weir_cli_is(entry, "shadow") ? " (shadow)" : "");
    weir_rows_add(rows, change);
    free(change);
}

static void print_edits(const json_t *entries)
{
    struct weir_rows rows = { .right = 1u << 2 };
    weir_rows_head(&rows, "WHEN", "IDENTITY", "EPOCH", "QUOTA", "CHANGE", NULL);
    size_t index;
    json_t *entry;
    const json_t *before = NULL;
    json_array_foreach(entries, index, entry)
    {
        print_entry(&rows, entry, !is_same_edit(before, entry));
        before = entry;
    }
    weir_rows_print(&rows, stdout);
}

/* At most 'max' entries, page by page. NULL after printing an error. */
static json_t *request_log(struct weir_root_client *client, const char *query,
                           uint64_t max)
{
    json_t *all = json_array();
    json_int_t below = 0;
    do {
        uint64_t rest = max - json_array_size(all);
        char path[WEIR_CLI_PATH_MAX], from[48] = "";
        if (below > 0)
            snprintf(from, sizeof from, "&below=%" JSON_INTEGER_FORMAT, below);
        snprintf(path, sizeof path, "/v1/log?max=%llu%s%s",
                 (unsigned long long)(rest < WEIR_ADMIN_LOG_MAX
                                          ? rest
                                          : WEIR_ADMIN_LOG_MAX),
                 from, query);
        json_t *page;
        if (weir_cli_request(client, "GET", path, NULL, &page) != 0) {
            json_decref(all);
            return NULL;
        }
        json_array_extend(all, json_object_get(page, "entries"));
        below = weir_cli_whole(page, "next");
        json_decref(page);
    } while (below > 0 && json_array_size(all) < max);
    return all;
}

static int show_log(const struct weir_cli *cli, const char *query, uint64_t max)
{
    struct weir_root_client *client = weir_root_client_new(cli);
    json_t *entries = client ? request_log(client, query, max) : NULL;
    weir_root_client_free(&client);
    if (!entries)
        return WEIR_EXIT_ERROR;
    if (cli->json) {
        weir_cli_print_json(entries);
        return WEIR_EXIT_OK;
    }
    if (json_array_size(entries) == 0)
        fprintf(stderr, "the log has no such edit\n");
    else
        print_edits(entries);
    json_decref(entries);
    return WEIR_EXIT_OK;
}

int weir_cli_quota_log(int argc, char **argv)
{
    struct weir_cli cli;
    const char *max_text = "50";
    bool shadow = false;
    const struct weir_cli_option options[] = {
        { .name = "max", .letter = 'n', .value = &max_text },
        { .name = "shadow", .flag = &shadow },
    };
    int at = weir_cli_parse(&cli, log_help, options, 2, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (argc - at > 1)
        return weir_cli_fail("one NAME at most, please; for example: weir "
                             "quota log site");
    uint64_t max;
    if (weir_units_parse(weir_text_of(max_text), &max, NULL) < 0 || max < 1)
        return weir_cli_fail("--max: a number from 1 on");
    char query[WEIR_CLI_PATH_MAX / 2] = "";
    if (at < argc) {
        char encoded[3 * WEIR_NAME_MAX];
        int len =
            weir_uri_encode(weir_text_of(argv[at]), encoded, sizeof encoded);
        if (len < 0)
            return weir_cli_fail("the NAME is too long; a name has 255 bytes");
        snprintf(query, sizeof query, "&quota=%.*s%s", len, encoded,
                 shadow ? "&shadow=1" : "");
    }
    return show_log(&cli, query, max);
}

/* ---- undo ---- */

int weir_cli_quota_undo(int argc, char **argv)
{
    struct weir_cli cli;
    int at = weir_cli_parse(&cli, undo_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    uint64_t epoch = 0;
    if (argc - at != 1 ||
        weir_units_parse(weir_text_of(argv[at]), &epoch, NULL) < 0 ||
        epoch == 0)
        return weir_cli_fail("one EPOCH, please, as `weir quota log` shows "
                             "it; for example: weir quota undo 17");
    json_t *body = json_pack("{s:I}", "epoch", (json_int_t)epoch);
    json_t *answer;
    int status = weir_cli_request_once(&cli, "POST", "/v1/undo", body, &answer);
    if (status)
        return status;
    if (cli.json) {
        weir_cli_print_json(answer);
        return WEIR_EXIT_OK;
    }
    printf("undone: the edit of epoch %" PRIu64 "; the epoch is now %lld\n",
           epoch, weir_cli_whole(answer, "epoch"));
    json_decref(answer);
    return WEIR_EXIT_OK;
}
