/* SPDX-License-Identifier: MIT
 * store/store.h - stores of quotas. One interface, one test suite
 * (test/store/store_suite.c), a file per kind of store.
 *
 * A store is used by one thread, and its calls may block: a root gives it a
 * thread of its own. Guarantees:
 *
 *  - An edit is one transaction: it reads the set, checks it
 *    (weir_catalog_check), writes all changes under consecutive epochs and
 *    moves the epoch row; or it changes nothing. Edits through several roots
 *    on one store serialise.
 *  - The epoch is one row, moved in the edit's own transaction. It goes back
 *    only if the store's history is replaced (a backup, a failover that lost
 *    commits). A reader notices that by its lineage (weir_store_look()), also
 *    when later edits have brought the epoch beyond its own.
 *  - Each edit's log entries (editor, changes, time) are written in its
 *    transaction.
 *  - Ids are never reused. Removals stay as tombstones. */

#ifndef WEIR_STORE_H
#define WEIR_STORE_H

#include "core/counted/message.h"
#include "core/quota/catalog.h"
#include "store/lineage.h"

#define WEIR_STORE_SCHEMA 3
#define WEIR_STORE_LOG_MAX 1000000  /* changes kept; older ones are deleted */
#define WEIR_STORE_IDENTITY_MAX 255 /* bytes of an editor's name */

struct weir_store; /* opaque */

/* Creates a store at 'url': "sqlite:FILE", or "postgres:…" with a connection
 * string of libpq's behind the colon ("postgres://host/db", "postgres:host=…
 * dbname=…"). Refuses one that exists (WEIR_EEXIST). Only this and
 * weir_store_migrate() create stores. A password in a URL is never shown: diags
 * and logs use weir_store_show(). */
int weir_store_init(const char *url, struct weir_diag *diag);

/* Opens a store that exists. WEIR_ENOENT ('diag' names `weir store init`),
 * WEIR_ESCHEMA (older: 'diag' names `weir store upgrade`; newer: 'diag' says
 * which Weir it needs), WEIR_ELOCKED, WEIR_ESTORE. */
int weir_store_open(const char *url, struct weir_store **out,
                    struct weir_diag *diag);
void weir_store_close(struct weir_store *store);

/* Whether the store at 'url' is safe from other users of this machine: 0, or
 * WEIR_EINVAL with 'diag' saying what these may do and how to prevent it. Users
 * of the file's group don't count, since an operator put them there. The mode
 * is never changed. Also 0 if there is no file. */
int weir_store_check_mode(const char *url, struct weir_diag *diag);

/* Upgrades a store of an older Weir to WEIR_STORE_SCHEMA, in one transaction; 0
 * also if nothing is to be done. 'out_from': its schema before. Roots of the
 * older version on the same store get WEIR_ESCHEMA from then on, and continue
 * from memory. */
int weir_store_upgrade(const char *url, unsigned *out_from,
                       struct weir_diag *diag);

/* Copies a store: its identity (uuid, restores, epoch, floor), quotas with ids,
 * epochs and creation epochs, removals, and the log, so that limiters notice no
 * difference. 'to' is created; WEIR_EEXIST if it exists. Edits of 'from' wait
 * meanwhile. All or nothing. From then on 'from' can't be opened, read or
 * edited (WEIR_ESTORE, 'diag' names 'to'): limiters couldn't tell apart two
 * stores with one identity that are both edited. */
int weir_store_migrate(const char *from, const char *to, size_t *out_quotas,
                       struct weir_diag *diag);

/* Marks the store as restored from a backup, so that roots and limiters drop
 * their state and start over: raises 'restores'. A migrated store can be used
 * again after it. */
int weir_store_restored(const char *url, uint64_t *out_restores,
                        struct weir_diag *diag);

/* Takes the mark of a new store that no root of it was ever master, so that no
 * lease of its quotas is out. '*out_never' is true for the one call that finds
 * it; it is off the disk before that returns. False: it was taken before, or
 * the store was migrated, restored, or made by a Weir without the mark. After
 * an error (as of weir_store_restored()) it may be taken or not. 'waits': for
 * another writer, if there is one; else that is an error. */
int weir_store_take_never_leased(const char *url, bool waits, bool *out_never,
                                 struct weir_diag *diag);

/* Writes 'url' without its password into 'buf' of WEIR_STORE_SHOW_MAX bytes;
 * returns 'buf'. */
#define WEIR_STORE_SHOW_MAX 512
const char *weir_store_show(const char *url, char *buf);

/* The state in the store of the changes that a reader has. */
enum weir_history {
    WEIR_HISTORY_KEPT,    /* the store has them */
    WEIR_HISTORY_LOST,    /* its history was replaced: it lacks the newest */
    WEIR_HISTORY_UNKNOWN, /* it is another store, or its log doesn't reach back
                           * to them */
};

struct weir_store_state {
    struct weir_store_id id;
    uint64_t epoch; /* the newest */
    uint64_t floor;
    enum weir_history history;     /* of the reader's changes … */
    struct weir_lineage_loss loss; /* … if they are lost */
};

/* The state of the store for a reader with the changes of 'known' (NULL: it has
 * none). One indexed row more is read than without. This and every call below
 * fails with WEIR_ESTORE if the file was moved away or replaced (path against
 * inode). */
int weir_store_look(struct weir_store *store, const struct weir_lineage *known,
                    struct weir_store_state *out, struct weir_diag *diag);

/* Makes sure that the store has another identity than 'known', whose changes it
 * lost: raises 'restores' beyond both, as weir_store_restored() does, unless
 * another root has done so. Thus every root and limiter drops its quotas for
 * the store's, also one that can't know which changes were lost. */
int weir_store_mark_replaced(struct weir_store *store,
                             const struct weir_lineage *known,
                             struct weir_diag *diag);

/* Hands out every change above 'epoch' in the order of epochs, removals
 * included, in one consistent read. 'each' returns 0 to go on; it borrows a
 * change during the call. 'lineage' (NULL: not wanted) then ends with the
 * newest of them; WEIR_ECHANGED, and no change, if it is of another store. */
typedef int weir_store_each(void *context, const struct weir_change *change);
int weir_store_read(struct weir_store *store, uint64_t epoch,
                    weir_store_each *each, void *context,
                    struct weir_lineage *lineage, struct weir_diag *diag);

/* A row that this version can't read: written by another program, or by a newer
 * Weir. It is skipped; an edit of its name replaces it. */
struct weir_bad_row {
    uint64_t id; /* 0: a removal, or no number */
    uint64_t epoch;
    struct weir_text name; /* as it is in the row: any bytes, any length */
    const char *why;
};
typedef void weir_store_bad_each(void *context, const struct weir_bad_row *row);
/* Has 'each' (NULL: none) called for each bad row that weir_store_read() meets,
 * in its place among the changes. The row is borrowed during the call. */
void weir_store_watch_rows(struct weir_store *store, weir_store_bad_each *each,
                           void *context);

/* Options of an edit. */
enum weir_edit_flags {
    WEIR_EDIT_REPLACE = 1, /* remove every quota of the live set that the edit
                            * doesn't name */
    WEIR_EDIT_CREATE = 2,  /* WEIR_EEXIST for a name that exists */
    WEIR_EDIT_SHADOW = 4,  /* WEIR_EDIT_REPLACE replaces the shadow set (names
                            * that begin with WEIR_SHADOW_PREFIX) */
    WEIR_EDIT_BASED = 8,   /* WEIR_ECHANGED unless 'based' is still the newest
                            * epoch: no other edit came after the one that the
                            * changes were based on */
};

struct weir_edit {
    const struct weir_change *changes; /* borrowed */
    size_t count;
    unsigned flags;
    uint64_t based;            /* for WEIR_EDIT_BASED */
    struct weir_text identity; /* the editor, for the log; may be empty */
};

/* Applies the changes in the order that keeps the tree sound (parents before
 * children, removals of children before parents), in whatever order they are
 * given; all or none. The store sets the quotas' id, epoch and created. A
 * change that alters nothing takes no epoch, unless it 'resets'. On success
 * '*epoch' is the newest, and each change is in the log, in the same
 * transaction. Fails with the error of weir_catalog_check(), WEIR_ELOCKED
 * (after at most 2 s), WEIR_ESTORE (also if it is unknown whether the commit
 * succeeded: 'diag' says to check). */
int weir_store_edit(struct weir_store *store, const struct weir_edit *edit,
                    uint64_t *epoch, struct weir_diag *diag);

/* One change in the log. Borrowed during the call. */
struct weir_log_entry {
    uint64_t epoch; /* of the change */
    uint64_t edit;  /* last epoch of its edit */
    uint64_t at_ms; /* ms since 1970, by the wall clock of the root that
                     * edited */
    struct weir_text identity;
    struct weir_text name;
    bool has_before, has_after;
    bool reset; /* the edit emptied the bucket; before and after are equal */
    struct weir_quota before, after;
};
typedef int weir_store_log_each(void *context,
                                const struct weir_log_entry *entry);
/* The newest first: at most 'max' entries below epoch 'below' (0: from the
 * newest), of the quota 'name' (empty: of all). */
int weir_store_log(struct weir_store *store, uint64_t below,
                   struct weir_text name, size_t max, weir_store_log_each *each,
                   void *context, struct weir_diag *diag);

/* Undoes the edit that made 'epoch', all its changes, by a new edit.
 * WEIR_ENOENT: no such epoch, or no longer in the log. WEIR_ECHANGED: one of
 * its quotas was changed since ('diag' names it, the editor and the time).
 * WEIR_EINVAL: it was a reset, and the bucket's content is gone. Otherwise
 * fails as weir_store_edit(): quotas that depend on the edit may forbid it. */
int weir_store_undo(struct weir_store *store, uint64_t epoch,
                    struct weir_text identity, uint64_t *out_epoch,
                    struct weir_diag *diag);

/* Writes that a root is on this store, by its incarnation, and counts the roots
 * that have done so within WEIR_PRESENCE_TTL by the store's clock; rows that
 * are older are deleted. To be called each WEIR_PRESENCE_EVERY. 'leaves': the
 * root's row is deleted instead. No edit, and no reader notices it. Errors as
 * of weir_store_edit(): a root works without it. */
#define WEIR_PRESENCE_EVERY (5 * WEIR_SECOND)
#define WEIR_PRESENCE_TTL (15 * WEIR_SECOND)
int weir_store_present(struct weir_store *store,
                       const uint8_t root[WEIR_INCARNATION_SIZE], bool leaves,
                       uint32_t *out_roots, struct weir_diag *diag);

/* Whether there may be changes since the last call (by another root, or this
 * one). Cheap: call it every 25 ms. Never waits for a server (PostgreSQL: by
 * NOTIFY). */
bool weir_store_changed(struct weir_store *store);

#endif /* WEIR_STORE_H */
