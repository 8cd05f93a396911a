/* SPDX-License-Identifier: MIT
 * cli/cmd_top.c - weir top: what is offered, passed and limited per second,
 * quota by quota.
 *
 * A root tells counts that only grow. Two samples make rates; a sample of
 * another incarnation (the root was restarted, or another one answers) makes
 * a new beginning. A quota that the sample before didn't show has begun to be
 * used, so all it has was made since. */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "cli/quota_set.h"
#include "cli/table_print.h"
#include "server/uri.h"

static const char top_help[] =
    "Shows what is offered, passed and limited per second, the busiest quota\n"
    "first. Units, as the root sees them: a quota in a chain counts what went\n"
    "through it, so that a parent holds its children's. In mode shadow,\n"
    "'limited' is what would have been; it passed all the same.\n"
    "\n"
    "    weir top\n"
    "    weir top --once 'client/*'\n"
    "\n"
    "  --once               measure one interval, print it, end\n"
    "  --interval TIME      how long to measure                        [1s]\n"
    "  --roots HOST:PORT,…  the first that answers\n"
    "                                      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               a JSON object each interval, on a line\n"
    "\n"
    "On a terminal 'q' ends it.\n";

struct sample {
    char incarnation[40];
    double at;       /* seconds */
    json_t *answer;  /* owned; NULL: none */
    json_t *by_name; /* owned: name -> entry of the answer */
};

struct line {
    const char *name;  /* borrowed from the newer sample */
    const char *limit; /* likewise */
    const char *mode;  /* likewise */
    double offered, passed, limited; /* units per second */
    double fill, high; /* units; high 0: unlimited */
};

struct top {
    struct weir_cli cli;
    bool once;
    bool screen; /* repaint a terminal */
    bool colour;
    const char *glob; /* NULL: all; borrowed from argv */
    const char *interval_text;
    weir_duration interval;
    char path[WEIR_CLI_PATH_MAX];
    struct weir_root_client *client; /* owned */
    struct sample before;            /* owned */
};

/* ---- Samples ---- */

static void sample_free(struct sample *sample)
{
    json_decref(sample->by_name);
    json_decref(sample->answer);
    *sample = (struct sample){ 0 };
}

static int take_sample(struct top *top, struct sample *out,
                       struct weir_diag *diag)
{
    json_t *answer;
    int error = weir_root_client_ask(top->client, "GET", top->path, NULL,
                                     &answer, NULL, diag);
    if (error < 0)
        return error;
    *out = (struct sample){ .answer = answer, .by_name = json_object() };
    snprintf(out->incarnation, sizeof out->incarnation, "%s",
             weir_cli_text(answer, "incarnation"));
    out->at = json_number_value(json_object_get(answer, "at"));
    size_t index;
    json_t *entry;
    json_array_foreach(json_object_get(answer, "quotas"), index, entry)
        json_object_set(out->by_name, weir_cli_text(entry, "name"), entry);
    return 0;
}

static double figure(const json_t *entry, const char *key)
{
    return json_number_value(json_object_get(entry, key));
}

static void make_line(const struct sample *before, const json_t *entry,
                      double seconds, struct line *out)
{
    const char *name = weir_cli_text(entry, "name");
    const json_t *old = json_object_get(before->by_name, name);
    double passed = figure(entry, "passed") - figure(old, "passed");
    double limited = figure(entry, "refused") - figure(old, "refused");
    /* Refunds may make it fall. */
    *out = (struct line){
        .name = name,
        .limit = weir_cli_text(entry, "limit"),
        .mode = weir_cli_text(entry, "mode"),
        .passed = passed > 0 ? passed / seconds : 0,
        .limited = limited > 0 ? limited / seconds : 0,
        .fill = figure(entry, "fill"),
        .high = figure(entry, "high"),
    };
    out->offered = out->passed + out->limited;
}

static int by_offered(const void *a, const void *b)
{
    const struct line *x = a;
    const struct line *y = b;
    if (x->offered != y->offered)
        return x->offered < y->offered ? 1 : -1;
    if (x->fill != y->fill)
        return x->fill < y->fill ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* The lines between two samples, busiest first; malloc'ed. */
static struct line *make_lines(const struct sample *before,
                               const struct sample *after, size_t *out_count)
{
    json_t *list = json_object_get(after->answer, "quotas");
    struct line *lines = calloc(json_array_size(list) + 1, sizeof *lines);
    if (!lines)
        abort();
    double seconds = after->at - before->at;
    if (seconds <= 0)
        seconds = 1e-3;
    size_t index;
    json_t *entry;
    json_array_foreach(list, index, entry)
        make_line(before, entry, seconds, &lines[index]);
    *out_count = json_array_size(list);
    qsort(lines, *out_count, sizeof *lines, by_offered);
    return lines;
}

/* ---- Output ---- */

#define BAR 20 /* characters */

static void make_bar(const struct line *line, char *out)
{
    double part = line->high > 0 ? line->fill / line->high : 0;
    if (part < 0)
        part = 0;
    int full = (int)(part * BAR + 0.5);
    if (full > BAR)
        full = BAR;
    for (int i = 0; i < BAR; i++)
        out[i] = i < full ? '#' : '.';
    if (line->high > 0)
        snprintf(out + BAR, 16, " %3.0f%%", part * 100);
    else
        snprintf(out, 16, "-");
}

static void print_lines(const struct top *top, const struct line *lines,
                        size_t count, size_t max)
{
    static const char *const heads[] = { "QUOTA",    "MODE",
                                         "LIMIT",    "OFFERED/s",
                                         "PASSED/s", "LIMITED/s",
                                         "FILL" };
    struct weir_rows rows = { .columns = WEIR_COUNT_OF(heads),
                              .bold_head = top->colour,
                              .right = 15u << 2 };
    for (size_t i = 0; i < WEIR_COUNT_OF(heads); i++)
        weir_rows_add(&rows, heads[i]);
    for (size_t i = 0; i < count && i < max; i++) {
        char buf[64];
        weir_rows_add(&rows, lines[i].name);
        weir_rows_add(&rows, lines[i].mode);
        weir_rows_add(&rows, lines[i].limit);
        weir_rows_add(&rows, weir_cli_units(lines[i].offered, buf));
        weir_rows_add(&rows, weir_cli_units(lines[i].passed, buf));
        weir_rows_add(&rows, weir_cli_units(lines[i].limited, buf));
        make_bar(&lines[i], buf);
        weir_rows_add(&rows, buf);
    }
    weir_rows_print(&rows, stdout);
    if (count > max)
        printf("… and %zu more\n", count - max);
}

static void print_json(const struct line *lines, size_t count, double seconds)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f}",
                            "name", lines[i].name, "mode", lines[i].mode,
                            "limit", lines[i].limit, "offered",
                            lines[i].offered, "passed", lines[i].passed,
                            "limited", lines[i].limited, "fill",
                            lines[i].fill, "high", lines[i].high));
    json_t *object =
        json_pack("{s:f, s:o}", "seconds", seconds, "quotas", list);
    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', stdout);
    json_decref(object);
}

static size_t screen_rows(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 6)
        return size.ws_row;
    return 24;
}

static void print_sample(struct top *top, const struct sample *after)
{
    size_t count;
    struct line *lines = make_lines(&top->before, after, &count);
    if (top->cli.json) {
        print_json(lines, count, after->at - top->before.at);
    } else if (top->screen) {
        fputs("\033[H\033[J", stdout);
        printf("weir top: units per second at %s, every %s; q ends\n\n",
               top->cli.roots, top->interval_text);
        print_lines(top, lines, count, screen_rows() - 5);
    } else {
        print_lines(top, lines, count, SIZE_MAX);
        if (!top->once)
            putchar('\n');
    }
    fflush(stdout);
    if (count == 0 && !top->cli.json && top->glob)
        fprintf(stderr, "nothing in use matches '%s'\n", top->glob);
    else if (count == 0 && !top->cli.json)
        fprintf(stderr, "no quota is in use; take something: weir take "
                        "NAME\n");
    free(lines);
}

/* ---- The terminal ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static void begin_screen(struct termios *before)
{
    tcgetattr(STDIN_FILENO, before);
    struct termios keys = *before;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    fputs("\033[?1049h\033[?25l", stdout);
}

static void end_screen(const struct termios *before)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, before);
}

static int64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits one interval; false when the user wants to end. */
static bool wait_interval(const struct top *top)
{
    int64_t until =
        monotonic_ms() + (int64_t)(top->interval / WEIR_MILLISECOND);
    struct pollfd keys = { .fd = top->screen ? STDIN_FILENO : -1,
                           .events = POLLIN };
    for (;;) {
        int64_t left = until - monotonic_ms();
        if (left <= 0 || interrupted)
            return !interrupted;
        char key = 0;
        if (poll(&keys, 1, (int)left) > 0 &&
            read(STDIN_FILENO, &key, 1) == 1 && (key == 'q' || key == 4))
            return false;
    }
}

/* ---- top ---- */

static void say_trouble(const struct top *top, const struct weir_diag *diag)
{
    if (top->screen)
        fputs("\033[H\033[J", stdout);
    fflush(stdout);
    fprintf(stderr, "weir: %s\n", diag->text);
}

static int watch(struct top *top)
{
    while (wait_interval(top)) {
        struct sample after;
        struct weir_diag diag = { 0 };
        int error = take_sample(top, &after, &diag);
        if (error < 0) {
            if (top->once)
                return weir_cli_fail("%s", diag.text);
            say_trouble(top, &diag);
            continue;
        }
        bool same = top->before.answer &&
                    strcmp(after.incarnation, top->before.incarnation) == 0;
        if (same)
            print_sample(top, &after);
        sample_free(&top->before);
        top->before = after;
        if (same && top->once)
            return WEIR_EXIT_OK;
    }
    return WEIR_EXIT_OK;
}

static int prepare(struct top *top, int argc, char **argv)
{
    const struct weir_cli_option options[] = {
        { .name = "once", .letter = '1', .flag = &top->once },
        { .name = "interval", .letter = 'i', .value = &top->interval_text },
    };
    int at = weir_cli_parse(&top->cli, top_help, options, 2, argc, argv);
    if (at < 0)
        return at;
    if (argc - at > 1)
        return weir_cli_fail("one GLOB at most; quote it from the shell"), -1;
    struct weir_diag diag = { 0 };
    if (weir_duration_parse(weir_text_of(top->interval_text), &top->interval,
                            &diag) < 0)
        return weir_cli_fail("--interval: %s", diag.text), -1;
    if (top->interval < 10 * WEIR_MILLISECOND ||
        top->interval > 3600 * WEIR_SECOND)
        return weir_cli_fail("--interval: choose 10ms to 1h"), -1;
    char encoded[3 * WEIR_NAME_MAX];
    top->glob = at < argc ? argv[at] : NULL;
    int len = weir_uri_encode(weir_text_of(top->glob ? top->glob : "*"),
                              encoded, sizeof encoded);
    if (len < 0)
        return weir_cli_fail("the GLOB is too long"), -1;
    snprintf(top->path, sizeof top->path, "/v1/usage?limit=1000&match=%.*s",
             len, encoded);
    return 0;
}

int weir_cli_top(int argc, char **argv)
{
    struct top top = { .interval_text = "1s" };
    int parsed = prepare(&top, argc, argv);
    if (parsed < 0)
        return weir_cli_parsed(parsed);
    top.client = weir_cli_connect(&top.cli);
    if (!top.client)
        return WEIR_EXIT_ERROR;
    const char *plain = getenv("NO_COLOR");
    bool terminal = isatty(STDOUT_FILENO);
    top.colour = terminal && !(plain && plain[0]);
    top.screen = terminal && isatty(STDIN_FILENO) && !top.once &&
                 !top.cli.json;
    struct weir_diag diag = { 0 };
    int status = WEIR_EXIT_OK;
    if (take_sample(&top, &top.before, &diag) < 0)
        status = weir_cli_fail("%s", diag.text);
    struct sigaction stop = { .sa_handler = on_interrupt };
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    struct termios terminal_before;
    if (status == 0 && top.screen)
        begin_screen(&terminal_before);
    if (status == 0) {
        int result = watch(&top);
        if (top.screen)
            end_screen(&terminal_before);
        status = result;
    }
    sample_free(&top.before);
    weir_root_client_free(&top.client);
    return status;
}
