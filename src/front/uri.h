/* SPDX-License-Identifier: MIT
 * front/uri.h - the path and query of a request. */

#ifndef WEIR_URI_H
#define WEIR_URI_H

#include "core/base/base.h"

/* The parts of a target: texts point into the target, still encoded. */
struct weir_uri {
    struct weir_text path;
    struct weir_text query; /* without '?' */
};
struct weir_uri weir_uri_split(struct weir_text target);

/* Decodes %XX (and '+' as a space, in a query). Writes at most 'size' bytes to
 * 'buf'. Returns the length, WEIR_ESYNTAX for a broken escape, or WEIR_ETOOBIG.
 * The bytes may have any value, NUL included. */
int weir_uri_decode(struct weir_text text, bool query, char *buf, size_t size);
/* Encodes all but letters, digits and "-._~/". Returns the length, or
 * WEIR_ETOOBIG. */
int weir_uri_encode(struct weir_text text, char *buf, size_t size);

/* The value of 'key' in a query, still encoded; false without the key. A key
 * without '=' has an empty value. */
bool weir_uri_query(struct weir_text query, const char *key,
                    struct weir_text *out);

/* ---- Parameters: flags, numbers, names ----
 *
 * 'query' is as received, without '?'. Each function returns 0, or WEIR_EINVAL
 * with 'diag' filled; a missing key is no error. */

/* KEY=1: sets '*out', which keeps its value without the key. */
int weir_query_flag(struct weir_text query, const char *key, bool *out,
                    struct weir_diag *diag);
/* KEY=N from 1 to 'max'; likewise. */
int weir_query_number(struct weir_text query, const char *key, size_t max,
                      size_t *out, struct weir_diag *diag);
/* KEY=NAME decoded into 'buf' of WEIR_NAME_MAX bytes; absent: len 0. */
int weir_query_name(struct weir_text query, const char *key, char *buf,
                    struct weir_text *out, struct weir_diag *diag);

#endif /* WEIR_URI_H */
