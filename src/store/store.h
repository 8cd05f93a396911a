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
 *    goes back, but by restoring a backup, which shows as a lower epoch (or,
 *    said by `weir store restored`, as a higher 'restores').
 *  - Who edited what, and when, is kept in the same transaction.
 *  - Ids are never reused. Removals stay as tombstones. */

#ifndef WEIR_STORE_H
#define WEIR_STORE_H

#include "count/message.h"
#include "quota/catalog.h"

#define WEIR_STORE_SCHEMA 3
#define WEIR_STORE_LOG_MAX 1000000 /* changes remembered; older ones go */
#define WEIR_STORE_WHO_MAX 255     /* bytes of who edited */

struct weir_store; /* opaque */

/* Creates a store at 'url': "sqlite:FILE", or "postgres:…" with what libpq
 * takes behind the colon ("postgres://host/db", "postgres:host=… dbname=…").
 * Refuses one that exists (WEIR_EEXIST). Nothing else creates a store. A
 * password in a URL is never shown: diags and logs go by
 * weir_store_show(). */
int weir_store_init(const char *url, struct weir_diag *diag);

/* Opens a store that exists. WEIR_ENOENT ('diag' names `weir store init`),
 * WEIR_ESCHEMA (older: 'diag' names `weir store upgrade`; newer: says which
 * Weir is wanted), WEIR_ELOCKED, WEIR_ESTORE. */
int weir_store_open(const char *url, struct weir_store **out,
                    struct weir_diag *diag);
void weir_store_close(struct weir_store *store);

/* Whether the store at 'url' is safe from other users of this machine: 0, or
 * WEIR_EINVAL with 'diag' saying what they may do and how to end it. Users of
 * the file's group don't count: an operator put them there. The mode is the
 * operator's and is left as it is. 0 too where there is no file. */
int weir_store_check_mode(const char *url, struct weir_diag *diag);

/* Brings a store that an older Weir made to WEIR_STORE_SCHEMA, in one
 * transaction; 0 too when there was nothing to do. 'out_from': its schema
 * before. Roots of the older version on the same store see WEIR_ESCHEMA from
 * then on, and go on from memory. */
int weir_store_upgrade(const char *url, unsigned *out_from,
                       struct weir_diag *diag);

/* Copies a store: its identity (uuid, restores, epoch, floor), quotas with
 * ids, epochs and what they were created at, removals, and the log, so that
 * limiters notice nothing. 'to' is created; WEIR_EEXIST if it is there. Edits
 * of 'from' wait meanwhile. All or nothing. From then on 'from' can't be
 * opened, looked at or edited, WEIR_ESTORE, 'diag' names 'to': two stores of
 * one identity that are both edited would be one to limiters. */
int weir_store_migrate(const char *from, const char *to, size_t *out_quotas,
                       struct weir_diag *diag);

/* Says that the store was restored from a backup, so that roots and limiters
 * forget what they have and begin anew: raises 'restores'. One that was
 * migrated can be used again. */
int weir_store_restored(const char *url, uint64_t *out_restores,
                        struct weir_diag *diag);

/* 'url' without its password, into 'buf' of WEIR_STORE_SHOW_MAX bytes;
 * returned. */
#define WEIR_STORE_SHOW_MAX 512
const char *weir_store_show(const char *url, char *buf);

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
    WEIR_EDIT_REPLACE = 1, /* remove every quota of the live set that isn't
                            * named */
    WEIR_EDIT_CREATE = 2,  /* WEIR_EEXIST for a name that exists */
    WEIR_EDIT_SHADOW = 4,  /* WEIR_EDIT_REPLACE is about the shadow set (names
                            * that begin with WEIR_SHADOW_PREFIX) */
    WEIR_EDIT_BASED = 8,   /* WEIR_ECHANGED unless 'based' is the newest epoch
                            * still: nothing came between what the changes
                            * were made from and this edit */
};

struct weir_edit {
    const struct weir_change *changes; /* borrowed */
    size_t count;
    unsigned flags;
    uint64_t based;       /* of WEIR_EDIT_BASED */
    struct weir_text who; /* for the log; empty: "" */
};

/* Applies the changes in the order that keeps the tree sound (parents before
 * children, removals of children before parents), whatever order they came in;
 * all or none. The quotas' id, epoch and created are the store's to set. A
 * change that alters nothing takes no epoch, unless it 'resets'. On success
 * '*epoch' is the newest, and each change is in the log, in the same
 * transaction. Fails with the error of weir_catalog_check(), WEIR_ELOCKED
 * (after at most 2 s), WEIR_ESTORE (also when it can't be known whether the
 * commit came through: 'diag' says to look). */
int weir_store_edit(struct weir_store *store, const struct weir_edit *edit,
                    uint64_t *epoch, struct weir_diag *diag);

/* One change as it is in the log. Borrowed during the call. */
struct weir_log_entry {
    uint64_t epoch; /* of the change */
    uint64_t edit;  /* the last epoch of the edit that it belongs to */
    uint64_t at_ms; /* wall clock, since 1970, by the root that edited */
    struct weir_text who;
    struct weir_text name;
    bool has_before, has_after;
    bool reset; /* before and after are the same: the bucket was emptied */
    struct weir_quota before, after;
};
typedef int weir_store_log_each(void *context,
                                const struct weir_log_entry *entry);
/* The newest first: at most 'max' entries below epoch 'below' (0: from the
 * newest), of the quota 'name' (empty: of all). */
int weir_store_log(struct weir_store *store, uint64_t below,
                   struct weir_text name, size_t max, weir_store_log_each *each,
                   void *context, struct weir_diag *diag);

/* Takes back the edit that made 'epoch', all its changes, as a new edit.
 * WEIR_ENOENT: no such epoch, or no longer in the log. WEIR_ECHANGED: one of
 * its quotas was changed since ('diag' names it, by whom and when).
 * WEIR_EINVAL: it was a reset, and the bucket's content is gone. Otherwise
 * fails as weir_store_edit(): what depends on it now may refuse. */
int weir_store_undo(struct weir_store *store, uint64_t epoch,
                    struct weir_text who, uint64_t *out_epoch,
                    struct weir_diag *diag);

/* Whether something may have changed since the last call (another root, or
 * this one): cheap, meant to be asked every 25 ms. Never waits for a server
 * (PostgreSQL: by NOTIFY). */
bool weir_store_changed(struct weir_store *store);

#endif /* WEIR_STORE_H */
