/* SPDX-License-Identifier: MIT
 * front/http_problem.h - errors as HTTP problems (RFC 9457). */

#ifndef WEIR_HTTP_PROBLEM_H
#define WEIR_HTTP_PROBLEM_H

#include <jansson.h>

#include "core/base/base.h"

/* The HTTP status of an error. */
int weir_error_status(int error);
/* The error of that name, or 0: for a client that has received a problem. */
int weir_error_named(const char *name);

/* {type, title, status, detail, error}, and line and column if 'diag' has them.
 * 'detail' is the text of 'diag', else the error's own sentence. NULL: no
 * memory. */
json_t *weir_http_problem(int error, int status, const struct weir_diag *diag);

#endif /* WEIR_HTTP_PROBLEM_H */
