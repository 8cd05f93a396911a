/* SPDX-License-Identifier: MIT
 * cli/fleet_print.c - a fleet's limit in `weir status` and `weir quota get`. */

#include "cli/fleet_print.h"

#include <stdio.h>
#include <string.h>

#include "front/uri.h"

const char *weir_cli_age(double seconds, char buf[static 32])
{
    if (seconds < 10)
        snprintf(buf, 32, "%.1fs", seconds);
    else if (seconds < 120)
        snprintf(buf, 32, "%.0fs", seconds);
    else if (seconds < 7200)
        snprintf(buf, 32, "%.0fmin", seconds / 60);
    else if (seconds < 172800)
        snprintf(buf, 32, "%.0fh", seconds / 3600);
    else
        snprintf(buf, 32, "%.0f days", seconds / 86400);
    return buf;
}

/* "-": there is none. */
static const char *show_latency(const json_t *limit, const char *key,
                                char buf[static 32])
{
    double seconds = weir_cli_number(limit, key);
    if (seconds <= 0)
        return "-";
    snprintf(buf, 32, seconds < 1 ? "%.3gms" : "%.3gs",
             seconds < 1 ? seconds * 1e3 : seconds);
    return buf;
}

/* ---- weir status ---- */

static void add_fleet(struct weir_rows *rows, const json_t *limit)
{
    char age[32], latency[32], target[32];
    weir_rows_add(rows, weir_cli_text(limit, "quota"));
    weir_rows_addf(rows, "%.3g", weir_cli_number(limit, "limit"));
    weir_rows_addf(rows, "%lld", weir_cli_whole(limit, "in_flight"));
    weir_rows_add_all(rows, show_latency(limit, "latency_s", latency),
                      show_latency(limit, "target_s", target), NULL);
    weir_rows_addf(rows, "%lld", weir_cli_whole(limit, "members"));
    weir_rows_add(rows, weir_cli_text(limit, "reason"));
    weir_rows_addf(rows, "%s ago",
                   weir_cli_age(weir_cli_number(limit, "moved_s"), age));
}

void weir_cli_print_fleets(json_t *fleets)
{
    struct weir_rows rows = { .right = 0x3e | 1u << 7 };
    size_t index, place;
    json_t *limit, *name;
    if (json_array_size(fleets) == 0)
        return;
    putchar('\n');
    weir_rows_head(&rows, "FLEET", "LIMIT", "IN FLIGHT", "LATENCY", "TARGET",
                   "PROCESSES", "WHY", "MOVED", NULL);
    json_array_foreach(fleets, index, limit) add_fleet(&rows, limit);
    weir_rows_print(&rows, stdout);
    json_array_foreach(fleets, index, limit)
    {
        json_array_foreach(json_object_get(limit, "left_out"), place, name)
            printf("%s is left out of the limit of %s: most of its requests "
                   "are slow, and those of the others aren't; look at its path "
                   "to the service\n",
                   json_string_value(name), weir_cli_text(limit, "quota"));
    }
}

/* ---- weir quota get ---- */

json_t *weir_cli_find_fleet(struct weir_root_client *client, const char *name)
{
    char encoded[3 * WEIR_NAME_MAX];
    char path[WEIR_CLI_PATH_MAX];
    int len = weir_uri_encode(weir_text_of(name), encoded, sizeof encoded);
    json_t *found = NULL;
    if (len < 0)
        return NULL;
    snprintf(path, sizeof path, "/v1/fleet?name=%.*s", len, encoded);
    size_t count = weir_root_client_count(client);
    for (size_t i = 0; i < count && !weir_cli_is(found, "leads"); i++) {
        struct weir_diag diag = { 0 };
        json_t *answer;
        weir_root_client_only(client, i);
        if (weir_root_client_request(client, 0, "GET", path, NULL, &answer,
                                     &diag) < 0)
            continue;
        json_decref(found);
        found = answer;
    }
    return found;
}

void weir_cli_add_fleet(struct weir_rows *rows, const json_t *answer)
{
    const json_t *limit = json_object_get(answer, "fleet");
    const char *master = weir_cli_text(answer, "master");
    char age[32], latency[32], target[32];
    weir_rows_add(rows, "fleet");
    if (!weir_cli_is(answer, "leads")) {
        weir_rows_addf(rows, "its limit is found by %s%s",
                       master[0] ? "the root at "
                                 : "the master, which isn't "
                                   "known here",
                       master);
        return;
    }
    if (!json_is_object(limit)) {
        weir_rows_add(rows, "no process uses it");
        return;
    }
    weir_rows_addf(
        rows,
        "limit %.3g (%s, %s ago)%s; in flight %lld; latency %s, "
        "target %s",
        weir_cli_number(limit, "limit"), weir_cli_text(limit, "reason"),
        weir_cli_age(weir_cli_number(limit, "moved_s"), age),
        weir_cli_is(limit, "learning") ? ", learning what processes have" : "",
        weir_cli_whole(limit, "in_flight"),
        show_latency(limit, "latency_s", latency),
        show_latency(limit, "target_s", target));
}

void weir_cli_print_members(const json_t *answer)
{
    static const char *const keys[] = { "granted", "wants", "has" };
    struct weir_rows rows = { .right = 0xe };
    size_t index;
    json_t *member;
    json_array_foreach(json_object_get(answer, "members"), index, member)
    {
        if (index == 0) {
            putchar('\n');
            weir_rows_head(&rows, "PROCESS", "PART", "WANTS", "HAS", "LEFT OUT",
                           NULL);
        }
        weir_rows_add(&rows, weir_cli_text(member, "name"));
        for (size_t i = 0; i < WEIR_COUNT_OF(keys); i++)
            weir_rows_addf(&rows, "%.3g", weir_cli_number(member, keys[i]));
        weir_rows_add(&rows, weir_cli_is(member, "left_out") ? "yes" : "-");
    }
    weir_rows_print(&rows, stdout);
    if (weir_cli_whole(answer, "more") > 0)
        printf("and %lld more\n", weir_cli_whole(answer, "more"));
}
