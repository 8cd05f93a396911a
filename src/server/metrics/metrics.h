/* SPDX-License-Identifier: MIT
 * server/metrics/metrics.h - a root in the text format of Prometheus. */

#ifndef WEIR_METRICS_H
#define WEIR_METRICS_H

#include "core/node/root.h"
#include "io/snapshot.h"
#include "server/upstream.h"

#define WEIR_METRICS_QUOTAS_MAX 200 /* that have metrics of their own */

struct weir_authorization;
struct weir_doorman_api;
struct weir_doorman_source;

/* The sources of the metrics; all borrowed. */
struct weir_metrics_source {
    struct weir_root *root;
    const char *name; /* of the root */
    const char *version;
    bool store_up;
    uint64_t bad_rows; /* of the store */
    size_t edits_waiting;
    const struct weir_authorization *authorizer; /* NULL: no metrics of it */
    const struct weir_snapshot *snapshot;        /* NULL: likewise */
    const struct weir_upstream *upstream;        /* NULL: likewise */
    const struct weir_doorman_source *file;      /* NULL: likewise */
    const struct weir_doorman_api *doorman;      /* NULL: likewise */
};

/* The metrics, malloc'ed, or NULL when there is no memory. At most
 * WEIR_METRICS_QUOTAS_MAX quotas have metrics of their own: those that refused
 * most. */
char *weir_metrics_print(const struct weir_metrics_source *source,
                         weir_instant now, size_t *out_len);

#endif /* WEIR_METRICS_H */
