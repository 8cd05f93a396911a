/* SPDX-License-Identifier: MIT
 * cli/cmd_top.c - weir top: the units offered, passed and limited per second,
 * by quota.
 *
 * A root sends counts that only grow. Two samples make rates; a sample of
 * another incarnation (the root was restarted, or another one answers) begins
 * anew. A quota that the sample before didn't have was not in use then, so all
 * its units came since. */

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

#include "cli/root_client.h"
#include "cli/table_print.h"
#include "core/quota/quota.h"
#include "front/uri.h"
#include "io/clock.h"
#include "lab/memory.h"

static const char top_help[] =
    "Shows units offered, passed and limited per second, the busiest\n"
    "quota first. Units, as the root sees them: a quota in a chain counts all\n"
    "units that went through it, so that a parent has its children's. In mode\n"
    "shadow, 'limited' units would have been limited, but passed.\n"
    "\n"
    "    weir top\n"
    "    weir top --once 'client/*'\n"
    "\n"
    "  --once               measure one interval, print it, end\n"
    "  --interval TIME      how long to measure                        [1s]\n"
    "  --shadow             beside it the counts of the shadow set\n"
    "  --roots HOST:PORT,…  the first that answers\n"
    "                                      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               a JSON object each interval, on a line\n"
    "\n"
    "On a terminal the space bar measures at once, and 'q' ends it.\n";

enum set { LIVE, SHADOW };

struct sample {
    char incarnation[40];
    double at[2];       /* seconds; by set */
    json_t *entries[2]; /* owned: name -> entry; NULL: none */
};

struct line {
    const char *name;                /* borrowed from the newer sample */
    const char *limit;               /* likewise */
    const char *mode;                /* likewise */
    double offered, passed, limited; /* units per second */
    double fill, high;               /* units; high 0: unlimited */
    const char *would_limit; /* of the shadow set: its limit; "" without */
    double would_pass, would_refuse; /* units per second there */
};

struct top {
    struct weir_cli cli;
    bool once;
    bool shadow; /* the shadow set beside the live one */
    bool screen; /* repaint a terminal */
    bool colour;
    const char *glob; /* NULL: all; borrowed from argv */
    const char *interval_text;
    weir_duration interval;
    char path[WEIR_CLI_PATH_MAX];    /* for the live set */
    struct weir_root_client *client; /* owned */
    struct sample before;            /* owned */
    char *text;                      /* on the screen; owned; NULL: none */
    size_t text_len;
    sigset_t signals; /* as they were, for waiting */
};

/* ---- Samples ---- */

static void sample_free(struct sample *sample)
{
    json_decref(sample->entries[LIVE]);
    json_decref(sample->entries[SHADOW]);
    *sample = (struct sample){ 0 };
}

static int request_set(struct top *top, enum set set, struct sample *out,
                       struct weir_diag *diag)
{
    json_t *answer;
    char path[WEIR_CLI_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s%s", top->path,
             set == SHADOW ? "&shadow=1" : "");
    int error = weir_root_client_request(top->client, 0, "GET", path, NULL,
                                         &answer, diag);
    if (error < 0)
        return error;
    out->entries[set] = weir_cli_by_name(json_object_get(answer, "quotas"));
    out->at[set] = weir_cli_number(answer, "at");
    if (set == LIVE)
        snprintf(out->incarnation, sizeof out->incarnation, "%s",
                 weir_cli_text(answer, "incarnation"));
    json_decref(answer);
    return 0;
}

static int request_sample(struct top *top, struct sample *out,
                          struct weir_diag *diag)
{
    *out = (struct sample){ 0 };
    int error = request_set(top, LIVE, out, diag);
    if (error == 0 && top->shadow)
        error = request_set(top, SHADOW, out, diag);
    if (error < 0)
        sample_free(out);
    return error;
}

/* The limit of an adaptive quota in its processes, if any was reported. */
static const char *limit_shown(const json_t *entry)
{
    const json_t *adaptive = json_object_get(entry, "adaptive");
    return weir_cli_text(json_is_object(adaptive) ? adaptive : entry, "limit");
}

/* Units per second of a set's quota between two samples. */
static void measure(const struct sample *before, const struct sample *after,
                    enum set set, const char *name, double *out_passed,
                    double *out_limited)
{
    const json_t *old = json_object_get(before->entries[set], name);
    const json_t *entry = json_object_get(after->entries[set], name);
    double seconds = after->at[set] - before->at[set];
    double passed =
        weir_cli_number(entry, "passed") - weir_cli_number(old, "passed");
    double limited =
        weir_cli_number(entry, "limited") - weir_cli_number(old, "limited");
    if (seconds <= 0)
        seconds = 1e-3;
    /* Refunds may make it fall. */
    *out_passed = passed > 0 ? passed / seconds : 0;
    *out_limited = limited > 0 ? limited / seconds : 0;
}

/* Either set may have no quota of that name. */
static void make_line(const struct sample *before, const struct sample *after,
                      const char *name, struct line *out)
{
    const json_t *entry = json_object_get(after->entries[LIVE], name);
    const json_t *shadow = json_object_get(after->entries[SHADOW], name);
    *out = (struct line){
        .name = name,
        .limit = limit_shown(entry),
        .mode = weir_cli_text(entry, "mode"),
        .fill = weir_cli_number(entry, "fill"),
        .high = weir_cli_number(entry, "high"),
        .would_limit = "",
    };
    measure(before, after, LIVE, name, &out->passed, &out->limited);
    out->offered = out->passed + out->limited;
    if (!shadow || after->at[SHADOW] <= before->at[SHADOW])
        return;
    out->would_limit = weir_cli_text(shadow, "limit");
    measure(before, after, SHADOW, name, &out->would_pass, &out->would_refuse);
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
    json_t *live = after->entries[LIVE];
    json_t *shadow = after->entries[SHADOW];
    size_t most = json_object_size(live) + json_object_size(shadow);
    struct line *lines = calloc(most + 1, sizeof *lines);
    if (!lines)
        weir_no_memory();
    size_t count = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(live, name, entry)
        make_line(before, after, name, &lines[count++]);
    json_object_foreach(shadow, name, entry) if (!json_object_get(live, name))
        make_line(before, after, name, &lines[count++]);
    weir_assert(count <= most);
    *out_count = count;
    qsort(lines, count, sizeof *lines, by_offered);
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
    memset(out, '.', BAR);
    memset(out, '#', (size_t)full);
    if (line->high > 0)
        snprintf(out + BAR, 16, " %3.0f%%", part * 100);
    else
        snprintf(out, 16, "-");
}

/* Live and shadow side by side; a set without a quota of that name has
 * blanks. */
static void print_both(const struct top *top, const struct line *lines,
                       size_t count, FILE *out)
{
    struct weir_rows rows = { .bold_head = top->colour, .right = 127u << 1 };
    weir_rows_head(&rows, "QUOTA", "LIMIT", "OFFERED/s", "PASSED/s",
                   "LIMITED/s", "WOULD BE", "PASSED/s", "LIMITED/s", NULL);
    for (size_t i = 0; i < count; i++) {
        const struct line *line = &lines[i];
        const double rates[] = { line->offered, line->passed, line->limited,
                                 line->would_pass, line->would_refuse };
        weir_rows_add_all(&rows, line->name, line->limit, NULL);
        for (size_t k = 0; k < WEIR_COUNT_OF(rates); k++) {
            char buf[64];
            const char *set = k < 3 ? line->limit : line->would_limit;
            if (k == 3)
                weir_rows_add(&rows, line->would_limit);
            weir_rows_add(&rows, set[0] ? weir_cli_units(rates[k], buf) : "-");
        }
    }
    weir_rows_print(&rows, out);
}

static void print_live(const struct top *top, const struct line *lines,
                       size_t count, FILE *out)
{
    struct weir_rows rows = { .bold_head = top->colour, .right = 15u << 2 };
    weir_rows_head(&rows, "QUOTA", "MODE", "LIMIT", "OFFERED/s", "PASSED/s",
                   "LIMITED/s", "FILL", NULL);
    for (size_t i = 0; i < count; i++) {
        const struct line *line = &lines[i];
        char offered[16], passed[16], limited[16], bar[64];
        make_bar(line, bar);
        weir_rows_add_all(&rows, line->name, line->mode, line->limit,
                          weir_cli_units(line->offered, offered),
                          weir_cli_units(line->passed, passed),
                          weir_cli_units(line->limited, limited), bar, NULL);
    }
    weir_rows_print(&rows, out);
}

static json_t *line_object(const struct line *line, bool shadow)
{
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f}", "name",
                  line->name, "mode", line->mode, "limit", line->limit,
                  "offered", line->offered, "passed", line->passed, "limited",
                  line->limited, "fill", line->fill, "high", line->high);
    if (shadow)
        json_object_set_new(
            object, "shadow",
            json_pack("{s:s, s:f, s:f}", "limit", line->would_limit, "passed",
                      line->would_pass, "limited", line->would_refuse));
    return object;
}

static void print_top_json(const struct line *lines, size_t count, bool shadow,
                           double seconds)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, line_object(&lines[i], shadow));
    json_t *object =
        json_pack("{s:f, s:o}", "seconds", seconds, "quotas", list);
    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', stdout);
    json_decref(object);
}

/* Lines of any width; the screen cuts them. */
static void print_table(const struct top *top, const struct line *lines,
                        size_t count, FILE *out)
{
    if (top->shadow)
        print_both(top, lines, count, out);
    else
        print_live(top, lines, count, out);
    FILE *note = top->screen ? out : stderr;
    if (count == 0 && top->glob)
        fprintf(note, "nothing in use matches '%s'\n", top->glob);
    else if (count == 0)
        fprintf(note, "no quota is in use; take something: weir take NAME\n");
}

/* ---- The screen ----
The screen's text is kept in whole lines, so that it can be painted again
when the window changes. ---- */

static size_t count_lines(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

/* Prints the part that fits: a character takes a column, a colour none. */
static void print_cut_line(const char *line, size_t len, size_t columns)
{
    size_t end = 0;
    while (end < len) {
        if (line[end] == '\033') {
            end += strcspn(line + end, "m\n");
            end += line[end] == 'm';
            continue;
        }
        bool begins = (line[end] & 0xc0) != 0x80;
        if (begins && columns == 0)
            break;
        columns -= begins;
        end++;
    }
    fwrite(line, 1, end, stdout);
}

static void paint(const struct top *top)
{
    struct winsize size = { 0 };
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    size_t rows = size.ws_row ? size.ws_row : 24;
    size_t columns = size.ws_col ? size.ws_col : 80;
    size_t count = count_lines(top->text);
    size_t shown = count > rows ? rows - 1 : count;
    const char *line = top->text;
    fputs("\033[0m\033[H\033[J", stdout);
    /* A newline after the last line would scroll the first away. */
    for (size_t i = 0; i < shown; i++) {
        size_t len = strcspn(line, "\n");
        fputs(i > 0 ? "\n" : "", stdout);
        print_cut_line(line, len, columns);
        line += len + 1;
    }
    fputs("\033[0m", stdout);
    if (shown < count) {
        char more[64];
        int len = snprintf(more, sizeof more, "… and %zu more", count - shown);
        fputs(shown > 0 ? "\n" : "", stdout);
        print_cut_line(more, (size_t)len, columns);
    }
    fflush(stdout);
}

/* Begins a new text for the screen. */
static FILE *open_text(struct top *top)
{
    free(top->text);
    FILE *out = open_memstream(&top->text, &top->text_len);
    if (!out)
        weir_no_memory();
    return out;
}

static void close_text(struct top *top, FILE *out)
{
    if (fclose(out) != 0)
        weir_no_memory();
    paint(top);
}

static void print_sample(struct top *top, const struct sample *after)
{
    size_t count;
    struct line *lines = make_lines(&top->before, after, &count);
    if (top->cli.json) {
        print_top_json(lines, count, top->shadow,
                       after->at[LIVE] - top->before.at[LIVE]);
    } else if (top->screen) {
        FILE *out = open_text(top);
        fprintf(out, "weir top: units per second at %s, every %s; q ends\n\n",
                top->cli.roots, top->interval_text);
        print_table(top, lines, count, out);
        close_text(top, out);
    } else {
        print_table(top, lines, count, stdout);
        if (!top->once)
            putchar('\n');
    }
    fflush(stdout);
    free(lines);
}

/* ---- The terminal ---- */

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t resized;

static void on_top_signal(int signal)
{
    if (signal == SIGWINCH)
        resized = 1;
    else
        interrupted = 1;
}

/* Signals come only while ppoll() waits, so that none is missed between a check
 * and the wait. */
static void catch_signals(sigset_t *out_before)
{
    static const int caught[] = { SIGINT, SIGTERM, SIGWINCH };
    struct sigaction act = { .sa_handler = on_top_signal };
    sigset_t held;
    sigemptyset(&held);
    for (size_t i = 0; i < WEIR_COUNT_OF(caught); i++) {
        sigaddset(&held, caught[i]);
        sigaction(caught[i], &act, NULL);
    }
    sigprocmask(SIG_BLOCK, &held, out_before);
}

static void begin_screen(struct termios *before)
{
    tcgetattr(STDIN_FILENO, before);
    struct termios keys = *before;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    /* A stop would leave the shell on this screen. */
    keys.c_cc[VSUSP] = _POSIX_VDISABLE;
    tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    fputs("\033[?1049h\033[?25l", stdout);
}

static void end_screen(const struct termios *before)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, before);
}

enum key { KEY_NONE, KEY_MEASURE, KEY_END };

/* Reads a pressed key. A closed terminal gives KEY_END. */
static enum key read_terminal_key(void)
{
    char key = 0;
    ssize_t got = read(STDIN_FILENO, &key, 1);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN ? KEY_NONE : KEY_END;
    if (got == 0 || key == 'q' || key == 4)
        return KEY_END;
    return key == ' ' ? KEY_MEASURE : KEY_NONE;
}

/* Waits one interval, or until the user wants to measure at once; false when
 * the user wants to end. */
static bool wait_interval(const struct top *top)
{
    weir_instant until = weir_clock_now() + top->interval;
    struct pollfd keys = { .fd = top->screen ? STDIN_FILENO : -1,
                           .events = POLLIN };
    for (;;) {
        weir_instant now = weir_clock_now();
        if (now >= until || interrupted)
            return !interrupted;
        struct timespec timeout = {
            .tv_sec = (time_t)((until - now) / WEIR_SECOND),
            .tv_nsec = (long)((until - now) % WEIR_SECOND),
        };
        enum key key = KEY_NONE;
        if (ppoll(&keys, 1, &timeout, &top->signals) > 0)
            key = read_terminal_key();
        if (key != KEY_NONE)
            return key == KEY_MEASURE;
        if (resized && top->text)
            paint(top);
        resized = 0;
    }
}

/* ---- top ---- */

static void print_trouble(struct top *top, const struct weir_diag *diag)
{
    FILE *out = top->screen ? open_text(top) : stderr;
    fprintf(out, "weir: %s\n", diag->text);
    if (top->screen)
        close_text(top, out);
}

/* Shown until the first interval has passed. */
static void print_measuring(struct top *top)
{
    FILE *out = open_text(top);
    fprintf(out,
            "weir top: measuring for %s at %s; space shows it now, q ends\n",
            top->interval_text, top->cli.roots);
    close_text(top, out);
}

static int watch_top(struct top *top)
{
    if (top->screen)
        print_measuring(top);
    while (wait_interval(top)) {
        struct sample after;
        struct weir_diag diag = { 0 };
        int error = request_sample(top, &after, &diag);
        if (error < 0) {
            if (top->once)
                return weir_cli_fail("%s", diag.text);
            print_trouble(top, &diag);
            continue;
        }
        bool same = top->before.entries[LIVE] &&
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

static int prepare_top(struct top *top, int argc, char **argv)
{
    const struct weir_cli_option options[] = {
        { .name = "once", .letter = '1', .flag = &top->once },
        { .name = "interval", .letter = 'i', .value = &top->interval_text },
        { .name = "shadow", .letter = 's', .flag = &top->shadow },
    };
    int at = weir_cli_parse(&top->cli, top_help, options, 3, argc, argv);
    if (at < 0)
        return at;
    if (argc - at > 1)
        return weir_cli_fail("one GLOB at most; quote it from the shell"), -1;
    if (weir_cli_parse_duration("--interval", top->interval_text,
                                &top->interval))
        return -1;
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
    int parsed = prepare_top(&top, argc, argv);
    if (parsed < 0)
        return weir_cli_parsed(parsed);
    top.client = weir_root_client_new(&top.cli);
    if (!top.client)
        return WEIR_EXIT_ERROR;
    top.colour = weir_rows_colour(stdout);
    top.screen = isatty(STDOUT_FILENO) && isatty(STDIN_FILENO) && !top.once &&
                 !top.cli.json;
    struct weir_diag diag = { 0 };
    int status = WEIR_EXIT_OK;
    if (request_sample(&top, &top.before, &diag) < 0)
        status = weir_cli_fail("%s", diag.text);
    catch_signals(&top.signals);
    struct termios terminal_before;
    if (status == 0 && top.screen)
        begin_screen(&terminal_before);
    if (status == 0) {
        status = watch_top(&top);
        if (top.screen)
            end_screen(&terminal_before);
    }
    free(top.text);
    sample_free(&top.before);
    weir_root_client_free(&top.client);
    return status;
}
