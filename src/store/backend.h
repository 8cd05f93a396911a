/* SPDX-License-Identifier: MIT
 * store/backend.h - what a file of this room gives so that store.c can make
 * a quota store of it: rows and transactions. What a sound edit is, in which
 * order its changes go, which epochs and ids they take and what the log says
 * of them is store.c's and the same for all. */

#ifndef WEIR_BACKEND_H
#define WEIR_BACKEND_H

#include "store/row.h"
#include "store/store.h"

/* The one row that every edit moves. */
struct weir_store_meta {
    struct weir_store_id id;
    uint64_t epoch;
    uint64_t floor;
    uint64_t last_id; /* given to a quota */
    /* where weir_store_migrate() has copied it to, as weir_store_show() has
     * it; "": nowhere. Not written by finish(). */
    char moved_to[WEIR_STORE_SHOW_MAX];
};

/* Which entries of the log. */
enum weir_log_which {
    WEIR_LOG_ALL,   /* with an epoch below 'number' */
    WEIR_LOG_NAME,  /* of 'name', with an epoch below 'number' */
    WEIR_LOG_EDIT,  /* whose edit is 'number' */
    WEIR_LOG_SINCE, /* later ones of the names that edit 'number' changed */
    WEIR_LOG_WHICH_COUNT,
};

struct weir_log_query {
    enum weir_log_which which;
    uint64_t number; /* <= INT64_MAX */
    uint64_t max;    /* entries; <= INT64_MAX */
    struct weir_text name;
};

/* Rows are borrowed during the call. 0 to go on. */
typedef int weir_row_each(void *context, const struct weir_row *row);
typedef int weir_log_row_each(void *context, const struct weir_log_row *row);

struct weir_backend;

struct weir_backend_type {
    const char *scheme;  /* "sqlite" */
    const char *example; /* "sqlite:FILE" */
    /* A new, empty store within a transaction, seen by nobody before its
     * commit; closed without one, it never was. All of its meta is 0. After
     * the commit it may only be closed. WEIR_EEXIST. 'where' is what follows
     * the scheme's colon. */
    int (*create)(const char *where, struct weir_backend **out,
                  struct weir_diag *diag);
    int (*open)(const char *where, struct weir_backend **out,
                struct weir_diag *diag);
    int (*upgrade)(const char *where, unsigned *out_from,
                   struct weir_diag *diag);
    /* As weir_store_check_mode(); NULL: it is no file. */
    int (*check_mode)(const char *where, struct weir_diag *diag);
    void (*close)(struct weir_backend *backend);

    /* A transaction; all calls below but the last are made inside one. For
     * 'write', no other writer is let in from here on. */
    int (*begin)(struct weir_backend *backend, bool write,
                 struct weir_diag *diag);
    int (*commit)(struct weir_backend *backend, struct weir_diag *diag);
    void (*rollback)(struct weir_backend *backend);

    int (*meta)(struct weir_backend *backend, struct weir_store_meta *out,
                struct weir_diag *diag);
    /* Rows above 'epoch', removals included, in the order of epochs. */
    int (*read)(struct weir_backend *backend, uint64_t epoch,
                weir_row_each *each, void *context, struct weir_diag *diag);
    /* The newest first. */
    int (*read_log)(struct weir_backend *backend,
                    const struct weir_log_query *query, weir_log_row_each *each,
                    void *context, struct weir_diag *diag);

    /* Writes that finish() may have to complete; what fails may fail there.
     * A name comes at most once in a transaction. 'fresh': the name had no
     * row before. */
    int (*write)(struct weir_backend *backend, const struct weir_row *row,
                 bool fresh, struct weir_diag *diag);
    int (*log)(struct weir_backend *backend, const struct weir_log_row *row,
               struct weir_diag *diag);
    /* Sets the meta row. Forgets what is past WEIR_STORE_LOG_MAX (whole
     * edits) and, if 'removed', the tombstones past WEIR_TOMBSTONES_MAX, which
     * raises the floor. */
    int (*finish)(struct weir_backend *backend,
                  const struct weir_store_meta *meta, bool removed,
                  struct weir_diag *diag);

    /* Sets 'moved_to' of the meta; NULL: nowhere. */
    int (*move)(struct weir_backend *backend, const char *to,
                struct weir_diag *diag);

    bool (*changed)(struct weir_backend *backend);
};

/* Begins each store's own struct. */
struct weir_backend {
    const struct weir_backend_type *type;
};

extern const struct weir_backend_type weir_backend_sqlite;
extern const struct weir_backend_type weir_backend_postgres;

#endif /* WEIR_BACKEND_H */
