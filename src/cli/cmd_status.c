/* SPDX-License-Identifier: MIT
 * cli/cmd_status.c - weir status: a block for each root. */

#include <stdio.h>
#include <string.h>

#include "cli/fleet_print.h"

static const char status_help[] =
    "Shows how the roots stand: store, settings, limiters.\n"
    "\n"
    "    weir status\n"
    "\n"
    "  --roots HOST:PORT,…  the roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               a JSON list, an entry for each root\n"
    "\n"
    "Exit status 2 if a root doesn't answer.\n";

static void print_block(struct weir_rows *rows)
{
    if (rows->count > 0)
        putchar('\n');
    weir_rows_print(rows, stdout);
}

/* A lack of room that requests don't meet any more is no news. */
#define LACK_RECENT_S 600

/* Prints what the limiter has no room for, and how it decides that. A region's
 * root decides nothing, and has other words for its memory. */
static void print_lack(json_t *limiter)
{
    char age[32];
    const char *name = weir_cli_text(limiter, "name");
    const char *rule = json_string_value(json_object_get(limiter, "on_full"));
    const char *verdict =
        rule && strcmp(rule, "pass") == 0 ? "pass" : "are refused";
    long long lacking = weir_cli_whole(limiter, "lacking");
    long long overflowed = weir_cli_whole(limiter, "overflowed");
    double ago = weir_cli_number(limiter, "overflowed_s");
    if (lacking > 0 && !rule)
        printf("%s, a region's root, has no room for %lld quotas: raise its "
               "--slots\n",
               name, lacking);
    if (lacking > 0 && rule)
        printf("%s has no room for %lld quotas, and names without a quota %s "
               "(on_full=%s): raise its memory_max\n",
               name, lacking, verdict, rule);
    if (overflowed > 0 && rule && ago < LACK_RECENT_S)
        printf("%s had no room for the names of %lld requests, the last %s "
               "ago: an overflow quota decides, or else they %s (on_full=%s)\n",
               name, overflowed, weir_cli_age(ago, age), verdict, rule);
}

/* Prints whether the limiter is connected to fewer roots than there are. */
static void print_few_roots(json_t *limiter, long long roots)
{
    long long few = weir_cli_whole(limiter, "few_roots");
    if (few > 0)
        printf("%s is connected to %lld of %lld roots, and they count only "
               "their own limiters: name all roots to it, or a name that has "
               "all their addresses, not a load balancer's\n",
               weir_cli_text(limiter, "name"), few, roots);
}

/* Prints connected limiters; the rest may be a thousand runs of a script. */
static void print_limiters(json_t *limiters, long long roots)
{
    static const char *const keys[] = { "epoch", "quotas", "unknown" };
    struct weir_rows rows = { .right = 0x1e };
    size_t index;
    json_t *limiter;
    json_array_foreach(limiters, index, limiter)
    {
        char age[32];
        if (!weir_cli_is(limiter, "connected"))
            continue;
        if (rows.count == 0)
            weir_rows_head(&rows, "LIMITER", "LAST MESSAGE", "EPOCH", "IN USE",
                           "UNKNOWN", NULL);
        weir_rows_add(&rows, weir_cli_text(limiter, "name"));
        weir_rows_addf(&rows, "%s ago",
                       weir_cli_age(weir_cli_number(limiter, "silent_s"), age));
        for (size_t i = 0; i < WEIR_COUNT_OF(keys); i++)
            weir_rows_addf(&rows, "%lld", weir_cli_whole(limiter, keys[i]));
    }
    print_block(&rows);
    json_array_foreach(limiters, index, limiter)
    {
        if (!weir_cli_is(limiter, "connected"))
            continue;
        print_lack(limiter);
        print_few_roots(limiter, roots);
    }
}

static void add_limit(struct weir_rows *rows, const char *limiter,
                      const json_t *limit)
{
    char age[32];
    weir_rows_add_all(rows, limiter, weir_cli_text(limit, "quota"), NULL);
    weir_rows_addf(rows, "%.3g", weir_cli_number(limit, "limit"));
    weir_rows_addf(rows, "%lld", weir_cli_whole(limit, "in_flight"));
    weir_rows_add_all(rows, weir_cli_text(limit, "latency"),
                      weir_cli_text(limit, "reason"), NULL);
    weir_rows_addf(rows, "%s ago",
                   weir_cli_age(weir_cli_number(limit, "moved_s"), age));
}

/* Prints the limits that processes have found. */
static void print_limits(json_t *limiters)
{
    struct weir_rows rows = { .right = 1u << 2 | 1u << 3 | 1u << 4 | 1u << 6 };
    size_t index, place;
    json_t *limiter, *limit;
    json_array_foreach(limiters, index, limiter)
    {
        json_t *list = json_object_get(limiter, "adaptive");
        json_array_foreach(list, place, limit)
        {
            if (rows.count == 0)
                weir_rows_head(&rows, "LIMITER", "ADAPTIVE", "LIMIT",
                               "IN FLIGHT", "LATENCY", "WHY", "MOVED", NULL);
            add_limit(&rows, weir_cli_text(limiter, "name"), limit);
        }
    }
    print_block(&rows);
}

static void print_snapshot_status(const json_t *snapshot)
{
    if (!json_is_object(snapshot))
        return;
    const char *problem = weir_cli_text(snapshot, "problem");
    printf("  snapshot  %s: ", weir_cli_text(snapshot, "file"));
    if (json_object_get(snapshot, "epoch")) {
        char age[32];
        printf("epoch %lld, made %s ago%s", weir_cli_whole(snapshot, "epoch"),
               weir_cli_age(weir_cli_number(snapshot, "age_s"), age),
               weir_cli_is(snapshot, "serving") ? ", IN USE" : "");
    } else {
        printf("none yet");
    }
    printf("%s%s\n", problem[0] ? "; " : "", problem);
}

static void print_store_status(const json_t *store)
{
    const char *problem = weir_cli_text(store, "problem");
    printf("  store     %s: %s%s%s\n", weir_cli_text(store, "url"),
           weir_cli_text(store, "state"), problem[0] ? "; " : "", problem);
    const json_t *bad = json_object_get(store, "bad_rows");
    size_t index;
    json_t *row;
    if (bad)
        printf("  BAD ROWS  %lld of the store can't be read; write these "
               "quotas again with 'weir quota set':\n",
               weir_cli_whole(bad, "count"));
    json_array_foreach(json_object_get(bad, "rows"), index, row)
        printf("            %s (id %lld), %s: %s\n", weir_cli_text(row, "name"),
               weir_cli_whole(row, "id"),
               weir_cli_is(row, "kept") ? "its last good value is served"
                                        : "not served",
               weir_cli_text(row, "problem"));
}

/* Prints the roots that a region has its quotas from. */
static void print_region(json_t *region)
{
    const json_t *age = json_object_get(region, "age_s");
    printf("  region    %s, under ", weir_cli_text(region, "name"));
    size_t index;
    json_t *root;
    json_array_foreach(json_object_get(region, "upstream"), index, root)
    {
        const char *problem = weir_cli_text(root, "problem");
        bool up = weir_cli_is(root, "up");
        printf("%s%s (%s%s%s)", index > 0 ? ", " : "",
               weir_cli_text(root, "address"), up ? "up" : "DOWN",
               problem[0] ? ": " : "", problem);
    }
    char shown[32] = "";
    if (json_is_real(age))
        weir_cli_age(json_number_value(age), shown);
    printf("; last message of the topmost root: %s%s%s\n",
           json_is_real(age) ? shown : "never", json_is_real(age) ? " ago" : "",
           weir_cli_is(region, "stale") ? "; STALE: quotas go by their on_stale"
                                        : "");
}

static void print_root_status(const char *address, const json_t *root)
{
    json_t *region = json_object_get(root, "region");
    const json_t *settings = json_object_get(root, "settings");
    const json_t *stats = json_object_get(root, "stats");
    const json_t *ratio = json_object_get(settings, "correction_ratio");
    char age[32];
    printf("root %s at %s: %s, up %s, Weir %s\n", weir_cli_text(root, "name"),
           address, weir_cli_is(root, "ready") ? "ready" : "NOT READY",
           weir_cli_age(weir_cli_number(root, "uptime_s"), age),
           weir_cli_text(root, "version"));
    if (json_is_object(region))
        print_region(region);
    else
        print_store_status(json_object_get(root, "store"));
    print_snapshot_status(json_object_get(root, "snapshot"));
    printf("  quotas    %lld at epoch %lld, %lld in use\n",
           weir_cli_whole(stats, "quotas"), weir_cli_whole(root, "epoch"),
           weir_cli_whole(stats, "quotas_used"));
    if (weir_cli_whole(stats, "roots") > 0)
        printf("  roots     %lld on this store\n",
               weir_cli_whole(stats, "roots"));
    printf("  limiters  %lld connected, %lld known; %lld reports, %lld "
           "counts merged\n",
           weir_cli_whole(stats, "limiters_connected"),
           weir_cli_whole(stats, "limiters_known"),
           weir_cli_whole(stats, "reports"), weir_cli_whole(stats, "counts"));
    printf("  settings  report every %s, stale after %s, slack %s",
           weir_cli_text(settings, "report_interval"),
           weir_cli_text(settings, "stale_after"),
           weir_cli_is(settings, "slack") ? "on" : "off");
    if (json_is_string(ratio))
        printf(", correction ratio auto\n");
    else
        printf(", correction ratio %g\n", json_number_value(ratio));
    if (weir_cli_whole(stats, "unknown") > 0)
        printf("  unknown   %lld requests by names without quota passed\n",
               weir_cli_whole(stats, "unknown"));
    if (weir_cli_whole(stats, "contended") > 0)
        printf("  contended %lld requests were decided without a lock that "
               "another thread had\n",
               weir_cli_whole(stats, "contended"));
    print_limiters(json_object_get(root, "limiters"),
                   weir_cli_whole(stats, "roots"));
    weir_cli_print_fleets(json_object_get(root, "fleets"));
    print_limits(json_object_get(root, "limiters"));
}

int weir_cli_status(int argc, char **argv)
{
    struct weir_cli cli;
    int at = weir_cli_parse(&cli, status_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at < argc)
        return weir_cli_fail("`weir status` takes no arguments; name a root "
                             "with --roots %s",
                             argv[at]);
    struct weir_root_client *client = weir_root_client_new(&cli);
    if (!client)
        return WEIR_EXIT_ERROR;
    json_t *all = json_array();
    int status = WEIR_EXIT_OK;
    for (size_t i = 0; i < weir_root_client_count(client); i++) {
        json_t *root;
        weir_root_client_only(client, i);
        int failed = weir_cli_request(client, "GET", "/v1/status", NULL, &root);
        if (failed) {
            status = failed;
            continue;
        }
        if (!cli.json) {
            if (json_array_size(all) > 0)
                putchar('\n');
            print_root_status(weir_root_client_name(client, i), root);
        }
        json_array_append_new(all, root);
    }
    weir_root_client_free(&client);
    if (cli.json)
        weir_cli_print_json(all);
    else
        json_decref(all);
    return status;
}
