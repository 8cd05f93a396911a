/* SPDX-License-Identifier: MIT
 * cli/replay_read.c - access logs into memory: of each line 24 bytes, and each
 * key and client once.
 *
 * A log isn't in the order of time (a line is written when its request ends),
 * several logs never are, and a comparison or a search needs the same requests
 * many times: so all is read first, then sorted, then replayed.
 *
 * Lines are searched in large pieces; the rest of a piece is moved to its
 * beginning and the next one read after it. A line of more than
 * LOG_LINE_MAX can't be a request, and is skipped without being kept. */

#include "cli/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "core/base/hash.h"
#include "io/clock.h"
#include "lab/log_line.h"
#include "lab/memory.h"

#define LOG_LINE_MAX (64u << 10) /* bytes; longer: malformed */
#define REQUESTS_MAX 200000000u
#define NAMES_MAX 8
#define BYTES_BELOW 0x1p63     /* a smaller number fits 64 bits */
#define MILLISECONDS_FROM 1e11 /* no log is from the year 5138 */
#define PIECE (1u << 20)       /* bytes read at once */
#define DIGIT_BITS 11          /* of the sort */
#define DIGITS (1u << DIGIT_BITS)

static const char too_long[] = "longer than 64 KiB";
static const char no_name[] =
    "its name would be empty, longer than 255 bytes or not clean UTF-8";
static const char too_many[] =
    "more than eight million different names or clients";

/* ---- The fields of a line ---- */

/* Without the query. */
static struct weir_text plain_path(struct weir_text path)
{
    const char *query = path.len > 0 ? memchr(path.p, '?', path.len) : NULL;
    return query ? (struct weir_text){ path.p, (size_t)(query - path.p) }
                 : path;
}

/* "/blog/2015/a" has "blog", "/robots.txt" and "/" have "". */
static struct weir_text first_dir(struct weir_text path)
{
    path = plain_path(path);
    if (path.len == 0 || path.p[0] != '/')
        return (struct weir_text){ 0 };
    const char *slash = memchr(path.p + 1, '/', path.len - 1);
    if (!slash)
        return (struct weir_text){ 0 };
    return (struct weir_text){ path.p + 1, (size_t)(slash - path.p) - 1 };
}

#define TEXT(field) offsetof(struct weir_log_line, field)

/* The fields that a --key can name, and their names in JSON: those of nginx,
 * Caddy, Traefik and others. */
static const struct weir_replay_field {
    const char *word; /* of a --key */
    size_t at;        /* of its text in struct weir_log_line */
    struct weir_text (*part)(struct weir_text text); /* NULL: all of it */
    const char *names[NAMES_MAX]; /* the first one that is there counts */
} fields[] = {
    { "client",
      TEXT(client),
      NULL,
      { "client", "remote_addr", "client_ip", "remote_ip", "ClientHost", "ip",
        "clientip" } },
    { "user", TEXT(user), NULL, { "user", "remote_user", "user_id" } },
    { "method",
      TEXT(method),
      NULL,
      { "method", "request_method", "RequestMethod", "verb" } },
    { "path",
      TEXT(path),
      plain_path,
      { "path", "uri", "request_uri", "url", "RequestPath" } },
    { "dir", TEXT(path), first_dir, { NULL } },
    { "protocol",
      TEXT(protocol),
      NULL,
      { "protocol", "proto", "server_protocol" } },
    { "status",
      TEXT(status),
      NULL,
      { "status", "DownstreamStatus", "response" } },
    { "referer",
      TEXT(referer),
      NULL,
      { "referer", "http_referer", "referrer" } },
    { "agent",
      TEXT(agent),
      NULL,
      { "agent", "http_user_agent", "user_agent" } },
};
static const char *const time_names[NAMES_MAX] = { "time",       "@timestamp",
                                                   "timestamp",  "ts",
                                                   "time_local", "time_iso8601",
                                                   "msec",       "StartUTC" };
static const char *const bytes_names[NAMES_MAX] = { "bytes", "body_bytes_sent",
                                                    "bytes_sent", "size",
                                                    "DownstreamContentSize" };

static struct weir_text *field_text(struct weir_log_line *line,
                                    const struct weir_replay_field *field)
{
    return (struct weir_text *)((char *)line + field->at);
}

/* ---- '{client}/{method}': the name that a line asks for ---- */

static const struct weir_replay_field *find_log_field(const char *word,
                                                      size_t len)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(fields); i++)
        if (strlen(fields[i].word) == len &&
            memcmp(fields[i].word, word, len) == 0)
            return &fields[i];
    weir_cli_fail("--key: there is no {%.*s}; there are {client}, {user}, "
                  "{method}, {path}, {dir}, {protocol}, {status}, {referer} "
                  "and {agent}",
                  (int)len, word);
    return NULL;
}

int weir_replay_key_parse(const char *text, struct weir_replay_key *out)
{
    *out = (struct weir_replay_key){ .count = 0 };
    if (!text[0])
        return weir_cli_fail("--key: write the name that a request asks for, "
                             "for example '{client}/{method}'");
    while (*text) {
        if (out->count == WEIR_REPLAY_PARTS_MAX)
            return weir_cli_fail("--key: too many parts");
        size_t len = strcspn(text, "{");
        if (len > 0) {
            out->parts[out->count++].literal = (struct weir_text){ text, len };
            text += len;
            continue;
        }
        len = strcspn(text, "}");
        if (!text[len])
            return weir_cli_fail("--key: a { without its }");
        const struct weir_replay_field *field =
            find_log_field(text + 1, len - 1);
        if (!field)
            return WEIR_EXIT_ERROR;
        out->parts[out->count++].field = field;
        text += len + 1;
    }
    return 0;
}

/* Writes a line's name to 'buf' (WEIR_NAME_MAX bytes). Returns its length, or
 * WEIR_ENAME: it would be empty or too long. */
static int make_name(const struct weir_replay_key *key,
                     struct weir_log_line *line, char *buf)
{
    size_t len = 0;
    for (size_t i = 0; i < key->count; i++) {
        const struct weir_replay_field *field = key->parts[i].field;
        struct weir_text text =
            field ? *field_text(line, field) : key->parts[i].literal;
        if (field && field->part)
            text = field->part(text);
        if (len + text.len > WEIR_NAME_MAX)
            return WEIR_ENAME;
        if (text.len > 0)
            memcpy(buf + len, text.p, text.len);
        len += text.len;
    }
    return len > 0 ? (int)len : WEIR_ENAME;
}

/* ---- A line that is a JSON object ---- */

/* The value in the object itself, or in its "request" (Caddy). */
static json_t *json_field(const json_t *object, const char *const *names)
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
    json_t *found = json_field(object, names);
    if (!json_is_string(found))
        return (struct weir_text){ 0 };
    return (struct weir_text){ json_string_value(found),
                               json_string_length(found) };
}

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

/* Makes a number a text, which lives with the object. */
static void write_out_status(json_t *object, const char *const *names)
{
    char digits[24];
    json_t *found = json_field(object, names);
    if (!json_is_integer(found))
        return;
    snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT,
             json_integer_value(found));
    json_object_set_new(object, names[0], json_string(digits));
}

static uint64_t bytes_of(const json_t *object)
{
    json_t *found = json_field(object, bytes_names);
    if (json_is_string(found)) {
        const char *from = json_string_value(found);
        return *from >= '0' && *from <= '9' ? strtoull(from, NULL, 10) : 0;
    }
    double bytes = json_number_value(found);
    if (!(bytes > 0))
        return 0;
    return bytes < BYTES_BELOW ? (uint64_t)bytes : UINT64_MAX;
}

/* As weir_log_line_begin() and _end(). Texts live as long as '*out_object',
 * a new reference. '*out_part_ns' is the part of a second. */
static const char *parse_json(struct weir_text text, struct weir_log_line *out,
                              json_t **out_object, uint32_t *out_part_ns)
{
    json_t *object = json_loadb(text.p, text.len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        return "no JSON object";
    }
    *out_object = object;
    *out = (struct weir_log_line){ .bytes = bytes_of(object) };
    for (size_t i = 0; i < WEIR_COUNT_OF(fields); i++) {
        if (strcmp(fields[i].word, "status") == 0)
            write_out_status(object, fields[i].names);
        if (fields[i].names[0])
            *field_text(out, &fields[i]) = json_text(object, fields[i].names);
    }
    if (out->client.len == 0)
        return "no client: none of client, remote_addr, client_ip, "
               "remote_ip, ip";
    if (!read_json_time(json_field(object, time_names), &out->at, out_part_ns))
        return "no time that can be read: none of time, @timestamp, "
               "timestamp, ts, time_local, msec";
    return NULL;
}

/* ---- Texts by number ---- */

uint32_t weir_replay_intern(struct weir_replay_texts *texts,
                            struct weir_text text, bool *out_new)
{
    uint64_t hash = weir_hash(text, 0);
    size_t cursor = 0;
    uint32_t at;
    *out_new = false;
    while (weir_index_find(&texts->index, hash, &cursor, &at))
        if (weir_text_equal(texts->items[at], text))
            return at;
    if (texts->count == WEIR_REPLAY_TEXTS_MAX)
        return UINT32_MAX;
    at = texts->count++;
    texts->items = weir_must_grow(texts->items, &texts->capacity, texts->count,
                                  sizeof *texts->items);
    texts->items[at] = (struct weir_text){ weir_must_text(text), text.len };
    if (weir_index_add(&texts->index, &weir_mem_system, hash, at) < 0)
        weir_no_memory();
    *out_new = true;
    return at;
}

static void forget_last(struct weir_replay_texts *texts)
{
    weir_assert(texts->count > 0);
    struct weir_text last = texts->items[--texts->count];
    weir_index_remove(&texts->index, weir_hash(last, 0), texts->count);
    free((char *)last.p);
}

void weir_replay_texts_fini(struct weir_replay_texts *texts)
{
    for (uint32_t i = 0; i < texts->count; i++)
        free((char *)texts->items[i].p);
    free(texts->items);
    weir_index_fini(&texts->index, &weir_mem_system);
}

/* ---- Lines ---- */

struct reader {
    struct weir_replay_log *log;
    const char *path;
    uint64_t line;
    struct weir_log_clock clock;
    bool skipping; /* the rest of a line that is too long */
};

static void note_bad(struct reader *reader, struct weir_text line,
                     const char *why)
{
    struct weir_replay_log *log = reader->log;
    if (log->bad++ >= WEIR_REPLAY_BAD_SHOWN)
        return;
    size_t place = (size_t)log->bad - 1;
    size_t most = sizeof log->shown[place].text - 1;
    size_t len = line.len < most ? line.len : most;
    log->shown[place].file = reader->path;
    log->shown[place].line = reader->line;
    log->shown[place].why = why;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)line.p[i];
        log->shown[place].text[i] = c < ' ' || c > '~' ? '?' : (char)c;
    }
    log->shown[place].text[len] = '\0';
}

/* Numbers the name and the client. NULL, or why not. */
static const char *intern(struct weir_replay_log *log,
                          struct weir_log_line *line,
                          struct weir_replay_request *out)
{
    char name[WEIR_NAME_MAX];
    bool is_new;
    int len = make_name(&log->key, line, name);
    if (len < 0)
        return no_name;
    struct weir_text text = { name, (size_t)len };
    out->key = weir_replay_intern(&log->keys, text, &is_new);
    if (is_new &&
        (weir_name_check(text, NULL) < 0 || weir_name_is_shadow(text))) {
        forget_last(&log->keys);
        return no_name;
    }
    out->client = weir_replay_intern(&log->clients, line->client, &is_new);
    return out->key == UINT32_MAX || out->client == UINT32_MAX ? too_many
                                                               : NULL;
}

static const char *add_request(struct weir_replay_log *log,
                               struct weir_log_line *line, uint32_t part_ns)
{
    bool clipped = log->by_bytes && line->bytes > UINT32_MAX;
    struct weir_replay_request request = {
        .at = (uint64_t)line->at * WEIR_SECOND + part_ns,
        .weight = !log->by_bytes ? 1
                  : clipped      ? UINT32_MAX
                                 : (uint32_t)line->bytes,
    };
    if (line->at > INT64_MAX / (int64_t)WEIR_SECOND)
        return "a time that is too far away";
    const char *why = intern(log, line, &request);
    if (why)
        return why;
    if (log->count == REQUESTS_MAX)
        return "more than two hundred million requests";
    log->fine = log->fine || part_ns > 0;
    log->clipped += clipped;
    log->requests = weir_must_grow(log->requests, &log->capacity,
                                   log->count + 1, sizeof *log->requests);
    log->requests[log->count++] = request;
    return NULL;
}

static const char *read_json(struct weir_replay_log *log, struct weir_text text)
{
    struct weir_log_line line;
    json_t *object = NULL;
    uint32_t part_ns = 0;
    const char *why = parse_json(text, &line, &object, &part_ns);
    why = why ? why : add_request(log, &line, part_ns);
    json_decref(object);
    return why;
}

/* "www.example.org:443 ", which Apache's vhost_combined begins with. */
static bool skip_host(struct weir_text *line)
{
    const char *blank = memchr(line->p, ' ', line->len);
    if (!blank || blank == line->p)
        return false;
    line->len -= (size_t)(blank + 1 - line->p);
    line->p = blank + 1;
    return true;
}

static const char *read_combined(struct reader *reader, struct weir_text text)
{
    struct weir_log_line line;
    struct weir_text rest = text;
    if (reader->log->format == WEIR_REPLAY_VHOST && !skip_host(&rest))
        return "no host and port before the client";
    const char *why = weir_log_line_begin(rest, &reader->clock, &line);
    why = why ? why : weir_log_line_end(&line);
    return why ? why : add_request(reader->log, &line, 0);
}

static void read_replay_line(struct reader *reader, struct weir_text text)
{
    struct weir_replay_log *log = reader->log;
    reader->line++;
    if (text.len > 0 && text.p[text.len - 1] == '\r')
        text.len--;
    if (text.len == 0)
        return;
    log->lines++;
    bool json = log->format == WEIR_REPLAY_JSON ||
                (log->format == WEIR_REPLAY_ANY && text.p[0] == '{');
    const char *why = text.len > LOG_LINE_MAX ? too_long
                      : json                  ? read_json(log, text)
                                              : read_combined(reader, text);
    if (why)
        note_bad(reader, text, why);
}

/* Reads the whole lines of 'piece'; returns the bytes of the last part. */
static size_t read_replay_lines(struct reader *reader, const char *piece,
                                size_t len)
{
    const char *at = piece;
    const char *end = piece + len;
    for (;;) {
        const char *feed = memchr(at, '\n', (size_t)(end - at));
        if (!feed)
            return (size_t)(end - at);
        if (!reader->skipping)
            read_replay_line(reader,
                             (struct weir_text){ at, (size_t)(feed - at) });
        reader->skipping = false;
        at = feed + 1;
    }
}

/* Handles a part of a line that won't fit: reported once, and dropped. */
static size_t keep_piece(struct reader *reader, char *buf, const char *from,
                         size_t len)
{
    weir_assert(from >= buf);
    if (len <= LOG_LINE_MAX && !reader->skipping) {
        memmove(buf, from, len);
        return len;
    }
    if (!reader->skipping)
        read_replay_line(reader, (struct weir_text){ from, len });
    reader->skipping = true;
    return 0;
}

static int read_log_file(struct reader *reader, gzFile file)
{
    char *buf = weir_must(malloc(LOG_LINE_MAX + PIECE));
    size_t held = 0;
    int got;
    for (;;) {
        got = gzread(file, buf + held, PIECE);
        if (got <= 0)
            break;
        size_t len = held + (size_t)got;
        size_t rest = read_replay_lines(reader, buf, len);
        held = keep_piece(reader, buf, buf + len - rest, rest);
    }
    if (held > 0 && !reader->skipping)
        read_replay_line(reader, (struct weir_text){ buf, held });
    free(buf);
    int why;
    const char *text = gzerror(file, &why);
    if (got == 0 && (why == Z_OK || why == Z_STREAM_END))
        return 0;
    return weir_cli_fail("%s: after %" PRIu64 " lines: %s", reader->path,
                         reader->line, why == Z_ERRNO ? strerror(errno) : text);
}

int weir_replay_read(struct weir_replay_log *log, const char *path)
{
    bool standard = strcmp(path, "-") == 0;
    struct reader reader = { .log = log,
                             .path = standard ? "standard input" : path };
    int fd = standard ? dup(STDIN_FILENO) : -1;
    errno = 0;
    gzFile file = standard ? gzdopen(fd, "rb") : gzopen(path, "rbe");
    if (!file)
        return weir_cli_fail("%s: %s", reader.path,
                             errno ? strerror(errno) : "no memory");
    gzbuffer(file, PIECE / 4);
    int status = read_log_file(&reader, file);
    gzclose(file);
    return status;
}

/* ---- Time ---- */

static bool is_sorted(const struct weir_replay_log *log, weir_instant *out_min,
                      weir_instant *out_max)
{
    weir_assert(log->count > 0);
    bool sorted = true;
    *out_min = *out_max = log->requests[0].at;
    for (size_t i = 1; i < log->count; i++) {
        weir_instant at = log->requests[i].at;
        sorted = sorted && at >= log->requests[i - 1].at;
        *out_min = at < *out_min ? at : *out_min;
        *out_max = at > *out_max ? at : *out_max;
    }
    return sorted;
}

/* One digit of a stable sort from the lowest up. */
static void sort_digit(const struct weir_replay_request *from,
                       struct weir_replay_request *to, size_t count,
                       weir_instant min, uint64_t unit, unsigned shift)
{
    size_t places[DIGITS + 1] = { 0 };
    for (size_t i = 0; i < count; i++)
        places[(((from[i].at - min) / unit >> shift) & (DIGITS - 1)) + 1]++;
    for (size_t i = 0; i < DIGITS; i++)
        places[i + 1] += places[i];
    for (size_t i = 0; i < count; i++)
        to[places[((from[i].at - min) / unit >> shift) & (DIGITS - 1)]++] =
            from[i];
}

static void sort_replay_log(struct weir_replay_log *log)
{
    weir_instant min, max;
    if (is_sorted(log, &min, &max))
        return;
    uint64_t unit = log->fine ? 1 : WEIR_SECOND;
    weir_assert(min <= max);
    struct weir_replay_request *spare =
        weir_must_zeroed(log->count, sizeof *spare);
    /* Nanoseconds of a few hundred years fill all 64 bits. */
    for (unsigned shift = 0; shift < 64 && (max - min) / unit >> shift > 0;
         shift += DIGIT_BITS) {
        sort_digit(log->requests, spare, log->count, min, unit, shift);
        struct weir_replay_request *sorted = spare;
        spare = log->requests;
        log->requests = sorted;
    }
    free(spare);
    log->capacity = log->count;
}

/* The n requests of one second come 1/n of a second after each other. */
static void spread_replay_log(struct weir_replay_log *log)
{
    size_t end;
    for (size_t begin = 0; begin < log->count; begin = end) {
        weir_instant second = log->requests[begin].at;
        end = begin;
        while (end < log->count && log->requests[end].at == second)
            end++;
        for (size_t i = begin; i < end; i++)
            log->requests[i].at =
                second + (i - begin) * WEIR_SECOND / (end - begin);
    }
}

static int refuse_replay_log(const struct weir_replay_log *log)
{
    if (log->bad == 0)
        return weir_cli_fail("there is no line in the input");
    return weir_cli_fail("this is no access log: of %" PRIu64 " lines none "
                         "can be read. %s:%" PRIu64 ": %s\n    %s",
                         log->lines, log->shown[0].file, log->shown[0].line,
                         log->shown[0].why, log->shown[0].text);
}

int weir_replay_sort(struct weir_replay_log *log)
{
    if (log->count == 0)
        return refuse_replay_log(log);
    sort_replay_log(log);
    if (!log->fine)
        spread_replay_log(log);
    return 0;
}

void weir_replay_log_fini(struct weir_replay_log *log)
{
    free(log->requests);
    weir_replay_texts_fini(&log->keys);
    weir_replay_texts_fini(&log->clients);
}
