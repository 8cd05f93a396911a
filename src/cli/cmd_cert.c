/* SPDX-License-Identifier: MIT
 * cli/cmd_cert.c - weir cert ca, server, client: certificates to try TLS with.
 * Each prints the command to run next. */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cert_make.h"
#include "command/cli.h"
#include "core/quota/quota.h"

#define CA_DAYS 3650
#define LEAF_DAYS 365

static const char cert_help[] =
    "Makes a small certificate authority, and certificates to try TLS with.\n"
    "\n"
    "    weir cert ca DIR                   DIR/ca.pem, DIR/ca.key\n"
    "    weir cert server DIR NAME|IP...    of a root; the first name is the\n"
    "                                       files': DIR/NAME.pem, .key\n"
    "    weir cert client DIR NAME          of a limiter or a person\n"
    "\n"
    "  --days N     how long it is valid   [3650 for a ca, 365 for others]\n"
    "\n"
    "Nothing is overwritten. Files are readable by you only. The owner of\n"
    "DIR/ca.key can pose as any client or root: keep it off the roots.\n"
    "\n"
    "    weir cert ca certs\n"
    "    weir cert server certs localhost 127.0.0.1\n"
    "    weir cert client certs ops\n";

struct command {
    const char *name;
    enum weir_cert_kind kind;
    size_t names_min, names_max;
    const char *example;
};
static const struct command commands[] = {
    { "ca", WEIR_CERT_CA, 0, 0, "weir cert ca certs" },
    { "server", WEIR_CERT_SERVER, 1, WEIR_CERT_NAMES_MAX,
      "weir cert server certs localhost 127.0.0.1" },
    { "client", WEIR_CERT_CLIENT, 1, 1, "weir cert client certs ops" },
};

struct files {
    char cert[PATH_MAX];
    char key[PATH_MAX];
};

static bool name_files(struct files *files, const char *folder,
                       const char *name)
{
    size_t size = sizeof files->cert;
    int cert = snprintf(files->cert, size, "%s/%s.pem", folder, name);
    int key = snprintf(files->key, size, "%s/%s.key", folder, name);
    return (size_t)cert < size && (size_t)key < size;
}

static bool parse_days(const char *text, unsigned *out)
{
    char *end;
    errno = 0;
    unsigned long days = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' ||
        days < 1 || days > WEIR_CERT_DAYS_MAX)
        return false;
    *out = (unsigned)days;
    return true;
}

/* The name becomes a file's name and a common name. */
static int check_cert_name(const char *name)
{
    struct weir_diag diag = { 0 };
    if (weir_name_check(weir_text_of(name), &diag) < 0)
        return weir_cli_fail("%s", diag.text);
    if (strlen(name) > WEIR_CERT_NAME_MAX)
        return weir_cli_fail("the name '%s' is over %d bytes, and a "
                             "certificate takes no more",
                             name, WEIR_CERT_NAME_MAX);
    if (strchr(name, '/') || name[0] == '.' || strcmp(name, "ca") == 0)
        return weir_cli_fail("the name '%s' can't be a file's beside ca.pem; "
                             "choose another",
                             name);
    return WEIR_EXIT_OK;
}

static void print_next_step(const struct command *command, const char *folder,
                            const char *name, const struct files *files)
{
    switch (command->kind) {
    case WEIR_CERT_CA:
        printf("next: weir cert server %s localhost 127.0.0.1\n", folder);
        return;
    case WEIR_CERT_SERVER:
        printf("next: weir cert client %s ops\n"
               "      echo 'edit,take cert ops' > credentials\n"
               "      weir serve --tls-cert %s --tls-key %s --tls-ca "
               "%s/ca.pem --credentials credentials\n",
               folder, files->cert, files->key, folder);
        return;
    case WEIR_CERT_CLIENT:
        printf("next: a line in the root's credentials: edit,take cert %s\n"
               "      weir status --tls-ca %s/ca.pem --tls-cert %s --tls-key "
               "%s\n",
               name, folder, files->cert, files->key);
        return;
    }
}

static int make_certificate(const struct command *command, const char *folder,
                            char **names, size_t count, unsigned days)
{
    static const char *const ca_name = "Weir CA";
    bool is_ca = command->kind == WEIR_CERT_CA;
    struct files ca, files;
    if (!name_files(&ca, folder, "ca") ||
        !name_files(&files, folder, is_ca ? "ca" : names[0]))
        return weir_cli_fail("the path of %s is too long", folder);
    struct weir_cert_request request = {
        .kind = command->kind,
        .names = is_ca ? &ca_name : (const char *const *)names,
        .name_count = is_ca ? 1 : count,
        .days = days,
        .ca_cert = is_ca ? NULL : ca.cert,
        .ca_key = is_ca ? NULL : ca.key,
    };
    if (is_ca && mkdir(folder, 0700) < 0 && errno != EEXIST)
        return weir_cli_fail("can't make the folder %s: %s", folder,
                             strerror(errno));
    struct weir_diag diag = { 0 };
    char until[11];
    if (weir_cert_make(&request, files.cert, files.key, until, &diag) < 0)
        return weir_cli_fail("%s", diag.text);
    printf("made %s and %s, valid until %s\n", files.cert, files.key, until);
    print_next_step(command, folder, is_ca ? "ca" : names[0], &files);
    return WEIR_EXIT_OK;
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

int weir_cli_cert(int argc, char **argv)
{
    const char *days_text = NULL;
    const struct weir_cli_option options[] = {
        { .name = "days", .value = &days_text },
    };
    int at = weir_cli_parse(NULL, cert_help, options, WEIR_COUNT_OF(options),
                            argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc) {
        fputs(cert_help, stderr);
        return WEIR_EXIT_ERROR;
    }
    const struct command *command = find_command(argv[at]);
    if (!command)
        return weir_cli_fail("there is no `weir cert %s`; there are ca, "
                             "server and client",
                             argv[at]);
    size_t count = argc - at < 2 ? 0 : (size_t)(argc - at - 2);
    if (argc - at < 2 || count < command->names_min ||
        count > command->names_max)
        return weir_cli_fail("a folder and %s, please; for example: %s",
                             command->names_max == 0   ? "nothing else"
                             : command->names_max == 1 ? "one name"
                                                       : "1 to 16 names",
                             command->example);
    unsigned days = command->kind == WEIR_CERT_CA ? CA_DAYS : LEAF_DAYS;
    if (days_text && !parse_days(days_text, &days))
        return weir_cli_fail("--days %s: a number from 1 to %d", days_text,
                             WEIR_CERT_DAYS_MAX);
    for (size_t i = 0; i < count; i++) {
        int status = check_cert_name(argv[at + 2 + (int)i]);
        if (status != WEIR_EXIT_OK)
            return status;
    }
    return make_certificate(command, argv[at + 1], argv + at + 2, count, days);
}
