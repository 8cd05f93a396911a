/* SPDX-License-Identifier: MIT
 * lab/script_words.h - a line of a scenario as words with their places in the
 * file, and refusals that name a place.
 *
 * Words are separated by blanks; "…" holds blanks together, in it \" and \\
 * stand for the quote and the backslash; "#" at the start of a word begins a
 * comment; ";" is a word. "$key" and "${key}" are replaced, in quotes too, and
 * the value never splits a word; "$$" is a dollar sign. A line that begins with
 * a blank continues the line above. */

#ifndef WEIR_SCRIPT_WORDS_H
#define WEIR_SCRIPT_WORDS_H

#include "core/quota/quota_text.h"
#include "lab/scenario.h"

/* A word, or a part of one. */
struct weir_word {
    struct weir_text text;   /* with "$key" replaced, quotes taken off */
    struct weir_where where; /* columns count characters, from 1 */
    size_t plain; /* so many bytes at its start are unchanged from the file */
    bool quoted;  /* begins with a quote: never a ';', never a keyword */
};

/* A line, read from left to right. */
struct weir_line {
    struct weir_word *words;
    size_t count, next;
    struct weir_where end;        /* the place of a missing word */
    struct weir_scenario *memory; /* of words cut from it */
    struct weir_diag *diag;
};

/* Whether the line begins with a blank and so continues the one above. */
bool weir_line_goes_on(struct weir_text text);
/* Cuts line 'number' of 'count' 'lines', and the lines that continue it, into
 * words in the memory of line->memory. 'settings' NULL: "$key" stays. 0 or
 * WEIR_ESYNTAX. */
int weir_line_cut(struct weir_line *line, const struct weir_text *lines,
                  size_t count, uint32_t number,
                  const struct weir_setting *settings, size_t setting_count);

/* The next word, not taken; NULL at the end or before a ';'. */
const struct weir_word *weir_line_peek(const struct weir_line *line);
/* Takes the next word; NULL as above. */
const struct weir_word *weir_line_take(struct weir_line *line);
/* Takes the next word if it is that keyword. */
bool weir_line_keyword(struct weir_line *line, const char *keyword);
/* Takes the next word; at the end WEIR_ESYNTAX: "… wants WHAT here". */
int weir_line_want(struct weir_line *line, const char *what,
                   const struct weir_word **out);
/* Refuses further words (but a ';' if 'sequel'). */
int weir_line_end(struct weir_line *line, bool sequel);

/* Whether the word is the keyword. */
bool weir_word_is(const struct weir_word *word, const char *keyword);
/* The part of a word from byte 'from' on, 'len' bytes (at most). */
struct weir_word weir_word_part(const struct weir_word *word, size_t from,
                                size_t len);
/* Cuts at the first 'separator': true if there is one. 'out_after' is the part
 * after it, else empty at the end. */
bool weir_word_cut(const struct weir_word *word, const char *separator,
                   struct weir_word *out_before, struct weir_word *out_after);

/* Fills 'diag' (unless NULL) and returns WEIR_ESYNTAX. */
int weir_script_refuse(struct weir_diag *diag, struct weir_where where,
                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "there is no KIND 'word'; did you mean 'near'?", or the list of all if none
 * is near. */
int weir_script_unknown(struct weir_diag *diag, const struct weir_word *word,
                        const char *kind, const char *const *words);
/* For a message, in a buffer of its own for each use. */
#define WEIR_SHOWN(word) \
    weir_text_show((word)->text, (char[WEIR_SHOW_MAX]){ 0 })

#endif /* WEIR_SCRIPT_WORDS_H */
