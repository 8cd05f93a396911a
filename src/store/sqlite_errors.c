/* SPDX-License-Identifier: MIT
 * store/sqlite_errors.c - SQLite's errors, in words for an operator. */

#include "store/sqlite_errors.h"

#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

/* SQLite reports a file system that is read-only in several ways. */
static bool is_read_only(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) + 1 : 0;
    if (access(path, W_OK) < 0 && errno == EROFS)
        return true;
    if (len + sizeof "." > sizeof folder)
        return false;
    memcpy(folder, path, len);
    memcpy(folder + len, ".", sizeof ".");
    return access(folder, W_OK) < 0 && errno == EROFS;
}

int weir_sqlite_refuse(const char *path, int code, const char *message,
                       struct weir_diag *diag)
{
    switch (code & 0xFF) {
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
        if (is_read_only(path))
            return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", path,
                                 " is on a read-only file system; nothing was "
                                 "changed: mount it for writing",
                                 NULL);
    }
    switch (code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return weir_diag_set(diag, WEIR_ELOCKED, "the quota store ", path,
                             " is locked by another process; nothing was "
                             "changed. Try again once it lets go ('fuser ",
                             path, "' names it)", NULL);
    case SQLITE_NOTADB:
        return weir_diag_set(diag, WEIR_ESTORE, path,
                             " isn't a quota store of Weir", NULL);
    case SQLITE_CORRUPT:
        return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", path,
                             " is damaged; restore it from a backup", NULL);
    case SQLITE_FULL:
        return weir_diag_set(diag, WEIR_ESTORE,
                             "there is no room on the "
                             "disk for the quota store ",
                             path,
                             "; nothing was changed. Make room there, and try "
                             "again",
                             NULL);
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", path,
                             " can't be written by this user", NULL);
    case SQLITE_NOMEM:
        return weir_diag_set(diag, WEIR_ENOMEM,
                             "there is no memory for the quota store ", path,
                             NULL);
    default:
        return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", path,
                             " can't be used: ", message, NULL);
    }
}
