/* SPDX-License-Identifier: MIT
 * cli/table_print.h - columns that line up. */

#ifndef WEIR_TABLE_PRINT_H
#define WEIR_TABLE_PRINT_H

#include <stdio.h>

#include "core/base/base.h"

#define WEIR_COLUMNS_MAX 10

/* Rows of texts, kept until they are printed. A zeroed struct is empty. */
struct weir_rows {
    size_t columns;
    unsigned right; /* bit n: column n is right-aligned */
    bool bold_head; /* for a terminal: the first row stands out */
    char **cells;   /* owned, and each of them */
    size_t count;   /* of cells */
    size_t capacity;
};

/* Appends a cell (copied; NULL: empty); 'columns' of them make a row. */
void weir_rows_add(struct weir_rows *rows, const char *cell);
/* Appends the texts after 'rows' up to a NULL, each as a cell. */
void weir_rows_add_all(struct weir_rows *rows, ...) __attribute__((sentinel));
/* The same for the first row of a table, which decides 'columns'. */
void weir_rows_head(struct weir_rows *rows, ...) __attribute__((sentinel));
/* Appends one cell. */
void weir_rows_addf(struct weir_rows *rows, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints all, the last column unpadded, and frees them. Characters count as
 * one column each; control characters are shown as '?'. Without a cell it
 * prints nothing. */
void weir_rows_print(struct weir_rows *rows, FILE *out);

/* Whether 'out' is a terminal, and $NO_COLOR unset. */
bool weir_rows_colour(FILE *out);

#endif /* WEIR_TABLE_PRINT_H */
