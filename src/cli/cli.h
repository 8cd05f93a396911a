/* SPDX-License-Identifier: MIT
 * cli/cli.h - what the subcommands share. */

#ifndef WEIR_CLI_H
#define WEIR_CLI_H

#include "os/login.h"

#define WEIR_ROOTS_DEFAULT "127.0.0.1:7077"

/* Exit statuses; an error is said on standard error before. */
enum { WEIR_EXIT_OK = 0, WEIR_EXIT_LIMITED = 1, WEIR_EXIT_ERROR = 2 };

/* What every command that speaks to a root takes. */
struct weir_cli {
    const char *roots; /* --roots, WEIR_ROOTS or the default; borrowed */
    /* --tls-ca … --token-file, or the environment; borrowed */
    struct weir_login_options login;
    bool json; /* --json */
};

/* The values of an option that may come several times. */
#define WEIR_CLI_VALUES_MAX 64
struct weir_cli_values {
    const char *items[WEIR_CLI_VALUES_MAX]; /* borrowed from argv */
    size_t count;                           /* may be above: too many */
};

/* An option of one command; exactly one of the pointers is set. */
struct weir_cli_option {
    const char *name;   /* without "--" */
    char letter;        /* or 0 */
    bool *flag;         /* takes no value */
    const char **value; /* takes one; borrowed from argv */
    const char **maybe; /* --name or --name=VALUE; "" without a value */
    struct weir_cli_values *values; /* takes one, each time it comes */
};

/* Parses argv[1..] of a command: its own options, and --roots, --tls-ca,
 * --tls-cert, --tls-key, --token-file, --json and --help (only the last, and
 * 'cli' NULL, for a command that speaks to no root). Options and
 * arguments may come in any order; "--" ends options. Returns the index in
 * argv of the first argument (argv is put in order); or a negative number when
 * the command is over: -1 after an error, which was said, -2 after the help,
 * which was printed. */
int weir_cli_parse(struct weir_cli *cli, const char *help,
                   const struct weir_cli_option *options, size_t count,
                   int argc, char **argv);

/* weir_open() for a command: by its roots and credentials, and by what else
 * 'options' has. Returns 0, or an exit status after saying why. */
int weir_cli_open(const struct weir_cli *cli, struct weir_options *options,
                  struct weir **out);

/* What to do when no root told its quotas: 'why' is what the last one said, as
 * the event WEIR_EVENT_ROOT_DOWN has it. */
const char *weir_cli_advice(const char *why);

/* The exit status for a negative answer of weir_cli_parse(). */
int weir_cli_parsed(int result);

/* Says "weir: …" on standard error. Returns WEIR_EXIT_ERROR. */
int weir_cli_fail(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* The word of 'words' (which ends with NULL) that is nearest to what was
 * typed, or NULL when none is near. */
const char *weir_cli_nearest(const char *typed, const char *const *words);

/* A command's own commands. */
#define WEIR_CLI_SUBCOMMANDS_MAX 16
struct weir_cli_subcommand {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};
/* Runs the one that argv[1] names, with the arguments behind it; or prints the
 * help, or says which one may have been meant. */
int weir_cli_run(const char *command, const char *help,
                 const struct weir_cli_subcommand *known, size_t count,
                 int argc, char **argv);

/* "1,234" … shorter: 1234, 12.3k, 4.5M. 'buf' holds 16 bytes; returned. */
const char *weir_cli_units(double units, char *buf);

/* ---- The commands; each returns an exit status. argv[0] is its name. ---- */
int weir_cli_store(int argc, char **argv);
int weir_cli_quota(int argc, char **argv);
int weir_cli_take(int argc, char **argv);
int weir_cli_status(int argc, char **argv);
int weir_cli_top(int argc, char **argv);
int weir_cli_lab(int argc, char **argv);
int weir_cli_pace(int argc, char **argv);
int weir_cli_replay(int argc, char **argv);
int weir_cli_cert(int argc, char **argv);
int weir_cli_agent(int argc, char **argv);

#endif /* WEIR_CLI_H */
