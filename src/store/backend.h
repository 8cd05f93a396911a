/* SPDX-License-Identifier: MIT
 * store/backend.h - what a file of this room gives so that store.c can make
 * a quota store of it: rows and transactions. What a sound edit is, in which
 * order its changes go and which epochs they take is store.c's and the same
 * for all. */

#ifndef WEIR_BACKEND_H
#define WEIR_BACKEND_H

#include "store/store.h"

struct weir_store_meta {
    struct weir_store_id id;
    uint64_t epoch;
    uint64_t floor;
};

struct weir_backend;

struct weir_backend_type {
    const char *scheme; /* "sqlite" */
    /* 'where' is what follows the scheme's colon. */
    int (*init)(const char *where, struct weir_diag *diag);
    int (*open)(const char *where, struct weir_backend **out,
                struct weir_diag *diag);
    void (*close)(struct weir_backend *backend);

    /* A transaction; all calls below but the last are made inside one. For
     * 'write', no other writer is let in from here on. */
    int (*begin)(struct weir_backend *backend, bool write,
                 struct weir_diag *diag);
    int (*commit)(struct weir_backend *backend, struct weir_diag *diag);
    void (*rollback)(struct weir_backend *backend);

    int (*meta)(struct weir_backend *backend, struct weir_store_meta *out,
                struct weir_diag *diag);
    int (*read)(struct weir_backend *backend, uint64_t epoch,
                weir_store_each *each, void *context, struct weir_diag *diag);
    /* Writes a quota as it is. id 0: a new name, whose id is given. */
    int (*put)(struct weir_backend *backend, struct weir_quota *quota,
               struct weir_diag *diag);
    int (*remove)(struct weir_backend *backend, struct weir_text name,
                  uint64_t epoch, struct weir_diag *diag);
    /* Moves the epoch row. 'removed': forgets the tombstones past
     * WEIR_TOMBSTONES_MAX and raises the floor. */
    int (*finish)(struct weir_backend *backend, uint64_t epoch, bool removed,
                  struct weir_diag *diag);

    bool (*changed)(struct weir_backend *backend);
};

/* Begins each store's own struct. */
struct weir_backend {
    const struct weir_backend_type *type;
};

extern const struct weir_backend_type weir_backend_sqlite;

#endif /* WEIR_BACKEND_H */
