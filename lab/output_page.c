/* SPDX-License-Identifier: MIT
 * lab/output_page.c - a figure's page.
 *
 * gnuplot draws; this file places the parts. The title and the key belong to
 * the page, above all panels; the caption below them names the run. Panels have
 * fixed margins, in pixels, so that all are of one size and their axes line up:
 *
 *      +--------------------------------------------+
 *      | title                                      |
 *      | key                                        |  head_height
 *      |        +--------+        +--------+        |
 *      |        | panel  |        | panel  |        |  panel_height
 *      |        +--------+        +--------+        |  GAP
 *      |        +--------+        +--------+        |
 *      |        | panel  |        | panel  |        |
 *      |        +--------+        +--------+        |
 *      | caption                                    |  FOOT
 *      +--------------------------------------------+
 *
 * The script names its files without their folder: "cd DIR && gnuplot X.gp"
 * draws it again, restyled or not. SVG of gnuplot holds no date. */

#include "lab/output_page.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define WIDTH 860.0
#define TITLE 66.0 /* with the first line of the key */
#define LINE 18.0  /* of the key, or with the panels' names */
#define FOOT 84.0
#define GAP 34.0
#define LEFT 86.0
#define RIGHT 24.0
#define TIC_ROOM 36.0 /* of a label of the x axis */

#define PATH_BYTES 4096

/* ---- Files ---- */

void weir_output_clean(char *stem)
{
    for (; *stem; stem++) {
        bool plain =
            strchr("-_.,=+", *stem) || (*stem >= '0' && *stem <= '9') ||
            (*stem >= 'a' && *stem <= 'z') || (*stem >= 'A' && *stem <= 'Z');
        if (!plain)
            *stem = '_';
    }
}

int weir_output_folder(const char *dir, struct weir_diag *diag)
{
    struct stat found;
    bool there = mkdir(dir, 0777) == 0 || errno == EEXIST;
    there = there && stat(dir, &found) == 0;
    if (there && !S_ISDIR(found.st_mode)) {
        there = false;
        errno = ENOTDIR;
    }
    if (there && access(dir, W_OK | X_OK) == 0)
        return WEIR_OK;
    return weir_diag_set(diag, WEIR_ESYSTEM, "can't write into the folder ",
                         dir, ": ", strerror(errno), NULL);
}

FILE *weir_output_open(const char *dir, const char *stem, const char *suffix,
                       struct weir_diag *diag)
{
    if (weir_output_folder(dir, diag) < 0)
        return NULL;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s%s", dir, stem, suffix);
    FILE *file = fopen(path, "we");
    if (!file)
        weir_diag_set(diag, WEIR_ESYSTEM, "can't write ", path, ": ",
                      strerror(errno), NULL);
    return file;
}

int weir_output_close(FILE *file, struct weir_diag *diag)
{
    bool failed = ferror(file) != 0;
    failed |= fclose(file) != 0;
    if (!failed)
        return WEIR_OK;
    return weir_diag_set(diag, WEIR_ESYSTEM,
                         "a file in the folder of --out could not be written "
                         "whole: ",
                         strerror(errno), NULL);
}

void weir_page_quote(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text; text++) {
        if (*text == '\'')
            fputc('\'', script);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, script);
    }
    fputc('\'', script);
}

void weir_page_number(FILE *data, double value)
{
    if (isfinite(value))
        fprintf(data, " %.6g", value + 0.0); /* -0 is 0 */
    else
        fputs(" ?", data);
}

size_t weir_page_block(struct weir_page *page, const char *heading)
{
    if (page->blocks > 0)
        fputs("\n\n", page->data);
    fprintf(page->data, "# %s\n", heading);
    return page->blocks++;
}

/* ---- The page ---- */

/* A key is as wide as its panel, and gnuplot gives each entry the width of the
 * longest: a stroke, and some 7 pixels a byte. */
static double key_lines(const struct weir_page *page)
{
    double wide = WIDTH / (double)page->columns - LEFT - RIGHT;
    double fit = floor(wide / (66 + 7 * (double)page->entry_bytes));
    return ceil((double)page->entries / fmax(fit, 1));
}

static double head_height(const struct weir_page *page)
{
    return TITLE + (key_lines(page) - 1) * LINE + (page->named ? LINE : 0);
}

static double page_height(const struct weir_page *page)
{
    double rows = (double)((page->count + page->columns - 1) / page->columns);
    return head_height(page) + rows * page->panel_height + (rows - 1) * GAP +
           FOOT;
}

static void write_head(struct weir_page *page)
{
    FILE *out = page->script;
    double height = page_height(page);
    fprintf(out,
            "# Draws %s.svg from %s.dat: gnuplot %s.gp\n"
            "set terminal svg size %.0f,%.0f noenhanced background 'white' "
            "font 'Helvetica,Arial,sans-serif,12' linewidth 1\n"
            "set encoding utf8\n"
            "set output '%s.svg'\n"
            "data = '%s.dat'\n"
            "set datafile missing '?'\n"
            "set border 3 linecolor '#666666'\n"
            "set tics nomirror out scale 0.5 textcolor '#333333'\n"
            "set grid linetype 1 linecolor '#e4e4e4' linewidth 1\n"
            "set multiplot\n",
            page->stem, page->stem, page->stem, WIDTH, height, page->stem,
            page->stem);
    fputs("set label 1 ", out);
    weir_page_quote(out, page->title);
    fprintf(out, " at screen %.5f,%.5f left font ',16:Bold'\n", 16 / WIDTH,
            1 - 22 / height);
    fputs("set label 2 ", out);
    weir_page_quote(out, page->caption);
    fprintf(out, " at screen %.5f,%.5f left font ',10' textcolor '#777777'\n",
            16 / WIDTH, 14 / height);
    fputs("set key left top horizontal Left reverse samplen 2.5\n", out);
}

int weir_page_open(struct weir_page *page, struct weir_diag *diag)
{
    page->script = weir_output_open(page->dir, page->stem, ".gp", diag);
    if (!page->script)
        return WEIR_ESYSTEM;
    page->data = weir_output_open(page->dir, page->stem, ".dat", diag);
    if (!page->data) {
        fclose(page->script);
        return WEIR_ESYSTEM;
    }
    page->panels = page->blocks = 0;
    write_head(page);
    return WEIR_OK;
}

void weir_page_panel(struct weir_page *page, const char *name,
                     const char *x_label, const char *y_label)
{
    FILE *out = page->script;
    size_t row = page->panels / page->columns;
    size_t column = page->panels % page->columns;
    double height = page_height(page);
    double wide = WIDTH / (double)page->columns;
    double left = wide * (double)column + LEFT;
    double top = head_height(page) + (double)row * (page->panel_height + GAP);
    /* Only the first panel draws the page's texts. */
    if (page->panels == 1)
        fputs("unset label 1; unset label 2\n", out);
    if (page->panels == page->keys)
        fputs("unset key\n", out);
    fputs("\n# ---- ", out);
    fputs(name[0] ? name : "the panel", out);
    fprintf(out,
            "\nset lmargin at screen %.5f; set rmargin at screen %.5f\n"
            "set tmargin at screen %.5f; set bmargin at screen %.5f\n",
            left / WIDTH, (wide * (double)(column + 1) - RIGHT) / WIDTH,
            1 - top / height, 1 - (top + page->panel_height) / height);
    bool lowest = page->panels + page->columns >= page->count;
    if (page->panels++ < page->keys)
        fprintf(out, "set key at screen %.5f,%.5f\n",
                (wide * (double)column + 12) / WIDTH, 1 - 38 / height);
    fputs("set label 3 ", out);
    weir_page_quote(out, name);
    fputs(" at graph 0,1 left offset 0,0.7 font ',12'\nset ylabel ", out);
    weir_page_quote(out, y_label);
    fputs(" textcolor '#333333'\nset xlabel ", out);
    weir_page_quote(out, lowest ? x_label : "");
    fprintf(out, " textcolor '#333333'\nset format x '%s'\n",
            lowest ? "%g" : "");
}

/* gnuplot chooses tics for a page, not for a panel with margins of its own: in
 * a narrow panel their labels would overlap. */
void weir_page_x_range(struct weir_page *page, double from, double to)
{
    double wide = WIDTH / (double)page->columns - LEFT - RIGHT;
    double least = (to - from) * TIC_ROOM / wide;
    double step = pow(10, floor(log10(least)));
    while (step < least)
        step *= step * 2 < least ? 5 : 2;
    fprintf(page->script, "set xrange [%.10g:%.10g]\n", from, to);
    if (page->columns > 1)
        fprintf(page->script, "set xtics %.10g\n", step);
}

/* ---- Drawing ---- */

static int run_gnuplot(const struct weir_page *page, struct weir_diag *diag)
{
    char script[256];
    snprintf(script, sizeof script, "%s.gp", page->stem);
    char program[] = "gnuplot";
    char *argv[] = { program, script, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, page->dir);
    pid_t child;
    int failed = posix_spawnp(&child, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return weir_diag_set(diag, WEIR_ENOENT, "no figures without gnuplot (",
                             strerror(failed),
                             "); install gnuplot-nox, then: cd ", page->dir,
                             " && gnuplot *.gp", NULL);
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return WEIR_OK;
    return weir_diag_set(diag, WEIR_ESYSTEM, "gnuplot refused ", page->dir, "/",
                         script, " (its reason stands above)", NULL);
}

int weir_page_close(struct weir_page *page, struct weir_diag *diag)
{
    fputs("\nunset multiplot\n", page->script);
    int error = weir_output_close(page->data, diag);
    int error2 = weir_output_close(page->script, diag);
    if (error || error2)
        return error ? error : error2;
    return run_gnuplot(page, diag);
}
