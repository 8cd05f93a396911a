/* SPDX-License-Identifier: MIT
 * codec/resp.c - arrays of bulk strings, or a line of words.
 *
 * An incomplete request is decoded again from its first byte when more bytes
 * have come. That costs some sixty steps, because its strings are skipped, and
 * needs no state between two reads.
 *
 * A command of six words and its reply of five numbers are a dozen numbers to
 * read and six to write, once two thirds of the cost of a decision. Therefore
 * lengths of one or two digits have a fast path, and numbers are written two
 * digits at a time. */

#include "codec/resp.h"

#include <string.h>
#include <strings.h>

#define NUMBER_MAX 20 /* bytes of a 64-bit number */
#define SHORT_LINE 5  /* bytes of "$12\r\n" */
#define DIGITS_MAX 19 /* digits of a number, leading zeros included */

struct cursor {
    const char *p, *end;
    bool is_short; /* the bytes ended too early */
    const char *error;
};

static int fail_request(struct cursor *cursor, const char *error)
{
    cursor->error = error;
    return -1;
}

/* ---- Numbers ---- */

bool weir_resp_number(struct weir_text text, int64_t *out)
{
    bool is_negative = text.len > 0 && text.p[0] == '-';
    const char *at = text.p + is_negative;
    const char *end = text.p + text.len;
    uint64_t value = 0;
    /* 19 digits are below 2^64. */
    if (at == end || end - at > DIGITS_MAX)
        return false;
    do {
        unsigned digit = (unsigned)(unsigned char)*at - '0';
        if (digit > 9)
            return false;
        value = value * 10 + digit;
    } while (++at < end);
    if (value > (uint64_t)INT64_MAX + is_negative)
        return false;
    *out = is_negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

/* Whether a number has a zero that says nothing: 00, 01, -0. Redis refuses such
 * a length, and so does hiredis. */
static bool has_idle_zero(struct weir_text number)
{
    size_t sign = number.len > 0 && number.p[0] == '-';
    return number.len > 1 && number.p[sign] == '0';
}

/* The same for a line of one or two digits; false: another line, or an
 * incomplete one. */
static inline bool read_short_count(struct cursor *cursor, int64_t *out)
{
    if (cursor->end - cursor->p < SHORT_LINE)
        return false;
    const unsigned char *at = (const unsigned char *)cursor->p + 1;
    unsigned value = at[0] - (unsigned)'0';
    unsigned digit = at[1] - (unsigned)'0';
    if (value > 9 || (value == 0 && digit <= 9))
        return false;
    if (digit <= 9) {
        value = value * 10 + digit;
        at++;
    }
    if (at[1] != '\r' || at[2] != '\n')
        return false;
    *out = value;
    cursor->p = (const char *)at + 3;
    return true;
}

/* The number of a line, behind its first byte. false: the line is incomplete,
 * or has no number (then 'error' is set). */
static bool read_long_count(struct cursor *cursor, int64_t *out,
                            const char *error)
{
    const char *at = cursor->p + 1;
    const char *begin = at;
    bool is_near = cursor->end - at > NUMBER_MAX;
    const char *most = is_near ? at + NUMBER_MAX + 1 : cursor->end;
    while (at < most && *at != '\r')
        at++;
    cursor->is_short = at + 2 > cursor->end && !(is_near && at == most);
    if (cursor->is_short)
        return false;
    struct weir_text digits = { begin, (size_t)(at - begin) };
    if (at == most || at[1] != '\n' || has_idle_zero(digits) ||
        !weir_resp_number(digits, out)) {
        fail_request(cursor, error);
        return false;
    }
    cursor->p = at + 2;
    return true;
}

static inline bool read_count(struct cursor *cursor, int64_t *out,
                              const char *error)
{
    return read_short_count(cursor, out) || read_long_count(cursor, out, error);
}

/* ---- Arrays ---- */

static int read_bulk(struct cursor *cursor, struct weir_text *out)
{
    int64_t len;
    if (cursor->p == cursor->end) {
        cursor->is_short = true;
        return 0;
    }
    if (*cursor->p != '$')
        return fail_request(cursor, "Protocol error: expected '$'");
    if (!read_count(cursor, &len, "Protocol error: invalid bulk length"))
        return cursor->error ? -1 : 0;
    if (len < 0 || len > WEIR_RESP_REQUEST_MAX)
        return fail_request(cursor, "Protocol error: invalid bulk length");
    cursor->is_short = cursor->end - cursor->p < len + 2;
    if (cursor->is_short)
        return 0;
    *out = (struct weir_text){ cursor->p, (size_t)len };
    if (cursor->p[len] != '\r' || cursor->p[len + 1] != '\n')
        return fail_request(cursor,
                            "Protocol error: expected the end of a string");
    cursor->p += len + 2;
    return 1;
}

static int read_array(struct cursor *cursor, struct weir_resp_request *out)
{
    int64_t count;
    if (!read_count(cursor, &count, "Protocol error: invalid multibulk length"))
        return cursor->error ? -1 : 0;
    if (count > WEIR_RESP_ARGUMENTS_MAX)
        return fail_request(cursor, "Protocol error: invalid multibulk length");
    out->count = 0;
    for (int64_t i = 0; i < count; i++) {
        int whole = read_bulk(cursor, &out->argument[out->count]);
        if (whole <= 0)
            return whole;
        out->count++;
    }
    return 1;
}

/* ---- Lines ---- */

static bool is_inline_blank(char c)
{
    return c == ' ' || c == '\t';
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of a quoted word, which may be escaped. */
static char unescape_inline(struct cursor *line)
{
    static const char from[] = "nrtba";
    static const char to[] = "\n\r\t\b\a";
    char c = *line->p++;
    if (c != '\\' || line->p == line->end)
        return c;
    c = *line->p++;
    if (c == 'x' && line->end - line->p >= 2 && nibble(line->p[0]) >= 0 &&
        nibble(line->p[1]) >= 0) {
        c = (char)(nibble(line->p[0]) * 16 + nibble(line->p[1]));
        line->p += 2;
        return c;
    }
    const char *known = c ? strchr(from, c) : NULL;
    return known ? to[known - from] : c;
}

/* The rest of a quoted word, behind its opening quote; '*at' is where to write
 * it. False: no closing quote, or no blank after it. */
static bool read_quoted(struct cursor *line, char quote, char **at)
{
    while (line->p < line->end && *line->p != quote) {
        bool is_quote = quote == '\'' && line->end - line->p >= 2 &&
                        memcmp(line->p, "\\'", 2) == 0;
        if (quote == '"')
            *(*at)++ = unescape_inline(line);
        else
            *(*at)++ = line->p[is_quote];
        if (quote == '\'')
            line->p += 1 + is_quote;
    }
    if (line->p == line->end)
        return false;
    line->p++;
    return line->p == line->end || is_inline_blank(*line->p);
}

static bool read_word(struct cursor *line, char **at)
{
    while (line->p < line->end && !is_inline_blank(*line->p)) {
        char c = *line->p++;
        if (c == '"' || c == '\'')
            return read_quoted(line, c, at);
        *(*at)++ = c;
    }
    return true;
}

static int read_inline_words(struct cursor *line, struct weir_resp_request *out)
{
    char *at = out->words;
    for (;;) {
        while (line->p < line->end && is_inline_blank(*line->p))
            line->p++;
        if (line->p == line->end)
            return 1;
        if (out->count == WEIR_RESP_ARGUMENTS_MAX)
            return fail_request(line, "Protocol error: too many words");
        char *begin = at;
        /* A word takes no more bytes than it had in the line. */
        weir_assert((size_t)(at - out->words) < sizeof out->words);
        if (!read_word(line, &at))
            return fail_request(line,
                                "Protocol error: unbalanced quotes in request");
        out->argument[out->count++] =
            (struct weir_text){ begin, (size_t)(at - begin) };
    }
}

/* Whether a line begins an HTTP request or is one of its headers. Any web page
 * can make a browser post to any port: if the first lines were merely unknown
 * commands, the body's lines would be executed. Redis knows such lines by
 * "POST" and "Host:". */
static bool is_http(const char *line, size_t len)
{
    static const char version[] = " HTTP/1.1";
    size_t tail = sizeof version - 1;
    const char *end = line + len;
    if (len > tail && memcmp(end - tail, version, tail - 3) == 0)
        return true;
    size_t word = 0;
    while (word < len && !is_inline_blank(line[word]))
        word++;
    return (word == 4 && strncasecmp(line, "POST", word) == 0) ||
           (word > 1 && line[word - 1] == ':');
}

static int read_resp_line(struct cursor *cursor, struct weir_resp_request *out)
{
    size_t len = (size_t)(cursor->end - cursor->p);
    size_t most = len < WEIR_RESP_INLINE_MAX ? len : WEIR_RESP_INLINE_MAX;
    const char *end = memchr(cursor->p, '\n', most);
    if (!end && len >= WEIR_RESP_INLINE_MAX)
        return fail_request(cursor, "Protocol error: too big inline request");
    cursor->is_short = !end;
    if (!end)
        return 0;
    bool has_return = end > cursor->p && end[-1] == '\r';
    struct cursor line = { .p = cursor->p, .end = end - has_return };
    if (is_http(line.p, (size_t)(line.end - line.p)))
        return fail_request(cursor,
                            "Protocol error: this port doesn't speak HTTP");
    int whole = read_inline_words(&line, out);
    cursor->error = line.error;
    cursor->p = end + 1;
    return whole;
}

int weir_resp_decode(const char *bytes, size_t len,
                     struct weir_resp_request *out, size_t *out_used,
                     const char **out_error)
{
    struct cursor cursor = { .p = bytes, .end = bytes + len };
    out->count = 0;
    if (len == 0)
        return 0;
    int whole = bytes[0] == '*' ? read_array(&cursor, out)
                                : read_resp_line(&cursor, out);
    bool is_long = whole == 1
                       ? (size_t)(cursor.p - bytes) > WEIR_RESP_REQUEST_MAX
                       : whole == 0 && len > WEIR_RESP_REQUEST_MAX;
    if (is_long)
        whole = fail_request(&cursor, "Protocol error: too big request");
    if (whole < 0)
        *out_error = cursor.error;
    if (whole > 0)
        *out_used = (size_t)(cursor.p - bytes);
    return whole;
}

/* ---- Replies ---- */

static char *reserve_resp(struct weir_resp_out *out, size_t len)
{
    weir_assert(out->len <= out->size);
    if (out->full || out->size - out->len < len) {
        out->full = true;
        return NULL;
    }
    char *at = out->p + out->len;
    out->len += len;
    return at;
}

static size_t digits_of(uint64_t value)
{
    size_t count = 1;
    for (; value >= 1000; value /= 1000)
        count += 3;
    return count + (value >= 10) + (value >= 100);
}

/* Writes 'count' digits, exactly as many as 'value' has. */
static void put_digits(char *at, size_t count, uint64_t value)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021"
                                "22232425262728293031323334353637383940414243"
                                "44454647484950515253545556575859606162636465"
                                "66676869707172737475767778798081828384858687"
                                "888990919293949596979899";
    for (; count > 1; count -= 2) {
        memcpy(at + count - 2, pairs + 2 * (value % 100), 2);
        value /= 100;
    }
    if (count == 1)
        *at = (char)('0' + value);
}

/* "Xnumber\r\n". */
static void put_count(struct weir_resp_out *out, char kind, int64_t value)
{
    if (value >= 0 && value <= 9) {
        char *four = reserve_resp(out, 4);
        if (four)
            memcpy(four, (char[]){ kind, (char)('0' + value), '\r', '\n' }, 4);
        return;
    }
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    size_t count = digits_of(rest);
    char *at = reserve_resp(out, count + 3 + (value < 0));
    if (!at)
        return;
    *at++ = kind;
    if (value < 0)
        *at++ = '-';
    put_digits(at, count, rest);
    memcpy(at + count, "\r\n", 2);
}

static void put_line(struct weir_resp_out *out, char kind, const char *text)
{
    size_t len = strlen(text);
    char *at = reserve_resp(out, len + 3);
    if (!at)
        return;
    *at++ = kind;
    for (size_t i = 0; i < len; i++)
        at[i] = (unsigned char)text[i] < ' ' ? ' ' : text[i];
    memcpy(at + len, "\r\n", 2);
}

void weir_resp_integer(struct weir_resp_out *out, int64_t value)
{
    put_count(out, ':', value);
}

void weir_resp_simple(struct weir_resp_out *out, const char *text)
{
    put_line(out, '+', text);
}

void weir_resp_error(struct weir_resp_out *out, const char *text)
{
    put_line(out, '-', text);
}

void weir_resp_bulk(struct weir_resp_out *out, struct weir_text text)
{
    put_count(out, '$', (int64_t)text.len);
    char *at = reserve_resp(out, text.len + 2);
    if (!at)
        return;
    if (text.len > 0)
        memcpy(at, text.p, text.len);
    memcpy(at + text.len, "\r\n", 2);
}

void weir_resp_null(struct weir_resp_out *out)
{
    bool is_new = out->protocol == 3;
    char *at = reserve_resp(out, is_new ? 3 : 5);
    if (at)
        memcpy(at, is_new ? "_\r\n" : "$-1\r\n", is_new ? 3 : 5);
}

void weir_resp_array(struct weir_resp_out *out, size_t count)
{
    put_count(out, '*', (int64_t)count);
}

void weir_resp_map(struct weir_resp_out *out, size_t count)
{
    if (out->protocol == 3)
        put_count(out, '%', (int64_t)count);
    else
        put_count(out, '*', (int64_t)(2 * count));
}
