/* SPDX-License-Identifier: MIT
 * front/query.h - query parameters of a request: flags, numbers, names.
 *
 * 'query' is as received, without '?'. Each function returns 0, or WEIR_EINVAL
 * with 'diag' filled; a missing key is no error. */

#ifndef WEIR_QUERY_H
#define WEIR_QUERY_H

#include "core/base/base.h"

/* KEY=1: sets '*out', which keeps its value without the key. */
int weir_query_flag(struct weir_text query, const char *key, bool *out,
                    struct weir_diag *diag);
/* KEY=N from 1 to 'max'; likewise. */
int weir_query_number(struct weir_text query, const char *key, size_t max,
                      size_t *out, struct weir_diag *diag);
/* KEY=NAME decoded into 'buf' of WEIR_NAME_MAX bytes; absent: len 0. */
int weir_query_name(struct weir_text query, const char *key, char *buf,
                    struct weir_text *out, struct weir_diag *diag);

#endif /* WEIR_QUERY_H */
