/* SPDX-License-Identifier: MIT
 * cli/replay_json.c - a log line that is a JSON object, with the field names of
 * nginx, Caddy, Traefik and others. */

#include "cli/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lab/log_line.h"

#define NAMES_MAX 8
#define BYTES_BELOW 0x1p63     /* a smaller number fits 64 bits */
#define MILLISECONDS_FROM 1e11 /* no log is from the year 5138 */

static const char *const client_names[NAMES_MAX] = {
    "client",     "remote_addr", "client_ip", "remote_ip",
    "ClientHost", "ip",          "clientip"
};
static const char *const time_names[NAMES_MAX] = { "time",       "@timestamp",
                                                   "timestamp",  "ts",
                                                   "time_local", "time_iso8601",
                                                   "msec",       "StartUTC" };
static const char *const method_names[NAMES_MAX] = { "method", "request_method",
                                                     "RequestMethod", "verb" };
static const char *const path_names[NAMES_MAX] = { "path", "uri", "request_uri",
                                                   "url", "RequestPath" };
static const char *const status_names[NAMES_MAX] = { "status",
                                                     "DownstreamStatus",
                                                     "response" };
static const char *const bytes_names[NAMES_MAX] = { "bytes", "body_bytes_sent",
                                                    "bytes_sent", "size",
                                                    "DownstreamContentSize" };
static const char *const user_names[NAMES_MAX] = { "user", "remote_user",
                                                   "user_id" };
static const char *const protocol_names[NAMES_MAX] = { "protocol", "proto",
                                                       "server_protocol" };
static const char *const referer_names[NAMES_MAX] = { "referer", "http_referer",
                                                      "referrer" };
static const char *const agent_names[NAMES_MAX] = { "agent", "http_user_agent",
                                                    "user_agent" };

/* The value in the object itself, or in its "request" (Caddy). */
static json_t *value(const json_t *object, const char *const *names)
{
    const json_t *inner = json_object_get(object, "request");
    for (size_t i = 0; i < NAMES_MAX && names[i]; i++) {
        json_t *found = json_object_get(object, names[i]);
        if (!found && json_is_object(inner))
            found = json_object_get(inner, names[i]);
        if (found)
            return found;
    }
    return NULL;
}

static struct weir_text json_text(const json_t *object,
                                  const char *const *names)
{
    json_t *found = value(object, names);
    if (!json_is_string(found))
        return (struct weir_text){ 0 };
    return (struct weir_text){ json_string_value(found),
                               json_string_length(found) };
}

/* ---- Time ---- */

/* ".123" */
static const char *read_part(const char *at, uint32_t *out_ns)
{
    uint32_t unit = 100000000;
    *out_ns = 0;
    if (*at != '.' && *at != ',')
        return at;
    for (at++; *at >= '0' && *at <= '9'; at++) {
        *out_ns += (uint32_t)(*at - '0') * unit;
        unit /= 10;
    }
    return at;
}

/* "Z", "+02:00", "+0200" or nothing. */
static bool read_json_zone(const char *at, int64_t *out_east)
{
    int hours = 0, minutes = 0;
    *out_east = 0;
    if (*at == '\0' || strcmp(at, "Z") == 0)
        return true;
    if ((*at != '+' && *at != '-') ||
        (sscanf(at + 1, "%2d:%2d", &hours, &minutes) != 2 &&
         sscanf(at + 1, "%2d%2d", &hours, &minutes) != 2))
        return false;
    *out_east = (*at == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
    return true;
}

/* "2015-05-17T10:05:03.123Z" */
static bool read_iso(const char *from, int64_t *out, uint32_t *out_ns)
{
    struct tm tm = { 0 };
    const char *at = strptime(from, "%Y-%m-%d", &tm);
    int64_t east;
    if (!at || (*at != 'T' && *at != ' '))
        return false;
    at = strptime(at + 1, "%H:%M:%S", &tm);
    if (!at)
        return false;
    at = read_part(at, out_ns);
    if (!read_json_zone(at, &east))
        return false;
    *out = (int64_t)timegm(&tm) - east;
    return *out >= 0;
}

static bool read_log_time(const char *from, int64_t *out)
{
    struct tm tm = { 0 };
    const char *end = strptime(from, "%d/%b/%Y:%H:%M:%S %z", &tm);
    long east = tm.tm_gmtoff;
    if (!end)
        return false;
    *out = (int64_t)timegm(&tm) - east;
    return *out >= 0;
}

static bool read_json_time(const json_t *found, int64_t *out, uint32_t *out_ns)
{
    *out_ns = 0;
    if (json_is_integer(found) || json_is_real(found)) {
        double seconds = json_number_value(found);
        if (seconds >= MILLISECONDS_FROM)
            seconds /= 1000;
        if (!(seconds >= 0 && seconds < MILLISECONDS_FROM))
            return false;
        *out = (int64_t)seconds;
        *out_ns = (uint32_t)((seconds - floor(seconds)) * 1e9);
        return true;
    }
    const char *from = json_string_value(found);
    return from && (read_iso(from, out, out_ns) || read_log_time(from, out));
}

/* ---- The line ---- */

/* A number becomes its text, which lives with the object. */
static struct weir_text json_status(json_t *object)
{
    char digits[24];
    json_t *found = value(object, status_names);
    if (json_is_integer(found)) {
        snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT,
                 json_integer_value(found));
        json_object_set_new(object, status_names[0], json_string(digits));
    }
    return json_text(object, status_names);
}

static uint64_t bytes_of(const json_t *object)
{
    json_t *found = value(object, bytes_names);
    if (json_is_string(found)) {
        const char *from = json_string_value(found);
        return *from >= '0' && *from <= '9' ? strtoull(from, NULL, 10) : 0;
    }
    double bytes = json_number_value(found);
    if (!(bytes > 0))
        return 0;
    return bytes < BYTES_BELOW ? (uint64_t)bytes : UINT64_MAX;
}

const char *weir_replay_json(struct weir_text line, struct weir_log_line *out,
                             json_t **out_object, uint32_t *out_part_ns)
{
    json_t *object = json_loadb(line.p, line.len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        return "no JSON object";
    }
    *out_object = object;
    *out = (struct weir_log_line){
        .client = json_text(object, client_names),
        .user = json_text(object, user_names),
        .method = json_text(object, method_names),
        .path = json_text(object, path_names),
        .protocol = json_text(object, protocol_names),
        .referer = json_text(object, referer_names),
        .agent = json_text(object, agent_names),
        .status = json_status(object),
        .bytes = bytes_of(object),
    };
    if (out->client.len == 0)
        return "no client: none of client, remote_addr, client_ip, "
               "remote_ip, ip";
    if (!read_json_time(value(object, time_names), &out->at, out_part_ns))
        return "no time that can be read: none of time, @timestamp, "
               "timestamp, ts, time_local, msec";
    return NULL;
}
