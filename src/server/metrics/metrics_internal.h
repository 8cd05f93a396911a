/* SPDX-License-Identifier: MIT
 * server/metrics/metrics_internal.h - shared by the parts of the metrics. */

#ifndef WEIR_METRICS_INTERNAL_H
#define WEIR_METRICS_INTERNAL_H

#include <stdio.h>

#include "server/metrics/metrics.h"

struct weir_metrics_figure {
    const char *name;
    const char *type;
    const char *help;
    double value;
};

/* metrics_text.c: the two lines before a metric; a label's value, escaped;
 * metrics without labels, with their heads. */
void weir_metrics_head(FILE *out, const char *name, const char *type,
                       const char *help);
void weir_metrics_label(FILE *out, const char *text, size_t len);
void weir_metrics_figures(FILE *out, const struct weir_metrics_figure *figures,
                          size_t count);

/* metrics_leases.c */
void weir_metrics_leases(FILE *out, const struct weir_metrics_source *of,
                         weir_instant now);

#endif /* WEIR_METRICS_INTERNAL_H */
