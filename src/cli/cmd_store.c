/* SPDX-License-Identifier: MIT
 * cli/cmd_store.c - weir store init. */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/quota_set.h"
#include "store/store.h"

static const char store_help[] =
    "Makes a place to keep quotas in. Nothing else makes one that has a name,\n"
    "so that a typo never becomes an empty set of quotas.\n"
    "\n"
    "    weir store init sqlite:/var/lib/weir/quotas.db\n"
    "    weir serve --store sqlite:/var/lib/weir/quotas.db\n"
    "\n"
    "Several roots on one machine may serve the same file.\n";

/* A store that can't be made is mostly one whose folder isn't there. */
static int refuse_store(const char *url, const struct weir_diag *diag)
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
                             "%s", folder, folder);
    return weir_cli_fail("can't make a file in the folder %s: %s", folder,
                         strerror(errno));
}

int weir_cli_store(int argc, char **argv)
{
    struct weir_cli cli;
    int at = weir_cli_parse(&cli, store_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc) {
        fputs(store_help, stderr);
        return WEIR_EXIT_ERROR;
    }
    if (strcmp(argv[at], "init") != 0)
        return weir_cli_fail("there is no `weir store %s`; there is `weir "
                             "store init`", argv[at]);
    if (argc - at != 2)
        return weir_cli_fail("one store, please; for example: weir store "
                             "init sqlite:quotas.db");
    struct weir_diag diag = { 0 };
    int error = weir_store_init(argv[at + 1], &diag);
    if (error == WEIR_ESTORE)
        return refuse_store(argv[at + 1], &diag);
    if (error < 0)
        return weir_cli_fail("%s", diag.text);
    if (cli.json) {
        weir_cli_print_json(json_pack("{s:s}", "made", argv[at + 1]));
        return WEIR_EXIT_OK;
    }
    printf("made %s; serve it with: weir serve --store %s\n", argv[at + 1],
           argv[at + 1]);
    return WEIR_EXIT_OK;
}
