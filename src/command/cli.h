/* SPDX-License-Identifier: MIT
 * command/cli.h - shared by the subcommands. */

#ifndef WEIR_CLI_H
#define WEIR_CLI_H

#include "io/login.h"

#define WEIR_ROOTS_DEFAULT "127.0.0.1:7077"

/* Exit statuses; before an error status, a message goes to standard error. */
enum { WEIR_EXIT_OK = 0, WEIR_EXIT_LIMITED = 1, WEIR_EXIT_ERROR = 2 };

/* The options of every command that connects to a root. */
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
    size_t count;                           /* may exceed the maximum: too
                                             * many */
};

/* An option of one command; exactly one of the pointers is set. */
struct weir_cli_option {
    const char *name;   /* without "--" */
    char letter;        /* or 0 */
    bool *flag;         /* takes no value */
    const char **value; /* takes one; borrowed from argv */
    const char **maybe; /* --name or --name=VALUE; "" without a value */
    struct weir_cli_values *values; /* takes one, each time it is given */
};

/* Parses argv[1..] of a command: its own options, and --roots, --tls-ca,
 * --tls-cert, --tls-key, --token-file, --json and --help (only the last, and
 * 'cli' NULL, for a command that connects to no root). Options and arguments
 * may come in any order; "--" ends options. Returns the index in argv of the
 * first argument (argv is put in order); or a negative number when the command
 * is over: -1 after printing an error, -2 after printing the help. */
int weir_cli_parse(struct weir_cli *cli, const char *help,
                   const struct weir_cli_option *options, size_t count,
                   int argc, char **argv);

/* weir_open() for a command: with its roots and credentials, and the other
 * members of 'options'. Returns 0, or an exit status after printing the
 * error. */
int weir_cli_open(const struct weir_cli *cli, struct weir_options *options,
                  struct weir **out);

/* Prints that no root ("no root of ROOTS", if 'of' isn't NULL) sent its quotas
 * (within a time, if 'within' isn't NULL), with the reason of the last one that
 * was lost, and advice. Returns WEIR_EXIT_ERROR. */
int weir_cli_unready(struct weir *weir, const char *of, const char *within);

/* The exit status for a negative answer of weir_cli_parse(). */
int weir_cli_parsed(int result);

/* Prints "weir: …" on standard error. Returns WEIR_EXIT_ERROR. */
int weir_cli_fail(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* Parse the value of an option. 0, or an exit status after printing the error
 * with the option's name. */
int weir_cli_parse_duration(const char *option, const char *text,
                            weir_duration *out);
int weir_cli_parse_units(const char *option, const char *text, uint64_t *out);

/* The word of 'words' (which ends with NULL) nearest to 'typed', or NULL when
 * none is near. */
const char *weir_cli_nearest(const char *typed, const char *const *words);

/* A command's own commands. */
#define WEIR_CLI_SUBCOMMANDS_MAX 16
struct weir_cli_subcommand {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};
/* Runs the subcommand that argv[1] names, with the arguments after it; or
 * prints the help, or the name that was probably meant. */
int weir_cli_run(const char *command, const char *help,
                 const struct weir_cli_subcommand *known, size_t count,
                 int argc, char **argv);

/* "1,234" … shorter: 1234, 12.3k, 4.5M. 'buf' holds 16 bytes and is
 * returned. */
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
