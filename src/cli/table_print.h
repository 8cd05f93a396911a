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
/* Prints all, the last column unpadded, and frees them. Characters count as
 * one column each; control characters are shown as '?'. */
void weir_rows_print(struct weir_rows *rows, FILE *out);

/* How many columns of a terminal a text takes. */
size_t weir_text_width(const char *text);

#endif /* WEIR_TABLE_PRINT_H */
