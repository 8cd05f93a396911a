/* SPDX-License-Identifier: MIT
 * command/cli.c - options, typos and errors of all commands. */

#include "command/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/quota/quota.h"
#include "weir/exact.h"

#define OPTIONS_MAX 32
#define WORD_MAX 31

int weir_cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("weir: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return WEIR_EXIT_ERROR;
}

static size_t least_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many letters to change, add or drop; two swapped letters count as one. */
static size_t word_distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[WORD_MAX + 1][WORD_MAX + 1];
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                rows[i][j] = i + j;
                continue;
            }
            size_t cost = a[i - 1] != b[j - 1];
            rows[i][j] =
                least_size(rows[i - 1][j - 1] + cost,
                           least_size(rows[i - 1][j], rows[i][j - 1]) + 1);
            bool turned =
                i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (turned)
                rows[i][j] = least_size(rows[i][j], rows[i - 2][j - 2] + 1);
        }
    }
    return rows[n][m];
}

const char *weir_cli_nearest(const char *typed, const char *const *words)
{
    size_t n = strlen(typed);
    size_t best = n / 3 + 1; /* beyond a third, a guess misleads */
    const char *nearest = NULL;
    for (; *words; words++) {
        size_t m = strlen(*words);
        if (n > WORD_MAX || m > WORD_MAX)
            continue;
        size_t far = word_distance(typed, n, *words, m);
        bool begins = n > 0 && strncmp(typed, *words, n) == 0;
        if (begins)
            far = 0;
        if (far >= best)
            continue;
        best = far;
        nearest = *words;
    }
    return nearest;
}

int weir_cli_run(const char *command, const char *help,
                 const struct weir_cli_subcommand *known, size_t count,
                 int argc, char **argv)
{
    const char *names[WEIR_CLI_SUBCOMMANDS_MAX + 1] = { NULL };
    weir_assert(count <= WEIR_CLI_SUBCOMMANDS_MAX);
    if (argc < 2) {
        fputs(help, stderr);
        return WEIR_EXIT_ERROR;
    }
    for (size_t i = 0; i < count; i++) {
        names[i] = known[i].name;
        if (strcmp(argv[1], known[i].name) != 0)
            continue;
        argv[1] = argv[0];
        return known[i].run(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        fputs(help, stdout);
        return WEIR_EXIT_OK;
    }
    const char *nearest = weir_cli_nearest(argv[1], names);
    if (nearest)
        return weir_cli_fail("there is no `weir %s %s`; did you mean "
                             "`weir %s %s`?",
                             command, argv[1], command, nearest);
    return weir_cli_fail("there is no `weir %s %s`; see `weir help %s`",
                         command, argv[1], command);
}

const char *weir_cli_units(double units, char *buf)
{
    static const char factors[] = " kMGTPE";
    size_t i = 0;
    double shown = units;
    while ((shown >= 99999.5 || (i > 0 && shown >= 999.5)) && factors[i + 1]) {
        shown /= 1000;
        i++;
    }
    if (i == 0)
        snprintf(buf, 16, "%.*f",
                 shown > 0 && shown < 9.95 && shown != (double)(long)shown,
                 shown);
    else
        snprintf(buf, 16, "%.*f%c", shown < 99.95, shown, factors[i]);
    return buf;
}

int weir_cli_parse_duration(const char *option, const char *text,
                            weir_duration *out)
{
    struct weir_diag diag = { 0 };
    if (weir_duration_parse(weir_text_of(text), out, &diag) == 0)
        return 0;
    return weir_cli_fail("%s: %s", option, diag.text);
}

int weir_cli_parse_units(const char *option, const char *text, uint64_t *out)
{
    struct weir_diag diag = { 0 };
    if (weir_units_parse(weir_text_of(text), out, &diag) == 0)
        return 0;
    return weir_cli_fail("%s: %s", option, diag.text);
}

/* ---- Options ---- */

static int refuse_option(const char *typed, const char *command,
                         const struct option *known)
{
    char word[WORD_MAX + 1];
    const char *names[OPTIONS_MAX + 4] = { NULL };
    for (size_t i = 0; known[i].name; i++)
        names[i] = known[i].name;
    const char *begin = typed + strspn(typed, "-");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(begin, "="), begin);
    const char *nearest =
        strncmp(typed, "--", 2) == 0 ? weir_cli_nearest(word, names) : NULL;
    if (nearest)
        weir_cli_fail("there is no option %s; did you mean --%s?", typed,
                      nearest);
    else
        weir_cli_fail("there is no option %s; see `weir help %s`", typed,
                      command);
    return -1;
}

/* The tables for getopt_long(); an option's letter is a number, so that the
 * option can be found by it. */
static void make_tables(const struct weir_cli_option *options, size_t count,
                        struct option *out, char *letters)
{
    size_t at = 0;
    letters[at++] = ':';
    for (size_t i = 0; i < count; i++) {
        int takes = options[i].flag    ? no_argument
                    : options[i].maybe ? optional_argument
                                       : required_argument;
        out[i] = (struct option){ options[i].name, takes, NULL, 256 + (int)i };
        if (!options[i].letter)
            continue;
        letters[at++] = options[i].letter;
        if (takes == required_argument)
            letters[at++] = ':';
    }
    letters[at++] = 'h';
    letters[at] = '\0';
    out[count] = (struct option){ "help", no_argument, NULL, 'h' };
    out[count + 1] = (struct option){ NULL, 0, NULL, 0 };
}

static const struct weir_cli_option *chosen(
    const struct weir_cli_option *options, size_t count, int choice)
{
    if (choice >= 256)
        return &options[choice - 256];
    for (size_t i = 0; i < count; i++)
        if (options[i].letter == choice)
            return &options[i];
    return NULL;
}

static void set_option(const struct weir_cli_option *option)
{
    if (option->flag)
        *option->flag = true;
    else if (option->value)
        *option->value = optarg;
    else if (option->maybe)
        *option->maybe = optarg ? optarg : "";
    else if (option->values->count++ < WEIR_CLI_VALUES_MAX)
        option->values->items[option->values->count - 1] = optarg;
}

static int parse(const char *help, const struct weir_cli_option *options,
                 size_t count, int argc, char **argv)
{
    struct option known[OPTIONS_MAX + 2];
    char letters[2 * OPTIONS_MAX + 4];
    make_tables(options, count, known, letters);
    optind = 1;
    opterr = 0;
    for (;;) {
        int here = optind;
        int choice = getopt_long(argc, argv, letters, known, NULL);
        if (choice == -1)
            return optind;
        if (choice == 'h') {
            fputs(help, stdout);
            return -2;
        }
        if (choice == ':') {
            weir_cli_fail("%s needs a value; see `weir help %s`",
                          argv[optind - 1], argv[0]);
            return -1;
        }
        if (choice == '?')
            return refuse_option(argv[optind > here ? optind - 1 : here],
                                 argv[0], known);
        set_option(chosen(options, count, choice));
    }
}

/* Whether one of the roots is a URL; if so, prints an error. */
static bool refuse_scheme(const char *roots)
{
    const char *colon = strstr(roots, "://");
    if (!colon)
        return false;
    const char *scheme = colon;
    while (scheme > roots && scheme[-1] != ',')
        scheme--;
    weir_cli_fail("--roots %s: write HOST:PORT, without %.*s", roots,
                  (int)(colon - scheme + 3), scheme);
    return true;
}

int weir_cli_parse(struct weir_cli *cli, const char *help,
                   const struct weir_cli_option *options, size_t count,
                   int argc, char **argv)
{
    struct weir_cli_option all[OPTIONS_MAX];
    if (!cli)
        return parse(help, options, count, argc, argv);
    const char *named = getenv("WEIR_ROOTS");
    *cli = (struct weir_cli){
        .roots = named && named[0] ? named : WEIR_ROOTS_DEFAULT,
        .login = { .tls_ca = getenv("WEIR_TLS_CA"),
                   .tls_cert = getenv("WEIR_TLS_CERT"),
                   .tls_key = getenv("WEIR_TLS_KEY"),
                   .token_file = getenv("WEIR_TOKEN_FILE") },
    };
    const struct weir_cli_option common[] = {
        { .name = "roots", .value = &cli->roots },
        { .name = "tls-ca", .value = &cli->login.tls_ca },
        { .name = "tls-cert", .value = &cli->login.tls_cert },
        { .name = "tls-key", .value = &cli->login.tls_key },
        { .name = "token-file", .value = &cli->login.token_file },
        { .name = "json", .flag = &cli->json },
    };
    size_t more = WEIR_COUNT_OF(common);
    weir_assert(count + more <= WEIR_COUNT_OF(all));
    if (count > 0)
        memcpy(all, options, count * sizeof *options);
    memcpy(all + count, common, sizeof common);
    int at = parse(help, all, count + more, argc, argv);
    if (at >= 0 && refuse_scheme(cli->roots))
        return -1;
    if (at == -2 && strstr(help, "--roots"))
        fputs("\nOver TLS: --tls-ca, --tls-cert, --tls-key, --token-file, each "
              "a FILE;\nsee weir(1).\n",
              stdout);
    return at;
}

/* ---- Advice if no root sends its quotas ---- */

#define OTHER_FILES "look at --tls-ca, --tls-cert and --tls-key"

/* Advice by a word of the reason, which peers and links share; the first word
 * found decides. */
static const struct {
    const char *word;
    const char *text;
} advices[] = {
    { "hasn't the role",
      "give it that role in the root's --credentials, or show another with "
      "--tls-cert or --token-file" },
    { "credential",
      "show one with --tls-cert or --token-file to which the root's "
      "--credentials give the role 'take'" },
    { "the token isn't",
      "show one with --token-file to which the root's --credentials give the "
      "role 'take'" },
    { "TLS", OTHER_FILES },
    { "certificate", OTHER_FILES },
    { "handshake", OTHER_FILES },
};

static const char *advice(const char *why)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(advices); i++)
        if (strstr(why, advices[i].word))
            return advices[i].text;
    return "start one with `weir serve` or name others with --roots";
}

int weir_cli_unready(struct weir *weir, const char *of, const char *within)
{
    struct weir_event event;
    char why[sizeof event.text] = "no answer";
    while (weir_event_next(weir, &event))
        if (event.type == WEIR_EVENT_ROOT_DOWN)
            memcpy(why, event.text, sizeof why);
    return weir_cli_fail("no root%s%s sent its quotas%s%s (%s); %s",
                         of ? " of " : "", of ? of : "",
                         within ? " within " : "", within ? within : "", why,
                         advice(why));
}

/* Set by a callback within weir_open(), and read only if that fails: a command
 * has one limiter. */
static char open_failure[sizeof((struct weir_event *)0)->text];

static void print_event(void *context, const struct weir_event *event)
{
    (void)context;
    if (event->type == WEIR_EVENT_CREDENTIAL || event->type == WEIR_EVENT_TABLE)
        memcpy(open_failure, event->text, sizeof open_failure);
}

int weir_cli_open(const struct weir_cli *cli, struct weir_options *options,
                  struct weir **out)
{
    options->roots = cli->roots;
    options->tls_ca = cli->login.tls_ca;
    options->tls_cert = cli->login.tls_cert;
    options->tls_key = cli->login.tls_key;
    options->token_file = cli->login.token_file;
    options->exact = weir_exact();
    options->exact_secrets_file = getenv("WEIR_STORE_SECRETS");
    options->exact_prefix = getenv("WEIR_STORE_PREFIX");
    options->on_event = print_event;
    open_failure[0] = '\0';
    int error = weir_open(options, out);
    if (error == 0)
        return 0;
    if (open_failure[0])
        return weir_cli_fail("%s", open_failure);
    if (error == WEIR_EINVAL)
        return weir_cli_fail("--roots %s: write HOST:PORT, several with "
                             "commas between; a name of SRV records is "
                             "_weir._tcp.NAME and has no port",
                             cli->roots);
    return weir_cli_fail("can't open a limiter: %s%s%s", weir_strerror(error),
                         error == WEIR_ESYSTEM ? ": " : "",
                         error == WEIR_ESYSTEM ? strerror(errno) : "");
}

int weir_cli_parsed(int result)
{
    return result == -2 ? WEIR_EXIT_OK : WEIR_EXIT_ERROR;
}
