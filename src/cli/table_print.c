/* SPDX-License-Identifier: MIT
 * cli/table_print.c - columns that line up. */

#include "cli/table_print.h"
#include "lab/memory.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GAP 2

/* How many columns of a terminal a text takes. */
static size_t text_width(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += (*text & 0xc0) != 0x80;
    return width;
}

void weir_rows_add(struct weir_rows *rows, const char *cell)
{
    if (rows->count == rows->capacity) {
        size_t capacity = rows->capacity ? 2 * rows->capacity : 64;
        char **cells = realloc(rows->cells, capacity * sizeof *cells);
        if (!cells)
            weir_no_memory(); /* a table for people isn't worth more care */
        rows->cells = cells;
        rows->capacity = capacity;
    }
    char *copy = strdup(cell ? cell : "");
    if (!copy)
        weir_no_memory();
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    weir_assert(rows->count < rows->capacity);
    rows->cells[rows->count++] = copy;
}

static size_t add_cells(struct weir_rows *rows, va_list cells)
{
    size_t before = rows->count;
    for (;;) {
        const char *cell = va_arg(cells, const char *);
        if (!cell)
            return rows->count - before;
        weir_rows_add(rows, cell);
    }
}

void weir_rows_add_all(struct weir_rows *rows, ...)
{
    va_list cells;
    va_start(cells, rows);
    (void)add_cells(rows, cells);
    va_end(cells);
}

void weir_rows_head(struct weir_rows *rows, ...)
{
    va_list cells;
    weir_assert(rows->count == 0);
    va_start(cells, rows);
    rows->columns = add_cells(rows, cells);
    va_end(cells);
    weir_assert(rows->columns > 0 && rows->columns <= WEIR_COLUMNS_MAX);
}

void weir_rows_addf(struct weir_rows *rows, const char *format, ...)
{
    va_list args;
    char *cell;
    va_start(args, format);
    int len = vasprintf(&cell, format, args);
    va_end(args);
    if (len < 0)
        weir_no_memory();
    weir_rows_add(rows, cell);
    free(cell);
}

static void measure_columns(const struct weir_rows *rows, size_t *widths)
{
    for (size_t i = 0; i < rows->count; i++) {
        size_t width = text_width(rows->cells[i]);
        size_t column = i % rows->columns;
        if (width > widths[column])
            widths[column] = width;
    }
}

static void print_padding(FILE *out, size_t count)
{
    fprintf(out, "%*s", (int)count, "");
}

static void print_cell(const struct weir_rows *rows, size_t i,
                       const size_t *widths, FILE *out)
{
    weir_assert(rows->columns > 0);
    size_t column = i % rows->columns;
    bool last = column + 1 == rows->columns;
    size_t blank = widths[column] - text_width(rows->cells[i]);
    weir_assert(widths[column] >= text_width(rows->cells[i]));
    bool right = rows->right & 1u << column;
    if (right)
        print_padding(out, blank);
    fputs(rows->cells[i], out);
    if (last)
        fputc('\n', out);
    else
        print_padding(out, (right ? 0 : blank) + GAP);
}

void weir_rows_print(struct weir_rows *rows, FILE *out)
{
    size_t widths[WEIR_COLUMNS_MAX] = { 0 };
    weir_assert(rows->columns <= WEIR_COLUMNS_MAX);
    measure_columns(rows, widths);
    if (rows->bold_head)
        fputs("\033[1m", out);
    for (size_t i = 0; i < rows->count; i++) {
        if (i == rows->columns && rows->bold_head)
            fputs("\033[0m", out);
        print_cell(rows, i, widths, out);
        free(rows->cells[i]);
    }
    if (rows->count == rows->columns && rows->bold_head)
        fputs("\033[0m", out);
    free(rows->cells);
    *rows = (struct weir_rows){ 0 };
}

bool weir_rows_colour(FILE *out)
{
    const char *plain = getenv("NO_COLOR");
    return isatty(fileno(out)) && !(plain && plain[0]);
}
