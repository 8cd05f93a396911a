/* SPDX-License-Identifier: MIT
 * store/sqlite_errors.h - SQLite's errors, in words for an operator. */

#ifndef WEIR_SQLITE_ERRORS_H
#define WEIR_SQLITE_ERRORS_H

#include "core/quota/quota.h"

/* Fills 'diag' about the store in the file 'path': 'code' is of sqlite3.h, and
 * 'message' in SQLite's words. Returns WEIR_ESTORE, WEIR_ELOCKED or
 * WEIR_ENOMEM. */
int weir_sqlite_refuse(const char *path, int code, const char *message,
                       struct weir_diag *diag);

#endif /* WEIR_SQLITE_ERRORS_H */
