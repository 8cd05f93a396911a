/* SPDX-License-Identifier: MIT
 * server/admin/admin_edit_internal.h - edits on their way through the store's
 * thread, shared by the parts of the administration that make them. */

#ifndef WEIR_ADMIN_EDIT_INTERNAL_H
#define WEIR_ADMIN_EDIT_INTERNAL_H

#include "server/admin/admin_internal.h"
#include "server/admin/changes.h"

/* How often an edit is made again because another root's edit came first. Each
 * time one of the racing edits is made, so at least this many others were
 * made. */
#define WEIR_ADMIN_TRIES_MAX 16

struct weir_admin_edit {
    struct weir_admin_edit *next;
    weir_admin_done_fn *done;
    void *context;
    enum weir_admin_verb verb;
    bool create;    /* refuse a quota that exists */
    bool replace;   /* of an import */
    bool add;       /* likewise, of the shadow set: adds to it */
    bool shadow;    /* an import of the shadow set; a log of its quota */
    bool sent;      /* the store's thread has the changes */
    unsigned tries; /* number of times they were sent */
    json_t *body;   /* owned; NULL: none */
    struct weir_admin_log *log; /* shared with the store's thread; or NULL */
    uint64_t epoch;             /* to undo; of the log: read below it */
    size_t max;                 /* entries of the log */
    size_t created, changed, unchanged, removed, reset;
    size_t name_len, who_len;
    char name[WEIR_NAME_MAX + 1];
    char who[WEIR_STORE_IDENTITY_MAX + 1];
};

static inline struct weir_text weir_admin_edit_name(
    const struct weir_admin_edit *edit)
{
    return (struct weir_text){ edit->name, edit->name_len };
}
static inline struct weir_text weir_admin_edit_identity(
    const struct weir_admin_edit *edit)
{
    return (struct weir_text){ edit->who, edit->who_len };
}

/* ---- admin_change.c ---- */
/* Makes the changes of the edit to the root's catalog, and the store's flags.
 * Counts created, changed, unchanged, removed. 0 or the error with 'diag'
 * filled; 'changes' is the caller's to free either way. */
int weir_admin_make_changes(struct weir_admin *admin,
                            struct weir_admin_edit *edit,
                            struct weir_changes *changes, unsigned *out_flags,
                            struct weir_diag *diag);

/* ---- admin_log.c ---- */
/* Reads the query or the body into the edit. */
int weir_admin_read_log(struct weir_admin_call *call,
                        struct weir_admin_edit *edit, struct weir_diag *diag);
int weir_admin_read_undo(struct weir_admin_edit *edit, struct weir_diag *diag);
/* NULL is legal. */
void weir_admin_log_drop(struct weir_admin_log *log);
/* Requests the log from the store's thread; 0 or WEIR_ENOMEM. */
int weir_admin_ask_log(struct weir_admin *admin, struct weir_admin_edit *edit);
/* The answer; a new reference. */
json_t *weir_admin_log_answer(const struct weir_admin_edit *edit);

#endif /* WEIR_ADMIN_EDIT_INTERNAL_H */
