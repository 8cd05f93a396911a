/* SPDX-License-Identifier: MIT
 * cli/cmd_quota.c - weir quota set, get, ls, rm, reset. The other subcommands
 * are in quota_files.c and quota_edits.c. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd_quota.h"
#include "cli/fleet_print.h"
#include "core/quota/quota_text.h"
#include "front/uri.h"

static const char quota_help[] =
    "Reads and edits quotas: the limits of rates and concurrency.\n"
    "\n"
    "    weir quota set site limit=1000/s\n"
    "    weir quota set 'client/*' limit=50/s parent=site\n"
    "    weir quota ls\n"
    "\n"
    "  set NAME FIELD=VALUE ...   create it, or change these fields\n"
    "  get NAME                   show every field\n"
    "  ls [GLOB]                  list, one a line\n"
    "  tree [NAME]                draw parents and children\n"
    "  rm NAME ...                remove\n"
    "  reset NAME ...             empty the bucket, everywhere\n"
    "  import [--replace] FILE    make them as in a YAML file\n"
    "  export                     write that file\n"
    "  log [NAME]                 list edits, with time and author\n"
    "  undo EPOCH                 take an edit back\n"
    "  import --shadow FILE       try a whole set beside the live one\n"
    "  diff [FILE]                show how the shadow set differs\n"
    "  promote                    make the shadow set the live one\n"
    "  discard                    drop the shadow set\n"
    "\n"
    "Each of them has a --help. Fields, units and the file: weir-quota(5).\n";

static const char set_help[] =
    "Creates a quota, or changes the named fields of one.\n"
    "\n"
    "    weir quota set site limit=1000/s\n"
    "    weir quota set uploads limit=100MiB/s high_burst=2s mode=shadow\n"
    "    weir quota set 'client/*' limit=50/s parent=site labels=team=web\n"
    "    weir quota set site low_burst=          (the default again)\n"
    "    weir quota set mail algorithm=fixed_window sharing=local \\\n"
    "        limit=1000/month window=month tz=Europe/Berlin\n"
    "    weir quota set sms algorithm=token_bucket sharing=exact \\\n"
    "        limit=100/min store=redis://10.0.0.5:6379\n"
    "\n"
    "  --new                refuse a quota that exists\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               print the quota as JSON\n";

static const char get_help[] =
    "Shows a quota, every field that its algorithm and sharing have; with\n"
    "scope=fleet also the limit found, and the part of each process.\n"
    "\n"
    "    weir quota get site\n"
    "\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               as JSON\n";

static const char ls_help[] =
    "Lists quotas, by name.\n"
    "\n"
    "    weir quota ls\n"
    "    weir quota ls 'client/*' --usage\n"
    "\n"
    "  --usage              their usage, as this root counts it\n"
    "  --shadow             those of the shadow set\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               a JSON list\n";

static const char rm_help[] =
    "Removes quotas, all of them or none. One that others name as parent is\n"
    "refused, unless they are named as well.\n"
    "\n"
    "    weir quota rm 'client/*' site\n"
    "\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               {\"removed\": …, \"epoch\": …}\n";

static const char reset_help[] =
    "Empties the buckets of quotas, of all of them or of none, everywhere; of\n"
    "a template those of all its instances.\n"
    "\n"
    "    weir quota reset site 'client/*'\n"
    "\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               {\"reset\": …, \"epoch\": …}\n"
    "\n"
    "A reset is an edit: the quota begins anew, and roots and limiters forget\n"
    "the former content of the bucket. Totals stay. It can't be undone.\n";

/* ---- set ---- */

#define FIELD_COLUMN 18
#define LINE_WIDTH 79
#define FIELDS_MAX 48
#define VALUE_MAX (2 * WEIR_FIELD_VALUE_MAX) /* bytes of a value in an answer */

/* Words into lines, all but the first indented. */
static void print_wrapped(const char *text)
{
    size_t column = FIELD_COLUMN;
    const char *gap = "";
    while (*text) {
        size_t len = strcspn(text, " ");
        if (column + 1 + len > LINE_WIDTH) {
            printf("\n%*s", FIELD_COLUMN, "");
            column = FIELD_COLUMN;
            gap = "";
        }
        printf("%s%.*s", gap, (int)len, text);
        column += strlen(gap) + len;
        text += len + (text[len] == ' ');
        gap = " ";
    }
    putchar('\n');
}

static void print_fields(void)
{
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    puts("\nFields:");
    for (size_t i = 0; i < count; i++) {
        if (fields[i].read_only || strcmp(fields[i].name, "name") == 0)
            continue;
        printf("  %-*s", FIELD_COLUMN - 2, fields[i].name);
        print_wrapped(fields[i].help);
    }
}

/* "team=web,env=prod" as an object; NULL after printing an error. */
static json_t *labels_object(const char *typed)
{
    char buf[WEIR_LABELS_MAX];
    struct weir_text labels, key, value;
    struct weir_diag diag = { 0 };
    if (weir_labels_parse(weir_text_of(typed), buf, &labels, &diag) < 0) {
        weir_cli_fail("%s", diag.text);
        return NULL;
    }
    json_t *object = json_object();
    while (weir_labels_next(&labels, &key, &value))
        json_object_setn_new(object, key.p, key.len,
                             json_stringn(value.p, value.len));
    return object;
}

static const struct weir_field *find_quota_field(const char *key)
{
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, key) == 0)
            return &fields[i];
    return NULL;
}

/* The value in the JSON type of its field, if it is sound. NULL: it isn't
 * UTF-8; of labels: an error was printed. */
static json_t *value_object(const struct weir_field *field, const char *typed)
{
    struct weir_text text = weir_text_of(typed);
    int64_t number = 0;
    if (text.len == 0)
        return json_null();
    switch (field->type) {
    case WEIR_FIELD_TEXT:
        break;
    case WEIR_FIELD_MAP:
        return labels_object(typed);
    case WEIR_FIELD_NUMBER:
        (void)weir_signed_parse(text, &number);
        return json_integer(number);
    case WEIR_FIELD_FLAG:
        return json_boolean(strcmp(typed, "yes") == 0 ||
                            strcmp(typed, "true") == 0);
    }
    return json_string(typed);
}

static int refuse_quota_field(const char *key)
{
    const char *names[FIELDS_MAX + 1] = { NULL };
    size_t used = 0;
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (size_t i = 0; i < count && used < FIELDS_MAX; i++)
        if (!fields[i].read_only && strcmp(fields[i].name, "name") != 0)
            names[used++] = fields[i].name;
    char shown[WEIR_SHOW_MAX];
    weir_text_show(weir_text_of(key), shown);
    const char *nearest = weir_cli_nearest(key, names);
    if (nearest)
        return weir_cli_fail("there is no field %s; did you mean '%s'?", shown,
                             nearest);
    return weir_cli_fail("there is no field %s; see `weir quota set --help`",
                         shown);
}

/* 'text' is UTF-8. */
static int check_description(const char *text)
{
    size_t clean = weir_utf8_clean(weir_text_of(text), "\t\n");
    if (!text[clean])
        return 0;
    /* Control characters above ASCII have 0xC2 as their first byte. */
    bool wide = text[clean] & 0x80;
    return weir_cli_fail("the description holds the control character 0x%02x "
                         "at byte %zu; of those, only tab and newline are "
                         "allowed",
                         (unsigned char)text[clean + wide], clean + 1);
}

/* The root's check of a field, made here. */
static int check_field(const char *key, const char *value)
{
    if (strcmp(key, "labels") == 0)
        return 0;
    struct weir_quota scratch;
    struct weir_diag diag = { 0 };
    weir_quota_init(&scratch);
    if (weir_quota_set(&scratch, weir_text_of(key), weir_text_of(value),
                       &diag) < 0)
        return weir_cli_fail("%s", diag.text);
    return strcmp(key, "description") == 0 ? check_description(value) : 0;
}

/* Adds "limit=100/s" to the object. */
static int add_field(json_t *object, const char *argument)
{
    const char *equals = strchr(argument, '=');
    if (!equals)
        return weir_cli_fail("'%s' has no value; write %s=VALUE, and see "
                             "`weir quota set --help`",
                             argument, argument);
    char key[64];
    size_t len = (size_t)(equals - argument);
    if (len == 0 || len >= sizeof key)
        return weir_cli_fail("'%s' doesn't begin with a field; see `weir "
                             "quota set --help`",
                             argument);
    memcpy(key, argument, len);
    key[len] = '\0';
    const struct weir_field *field = find_quota_field(key);
    if (!field)
        return refuse_quota_field(key);
    if (json_object_get(object, key))
        return weir_cli_fail("%s is given twice; say it once", key);
    /* The default is no limit at all, which a typo should not set. */
    if (!equals[1] && strcmp(key, "limit") == 0)
        return weir_cli_fail("limit= would let everything through; if that is "
                             "meant, write limit=unlimited");
    json_t *value = value_object(field, equals + 1);
    if (!value && field->type == WEIR_FIELD_MAP)
        return WEIR_EXIT_ERROR;
    if (!value)
        return weir_cli_fail("the value of %s isn't UTF-8", key);
    int status = check_field(key, equals + 1);
    if (status) {
        json_decref(value);
        return status;
    }
    json_object_set_new(object, key, value);
    return 0;
}

/* A value of an answer: "1000/s", "yes", "team=web,env=prod" with 'gap'
 * between; "" for null. 'buf' holds VALUE_MAX bytes and is returned. */
static const char *show_json(json_t *value, const char *gap, char *buf)
{
    size_t len = 0;
    const char *key;
    json_t *label;
    buf[0] = '\0';
    if (json_is_integer(value))
        snprintf(buf, VALUE_MAX, "%" JSON_INTEGER_FORMAT,
                 json_integer_value(value));
    else if (json_is_boolean(value))
        strcpy(buf, json_is_true(value) ? "yes" : "no");
    else if (json_is_string(value))
        snprintf(buf, VALUE_MAX, "%s", json_string_value(value));
    json_object_foreach(value, key, label)
    {
        if (len < VALUE_MAX)
            len +=
                (size_t)snprintf(buf + len, VALUE_MAX - len, "%s%s=%s",
                                 len ? gap : "", key, json_string_value(label));
    }
    return buf;
}

/* " limit=1000/s parent=…": the requested fields with their values now; a field
 * that the quota no longer has is empty. */
static void print_set_fields(json_t *fields, const json_t *answer)
{
    const char *key;
    json_t *asked;
    char buf[VALUE_MAX];
    json_object_foreach(fields, key, asked) printf(
        " %s=%s", key, show_json(json_object_get(answer, key), ",", buf));
    putchar('\n');
}

/* With scope=process each process has its own min: the sum may exceed the
 * capacity of the protected service, which would be noticed too late. */
static void warn_of_min(struct weir_root_client *client, const json_t *quota)
{
    const char *fleet = weir_cli_text(quota, "fleet_max");
    bool whole = strtod(fleet, NULL) > 0;
    const char *bound = whole ? fleet : weir_cli_text(quota, "max");
    const char *min = weir_cli_text(quota, "min");
    json_t *root;
    if (strcmp(weir_cli_text(quota, "sharing"), "adaptive") != 0 ||
        strcmp(weir_cli_text(quota, "scope"), "fleet") == 0 ||
        weir_cli_request(client, "GET", "/v1/status", NULL, &root) != 0)
        return;
    double processes =
        weir_cli_number(json_object_get(root, "stats"), "limiters_connected");
    double together = strtod(min, NULL) * processes;
    if (together > strtod(bound, NULL))
        fprintf(stderr,
                "weir: warning: min=%s in each of %.0f processes is %.4g in "
                "flight, above %s=%s; lower min, or write fleet_min\n",
                min, processes, together, whole ? "fleet_max" : "max", bound);
    json_decref(root);
}

static int send_set(const struct weir_cli *cli, const char *name, bool create,
                    json_t *fields)
{
    char path[WEIR_CLI_PATH_MAX];
    int status = weir_cli_quota_path(name, create ? "?new=1" : "", path);
    struct weir_root_client *client = status ? NULL : weir_root_client_new(cli);
    if (!client)
        return WEIR_EXIT_ERROR;
    json_t *answer;
    status = weir_cli_request(client, "PATCH", path, fields, &answer);
    bool created = weir_root_client_created(client);
    if (!status)
        warn_of_min(client, answer);
    weir_root_client_free(&client);
    if (status)
        return status;
    if (cli->json) {
        weir_cli_print_json(answer);
        return 0;
    }
    printf("%s %s:", created ? "created" : "set", name);
    print_set_fields(fields, answer);
    json_decref(answer);
    return 0;
}

static int quota_set(int argc, char **argv)
{
    struct weir_cli cli;
    bool create = false;
    const struct weir_cli_option options[] = {
        { .name = "new", .flag = &create },
    };
    int at = weir_cli_parse(&cli, set_help, options, 1, argc, argv);
    if (at == -2)
        print_fields();
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc)
        return weir_cli_fail("which quota? For example: weir quota set site "
                             "limit=1000/s");
    json_t *fields = json_object();
    int status = 0;
    for (int i = at + 1; i < argc && status == 0; i++)
        status = add_field(fields, argv[i]);
    if (status == 0)
        status = send_set(&cli, argv[at], create, fields);
    json_decref(fields);
    return status;
}

/* ---- get ---- */

static void print_field_row(struct weir_rows *rows, const json_t *quota,
                            const char *key)
{
    char buf[VALUE_MAX];
    if (show_json(json_object_get(quota, key), ", ", buf)[0])
        weir_rows_add_all(rows, key, buf, NULL);
}

static void print_used(struct weir_rows *rows, const json_t *usage)
{
    if (!usage)
        return;
    char fill[16], passed[16], limited[16], by[48] = "";
    long long limiters = weir_cli_whole(usage, "limiters");
    if (limiters > 0)
        snprintf(by, sizeof by, "; by %lld process%s", limiters,
                 limiters == 1 ? "" : "es");
    weir_rows_add(rows, "in use");
    weir_rows_addf(rows, "fill %s; passed %s, limited %s%s",
                   weir_cli_units(weir_cli_number(usage, "fill"), fill),
                   weir_cli_units(weir_cli_number(usage, "passed"), passed),
                   weir_cli_units(weir_cli_number(usage, "limited"), limited),
                   by);
}

/* Prints the quota's fields and use, and the part that each process has of a
 * fleet's limit. 'fleet' may be NULL. */
static void print_quota(const json_t *quota, const json_t *fleet)
{
    struct weir_rows rows = { .columns = 2 };
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (size_t i = 0; i < count; i++)
        if (fields[i].type != WEIR_FIELD_MAP)
            print_field_row(&rows, quota, fields[i].name);
    print_field_row(&rows, quota, "labels");
    print_used(&rows, json_object_get(quota, "usage"));
    if (fleet)
        weir_cli_add_fleet(&rows, fleet);
    weir_rows_print(&rows, stdout);
    if (fleet)
        weir_cli_print_members(fleet);
}

static int quota_get(int argc, char **argv)
{
    struct weir_cli cli;
    int at = weir_cli_parse(&cli, get_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (argc - at != 1)
        return weir_cli_fail("one name, please; for example: weir quota get "
                             "site");
    char path[WEIR_CLI_PATH_MAX];
    if (weir_cli_quota_path(argv[at], "?usage=1", path) != 0)
        return WEIR_EXIT_ERROR;
    struct weir_root_client *client = weir_root_client_new(&cli);
    if (!client)
        return WEIR_EXIT_ERROR;
    json_t *quota;
    json_t *fleet = NULL;
    int status = weir_cli_request(client, "GET", path, NULL, &quota);
    if (!status && strcmp(weir_cli_text(quota, "scope"), "fleet") == 0)
        fleet = weir_cli_find_fleet(client, argv[at]);
    weir_root_client_free(&client);
    if (status)
        return status;
    if (cli.json) {
        if (fleet)
            json_object_set(json_object_get(quota, "usage"), "fleet", fleet);
        weir_cli_print_json(quota);
    } else {
        print_quota(quota, fleet);
        json_decref(quota);
    }
    json_decref(fleet);
    return 0;
}

/* ---- ls ---- */

static void add_usage(struct weir_rows *rows, const json_t *usage)
{
    static const char *const keys[] = { "fill", "passed", "limited" };
    for (size_t i = 0; i < WEIR_COUNT_OF(keys); i++) {
        char buf[16] = "-";
        if (usage)
            weir_cli_units(weir_cli_number(usage, keys[i]), buf);
        weir_rows_add(rows, buf);
    }
}

static void print_list(const json_t *list, bool usage)
{
    struct weir_rows rows = { .right = usage ? 7u << 4 | 2 : 2 };
    if (json_array_size(list) == 0)
        return;
    if (usage)
        weir_rows_head(&rows, "NAME", "LIMIT", "MODE", "SHARING", "FILL",
                       "PASSED", "LIMITED", "PARENT", NULL);
    else
        weir_rows_head(&rows, "NAME", "LIMIT", "MODE", "SHARING", "PARENT",
                       NULL);
    size_t index;
    json_t *quota;
    json_array_foreach(list, index, quota)
    {
        weir_rows_add_all(&rows, weir_cli_text(quota, "name"),
                          weir_cli_text(quota, "limit"),
                          weir_cli_text(quota, "mode"),
                          weir_cli_text(quota, "sharing"), NULL);
        if (usage)
            add_usage(&rows, json_object_get(quota, "usage"));
        weir_rows_add(&rows, weir_cli_text(quota, "parent"));
    }
    weir_rows_print(&rows, stdout);
}

static int quota_ls(int argc, char **argv)
{
    struct weir_cli cli;
    bool usage = false;
    bool shadow = false;
    const struct weir_cli_option options[] = {
        { .name = "usage", .letter = 'u', .flag = &usage },
        { .name = "shadow", .flag = &shadow },
    };
    int at = weir_cli_parse(&cli, ls_help, options, 2, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (argc - at > 1)
        return weir_cli_fail("one GLOB, please; quote it from the shell: "
                             "weir quota ls 'client/*'");
    char encoded[3 * WEIR_NAME_MAX];
    const char *glob = at < argc ? argv[at] : "*";
    int len = weir_uri_encode(weir_text_of(glob), encoded, sizeof encoded);
    if (len < 0)
        return weir_cli_fail("the GLOB is too long; a name has 255 bytes");
    char path[WEIR_CLI_PATH_MAX];
    snprintf(path, sizeof path,
             "/v1/quotas?limit=1000&usage=%d&shadow=%d&match=%.*s", usage,
             shadow, len, encoded);
    struct weir_root_client *client = weir_root_client_new(&cli);
    if (!client)
        return WEIR_EXIT_ERROR;
    uint64_t epoch;
    json_t *list = weir_cli_quota_all(client, path, &epoch);
    weir_root_client_free(&client);
    if (!list)
        return WEIR_EXIT_ERROR;
    if (cli.json) {
        weir_cli_print_json(list);
        return 0;
    }
    if (json_array_size(list) == 0)
        fprintf(stderr,
                at < argc ? "no quota matches '%s'\n"
                : shadow  ? "there is no shadow set; make one: weir "
                            "quota import FILE --shadow\n"
                          : "there are no quotas yet; make one: weir "
                            "quota set NAME limit=100/s\n",
                glob);
    print_list(list, usage);
    json_decref(list);
    return 0;
}

/* ---- rm ---- */

static json_t *names_object(char **names, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        struct weir_diag diag = { 0 };
        if (weir_name_check(weir_text_of(names[i]), &diag) < 0) {
            weir_cli_fail("%s", diag.text);
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, json_string(names[i]));
    }
    return json_pack("{s:o}", "names", list);
}

/* One edit of all named quotas. 'done': its key in the answer. */
static int edit_named(const char *verb, const char *path, const char *help,
                      const char *done, int argc, char **argv)
{
    struct weir_cli cli;
    int at = weir_cli_parse(&cli, help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc)
        return weir_cli_fail("which quota? For example: weir quota %s site",
                             verb);
    json_t *names = names_object(argv + at, argc - at);
    if (!names)
        return WEIR_EXIT_ERROR;
    int status;
    json_t *answer = weir_cli_answer(&cli, "POST", path, names, &status);
    if (!answer)
        return status;
    printf("%s %lld\n", done, weir_cli_whole(answer, done));
    json_decref(answer);
    return WEIR_EXIT_OK;
}

static int quota_rm(int argc, char **argv)
{
    return edit_named("rm", "/v1/quotas:remove", rm_help, "removed", argc,
                      argv);
}

static int quota_reset(int argc, char **argv)
{
    return edit_named("reset", "/v1/quotas:reset", reset_help, "reset", argc,
                      argv);
}

/* ---- quota ---- */

int weir_cli_quota(int argc, char **argv)
{
    static const struct weir_cli_subcommand known[] = {
        { "set", quota_set },
        { "get", quota_get },
        { "ls", quota_ls },
        { "tree", weir_cli_quota_tree },
        { "rm", quota_rm },
        { "reset", quota_reset },
        { "import", weir_cli_quota_import },
        { "export", weir_cli_quota_export },
        { "log", weir_cli_quota_log },
        { "undo", weir_cli_quota_undo },
        { "diff", weir_cli_quota_diff },
        { "promote", weir_cli_quota_promote },
        { "discard", weir_cli_quota_discard },
    };
    return weir_cli_run("quota", quota_help, known, WEIR_COUNT_OF(known), argc,
                        argv);
}
