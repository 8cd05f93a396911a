/* SPDX-License-Identifier: MIT
 * cli/cmd_replay.c - weir replay: which requests would have been limited. The
 * results are printed for people, as JSON, and as one page with no script and
 * no external parts, figures as SVG in the text. */

#include "cli/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/root_client.h"
#include "cli/table_print.h"
#include "lab/memory.h"

#define MARKS 60     /* of a figure, in columns */
#define LIMIT_MAX 64 /* bytes of a limit's text */
#define WIDTH 720
#define HEIGHT 90

static const char replay_help[] =
    "Puts access logs through a file of quotas, in virtual time, and shows\n"
    "the requests that quotas would have limited, by quota, client and time.\n"
    "\n"
    "    weir quota export > quotas.yaml\n"
    "    weir replay --quotas quotas.yaml --key '{client}' access.log*.gz\n"
    "    weir replay --quotas now.yaml --compare tighter.yaml access.log\n"
    "    weir replay --quotas quotas.yaml --suggest 0.1% access.log\n"
    "\n"
    "      --quotas FILE    as `weir quota export` writes it\n"
    "  -k, --key NAME       the name of a request; {client}, {user},\n"
    "                       {method}, {path}, {dir}, {protocol}, {status},\n"
    "                       {referer}, {agent} stand for its own  [{client}]\n"
    "      --weight W       requests, or bytes: of the answer   [requests]\n"
    "      --format F       combined, common, vhost, json\n"
    "                                                  [by the line itself]\n"
    "      --compare FILE   the same log through these quotas as well\n"
    "      --suggest SHARE  the smallest limits under which each quota would\n"
    "                       have limited at most that share, such as 0.1%\n"
    "      --top N          clients shown                               [10]\n"
    "      --seed N         of chance between low_burst and high_burst   [1]\n"
    "      --html FILE      the same as a page with figures\n"
    "      --json           the same as JSON\n"
    "\n"
    "LOG may be gzipped; - is standard input. Several are put in order of\n"
    "time. Lines that can't be read are counted and shown. More:\n"
    "weir-replay(1).\n";

struct replay {
    /* As typed; borrowed; NULL: not given. */
    const char *quotas, *key, *weight, *format, *compare, *suggest, *top_text,
        *seed_text, *html;
    bool json;
    double share;       /* of the suggestion */
    uint64_t top, seed; /* 'top': clients shown */
    struct weir_replay_log log;
    struct weir_replay_set set, other;
    struct weir_replay_result a, b;           /* 'b': to compare with */
    struct weir_replay_suggestion *suggested; /* owned; NULL, or for 'a' */
    struct weir_replay_result together;       /* all suggested at once */
};

/* ---- The results ---- */

/* "17 May 2015 10:05:03" in UTC; 'buf' holds 32 bytes; returned. */
static const char *show_instant(weir_instant at, char *buf)
{
    time_t seconds = (time_t)(at / WEIR_SECOND);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    strftime(buf, 32, "%d %b %Y %H:%M:%S", &tm);
    return buf;
}

/* "3 d 11 h", "4 min 3 s" */
static const char *span(weir_duration duration, char *buf)
{
    static const struct {
        uint64_t seconds;
        const char *name;
    } units[] = { { 86400, "d" }, { 3600, "h" }, { 60, "min" }, { 1, "s" } };
    uint64_t left = (duration + WEIR_SECOND / 2) / WEIR_SECOND;
    size_t i = 0;
    while (i < 3 && left < units[i].seconds)
        i++;
    int len = snprintf(buf, 32, "%" PRIu64 " %s", left / units[i].seconds,
                       units[i].name);
    left %= units[i].seconds;
    if (i < 3 && left / units[i + 1].seconds > 0)
        snprintf(buf + len, 32 - (size_t)len, " %" PRIu64 " %s",
                 left / units[i + 1].seconds, units[i + 1].name);
    return buf;
}

static double percent_of(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

/* "5.2 %", and never "0 %" for a part above 0. */
static const char *percent(uint64_t part, uint64_t whole, char *buf)
{
    double value = 100 * percent_of(part, whole);
    int digits = value >= 10 || value == 0 ? 1 : value >= 0.1 ? 2 : 3;
    snprintf(buf, 32, "%.*f %%", digits, value);
    return buf;
}

/* 'buf' holds LIMIT_MAX bytes and is returned. */
static const char *format_limit(const struct weir_limit *limit, char *buf)
{
    buf[weir_limit_format(limit, buf, LIMIT_MAX - 1)] = '\0';
    return buf;
}

static void add_number_cell(struct weir_rows *rows, uint64_t number)
{
    weir_rows_addf(rows, "%" PRIu64, number);
}

static void add_name_cell(struct weir_rows *rows,
                          const struct weir_quota *quota)
{
    weir_rows_addf(rows, "%.*s", (int)quota->name.len, quota->name.p);
}

/* ---- The log ---- */

static void print_bad(const struct weir_replay_log *log)
{
    char buf[32];
    if (log->bad == 0)
        return;
    printf("%" PRIu64 " of %" PRIu64 " lines can't be read (%s)%s\n", log->bad,
           log->lines, percent(log->bad, log->lines, buf),
           log->bad > WEIR_REPLAY_BAD_SHOWN ? "; the first of them:" : ":");
    for (uint64_t i = 0; i < log->bad && i < WEIR_REPLAY_BAD_SHOWN; i++)
        printf("  %s:%" PRIu64 ": %s\n      %s\n", log->shown[i].file,
               log->shown[i].line, log->shown[i].why, log->shown[i].text);
}

static void print_log_summary(const struct replay *replay)
{
    const struct weir_replay_log *log = &replay->log;
    const struct weir_replay_result *result = &replay->a;
    char from[32], to[32], took[32];
    printf("%zu requests of %" PRIu32 " clients, %s to %s UTC (%s)\n",
           log->count, log->clients.count, show_instant(result->begin, from),
           show_instant(result->end, to),
           span(result->end - result->begin, took));
    print_bad(log);
    if (result->unknown > 0)
        printf("%" PRIu64 " of them ask for a name that no quota rules, and "
               "pass (%s)\n",
               result->unknown, percent(result->unknown, log->count, took));
    if (log->clipped > 0)
        printf("%" PRIu64 " answers of 4 GiB and more count as 4 GiB\n",
               log->clipped);
    putchar('\n');
}

/* ---- One set ---- */

static void print_quota_results(const struct weir_replay_result *result)
{
    struct weir_rows rows = { .right = 0x3c,
                              .bold_head = weir_rows_colour(stdout) };
    weir_rows_head(&rows, "QUOTA", "LIMIT", "OFFERED", "LIMITED", "SHARE",
                   "UNITS", "FIRST", "WORST MINUTE", NULL);
    for (size_t i = 0; i < result->set->count; i++) {
        const struct weir_quota *quota = &result->set->quotas[i];
        const struct weir_replay_count *count = &result->quotas[i];
        char buf[LIMIT_MAX], when[32];
        add_name_cell(&rows, quota);
        weir_rows_add(&rows, format_limit(&quota->limit, buf));
        add_number_cell(&rows, count->asked);
        add_number_cell(&rows, count->refused);
        weir_rows_add(&rows, percent(count->refused, count->asked, buf));
        add_number_cell(&rows, count->units);
        if (count->refused == 0) {
            weir_rows_add_all(&rows, "", "", NULL);
            continue;
        }
        weir_rows_add(&rows, show_instant(count->first, when));
        weir_rows_addf(&rows, "%.17s (%" PRIu64 ")",
                       show_instant(count->worst, when), count->worst_refused);
    }
    weir_rows_print(&rows, stdout);
    putchar('\n');
}

/* Each mark is a part of the time; the highest mark is the most in this row. */
static void print_marks(const uint64_t bins[WEIR_REPLAY_BINS])
{
    static const char *const marks[] = { "·", "▁", "▂", "▃", "▄",
                                         "▅", "▆", "▇", "█" };
    uint64_t sums[MARKS] = { 0 };
    uint64_t most = 1;
    for (size_t i = 0; i < WEIR_REPLAY_BINS; i++)
        sums[i * MARKS / WEIR_REPLAY_BINS] += bins[i];
    for (size_t i = 0; i < MARKS; i++)
        most = sums[i] > most ? sums[i] : most;
    for (size_t i = 0; i < MARKS; i++)
        fputs(marks[(sums[i] * 8 + most - 1) / most], stdout);
    putchar('\n');
}

static void print_replay_figure(const struct weir_replay_result *result)
{
    char took[32];
    int width = (int)strlen("offered");
    for (size_t i = 0; i < result->set->count; i++) {
        int len = (int)result->set->quotas[i].name.len;
        if (result->quotas[i].refused > 0 && len > width)
            width = len < 40 ? len : 40;
    }
    printf("Limited over time; a mark is %s:\n",
           span((result->end - result->begin) / MARKS, took));
    printf("  %-*s  ", width, "offered");
    print_marks(result->all.asked_in);
    for (size_t i = 0; i < result->set->count; i++) {
        const struct weir_text name = result->set->quotas[i].name;
        if (result->quotas[i].refused == 0)
            continue;
        printf("  %-*.*s  ", width, name.len < 40 ? (int)name.len : 40, name.p);
        print_marks(result->quotas[i].refused_in);
    }
    putchar('\n');
}

static void print_clients(const struct replay *replay,
                          const struct weir_replay_result *result)
{
    struct weir_rows rows = { .right = 0xe,
                              .bold_head = weir_rows_colour(stdout) };
    weir_rows_head(&rows, "CLIENT", "OFFERED", "LIMITED", "SHARE", "MOSTLY BY",
                   NULL);
    size_t refused = 0;
    for (uint32_t i = 0; i < result->client_count; i++)
        refused += result->clients[i].refused > 0;
    for (uint32_t i = 0; i < refused && i < replay->top; i++) {
        const struct weir_replay_client *client = &result->clients[i];
        char buf[32];
        weir_rows_add(&rows, replay->log.clients.items[client->client].p);
        add_number_cell(&rows, client->asked);
        add_number_cell(&rows, client->refused);
        weir_rows_add(&rows, percent(client->refused, client->asked, buf));
        if (client->mostly >= 0)
            add_name_cell(&rows, &result->set->quotas[client->mostly]);
        else
            weir_rows_add(&rows, "");
    }
    weir_rows_print(&rows, stdout);
    if (refused > replay->top)
        printf("… and %zu more clients; --top shows more\n",
               refused - replay->top);
    putchar('\n');
}

/* A burst given in time, or a default one, can come to less than a unit. */
static bool has_no_burst(const struct weir_quota *quota)
{
    uint64_t low, high;
    bool bursts =
        quota->algorithm == WEIR_LEAKY || quota->algorithm == WEIR_TOKEN_BUCKET;
    if (!bursts || quota->limit.unlimited || quota->limit.units == 0)
        return false;
    weir_quota_bursts(quota, &low, &high);
    return high == 1;
}

static void print_no_burst(const struct weir_replay_set *set)
{
    const struct weir_quota *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (!has_no_burst(&set->quotas[i]))
            continue;
        first = count++ == 0 ? &set->quotas[i] : first;
    }
    if (count == 0)
        return;
    char more[48] = "";
    if (count > 1)
        snprintf(more, sizeof more, " (and %zu more)", count - 1);
    printf("The high_burst of %.*s%s comes to 1 unit: of two requests at once "
           "it limits one.\n\n",
           (int)first->name.len, first->name.p, more);
}

static void print_set_summary(const struct replay *replay,
                              const struct weir_replay_result *result)
{
    char buf[32];
    printf("%s would have limited %" PRIu64 " of %" PRIu64 " requests (%s)",
           result->set->path, result->all.refused, result->all.asked,
           percent(result->all.refused, result->all.asked, buf));
    if (result->shadow > 0)
        printf("; quotas in mode shadow %" PRIu64 " more", result->shadow);
    puts("\n");
    print_quota_results(result);
    print_no_burst(result->set);
    if (result->crowded > 0)
        printf("%" PRIu64 " names found the table full, and "
               "were counted only by the quotas above.\n\n",
               result->crowded);
    if (result->all.refused == 0)
        return;
    print_replay_figure(result);
    print_clients(replay, result);
}

/* ---- Two sets ---- */

/* Requests that 'a' refused and 'b' didn't. */
static uint64_t count_only(const struct weir_replay_result *a,
                           const struct weir_replay_result *b, size_t count)
{
    uint64_t only = 0;
    for (size_t i = 0; i < count / 8 + 1; i++)
        only += (uint64_t)__builtin_popcount(a->refused[i] &
                                             (uint8_t)~b->refused[i]);
    return only;
}

static void add_side(struct weir_rows *rows,
                     const struct weir_replay_result *result, int quota)
{
    char buf[LIMIT_MAX];
    if (quota < 0) {
        weir_rows_add_all(rows, "-", "-", NULL);
        return;
    }
    weir_rows_add(rows, format_limit(&result->set->quotas[quota].limit, buf));
    add_number_cell(rows, result->quotas[quota].refused);
}

static void print_compared(const struct replay *replay)
{
    const struct weir_replay_result *a = &replay->a, *b = &replay->b;
    uint64_t only_a = count_only(a, b, replay->log.count);
    uint64_t only_b = count_only(b, a, replay->log.count);
    printf("A is %s, B is %s. Limited by both %" PRIu64 ", by A only %" PRIu64
           ", by B only %" PRIu64 "\n\n",
           a->set->path, b->set->path, a->all.refused - only_a, only_a, only_b);
    struct weir_rows rows = { .right = 0x14,
                              .bold_head = weir_rows_colour(stdout) };
    weir_rows_head(&rows, "QUOTA", "LIMIT A", "LIMITED A", "LIMIT B",
                   "LIMITED B", NULL);
    for (size_t i = 0; i < a->set->count; i++) {
        add_name_cell(&rows, &a->set->quotas[i]);
        add_side(&rows, a, (int)i);
        add_side(&rows, b,
                 weir_replay_set_find(b->set, a->set->quotas[i].name));
    }
    for (size_t i = 0; i < b->set->count; i++) {
        if (weir_replay_set_find(a->set, b->set->quotas[i].name) >= 0)
            continue;
        add_name_cell(&rows, &b->set->quotas[i]);
        add_side(&rows, a, -1);
        add_side(&rows, b, (int)i);
    }
    weir_rows_print(&rows, stdout);
    printf("\nLimited over time:\n  A  ");
    print_marks(a->all.refused_in);
    printf("  B  ");
    print_marks(b->all.refused_in);
    putchar('\n');
}

/* ---- Suggestions ---- */

static void print_suggested(const struct replay *replay)
{
    const struct weir_replay_set *set = replay->a.set;
    struct weir_rows rows = { .right = 0x18,
                              .bold_head = weir_rows_colour(stdout) };
    char buf[LIMIT_MAX];
    printf("The smallest limits under which each quota alone, with its bursts "
           "as they are,\nwould have limited at most %.6g %% of its "
           "requests:\n\n",
           100 * replay->share);
    weir_rows_head(&rows, "QUOTA", "LIMIT", "SUGGESTED", "WOULD LIMIT", "SHARE",
                   NULL);
    for (size_t i = 0; i < set->count; i++) {
        const struct weir_replay_suggestion *it = &replay->suggested[i];
        add_name_cell(&rows, &set->quotas[i]);
        weir_rows_add(&rows, format_limit(&set->quotas[i].limit, buf));
        if (it->none) {
            weir_rows_add_all(&rows, "-", "", it->why.text, NULL);
            continue;
        }
        weir_rows_add(&rows, format_limit(&it->limit, buf));
        add_number_cell(&rows, it->refused);
        weir_rows_add(&rows, percent(it->refused, it->asked, buf));
    }
    weir_rows_print(&rows, stdout);
    printf(
        "\nAll of them together would have limited %" PRIu64 " of %" PRIu64
        " requests (%s).\n",
        replay->together.all.refused, replay->together.all.asked,
        percent(replay->together.all.refused, replay->together.all.asked, buf));
}

static void print_report(const struct replay *replay)
{
    print_log_summary(replay);
    print_set_summary(replay, &replay->a);
    if (replay->compare) {
        print_set_summary(replay, &replay->b);
        print_compared(replay);
    }
    if (replay->suggested)
        print_suggested(replay);
}

/* ---- JSON ---- */

static json_t *numbers(const uint64_t bins[WEIR_REPLAY_BINS])
{
    json_t *list = json_array();
    for (size_t i = 0; i < WEIR_REPLAY_BINS; i++)
        json_array_append_new(list, json_integer((json_int_t)bins[i]));
    return list;
}

static json_t *count_object(const struct weir_replay_count *count)
{
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:o, s:o}", "offered", (json_int_t)count->asked,
        "limited", (json_int_t)count->refused, "limited_units",
        (json_int_t)count->units, "offered_over_time", numbers(count->asked_in),
        "limited_over_time", numbers(count->refused_in));
    if (count->refused == 0)
        return object;
    json_object_update_new(
        object,
        json_pack("{s:f, s:f, s:{s:f, s:I}}", "first",
                  (double)count->first / 1e9, "last", (double)count->last / 1e9,
                  "worst_minute", "at", (double)count->worst / 1e9, "limited",
                  (json_int_t)count->worst_refused));
    return object;
}

static json_t *json_of_text(struct weir_text text)
{
    json_t *made = json_stringn(text.p, text.len);
    return made ? made : json_string("?"); /* a client that isn't UTF-8 */
}

static json_t *clients_list(const struct replay *replay,
                            const struct weir_replay_result *result)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < result->client_count && i < replay->top; i++) {
        const struct weir_replay_client *client = &result->clients[i];
        if (client->refused == 0)
            break;
        json_t *object =
            json_pack("{s:I, s:I, s:o}", "offered", (json_int_t)client->asked,
                      "limited", (json_int_t)client->refused, "client",
                      json_of_text(replay->log.clients.items[client->client]));
        if (client->mostly >= 0)
            json_object_set_new(
                object, "mostly_by",
                json_of_text(result->set->quotas[client->mostly].name));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *set_object(const struct replay *replay,
                          const struct weir_replay_result *result)
{
    json_t *object = count_object(&result->all);
    json_t *quotas = json_array();
    for (size_t i = 0; i < result->set->count; i++) {
        char buf[LIMIT_MAX];
        json_t *quota = count_object(&result->quotas[i]);
        json_object_set_new(quota, "name",
                            json_of_text(result->set->quotas[i].name));
        json_object_set_new(
            quota, "limit",
            json_string(format_limit(&result->set->quotas[i].limit, buf)));
        if (has_no_burst(&result->set->quotas[i]))
            json_object_set_new(quota, "no_burst", json_true());
        json_array_append_new(quotas, quota);
    }
    json_object_set_new(object, "file", json_string(result->set->path));
    json_object_update_new(
        object, json_pack("{s:I, s:I, s:I, s:o, s:o}", "unknown",
                          (json_int_t)result->unknown, "overflowed",
                          (json_int_t)result->crowded, "shadow",
                          (json_int_t)result->shadow, "quotas", quotas,
                          "clients", clients_list(replay, result)));
    return object;
}

static json_t *suggested_list(const struct replay *replay)
{
    json_t *list = json_array();
    for (size_t i = 0; i < replay->a.set->count; i++) {
        const struct weir_replay_suggestion *it = &replay->suggested[i];
        char buf[LIMIT_MAX];
        json_t *object =
            json_pack("{s:I, s:I}", "offered", (json_int_t)it->asked, "limited",
                      (json_int_t)it->refused);
        json_object_set_new(object, "name",
                            json_of_text(replay->a.set->quotas[i].name));
        json_object_set_new(object, "limit",
                            it->none
                                ? json_null()
                                : json_string(format_limit(&it->limit, buf)));
        if (it->none)
            json_object_set_new(object, "why", json_string(it->why.text));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *bad_list(const struct weir_replay_log *log)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < log->bad && i < WEIR_REPLAY_BAD_SHOWN; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:s, s:s}", "file", log->shown[i].file,
                            "line", (json_int_t)log->shown[i].line, "why",
                            log->shown[i].why, "text", log->shown[i].text));
    return list;
}

static json_t *report_object(const struct replay *replay)
{
    const struct weir_replay_log *log = &replay->log;
    const struct weir_replay_result *a = &replay->a, *b = &replay->b;
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:f, s:f, s:o}", "lines",
                  (json_int_t)log->lines, "requests", (json_int_t)log->count,
                  "clipped", (json_int_t)log->clipped, "malformed",
                  (json_int_t)log->bad, "malformed_first", bad_list(log),
                  "clients", (json_int_t)log->clients.count, "names",
                  (json_int_t)log->keys.count, "begin", (double)a->begin / 1e9,
                  "end", (double)a->end / 1e9, "result", set_object(replay, a));
    if (replay->compare) {
        json_t *compared = set_object(replay, b);
        json_object_set_new(
            compared, "only_here",
            json_integer((json_int_t)count_only(b, a, log->count)));
        json_object_set_new(
            compared, "only_there",
            json_integer((json_int_t)count_only(a, b, log->count)));
        json_object_set_new(object, "compared", compared);
    }
    if (replay->suggested) {
        json_object_set_new(object, "suggested", suggested_list(replay));
        json_object_set_new(
            object, "suggested_together",
            json_integer((json_int_t)replay->together.all.refused));
    }
    return object;
}

/* ---- The page ---- */

static const char page_head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n"
    "<title>weir replay</title>\n<style>\n"
    "body{font:15px/1.4 sans-serif;max-width:60em;margin:2em auto;"
    "padding:0 1em;color:#222}\n"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}\n"
    "td,th{padding:.15em .8em;text-align:right;border-bottom:1px solid #ddd}\n"
    "td:first-child,th:first-child{text-align:left}\n"
    "svg{background:#fafafa;border:1px solid #ddd;display:block}\n"
    ".offered{fill:#b8c4d0}.limited{fill:#c0392b}\n"
    "h3{margin:1.2em 0 .2em;font-size:1em}\n</style>\n"
    "<h1>weir replay</h1>\n";

static void write_page_text(FILE *page, struct weir_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];
        if (c == '<')
            fputs("&lt;", page);
        else if (c == '>')
            fputs("&gt;", page);
        else if (c == '&')
            fputs("&amp;", page);
        else if (c == '"')
            fputs("&quot;", page);
        else
            fputc(c, page);
    }
}

static void put_bars(FILE *page, const uint64_t bins[WEIR_REPLAY_BINS],
                     uint64_t most, const char *kind)
{
    for (size_t i = 0; i < WEIR_REPLAY_BINS; i++) {
        double high = (double)bins[i] * (HEIGHT - 4) / (double)most;
        if (bins[i] > 0)
            fprintf(page,
                    "<rect class=\"%s\" x=\"%zu\" y=\"%.1f\" width=\"%d\" "
                    "height=\"%.1f\"/>\n",
                    kind, i * WIDTH / WEIR_REPLAY_BINS, HEIGHT - high,
                    WIDTH / WEIR_REPLAY_BINS, high);
    }
}

static void put_figure(FILE *page, const struct weir_replay_count *count)
{
    uint64_t most = 1;
    for (size_t i = 0; i < WEIR_REPLAY_BINS; i++)
        most = count->asked_in[i] > most ? count->asked_in[i] : most;
    fprintf(page, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_bars(page, count->asked_in, most, "offered");
    put_bars(page, count->refused_in, most, "limited");
    fputs("</svg>\n", page);
}

static void put_quota(FILE *page, const struct weir_quota *quota,
                      const struct weir_replay_count *count)
{
    char limit[LIMIT_MAX];
    fputs("<h3>", page);
    write_page_text(page, quota->name);
    fprintf(page, " — %s: %" PRIu64 " of %" PRIu64 " limited</h3>\n",
            format_limit(&quota->limit, limit), count->refused, count->asked);
    put_figure(page, count);
}

static void put_clients(FILE *page, const struct replay *replay,
                        const struct weir_replay_result *result)
{
    fputs("<table><tr><th>client<th>offered<th>limited</tr>\n", page);
    for (uint32_t i = 0; i < result->client_count && i < replay->top; i++) {
        const struct weir_replay_client *client = &result->clients[i];
        if (client->refused == 0)
            break;
        fputs("<tr><td>", page);
        write_page_text(page, replay->log.clients.items[client->client]);
        fprintf(page, "<td>%" PRIu32 "<td>%" PRIu32 "</tr>\n", client->asked,
                client->refused);
    }
    fputs("</table>\n", page);
}

static void put_set(FILE *page, const struct replay *replay,
                    const struct weir_replay_result *result)
{
    fputs("<h2>", page);
    write_page_text(page, weir_text_of(result->set->path));
    fprintf(page,
            "</h2>\n<p>%" PRIu64 " of %" PRIu64
            " requests would have been limited. Grey: offered; red: "
            "limited.</p>\n",
            result->all.refused, result->all.asked);
    put_figure(page, &result->all);
    for (size_t i = 0; i < result->set->count; i++)
        put_quota(page, &result->set->quotas[i], &result->quotas[i]);
    put_clients(page, replay, result);
}

static void put_suggested(FILE *page, const struct replay *replay)
{
    const struct weir_replay_set *set = replay->a.set;
    fprintf(page,
            "<h2>Suggested</h2>\n<p>The smallest limits under which "
            "each quota alone would have limited at most %.6g %%; all "
            "together %" PRIu64 " requests.</p>\n<table><tr><th>quota"
            "<th>limit<th>would limit</tr>\n",
            100 * replay->share, replay->together.all.refused);
    for (size_t i = 0; i < set->count; i++) {
        const struct weir_replay_suggestion *it = &replay->suggested[i];
        char limit[LIMIT_MAX];
        fputs("<tr><td>", page);
        write_page_text(page, set->quotas[i].name);
        fprintf(page, "<td>%s<td>%" PRIu64 "</tr>\n",
                it->none ? "-" : format_limit(&it->limit, limit), it->refused);
    }
    fputs("</table>\n", page);
}

/* 0, or an exit status after printing the error. */
static int write_page(const struct replay *replay, const char *path)
{
    FILE *page = fopen(path, "we");
    if (!page)
        return weir_cli_fail("--html %s: %s", path, strerror(errno));
    char from[32], to[32];
    fputs(page_head, page);
    fprintf(page, "<p>%zu requests of %" PRIu32 " clients, %s to %s UTC.</p>\n",
            replay->log.count, replay->log.clients.count,
            show_instant(replay->a.begin, from),
            show_instant(replay->a.end, to));
    put_set(page, replay, &replay->a);
    if (replay->compare)
        put_set(page, replay, &replay->b);
    if (replay->suggested)
        put_suggested(page, replay);
    fputs("</html>\n", page);
    bool whole = !ferror(page);
    if (fclose(page) == 0 && whole)
        return 0;
    return weir_cli_fail("--html %s: %s", path, strerror(errno));
}

/* ---- Options ---- */

static int read_share(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    bool percent = *end == '%' && end[1] == '\0';
    value = percent ? value / 100 : value;
    if (end == text || (*end && !percent) || !(value >= 0 && value < 1))
        return weir_cli_fail(
            "--suggest %s: write a share such as 0.1%% (of 100%%)", text);
    *out = value;
    return 0;
}

static int read_number_option(const char *option, const char *text,
                              uint64_t *out)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end)
        return weir_cli_fail("%s %s: write a whole number", option, text);
    *out = value;
    return 0;
}

/* The formats that --format names. */
static const struct {
    const char *word;
    enum weir_replay_format format;
} formats[] = {
    { "json", WEIR_REPLAY_JSON },
    { "combined", WEIR_REPLAY_COMBINED },
    { "common", WEIR_REPLAY_COMBINED },
    { "vhost", WEIR_REPLAY_VHOST },
};

static int read_format(const char *word, enum weir_replay_format *out)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(formats); i++) {
        if (strcmp(word, formats[i].word) != 0)
            continue;
        *out = formats[i].format;
        return 0;
    }
    return weir_cli_fail("--format %s: write combined, common, vhost or json",
                         word);
}

static int check_replay_options(struct replay *replay)
{
    if (!replay->quotas)
        return weir_cli_fail("which quotas? For example: weir quota export > "
                             "q.yaml; weir replay --quotas q.yaml access.log");
    replay->log.by_bytes = strcmp(replay->weight, "bytes") == 0;
    if (!replay->log.by_bytes && strcmp(replay->weight, "requests") != 0)
        return weir_cli_fail("--weight %s: write requests or bytes",
                             replay->weight);
    int status = 0;
    if (replay->format)
        status = read_format(replay->format, &replay->log.format);
    if (status == 0)
        status = weir_replay_key_parse(replay->key, &replay->log.key);
    if (status == 0 && replay->suggest)
        status = read_share(replay->suggest, &replay->share);
    if (status == 0)
        status = read_number_option("--top", replay->top_text, &replay->top);
    if (status == 0)
        status = read_number_option("--seed", replay->seed_text, &replay->seed);
    return status;
}

/* ---- Doing it ---- */

/* Replays with all suggested limits at once. */
static void run_together(struct replay *replay)
{
    struct weir_replay_set all = replay->set;
    all.quotas = weir_must_zeroed(all.count, sizeof *all.quotas);
    for (size_t i = 0; i < all.count; i++) {
        all.quotas[i] = replay->set.quotas[i];
        if (!replay->suggested[i].none)
            all.quotas[i].limit = replay->suggested[i].limit;
    }
    weir_replay_run(&replay->log, &all, replay->seed, &replay->together);
    /* 'all' ends here; the names and places of the quotas are the same. */
    replay->together.set = &replay->set;
    free(all.quotas);
}

static void run_replay(struct replay *replay)
{
    weir_replay_run(&replay->log, &replay->set, replay->seed, &replay->a);
    if (replay->compare)
        weir_replay_run(&replay->log, &replay->other, replay->seed, &replay->b);
    if (!replay->suggest)
        return;
    weir_replay_suggest(&replay->log, &replay->set, replay->share, replay->seed,
                        &replay->suggested);
    run_together(replay);
}

static int read_all_logs(struct replay *replay, int argc, char **argv)
{
    /* The small files first: an error in them is known at once. */
    int status = weir_replay_set_read(&replay->set, replay->quotas);
    if (status == 0 && replay->compare)
        status = weir_replay_set_read(&replay->other, replay->compare);
    for (int i = 0; i < argc && status == 0; i++)
        status = weir_replay_read(&replay->log, argv[i]);
    return status ? status : weir_replay_sort(&replay->log);
}

static void replay_fini(struct replay *replay)
{
    weir_replay_log_fini(&replay->log);
    weir_replay_set_fini(&replay->set);
    weir_replay_set_fini(&replay->other);
    weir_replay_result_fini(&replay->a);
    weir_replay_result_fini(&replay->b);
    weir_replay_result_fini(&replay->together);
    free(replay->suggested);
}

int weir_cli_replay(int argc, char **argv)
{
    struct replay replay = { .key = "{client}",
                             .weight = "requests",
                             .top_text = "10",
                             .seed_text = "1" };
    const struct weir_cli_option known[] = {
        { .name = "quotas", .value = &replay.quotas },
        { .name = "key", .letter = 'k', .value = &replay.key },
        { .name = "weight", .value = &replay.weight },
        { .name = "format", .value = &replay.format },
        { .name = "compare", .value = &replay.compare },
        { .name = "suggest", .value = &replay.suggest },
        { .name = "top", .value = &replay.top_text },
        { .name = "seed", .value = &replay.seed_text },
        { .name = "html", .value = &replay.html },
        { .name = "json", .flag = &replay.json },
    };
    int at = weir_cli_parse(NULL, replay_help, known, WEIR_COUNT_OF(known),
                            argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc)
        return weir_cli_fail("which log? Name files, or - for standard input");
    int status = check_replay_options(&replay);
    status = status ? status : read_all_logs(&replay, argc - at, argv + at);
    if (status == 0) {
        run_replay(&replay);
        if (replay.json)
            weir_cli_print_json(report_object(&replay));
        else
            print_report(&replay);
        status = replay.html ? write_page(&replay, replay.html) : 0;
    }
    replay_fini(&replay);
    return status;
}
