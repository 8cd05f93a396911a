/* SPDX-License-Identifier: MIT
 * lab/script_words.h - a line of a scenario as words that know where they
 * stand, and refusals that say so.
 *
 * Words are separated by blanks; "…" holds blanks together, in it \" and \\
 * stand for themselves; "#" at the start of a word begins a comment; ";" is a
 * word. "$key" and "${key}" are replaced, in quotes too, and never make two
 * words of one; "$$" is a dollar sign. A line that begins with a blank goes on
 * with the one above. */

#ifndef WEIR_SCRIPT_WORDS_H
#define WEIR_SCRIPT_WORDS_H

#include "lab/scenario.h"
#include "quota/quota_text.h"

/* Of a word, or of a part of one. */
struct weir_word {
    struct weir_text text;   /* with "$key" replaced, quotes taken off */
    struct weir_where where; /* columns count characters, from 1 */
    size_t plain; /* so many bytes at its start stand in the file like that */
    bool quoted;  /* begins with a quote: never a ';', never a keyword */
};

/* A line, read from left to right. */
struct weir_line {
    struct weir_word *words;
    size_t count, next;
    struct weir_where end;        /* where a missing word would stand */
    struct weir_scenario *memory; /* of what is cut from it */
    struct weir_diag *diag;
};

/* Whether the line goes on with the one above: it begins with a blank. */
bool weir_line_goes_on(struct weir_text text);
/* Cuts the line of that number, of 'count' in 'lines', and those that go on
 * with it into words in the memory of line->memory. 'settings' NULL: "$key"
 * stays. 0 or WEIR_ESYNTAX. */
int weir_line_cut(struct weir_line *line, const struct weir_text *lines,
                  size_t count, uint32_t number,
                  const struct weir_setting *settings, size_t setting_count);

/* The next word, not taken; NULL at the end, or before a ';'. */
const struct weir_word *weir_line_peek(const struct weir_line *line);
/* The same, taken. */
const struct weir_word *weir_line_take(struct weir_line *line);
/* Takes the next word if it is that keyword. */
bool weir_line_keyword(struct weir_line *line, const char *keyword);
/* The next word; at the end WEIR_ESYNTAX: "… wants WHAT here". */
int weir_line_want(struct weir_line *line, const char *what,
                   const struct weir_word **out);
/* Nothing may follow (but a ';', if 'sequel'). */
int weir_line_end(struct weir_line *line, bool sequel);

/* Whether the word is the keyword. */
bool weir_word_is(const struct weir_word *word, const char *keyword);
/* The part of a word from byte 'from' on, 'len' bytes (at most). */
struct weir_word weir_word_part(const struct weir_word *word, size_t from,
                                size_t len);
/* Cuts at the first 'separator': true if there is one. 'out_after' is then
 * what follows it, else empty at the end. */
bool weir_word_cut(const struct weir_word *word, const char *separator,
                   struct weir_word *out_before, struct weir_word *out_after);

/* Fills 'diag' (NULL: not) and returns WEIR_ESYNTAX. */
int weir_script_refuse(struct weir_diag *diag, struct weir_where where,
                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "there is no KIND 'word'; did you mean 'near'?", or the list of all if none
 * is near. */
int weir_script_unknown(struct weir_diag *diag, const struct weir_word *word,
                        const char *kind, const char *const *words);
/* In one of these 'buf's of its own, for a message. */
#define WEIR_SHOWN(word) \
    weir_text_show((word)->text, (char[WEIR_SHOW_MAX]){ 0 })

#endif /* WEIR_SCRIPT_WORDS_H */
