/* SPDX-License-Identifier: MIT
 * lab/output_page.h - a figure's page: the places of its panels, its title and
 * caption, and the gnuplot script that draws it. */

#ifndef WEIR_OUTPUT_PAGE_H
#define WEIR_OUTPUT_PAGE_H

#include <stdio.h>

#include "lab/output.h"

/* Bound of the stem of a file name, in bytes with the NUL. */
#define WEIR_STEM_BYTES 200

/* Replaces characters that are awkward in a file name by '_'. */
void weir_output_clean(char *stem);
/* Opens DIR/STEM and a suffix for writing; makes DIR. NULL with 'diag'
 * filled. */
FILE *weir_output_open(const char *dir, const char *stem, const char *suffix,
                       struct weir_diag *diag);
/* Closes it. 0, or WEIR_ESYSTEM if not all of it could be written. */
int weir_output_close(FILE *file, struct weir_diag *diag);

struct weir_page {
    const char *dir, *stem;      /* borrowed */
    const char *title, *caption; /* borrowed */
    size_t count, columns;       /* of panels */
    size_t keys;                 /* the first so many have a key … */
    size_t entries;              /* … with so many entries, at most … */
    size_t entry_bytes;          /* … of so many bytes each, at most */
    bool named;                  /* panels have names */
    double panel_height;         /* pixels */
    /* The page's own: */
    FILE *script, *data;
    size_t panels, blocks; /* so far */
};

/* Begins both files; the caller has filled the members above the page's own. 0,
 * or WEIR_ESYSTEM with 'diag'. */
int weir_page_open(struct weir_page *page, struct weir_diag *diag);
/* The next panel, left to right and down: its name over it, both axes. */
void weir_page_panel(struct weir_page *page, const char *name,
                     const char *x_label, const char *y_label);
/* A new block of data. Returns its index, for "index N" in the script. */
size_t weir_page_block(struct weir_page *page, const char *heading);
/* The x axis of the panel begun last; from < to. */
void weir_page_x_range(struct weir_page *page, double from, double to);
/* Writes a text quoted for gnuplot. */
void weir_page_quote(FILE *script, const char *text);
/* "%.6g", or gnuplot's mark for a missing value. */
void weir_page_number(FILE *data, double value);
/* Ends both files and draws. Returns as weir_output_figures() does. */
int weir_page_close(struct weir_page *page, struct weir_diag *diag);

/* The two kinds of figures, of output_series.c and output_curves.c. */
int weir_output_series(const struct weir_batch *batch,
                       const struct weir_figure *figure, struct weir_page *page,
                       struct weir_diag *diag);
int weir_output_curves(const struct weir_batch *batches, size_t count,
                       const struct weir_figure *figure, struct weir_page *page,
                       struct weir_diag *diag);

#endif /* WEIR_OUTPUT_PAGE_H */
