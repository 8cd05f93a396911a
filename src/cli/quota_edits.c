/* SPDX-License-Identifier: MIT
 * cli/quota_edits.c - weir quota log, undo: the edits and their authors, and
 * taking one back; weir quota diff, promote, discard: a set that is tried
 * beside the live one. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cmd_quota.h"
#include "cli/table_print.h"
#include "codec/quota_json.h"
#include "front/uri.h"
#include "lab/memory.h"
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

static const char diff_help[] =
    "Shows how the shadow set, or a FILE, differs from the live set.\n"
    "\n"
    "    weir quota diff\n"
    "    weir quota diff quotas.yaml\n"
    "\n"
    "LIMITED is the live traffic that each quota limited since this root\n"
    "first saw it, and its share; of a template, the sum of its instances.\n"
    "In a chain it is the part that the quota itself limited, and the part\n"
    "that was limited above it. WOULD BE is the same of the shadow set, which\n"
    "mostly exists for a shorter time: compare the percentages.\n"
    "\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               a JSON list\n";

static const char promote_help[] =
    "Makes the shadow set the live one, in one edit: quotas that it doesn't\n"
    "name are removed, and there is no shadow set any more.\n"
    "\n"
    "    weir quota import new.yaml --shadow\n"
    "    weir top --shadow\n"
    "    weir quota diff\n"
    "    weir quota promote\n"
    "\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               {\"created\": …, \"changed\": …, …}\n"
    "\n"
    "`weir quota undo` takes it back.\n";

static const char discard_help[] =
    "Drops the shadow set. The live set stays as it is.\n"
    "\n"
    "    weir quota discard\n"
    "\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               {\"removed\": …, \"epoch\": …}\n";

/* ---- The text of a change ---- */

/* A value on one line. 'buf' holds WEIR_FIELD_VALUE_MAX + 1 bytes and is
 * returned. */
static const char *show_value(const struct weir_quota *quota, const char *field,
                              char *buf)
{
    size_t len = weir_quota_get(quota, field, buf, WEIR_FIELD_VALUE_MAX);
    for (size_t i = 0; i < len; i++)
        if (buf[i] == '\n' || buf[i] == '\t')
            buf[i] = buf[i] == '\n' ? ',' : ' ';
    buf[len] = '\0';
    return buf;
}

static void print_old_value(FILE *out, const struct weir_quota *quota,
                            const char *field)
{
    char buf[WEIR_FIELD_VALUE_MAX + 1];
    fputs(show_value(quota, field, buf)[0] ? buf : "none", out);
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
        weir_no_memory();
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
        weir_no_memory();
    return text;
}

/* ---- log ---- */

static bool is_same_edit(const json_t *a, const json_t *b)
{
    return a &&
           json_equal(json_object_get(a, "edit"), json_object_get(b, "edit"));
}

/* The columns WHEN and IDENTITY are filled in the first line of an edit
 * only. */
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
    int status;
    json_t *answer = weir_cli_answer(&cli, "POST", "/v1/undo", body, &status);
    if (!answer)
        return status;
    printf("undone: the edit of epoch %" PRIu64 "; the epoch is now %lld\n",
           epoch, weir_cli_whole(answer, "epoch"));
    json_decref(answer);
    return WEIR_EXIT_OK;
}

/* ---- diff ---- */

/* A name, and the quota of each side, if it has one. */
struct pair {
    const char *name;            /* borrowed */
    json_t *sides[2];            /* live, other; borrowed; NULL: none */
    struct weir_quota quotas[2]; /* borrowed from 'sides' */
};

struct pairs {
    json_t *sets[2]; /* owned: live, other; name -> quota */
    struct pair *items;
    size_t count;
    bool file; /* the other side is a file: it limited nothing */
};

static int compare_pair_names(const void *a, const void *b)
{
    return strcmp(((const struct pair *)a)->name,
                  ((const struct pair *)b)->name);
}

static void read_pair_quota(struct pair *pair, int side)
{
    static const char *const foreign[] = { "id", "epoch", "created", "usage" };
    weir_quota_init(&pair->quotas[side]);
    json_t *object = pair->sides[side];
    if (!object)
        return;
    /* Taken out of the object while the quota is read, and kept beside it. */
    json_t *usage = json_incref(json_object_get(object, "usage"));
    for (size_t i = 0; i < WEIR_COUNT_OF(foreign); i++)
        json_object_del(object, foreign[i]);
    weir_quota_from_json(object, &pair->quotas[side], NULL);
    if (usage)
        json_object_set_new(object, "usage", usage);
}

/* Merges both sets into pairs, by name. */
static void make_pairs(struct pairs *pairs)
{
    const char *name;
    json_t *object;
    size_t most =
        json_object_size(pairs->sets[0]) + json_object_size(pairs->sets[1]);
    pairs->items = calloc(most + 1, sizeof *pairs->items);
    if (!pairs->items)
        weir_no_memory();
    json_object_foreach(pairs->sets[0], name, object)
    {
        json_t *other = json_object_get(pairs->sets[1], name);
        pairs->items[pairs->count++] =
            (struct pair){ .name = name, .sides = { object, other } };
    }
    json_object_foreach(pairs->sets[1], name, object)
    {
        if (!json_object_get(pairs->sets[0], name))
            pairs->items[pairs->count++] =
                (struct pair){ .name = name, .sides = { NULL, object } };
    }
    weir_assert(pairs->count <= most);
    qsort(pairs->items, pairs->count, sizeof *pairs->items, compare_pair_names);
    for (size_t i = 0; i < pairs->count; i++)
        for (int side = 0; side < 2; side++)
            read_pair_quota(&pairs->items[i], side);
}

/* "12.3k (1.2%)", or "-". */
static void limited_of(const json_t *side, char *buf, size_t size)
{
    const json_t *usage = json_object_get(side, "usage");
    double passed = weir_cli_number(usage, "passed");
    double refused = weir_cli_number(usage, "limited");
    char units[16];
    if (usage && passed + refused > 0)
        snprintf(buf, size, "%s (%.1f%%)", weir_cli_units(refused, units),
                 100 * refused / (passed + refused));
    else
        snprintf(buf, size, "-");
}

struct difference {
    const char *field;
    char values[2][WEIR_FIELD_VALUE_MAX + 1];
};

/* The next field from '*at' on in which the two differ. If the quota is on one
 * side only, that is the one difference. */
static bool next_difference(const struct pair *pair, size_t *at,
                            struct difference *out)
{
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    if (!pair->sides[0] || !pair->sides[1]) {
        out->field = "limit";
        for (int side = 0; side < 2; side++) {
            (void)show_value(&pair->quotas[side], "limit", out->values[side]);
            if (!pair->sides[side])
                strcpy(out->values[side], "(no quota)");
        }
        return (*at)++ == 0;
    }
    while (*at < count) {
        const struct weir_field *field = &fields[(*at)++];
        if (field->read_only)
            continue;
        out->field = field->name;
        for (int side = 0; side < 2; side++)
            (void)show_value(&pair->quotas[side], field->name,
                             out->values[side]);
        if (strcmp(out->values[0], out->values[1]) != 0)
            return true;
    }
    return false;
}

static json_t *pair_object(const struct pair *pair)
{
    json_t *differs = json_object();
    struct difference difference;
    size_t at = 0;
    while (next_difference(pair, &at, &difference))
        json_object_set_new(
            differs, difference.field,
            json_pack("[s, s]", difference.values[0], difference.values[1]));
    return json_pack("{s:s, s:b, s:b, s:o, s:O?, s:O?}", "name", pair->name,
                     "live", pair->sides[0] != NULL, "other",
                     pair->sides[1] != NULL, "differs", differs, "live_usage",
                     json_object_get(pair->sides[0], "usage"), "other_usage",
                     json_object_get(pair->sides[1], "usage"));
}

static void print_diff_json(const struct pairs *pairs)
{
    json_t *list = json_array();
    for (size_t i = 0; i < pairs->count; i++) {
        json_t *object = pair_object(&pairs->items[i]);
        if (json_object_size(json_object_get(object, "differs")) > 0)
            json_array_append(list, object);
        json_decref(object);
    }
    weir_cli_print_json(list);
}

static void add_pair(struct weir_rows *rows, const struct pairs *pairs,
                     const struct pair *pair)
{
    struct difference difference;
    size_t at = 0;
    size_t lines = 0;
    while (next_difference(pair, &at, &difference)) {
        if (rows->count == 0)
            weir_rows_head(rows, "QUOTA", "FIELD", "LIVE",
                           pairs->file ? "FILE" : "SHADOW", "LIMITED",
                           pairs->file ? NULL : "WOULD BE", NULL);
        char limited[2][64] = { "", "" };
        for (int side = 0; lines == 0 && side < 2; side++)
            limited_of(pair->sides[side], limited[side], sizeof limited[side]);
        weir_rows_add_all(rows, lines == 0 ? pair->name : "", difference.field,
                          difference.values[0], difference.values[1],
                          limited[0], pairs->file ? NULL : limited[1], NULL);
        lines++;
    }
}

static void print_pairs(const struct pairs *pairs)
{
    struct weir_rows rows = { .right = pairs->file ? 1u << 4 : 3u << 4 };
    for (size_t i = 0; i < pairs->count; i++)
        add_pair(&rows, pairs, &pairs->items[i]);
    if (rows.count == 0)
        fprintf(stderr, "no difference\n");
    weir_rows_print(&rows, stdout);
}

static int show_diff(const struct weir_cli *cli, const char *path)
{
    static const char *const listings[] = {
        "/v1/quotas?limit=1000&usage=1",
        "/v1/quotas?limit=1000&usage=1&shadow=1",
    };
    struct pairs pairs = { .file = path != NULL };
    uint64_t epoch;
    struct weir_root_client *client = weir_root_client_new(cli);
    if (!client)
        return WEIR_EXIT_ERROR;
    int status = WEIR_EXIT_OK;
    for (int side = 1; side >= 0 && status == 0; side--) {
        bool file = path && side == 1;
        json_t *body = file ? weir_cli_quota_file(path, NULL) : NULL;
        json_t *list = file
                           ? json_incref(json_object_get(body, "quotas"))
                           : weir_cli_quota_all(client, listings[side], &epoch);
        json_decref(body);
        pairs.sets[side] = weir_cli_by_name(list);
        status = list ? WEIR_EXIT_OK : WEIR_EXIT_ERROR;
        json_decref(list);
    }
    weir_root_client_free(&client);
    if (status == 0 && !path && json_object_size(pairs.sets[1]) == 0)
        status = weir_cli_fail("there is no shadow set; `weir quota import "
                               "FILE --shadow` makes one");
    if (status == 0) {
        make_pairs(&pairs);
        if (cli->json)
            print_diff_json(&pairs);
        else
            print_pairs(&pairs);
    }
    free(pairs.items);
    json_decref(pairs.sets[0]);
    json_decref(pairs.sets[1]);
    return status;
}

int weir_cli_quota_diff(int argc, char **argv)
{
    struct weir_cli cli;
    int at = weir_cli_parse(&cli, diff_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (argc - at > 1)
        return weir_cli_fail("one FILE at most, please; for example: weir "
                             "quota diff quotas.yaml");
    return show_diff(&cli, at < argc ? argv[at] : NULL);
}

/* ---- promote, discard ---- */

/* NULL: the command ends with '*out_status'. */
static json_t *post_shadow(const char *help, const char *path, int argc,
                           char **argv, struct weir_cli *cli, int *out_status)
{
    int at = weir_cli_parse(cli, help, NULL, 0, argc, argv);
    *out_status = weir_cli_parsed(at);
    if (at < 0)
        return NULL;
    if (at == argc)
        return weir_cli_answer(cli, "POST", path, NULL, out_status);
    *out_status =
        weir_cli_fail("it takes no argument: there is one shadow set");
    return NULL;
}

int weir_cli_quota_promote(int argc, char **argv)
{
    struct weir_cli cli;
    int status;
    json_t *answer = post_shadow(promote_help, "/v1/shadow:promote", argc, argv,
                                 &cli, &status);
    if (answer)
        weir_cli_print_counts(&cli, answer);
    return status;
}

int weir_cli_quota_discard(int argc, char **argv)
{
    struct weir_cli cli;
    int status;
    json_t *answer = post_shadow(discard_help, "/v1/shadow:discard", argc, argv,
                                 &cli, &status);
    if (answer)
        printf("removed %lld from the shadow set\n",
               weir_cli_whole(answer, "removed"));
    json_decref(answer);
    return status;
}
