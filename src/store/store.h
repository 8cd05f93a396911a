/* SPDX-License-Identifier: MIT
 * store/store.h - where quotas are kept. One interface, one test suite
 * (test/store_suite.c), a file per store.
 *
 * A store is used by one thread, and its calls may block: a root gives it a
 * thread of its own. What it promises:
 *
 *  - An edit is one transaction: it reads the set, checks it
 *    (weir_catalog_check), writes all changes under consecutive epochs and
 *    moves the epoch row; or it changes nothing. Edits through several roots
 *    on one store serialise.
 *  - The epoch is one row, moved in the edit's own transaction. It never
 *    goes back, but by restoring a backup, which raises 'restores' (`weir
 *    store restored`, a later issue) or shows as a lower epoch.
 *  - Ids are never reused. Removals stay as tombstones. */

#ifndef WEIR_STORE_H
#define WEIR_STORE_H

#include "count/message.h"
#include "quota/catalog.h"

#define WEIR_STORE_SCHEMA 1

struct weir_store; /* opaque */

/* Creates a store at 'url' ("sqlite:FILE"). Refuses one that exists
 * (WEIR_EEXIST). Nothing else creates a store. */
int weir_store_init(const char *url, struct weir_diag *diag);

/* Opens a store that exists. WEIR_ENOENT ('diag' names `weir store init`),
 * WEIR_ESCHEMA, WEIR_ELOCKED, WEIR_ESTORE. */
int weir_store_open(const char *url, struct weir_store **out,
                    struct weir_diag *diag);
void weir_store_close(struct weir_store *store);

/* Identity and newest epoch. Every call below also notices that the file was
 * moved away or replaced (path against inode) and fails with WEIR_ESTORE. */
int weir_store_identity(struct weir_store *store, struct weir_store_id *id,
                        uint64_t *epoch, uint64_t *floor,
                        struct weir_diag *diag);

/* Hands out every change above 'epoch' in the order of epochs, removals
 * included, in one consistent read. 'each' returns 0 to go on. A change is
 * borrowed during the call. */
typedef int weir_store_each(void *context, const struct weir_change *change);
int weir_store_read(struct weir_store *store, uint64_t epoch,
                    weir_store_each *each, void *context,
                    struct weir_diag *diag);

/* What an edit may ask for beside its changes. */
enum weir_edit_flags {
    WEIR_EDIT_REPLACE = 1, /* remove every quota that isn't named */
    WEIR_EDIT_CREATE = 2,  /* WEIR_EEXIST for a name that exists */
};

/* Applies 'count' changes in the order that keeps the tree sound (parents
 * before children, removals of children before parents), whatever order they
 * came in; all or none. The quotas' id, epoch and created are the store's to
 * set. A change that alters nothing takes no epoch. On success '*epoch' is
 * the newest. Fails with the error of weir_catalog_check(), WEIR_ELOCKED
 * (after at most 2 s), WEIR_ESTORE. */
int weir_store_edit(struct weir_store *store,
                    const struct weir_change *changes, size_t count,
                    unsigned flags, uint64_t *epoch,
                    struct weir_diag *diag);

/* Whether something may have changed since the last call (another root, or
 * this one): cheap, meant to be asked every 25 ms. Never blocks for long. */
bool weir_store_changed(struct weir_store *store);

#endif /* WEIR_STORE_H */
