/* SPDX-License-Identifier: MIT
 * quota/quota_text.c - small writers and readers of text, without stdio.
 *
 * The pure modules may not call snprintf(): it reads the locale, may allocate
 * and pulls in all of stdio. Only a few functions are needed instead: append,
 * cut at the end, numbers, and strict decoding of UTF-8 (Unicode 15, table 3-7:
 * a lead byte fixes the range of the second byte, every further one is
 * 80..BF). */

#include "core/quota/quota_text.h"

#include <string.h>

void weir_out_text(struct weir_out *out, struct weir_text text)
{
    weir_assert(out->len <= out->size);
    size_t room = out->size - out->len;
    size_t len = text.len < room ? text.len : room;
    if (len > 0)
        memcpy(out->buf + out->len, text.p, len);
    out->len += len;
    weir_assert(out->len <= out->size);
}

void weir_out_string(struct weir_out *out, const char *text)
{
    weir_out_text(out, weir_text_of(text));
}

void weir_out_number(struct weir_out *out, uint64_t number)
{
    char digits[WEIR_NUMBER_MAX];
    weir_out_string(out, weir_number_show(number, digits));
}

void weir_out_signed(struct weir_out *out, int64_t number)
{
    uint64_t size = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    weir_out_string(out, number < 0 ? "-" : "");
    weir_out_number(out, size);
}

const char *weir_number_show(uint64_t number, char *buf)
{
    size_t digits = 1;
    for (uint64_t rest = number; rest >= 10; rest /= 10)
        digits++;
    weir_assert(digits < WEIR_NUMBER_MAX);
    buf[digits] = '\0';
    for (size_t i = digits; i > 0; i--, number /= 10)
        buf[i - 1] = (char)('0' + number % 10);
    weir_assert(number == 0);
    return buf;
}

/* The range of the second byte excludes overlong forms, surrogates and
 * characters past U+10FFFF. */
static size_t sequence_length(unsigned char lead, unsigned char *out_from,
                              unsigned char *out_to)
{
    *out_from = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *out_to = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF)
        return 3;
    return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

size_t weir_utf8_next(struct weir_text text, uint32_t *out_character)
{
    if (text.len == 0)
        return 0;
    const unsigned char *bytes = (const unsigned char *)text.p;
    unsigned char from;
    unsigned char to;
    size_t length = sequence_length(bytes[0], &from, &to);
    if (length == 0 || length > text.len)
        return 0;
    uint32_t character =
        length == 1 ? bytes[0] : bytes[0] & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if (bytes[i] < from || bytes[i] > to)
            return 0;
        character = character << 6 | (bytes[i] & 0x3F);
        from = 0x80;
        to = 0xBF;
    }
    weir_assert(character <= 0x10FFFF);
    *out_character = character;
    return length;
}

static bool is_control(uint32_t character, const char *allowed)
{
    if (character >= 0x20 && character != 0x7F)
        return character >= 0x80 && character <= 0x9F;
    for (; *allowed != '\0'; allowed++) {
        if ((unsigned char)*allowed == character)
            return false;
    }
    return true;
}

/* The number of bytes at the start that are printable ASCII, in steps of eight
 * if possible: nearly all bytes of a million names are. The highest bit of each
 * byte of a word marks a byte that is not: it was set, or the byte is below
 * 0x20, or 0x7F. */
static size_t plain_prefix(struct weir_text text)
{
    const uint64_t ones = UINT64_MAX / 255;
    size_t at = 0;
    for (; at + 8 <= text.len; at += 8) {
        uint64_t word;
        memcpy(&word, text.p + at, sizeof(word));
        uint64_t below = word - ones * 0x20;
        uint64_t delete = word + ones;
        if ((word | below | delete) & ones * 0x80)
            return at;
    }
    while (at < text.len && text.p[at] >= 0x20 && text.p[at] < 0x7F)
        at++;
    weir_assert(at <= text.len);
    return at;
}

size_t weir_utf8_clean(struct weir_text text, const char *allowed)
{
    size_t at = plain_prefix(text);
    while (at < text.len) {
        uint32_t character;
        size_t length = weir_utf8_next(weir_text_drop(text, at), &character);
        if (length == 0 || is_control(character, allowed))
            return at;
        at += length;
    }
    return at;
}

const char *weir_text_show(struct weir_text text, char *buf)
{
    struct weir_out out = { buf, WEIR_SHOW_MAX - 5, 0 };
    weir_out_string(&out, "'");
    size_t at = 0;
    while (at < text.len) {
        struct weir_text rest = weir_text_drop(text, at);
        uint32_t character;
        size_t length = weir_utf8_next(rest, &character);
        bool clean = length > 0 && !is_control(character, "");
        rest.len = clean ? length : 1;
        if (out.len + rest.len > out.size)
            break;
        weir_out_text(&out, clean ? rest : WEIR_TEXT("?"));
        at += length > 0 ? length : 1;
    }
    out.size = WEIR_SHOW_MAX - 1;
    weir_out_string(&out, at < text.len ? "...'" : "'");
    weir_assert(out.len > 1 && out.len < WEIR_SHOW_MAX);
    buf[out.len] = '\0';
    return buf;
}

struct weir_text weir_text_cut(struct weir_text *rest, char c)
{
    const char *end = rest->len > 0 ? memchr(rest->p, c, rest->len) : NULL;
    size_t len = end ? (size_t)(end - rest->p) : rest->len;
    struct weir_text part = { rest->p, len };
    *rest =
        end ? weir_text_drop(*rest, len + 1) : (struct weir_text){ NULL, 0 };
    weir_assert(!rest->p || part.p + part.len + 1 == rest->p);
    return part;
}

bool weir_text_has(struct weir_text text, char c)
{
    return text.len > 0 && memchr(text.p, c, text.len);
}

bool weir_text_begins(struct weir_text text, struct weir_text with)
{
    return text.len >= with.len &&
           (with.len == 0 || memcmp(text.p, with.p, with.len) == 0);
}

struct weir_text weir_text_trim(struct weir_text text)
{
    while (text.len > 0 && memchr(" \t\r\n", text.p[0], 4))
        text = weir_text_drop(text, 1);
    while (text.len > 0 && memchr(" \t\r\n", text.p[text.len - 1], 4))
        text.len--;
    return text;
}

bool weir_number_parse(struct weir_text text, uint64_t *out_number)
{
    if (text.len == 0)
        return false;
    uint64_t number = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(text.p[i] - '0');
        if (number > (UINT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *out_number = number;
    return true;
}

bool weir_signed_parse(struct weir_text text, int64_t *out_number)
{
    bool negative = text.len > 0 && text.p[0] == '-';
    struct weir_text digits = weir_text_drop(text, negative);
    uint64_t number;
    if (!weir_number_parse(digits, &number) ||
        number > (uint64_t)INT64_MAX + negative)
        return false;
    *out_number = (int64_t)(negative ? 0 - number : number);
    return true;
}
