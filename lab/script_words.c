/* SPDX-License-Identifier: MIT
 * lab/script_words.c - cutting lines into words, and refusing them.
 *
 * A refusal names a column of the file, but a word's bytes may come from a
 * setting, or have lost a backslash. So a word knows how many of its first
 * bytes are the file's own ('plain'): a complaint about byte i of a word points
 * i characters into it, or to the last place that is the file's own. For
 * "rate=$r" that is the dollar sign. */

#include "lab/script_words.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/quota/quota_text.h"
#include "lab/memory.h"

#define SHOWN_LINE_MAX 240 /* bytes of a line that a message shows */

/* ---- Refusing ------------------------------------------------------- */

int weir_script_refuse(struct weir_diag *diag, struct weir_where where,
                       const char *format, ...)
{
    if (!diag)
        return WEIR_ESYNTAX;
    diag->line = where.line;
    diag->column = where.column;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(diag->text, sizeof diag->text, format, arguments);
    va_end(arguments);
    return WEIR_ESYNTAX;
}

/* The number of letters to change from one word to the other, over a single row
 * of the table (Levenshtein). */
static size_t edit_distance(struct weir_text a, const char *b)
{
    enum { WORD_MAX = 48 };
    size_t row[WORD_MAX + 1];
    size_t len = strlen(b);
    if (len > WORD_MAX || a.len > WORD_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= len; j++) {
            size_t least = diagonal + (a.p[i - 1] != b[j - 1]);
            if (row[j] + 1 < least)
                least = row[j] + 1;
            if (row[j - 1] + 1 < least)
                least = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = least;
        }
    }
    return row[len];
}

/* The word of 'words' (until NULL) nearest to 'typed'; NULL if none is near. */
static const char *nearest_word(struct weir_text typed,
                                const char *const *words)
{
    const char *nearest = NULL;
    /* For a word of two letters, or a more distant one, a guess misleads. */
    size_t best = typed.len > 2 ? typed.len / 3 + 2 : 0;
    for (; *words; words++) {
        bool begins = typed.len > 2 && strncmp(typed.p, *words, typed.len) == 0;
        size_t far = begins ? 0 : edit_distance(typed, *words);
        if (far >= best || far >= strlen(*words))
            continue;
        best = far;
        nearest = *words;
    }
    return nearest;
}

int weir_script_unknown(struct weir_diag *diag, const struct weir_word *word,
                        const char *kind, const char *const *words)
{
    const char *nearest = nearest_word(word->text, words);
    if (nearest)
        return weir_script_refuse(diag, word->where,
                                  "there is no %s %s; did you mean '%s'?", kind,
                                  WEIR_SHOWN(word), nearest);
    char list[WEIR_DIAG_MAX] = "";
    size_t len = 0;
    for (size_t i = 0; words[i] && len < sizeof list; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s",
                                i > 0 ? ", " : "", words[i]);
    if (len == 0)
        return weir_script_refuse(diag, word->where,
                                  "there is no %s %s, nor any other", kind,
                                  WEIR_SHOWN(word));
    return weir_script_refuse(diag, word->where,
                              "there is no %s %s; those there are: %s", kind,
                              WEIR_SHOWN(word), list);
}

/* The line of that number in 'text', or an absent one. */
static struct weir_text line_of(struct weir_text text, uint32_t number)
{
    while (number > 1 && text.len > 0) {
        const char *feed = memchr(text.p, '\n', text.len);
        size_t skip = feed ? (size_t)(feed - text.p) + 1 : text.len;
        text.p += skip;
        text.len -= skip;
        number--;
    }
    if (number == 0 || text.len == 0)
        return (struct weir_text){ NULL, 0 };
    const char *feed = memchr(text.p, '\n', text.len);
    text.len = feed ? (size_t)(feed - text.p) : text.len;
    return text;
}

void weir_script_show(const char *path, struct weir_text text,
                      const struct weir_diag *diag, char *buf, size_t size)
{
    int len = snprintf(buf, size, "%s:", path);
    if (diag->line > 0)
        len += snprintf(buf + len, (size_t)len < size ? size - (size_t)len : 0,
                        "%u:%u:", diag->line, diag->column);
    struct weir_out out = { buf, size - 1, strlen(buf) };
    weir_out_string(&out, " ");
    weir_out_string(&out, diag->text);
    weir_out_string(&out, "\n");
    struct weir_text line = line_of(text, diag->line);
    line.len = line.len < SHOWN_LINE_MAX ? line.len : SHOWN_LINE_MAX;
    if (line.len > 0) {
        struct weir_text rest = line;
        weir_out_string(&out, "    ");
        uint32_t character;
        for (size_t n; rest.len > 0; rest.p += n, rest.len -= n) {
            n = weir_utf8_next(rest, &character);
            bool clean = n > 0 && character >= 0x20 && character != 0x7F;
            n = n > 0 ? n : 1;
            weir_out_text(&out, clean ? (struct weir_text){ rest.p, n }
                                      : WEIR_TEXT(" "));
        }
        weir_out_string(&out, "\n    ");
        for (uint32_t i = 1; i < diag->column && i <= line.len; i++)
            weir_out_string(&out, " ");
        weir_out_string(&out, "^\n");
    }
    buf[out.len] = '\0';
}

/* ---- Cutting -------------------------------------------------------- */

/* State of the cut. */
struct cutter {
    struct weir_line *line;
    struct weir_text rest;
    struct weir_where where; /* of its first byte */
    const struct weir_setting *settings;
    size_t setting_count;
    char *bytes; /* of the present word */
    size_t len, capacity;
};

/* Goes past 'count' bytes of the line. */
static void advance_cutter(struct cutter *cutter, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cutter->where.column +=
            ((unsigned char)cutter->rest.p[i] & 0xC0) != 0x80;
    cutter->rest.p += count;
    cutter->rest.len -= count;
}

static bool at_blank(const struct cutter *cutter)
{
    return memchr(" \t\r", cutter->rest.p[0], 3) != NULL;
}

static bool at_end_of_word(const struct cutter *cutter)
{
    return cutter->rest.len == 0 || at_blank(cutter) ||
           cutter->rest.p[0] == ';';
}

static void add_bytes(struct cutter *cutter, const char *bytes, size_t len)
{
    cutter->bytes = weir_must_grow(cutter->bytes, &cutter->capacity,
                                   cutter->len + len + 1, 1);
    memcpy(cutter->bytes + cutter->len, bytes, len);
    cutter->len += len;
}

static bool is_key_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_';
}

/* "key" of "$key…" or "${key}…": its length with '$' and braces, 0 if there is
 * none. */
static size_t key_at(struct weir_text text, struct weir_text *out_key)
{
    bool braced = text.len > 1 && text.p[1] == '{';
    size_t from = braced ? 2 : 1;
    size_t to = from;
    while (to < text.len && is_key_byte(text.p[to]))
        to++;
    bool sound = to > from && (!braced || (to < text.len && text.p[to] == '}'));
    *out_key = (struct weir_text){ text.p + from, to - from };
    return sound ? to + braced : 0;
}

static int refuse_setting_key(struct cutter *cutter, struct weir_text key)
{
    const char **keys = weir_scenario_alloc(
        cutter->line->memory, (cutter->setting_count + 1) * sizeof *keys);
    for (size_t i = 0; i < cutter->setting_count; i++)
        keys[i] = cutter->settings[i].key;
    struct weir_word word = { .text = key, .where = cutter->where };
    return weir_script_unknown(cutter->line->diag, &word, "setting", keys);
}

static int add_setting(struct cutter *cutter)
{
    if (cutter->rest.len > 1 && cutter->rest.p[1] == '$') {
        add_bytes(cutter, "$", 1);
        advance_cutter(cutter, 2);
        return 0;
    }
    struct weir_text key;
    size_t len = key_at(cutter->rest, &key);
    if (len == 0)
        return weir_script_refuse(cutter->line->diag, cutter->where,
                                  "'$' is followed by a setting's name, as "
                                  "in $limiters or ${limiters}; a dollar sign "
                                  "is written $$");
    for (size_t i = 0; i < cutter->setting_count; i++) {
        const struct weir_setting *setting = &cutter->settings[i];
        if (!weir_text_equal(weir_text_of(setting->key), key))
            continue;
        add_bytes(cutter, setting->value, strlen(setting->value));
        advance_cutter(cutter, len);
        return 0;
    }
    return refuse_setting_key(cutter, key);
}

/* Adds one byte of the file, or the value that replaces it, to the word. */
static int add_next(struct cutter *cutter, bool quoted)
{
    const char *p = cutter->rest.p;
    if (*p == '$' && cutter->settings)
        return add_setting(cutter);
    bool escaped = quoted && *p == '\\';
    if (escaped && (cutter->rest.len < 2 || (p[1] != '"' && p[1] != '\\')))
        return weir_script_refuse(
            cutter->line->diag, cutter->where,
            "in quotes a backslash is followed by a quote "
            "or another backslash");
    add_bytes(cutter, p + escaped, 1);
    advance_cutter(cutter, 1 + escaped);
    return 0;
}

static int cut_quoted_word(struct cutter *cutter)
{
    struct weir_where start = cutter->where;
    advance_cutter(cutter, 1);
    while (cutter->rest.len > 0 && cutter->rest.p[0] != '"') {
        int error = add_next(cutter, true);
        if (error < 0)
            return error;
    }
    if (cutter->rest.len == 0)
        return weir_script_refuse(cutter->line->diag, start,
                                  "this quote has "
                                  "no end on its line; put a \" there");
    advance_cutter(cutter, 1);
    return 0;
}

static int cut_word(struct cutter *cutter, struct weir_word *out)
{
    const char *start = cutter->rest.p;
    struct weir_word word = { .where = cutter->where };
    word.quoted = *start == '"';
    cutter->len = 0;
    bool is_sequel = *start == ';';
    if (is_sequel)
        add_bytes(cutter, start, 1);
    advance_cutter(cutter, is_sequel);
    while (!is_sequel && !at_end_of_word(cutter)) {
        int error = cutter->rest.p[0] == '"' ? cut_quoted_word(cutter)
                                             : add_next(cutter, false);
        if (error < 0)
            return error;
    }
    struct weir_text text = { cutter->bytes, cutter->len };
    size_t written = (size_t)(cutter->rest.p - start);
    while (word.plain < text.len && word.plain < written &&
           text.p[word.plain] == start[word.plain] &&
           start[word.plain] != '$' && start[word.plain] != '"')
        word.plain++;
    word.text =
        (struct weir_text){ weir_scenario_text(cutter->line->memory, text),
                            text.len };
    *out = word;
    return 0;
}

static int cut_words(struct cutter *cutter)
{
    struct weir_line *line = cutter->line;
    for (;;) {
        while (cutter->rest.len > 0 && at_blank(cutter))
            advance_cutter(cutter, 1);
        line->end = cutter->where;
        if (cutter->rest.len == 0 || cutter->rest.p[0] == '#')
            return 0;
        if (line->count == WEIR_SCENARIO_WORDS_MAX)
            return weir_script_refuse(line->diag, cutter->where,
                                      "a line has "
                                      "at most %d words; make two of it",
                                      WEIR_SCENARIO_WORDS_MAX);
        line->words = weir_scenario_grow(line->memory, line->words, line->count,
                                         sizeof *line->words);
        int error = cut_word(cutter, &line->words[line->count]);
        if (error < 0)
            return error;
        line->count++;
    }
}

bool weir_line_goes_on(struct weir_text text)
{
    return text.len > 0 && memchr(" \t", text.p[0], 2);
}

int weir_line_cut(struct weir_line *line, const struct weir_text *lines,
                  size_t count, uint32_t number,
                  const struct weir_setting *settings, size_t setting_count)
{
    struct cutter cutter = {
        .line = line,
        .settings = settings,
        .setting_count = setting_count,
    };
    line->words = NULL;
    line->count = line->next = 0;
    int error = 0;
    size_t i = number - 1;
    do {
        cutter.rest = lines[i];
        cutter.where = (struct weir_where){ (uint32_t)i + 1, 1 };
        error = cut_words(&cutter);
        i++;
    } while (error == 0 && i < count && weir_line_goes_on(lines[i]));
    free(cutter.bytes);
    return error;
}

/* ---- Reading -------------------------------------------------------- */

bool weir_word_is(const struct weir_word *word, const char *keyword)
{
    return !word->quoted && weir_text_equal(word->text, weir_text_of(keyword));
}

const struct weir_word *weir_line_peek(const struct weir_line *line)
{
    if (line->next == line->count ||
        weir_word_is(&line->words[line->next], ";"))
        return NULL;
    return &line->words[line->next];
}

const struct weir_word *weir_line_take(struct weir_line *line)
{
    const struct weir_word *word = weir_line_peek(line);
    line->next += word != NULL;
    return word;
}

bool weir_line_keyword(struct weir_line *line, const char *keyword)
{
    const struct weir_word *word = weir_line_peek(line);
    bool is = word && weir_word_is(word, keyword);
    line->next += is;
    return is;
}

static struct weir_where here(const struct weir_line *line)
{
    return line->next < line->count ? line->words[line->next].where : line->end;
}

int weir_line_want(struct weir_line *line, const char *what,
                   const struct weir_word **out)
{
    const struct weir_word *word = weir_line_take(line);
    if (!word)
        return weir_script_refuse(line->diag, here(line),
                                  "something is missing here: %s", what);
    *out = word;
    return 0;
}

int weir_line_end(struct weir_line *line, bool sequel)
{
    bool more = line->next < line->count &&
                !(sequel && weir_word_is(&line->words[line->next], ";"));
    if (!more)
        return 0;
    const struct weir_word *word = &line->words[line->next];
    return weir_script_refuse(line->diag, word->where,
                              "nothing may follow here; take %s away",
                              WEIR_SHOWN(word));
}

struct weir_word weir_word_part(const struct weir_word *word, size_t from,
                                size_t len)
{
    weir_assert(from <= word->text.len);
    struct weir_word part = *word;
    size_t rest = word->text.len - from;
    part.text.p += from;
    part.text.len = len < rest ? len : rest;
    size_t moved = from < word->plain ? from : word->plain;
    for (size_t i = 0; i < moved; i++)
        part.where.column += ((unsigned char)word->text.p[i] & 0xC0) != 0x80;
    part.plain = word->plain - moved;
    return part;
}

bool weir_word_cut(const struct weir_word *word, const char *separator,
                   struct weir_word *out_before, struct weir_word *out_after)
{
    size_t len = strlen(separator);
    size_t at = 0;
    while (at + len <= word->text.len &&
           memcmp(word->text.p + at, separator, len) != 0)
        at++;
    bool found = at + len <= word->text.len;
    struct weir_word whole = *word; /* 'word' may be one of the outputs */
    *out_before = weir_word_part(&whole, 0, found ? at : whole.text.len);
    *out_after =
        weir_word_part(&whole, found ? at + len : whole.text.len, SIZE_MAX);
    return found;
}
