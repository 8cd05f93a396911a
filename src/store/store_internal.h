/* SPDX-License-Identifier: MIT
 * store/store_internal.h - the interface between store.c, edit_log.c and
 * migrate.c. */

#ifndef WEIR_STORE_INTERNAL_H
#define WEIR_STORE_INTERNAL_H

#include "store/backend.h"

struct weir_store {
    struct weir_backend *backend;
    struct weir_catalog *catalog;    /* NULL: read it before its next use */
    struct weir_store_id id;         /* the store that the catalog was read
                                      * from */
    char shown[WEIR_STORE_SHOW_MAX]; /* its URL */
};

/* The kind of store that a URL names, and the rest of the URL behind its colon.
 * WEIR_EINVAL with 'diag' filled. */
int weir_store_find(const char *url, const struct weir_backend_type **type,
                    const char **where, struct weir_diag *diag);

/* Refuses a migrated store with WEIR_ESTORE; 'shown' is its URL. */
int weir_store_check_moved(const struct weir_store_meta *meta,
                           const char *shown, struct weir_diag *diag);

/* Whether 'who' is valid as an editor in the log. Returns 0 or WEIR_EINVAL. */
int weir_store_check_identity(struct weir_text who, struct weir_diag *diag);

/* An edit inside a write transaction, which it ends on success only. Errors as
 * weir_store_edit(). */
int weir_store_edit_begun(struct weir_store *store,
                          const struct weir_edit *edit, uint64_t *out_epoch,
                          struct weir_diag *diag);

#endif /* WEIR_STORE_INTERNAL_H */
