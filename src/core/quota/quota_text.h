/* SPDX-License-Identifier: MIT
 * quota/quota_text.h - small writers and readers of text, without stdio. */

#ifndef WEIR_QUOTA_TEXT_H
#define WEIR_QUOTA_TEXT_H

#include "core/base/base.h"

/* A buffer that is written from left to right; text beyond 'size' is dropped
 * silently. */
struct weir_out {
    char *buf;
    size_t size;
    size_t len;
};
void weir_out_text(struct weir_out *out, struct weir_text text);
void weir_out_string(struct weir_out *out, const char *text);
void weir_out_number(struct weir_out *out, uint64_t number);
void weir_out_signed(struct weir_out *out, int64_t number);

/* Quotes a text for a message: 'like this', control and broken bytes as '?',
 * cut with "..." when it is long. 'buf' holds WEIR_SHOW_MAX bytes. Returns
 * 'buf', NUL-terminated. */
#define WEIR_SHOW_MAX 112
const char *weir_text_show(struct weir_text text, char *buf);

/* "1234" with a NUL; 'buf' holds WEIR_NUMBER_MAX bytes. Returns 'buf'. */
#define WEIR_NUMBER_MAX 21
const char *weir_number_show(uint64_t number, char *buf);

/* The text behind the first 'len' bytes, <= text.len. An absent text has the
 * pointer NULL and stays absent: NULL + 0 is undefined in C. */
static inline struct weir_text weir_text_drop(struct weir_text text, size_t len)
{
    weir_assert(len <= text.len);
    if (len > 0)
        text.p += len;
    text.len -= len;
    return text;
}

/* Cuts the text before the first 'c' off '*rest', or all of it if there is
 * none. '*rest' is then the text behind that 'c', or absent, with the pointer
 * NULL. */
struct weir_text weir_text_cut(struct weir_text *rest, char c);
bool weir_text_has(struct weir_text text, char c);
bool weir_text_begins(struct weir_text text, struct weir_text with);

/* The text without the blanks at both ends. */
struct weir_text weir_text_trim(struct weir_text text);

/* Decimal digits and nothing else, within 64 bits. */
bool weir_number_parse(struct weir_text text, uint64_t *out_number);
/* The same, with a '-' before them or not. */
bool weir_signed_parse(struct weir_text text, int64_t *out_number);

/* The length of the UTF-8 sequence at the start of 'text', and its
 * character; 0 when it is broken, overlong, a surrogate or past U+10FFFF. */
size_t weir_utf8_next(struct weir_text text, uint32_t *out_character);

/* The offset of the first byte that isn't clean: broken UTF-8, or a control
 * character that isn't among 'allowed'; text.len when all is clean. */
size_t weir_utf8_clean(struct weir_text text, const char *allowed);

#endif /* WEIR_QUOTA_TEXT_H */
