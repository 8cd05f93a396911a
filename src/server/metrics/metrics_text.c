/* SPDX-License-Identifier: MIT
 * server/metrics/metrics_text.c - the lines of the text format of
 * Prometheus. */

#include "server/metrics/metrics_internal.h"

void weir_metrics_head(FILE *out, const char *name, const char *type,
                       const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void weir_metrics_label(FILE *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '\\' || c == '"')
            fputc('\\', out);
        if (c == '\n')
            fputs("\\n", out);
        else
            fputc(c, out);
    }
}

void weir_metrics_figures(FILE *out, const struct weir_metrics_figure *figures,
                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        weir_metrics_head(out, figures[i].name, figures[i].type,
                          figures[i].help);
        fprintf(out, "%s %.17g\n", figures[i].name, figures[i].value);
    }
}
