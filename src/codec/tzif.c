/* SPDX-License-Identifier: MIT
 * codec/tzif.c - a file of the time zone data base (RFC 9636) read for one
 * instant.
 *
 *     header, block with 32-bit times     skipped
 *     header, block with 64-bit times     until the last transition
 *     "\nCET-1CEST,M3.5.0,M10.5.0/3\n"    for ever after (POSIX TZ)
 *
 * Why not the C library: it selects a zone only by the variable TZ, which
 * belongs to the whole process; a library must not change it.
 *
 * The rule at the end gives two transitions a year. Those of the year before,
 * the year and the year after are put in order, and the last one up to 'at'
 * rules. This needs no case for the southern hemisphere, nor for local years
 * that begin in another year of UTC. If two coincide (summer time all year),
 * the later one in that order rules.
 *
 * Source: RFC 9636; the formats are the IETF's and POSIX's, no code was taken.
 * The test compares it with the C library, zone by zone. */

#include "codec/tzif.h"

#include <string.h>

#define HEADER_SIZE 44
#define TIMES_MAX 8192
#define TYPES_MAX 256
#define DAY_S 86400
#define OFFSET_MAX (26 * 3600)
#define TEXT_MAX 256
#define RULE_YEARS 3
#define AT_MIN (-((int64_t)1 << 32)) /* in 1833 */
#define AT_MAX ((int64_t)1 << 38)    /* in 10680 */

/* The bytes that are still to be read. */
struct reader {
    const unsigned char *p;
    size_t len;
};

static uint32_t be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

static int64_t be64(const unsigned char *p)
{
    return (int64_t)((uint64_t)be32(p) << 32 | be32(p + 4));
}

static bool skip_tzif_bytes(struct reader *in, size_t size)
{
    if (size > in->len)
        return false;
    in->p += size;
    in->len -= size;
    return true;
}

/* ---- Blocks ---- */

struct header {
    uint8_t version;
    uint32_t isut, isstd, leap, times, types, chars;
};

static bool take_header(struct reader *in, struct header *out)
{
    const unsigned char *p = in->p;
    if (!skip_tzif_bytes(in, HEADER_SIZE) || memcmp(p, "TZif", 4) != 0)
        return false;
    *out = (struct header){
        .version = p[4],
        .isut = be32(p + 20),
        .isstd = be32(p + 24),
        .leap = be32(p + 28),
        .times = be32(p + 32),
        .types = be32(p + 36),
        .chars = be32(p + 40),
    };
    return out->times <= TIMES_MAX && out->types > 0 &&
           out->types <= TYPES_MAX && out->isut <= TYPES_MAX &&
           out->isstd <= TYPES_MAX && out->leap <= TIMES_MAX &&
           out->chars <= WEIR_TZIF_SIZE_MAX;
}

static size_t block_size(const struct header *header, size_t time_size)
{
    return header->times * (time_size + 1) + header->types * 6 + header->chars +
           header->leap * (time_size + 4) + header->isstd + header->isut;
}

/* The parts of a block that are used here. */
struct block {
    const unsigned char *times;
    const unsigned char *kinds;
    const unsigned char *types;
    uint32_t count;
    uint32_t type_count;
};

static int64_t transition_time(const struct block *block, uint32_t i)
{
    return be64(block->times + 8 * (size_t)i);
}

static bool offset_of_type(const struct block *block, uint8_t type,
                           int32_t *out)
{
    if (type >= block->type_count)
        return false;
    int32_t offset = (int32_t)be32(block->types + 6 * (size_t)type);
    *out = offset;
    return offset >= -OFFSET_MAX && offset <= OFFSET_MAX;
}

/* The span of 'at' according to the transitions. */
static bool look_up_block(const struct block *block, int64_t at,
                          struct weir_tzif_span *out)
{
    uint32_t low = 0; /* the number of transitions up to 'at' */
    uint32_t high = block->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (transition_time(block, middle) <= at)
            low = middle + 1;
        else
            high = middle;
    }
    out->from = low > 0 ? transition_time(block, low - 1) : INT64_MIN;
    out->until = low < block->count ? transition_time(block, low) : INT64_MAX;
    return offset_of_type(block, low > 0 ? block->kinds[low - 1] : 0,
                          &out->offset_s);
}

/* ---- The rule for ever after ---- */

struct date {
    char form; /* 'M', 'J' or 0 */
    int64_t month, week, day;
    int64_t time_s; /* after midnight; may fall on another day */
};

struct rule {
    int32_t standard_s;
    int32_t summer_s;
    bool has_summer;
    struct date start;
    struct date end;
};

static bool take_char(struct reader *in, char c)
{
    if (in->len == 0 || *in->p != (unsigned char)c)
        return false;
    return skip_tzif_bytes(in, 1);
}

static bool take_rule_number(struct reader *in, int64_t max, int64_t *out)
{
    int64_t number = 0;
    size_t digits = 0;
    while (digits < 4 && in->len > 0 && *in->p >= '0' && *in->p <= '9') {
        number = number * 10 + (*in->p - '0');
        digits++;
        skip_tzif_bytes(in, 1);
    }
    *out = number;
    return digits > 0 && number <= max;
}

/* "CET", "<+0330>". */
static bool take_name(struct reader *in)
{
    bool quoted = take_char(in, '<');
    size_t len = 0;
    for (; in->len > 0; len++) {
        unsigned char c = *in->p;
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        bool also = (c >= '0' && c <= '9') || c == '+' || c == '-';
        if (!letter && !(quoted && also))
            break;
        skip_tzif_bytes(in, 1);
    }
    return len >= 3 && (!quoted || take_char(in, '>'));
}

/* "-1", "+5:30", "-167:00:00". */
static bool take_time(struct reader *in, int64_t hours_max, int64_t *out)
{
    bool negative = take_char(in, '-');
    if (!negative)
        take_char(in, '+');
    int64_t hours;
    int64_t minutes = 0;
    int64_t seconds = 0;
    if (!take_rule_number(in, hours_max, &hours))
        return false;
    if (take_char(in, ':') && !take_rule_number(in, 59, &minutes))
        return false;
    if (take_char(in, ':') && !take_rule_number(in, 59, &seconds))
        return false;
    *out = (hours * 60 + minutes) * 60 + seconds;
    if (negative)
        *out = -*out;
    return true;
}

/* POSIX counts hours west of Greenwich. */
static bool take_offset(struct reader *in, int32_t *out)
{
    int64_t west;
    if (!take_time(in, 24, &west))
        return false;
    *out = (int32_t)-west;
    return true;
}

static bool take_date(struct reader *in, struct date *out)
{
    *out = (struct date){ .time_s = 2 * 3600 };
    bool sound;
    if (take_char(in, 'M')) {
        out->form = 'M';
        sound = take_rule_number(in, 12, &out->month) && out->month > 0 &&
                take_char(in, '.') && take_rule_number(in, 5, &out->week) &&
                out->week > 0 && take_char(in, '.') &&
                take_rule_number(in, 6, &out->day);
    } else {
        out->form = take_char(in, 'J') ? 'J' : 0;
        sound = take_rule_number(in, 365, &out->day) &&
                (out->form == 0 || out->day > 0);
    }
    if (sound && take_char(in, '/'))
        sound = take_time(in, 167, &out->time_s);
    return sound;
}

static bool take_rule(struct reader *in, struct rule *out)
{
    *out = (struct rule){ 0 };
    if (!take_name(in) || !take_offset(in, &out->standard_s))
        return false;
    if (in->len == 0)
        return true;
    out->has_summer = true;
    out->summer_s = out->standard_s + 3600;
    if (!take_name(in))
        return false;
    if (in->len > 0 && *in->p != ',' && !take_offset(in, &out->summer_s))
        return false;
    return take_char(in, ',') && take_date(in, &out->start) &&
           take_char(in, ',') && take_date(in, &out->end) && in->len == 0;
}

/* ---- Years ---- */

static bool is_leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Days from 1970-01-01 to the first of the year. */
static int64_t days_before(int64_t year)
{
    int64_t past = year - 1;
    return 365 * (year - 1970) + (past / 4 - past / 100 + past / 400) -
           (1969 / 4 - 1969 / 100 + 1969 / 400);
}

static int64_t year_of(int64_t at)
{
    int64_t year = 1970 + at / (366 * DAY_S) - 2 * (at < 0);
    while (days_before(year + 1) * DAY_S <= at)
        year++;
    return year;
}

/* Day of the year, from 0, of "the week-th day of the month". */
static int64_t day_of_month_rule(const struct date *date, int64_t year)
{
    static const uint16_t before[] = { 0,   31,  59,  90,  120, 151, 181,
                                       212, 243, 273, 304, 334, 365 };
    bool leap = is_leap(year);
    int64_t first = before[date->month - 1] + (leap && date->month > 2);
    int64_t next = before[date->month] + (leap && date->month > 1);
    /* 1970-01-01 was a Thursday. */
    int64_t weekday = (days_before(year) + first + 4) % 7;
    if (weekday < 0)
        weekday += 7;
    int64_t day = first + (date->day - weekday + 7) % 7 + 7 * (date->week - 1);
    return day < next ? day : day - 7;
}

/* Local seconds since 1970 at which the date falls in 'year'. */
static int64_t moment_of(const struct date *date, int64_t year)
{
    int64_t day = date->day;
    if (date->form == 'M')
        day = day_of_month_rule(date, year);
    if (date->form == 'J')
        day = date->day - 1 + (is_leap(year) && date->day > 59);
    return (days_before(year) + day) * DAY_S + date->time_s;
}

struct change {
    int64_t at;
    int32_t offset_s;
};

/* Inserts a change in order of time, behind equal ones. */
static void insert_change(struct change *list, size_t count,
                          struct change change)
{
    size_t i = count;
    for (; i > 0 && list[i - 1].at > change.at; i--)
        list[i] = list[i - 1];
    list[i] = change;
}

static void apply_rule(const struct rule *rule, int64_t at,
                       struct weir_tzif_span *out)
{
    *out = (struct weir_tzif_span){ INT64_MIN, INT64_MAX, rule->standard_s };
    if (!rule->has_summer)
        return;
    struct change list[2 * RULE_YEARS];
    size_t count = 0;
    int64_t first = year_of(at) - 1;
    for (int64_t year = first; year < first + RULE_YEARS; year++) {
        insert_change(
            list, count++,
            (struct change){ moment_of(&rule->start, year) - rule->standard_s,
                             rule->summer_s });
        insert_change(
            list, count++,
            (struct change){ moment_of(&rule->end, year) - rule->summer_s,
                             rule->standard_s });
    }
    weir_assert(count == WEIR_COUNT_OF(list));
    for (size_t i = 0; i < count; i++) {
        if (list[i].at > at) {
            out->until = list[i].at;
            return;
        }
        out->from = list[i].at;
        out->offset_s = list[i].offset_s;
    }
}

/* ---- All of it ---- */

/* The footer: "\n", the rule, "\n". false: it isn't one; out->len 0: there is
 * no rule. */
static bool take_footer(struct reader *in, struct reader *out)
{
    if (!take_char(in, '\n'))
        return false;
    const unsigned char *end =
        in->len > 0 ? memchr(in->p, '\n', in->len) : NULL;
    if (!end || end - in->p > TEXT_MAX)
        return false;
    *out = (struct reader){ in->p, (size_t)(end - in->p) };
    return true;
}

/* The second block, with 64-bit times, and the bytes behind it. */
static bool take_block(struct reader *in, struct block *out)
{
    struct header header;
    if (!take_header(in, &header) || header.version < '2' ||
        !skip_tzif_bytes(in, block_size(&header, 4)) ||
        !take_header(in, &header))
        return false;
    const unsigned char *p = in->p;
    if (!skip_tzif_bytes(in, block_size(&header, 8)))
        return false;
    *out = (struct block){
        .times = p,
        .kinds = p + 8 * (size_t)header.times,
        .types = p + 9 * (size_t)header.times,
        .count = header.times,
        .type_count = header.types,
    };
    return true;
}

int weir_tzif_at(const void *bytes, size_t size, int64_t at,
                 struct weir_tzif_span *out)
{
    struct reader in = { bytes, size };
    struct reader footer;
    struct block block;
    struct weir_tzif_span span;
    if (at < AT_MIN || at > AT_MAX)
        at = at < 0 ? AT_MIN : AT_MAX;
    if (size > WEIR_TZIF_SIZE_MAX || !take_block(&in, &block) ||
        !take_footer(&in, &footer) || !look_up_block(&block, at, &span))
        return WEIR_ESYNTAX;
    if (footer.len > 0 && span.until == INT64_MAX) {
        struct rule rule;
        int64_t last = span.from;
        if (!take_rule(&footer, &rule))
            return WEIR_ESYNTAX;
        apply_rule(&rule, at, &span);
        if (span.from < last)
            span.from = last;
    }
    *out = span;
    return 0;
}
