/* SPDX-License-Identifier: MIT
 * cli/main.c - weir: a table of commands. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/root_client.h"
#include "codec/json_text.h"
#include "server/serve.h"

static const char main_help[] =
    "Weir keeps a fleet of processes within shared quotas.\n"
    "\n"
    "    weir serve &\n"
    "    weir quota set hello limit=3/s high_burst=3\n"
    "    weir take hello && echo passed\n"
    "    weir top\n"
    "\n"
    "  serve     run a root: it knows the quotas and adds up the counts\n"
    "  agent     decide for programs of this host, by HTTP\n"
    "  quota     set, get, ls, tree, rm; import, export; log, undo; diff,\n"
    "            promote, discard\n"
    "  take      ask for units of a quota, as a service would\n"
    "  status    the state of the roots\n"
    "  top       units offered, passed and limited, live\n"
    "  store     make, upgrade or move a quota store\n"
    "  cert      make certificates to try TLS with\n"
    "  pace      copy standard input to standard output at a rate\n"
    "  replay    which requests of an access log quotas would have limited\n"
    "  lab       whole fleets in one process, in virtual time\n"
    "  version   the version of this program\n"
    "  help      this, or `weir help COMMAND`\n"
    "\n"
    "Which roots: --roots HOST:PORT,… or WEIR_ROOTS; else 127.0.0.1:7077.\n"
    "More: weir(1), weir-quota(5).\n";

static int run_serve(int argc, char **argv)
{
    return weir_serve(argc, argv, weir_version());
}

static int run_version(int argc, char **argv)
{
    struct weir_cli cli;
    int at = weir_cli_parse(&cli, main_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (cli.json)
        weir_cli_print_json(json_pack("{s:s}", "version", weir_version()));
    else
        printf("weir %s\n", weir_version());
    return WEIR_EXIT_OK;
}

static int run_help(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "serve", run_serve },        { "agent", weir_cli_agent },
    { "quota", weir_cli_quota },   { "take", weir_cli_take },
    { "status", weir_cli_status }, { "top", weir_cli_top },
    { "store", weir_cli_store },   { "cert", weir_cli_cert },
    { "lab", weir_cli_lab },       { "pace", weir_cli_pace },
    { "replay", weir_cli_replay }, { "version", run_version },
    { "help", run_help },
};

static int run_command(int argc, char **argv)
{
    const char *names[WEIR_COUNT_OF(commands) + 1] = { NULL };
    for (size_t i = 0; i < WEIR_COUNT_OF(commands); i++) {
        names[i] = commands[i].name;
        if (strcmp(argv[0], commands[i].name) == 0)
            return commands[i].run(argc, argv);
    }
    const char *nearest = weir_cli_nearest(argv[0], names);
    if (nearest)
        return weir_cli_fail("there is no command '%s'; did you mean `weir "
                             "%s`?",
                             argv[0], nearest);
    return weir_cli_fail("there is no command '%s'; see `weir help`", argv[0]);
}

/* `weir help quota set` is `weir quota set --help`. */
static int run_help(int argc, char **argv)
{
    bool bare = argc < 2 || strcmp(argv[1], "help") == 0 ||
                strcmp(argv[1], "version") == 0;
    if (bare) {
        fputs(main_help, stdout);
        return WEIR_EXIT_OK;
    }
    char help[] = "--help";
    char *asked[4] = { argv[1] };
    int count = 1;
    bool has_parts =
        strcmp(argv[1], "quota") == 0 || strcmp(argv[1], "lab") == 0;
    if (argc > 2 && has_parts)
        asked[count++] = argv[2];
    asked[count++] = help;
    return run_command(count, asked);
}

static int run_main(int argc, char **argv)
{
    if (argc < 2) {
        fputs(main_help, stderr);
        return WEIR_EXIT_ERROR;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return run_help(1, argv);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        return run_version(argc - 1, argv + 1);
    return run_command(argc - 1, argv + 1);
}

/* If a standard stream is closed, the next file that is opened gets its number:
 * a store would be written to as standard output, or a socket read as standard
 * input. Opened for the other direction, it fails as a closed one does. */
static void keep_standard_streams(void)
{
    static const int directions[] = { O_WRONLY, O_RDONLY, O_RDONLY };
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", directions[fd]) != fd)
            _exit(WEIR_EXIT_ERROR);
}

/* An output that lacks a part isn't a success. A reader that has closed its
 * pipe, such as head(1), wants no more. */
static int check_output(int status)
{
    struct pollfd output = { .fd = STDOUT_FILENO };
    bool lost = ferror(stdout) != 0;
    int why = fflush(stdout) != 0 ? errno : 0;
    bool is_read = poll(&output, 1, 0) <= 0 || !(output.revents & POLLERR);
    if (!(lost || why != 0) || !is_read || status == WEIR_EXIT_ERROR)
        return status;
    return weir_cli_fail("can't write all of the output%s%s; make room for it, "
                         "and run the command again",
                         why ? ": " : "", why ? strerror(why) : "");
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    keep_standard_streams();
    weir_json_watch();
    return check_output(run_main(argc, argv));
}
