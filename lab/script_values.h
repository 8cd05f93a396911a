/* SPDX-License-Identifier: MIT
 * lab/script_values.h - numbers, durations, rates and choices of a scenario:
 * read from a word, and printed so that reading them gives the same value.
 *
 * All return 0 or WEIR_ESYNTAX with 'diag' filled at the word. */

#ifndef WEIR_SCRIPT_VALUES_H
#define WEIR_SCRIPT_VALUES_H

#include <stdio.h>

#include "lab/script_words.h"

/* A finite number in digits, 'min' to 'max'. */
int weir_read_real(const struct weir_word *word, double min, double max,
                   double *out, struct weir_diag *diag);
/* A whole number. */
int weir_read_count(const struct weir_word *word, uint64_t min, uint64_t max,
                    uint64_t *out, struct weir_diag *diag);
/* "20ms", up to WEIR_SCENARIO_SPAN_MAX. */
int weir_read_duration(const struct weir_word *word, weir_duration *out,
                       struct weir_diag *diag);
/* "20ms", "-20ms". */
int weir_read_step(const struct weir_word *word, int64_t *out,
                   struct weir_diag *diag);
/* A fraction: "10%" or "0.1". */
int weir_read_share(const struct weir_word *word, double *out,
                    struct weir_diag *diag);
/* "1000/s", "1.5k/min"; "3x" if 'out_times' isn't NULL. */
int weir_read_rate(const struct weir_word *word, double *out_per_s,
                   bool *out_times, struct weir_diag *diag);
/* A value to compare a quantity or metric with: a number, "10%" (0.1), "20/s"
 * (20), "50ms" (0.05). */
int weir_read_amount(const struct weir_word *word, double *out,
                     struct weir_diag *diag);
/* "A..B" or "A.."; not empty, within 'span'. */
int weir_read_window(const struct weir_word *word, weir_duration span,
                     struct weir_interval *out, struct weir_diag *diag);
/* One of 'choices' (until NULL): its index. 'what' names them in messages. */
int weir_read_choice(const struct weir_word *word, const char *what,
                     const char *const *choices, int *out,
                     struct weir_diag *diag);

void weir_print_real(FILE *out, double value);
void weir_print_duration(FILE *out, weir_duration value);
void weir_print_step(FILE *out, int64_t value);
void weir_print_share(FILE *out, double value);
void weir_print_rate(FILE *out, double per_s, bool times);
void weir_print_window(FILE *out, const struct weir_interval *window);
/* In quotes only if necessary. */
void weir_print_word(FILE *out, struct weir_text text);
/* Always in quotes. */
void weir_print_quoted(FILE *out, struct weir_text text);

#endif /* WEIR_SCRIPT_VALUES_H */
