/* SPDX-License-Identifier: MIT
 * cli/quota_files.c - the whole set at once: weir quota tree, import, export.
 *
 * The file is read and written here; the root knows JSON only. So an error in
 * the file is found before a root is asked, and shown with its place. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd_quota.h"
#include "codec/rls_rules.h"
#include "codec/yaml.h"
#include "lab/memory.h"
#include "protocol/rls/rls_files.h"
#include "server/admin/quota_export.h"

static const char tree_help[] =
    "Draws the parents and children: a request to a quota must pass all that\n"
    "are above it.\n"
    "\n"
    "    weir quota tree\n"
    "    weir quota tree site\n"
    "\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               a JSON list, each with its \"children\"\n";

static const char import_help[] =
    "Makes quotas as in a YAML file, all of them or none.\n"
    "\n"
    "    weir quota import quotas.yaml\n"
    "    weir quota export | sed s/1000/2000/ | weir quota import -\n"
    "\n"
    "    weir: 1\n"
    "    quotas:\n"
    "      - name: site\n"
    "        limit: 1000/s\n"
    "      - name: client/*\n"
    "        parent: site\n"
    "        limit: 50/s\n"
    "\n"
    "  --replace            remove quotas that the file doesn't name\n"
    "  --from envoy         FILE is a configuration of envoyproxy/ratelimit,\n"
    "                       or a folder of such files: see weir-envoy(7)\n"
    "  --exact STORE        with --from: count as there, in windows of the\n"
    "                       clock, in redis://…, memcached://… or the root\n"
    "                       [buckets that all processes fill together]\n"
    "  --deadline TIME      with --exact: for an answer of the store   [20ms]\n"
    "  --on-stale RULE      with --exact: pass, limit or share, without its\n"
    "                       answer                                    [pass]\n"
    "  --dry-run            write the quotas to standard output as a file of\n"
    "                       Weir's own, and change nothing; no root is asked\n"
    "  --overflow VALUES    with --from: values of a descriptor for which a\n"
    "                       limiter has no room share the limit of so many;\n"
    "                       0: they go by its --on-full              [1000]\n"
    "  --shadow             make it the shadow set, in the place of one that\n"
    "                       is there: decided and counted beside the live set\n"
    "                       on live traffic, and never in force; see `weir\n"
    "                       top --shadow`, `weir quota diff`, `promote`\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               {\"created\": …, \"changed\": …, …}\n";

static const char export_help[] =
    "Writes all quotas as the YAML file that `weir quota import` reads.\n"
    "\n"
    "    weir quota export > quotas.yaml\n"
    "\n"
    "  --shadow             the shadow set\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               as JSON\n";

/* ---- A set as a forest ---- */

#define NONE SIZE_MAX

struct entry {
    struct weir_quota quota; /* borrowed from 'object' */
    json_t *object;          /* borrowed from the list */
    /* Indexes of the parent, the first child by name, and the next child of the
     * same parent; NONE: there isn't one. */
    size_t parent, child, next;
    bool seen;
};

struct forest {
    struct entry *entries; /* owned; by name */
    size_t count;
};

static int compare_quota_names(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    return weir_text_compare(x->quota.name, y->quota.name);
}

static size_t find_in_forest(const struct forest *forest, struct weir_text name)
{
    struct entry key = { .quota = { .name = name } };
    const struct entry *found = bsearch(&key, forest->entries, forest->count,
                                        sizeof key, compare_quota_names);
    return found ? (size_t)(found - forest->entries) : NONE;
}

/* If a template's parent has captures, the template is drawn under the quota
 * with a glob for each of them: the parent of its instances. */
static size_t find_parent(const struct forest *forest, struct weir_text name)
{
    if (name.len == 0)
        return NONE;
    size_t exact = find_in_forest(forest, name);
    if (exact != NONE)
        return exact;
    char glob[WEIR_NAME_MAX];
    size_t len = 0;
    for (size_t i = 0; i < name.len && len < sizeof glob; i++) {
        bool capture = name.p[i] == '{' && name.len - i > 2;
        glob[len++] = capture ? '*' : name.p[i];
        i += capture ? 2 : 0;
    }
    return find_in_forest(forest, (struct weir_text){ glob, len });
}

/* 'list' must outlive the forest; it is changed ("labels" become text). */
static int make_forest(json_t *list, struct forest *out)
{
    *out = (struct forest){ calloc(json_array_size(list) + 1,
                                   sizeof(struct entry)),
                            json_array_size(list) };
    if (!out->entries)
        weir_no_memory();
    for (size_t i = 0; i < out->count; i++) {
        struct entry *entry = &out->entries[i];
        struct weir_diag diag = { 0 };
        entry->object = json_array_get(list, i);
        entry->parent = entry->child = entry->next = NONE;
        weir_quota_init(&entry->quota);
        if (weir_quota_from_json(entry->object, &entry->quota, &diag) < 0) {
            free(out->entries);
            return weir_cli_fail("the root sent a quota that this Weir "
                                 "doesn't understand: %s",
                                 diag.text);
        }
    }
    qsort(out->entries, out->count, sizeof *out->entries, compare_quota_names);
    /* From the last name to the first: each becomes the first child. */
    for (size_t i = out->count; i-- > 0;) {
        struct entry *entry = &out->entries[i];
        size_t parent = find_parent(out, entry->quota.parent);
        if (parent == i || parent == NONE)
            continue;
        weir_assert(parent < out->count);
        entry->parent = parent;
        entry->next = out->entries[parent].child;
        out->entries[parent].child = i;
    }
    return 0;
}

static json_t *request_all_quotas(const struct weir_cli *cli, bool shadow,
                                  uint64_t *epoch)
{
    struct weir_root_client *client = weir_root_client_new(cli);
    if (!client)
        return NULL;
    const char *path =
        shadow ? "/v1/quotas:export?shadow=1" : "/v1/quotas:export";
    json_t *list = weir_cli_quota_all(client, path, epoch);
    weir_root_client_free(&client);
    return list;
}

/* ---- tree ---- */

static void print_facts(const struct weir_quota *quota)
{
    static const char *const shown[] = {
        "limit", "algorithm", "window",   "low_burst", "high_burst",
        "mode",  "sharing",   "on_stale", "store",
    };
    char value[WEIR_FIELD_VALUE_MAX];
    for (size_t i = 0; i < WEIR_COUNT_OF(shown); i++) {
        bool limit = strcmp(shown[i], "limit") == 0;
        if (!limit && weir_quota_is_default(quota, shown[i]))
            continue;
        size_t len = weir_quota_get(quota, shown[i], value, sizeof value);
        if (limit)
            printf("  %.*s", (int)len, value);
        else
            printf(" %s=%.*s", shown[i], (int)len, value);
    }
    putchar('\n');
}

/* 'prefix' is printed before the children's branches. */
static void print_branch(struct forest *forest, size_t index, char *prefix,
                         size_t len, unsigned depth)
{
    struct entry *entry = &forest->entries[index];
    printf("%.*s", (int)entry->quota.name.len, entry->quota.name.p);
    print_facts(&entry->quota);
    entry->seen = true;
    for (size_t child = entry->child; child != NONE;
         child = forest->entries[child].next) {
        bool last = forest->entries[child].next == NONE;
        /* The drawn parents of templates may form a ring; chains never do. */
        if (forest->entries[child].seen || depth > 2 * WEIR_DEPTH_MAX)
            continue;
        printf("%.*s%s", (int)len, prefix, last ? "└─ " : "├─ ");
        const char *step = last ? "   " : "│  ";
        memcpy(prefix + len, step, strlen(step));
        print_branch(forest, child, prefix, len + strlen(step), depth + 1);
    }
}

static json_t *branch_object(struct forest *forest, size_t index,
                             unsigned depth)
{
    struct entry *entry = &forest->entries[index];
    entry->seen = true;
    json_t *object = weir_quota_export(&entry->quota);
    json_t *children = json_array();
    for (size_t child = entry->child; child != NONE;
         child = forest->entries[child].next)
        if (!forest->entries[child].seen && depth <= 2 * WEIR_DEPTH_MAX)
            json_array_append_new(children,
                                  branch_object(forest, child, depth + 1));
    json_object_set_new(object, "children", children);
    return object;
}

static int show_tree(struct forest *forest, const char *name, bool json)
{
    /* Depth times the longest step ("│  " is five bytes). */
    char prefix[(2 * WEIR_DEPTH_MAX + 2) * 5];
    size_t top = NONE;
    if (name) {
        top = find_in_forest(forest, weir_text_of(name));
        if (top == NONE)
            return weir_cli_fail("there is no quota '%s'; `weir quota ls` "
                                 "lists those there are",
                                 name);
    }
    json_t *out = json ? json_array() : NULL;
    /* First quotas without parent; then the rest, so that a ring of templates
     * isn't left out. */
    for (size_t i = 0; i < 2 * forest->count; i++) {
        size_t index = i % forest->count;
        const struct entry *entry = &forest->entries[index];
        bool begins =
            name ? index == top : i >= forest->count || entry->parent == NONE;
        if (!begins || entry->seen)
            continue;
        if (out)
            json_array_append_new(out, branch_object(forest, index, 0));
        else
            print_branch(forest, index, prefix, 0, 0);
    }
    if (out)
        weir_cli_print_json(out);
    return WEIR_EXIT_OK;
}

int weir_cli_quota_tree(int argc, char **argv)
{
    struct weir_cli cli;
    int at = weir_cli_parse(&cli, tree_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (argc - at > 1)
        return weir_cli_fail("one name at most, please");
    uint64_t epoch;
    json_t *list = request_all_quotas(&cli, false, &epoch);
    if (!list)
        return WEIR_EXIT_ERROR;
    struct forest forest;
    int status = make_forest(list, &forest);
    if (status == 0) {
        status = show_tree(&forest, at < argc ? argv[at] : NULL, cli.json);
        free(forest.entries);
    }
    json_decref(list);
    return status;
}

/* ---- export ---- */

static size_t add_tree_in_order(struct forest *forest, size_t index,
                                const struct weir_quota **out, size_t count,
                                unsigned depth)
{
    weir_assert(index < forest->count);
    struct entry *entry = &forest->entries[index];
    if (entry->seen || depth > 2 * WEIR_DEPTH_MAX)
        return count;
    entry->seen = true;
    out[count++] = &entry->quota;
    for (size_t child = entry->child; child != NONE;
         child = forest->entries[child].next)
        count = add_tree_in_order(forest, child, out, count, depth + 1);
    return count;
}

static int print_yaml(struct forest *forest)
{
    const struct weir_quota **order =
        malloc((forest->count + 1) * sizeof *order);
    if (!order)
        weir_no_memory();
    size_t count = 0;
    for (size_t i = 0; i < forest->count; i++)
        if (forest->entries[i].parent == NONE)
            count = add_tree_in_order(forest, i, order, count, 0);
    for (size_t i = 0; i < forest->count; i++)
        count = add_tree_in_order(forest, i, order, count, 0);
    size_t len;
    char *text = weir_yaml_print(order, count, &len);
    free(order);
    if (!text)
        return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
    bool written = fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0;
    free(text);
    return written ? WEIR_EXIT_OK
                   : weir_cli_fail("can't write: %s", strerror(errno));
}

/* Prints the quotas as a file. Drops 'list'. */
static int print_list(json_t *list)
{
    struct forest forest;
    int status = make_forest(list, &forest);
    if (status == 0) {
        status = print_yaml(&forest);
        free(forest.entries);
    }
    json_decref(list);
    return status;
}

int weir_cli_quota_export(int argc, char **argv)
{
    struct weir_cli cli;
    bool shadow = false;
    const struct weir_cli_option options[] = {
        { .name = "shadow", .flag = &shadow },
    };
    int at = weir_cli_parse(&cli, export_help, options, 1, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at < argc)
        return weir_cli_fail("export writes to standard output: weir quota "
                             "export > %s",
                             argv[at]);
    uint64_t epoch;
    json_t *list = request_all_quotas(&cli, shadow, &epoch);
    if (!list)
        return WEIR_EXIT_ERROR;
    if (cli.json) {
        weir_cli_print_json(json_pack("{s:i, s:I, s:o}", "weir", 1, "epoch",
                                      (json_int_t)epoch, "quotas", list));
        return WEIR_EXIT_OK;
    }
    return print_list(list);
}

/* ---- import ---- */

static char *read_whole_stream(FILE *file, size_t *out_len)
{
    size_t capacity = 1 << 16;
    size_t len = 0;
    char *text = malloc(capacity);
    while (text) {
        len += fread(text + len, 1, capacity - len, file);
        if (len < capacity)
            break;
        if (capacity > WEIR_YAML_BYTES_MAX) {
            free(text);
            errno = EFBIG;
            return NULL;
        }
        capacity *= 2;
        char *grown = realloc(text, capacity);
        if (!grown)
            free(text);
        text = grown;
    }
    *out_len = len;
    return text;
}

static char *read_yaml_file(const char *path, size_t *out_len)
{
    if (strcmp(path, "-") == 0)
        return read_whole_stream(stdin, out_len);
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    char *text = read_whole_stream(file, out_len);
    bool broken = ferror(file);
    int why = errno;
    fclose(file);
    errno = why;
    if (!broken)
        return text;
    free(text);
    return NULL;
}

#define SHOWN_MAX 160 /* columns of a line in an error */

/* Prints file:line:column, the line, and a caret under the place. */
static int show_place(const char *path, const char *text, size_t len,
                      const struct weir_diag *diag)
{
    const char *name = strcmp(path, "-") == 0 ? "(standard input)" : path;
    if (diag->line == 0)
        return weir_cli_fail("%s: %s", name, diag->text);
    weir_cli_fail("%s:%u:%u: %s", name, diag->line, diag->column, diag->text);
    const char *end = text + len;
    const char *line = text;
    for (uint32_t n = 1; n < diag->line && line < end; n++) {
        const char *feed = memchr(line, '\n', (size_t)(end - line));
        line = feed ? feed + 1 : end;
    }
    if (line == end)
        return WEIR_EXIT_ERROR;
    const char *feed = memchr(line, '\n', (size_t)(end - line));
    size_t length = (size_t)((feed ? feed : end) - line);
    fprintf(stderr, "    ");
    for (size_t i = 0; i < length && i < SHOWN_MAX; i++) {
        unsigned char c = (unsigned char)line[i];
        fputc(c < ' ' || c == 0x7f ? ' ' : c, stderr);
    }
    fputc('\n', stderr);
    if (diag->column >= 1 && diag->column <= SHOWN_MAX)
        fprintf(stderr, "    %*s^\n", (int)diag->column - 1, "");
    return WEIR_EXIT_ERROR;
}

static json_t *import_object(const struct weir_quota *quotas, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(list, weir_quota_export(&quotas[i])) < 0)
            weir_no_memory();
    return json_pack("{s:i, s:o}", "weir", 1, "quotas", list);
}

void weir_cli_print_counts(const struct weir_cli *cli, json_t *answer)
{
    if (cli->json) {
        weir_cli_print_json(answer);
        return;
    }
    static const char *const keys[] = { "created", "changed", "unchanged",
                                        "removed" };
    for (size_t i = 0; i < WEIR_COUNT_OF(keys); i++)
        printf("%s%s %lld", i ? ", " : "", keys[i],
               weir_cli_whole(answer, keys[i]));
    putchar('\n');
    json_decref(answer);
}

/* ---- A shadow set in parts ----

A root takes 64 MiB at once, which isn't a million quotas. A shadow set isn't
in force, so it may come in parts: the first replaces the present set, the
others are added. Each part must find its parents and overflow quotas on the
root, so quotas without parent come first, then their children, and templates
last. ---- */

#define PART_MAX (16u << 20) /* bytes */
#define RANK_TEMPLATE (WEIR_DEPTH_MAX + 1)
#define RANKS (RANK_TEMPLATE + 1)

/* 'parents': name -> the name of its parent. */
static size_t forest_rank(const json_t *parents, const json_t *quota)
{
    size_t depth = 0;
    const char *parent = weir_cli_text(quota, "parent");
    bool path = strcmp(weir_cli_text(quota, "glob"), "path") == 0;
    if (strpbrk(weir_cli_text(quota, "name"), path ? "*?[\\" : "*"))
        return RANK_TEMPLATE;
    while (parent && parent[0] && depth < WEIR_DEPTH_MAX) {
        parent = json_string_value(json_object_get(parents, parent));
        depth++;
    }
    return depth;
}

/* The same quotas, parents and overflow quotas first; a new reference. */
static json_t *sort_list(json_t *list)
{
    json_t *parents = json_object();
    json_t *ranks[RANKS];
    size_t index;
    json_t *quota;
    json_array_foreach(list, index, quota)
        json_object_set_new(parents, weir_cli_text(quota, "name"),
                            json_string(weir_cli_text(quota, "parent")));
    for (size_t i = 0; i < RANKS; i++)
        ranks[i] = json_array();
    json_array_foreach(list, index, quota)
        json_array_append(ranks[forest_rank(parents, quota)], quota);
    for (size_t i = 1; i < RANKS; i++) {
        json_array_extend(ranks[0], ranks[i]);
        json_decref(ranks[i]);
    }
    json_decref(parents);
    return ranks[0];
}

/* Takes as many quotas from '*at' on as fit. */
static json_t *next_part(const json_t *list, size_t *at)
{
    json_t *part = json_array();
    size_t bytes = 0;
    for (; *at < json_array_size(list); ++*at) {
        json_t *quota = json_array_get(list, *at);
        bytes += json_dumpb(quota, NULL, 0, JSON_COMPACT) + 1;
        if (bytes > PART_MAX && json_array_size(part) > 0)
            break;
        json_array_append(part, quota);
    }
    return part;
}

static void add_counts(json_t *sums, const json_t *answer)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)answer, key, value)
    {
        json_int_t before =
            strcmp(key, "epoch") == 0 ? 0 : weir_cli_whole(sums, key);
        json_object_set_new(sums, key,
                            json_integer(before + json_integer_value(value)));
    }
}

/* If the root didn't answer, it is unknown whether it took the part. */
static int refuse_part(const char *file, size_t sent, size_t total, int error,
                       const struct weir_diag *diag)
{
    bool doubtful = error == WEIR_ECONNECT;
    if (sent == 0 && doubtful)
        return weir_cli_fail("%s", diag->text);
    if (sent == 0)
        return weir_cli_fail("%s: %s; nothing was changed", file, diag->text);
    return weir_cli_fail(
        "%s: %s; the shadow set has %sthe first %zu of %zu quotas: "
        "import it again, or drop it with `weir quota discard`",
        file, diag->text, doubtful ? "at least " : "", sent, total);
}

static int send_import(const struct weir_cli *cli, const char *file,
                       json_t *body, const char *path)
{
    struct weir_root_client *client = weir_root_client_new(cli);
    if (!client)
        return WEIR_EXIT_ERROR;
    json_t *answer;
    struct weir_diag diag = { 0 };
    int error = weir_root_client_request(client, WEIR_CLIENT_READY, "POST",
                                         path, body, &answer, &diag);
    weir_root_client_free(&client);
    if (error < 0)
        return refuse_part(file, 0, 0, error, &diag);
    weir_cli_print_counts(cli, answer);
    return WEIR_EXIT_OK;
}

static int send_parts(const struct weir_cli *cli, const char *file,
                      const json_t *list)
{
    struct weir_root_client *client = weir_root_client_new(cli);
    if (!client)
        return WEIR_EXIT_ERROR;
    json_t *sums = json_object();
    int status = WEIR_EXIT_OK;
    size_t at = 0;
    do {
        size_t sent = at;
        json_t *part = next_part(list, &at);
        json_t *answer;
        struct weir_diag diag = { 0 };
        int error = weir_root_client_request(
            client, WEIR_CLIENT_READY, "POST",
            sent == 0 ? "/v1/quotas:import?shadow=1"
                      : "/v1/quotas:import?shadow=1&add=1",
            part, &answer, &diag);
        json_decref(part);
        if (error < 0) {
            status =
                refuse_part(file, sent, json_array_size(list), error, &diag);
            break;
        }
        add_counts(sums, answer);
        json_decref(answer);
    } while (at < json_array_size(list));
    weir_root_client_free(&client);
    if (status == WEIR_EXIT_OK)
        weir_cli_print_counts(cli, sums);
    else
        json_decref(sums);
    return status;
}

static int send_shadow(const struct weir_cli *cli, const char *file,
                       const json_t *body)
{
    json_t *list = sort_list(json_object_get(body, "quotas"));
    int status = send_parts(cli, file, list);
    json_decref(list);
    return status;
}

static int read_own(struct weir_text text, json_t **out, struct weir_diag *diag)
{
    struct weir_yaml *yaml;
    struct weir_quota *quotas;
    size_t count;
    int error = weir_yaml_parse(text, &yaml, &quotas, &count, diag);
    if (error < 0)
        return error;
    *out = import_object(quotas, count);
    weir_yaml_free(yaml);
    return 0;
}

/* '*out_file' is the index of the file that an error is in. */
static int convert_envoy(const struct weir_rls_files *files,
                         const struct weir_rls_quotas_options *options,
                         json_t **out, size_t *out_file, struct weir_diag *diag)
{
    struct weir_rls_rules *rules;
    struct weir_rls_quotas *made;
    const struct weir_quota *quotas;
    size_t count;
    int error = weir_rls_rules_parse(files->texts, files->count, &rules,
                                     out_file, diag);
    if (error < 0)
        return error;
    error = weir_rls_quotas_new(rules, options, &made, &quotas, &count,
                                out_file, diag);
    if (error == 0) {
        *out = import_object(quotas, count);
        weir_rls_quotas_free(made);
    }
    weir_rls_rules_free(rules);
    return error;
}

/* A file or a folder of envoyproxy/ratelimit; "-" is standard input. */
static json_t *read_envoy(const char *path,
                          const struct weir_rls_quotas_options *options)
{
    struct weir_rls_files files;
    struct weir_diag diag = { 0 };
    json_t *body = NULL;
    size_t file = 0;
    const char *from = strcmp(path, "-") == 0 ? "/dev/stdin" : path;
    if (weir_rls_files_read(from, &files, &diag) < 0)
        weir_cli_fail("%s", diag.text);
    else if (convert_envoy(&files, options, &body, &file, &diag) < 0)
        show_place(from == path ? files.paths[file] : path, files.texts[file].p,
                   files.texts[file].len, &diag);
    weir_rls_files_free(&files);
    return body;
}

json_t *weir_cli_quota_file(const char *path,
                            const struct weir_rls_quotas_options *envoy)
{
    size_t len;
    if (envoy)
        return read_envoy(path, envoy);
    char *text = read_yaml_file(path, &len);
    if (!text) {
        weir_cli_fail("%s: %s", path, strerror(errno));
        return NULL;
    }
    struct weir_diag diag = { 0 };
    json_t *body = NULL;
    if (read_own((struct weir_text){ text, len }, &body, &diag) < 0)
        show_place(path, text, len, &diag);
    free(text);
    return body;
}

/* ---- The command ---- */

struct import_options {
    bool replace, shadow, dry_run;
    const char *from, *exact, *overflow, *deadline, *on_stale;
};

/* Reads the two fields of an exact quota as a quota has them. */
static int read_exact_options(const struct import_options *options,
                              struct weir_rls_quotas_options *out,
                              struct weir_diag *diag)
{
    struct weir_quota quota;
    int error = 0;
    weir_quota_init(&quota);
    if (options->deadline) {
        error = weir_quota_set(&quota, WEIR_TEXT("deadline"),
                               weir_text_of(options->deadline), diag);
        out->deadline = quota.deadline;
    }
    if (options->on_stale && error == 0) {
        error = weir_quota_set(&quota, WEIR_TEXT("on_stale"),
                               weir_text_of(options->on_stale), diag);
        out->on_stale = quota.on_stale;
    }
    return error;
}

/* 0, or an exit status: the options of --from envoy are wrong. */
static int read_envoy_options(const struct import_options *options,
                              struct weir_rls_quotas_options *out)
{
    struct weir_diag diag = { 0 };
    uint64_t values = WEIR_RLS_OVERFLOW_DEFAULT;
    if (strcmp(options->from, "envoy") != 0)
        return weir_cli_fail(
            "--from %s isn't known; there is --from envoy, the "
            "configuration of envoyproxy/ratelimit",
            options->from);
    if (options->overflow &&
        (weir_units_parse(weir_text_of(options->overflow), &values, NULL) < 0 ||
         values > 1000000000))
        return weir_cli_fail("--overflow: a number of values from 0 to 1G");
    if (!options->exact && (options->deadline || options->on_stale))
        return weir_cli_fail("--deadline and --on-stale go with --exact: "
                             "without it no store is asked");
    *out = (struct weir_rls_quotas_options){
        .exact = weir_text_of(options->exact),
        .overflow = (uint32_t)values,
    };
    if (read_exact_options(options, out, &diag) < 0)
        return weir_cli_fail("%s", diag.text);
    return 0;
}

static int check_own_options(const struct import_options *options)
{
    if (options->exact || options->deadline || options->on_stale)
        return weir_cli_fail(
            "--exact, --deadline and --on-stale say how --from "
            "envoy is to count; a file of Weir's own says it "
            "itself");
    if (options->overflow)
        return weir_cli_fail("--overflow goes with --from envoy; a file of "
                             "Weir's own names each overflow quota itself");
    return 0;
}

/* Drops 'body'. */
static int print_import(json_t *body, bool json)
{
    if (json) {
        weir_cli_print_json(body);
        return WEIR_EXIT_OK;
    }
    json_t *list = json_incref(json_object_get(body, "quotas"));
    json_decref(body);
    return print_list(list);
}

static int run_import(const struct weir_cli *cli,
                      const struct import_options *options, const char *file)
{
    struct weir_rls_quotas_options envoy = { .overflow = 0 };
    int status = options->from ? read_envoy_options(options, &envoy)
                               : check_own_options(options);
    if (status != 0)
        return status;
    json_t *body = weir_cli_quota_file(file, options->from ? &envoy : NULL);
    if (!body)
        return WEIR_EXIT_ERROR;
    if (options->dry_run)
        return print_import(body, cli->json);
    status = options->shadow
                 ? send_shadow(cli, file, body)
                 : send_import(cli, file, body,
                               options->replace ? "/v1/quotas:import?replace=1"
                                                : "/v1/quotas:import");
    json_decref(body);
    if (status == WEIR_EXIT_OK && !cli->json && envoy.overflow > 0)
        printf("values for which a limiter has no room share the limit of %u "
               "values (--overflow)\n",
               envoy.overflow);
    return status;
}

int weir_cli_quota_import(int argc, char **argv)
{
    struct weir_cli cli;
    struct import_options import = { .from = NULL };
    const struct weir_cli_option options[] = {
        { .name = "replace", .flag = &import.replace },
        { .name = "shadow", .flag = &import.shadow },
        { .name = "dry-run", .flag = &import.dry_run },
        { .name = "from", .value = &import.from },
        { .name = "exact", .value = &import.exact },
        { .name = "deadline", .value = &import.deadline },
        { .name = "on-stale", .value = &import.on_stale },
        { .name = "overflow", .value = &import.overflow },
    };
    int at = weir_cli_parse(&cli, import_help, options, WEIR_COUNT_OF(options),
                            argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (argc - at != 1)
        return weir_cli_fail("one FILE, please, or - for standard input; see "
                             "`weir quota import --help`");
    return run_import(&cli, &import, argv[at]);
}
