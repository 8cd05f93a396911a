/* SPDX-License-Identifier: MIT
 * cli/replay_page.c - the results of a replay as one page: no script, no
 * external parts, figures as SVG in the text. */

#include "cli/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define WIDTH 720
#define HEIGHT 90

static const char head[] =
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

static void write_page_text(FILE *page, const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        switch (p[i]) {
        case '<':
            fputs("&lt;", page);
            break;
        case '>':
            fputs("&gt;", page);
            break;
        case '&':
            fputs("&amp;", page);
            break;
        case '"':
            fputs("&quot;", page);
            break;
        default:
            fputc(p[i], page);
        }
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
    char limit[64];
    limit[weir_limit_format(&quota->limit, limit, sizeof limit - 1)] = '\0';
    fputs("<h3>", page);
    write_page_text(page, quota->name.p, quota->name.len);
    fprintf(page, " — %s: %" PRIu64 " of %" PRIu64 " limited</h3>\n", limit,
            count->refused, count->asked);
    put_figure(page, count);
}

static void put_clients(FILE *page, const struct weir_replay_report *report,
                        const struct weir_replay_result *result)
{
    fputs("<table><tr><th>client<th>offered<th>limited</tr>\n", page);
    for (uint32_t i = 0; i < result->client_count && i < report->top; i++) {
        const struct weir_replay_client *client = &result->clients[i];
        struct weir_text name = report->log->clients.items[client->client];
        if (client->refused == 0)
            break;
        fputs("<tr><td>", page);
        write_page_text(page, name.p, name.len);
        fprintf(page, "<td>%" PRIu32 "<td>%" PRIu32 "</tr>\n", client->asked,
                client->refused);
    }
    fputs("</table>\n", page);
}

static void put_set(FILE *page, const struct weir_replay_report *report,
                    const struct weir_replay_result *result)
{
    fputs("<h2>", page);
    write_page_text(page, result->set->path, strlen(result->set->path));
    fprintf(page,
            "</h2>\n<p>%" PRIu64 " of %" PRIu64
            " requests would have been limited. Grey: offered; red: "
            "limited.</p>\n",
            result->all.refused, result->all.asked);
    put_figure(page, &result->all);
    for (size_t i = 0; i < result->set->count; i++)
        put_quota(page, &result->set->quotas[i], &result->quotas[i]);
    put_clients(page, report, result);
}

static void put_suggested(FILE *page, const struct weir_replay_report *report)
{
    const struct weir_replay_set *set = report->a->set;
    fprintf(page,
            "<h2>Suggested</h2>\n<p>The smallest limits under which "
            "each quota alone would have limited at most %.6g %%; all "
            "together %" PRIu64 " requests.</p>\n<table><tr><th>quota"
            "<th>limit<th>would limit</tr>\n",
            100 * report->share, report->together->all.refused);
    for (size_t i = 0; i < set->count; i++) {
        const struct weir_replay_suggestion *it = &report->suggested[i];
        char limit[64] = "-";
        if (!it->none)
            limit[weir_limit_format(&it->limit, limit, sizeof limit - 1)] =
                '\0';
        fputs("<tr><td>", page);
        write_page_text(page, set->quotas[i].name.p, set->quotas[i].name.len);
        fprintf(page, "<td>%s<td>%" PRIu64 "</tr>\n", limit, it->refused);
    }
    fputs("</table>\n", page);
}

int weir_replay_page(const struct weir_replay_report *report, const char *path)
{
    FILE *page = fopen(path, "we");
    if (!page)
        return weir_cli_fail("--html %s: %s", path, strerror(errno));
    char from[32], to[32];
    fputs(head, page);
    fprintf(page, "<p>%zu requests of %" PRIu32 " clients, %s to %s UTC.</p>\n",
            report->log->count, report->log->clients.count,
            weir_replay_time(report->a->begin, from),
            weir_replay_time(report->a->end, to));
    put_set(page, report, report->a);
    if (report->b)
        put_set(page, report, report->b);
    if (report->suggested)
        put_suggested(page, report);
    fputs("</html>\n", page);
    bool whole = !ferror(page);
    if (fclose(page) == 0 && whole)
        return 0;
    return weir_cli_fail("--html %s: %s", path, strerror(errno));
}
