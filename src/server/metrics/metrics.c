/* SPDX-License-Identifier: MIT
 * server/metrics/metrics.c - metrics of the root, and of some quotas.
 *
 * A site has as many names of instances as clients, and a metrics store keeps
 * each label for weeks: so only the quotas that limited most are printed one by
 * one. The rest is in the totals.
 *
 * Leases have metrics under Weir's names and under Doorman's, so that graphs of
 * Doorman go on. */

#include "server/metrics/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/node/root_adaptive.h"
#include "front/authorization.h"
#include "front/text_stream.h"
#include "server/doorman/doorman_api.h"
#include "server/doorman/doorman_source.h"
#include "server/root_usages.h"

/* ---- The text format ---- */

/* A metric without labels. */
struct figure {
    const char *name; /* as of print_metric_head() */
    const char *help;
    double value;
};

static void print_typed_head(FILE *out, const char *name, const char *type,
                             const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The name of a counter, and of nothing else, ends in "_total"; all others are
 * gauges. (Doorman's names differ.) */
static void print_metric_head(FILE *out, const char *name, const char *help)
{
    static const char total[] = "_total";
    size_t len = strlen(name);
    size_t skip = len < sizeof total - 1 ? 0 : len - (sizeof total - 1);
    bool is_counter = strcmp(name + skip, total) == 0;
    print_typed_head(out, name, is_counter ? "counter" : "gauge", help);
}

static void print_label(FILE *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '\\' || c == '"')
            fputc('\\', out);
        if (c == '\n')
            fputs("\\n", out);
        else
            fputc(c, out);
    }
}

static void print_figures(FILE *out, const struct figure *figures, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        print_metric_head(out, figures[i].name, figures[i].help);
        fprintf(out, "%s %.17g\n", figures[i].name, figures[i].value);
    }
}

/* ---- The root and its quotas ---- */

static void print_root_metrics(FILE *out, const struct weir_metrics_source *of)
{
    struct weir_root_stats s;
    weir_root_stats(of->root, &s);
    const struct figure figures[] = {
        { "weir_root_ready", "Whether the quotas have been read.",
          weir_root_ready(of->root) },
        { "weir_store_up", "Whether the quota store can be used.",
          of->store_up },
        { "weir_store_bad_rows", "Rows of the quota store that can't be read.",
          (double)of->bad_rows },
        { "weir_epoch", "The newest epoch of the quotas.", (double)s.epoch },
        { "weir_edits_waiting", "Edits not answered yet.",
          (double)of->edits_waiting },
        { "weir_quotas",
          "Quotas and templates, those of the shadow set included.",
          (double)s.quotas },
        { "weir_quotas_used", "Quotas and instances in use by some limiter.",
          (double)s.quotas_used },
        { "weir_limiters_connected", "Limiters connected.",
          s.limiters_connected },
        { "weir_limiters_known", "Limiters connected or not forgotten yet.",
          s.limiters_known },
        { "weir_reports_total", "Reports taken from limiters.",
          (double)s.reports },
        { "weir_reports_repeated_total",
          "Reports that came again and were not counted again.",
          (double)s.reports_repeated },
        { "weir_counts_total", "Counts merged.", (double)s.counts },
        { "weir_fills_total", "Fills sent to limiters.", (double)s.fills },
        { "weir_pushes_total", "Messages of fills sent without a report.",
          (double)s.pushes },
        { "weir_protocol_errors_total",
          "Links dropped because the peer broke the protocol.",
          (double)s.protocol_errors },
        { "weir_root_utilization_ratio",
          "Share of the CPU time open to the root's thread that it used.",
          (double)s.busy_ppm / 1e6 },
        { "weir_root_report_backoff_seconds",
          "An overloaded root asks for this time between reports; 0: it isn't.",
          (double)s.report_backoff / 1e9 },
        { "weir_unknown_requests_total",
          "Requests by names without quota, which passed.", (double)s.unknown },
        { "weir_contended_requests_total",
          "Requests decided without a lock that another thread had.",
          (double)s.contended },
        { "weir_overflowed_requests_total",
          "Requests by names for which a process had no room, decided by an "
          "overflow quota or on_full.",
          (double)s.overflowed },
        { "weir_roots", "Roots on this root's store; 0: not known.", s.roots },
        { "weir_limiters_few_roots",
          "Limiters connected to fewer roots than there are, for a minute.",
          s.limiters_few_roots },
        { "weir_limiters_lacking",
          "Limiters connected that have no room for all quotas.",
          s.limiters_lacking },
        { "weir_beyond_debt_units_total",
          "Units that limiters reported beyond max_debt, which fill nothing.",
          (double)s.beyond_debt },
        { "weir_withheld_changes_total",
          "Changes of quotas not sent to limiters too old to understand them.",
          (double)s.withheld },
    };
    print_figures(out, figures, WEIR_COUNT_OF(figures));
}

static void print_exact(FILE *out, const struct weir_root *root)
{
    struct weir_root_stats s;
    weir_root_stats(root, &s);
    const struct figure figures[] = {
        { "weir_exact_requests_total",
          "Decisions on exact quotas made, or handed to the roots above.",
          (double)s.asks },
        { "weir_exact_requests_refused_total",
          "Requests for a quota that isn't exact or isn't here, or whose "
          "state found the table full.",
          (double)s.asks_refused },
        { "weir_exact_requests_dropped_total",
          "Requests that came again, or while too many were unanswered.",
          (double)s.asks_dropped },
        { "weir_bucket_states", "Bucket states of exact quotas in memory.",
          (double)s.bucket_states },
        { "weir_bucket_state_bytes", "Memory that these states take.",
          (double)s.bucket_state_bytes },
    };
    print_figures(out, figures, WEIR_COUNT_OF(figures));
}

static void print_snapshot_metrics(FILE *out,
                                   const struct weir_snapshot *snapshot)
{
    struct weir_snapshot_state s;
    weir_snapshot_look(snapshot, &s);
    const struct figure figures[] = {
        { "weir_snapshot_serving",
          "Whether the root goes by its snapshot, for want of its store.",
          s.serving },
        { "weir_snapshot_epoch", "The epoch of the snapshot; 0: there is none.",
          s.usable ? (double)s.info.epoch : 0 },
        { "weir_snapshot_written_total", "Snapshots written.",
          (double)s.written },
        { "weir_snapshot_failures_total", "Snapshots that couldn't be written.",
          (double)s.failures },
    };
    print_figures(out, figures, WEIR_COUNT_OF(figures));
}

static void print_upstream(FILE *out, const struct weir_upstream *upstream,
                           weir_instant now)
{
    struct weir_upstream_state s;
    weir_upstream_look(upstream, &s, now);
    const struct figure figures[] = {
        { "weir_upstream_roots", "Roots above this one.", s.count },
        { "weir_upstream_roots_up", "Those that answer.",
          s.region.upstreams_up },
        { "weir_region_stale", "Whether quotas go by their on_stale.",
          s.region.stale },
        { "weir_upstream_reports_total", "Reports sent above.",
          (double)s.region.reports },
        { "weir_region_carried_total",
          "Counts of limiters handed on to be reported above.",
          (double)s.region.carried },
        { "weir_region_table_full_total",
          "Counts that found the table full, and aren't carried yet.",
          (double)s.region.no_room },
    };
    print_figures(out, figures, WEIR_COUNT_OF(figures));
    static const char age[] = "weir_region_age_seconds";
    print_metric_head(out, age,
                      "Time since a message of a topmost root; +Inf: never.");
    if (s.region.age == WEIR_NEVER)
        fprintf(out, "%s +Inf\n", age);
    else
        fprintf(out, "%s %.17g\n", age, (double)s.region.age / 1e9);
}

enum column { PASSED, REFUSED, FILL, LIMIT, COLUMNS };

static double cell_of_quota(const struct weir_busy *busy, enum column column)
{
    double limit = (double)busy->limit.units;
    if (busy->limit.per > 0) /* else units at a time */
        limit = limit * 1e9 / (double)busy->limit.per;
    const double cells[COLUMNS] = {
        [PASSED] = (double)busy->passed,
        [REFUSED] = (double)busy->refused,
        [FILL] = busy->fill,
        [LIMIT] = limit,
    };
    return cells[column];
}

static void print_quota_column(FILE *out, enum column column,
                               const struct weir_busy *busy, size_t count)
{
    static const struct figure heads[] = {
        [PASSED] = { "weir_quota_passed_units_total",
                     "Units passed, of the quotas that limited most." },
        [REFUSED] = { "weir_quota_limited_units_total",
                      "Units limited, of the quotas that limited most." },
        [FILL] = { "weir_quota_fill_units",
                   "Units in the bucket, of the quotas that limited most." },
        [LIMIT] = { "weir_quota_limit_units_per_second",
                    "The limit, of the quotas that limited most." },
    };
    const struct figure *head = &heads[column];
    print_metric_head(out, head->name, head->help);
    for (size_t i = 0; i < count; i++) {
        bool limited = !busy[i].removed && !busy[i].limit.unlimited;
        if (column == LIMIT && !limited)
            continue;
        fprintf(out, "%s{quota=\"", head->name);
        print_label(out, busy[i].name, busy[i].name_len);
        /* Refusals of a shadow quota must not look like real ones. */
        const char *mode = weir_busy_mode(&busy[i]);
        if (mode)
            fprintf(out, "\",mode=\"%s", mode);
        fprintf(out, "\"} %.17g\n", cell_of_quota(&busy[i], column));
    }
}

static void print_adaptive_limits(FILE *out,
                                  const struct weir_adaptive_view *seen,
                                  size_t count)
{
    static const char *const of[] = { "min", "median", "max" };
    static const char limit[] = "weir_adaptive_limit_units";
    print_metric_head(out, limit,
                      "The adaptive limit, over the processes that have one.");
    for (size_t i = 0; i < count; i++) {
        const double limits[] = { seen[i].min, seen[i].median, seen[i].max };
        for (size_t j = 0; j < 3; j++) {
            fprintf(out, "%s{quota=\"", limit);
            print_label(out, seen[i].name, strlen(seen[i].name));
            fprintf(out, "\",of=\"%s\"} %.17g\n", of[j], limits[j]);
        }
    }
    static const char flight[] = "weir_adaptive_in_flight_units";
    print_metric_head(
        out, flight,
        "In flight when the limits were reported, in all processes.");
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%s{quota=\"", flight);
        print_label(out, seen[i].name, strlen(seen[i].name));
        fprintf(out, "\"} %llu\n", (unsigned long long)seen[i].in_flight);
    }
}

static void print_adaptive_reasons(FILE *out,
                                   const struct weir_adaptive_view *seen,
                                   size_t count)
{
    static const char processes[] = "weir_adaptive_processes";
    print_metric_head(out, processes,
                      "Processes, by why their adaptive limit last moved.");
    for (size_t i = 0; i < count; i++) {
        for (unsigned why = 0; why < WEIR_LIMIT_REASONS; why++) {
            fprintf(out, "%s{quota=\"", processes);
            print_label(out, seen[i].name, strlen(seen[i].name));
            fprintf(out, "\",reason=\"%s\"} %u\n",
                    weir_limit_reason_text((enum weir_limit_reason)why),
                    seen[i].by_reason[why]);
        }
    }
}

static int print_adaptive(FILE *out, struct weir_root *root, weir_instant now)
{
    struct weir_adaptive_view *seen =
        malloc(WEIR_METRICS_QUOTAS_MAX * sizeof *seen);
    if (!seen)
        return WEIR_ENOMEM;
    size_t count = weir_adaptive_see(root, (struct weir_text){ NULL, 0 }, seen,
                                     WEIR_METRICS_QUOTAS_MAX, now);
    print_adaptive_limits(out, seen, count);
    print_adaptive_reasons(out, seen, count);
    free(seen);
    return 0;
}

/* ---- Limits of whole fleets ---- */

enum fleet_column {
    FLEET_LIMIT,
    FLEET_IN_FLIGHT,
    FLEET_LATENCY,
    FLEET_TARGET,
    FLEET_MEMBERS,
    FLEET_OUTLIERS,
    FLEET_EXCUSED,
    FLEET_COLUMNS
};

static double fleet_value(const struct weir_fleet_limit_view *view,
                          enum fleet_column column)
{
    const double values[FLEET_COLUMNS] = {
        [FLEET_LIMIT] = view->controller.limit,
        [FLEET_IN_FLIGHT] = view->in_flight,
        [FLEET_LATENCY] = (double)view->controller.latency / 1e9,
        [FLEET_TARGET] = (double)view->target / 1e9,
        [FLEET_MEMBERS] = view->members,
        [FLEET_OUTLIERS] = view->outliers,
        [FLEET_EXCUSED] = (double)view->excused,
    };
    weir_assert(column < FLEET_COLUMNS);
    return values[column];
}

/* The first ones of the walk: all of them are in the status. */
static void print_fleet_column(FILE *out, const struct weir_root *root,
                               enum fleet_column column, weir_instant now)
{
    static const struct figure heads[FLEET_COLUMNS] = {
        [FLEET_LIMIT] = { "weir_fleet_limit_units",
                          "The adaptive limit of the whole fleet." },
        [FLEET_IN_FLIGHT] = { "weir_fleet_in_flight_units",
                              "Units in flight under it." },
        [FLEET_LATENCY] = { "weir_fleet_latency_seconds",
                            "The percentile of the latencies in its last "
                            "window." },
        [FLEET_TARGET] = { "weir_fleet_target_seconds",
                           "What it keeps that percentile below." },
        [FLEET_MEMBERS] = { "weir_fleet_members",
                            "Processes, or regions, that report to it." },
        [FLEET_OUTLIERS] = { "weir_fleet_outliers",
                             "Of them, those left out: their own path is "
                             "slow." },
        [FLEET_EXCUSED] = { "weir_fleet_excused_windows_total",
                            "Windows not judged, since only outliers were "
                            "slow." },
    };
    struct weir_fleet_limit_view view;
    struct weir_text name;
    size_t cursor = 0, count = 0;
    print_metric_head(out, heads[column].name, heads[column].help);
    while (count++ < WEIR_METRICS_QUOTAS_MAX &&
           weir_root_adaptive_next(root, &cursor, &name)) {
        if (!weir_root_adaptive_view(root, name, &view, now))
            continue;
        double value = fleet_value(&view, column);
        /* No window yet; a quota without a target. */
        if (value == 0 && (column == FLEET_LATENCY || column == FLEET_TARGET))
            continue;
        fprintf(out, "%s{quota=\"", heads[column].name);
        print_label(out, name.p, name.len);
        fprintf(out, "\"} %.17g\n", value);
    }
}

static void print_fleets(FILE *out, const struct weir_root *root,
                         weir_instant now)
{
    for (enum fleet_column column = FLEET_LIMIT; column < FLEET_COLUMNS;
         column++)
        print_fleet_column(out, root, column, now);
}

/* ---- Quotas that limited most ---- */

/* The limiters that the root remembers: the last ones. */
static void print_debtors(FILE *out, const struct weir_root *root,
                          weir_instant now)
{
    static const char units[] = "weir_quota_beyond_debt_units_total";
    print_metric_head(out, units,
                      "Units that the limiter reported beyond max_debt.");
    struct weir_debtor debtor;
    size_t cursor = 0;
    while (weir_root_debtor(root, &cursor, &debtor, now)) {
        fprintf(out, "%s{quota=\"", units);
        print_label(out, debtor.quota.p, debtor.quota.len);
        fputs("\",limiter=\"", out);
        print_label(out, debtor.limiter.p, debtor.limiter.len);
        fputs("\",incarnation=\"", out);
        for (size_t i = 0; i < WEIR_INCARNATION_SIZE; i++)
            fprintf(out, "%02x", debtor.incarnation[i]);
        fprintf(out, "\"} %llu\n", (unsigned long long)debtor.units);
    }
}

static int print_limited_quotas(FILE *out, struct weir_root *root,
                                weir_instant now)
{
    struct weir_busy *busy = malloc(WEIR_METRICS_QUOTAS_MAX * sizeof *busy);
    if (!busy)
        return WEIR_ENOMEM;
    size_t used;
    const struct weir_busy_query query = { .rank = WEIR_RANK_REFUSED,
                                           .max = WEIR_METRICS_QUOTAS_MAX };
    const struct weir_usages usages = weir_usages_of_root(root);
    size_t count = weir_top_k(&usages, &query, busy, &used, now);
    for (enum column column = PASSED; column < COLUMNS; column++)
        print_quota_column(out, column, busy, count);
    print_debtors(out, root, now);
    free(busy);
    return 0;
}

static void print_authorizer(FILE *out,
                             const struct weir_authorization *authorizer)
{
    static const char refused[] = "weir_refused_credentials_total";
    print_metric_head(out, refused,
                      "Handshakes, calls and requests that were refused for "
                      "TLS, credential or role; and names of quotas that a "
                      "credential may not take from.");
    for (int api = 0; api < WEIR_APIS; api++)
        for (int why = 0; why < WEIR_REFUSALS; why++)
            fprintf(out, "%s{listener=\"%s\",reason=\"%s\"} %llu\n", refused,
                    weir_api_name((enum weir_api)api),
                    weir_refusal_name((enum weir_refusal)why),
                    (unsigned long long)authorizer->refused[api][why]);
    if (!authorizer->tls)
        return;
    static const char expires[] = "weir_certificate_expires_seconds";
    print_metric_head(out, expires,
                      "Seconds until the certificate that this root shows "
                      "ends.");
    fprintf(out, "%s %lld\n", expires,
            (long long)weir_tls_expires_in(authorizer->tls));
}

/* ---- Leases ---- */

static void print_own(FILE *out, const struct weir_metrics_source *of)
{
    struct weir_root_stats s;
    weir_root_stats(of->root, &s);
    const struct figure figures[] = {
        { "weir_lease_master", "Whether this root hands out the leases.",
          weir_root_leases(of->root) },
        { "weir_lease_term", "The highest term known.",
          (double)weir_root_lease_term(of->root) },
        { "weir_leased_quotas", "Leased quotas in use, at the master.",
          (double)s.leased },
        { "weir_lease_holders",
          "Lease holders that have, or want, some of them.",
          (double)s.lease_holders },
        { "weir_lease_grants_total", "Grants that answered a request.",
          (double)s.lease_grants },
        { "weir_lease_pushes_total", "Grants sent without a request.",
          (double)s.lease_pushes },
        { "weir_lease_refused_total",
          "Requests for a quota that isn't leased or isn't here, or without "
          "room.",
          (double)s.lease_refused },
        { "weir_lease_dropped_total", "Requests that came late or twice.",
          (double)s.lease_dropped },
    };
    print_figures(out, figures, WEIR_COUNT_OF(figures));
}

static void print_source(FILE *out, const struct weir_doorman_source *source)
{
    struct weir_doorman_source_state s;
    weir_doorman_source_state(source, &s);
    const struct figure figures[] = {
        { "weir_doorman_loads_total",
          "Times that the Doorman file was read, and is in force.",
          (double)s.loads },
        { "weir_doorman_load_failures_total",
          "Times that it wasn't sound, or couldn't be read.",
          (double)s.failures },
    };
    print_figures(out, figures, WEIR_COUNT_OF(figures));
}

/* ---- Doorman's names ---- */

static void print_histogram(FILE *out, const char *name, const char *method,
                            const struct weir_doorman_method_stats *s)
{
    uint64_t below = 0;
    for (size_t i = 0; i < WEIR_DOORMAN_BUCKETS; i++) {
        below += s->buckets[i];
        fprintf(out, "%s_bucket{method=\"%s\",le=\"%g\"} %" PRIu64 "\n", name,
                method, weir_doorman_buckets_s[i], below);
    }
    fprintf(out,
            "%s_bucket{method=\"%s\",le=\"+Inf\"} %" PRIu64 "\n"
            "%s_sum{method=\"%s\"} %.9g\n%s_count{method=\"%s\"} %" PRIu64 "\n",
            name, method, s->requests, name, method, s->total_s, name, method,
            s->requests);
}

static void print_methods(FILE *out, const struct weir_doorman_api_stats *s)
{
    static const char requests[] = "doorman_server_requests";
    static const char errors[] = "doorman_server_request_errors";
    static const char took[] = "doorman_server_request_durations";
    print_typed_head(out, requests, "counter", "Calls of doorman.Capacity.");
    for (int i = 0; i < WEIR_DOORMAN_METHODS; i++)
        fprintf(out, "%s{method=\"%s\"} %" PRIu64 "\n", requests,
                weir_doorman_method_name((enum weir_doorman_method)i),
                s->methods[i].requests);
    print_typed_head(out, errors, "counter", "Calls that were refused.");
    for (int i = 0; i < WEIR_DOORMAN_METHODS; i++)
        fprintf(out, "%s{method=\"%s\"} %" PRIu64 "\n", errors,
                weir_doorman_method_name((enum weir_doorman_method)i),
                s->methods[i].errors);
    print_typed_head(out, took, "histogram",
                     "Durations of the calls, seconds.");
    for (int i = 0; i < WEIR_DOORMAN_METHODS; i++)
        print_histogram(out, took,
                        weir_doorman_method_name((enum weir_doorman_method)i),
                        &s->methods[i]);
}

static void print_calls(FILE *out, const struct weir_doorman_api *api)
{
    struct weir_doorman_api_stats s;
    weir_doorman_api_stats(api, &s);
    print_methods(out, &s);
    const struct figure figures[] = {
        { "weir_doorman_unknown_total",
          "Resources asked for without a leased quota, and granted all.",
          (double)s.unknown },
        { "weir_doorman_elsewhere_total", "Answers that this isn't the master.",
          (double)s.elsewhere },
        { "weir_doorman_bad_rows_total",
          "Resources asked for with an invalid id or amount.",
          (double)s.bad_rows },
    };
    print_figures(out, figures, WEIR_COUNT_OF(figures));
}

enum lease_column { HAS, WANTS, SUBCLIENTS, CAPACITY, LEASE_COLUMNS };

/* The first quotas of the walk: all of them are on /debug/resources. */
static void print_lease_column(FILE *out, const struct weir_root *root,
                               enum lease_column column, weir_instant now)
{
    static const struct figure heads[LEASE_COLUMNS] = {
        [HAS] = { "doorman_server_has", "Capacity granted to clients." },
        [WANTS] = { "doorman_server_wants", "What they want." },
        [SUBCLIENTS] = { "doorman_server_subclients", "How many they are." },
        [CAPACITY] = { "weir_lease_capacity", "Capacity that can be granted." },
    };
    struct weir_leased_stats s;
    uint32_t cursor = 0;
    size_t count = 0;
    print_metric_head(out, heads[column].name, heads[column].help);
    while (count++ < WEIR_METRICS_QUOTAS_MAX &&
           weir_lease_manager_look(weir_root_lease_manager(root), &cursor, &s,
                                   now)) {
        const double values[LEASE_COLUMNS] = {
            [HAS] = s.pool.granted,
            [WANTS] = s.pool.wants,
            [SUBCLIENTS] = (double)s.pool.clients,
            [CAPACITY] = s.pool.capacity,
        };
        fprintf(out, "%s{resource=\"", heads[column].name);
        print_label(out, s.quota.p, s.quota.len);
        fprintf(out, "\"} %.17g\n", values[column]);
    }
}

static void print_lease_metrics(FILE *out, const struct weir_metrics_source *of,
                                weir_instant now)
{
    print_own(out, of);
    if (of->file)
        print_source(out, of->file);
    if (of->doorman)
        print_calls(out, of->doorman);
    for (enum lease_column column = HAS; column < LEASE_COLUMNS; column++)
        print_lease_column(out, of->root, column, now);
}

char *weir_metrics_print(const struct weir_metrics_source *source,
                         weir_instant now, size_t *out_len)
{
    struct weir_text_stream stream = { 0 };
    FILE *out = weir_text_open(&stream);
    if (!out)
        return NULL;
    print_metric_head(out, "weir_build_info", "The version that runs.");
    fprintf(out, "weir_build_info{version=\"%s\",root=\"", source->version);
    struct weir_text shown = weir_text_of(source->name);
    print_label(out, shown.p, shown.len);
    fputs("\"} 1\n", out);
    print_root_metrics(out, source);
    print_exact(out, source->root);
    if (source->authorizer)
        print_authorizer(out, source->authorizer);
    if (source->snapshot)
        print_snapshot_metrics(out, source->snapshot);
    if (source->upstream)
        print_upstream(out, source->upstream, now);
    print_lease_metrics(out, source, now);
    print_fleets(out, source->root, now);
    int error = print_limited_quotas(out, source->root, now);
    if (error == 0)
        error = print_adaptive(out, source->root, now);
    char *text = weir_text_close(&stream, out, out_len);
    if (error < 0) {
        free(text);
        return NULL;
    }
    return text;
}
