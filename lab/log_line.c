/* SPDX-License-Identifier: MIT
 * lab/log_line.c - one line of an access log; see log_line.h.
 *
 * The target is a million lines a second, so each byte is read once or twice:
 * memchr() finds the ends of words, and a date is computed once a minute. */

#include "lab/log_line.h"

#include <string.h>
#include <time.h>

#define MINUTE_BYTES 17 /* 17/May/2015:10:05 */
#define ZONE_BYTES 5    /* +0000 */
#define TIME_BYTES 26   /* 17/May/2015:10:05:03 +0000 */

static const char no_client[] =
    "a line of an access log begins with the client's address";
static const char no_user[] =
    "not client, ident and user before the time; where a host with its port "
    "comes first, `weir replay --format vhost` reads it";
static const char no_time[] = "no time like [17/May/2015:10:05:03 +0000]; "
                              "common and combined log format are read";
static const char no_request[] =
    "no request in quotes behind the time, like \"GET / HTTP/1.1\"";
static const char no_status[] = "no status and size behind the request";

/* ---- Time ---- */

static bool read_digits(const char *p, size_t len, int *out)
{
    int value = 0;
    for (size_t i = 0; i < len; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        value = 10 * value + (p[i] - '0');
    }
    *out = value;
    return true;
}

static bool read_month(const char *p, int *out)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (int i = 0; i < 12; i++) {
        if (memcmp(p, months + 3 * i, 3) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool read_log_zone(const char *p, int64_t *out_east)
{
    int hours, minutes;
    if ((p[0] != '+' && p[0] != '-') || !read_digits(p + 1, 2, &hours) ||
        !read_digits(p + 3, 2, &minutes))
        return false;
    int64_t east = hours * 3600 + minutes * 60;
    *out_east = p[0] == '-' ? -east : east;
    return true;
}

/* "17/May/2015:10:05:03 +0000", up to the minute. */
static bool read_minute(const char *p, int64_t *out)
{
    struct tm tm = { 0 };
    int64_t east;
    bool sound = read_digits(p, 2, &tm.tm_mday) && p[2] == '/' &&
                 read_month(p + 3, &tm.tm_mon) && p[6] == '/' &&
                 read_digits(p + 7, 4, &tm.tm_year) && p[11] == ':' &&
                 read_digits(p + 12, 2, &tm.tm_hour) && p[14] == ':' &&
                 read_digits(p + 15, 2, &tm.tm_min) &&
                 read_log_zone(p + 21, &east);
    if (!sound || tm.tm_year < 1970 || tm.tm_mday < 1 || tm.tm_mday > 31 ||
        tm.tm_hour > 23 || tm.tm_min > 59)
        return false;
    tm.tm_year -= 1900;
    int64_t at = (int64_t)timegm(&tm) - east;
    if (at < 0)
        return false;
    *out = at;
    return true;
}

static bool read_clock_time(const char *p, struct weir_log_clock *clock,
                            int64_t *out)
{
    const char *zone = p + TIME_BYTES - ZONE_BYTES;
    int second;
    bool known = clock->text[0] != '\0';
    if (p[MINUTE_BYTES] != ':' || p[MINUTE_BYTES + 3] != ' ' ||
        !read_digits(p + MINUTE_BYTES + 1, 2, &second) || second > 60)
        return false;
    if (!known || memcmp(p, clock->text, MINUTE_BYTES) != 0 ||
        memcmp(zone, clock->text + MINUTE_BYTES, ZONE_BYTES) != 0) {
        if (!read_minute(p, &clock->at))
            return false;
        memcpy(clock->text, p, MINUTE_BYTES);
        memcpy(clock->text + MINUTE_BYTES, zone, ZONE_BYTES);
    }
    *out = clock->at + second;
    return true;
}

/* ---- Words ---- */

/* Takes the bytes before 'end', and 'end' itself, off 'rest'. */
static bool cut_field(struct weir_text *rest, char end, struct weir_text *out)
{
    const char *found = rest->len > 0 ? memchr(rest->p, end, rest->len) : NULL;
    if (!found)
        return false;
    *out = (struct weir_text){ rest->p, (size_t)(found - rest->p) };
    rest->p = found + 1;
    rest->len -= out->len + 1;
    return true;
}

/* The same for a quoted text, in which \" is a quote. */
static bool cut_quoted_field(struct weir_text *rest, struct weir_text *out)
{
    size_t at = 0;
    while (at < rest->len && rest->p[at] == ' ')
        at++;
    if (at == rest->len || rest->p[at] != '"')
        return false;
    size_t begin = ++at;
    for (;;) {
        const char *found = memchr(rest->p + at, '"', rest->len - at);
        if (!found)
            return false;
        at = (size_t)(found - rest->p) + 1;
        if (found[-1] != '\\')
            break;
    }
    *out = (struct weir_text){ rest->p + begin, at - 1 - begin };
    rest->p += at;
    rest->len -= at;
    return true;
}

/* "- ann ": the second of two words. With any other number of words the line's
 * first word may not be the client. */
static bool read_user(struct weir_text text, struct weir_text *out)
{
    struct weir_text ident, user;
    if (!cut_field(&text, ' ', &ident) || !cut_field(&text, ' ', &user) ||
        ident.len == 0 || user.len == 0 || text.len > 0)
        return false;
    *out = user;
    return true;
}

const char *weir_log_line_begin(struct weir_text line,
                                struct weir_log_clock *clock,
                                struct weir_log_line *out)
{
    struct weir_text rest = line;
    struct weir_text ident;
    if (!cut_field(&rest, ' ', &out->client) || out->client.len == 0 ||
        out->client.len > WEIR_NAME_MAX / 2)
        return no_client;
    if (!cut_field(&rest, '[', &ident) || rest.len < TIME_BYTES + 1 ||
        rest.p[TIME_BYTES] != ']' || !read_clock_time(rest.p, clock, &out->at))
        return no_time;
    if (!read_user(ident, &out->user))
        return no_user;
    out->rest = (struct weir_text){ rest.p + TIME_BYTES + 1,
                                    rest.len - TIME_BYTES - 1 };
    return NULL;
}

static void split_request(struct weir_text request, struct weir_log_line *out)
{
    out->method = WEIR_TEXT("-");
    out->path = (struct weir_text){ 0 };
    out->protocol = (struct weir_text){ 0 };
    struct weir_text method;
    if (!cut_field(&request, ' ', &method) || method.len == 0)
        return;
    out->method = method;
    if (!cut_field(&request, ' ', &out->path))
        out->path = request;
    else
        out->protocol = request;
}

static uint64_t read_bytes(struct weir_text text)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] < '0' || text.p[i] > '9' || bytes > UINT64_MAX / 16)
            return 0;
        bytes = 10 * bytes + (uint64_t)(text.p[i] - '0');
    }
    return bytes;
}

const char *weir_log_line_end(struct weir_log_line *line)
{
    struct weir_text rest = line->rest;
    struct weir_text request, size;
    if (!cut_quoted_field(&rest, &request))
        return no_request;
    split_request(request, line);
    if (rest.len < 2 || rest.p[0] != ' ')
        return no_status;
    rest.p++;
    rest.len--;
    if (!cut_field(&rest, ' ', &line->status) || line->status.len != 3)
        return no_status;
    if (!cut_field(&rest, ' ', &size)) {
        size = rest;
        rest.len = 0;
    }
    if (size.len == 0 ||
        (size.p[0] != '-' && (size.p[0] < '0' || size.p[0] > '9')))
        return no_status;
    line->bytes = read_bytes(size);
    line->referer = line->agent = (struct weir_text){ 0 };
    if (rest.len > 0 && cut_quoted_field(&rest, &line->referer))
        (void)cut_quoted_field(&rest, &line->agent);
    return NULL;
}
