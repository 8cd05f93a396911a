/* SPDX-License-Identifier: MIT
 * server/admin/admin_internal.h - shared by the parts of the administration. */

#ifndef WEIR_ADMIN_INTERNAL_H
#define WEIR_ADMIN_INTERNAL_H

#include <jansson.h>

#include "front/uri.h"
#include "front/view.h"
#include "server/admin/admin.h"

#define WEIR_JSON_TYPE "application/json"
#define WEIR_HTTP_PROBLEM_TYPE "application/problem+json"
#define WEIR_TEXT_TYPE "text/plain; charset=utf-8"
#define WEIR_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct weir_admin_edit;

/* Bad rows of the store that the status names; of more it has the number. */
#define WEIR_ADMIN_BAD_ROWS_MAX 32
struct weir_admin_bad_rows {
    uint64_t count; /* of all */
    size_t named;
    struct weir_admin_bad_row {
        uint64_t id;
        bool kept; /* its last good value is served */
        uint8_t name_len;
        char name[WEIR_NAME_MAX];
        char why[WEIR_DIAG_MAX];
    } rows[WEIR_ADMIN_BAD_ROWS_MAX];
};

struct weir_admin {
    struct weir_root *root; /* borrowed */
    struct weir_admin_parts parts;
    const struct weir_authorization *authorizer; /* borrowed; NULL: none */
    struct weir_settings settings;
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    char name[WEIR_NAME_MAX + 1];
    char *store_url;     /* owned */
    const char *version; /* static */
    weir_instant started;
    struct weir_store_id store_id;
    uint64_t floor;
    int trouble; /* the store's error; 0: none */
    char trouble_why[WEIR_DIAG_MAX];
    struct weir_admin_bad_rows bad;
    bool stopping;
    struct weir_views *views;   /* owned */
    char parent[WEIR_NAME_MAX]; /* scratch of admin_view.c */
    /* The queue of edits; the first is being made; owned. */
    struct weir_admin_edit *edits, **edits_end;
    size_t edits_count;
};

/* What an edit does. */
enum weir_admin_verb {
    WEIR_VERB_PUT,
    WEIR_VERB_PATCH,
    WEIR_VERB_REMOVE,
    WEIR_VERB_REMOVE_ALL, /* the quotas that the body names */
    WEIR_VERB_RESET,      /* likewise */
    WEIR_VERB_IMPORT,
    WEIR_VERB_PROMOTE, /* the shadow set becomes the live one */
    WEIR_VERB_DISCARD, /* the shadow set is dropped */
    WEIR_VERB_UNDO,
    WEIR_VERB_LOG, /* alters nothing, but waits for the store too */
};

/* The caller, which is answered once. */
struct weir_admin_asker {
    weir_admin_done_fn *done;
    void *context;
};

/* One request, from its arrival to its answer. */
struct weir_admin_call {
    struct weir_admin *admin;
    const struct weir_admin_request *request;
    struct weir_uri uri;
    struct weir_text name;     /* of the quota in the path, decoded */
    enum weir_admin_verb verb; /* of an edit */
    struct weir_admin_asker asker;
    weir_instant now;
};

/* ---- Bad rows of the store (admin_bad_rows.c) ---- */

void weir_admin_add_bad_row(struct weir_admin *admin,
                            const struct weir_bad_row *row, weir_instant now);
/* A good row of that name was read, or a removal. */
void weir_admin_heal_row(struct weir_admin *admin, struct weir_text name);
/* NULL: no memory. */
json_t *weir_admin_bad_rows(const struct weir_admin *admin);

/* ---- Answers (admin_answer.c) ---- */

/* 'body' is stolen; NULL, or one that lacks a part for want of
 * memory (codec/json_text.h), answers 503. */
void weir_admin_answer_json(const struct weir_admin_asker *asker, int status,
                            json_t *body);
void weir_admin_answer_error(const struct weir_admin_asker *asker, int error,
                             const struct weir_diag *diag);
void weir_admin_answer_text(const struct weir_admin_asker *asker, int status,
                            const char *type, const char *body, size_t len);
/* The path has other methods: 'allow'. */
void weir_admin_answer_method(const struct weir_admin_asker *asker,
                              const char *allow);

/* The data that the page shows (admin_view.c). */
struct weir_view_source weir_admin_source(struct weir_admin *admin);

/* ---- Limits of whole fleets (admin_fleet.c) ---- */

/* Members of a fleet's limit that an answer has; of more it has the number. */
#define WEIR_ADMIN_MEMBERS_MAX 1000
/* The state of the limit of that name; NULL: it isn't in use as such a one
 * here, or there is no memory. */
json_t *weir_admin_fleet_limit(const struct weir_admin *admin,
                               struct weir_text name, weir_instant now);
/* All of them, with the names of their outliers. */
json_t *weir_admin_fleets(const struct weir_admin *admin, weir_instant now);

/* ---- Names of the shadow set (admin_shadow.c) ---- */

/* Refuses a quota of the live set that names a quota of the shadow set. */
int weir_shadow_refuse(const struct weir_quota *quota, struct weir_diag *diag);
/* 'quota' with its names in the shadow set, the texts in 'buf'. Refuses names
 * that are too long with the prefix. */
struct weir_shadow_texts {
    char name[WEIR_NAME_MAX], parent[WEIR_NAME_MAX], overflow[WEIR_NAME_MAX];
};
int weir_shadow_quota(const struct weir_quota *quota,
                      struct weir_shadow_texts *buf, struct weir_quota *out,
                      struct weir_diag *diag);
/* Takes the shadow prefix from the names in a message. */
void weir_shadow_clean(struct weir_diag *diag);
/* A quota of the shadow set under the names that it will have in force. Texts
 * stay borrowed; any other quota stays as it is. */
struct weir_quota weir_shadow_live(const struct weir_quota *quota);

/* ---- Handlers ---- */

/* admin_read.c */
void weir_admin_get_quota(struct weir_admin_call *call);
void weir_admin_list(struct weir_admin_call *call);
void weir_admin_export(struct weir_admin_call *call);
void weir_admin_brief(struct weir_admin_call *call);
/* admin_fleet.c */
void weir_admin_fleet(struct weir_admin_call *call);
/* admin_status.c */
void weir_admin_status(struct weir_admin_call *call);
void weir_admin_metrics(struct weir_admin_call *call);
void weir_admin_health(struct weir_admin_call *call);
void weir_admin_readiness(struct weir_admin_call *call);
/* admin_preview.c */
void weir_admin_preview(struct weir_admin_call *call);
/* admin_debug.c */
void weir_admin_debug_status(struct weir_admin_call *call);
void weir_admin_debug_resources(struct weir_admin_call *call);
/* admin_edit.c: puts the call into the queue of edits; it is answered when its
 * turn is over. */
void weir_admin_enqueue(struct weir_admin_call *call);

/* admin_edit.c: the store's thread has done the first edit's request. */
void weir_admin_edit_done(struct weir_admin *admin,
                          struct weir_admin_edit *edit, int error,
                          const struct weir_diag *diag, uint64_t epoch);
void weir_admin_edits_fini(struct weir_admin *admin);

#endif /* WEIR_ADMIN_INTERNAL_H */
