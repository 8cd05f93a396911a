/* SPDX-License-Identifier: MIT
 * store/backend.h - the functions by which store.c makes a quota store of a
 * database: rows and transactions. Checking an edit, ordering its changes,
 * assigning epochs and ids and writing the log's entries is the job of store.c,
 * and the same for all databases. */

#ifndef WEIR_BACKEND_H
#define WEIR_BACKEND_H

#include "store/row.h"
#include "store/store.h"

/* The meta row, which every edit changes. Rows that another program wrote may
 * have a higher epoch or id than it says; meta() counts them. */
struct weir_store_meta {
    struct weir_store_id id;
    uint64_t epoch;
    uint64_t floor;
    uint64_t last_id; /* the highest id given to a quota */
    /* the URL to which weir_store_migrate() has copied the store, as
     * weir_store_show() has it; "": none. Not written by finish(). */
    char moved_to[WEIR_STORE_SHOW_MAX];
};

/* Selects entries of the log. */
enum weir_log_which {
    WEIR_LOG_ALL,   /* with an epoch below 'number' */
    WEIR_LOG_NAME,  /* of 'name', with an epoch below 'number' */
    WEIR_LOG_EDIT,  /* of the edit 'number' */
    WEIR_LOG_SINCE, /* later entries of the names that edit 'number' changed */
    WEIR_LOG_WHICH_COUNT,
};

struct weir_log_query {
    enum weir_log_which which;
    uint64_t number; /* <= INT64_MAX */
    uint64_t max;    /* of entries; <= INT64_MAX */
    struct weir_text name;
};

/* Called for each row, which is borrowed during the call. 0 to go on. */
typedef int weir_row_each(void *context, const struct weir_row *row);
typedef int weir_log_row_each(void *context, const struct weir_log_row *row);

struct weir_backend;

enum weir_begin {
    WEIR_BEGIN_READ,
    WEIR_BEGIN_WRITE, /* other writers are locked out; waits for one */
    WEIR_BEGIN_FREE,  /* the same, but fails if there is one: for work that can
                       * wait better than the edits behind it */
};

struct weir_backend_type {
    const char *scheme;  /* "sqlite" */
    const char *example; /* "sqlite:FILE" */
    /* Makes the backend of the store at 'where', the URL behind the scheme's
     * colon. The caller then calls one of the next three, and close() in the
     * end, also if that failed. */
    int (*make)(const char *where, struct weir_backend **out,
                struct weir_diag *diag);
    /* Makes a new, empty store within a transaction; no other session sees it
     * before the commit, and closing it without one removes it. All of its meta
     * is 0, and it has the mark that no root was ever its master. After the
     * commit it may only be closed. WEIR_EEXIST. */
    int (*create)(struct weir_backend *backend, struct weir_diag *diag);
    int (*open)(struct weir_backend *backend, struct weir_diag *diag);
    int (*upgrade)(struct weir_backend *backend, unsigned *out_from,
                   struct weir_diag *diag);
    /* As weir_store_check_mode(); NULL: the store is no file. */
    int (*check_mode)(const char *where, struct weir_diag *diag);
    void (*close)(struct weir_backend *backend);

    /* Begins a transaction; all calls below but the last are made inside
     * one. */
    int (*begin)(struct weir_backend *backend, enum weir_begin how,
                 struct weir_diag *diag);
    int (*commit)(struct weir_backend *backend, struct weir_diag *diag);
    void (*rollback)(struct weir_backend *backend);

    int (*meta)(struct weir_backend *backend, struct weir_store_meta *out,
                struct weir_diag *diag);
    /* Rows above 'epoch', removals included, in ascending order of epochs; 0:
     * all rows, also those without a usable epoch. */
    int (*read)(struct weir_backend *backend, uint64_t epoch,
                weir_row_each *each, void *context, struct weir_diag *diag);
    /* The newest first. */
    int (*read_log)(struct weir_backend *backend,
                    const struct weir_log_query *query, weir_log_row_each *each,
                    void *context, struct weir_diag *diag);

    /* Writes a row; finish() may complete the writes, and report their errors.
     * A name comes at most once in a transaction. 'fresh': the name had no row
     * before, or a bad one, which goes. */
    int (*write)(struct weir_backend *backend, const struct weir_row *row,
                 bool fresh, struct weir_diag *diag);
    int (*log)(struct weir_backend *backend, const struct weir_log_row *row,
               struct weir_diag *diag);
    /* Sets the meta row. Deletes log entries beyond WEIR_STORE_LOG_MAX (whole
     * edits) and, if 'removed', the tombstones beyond WEIR_TOMBSTONES_MAX,
     * which raises the floor. */
    int (*finish)(struct weir_backend *backend,
                  const struct weir_store_meta *meta, bool removed,
                  struct weir_diag *diag);

    /* Sets 'moved_to' of the meta; NULL: clears it. */
    int (*move)(struct weir_backend *backend, const char *to,
                struct weir_diag *diag);

    /* As weir_store_present(); 'root' in hexadecimal. */
    int (*present)(struct weir_backend *backend, const char *root, bool leaves,
                   uint32_t *out_roots, struct weir_diag *diag);

    /* Removes that mark. 'out_was': there was one. */
    int (*unmark)(struct weir_backend *backend, bool *out_was,
                  struct weir_diag *diag);

    bool (*changed)(struct weir_backend *backend);
};

/* The first member of each store's own struct. */
struct weir_backend {
    const struct weir_backend_type *type;
};

/* Opens the store at 'url', or creates it; the errors of weir_store_open() and
 * weir_store_init(). The caller closes it. */
int weir_backend_open(const char *url, bool create, struct weir_backend **out,
                      struct weir_diag *diag);

/* The kind of store that 'url' names, and the rest of the URL behind its
 * colon. WEIR_EINVAL, with 'diag' filled. */
int weir_backend_find(const char *url, const struct weir_backend_type **type,
                      const char **where, struct weir_diag *diag);
/* Opens it without a look at its version. */
int weir_backend_make(const char *url, struct weir_backend **out,
                      struct weir_diag *diag);
/* Ends a transaction: commits it if 'error' is 0, and rolls it back if not, or
 * if that fails. Returns 'error', or the commit's. */
int weir_backend_end(struct weir_backend *backend, int error,
                     struct weir_diag *diag);
/* WEIR_ESTORE if it was migrated, with 'diag' filled; 'shown' is its URL. */
int weir_backend_check_moved(const struct weir_store_meta *meta,
                             const char *shown, struct weir_diag *diag);

extern const struct weir_backend_type weir_backend_sqlite;
extern const struct weir_backend_type weir_backend_postgres;

#endif /* WEIR_BACKEND_H */
