/* SPDX-License-Identifier: MIT
 * front/view_internal.h - shared by the views (view_*.c). */

#ifndef WEIR_VIEW_INTERNAL_H
#define WEIR_VIEW_INTERNAL_H

#include "front/view.h"

struct weir_view_live;
struct weir_recent;

struct weir_views {
    struct weir_view_source source;
    struct weir_recent *past;    /* owned */
    struct weir_view_live *live; /* owned; NULL: not requested yet */
};

/* An entry of a list of quotas in use. A new reference. */
json_t *weir_view_busy(const struct weir_views *views,
                       const struct weir_busy *busy, weir_instant now);

int weir_view_live(struct weir_views *views, struct weir_text query,
                   json_t **out, struct weir_diag *diag, weir_instant now);
void weir_view_live_free(struct weir_view_live *live); /* NULL is legal */
int weir_view_recent(struct weir_views *views, struct weir_text query,
                     json_t **out, struct weir_diag *diag, weir_instant now);
int weir_view_why(struct weir_views *views, struct weir_text query,
                  json_t **out, struct weir_diag *diag, weir_instant now);
int weir_view_usage(struct weir_views *views, struct weir_text query,
                    json_t **out, struct weir_diag *diag, weir_instant now);

#endif /* WEIR_VIEW_INTERNAL_H */
