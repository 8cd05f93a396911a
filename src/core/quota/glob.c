/* SPDX-License-Identifier: MIT
 * quota/glob.c - matching names against templates.
 *
 * Each glob takes the shortest run that lets the rest match, so the text
 * between two globs is simply searched for, left to right. Only the last glob
 * has no choice: the text after it must be at the end of the name.
 *
 *     pattern   s3_ * _put_ * _x          (pieces: "s3_" "_put_" "_x")
 *     name      s3_ a_b _put_ c_x _x
 *               |head   |first find  |tail, pinned to the end
 *
 * Trying each piece only at its first place is enough: a later place would
 * leave a shorter rest, and a match in the shorter rest is a match in the
 * longer one too. There is no backtracking. A backtracking matcher would be
 * exponential in the number of globs unless it kept only the last one, which is
 * the same as this algorithm.
 *
 * Head and tail are compared first: most templates differ from a name there.
 * Only then are the pieces between them searched for, by the algorithm of
 * Baeza-Yates and Gonnet ("A new approach to text searching", 1992): the bits
 * of a word are the places of the piece at which the name may stand. It reads
 * each byte of the name once, in the same time whatever the bytes are: names
 * have up to 64 KiB, and clients choose them. Of a piece of more than 64 bytes
 * it finds the first 64, and the others are compared. Rejected: memmem(), whose
 * worst case in glibc is pattern x name; and the algorithm of Knuth, Morris and
 * Pratt, whose branches a client can make unpredictable: measured on a Xeon, 2
 * to 5 ns a byte.
 *
 * Of templates that match the same name, the one with more literal bytes rules:
 * "api_user_*" before "api_*". Rejected: the template made first. A set that is
 * copied, promoted or undone would then rule differently from its original.
 *
 * Globs work on bytes. This is correct for UTF-8: no character's bytes occur
 * inside another's, so a literal piece is found only at characters. */

#include "core/quota/glob.h"

#include <limits.h>
#include <string.h>

#include "core/quota/quota_text.h"

/* The bytes before the next glob, or all of them. */
static struct weir_text literal(struct weir_text pattern)
{
    return weir_text_cut(&pattern, '*');
}

/* ---- Counted work ---- */

/* Takes 'units' from the work that is left; false: there isn't as much, and
 * then none is left. */
static bool spend(size_t *work, size_t units)
{
    bool enough = units <= *work;
    *work = enough ? *work - units : 0;
    return enough;
}

/* ---- Names ---- */

#define NOT_FOUND SIZE_MAX
#define WINDOW_MAX 64 /* bits of a word */

/* The first offset of 'piece' in 'text', or NOT_FOUND. A byte of 'text' that is
 * read is a unit of work; so is each byte of the piece behind its first
 * WINDOW_MAX that is compared. */
static size_t find_piece(struct weir_text text, struct weir_text piece,
                         size_t *work)
{
    if (piece.len == 0)
        return 0;
    if (piece.len > text.len)
        return NOT_FOUND;
    /* For each byte, the places of the window where it stands. */
    uint64_t places[UCHAR_MAX + 1] = { 0 };
    size_t window = piece.len < WINDOW_MAX ? piece.len : WINDOW_MAX;
    struct weir_text behind = weir_text_drop(piece, window);
    for (size_t i = 0; i < window; i++)
        places[(unsigned char)piece.p[i]] |= UINT64_C(1) << i;
    /* Bit i: the last i + 1 bytes are the first of the window. */
    uint64_t matched = 0;
    size_t end = text.len - behind.len;
    size_t most = end < *work ? end : *work;
    size_t found = NOT_FOUND;
    size_t i = 0;
    while (i < most && found == NOT_FOUND) {
        matched = (matched << 1 | 1) & places[(unsigned char)text.p[i++]];
        if (matched >> (window - 1) == 0)
            continue;
        if (!spend(work, behind.len))
            return NOT_FOUND;
        if (weir_text_begins(weir_text_drop(text, i), behind))
            found = i - window;
    }
    (void)spend(work, i);
    return found;
}

static void keep_run(struct weir_runs *runs, struct weir_text text)
{
    if (runs->count < WEIR_RUNS_MAX)
        runs->text[runs->count++] = text;
}

/* The bytes behind the last glob; all of them if there is none. */
static struct weir_text literal_end(struct weir_text pattern)
{
    size_t len = 0;
    while (len < pattern.len && pattern.p[pattern.len - len - 1] != '*')
        len++;
    return weir_text_drop(pattern, pattern.len - len);
}

/* weir_template_runs_within() of WEIR_GLOB_NAME. */
static bool match_name(struct weir_text pattern, struct weir_text name,
                       struct weir_runs *runs, size_t *work)
{
    runs->count = 0;
    struct weir_text head = literal(pattern);
    struct weir_text tail = literal_end(pattern);
    if (head.len == pattern.len)
        return weir_text_equal(pattern, name);
    if (head.len + tail.len > name.len || !weir_text_begins(name, head) ||
        !weir_text_equal(weir_text_drop(name, name.len - tail.len), tail))
        return false;
    name = weir_text_drop(name, head.len);
    name.len -= tail.len;
    /* At a glob, to the end of the piece behind it. */
    pattern = weir_text_drop(pattern, head.len);
    pattern.len -= tail.len;
    while (pattern.len > 1) {
        struct weir_text piece = literal(weir_text_drop(pattern, 1));
        size_t at = find_piece(name, piece, work);
        if (at == NOT_FOUND)
            return false;
        keep_run(runs, (struct weir_text){ name.p, at });
        pattern = weir_text_drop(pattern, 1 + piece.len);
        name = weir_text_drop(name, at + piece.len);
    }
    keep_run(runs, name);
    weir_assert(runs->count <= WEIR_RUNS_MAX);
    return true;
}

void weir_runs_captures(enum weir_glob glob, const struct weir_runs *runs,
                        struct weir_captures *out)
{
    uint32_t most =
        runs->count < WEIR_CAPTURES_MAX ? runs->count : WEIR_CAPTURES_MAX;
    out->count = glob == WEIR_GLOB_PATH ? 0 : most;
    for (uint32_t i = 0; i < out->count; i++)
        out->text[i] = runs->text[i];
}

bool weir_glob_match(struct weir_text pattern, struct weir_text name,
                     struct weir_captures *captures)
{
    struct weir_runs runs;
    size_t work = SIZE_MAX;
    bool match = match_name(pattern, name, &runs, &work);
    if (match && captures)
        weir_runs_captures(WEIR_GLOB_NAME, &runs, captures);
    return match;
}

int weir_glob_expand_in(struct weir_text pattern,
                        const struct weir_captures *captures, char *buf,
                        size_t size)
{
    struct weir_out out = { buf, size, 0 };
    size_t len = 0;
    size_t at = 0;
    while (at < pattern.len) {
        struct weir_text piece = { pattern.p + at, 1 };
        bool capture = pattern.p[at] == '{' && at + 2 < pattern.len &&
                       pattern.p[at + 2] == '}';
        if (capture) {
            uint32_t index = (uint32_t)(unsigned char)pattern.p[at + 1] - '1';
            if (index >= captures->count)
                return WEIR_ENAME;
            piece = captures->text[index];
        }
        weir_out_text(&out, piece);
        len += piece.len;
        at += capture ? 3 : 1;
    }
    if (len > size)
        return WEIR_ETOOBIG;
    weir_assert(out.len == len);
    return (int)len;
}

int weir_glob_expand(struct weir_text pattern,
                     const struct weir_captures *captures, char *buf)
{
    int len = weir_glob_expand_in(pattern, captures, buf, WEIR_NAME_MAX);
    return len < 0 ? WEIR_ENAME : len;
}

static size_t literals_of(struct weir_text pattern)
{
    size_t count = 0;
    for (size_t i = 0; i < pattern.len; i++)
        count += pattern.p[i] != '*';
    return count;
}

int weir_glob_compare(struct weir_text a, struct weir_text b)
{
    size_t in_a = literals_of(a);
    size_t in_b = literals_of(b);
    if (in_a != in_b)
        return in_a > in_b ? -1 : 1;
    return weir_text_compare(a, b);
}

/* ---- Globs of paths, by the rules of Go's filepath.Match ----
 *
 * A pattern is a sequence of pieces; each piece but the first has a run of
 * stars before it:
 *
 *     db? * [a-c]x / * z        pieces: "db?"  *"[a-c]x/"  *"z"
 *
 * Each step of a piece matches one character of the name, so one pass decides
 * whether it matches at a place. A star takes the shortest run after which its
 * piece matches (the last piece must also end the name), and the run is never
 * changed later. Go does the same, so there is neither recursion nor
 * backtracking: each piece is tried at each byte of the name once, at worst.
 *
 * For nearly all patterns the shortest run is as good as any: a longer run
 * leaves less of the name, and a match in less is a match in more. Two corner
 * cases are kept as in Go, because the files were written for it:
 *   - a class may match '/', which a later star can't pass: "*[^a]*b" does not
 *     match "x/yb", although "x", "/", "y" would match;
 *   - a star advances by bytes, and half a character is a broken one: "*??"
 *     matches one character of three bytes.
 *
 * The end of a piece is also decided as in Go: at a star outside brackets,
 * without checking the brackets' contents. */

#define BROKEN 0xFFFDu /* stands for a byte that isn't UTF-8 */
#define NO_MATCH SIZE_MAX
#define BAD_CLASS (-1)
/* A byte of a piece takes about four times as long as a byte of a name that is
 * searched for a literal piece. */
#define STEP_WORK 4

static bool begins_with_char(struct weir_text text, char c)
{
    return text.len > 0 && text.p[0] == c;
}

/* The character at the start of 'text', which isn't empty, and its bytes. */
static size_t next_character(struct weir_text text, uint32_t *out_character)
{
    weir_assert(text.len > 0);
    size_t len = weir_utf8_next(text, out_character);
    if (len > 0)
        return len;
    *out_character = BROKEN;
    return 1;
}

/* Removes the stars at the start of '*pattern', and the piece behind them:
 * '*out_piece'. Returns whether there were stars. */
static bool next_piece(struct weir_text *pattern, struct weir_text *out_piece)
{
    struct weir_text rest = *pattern;
    while (begins_with_char(rest, '*'))
        rest = weir_text_drop(rest, 1);
    bool star = rest.len < pattern->len;
    bool in_class = false;
    size_t len = 0;
    for (; len < rest.len && (in_class || rest.p[len] != '*'); len++) {
        if (rest.p[len] == '[')
            in_class = true;
        else if (rest.p[len] == ']')
            in_class = false;
        else if (rest.p[len] == '\\' && len + 1 < rest.len)
            len++;
    }
    weir_assert(star || len > 0); /* each piece takes some of the pattern */
    *out_piece = (struct weir_text){ rest.p, len };
    *pattern = weir_text_drop(rest, len);
    return star;
}

/* Takes one end of a range from a class; false: there is none, or nothing is
 * behind it, where at least the bracket must be. */
static bool class_end(struct weir_text *piece, uint32_t *out_character)
{
    struct weir_text rest = *piece;
    if (rest.len == 0 || rest.p[0] == '-' || rest.p[0] == ']')
        return false;
    if (rest.p[0] == '\\')
        rest = weir_text_drop(rest, 1);
    size_t len = weir_utf8_next(rest, out_character);
    if (len == 0 || len == rest.len)
        return false;
    *piece = weir_text_drop(rest, len);
    return true;
}

/* Takes a class, with its bracket at the start of '*piece'. 1 or 0: whether
 * 'character' is in it, or BAD_CLASS. */
static int take_class(struct weir_text *piece, uint32_t character)
{
    weir_assert(begins_with_char(*piece, '['));
    struct weir_text rest = weir_text_drop(*piece, 1);
    bool negated = begins_with_char(rest, '^');
    if (negated)
        rest = weir_text_drop(rest, 1);
    bool found = false;
    bool empty = true;
    while (empty || !begins_with_char(rest, ']')) {
        uint32_t low;
        if (!class_end(&rest, &low))
            return BAD_CLASS;
        uint32_t high = low;
        if (begins_with_char(rest, '-')) {
            rest = weir_text_drop(rest, 1);
            if (!class_end(&rest, &high))
                return BAD_CLASS;
        }
        found = found || (low <= character && character <= high);
        empty = false;
    }
    *piece = weir_text_drop(rest, 1);
    return found != negated;
}

/* Takes one step of 'piece' and returns the number of bytes of 'name' that it
 * matches, or NO_MATCH. Neither may be empty. */
static size_t take_step(struct weir_text *piece, struct weir_text name)
{
    weir_assert(piece->len > 0 && name.len > 0);
    uint32_t character;
    size_t len = next_character(name, &character);
    if (piece->p[0] == '[')
        return take_class(piece, character) == 1 ? len : NO_MATCH;
    if (piece->p[0] == '?') {
        *piece = weir_text_drop(*piece, 1);
        return character != '/' ? len : NO_MATCH;
    }
    if (piece->p[0] == '\\')
        *piece = weir_text_drop(*piece, 1);
    if (piece->len == 0 || piece->p[0] != name.p[0])
        return NO_MATCH;
    *piece = weir_text_drop(*piece, 1);
    return 1;
}

/* The number of bytes at the start of 'name' that 'piece' matches, or
 * NO_MATCH. */
static size_t match_piece(struct weir_text piece, struct weir_text name,
                          size_t *work)
{
    struct weir_text rest = name;
    while (piece.len > 0) {
        size_t before = piece.len;
        size_t len = rest.len > 0 ? take_step(&piece, rest) : NO_MATCH;
        if (!spend(work, STEP_WORK * (before - piece.len)) || len == NO_MATCH)
            return NO_MATCH;
        rest = weir_text_drop(rest, len);
    }
    return name.len - rest.len;
}

/* The offset in 'name' behind the match of 'piece'; NO_MATCH if there is none.
 * With a star the piece may match later, up to the next '/'; '*out_run' is then
 * the length of the star's run. Each place in 'name' is a unit of work, and
 * each byte of the piece that is compared is STEP_WORK. */
static size_t place_piece(struct weir_text piece, bool star, bool last,
                          struct weir_text name, size_t *out_run, size_t *work)
{
    for (size_t at = 0; at <= name.len && spend(work, 1); at++) {
        size_t len = match_piece(piece, weir_text_drop(name, at), work);
        weir_assert(len == NO_MATCH || at + len <= name.len);
        if (len != NO_MATCH && (!last || at + len == name.len)) {
            *out_run = at;
            return at + len;
        }
        if (!star || at == name.len || name.p[at] == '/')
            break;
    }
    return NO_MATCH;
}

static bool is_piece_sound(struct weir_text piece)
{
    while (piece.len > 0) {
        if (piece.p[0] == '[') {
            if (take_class(&piece, 0) == BAD_CLASS)
                return false;
            continue;
        }
        size_t len = piece.p[0] == '\\' ? 2 : 1;
        if (len > piece.len)
            return false;
        piece = weir_text_drop(piece, len);
    }
    return true;
}

int weir_glob_path_check(struct weir_text pattern, struct weir_diag *diag)
{
    while (pattern.len > 0) {
        struct weir_text piece;
        next_piece(&pattern, &piece);
        if (!is_piece_sound(piece))
            return weir_diag_put(diag, WEIR_ESYNTAX, "syntax error in pattern");
    }
    return 0;
}

/* weir_template_runs_within() of WEIR_GLOB_PATH. */
static bool match_path(struct weir_text pattern, struct weir_text name,
                       struct weir_runs *runs, size_t *work)
{
    runs->count = 0;
    if (weir_glob_path_check(pattern, NULL) < 0)
        return false;
    while (pattern.len > 0) {
        struct weir_text piece;
        size_t run;
        bool star = next_piece(&pattern, &piece);
        size_t end =
            place_piece(piece, star, pattern.len == 0, name, &run, work);
        if (end == NO_MATCH)
            return false;
        if (star)
            keep_run(runs, (struct weir_text){ name.p, run });
        name = weir_text_drop(name, end);
    }
    return name.len == 0;
}

bool weir_glob_path_match(struct weir_text pattern, struct weir_text name)
{
    struct weir_runs runs;
    size_t work = SIZE_MAX;
    return match_path(pattern, name, &runs, &work);
}

bool weir_template_runs_within(enum weir_glob glob, struct weir_text pattern,
                               struct weir_text name, struct weir_runs *runs,
                               size_t *work)
{
    return glob == WEIR_GLOB_PATH ? match_path(pattern, name, runs, work)
                                  : match_name(pattern, name, runs, work);
}

bool weir_template_runs(enum weir_glob glob, struct weir_text pattern,
                        struct weir_text name, struct weir_runs *runs)
{
    size_t work = SIZE_MAX;
    return weir_template_runs_within(glob, pattern, name, runs, &work);
}

bool weir_template_match(enum weir_glob glob, struct weir_text pattern,
                         struct weir_text name, struct weir_captures *captures)
{
    struct weir_runs runs;
    bool match = weir_template_runs(glob, pattern, name, &runs);
    if (match && captures)
        weir_runs_captures(glob, &runs, captures);
    return match;
}
