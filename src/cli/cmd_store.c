/* SPDX-License-Identifier: MIT
 * cli/cmd_store.c - weir store init, upgrade, migrate, restored. */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/root_client.h"
#include "store/store.h"

static const char store_help[] =
    "Makes and keeps stores of quotas. Nothing else makes one that has a\n"
    "name, so that a typo never becomes an empty set of quotas.\n"
    "\n"
    "    weir store init sqlite:/var/lib/weir/quotas.db\n"
    "    weir store init postgres://weir@db.example/weir\n"
    "    weir store migrate sqlite:quotas.db postgres://weir@db.example/weir\n"
    "\n"
    "  init URL         makes an empty store\n"
    "  upgrade URL      brings one that an older Weir made up to date\n"
    "  migrate FROM TO  makes TO and copies all of FROM into it;\n"
    "                   FROM takes no edits from then on\n"
    "  restored URL     says that a backup was put back, so that roots and\n"
    "                   limiters drop their state and begin anew; or that\n"
    "                   a store that was migrated is to be used after all\n"
    "\n"
    "Several roots may serve one store: a file on one machine, a database on\n"
    "many. A password is best kept out of URLs: libpq reads ~/.pgpass.\n";

/* Most often a file can't be made because its folder doesn't exist. */
static int refuse_store_file(const char *url, const struct weir_diag *diag)
{
    const char *path = url + strcspn(url, ":") + 1;
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    struct stat found;
    snprintf(folder, sizeof folder, "%.*s",
             slash > path ? (int)(slash - path) : 1, slash ? path : ".");
    bool there = stat(folder, &found) == 0;
    if (there && !S_ISDIR(found.st_mode))
        return weir_cli_fail("%s is no folder; choose another", folder);
    if (there && access(folder, W_OK | X_OK) == 0)
        return weir_cli_fail("%s", diag->text);
    if (errno == ENOENT)
        return weir_cli_fail("there is no folder %s; make it first: mkdir -p "
                             "%s",
                             folder, folder);
    return weir_cli_fail("can't make a file in the folder %s: %s", folder,
                         strerror(errno));
}

static int refuse_new(const char *url, int error, const struct weir_diag *diag)
{
    static const char file[] = "sqlite:";
    if (error == WEIR_ESTORE && strncmp(url, file, strlen(file)) == 0)
        return refuse_store_file(url, diag);
    return weir_cli_fail("%s", diag->text);
}

static int run_init(const struct weir_cli *cli, char **urls, const char *shown)
{
    struct weir_diag diag = { 0 };
    int error = weir_store_init(urls[0], &diag);
    if (error < 0)
        return refuse_new(urls[0], error, &diag);
    if (cli->json)
        weir_cli_print_json(json_pack("{s:s}", "made", shown));
    else
        printf("made %s; serve it with: weir serve --store %s\n", shown, shown);
    return WEIR_EXIT_OK;
}

static int run_upgrade(const struct weir_cli *cli, char **urls,
                       const char *shown)
{
    struct weir_diag diag = { 0 };
    unsigned from;
    int error = weir_store_upgrade(urls[0], &from, &diag);
    if (error < 0)
        return weir_cli_fail("%s", diag.text);
    if (cli->json)
        weir_cli_print_json(json_pack("{s:s, s:i, s:i}", "store", shown, "from",
                                      (int)from, "to", WEIR_STORE_SCHEMA));
    else if (from == WEIR_STORE_SCHEMA)
        printf("%s is up to date (schema %u)\n", shown, from);
    else
        printf("%s now has schema %u, was %u; start its roots again with "
               "this Weir\n",
               shown, WEIR_STORE_SCHEMA, from);
    return WEIR_EXIT_OK;
}

static int run_migrate(const struct weir_cli *cli, char **urls,
                       const char *shown)
{
    struct weir_diag diag = { 0 };
    size_t quotas;
    int error = weir_store_migrate(urls[0], urls[1], &quotas, &diag);
    if (error < 0)
        return refuse_new(urls[1], error, &diag);
    if (cli->json)
        weir_cli_print_json(json_pack("{s:s, s:I}", "made", shown, "quotas",
                                      (json_int_t)quotas));
    else
        printf("made %s with %zu quota%s; start the roots again with: weir "
               "serve --store %s\nthe old store takes no edits any more\n",
               shown, quotas, quotas == 1 ? "" : "s", shown);
    return WEIR_EXIT_OK;
}

static int run_restored(const struct weir_cli *cli, char **urls,
                        const char *shown)
{
    struct weir_diag diag = { 0 };
    uint64_t restores;
    int error = weir_store_restored(urls[0], &restores, &diag);
    if (error < 0)
        return weir_cli_fail("%s", diag.text);
    if (cli->json)
        weir_cli_print_json(json_pack("{s:s, s:I}", "store", shown, "restores",
                                      (json_int_t)restores));
    else
        printf("%s: its roots and their limiters begin anew\n", shown);
    return WEIR_EXIT_OK;
}

static const struct {
    const char *name;
    int urls;
    /* 'shown': the last URL, without its password. */
    int (*run)(const struct weir_cli *cli, char **urls, const char *shown);
    const char *example;
} verbs[] = {
    { "init", 1, run_init,
      "one store, please; for example: weir store init sqlite:quotas.db" },
    { "upgrade", 1, run_upgrade,
      "one store, please; for example: weir store upgrade sqlite:quotas.db" },
    { "migrate", 2, run_migrate,
      "two stores, please; for example: weir store "
      "migrate sqlite:quotas.db postgres://weir@db.example/weir" },
    { "restored", 1, run_restored,
      "one store, please; for example: weir "
      "store restored postgres://weir@db.example/weir" },
};

int weir_cli_store(int argc, char **argv)
{
    struct weir_cli cli;
    char shown[WEIR_STORE_SHOW_MAX];
    int at = weir_cli_parse(&cli, store_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc) {
        fputs(store_help, stderr);
        return WEIR_EXIT_ERROR;
    }
    for (size_t i = 0; i < WEIR_COUNT_OF(verbs); i++) {
        if (strcmp(argv[at], verbs[i].name) != 0)
            continue;
        if (argc - at - 1 != verbs[i].urls)
            return weir_cli_fail("%s", verbs[i].example);
        weir_store_show(argv[argc - 1], shown);
        return verbs[i].run(&cli, argv + at + 1, shown);
    }
    return weir_cli_fail("there is no `weir store %s`; there are `weir store "
                         "init`, upgrade, migrate and restored",
                         argv[at]);
}
