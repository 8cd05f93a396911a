/* SPDX-License-Identifier: MIT
 * lab/script_values.c - numbers, durations, rates and choices.
 *
 * Durations and counts are whole numbers and go through quota/units, as
 * everywhere in Weir. Rates, shares and compared values are doubles: strtod()
 * reads them, but only after a check of the bytes, since it would accept "nan",
 * "inf" and "0x1p3". They are printed with the fewest digits that are read back
 * to the same bits. */

#include "lab/script_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/quota/quota.h"
#include "core/quota/quota_text.h"

#define REAL_BYTES_MAX 40

/* ---- Reading -------------------------------------------------------- */

/* The number of bytes of a number at the start of 'text': "-12.5e-3". */
static size_t real_length(struct weir_text text)
{
    size_t at = text.len > 0 && text.p[0] == '-';
    size_t digits = 0;
    bool point = false;
    for (; at < text.len; at++) {
        bool is_digit = text.p[at] >= '0' && text.p[at] <= '9';
        if (!is_digit && (point || text.p[at] != '.'))
            break;
        digits += is_digit;
        point = point || !is_digit;
    }
    if (digits == 0)
        return 0;
    size_t end = at;
    if (at + 1 < text.len && text.p[at] == 'e') {
        at += text.p[at + 1] == '-' || text.p[at + 1] == '+' ? 2 : 1;
        while (at < text.len && text.p[at] >= '0' && text.p[at] <= '9')
            end = ++at;
    }
    return end;
}

/* Takes a number off the front; 'out_rest' is the text after it. */
static int take_real(const struct weir_word *word, double *out,
                     struct weir_word *out_rest, struct weir_diag *diag)
{
    size_t len = real_length(word->text);
    if (len == 0)
        return weir_script_refuse(diag, word->where,
                                  "%s doesn't begin with a number in digits",
                                  WEIR_SHOWN(word));
    if (len > REAL_BYTES_MAX)
        return weir_script_refuse(diag, word->where,
                                  "%s has more than %d digits",
                                  WEIR_SHOWN(word), REAL_BYTES_MAX);
    char bytes[REAL_BYTES_MAX + 1];
    memcpy(bytes, word->text.p, len);
    bytes[len] = '\0';
    double value = strtod(bytes, NULL);
    if (!isfinite(value))
        return weir_script_refuse(diag, word->where,
                                  "%s is more than a number can be here",
                                  WEIR_SHOWN(word));
    *out = value;
    *out_rest = weir_word_part(word, len, SIZE_MAX);
    return 0;
}

static int refuse_range(const struct weir_word *word, double min, double max,
                        const char *unit, struct weir_diag *diag)
{
    if (max >= 1e300)
        return weir_script_refuse(
            diag, word->where, "%s is out of range; it must be %.15g%s or more",
            WEIR_SHOWN(word), min, unit);
    return weir_script_refuse(
        diag, word->where, "%s is out of range; it must be %.15g%s to %.15g%s",
        WEIR_SHOWN(word), min, unit, max, unit);
}

int weir_read_real(const struct weir_word *word, double min, double max,
                   double *out, struct weir_diag *diag)
{
    struct weir_word rest;
    double value;
    int error = take_real(word, &value, &rest, diag);
    if (error < 0)
        return error;
    if (rest.text.len > 0)
        return weir_script_refuse(diag, rest.where,
                                  "%s must be a plain number; take %s away",
                                  WEIR_SHOWN(word), WEIR_SHOWN(&rest));
    if (value < min || value > max)
        return refuse_range(word, min, max, "", diag);
    *out = value;
    return 0;
}

int weir_read_count(const struct weir_word *word, uint64_t min, uint64_t max,
                    uint64_t *out, struct weir_diag *diag)
{
    uint64_t value;
    if (!weir_number_parse(word->text, &value))
        return weir_script_refuse(diag, word->where,
                                  "%s isn't a whole number in digits",
                                  WEIR_SHOWN(word));
    if (value < min || value > max)
        return refuse_range(word, (double)min, (double)max, "", diag);
    *out = value;
    return 0;
}

int weir_read_duration(const struct weir_word *word, weir_duration *out,
                       struct weir_diag *diag)
{
    weir_duration value;
    struct weir_diag inner = { 0 };
    if (weir_duration_parse(word->text, &value, &inner) < 0)
        return weir_script_refuse(diag, word->where, "%s", inner.text);
    if (value > WEIR_SCENARIO_SPAN_MAX)
        return weir_script_refuse(diag, word->where,
                                  "%s is too long; a scenario has 24h at most",
                                  WEIR_SHOWN(word));
    *out = value;
    return 0;
}

int weir_read_step(const struct weir_word *word, int64_t *out,
                   struct weir_diag *diag)
{
    bool back = word->text.len > 0 && word->text.p[0] == '-';
    struct weir_word amount = weir_word_part(word, back, SIZE_MAX);
    weir_duration value;
    int error = weir_read_duration(&amount, &value, diag);
    if (error < 0)
        return error;
    *out = back ? -(int64_t)value : (int64_t)value;
    return 0;
}

static bool is_rest(const struct weir_word *rest, const char *text)
{
    return weir_text_equal(rest->text, weir_text_of(text));
}

int weir_read_share(const struct weir_word *word, double *out,
                    struct weir_diag *diag)
{
    struct weir_word rest;
    double value;
    int error = take_real(word, &value, &rest, diag);
    if (error < 0)
        return error;
    bool percent = is_rest(&rest, "%");
    if (!percent && rest.text.len > 0)
        return weir_script_refuse(diag, rest.where,
                                  "%s must be a share, such as 10%% or 0.1",
                                  WEIR_SHOWN(word));
    value /= percent ? 100 : 1;
    if (value < 0 || value > 1)
        return weir_script_refuse(diag, word->where,
                                  "%s is out of range; a share is 0%% to 100%%",
                                  WEIR_SHOWN(word));
    *out = value;
    return 0;
}

static double factor_of(struct weir_text name)
{
    static const struct {
        const char *name;
        double value;
    } factors[] = {
        { "", 1 },          { "k", 1e3 },      { "M", 1e6 },
        { "G", 1e9 },       { "Ki", 1024 },    { "KiB", 1024 },
        { "MiB", 1 << 20 }, { "Mi", 1 << 20 }, { "GiB", 1 << 30 },
        { "kB", 1e3 },      { "MB", 1e6 },     { "GB", 1e9 },
        { "B", 1 },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(factors); i++) {
        if (weir_text_equal(name, weir_text_of(factors[i].name)))
            return factors[i].value;
    }
    return 0;
}

/* "s", "min", "10s": in seconds. */
static int read_period(const struct weir_word *word, double *out,
                       struct weir_diag *diag)
{
    bool counted = real_length(word->text) > 0;
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%s%.*s", counted ? "" : "1",
             (int)(word->text.len < 24 ? word->text.len : 24), word->text.p);
    weir_duration period = 0;
    struct weir_diag inner = { 0 };
    if (weir_duration_parse(weir_text_of(bytes), &period, &inner) < 0)
        return weir_script_refuse(diag, word->where, "%s", inner.text);
    if (period == 0)
        return weir_script_refuse(
            diag, word->where, "a rate needs a period, as in 100/s or 5/min");
    *out = (double)period / (double)WEIR_SECOND;
    return 0;
}

/* Parses the part after a rate's number. */
static int read_per(const struct weir_word *rest, double *value,
                    struct weir_diag *diag)
{
    struct weir_word factor;
    struct weir_word period;
    double seconds = 1;
    if (!weir_word_cut(rest, "/", &factor, &period))
        return weir_script_refuse(
            diag, rest->where, "a rate needs a period, as in 100/s or 5/min");
    double times = factor_of(factor.text);
    if (times == 0)
        return weir_script_refuse(diag, factor.where,
                                  "%s is no factor; write k M G or KiB MiB GiB",
                                  WEIR_SHOWN(&factor));
    int error = read_period(&period, &seconds, diag);
    if (error < 0)
        return error;
    *value = *value * times / seconds;
    return 0;
}

int weir_read_rate(const struct weir_word *word, double *out_per_s,
                   bool *out_times, struct weir_diag *diag)
{
    struct weir_word rest;
    double value;
    int error = take_real(word, &value, &rest, diag);
    if (error < 0)
        return error;
    bool times = out_times && is_rest(&rest, "x");
    bool none = value == 0 && rest.text.len == 0;
    if (!times && !none && out_times &&
        !memchr(word->text.p, '/', word->text.len))
        return weir_script_refuse(diag, rest.where,
                                  "a rate is written as 100/s, or as 3x: three "
                                  "times the quota's limit");
    if (!times && !none)
        error = read_per(&rest, &value, diag);
    if (error < 0)
        return error;
    if (value < 0 || value > WEIR_SCENARIO_RATE_MAX)
        return refuse_range(word, 0, WEIR_SCENARIO_RATE_MAX, "/s", diag);
    *out_per_s = value;
    if (out_times)
        *out_times = times;
    return 0;
}

int weir_read_amount(const struct weir_word *word, double *out,
                     struct weir_diag *diag)
{
    struct weir_word rest;
    double value;
    int error = take_real(word, &value, &rest, diag);
    if (error < 0)
        return error;
    if (is_rest(&rest, "%")) {
        value /= 100;
    } else if (rest.text.len > 0 && memchr(rest.text.p, '/', rest.text.len)) {
        error = read_per(&rest, &value, diag);
    } else if (rest.text.len > 0) {
        int64_t step = 0;
        error = weir_read_step(word, &step, diag);
        value = (double)step / (double)WEIR_SECOND;
    }
    if (error == 0)
        *out = value;
    return error;
}

int weir_read_window(const struct weir_word *word, weir_duration span,
                     struct weir_interval *out, struct weir_diag *diag)
{
    struct weir_word from;
    struct weir_word to;
    struct weir_interval window = { 0 };
    if (!weir_word_cut(word, "..", &from, &to))
        return weir_script_refuse(diag, word->where,
                                  "%s isn't a window; write it as 10s..20s, or "
                                  "10s.. for up to the end",
                                  WEIR_SHOWN(word));
    int error = weir_read_duration(&from, &window.from, diag);
    if (error == 0 && to.text.len > 0)
        error = weir_read_duration(&to, &window.to, diag);
    if (error < 0)
        return error;
    bool open = to.text.len == 0;
    if (window.from >= (open ? span : window.to))
        return weir_script_refuse(diag, word->where,
                                  "the window %s is empty; "
                                  "write the earlier instant first",
                                  WEIR_SHOWN(word));
    if (window.to > span)
        return weir_script_refuse(
            diag, to.where, "%s is after the end of the run; see its 'run'",
            WEIR_SHOWN(&to));
    *out = window;
    return 0;
}

int weir_read_choice(const struct weir_word *word, const char *what,
                     const char *const *choices, int *out,
                     struct weir_diag *diag)
{
    for (int i = 0; choices[i]; i++) {
        if (!weir_text_equal(word->text, weir_text_of(choices[i])))
            continue;
        *out = i;
        return 0;
    }
    return weir_script_unknown(diag, word, what, choices);
}

/* ---- Printing ------------------------------------------------------- */

/* The shortest form that is read back to the same bits. */
static void format_real(double value, char *buf, size_t size)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            return;
    }
}

void weir_print_real(FILE *out, double value)
{
    char buf[REAL_BYTES_MAX];
    format_real(value, buf, sizeof buf);
    fputs(buf, out);
}

void weir_print_duration(FILE *out, weir_duration value)
{
    char buf[REAL_BYTES_MAX];
    size_t len = weir_duration_format(value, buf, sizeof buf);
    fprintf(out, "%.*s", (int)len, buf);
}

void weir_print_step(FILE *out, int64_t value)
{
    if (value < 0)
        fputc('-', out);
    weir_print_duration(out, (weir_duration)(value < 0 ? -value : value));
}

void weir_print_share(FILE *out, double value)
{
    char buf[REAL_BYTES_MAX];
    snprintf(buf, sizeof buf, "%.15g", value * 100);
    if (strtod(buf, NULL) / 100 == value)
        fprintf(out, "%s%%", buf);
    else
        weir_print_real(out, value);
}

void weir_print_rate(FILE *out, double per_s, bool times)
{
    weir_print_real(out, per_s);
    fputs(times ? "x" : "/s", out);
}

void weir_print_window(FILE *out, const struct weir_interval *window)
{
    weir_print_duration(out, window->from);
    fputs("..", out);
    if (window->to > 0)
        weir_print_duration(out, window->to);
}

void weir_print_quoted(FILE *out, struct weir_text text)
{
    fputc('"', out);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];
        if (c == '"' || c == '\\')
            fputc('\\', out);
        if (c == '$')
            fputc('$', out);
        fputc(c, out);
    }
    fputc('"', out);
}

void weir_print_word(FILE *out, struct weir_text text)
{
    bool plain = text.len > 0 && text.p[0] != '#';
    for (size_t i = 0; i < text.len; i++)
        plain = plain && !strchr(" \t\r\"\\$;", text.p[i]);
    if (plain)
        fwrite(text.p, 1, text.len, out);
    else
        weir_print_quoted(out, text);
}
