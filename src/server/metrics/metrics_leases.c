/* SPDX-License-Identifier: MIT
 * server/metrics/metrics_leases.c - metrics of leases, under Weir's names and
 * under Doorman's, so that graphs of Doorman go on. */

#include <inttypes.h>

#include "server/doorman/doorman_api.h"
#include "server/doorman/doorman_source.h"
#include "server/metrics/metrics_internal.h"

static void print_own(FILE *out, const struct weir_metrics_source *of)
{
    struct weir_root_stats s;
    weir_root_stats(of->root, &s);
    const struct weir_metrics_figure figures[] = {
        { "weir_lease_master", "gauge",
          "Whether this root hands out the leases.",
          weir_root_leases(of->root) },
        { "weir_lease_term", "gauge", "The highest term known.",
          (double)weir_root_lease_term(of->root) },
        { "weir_leased_quotas", "gauge", "Leased quotas in use, at the master.",
          (double)s.leased },
        { "weir_lease_holders", "gauge",
          "Lease holders that have, or want, some of them.",
          (double)s.lease_holders },
        { "weir_lease_grants_total", "counter",
          "Grants that answered a request.", (double)s.lease_grants },
        { "weir_lease_pushes_total", "counter",
          "Grants sent without a request.", (double)s.lease_pushes },
        { "weir_lease_refused_total", "counter",
          "Requests for a quota that isn't leased or isn't here, or without "
          "room.",
          (double)s.lease_refused },
        { "weir_lease_dropped_total", "counter",
          "Requests that came late or twice.", (double)s.lease_dropped },
    };
    weir_metrics_figures(out, figures, WEIR_COUNT_OF(figures));
}

static void print_source(FILE *out, const struct weir_doorman_source *source)
{
    struct weir_doorman_source_state s;
    weir_doorman_source_state(source, &s);
    const struct weir_metrics_figure figures[] = {
        { "weir_doorman_loads_total", "counter",
          "Times that the Doorman file was read, and is in force.",
          (double)s.loads },
        { "weir_doorman_load_failures_total", "counter",
          "Times that it wasn't sound, or couldn't be read.",
          (double)s.failures },
    };
    weir_metrics_figures(out, figures, WEIR_COUNT_OF(figures));
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
    weir_metrics_head(out, requests, "counter", "Calls of doorman.Capacity.");
    for (int i = 0; i < WEIR_DOORMAN_METHODS; i++)
        fprintf(out, "%s{method=\"%s\"} %" PRIu64 "\n", requests,
                weir_doorman_method_name((enum weir_doorman_method)i),
                s->methods[i].requests);
    weir_metrics_head(out, errors, "counter", "Calls that were refused.");
    for (int i = 0; i < WEIR_DOORMAN_METHODS; i++)
        fprintf(out, "%s{method=\"%s\"} %" PRIu64 "\n", errors,
                weir_doorman_method_name((enum weir_doorman_method)i),
                s->methods[i].errors);
    weir_metrics_head(out, took, "histogram",
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
    const struct weir_metrics_figure figures[] = {
        { "weir_doorman_unknown_total", "counter",
          "Resources asked for without a leased quota, and granted all.",
          (double)s.unknown },
        { "weir_doorman_elsewhere_total", "counter",
          "Answers that this isn't the master.", (double)s.elsewhere },
    };
    weir_metrics_figures(out, figures, WEIR_COUNT_OF(figures));
}

enum column { HAS, WANTS, SUBCLIENTS, CAPACITY };
static const char *const columns[][2] = {
    [HAS] = { "doorman_server_has", "Capacity granted to clients." },
    [WANTS] = { "doorman_server_wants", "What they want." },
    [SUBCLIENTS] = { "doorman_server_subclients", "How many they are." },
    [CAPACITY] = { "weir_lease_capacity", "Capacity that can be granted." },
};

static double value_of_pool(enum column column,
                            const struct weir_lease_pool_stats *s)
{
    switch (column) {
    case HAS:
        return s->granted;
    case WANTS:
        return s->wants;
    case SUBCLIENTS:
        return (double)s->clients;
    case CAPACITY:
        return s->capacity;
    }
    return 0;
}

/* The first quotas of the walk: all of them are on /debug/resources. */
static void print_lease_column(FILE *out, const struct weir_root *root,
                               enum column column, weir_instant now)
{
    struct weir_leased_stats s;
    uint32_t cursor = 0;
    size_t count = 0;
    weir_metrics_head(out, columns[column][0], "gauge", columns[column][1]);
    while (count++ < WEIR_METRICS_QUOTAS_MAX &&
           weir_lease_manager_look(weir_root_lease_manager(root), &cursor, &s,
                                   now)) {
        fprintf(out, "%s{resource=\"", columns[column][0]);
        weir_metrics_label(out, s.quota.p, s.quota.len);
        fprintf(out, "\"} %.17g\n", value_of_pool(column, &s.pool));
    }
}

void weir_metrics_leases(FILE *out, const struct weir_metrics_source *of,
                         weir_instant now)
{
    print_own(out, of);
    if (of->file)
        print_source(out, of->file);
    if (of->doorman)
        print_calls(out, of->doorman);
    print_lease_column(out, of->root, HAS, now);
    print_lease_column(out, of->root, WANTS, now);
    print_lease_column(out, of->root, SUBCLIENTS, now);
    print_lease_column(out, of->root, CAPACITY, now);
}
