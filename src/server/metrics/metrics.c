/* SPDX-License-Identifier: MIT
 * server/metrics/metrics.c - metrics of the root, and of some quotas.
 *
 * A site has as many names of instances as clients, and a metrics store keeps
 * each label for weeks: so only the quotas that limited most are printed one by
 * one. The rest is in the totals. */

#include "server/metrics/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/authorization.h"
#include "server/adaptive_view.h"
#include "server/metrics/metrics_internal.h"
#include "server/root_usages.h"

static void print_root_metrics(FILE *out, const struct weir_metrics_source *of)
{
    struct weir_root_stats s;
    weir_root_stats(of->root, &s);
    const struct weir_metrics_figure figures[] = {
        { "weir_root_ready", "gauge", "Whether the quotas have been read.",
          weir_root_ready(of->root) },
        { "weir_store_up", "gauge", "Whether the quota store can be used.",
          of->store_up },
        { "weir_epoch", "gauge", "The newest epoch of the quotas.",
          (double)s.epoch },
        { "weir_edits_waiting", "gauge", "Edits not answered yet.",
          (double)of->edits_waiting },
        { "weir_quotas", "gauge",
          "Quotas and templates, those of the shadow set included.",
          (double)s.quotas },
        { "weir_quotas_used", "gauge",
          "Quotas and instances in use by some limiter.",
          (double)s.quotas_used },
        { "weir_limiters_connected", "gauge", "Limiters connected.",
          s.limiters_connected },
        { "weir_limiters_known", "gauge",
          "Limiters connected or not forgotten yet.", s.limiters_known },
        { "weir_reports_total", "counter", "Reports taken from limiters.",
          (double)s.reports },
        { "weir_reports_repeated_total", "counter",
          "Reports that came again and were not counted again.",
          (double)s.reports_repeated },
        { "weir_counts_total", "counter", "Counts merged.", (double)s.counts },
        { "weir_fills_total", "counter", "Fills sent to limiters.",
          (double)s.fills },
        { "weir_pushes_total", "counter",
          "Messages of fills sent without a report.", (double)s.pushes },
        { "weir_protocol_errors_total", "counter",
          "Links dropped because the peer broke the protocol.",
          (double)s.protocol_errors },
        { "weir_root_utilization_ratio", "gauge",
          "Share of the CPU time open to the root's thread that it used.",
          (double)s.busy_ppm / 1e6 },
        { "weir_root_report_backoff_seconds", "gauge",
          "An overloaded root asks for this time between reports; 0: it isn't.",
          (double)s.report_backoff / 1e9 },
        { "weir_unknown_requests_total", "counter",
          "Requests by names without quota, which passed.", (double)s.unknown },
        { "weir_beyond_debt_units_total", "counter",
          "Units that limiters reported beyond max_debt, which fill nothing.",
          (double)s.beyond_debt },
    };
    weir_metrics_figures(out, figures, WEIR_COUNT_OF(figures));
}

static void print_exact(FILE *out, const struct weir_root *root)
{
    struct weir_root_stats s;
    weir_root_stats(root, &s);
    const struct weir_metrics_figure figures[] = {
        { "weir_exact_requests_total", "counter",
          "Decisions on exact quotas made, or handed to the roots above.",
          (double)s.asks },
        { "weir_exact_requests_refused_total", "counter",
          "Requests for a quota that isn't exact or isn't here, or whose "
          "state found the table full.",
          (double)s.asks_refused },
        { "weir_exact_requests_dropped_total", "counter",
          "Requests that came again, or while too many were unanswered.",
          (double)s.asks_dropped },
        { "weir_bucket_states", "gauge",
          "Bucket states of exact quotas in memory.", (double)s.bucket_states },
        { "weir_bucket_state_bytes", "gauge", "Memory that these states take.",
          (double)s.bucket_state_bytes },
    };
    weir_metrics_figures(out, figures, WEIR_COUNT_OF(figures));
}

static void print_snapshot_metrics(FILE *out,
                                   const struct weir_snapshot *snapshot)
{
    struct weir_snapshot_state s;
    weir_snapshot_look(snapshot, &s);
    const struct weir_metrics_figure figures[] = {
        { "weir_snapshot_serving", "gauge",
          "Whether the root goes by its snapshot, for want of its store.",
          s.serving },
        { "weir_snapshot_epoch", "gauge",
          "The epoch of the snapshot; 0: there is none.",
          s.usable ? (double)s.info.epoch : 0 },
        { "weir_snapshot_written_total", "counter", "Snapshots written.",
          (double)s.written },
        { "weir_snapshot_failures_total", "counter",
          "Snapshots that couldn't be written.", (double)s.failures },
    };
    weir_metrics_figures(out, figures, WEIR_COUNT_OF(figures));
}

static void print_upstream(FILE *out, const struct weir_upstream *upstream,
                           weir_instant now)
{
    struct weir_upstream_state s;
    weir_upstream_look(upstream, &s, now);
    const struct weir_metrics_figure figures[] = {
        { "weir_upstream_roots", "gauge", "Roots above this one.", s.count },
        { "weir_upstream_roots_up", "gauge", "Those that answer.",
          s.region.upstreams_up },
        { "weir_region_stale", "gauge", "Whether quotas go by their on_stale.",
          s.region.stale },
        { "weir_upstream_reports_total", "counter", "Reports sent above.",
          (double)s.region.reports },
        { "weir_region_carried_total", "counter",
          "Counts of limiters handed on to be reported above.",
          (double)s.region.carried },
        { "weir_region_table_full_total", "counter",
          "Counts that found the table full, and aren't carried yet.",
          (double)s.region.no_room },
    };
    weir_metrics_figures(out, figures, WEIR_COUNT_OF(figures));
    static const char age[] = "weir_region_age_seconds";
    weir_metrics_head(out, age, "gauge",
                      "Time since a message of a topmost root; +Inf: never.");
    if (s.region.age == WEIR_NEVER)
        fprintf(out, "%s +Inf\n", age);
    else
        fprintf(out, "%s %.17g\n", age, (double)s.region.age / 1e9);
}

enum column { PASSED, REFUSED, FILL, LIMIT };

static double cell_of_quota(const struct weir_busy *busy, enum column column)
{
    switch (column) {
    case PASSED:
        return (double)busy->passed;
    case REFUSED:
        return (double)busy->refused;
    case FILL:
        return busy->fill;
    case LIMIT:
        break;
    }
    if (busy->limit.per == 0) /* units at a time */
        return (double)busy->limit.units;
    return (double)busy->limit.units * 1e9 / (double)busy->limit.per;
}

static void print_quota_column(FILE *out, enum column column,
                               const struct weir_busy *busy, size_t count)
{
    static const struct weir_metrics_figure heads[] = {
        [PASSED] = { "weir_quota_passed_units_total", "counter",
                     "Units passed, of the quotas that limited most." },
        [REFUSED] = { "weir_quota_limited_units_total", "counter",
                      "Units limited, of the quotas that limited most." },
        [FILL] = { "weir_quota_fill_units", "gauge",
                   "Units in the bucket, of the quotas that limited most." },
        [LIMIT] = { "weir_quota_limit_units_per_second", "gauge",
                    "The limit, of the quotas that limited most." },
    };
    const struct weir_metrics_figure *head = &heads[column];
    weir_metrics_head(out, head->name, head->type, head->help);
    for (size_t i = 0; i < count; i++) {
        bool limited = !busy[i].removed && !busy[i].limit.unlimited;
        if (column == LIMIT && !limited)
            continue;
        fprintf(out, "%s{quota=\"", head->name);
        weir_metrics_label(out, busy[i].name, busy[i].name_len);
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
    weir_metrics_head(out, limit, "gauge",
                      "The adaptive limit, over the processes that have one.");
    for (size_t i = 0; i < count; i++) {
        const double limits[] = { seen[i].min, seen[i].median, seen[i].max };
        for (size_t j = 0; j < 3; j++) {
            fprintf(out, "%s{quota=\"", limit);
            weir_metrics_label(out, seen[i].name, strlen(seen[i].name));
            fprintf(out, "\",of=\"%s\"} %.17g\n", of[j], limits[j]);
        }
    }
    static const char flight[] = "weir_adaptive_in_flight_units";
    weir_metrics_head(
        out, flight, "gauge",
        "In flight when the limits were reported, in all processes.");
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%s{quota=\"", flight);
        weir_metrics_label(out, seen[i].name, strlen(seen[i].name));
        fprintf(out, "\"} %llu\n", (unsigned long long)seen[i].in_flight);
    }
}

static void print_adaptive_reasons(FILE *out,
                                   const struct weir_adaptive_view *seen,
                                   size_t count)
{
    static const char processes[] = "weir_adaptive_processes";
    weir_metrics_head(out, processes, "gauge",
                      "Processes, by why their adaptive limit last moved.");
    for (size_t i = 0; i < count; i++) {
        for (unsigned why = 0; why < WEIR_LIMIT_REASONS; why++) {
            fprintf(out, "%s{quota=\"", processes);
            weir_metrics_label(out, seen[i].name, strlen(seen[i].name));
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

/* The limiters that the root remembers: the last ones. */
static void print_debtors(FILE *out, const struct weir_root *root,
                          weir_instant now)
{
    static const char units[] = "weir_quota_beyond_debt_units_total";
    weir_metrics_head(out, units, "counter",
                      "Units that the limiter reported beyond max_debt.");
    struct weir_debtor debtor;
    size_t cursor = 0;
    while (weir_root_debtor(root, &cursor, &debtor, now)) {
        fprintf(out, "%s{quota=\"", units);
        weir_metrics_label(out, debtor.quota.p, debtor.quota.len);
        fputs("\",limiter=\"", out);
        weir_metrics_label(out, debtor.limiter.p, debtor.limiter.len);
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
    print_quota_column(out, PASSED, busy, count);
    print_quota_column(out, REFUSED, busy, count);
    print_quota_column(out, FILL, busy, count);
    print_quota_column(out, LIMIT, busy, count);
    print_debtors(out, root, now);
    free(busy);
    return 0;
}

static void print_authorizer(FILE *out,
                             const struct weir_authorization *authorizer)
{
    static const char refused[] = "weir_refused_credentials_total";
    weir_metrics_head(out, refused, "counter",
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
    weir_metrics_head(out, expires, "gauge",
                      "Seconds until the certificate that this root shows "
                      "ends.");
    fprintf(out, "%s %lld\n", expires,
            (long long)weir_tls_expires_in(authorizer->tls));
}

char *weir_metrics_print(const struct weir_metrics_source *source,
                         weir_instant now, size_t *out_len)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, out_len);
    if (!out)
        return NULL;
    weir_metrics_head(out, "weir_build_info", "gauge",
                      "The version that runs.");
    fprintf(out, "weir_build_info{version=\"%s\",root=\"", source->version);
    struct weir_text shown = weir_text_of(source->name);
    weir_metrics_label(out, shown.p, shown.len);
    fputs("\"} 1\n", out);
    print_root_metrics(out, source);
    print_exact(out, source->root);
    if (source->authorizer)
        print_authorizer(out, source->authorizer);
    if (source->snapshot)
        print_snapshot_metrics(out, source->snapshot);
    if (source->upstream)
        print_upstream(out, source->upstream, now);
    weir_metrics_leases(out, source, now);
    int error = print_limited_quotas(out, source->root, now);
    if (error == 0)
        error = print_adaptive(out, source->root, now);
    if (fclose(out) != 0 || error < 0) {
        free(text);
        return NULL;
    }
    return text;
}
