/* SPDX-License-Identifier: MIT
 * server/admin/admin_debug.c - Doorman's pages for people: /debug/status and
 * /debug/resources, with the contents of the original's pages.
 *
 * Every text from outside is escaped. A table has a bound; below it, a line
 * says how many rows are left out. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "front/text_stream.h"
#include "io/clock.h"
#include "server/admin/admin_internal.h"

#define HTML_TYPE "text/html; charset=utf-8"
#define ROWS_MAX 1000

static void print_escaped(FILE *out, struct weir_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];
        const char *name = c == '<'    ? "&lt;"
                           : c == '>'  ? "&gt;"
                           : c == '&'  ? "&amp;"
                           : c == '"'  ? "&quot;"
                           : c == '\'' ? "&#39;"
                                       : NULL;
        if (name)
            fputs(name, out);
        else
            fputc(c, out);
    }
}

/* Percent-encodes a text for a query. */
static void print_percent(FILE *out, struct weir_text text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrst"
                                "uvwxyz0123456789-._~";
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c && strchr(plain, c))
            fputc(c, out);
        else
            fprintf(out, "%%%02X", c);
    }
}

static void print_html_time(FILE *out, weir_instant at)
{
    char shown[64] = "";
    time_t s = (time_t)((at + weir_clock_wall_offset()) / WEIR_SECOND);
    struct tm utc;
    if (gmtime_r(&s, &utc))
        strftime(shown, sizeof shown, "%Y-%m-%d %H:%M:%S UTC", &utc);
    fputs(shown, out);
}

static void print_begin(FILE *out, const char *title)
{
    fprintf(out,
            "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\">"
            "<title>%s</title>\n<style>td, th { padding: 0 1em; "
            "text-align: left }</style></head><body>\n<h1>%s</h1>\n",
            title, title);
}

static const char *const share_names[] = {
    [WEIR_SHARE_NONE] = "NO_ALGORITHM",
    [WEIR_SHARE_STATIC] = "STATIC",
    [WEIR_SHARE_PROPORTIONAL] = "PROPORTIONAL_SHARE",
    [WEIR_SHARE_FAIR] = "FAIR_SHARE",
    [WEIR_SHARE_PRIORITY] = "PRIORITY",
};

/* ---- Resources ---- */

static void print_resource(FILE *out, const struct weir_leased_stats *s)
{
    weir_assert(s->rule.share < WEIR_COUNT_OF(share_names));
    fputs("<tr><td><a href=\"/debug/resources?resource=", out);
    print_percent(out, s->quota);
    fputs("\">", out);
    print_escaped(out, s->quota);
    fprintf(out,
            "</a></td><td>%.17g</td><td>%.17g</td><td>%.17g</td>"
            "<td>%llu</td><td>%s</td><td>%s</td></tr>\n",
            s->pool.capacity, s->pool.granted, s->pool.wants,
            (unsigned long long)s->pool.clients,
            s->pool.learning ? "true" : "false", share_names[s->rule.share]);
}

static void print_left_out(FILE *out, size_t count)
{
    if (count > 0)
        fprintf(out, "<p>%zu more aren't shown.</p>\n", count);
}

static void print_resources(FILE *out, const struct weir_admin_call *call)
{
    const struct weir_lease_manager *manager =
        weir_root_lease_manager(call->admin->root);
    struct weir_leased_stats s;
    uint32_t cursor = 0;
    size_t count = 0;
    fputs("<h2>Resources</h2>\n<table><tr><th>ID</th><th>Capacity</th>"
          "<th>SumHas</th><th>SumWants</th><th>Clients</th><th>Learning</th>"
          "<th>Algorithm</th></tr>\n",
          out);
    while (weir_lease_manager_look(manager, &cursor, &s, call->now))
        if (count++ < ROWS_MAX)
            print_resource(out, &s);
    fputs("</table>\n", out);
    print_left_out(out, count > ROWS_MAX ? count - ROWS_MAX : 0);
}

static void print_leases(FILE *out, const struct weir_admin_call *call,
                         const struct weir_leased_stats *s)
{
    struct weir_root *root = call->admin->root;
    const struct weir_lease_manager *manager = weir_root_lease_manager(root);
    struct weir_lease_holder_stats holder;
    struct weir_text client;
    uint32_t cursor = 0;
    size_t count = 0;
    fputs("<h2>Leases</h2>\n<table><tr><th>Client ID</th><th>Lease expiry"
          "</th><th>Refresh interval</th><th>Has</th><th>Wants</th></tr>\n",
          out);
    while (weir_lease_manager_look_holder(manager, s->quota, &cursor, &client,
                                          &holder, call->now)) {
        if (count++ >= ROWS_MAX)
            continue;
        fputs("<tr><td>", out);
        print_escaped(out, weir_root_lease_client_name(root, client));
        fputs("</td><td>", out);
        print_html_time(out, call->now + holder.left);
        fprintf(out, "</td><td>%g s</td><td>%.17g</td><td>%.17g</td></tr>\n",
                (double)s->rule.refresh / 1e9, holder.granted, holder.wants);
    }
    fputs("</table>\n", out);
    print_left_out(out, count > ROWS_MAX ? count - ROWS_MAX : 0);
}

static void print_one(FILE *out, const struct weir_admin_call *call,
                      struct weir_text id)
{
    struct weir_leased_stats s;
    fputs("<h2>", out);
    print_escaped(out, id);
    fputs("</h2>\n", out);
    if (!weir_lease_manager_look_of(weir_root_lease_manager(call->admin->root),
                                    id, &s, call->now)) {
        fputs("<p>No client has a lease of it here.</p>\n", out);
        return;
    }
    s.quota = id;
    fprintf(out,
            "<p>Capacity %.17g, SumHas %.17g, SumWants %.17g, at most "
            "%.17g in use</p>\n",
            s.pool.capacity, s.pool.granted, s.pool.wants, s.pool.out);
    print_leases(out, call, &s);
}

/* ---- Status ---- */

static void print_mastership(FILE *out, const struct weir_root *root)
{
    if (weir_root_leases(root)) {
        fprintf(out, "<p>This <b>is</b> the master, of term %llu.</p>\n",
                (unsigned long long)weir_root_lease_term(root));
        return;
    }
    struct weir_text master = weir_root_lease_master(root);
    fputs("<p>This is <b>not</b> the master. The current master is <b>", out);
    print_escaped(out, master.len > 0 ? master : WEIR_TEXT("not known"));
    fputs("</b>.</p>\n", out);
}

static void print_template(FILE *out, const struct weir_doorman_template *entry)
{
    static const char *const kinds[] = { "NO_ALGORITHM", "STATIC",
                                         "PROPORTIONAL_SHARE", "FAIR_SHARE" };
    fputs("resources: {\n  identifier_glob: \"", out);
    print_escaped(out, entry->glob);
    fprintf(out, "\"\n  capacity: %.17g\n", entry->capacity);
    if (entry->safe_given)
        fprintf(out, "  safe_capacity: %.17g\n", entry->safe_capacity);
    fprintf(out,
            "  algorithm: {\n    kind: %s\n    lease_length: %llu\n"
            "    refresh_interval: %llu\n",
            kinds[entry->kind],
            (unsigned long long)(entry->lease / WEIR_SECOND),
            (unsigned long long)(entry->refresh / WEIR_SECOND));
    if (entry->learning_given)
        fprintf(out, "    learning_mode_duration: %llu\n",
                (unsigned long long)(entry->learning / WEIR_SECOND));
    fputs("  }\n}\n", out);
}

static void print_file(FILE *out, const struct weir_doorman_source *source)
{
    struct weir_doorman_source_state state;
    weir_doorman_source_state(source, &state);
    fputs("<h2>Configuration</h2>\n<p>", out);
    print_escaped(out, weir_text_of(state.text));
    fprintf(out, ", loaded %llu times, refused %llu times.</p>\n",
            (unsigned long long)state.loads,
            (unsigned long long)state.failures);
    if (state.problem[0]) {
        fputs("<p><b>Not in force: ", out);
        print_escaped(out, weir_text_of(state.problem));
        fputs("</b></p>\n", out);
    }
    if (!state.config)
        return;
    size_t count;
    const struct weir_doorman_template *entries =
        weir_doorman_config_templates(state.config, &count);
    fputs("<pre>\n", out);
    for (size_t i = 0; i < count && i < ROWS_MAX; i++)
        print_template(out, &entries[i]);
    fputs("</pre>\n", out);
    print_left_out(out, count > ROWS_MAX ? count - ROWS_MAX : 0);
}

static void print_status(FILE *out, const struct weir_admin_call *call)
{
    const struct weir_admin *admin = call->admin;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    fputs("<p>Started: ", out);
    print_html_time(out, admin->started);
    fputs("<br>Running on: ", out);
    print_escaped(out, weir_text_of(host));
    fputs("<br>Root: ", out);
    print_escaped(out, weir_text_of(admin->name));
    fprintf(out, "<br>Weir %s</p>\n<h2>Mastership</h2>\n", admin->version);
    print_mastership(out, admin->root);
    print_resources(out, call);
    if (admin->parts.doorman)
        print_file(out, admin->parts.doorman);
}

/* ---- Answers ---- */

static void answer_html(struct weir_admin_call *call,
                        struct weir_text_stream *stream, FILE *out)
{
    size_t len;
    fputs("</body></html>\n", out);
    char *text = weir_text_close(stream, out, &len);
    if (text)
        weir_admin_answer_text(&call->asker, 200, HTML_TYPE, text, len);
    else
        weir_admin_answer_error(&call->asker, WEIR_ENOMEM, NULL);
    free(text);
}

void weir_admin_debug_status(struct weir_admin_call *call)
{
    struct weir_text_stream stream = { 0 };
    FILE *out = weir_text_open(&stream);
    if (!out) {
        weir_admin_answer_error(&call->asker, WEIR_ENOMEM, NULL);
        return;
    }
    print_begin(out, "Status");
    print_status(out, call);
    answer_html(call, &stream, out);
}

void weir_admin_debug_resources(struct weir_admin_call *call)
{
    char buf[WEIR_NAME_MAX];
    struct weir_text id;
    struct weir_diag diag = { 0 };
    int error = weir_query_name(call->uri.query, "resource", buf, &id, &diag);
    struct weir_text_stream stream = { 0 };
    FILE *out = error == 0 ? weir_text_open(&stream) : NULL;
    if (!out) {
        weir_admin_answer_error(&call->asker, error < 0 ? error : WEIR_ENOMEM,
                                &diag);
        return;
    }
    print_begin(out, "Resources");
    print_resources(out, call);
    if (id.len > 0)
        print_one(out, call, id);
    answer_html(call, &stream, out);
}
